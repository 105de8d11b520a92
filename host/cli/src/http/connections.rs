//! The connections of the endpoint: how many there are, and for how long.
//!
//! Each serves one request. A client that has not sent the head of it after some seconds is
//! disconnected; and where all places are taken, at once, if it has waited longest. So no crowd of
//! idle clients keeps a probe out.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use std::{fs, io};

use axum::Router;
use axum::extract::Request;
use futures_util::future::{AbortHandle, abortable};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use parking_lot::Mutex;
use rustix::process::{Resource, getrlimit};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::sleep;
use tokio_io_timeout::TimeoutStream;
use tower_service::Service as _;

use super::socket::Listener;

/// How many connections there are at most. Further ones wait in the system's queue.
pub const MOST: usize = 512;

/// How many files are left for the election and its work.
const RESERVE: usize = 32;

/// With fewer connections than that, the endpoint is of no use.
const FEWEST: usize = 8;

/// How long a client may take for the head of its request.
const HEAD: Duration = Duration::from_secs(5);

/// How long a client may take nothing of what it is sent.
const STALL: Duration = Duration::from_secs(30);

/// How many bytes of a connection wait to be read or written. A head fits in.
const BUFFER: usize = 16 << 10;

/// How soon to try again where the system has no file left for a connection.
const AGAIN: Duration = Duration::from_millis(100);

/// The connections whose request has not come yet, in the order in which they came.
#[derive(Default)]
struct Idle(Mutex<BTreeMap<u64, AbortHandle>>);

impl Idle {
    fn remove(&self, number: u64) {
        self.0.lock().remove(&number);
    }

    /// Ends the one that has waited longest.
    fn end_oldest(&self) {
        if let Some((_, oldest)) = self.0.lock().pop_first() {
            oldest.abort();
        }
    }
}

/// How many connections there may be, by the files that may be opened.
pub fn limit() -> io::Result<usize> {
    let Some(files) = getrlimit(Resource::Nofile).current else {
        return Ok(MOST);
    };
    let open = fs::read_dir("/proc/self/fd").map_or(RESERVE, Iterator::count);
    let files = usize::try_from(files).unwrap_or(usize::MAX);
    let limit = files.saturating_sub(open + RESERVE).min(files / 2).min(MOST);
    if limit < FEWEST {
        let wanted = FEWEST - limit;
        return Err(io::Error::other(format!(
            "{wanted} more files are needed for its connections"
        )));
    }
    Ok(limit)
}

/// Takes connections, up to a limit, without end.
pub async fn serve(listener: Listener, router: Router, limit: usize) {
    let places = Arc::new(Semaphore::new(limit));
    let idle = Arc::new(Idle::default());
    for number in 0.. {
        let start = |place| (number, router.clone(), Arc::clone(&idle), place);
        let accepted = match &listener {
            Listener::Tcp(listener) => {
                let accepted = listener.accept().await;
                let place = place(&places, &idle).await;
                accepted.map(|(stream, _)| begin(stream, start(place)))
            }
            Listener::Unix(listener) => {
                let accepted = listener.accept().await;
                let place = place(&places, &idle).await;
                accepted.map(|(stream, _)| begin(stream, start(place)))
            }
        };
        if let Err(error) = accepted {
            tracing::debug!(%error, "no connection was taken");
            sleep(AGAIN).await;
        }
    }
}

/// A place for one more connection: a free one, or that of the connection that has been idle for
/// longest, or the next one that is given up.
async fn place(places: &Arc<Semaphore>, idle: &Idle) -> Option<OwnedSemaphorePermit> {
    if places.available_permits() == 0 {
        idle.end_oldest();
    }
    // The semaphore is never closed.
    Arc::clone(places).acquire_owned().await.ok()
}

type Start = (u64, Router, Arc<Idle>, Option<OwnedSemaphorePermit>);

fn begin<S>(stream: S, (number, router, idle, place): Start)
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let (serve, handle) = abortable(connection(stream, router, number, Arc::clone(&idle)));
    idle.0.lock().insert(number, handle);
    tokio::spawn(async move {
        // Ended or aborted.
        let _ = serve.await;
        idle.remove(number);
        drop(place);
    });
}

async fn connection<S>(stream: S, router: Router, number: u64, idle: Arc<Idle>)
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let mut stream = TimeoutStream::new(stream);
    stream.set_write_timeout(Some(STALL));
    let answer = service_fn(|request: hyper::Request<hyper::body::Incoming>| {
        idle.remove(number);
        router.clone().call(request.map(axum::body::Body::new) as Request)
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD)
        .keep_alive(false)
        .max_buf_size(BUFFER)
        .serve_connection(TokioIo::new(Box::pin(stream)), answer)
        .await;
    if let Err(error) = served {
        let error: &dyn std::error::Error = &error;
        tracing::debug!(error, "a connection has ended");
    }
}
