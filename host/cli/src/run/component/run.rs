//! One run of a component, on its own thread: it may compute for ever, and the session goes on.

use std::ffi::OsString;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::thread;

use incumbent::Mark;
use incumbent_plugin::LeadershipCtx;
use tokio::runtime::Builder;
use tokio::sync::oneshot;
use wasmtime::Store;
use wasmtime_wasi::I32Exit;

use super::grants::{Grants, not_started};
use super::limit::Limit;
use super::program::{Program, State, one_line};
use super::quota::HANDED_OVER;
use crate::exit;

/// How many blocking system calls it may have under way.
const SYSTEM_CALLS: usize = 2;

/// How a run ended.
#[derive(Debug)]
pub enum End {
    /// By itself, with this status.
    Returned(u8),
    /// It trapped, for this reason.
    Trapped(String),
    /// Its limit came first.
    Interrupted,
    /// It did not start, for this reason.
    NotStarted(exit::End),
}

/// A component that runs.
#[derive(Debug)]
pub struct Run {
    pub limit: Arc<Limit>,
    /// Sent when nothing of it runs any more, including its system calls, which cannot be
    /// interrupted. An error means that its thread has panicked.
    pub ended: oneshot::Receiver<End>,
}

impl Run {
    pub fn start(job: Job, until: Mark) -> io::Result<Self> {
        let limit = Limit::keep(&job.program.engine, until)?;
        let (tell, ended) = oneshot::channel();
        let run = Self { limit: Arc::clone(&limit), ended };
        let limit = Done(limit);
        thread::Builder::new().name("incumbent-component".into()).spawn(move || {
            let end = job.run(limit);
            // The receiver may have gone.
            let _ = tell.send(end.unwrap_or_else(End::NotStarted));
        })?;
        Ok(run)
    }
}

/// What the thread runs, and with what.
pub struct Job {
    pub program: Arc<Program>,
    pub grants: Arc<Grants>,
    pub leadership: LeadershipCtx,
    pub environment: Vec<(&'static str, OsString)>,
}

/// Releases the limit, whatever happens to the thread.
struct Done(Arc<Limit>);

impl Drop for Done {
    fn drop(&mut self) {
        self.0.done();
    }
}

impl Job {
    /// Returns when nothing of it runs.
    fn run(self, limit: Done) -> Result<End, exit::End> {
        let Self { program, grants, leadership, environment } = self;
        let runtime = Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(SYSTEM_CALLS)
            .build()
            .map_err(|error| not_started(&error))?;
        // Opens directories, which may take any time.
        let context = grants.context(&environment, &limit.0)?;
        let state = State::new(context, leadership, Arc::clone(&limit.0), grants.quota());
        let end = runtime.block_on(within(&limit.0, call(&program, &grants, state)));
        drop(limit);
        // Waits for writes to files, which cannot be interrupted.
        drop(runtime);
        Ok(end.unwrap_or(End::Interrupted))
    }
}

/// None if the limit comes first. The limit is checked before the work goes on.
async fn within<T>(limit: &Limit, work: impl Future<Output = T>) -> Option<T> {
    let mut work = pin!(work);
    poll_fn(|context| {
        limit.wakes().register(context.waker());
        if limit.is_over() {
            return Poll::Ready(None);
        }
        work.as_mut().poll(context).map(Some)
    })
    .await
}

async fn call(program: &Program, grants: &Grants, state: State) -> End {
    let limit = Arc::clone(&state.limit);
    let mut store = Store::new(&program.engine, state);
    store.set_epoch_deadline(1);
    store.epoch_deadline_callback(|context| Ok(context.data().limit.update()));
    store.limiter(|state| &mut state.quota);
    store.set_hostcall_fuel(HANDED_OVER);
    let ended = async {
        let instance = program.command.instantiate_async(&mut store).await?;
        instance.wasi_cli_run().call_run(&mut store).await
    }
    .await;
    if limit.is_over() {
        return End::Interrupted;
    }
    grants.printed().await;
    match ended {
        Ok(Ok(())) => End::Returned(0),
        Ok(Err(())) => End::Returned(1),
        Err(error) => match error.downcast_ref::<I32Exit>() {
            Some(exit) => End::Returned(u8::try_from(exit.0).unwrap_or(u8::MAX)),
            None => End::Trapped(one_line(&error)),
        },
    }
}
