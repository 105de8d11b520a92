//! One run of a component, on a thread of its own: it may compute without end, and the
//! session goes on.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::thread;
use std::time::Duration;

use incumbent::plugin::LeadershipCtx;
use incumbent::{BootClock, Clock, Mark};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;
use wasmtime::Store;
use wasmtime_wasi::{I32Exit, WasiCtx};

use super::LAST_MOMENT;
use super::grants::Grants;
use super::limit::Limit;
use super::program::{Program, State, one_line};

/// How a run ended.
#[derive(Debug)]
pub enum End {
    /// By itself, with this status.
    Returned(u8),
    /// It broke off: why.
    Trapped(String),
    /// Its limit came first.
    Interrupted,
}

/// A component that runs.
#[derive(Debug)]
pub struct Run {
    pub limit: Arc<Limit>,
    /// Nothing of it runs any more. An error means that its thread has panicked.
    pub ended: oneshot::Receiver<End>,
}

impl Run {
    pub fn start(
        program: &Arc<Program>,
        grants: &Arc<Grants>,
        context: WasiCtx,
        leadership: LeadershipCtx,
        until: Mark,
    ) -> io::Result<Self> {
        let (program, grants) = (Arc::clone(program), Arc::clone(grants));
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let limit = Limit::keep(&program.engine, until)?;
        let state = State::new(context, leadership, Arc::clone(&limit));
        let (tell, ended) = oneshot::channel();
        let run = Self { limit: Arc::clone(&limit), ended };
        let work = move || {
            let end = runtime.block_on(within(&limit, call(&program, &grants, state)));
            await_files(runtime, limit.until());
            limit.end();
            // Who asked may not wait any more.
            let _ = tell.send(end.unwrap_or(End::Interrupted));
        };
        match thread::Builder::new().name("incumbent-component".into()).spawn(work) {
            Ok(_) => Ok(run),
            Err(error) => {
                run.limit.end();
                Err(error)
            }
        }
    }
}

/// None if the limit comes first. It is asked before anything of the work goes on.
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

/// Files are read and written by threads that cannot be interrupted: what was begun is
/// waited for, until the end of the leadership.
fn await_files(runtime: Runtime, limit: Mark) {
    let end = limit.saturating_add(LAST_MOMENT);
    runtime.shutdown_timeout(Duration::from_nanos(end.saturating_sub(BootClock.now())));
}
