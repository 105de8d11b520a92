//! The connections of the endpoint: how many there are, and for how long.
//!
//! A thousand idle ones, readers that stall and requests that never end cost bounded memory, and
//! each has to give up its place after some seconds.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use rustix::process::{Resource, getrlimit};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::sleep;
use tokio_io_timeout::TimeoutStream;

use super::socket::Listener;

/// How many connections there are at most. Further ones wait until the system refuses them.
const MOST: usize = 1024;

/// How long a client may take for the head of its request, and be idle before it.
const HEAD: Duration = Duration::from_secs(5);

/// How long a client may take nothing of what it is sent.
const STALL: Duration = Duration::from_secs(30);

/// How many bytes of a connection wait to be read or written. A head fits in.
const BUFFER: usize = 16 << 10;

/// How soon to try again where the system has no file left for a connection.
const AGAIN: Duration = Duration::from_millis(100);

/// Takes connections, without end.
pub async fn serve(listener: Listener, router: Router) {
    let places = Arc::new(Semaphore::new(most()));
    loop {
        // The semaphore is never closed.
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        let accepted = match &listener {
            Listener::Tcp(listener) => listener.accept().await.map(|(stream, _)| {
                tokio::spawn(connection(stream, router.clone(), place));
            }),
            Listener::Unix(listener) => listener.accept().await.map(|(stream, _)| {
                tokio::spawn(connection(stream, router.clone(), place));
            }),
        };
        if let Err(error) = accepted {
            tracing::debug!(%error, "no connection was taken");
            sleep(AGAIN).await;
        }
    }
}

/// At most half of the files that we may open: the other half is for the election and its work.
fn most() -> usize {
    let files = getrlimit(Resource::Nofile).current;
    let half = files.and_then(|files| usize::try_from(files / 2).ok());
    half.map_or(MOST, |half| half.clamp(1, MOST))
}

async fn connection<S>(stream: S, router: Router, place: OwnedSemaphorePermit)
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let mut stream = TimeoutStream::new(stream);
    stream.set_write_timeout(Some(STALL));
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD)
        .max_buf_size(BUFFER)
        .serve_connection(TokioIo::new(Box::pin(stream)), TowerToHyperService::new(router))
        .await;
    if let Err(error) = served {
        let error: &dyn std::error::Error = &error;
        tracing::debug!(error, "a connection has ended");
    }
    drop(place);
}
