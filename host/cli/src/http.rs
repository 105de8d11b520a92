//! The HTTP endpoint (`--listen`): what this instance says of itself, and how its election gets
//! another leader.
//!
//! It has a thread and a runtime of its own, so a reader, however slow, takes no time from the
//! thread that renews the lease and stops the work.
//!
//! | module | what is in it |
//! | --- | --- |
//! | `socket` | where it listens |
//! | `connections` | how many connections it takes, and for how long |
//! | `admission` | the requests that it refuses: for other hosts, of other origins, without the token |
//! | `probes` | `/leader`, `/livez`, `/readyz` |
//! | `status` | `/status` |
//! | `metrics` | `/metrics` |
//! | `events` | `/events` |
//! | `page` | `/`, the status page |
//! | `resign`, `transfer`, `drain` | `/resign`, `/transfer`, `/drain` |

mod admission;
mod connections;
mod drain;
mod events;
mod metrics;
mod page;
mod probes;
mod resign;
mod socket;
mod status;
mod transfer;

use std::io;
use std::sync::{Arc, mpsc};
use std::thread;

use axum::http::{StatusCode, header};
use axum::middleware::{from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Extension, Router};
use futures_util::future::{AbortHandle, abortable, join};
use serde_json::Value;

use self::admission::Admission;
use self::socket::{Bound, Socket, SocketFile};
use super::args::Http;
use super::exit::{End, bad_input};
use super::instance::InstanceView;
use super::text::{json, shown};

/// The routes, for a request of another one.
const ROUTES: &str = "GET /, /leader, /livez, /readyz, /status, /events, /metrics, POST /resign, /transfer, /drain, and \
     DELETE /drain";

/// The endpoint of this instance. It ends when it is dropped.
#[derive(Debug)]
pub struct Endpoint {
    serving: AbortHandle,
    /// Of a unix socket.
    _file: Option<SocketFile>,
}

impl Endpoint {
    /// Listens from now on, if the user wants that.
    pub fn start(http: &Http, view: &InstanceView) -> Result<Option<Self>, End> {
        admission::check(http)?;
        let Some(address) = &http.listen else {
            return Ok(None);
        };
        view.shared().log.keep();
        let bound = Bound::new(address)?;
        let admission = Arc::new(Admission::new(http, &bound));
        let recorder = metrics::record()?;
        let router = router(view.clone(), admission)
            .layer(Extension(http.ready_when))
            .layer(Extension(recorder.clone()));
        let beside = join(view.clone().follow(), metrics::keep_up(recorder));
        let Bound { socket, file, .. } = bound;
        let serving = serve(socket, router, beside).map_err(|error| {
            bad_input(format!(
                "the HTTP endpoint cannot start ({error}): allow more threads (ulimit -u) and open \
                 files (ulimit -n)"
            ))
        })?;
        Ok(Some(Self { serving, _file: file }))
    }
}

/// Starts the thread, which does `beside` as well. It ends when it is aborted.
fn serve<T>(
    socket: Socket,
    router: Router,
    beside: impl Future<Output = T> + Send + 'static,
) -> io::Result<AbortHandle> {
    let limit = connections::limit()?;
    let (tell, told) = mpsc::channel();
    thread::Builder::new().name("incumbent-http".into()).spawn(move || {
        // Here, because a runtime must not be dropped within another one.
        let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => runtime,
            Err(error) => return tell.send(Err(error)),
        };
        let listener = {
            let _inside = runtime.enter();
            socket.listener()
        };
        let told = match listener {
            Ok(listener) => {
                let serve = join(connections::serve(listener, router, limit), beside);
                let (serve, serving) = abortable(serve);
                let told = tell.send(Ok(serving));
                let _aborted = runtime.block_on(serve);
                told
            }
            Err(error) => tell.send(Err(error)),
        };
        // A file system that hangs may hold up a thread of it.
        runtime.shutdown_background();
        told
    })?;
    told.recv().unwrap_or_else(|_| Err(io::Error::other("its thread has panicked")))
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

fn router(view: InstanceView, admission: Arc<Admission>) -> Router {
    let leader = get(probes::leader).options(probes::leader);
    let with_token = || from_fn_with_state(Arc::clone(&admission), admission::check_token);
    Router::new()
        .route("/", get(page::page))
        .route("/leader", leader.clone())
        .route("/primary", leader)
        .route("/livez", get(probes::livez))
        .route("/readyz", get(probes::readyz))
        .route("/status", get(status::status))
        .route("/events", get(events::events))
        .route("/metrics", get(metrics::metrics))
        .route("/resign", post(resign::resign).layer(with_token()))
        .route("/transfer", post(transfer::transfer).layer(with_token()))
        .route("/drain", post(drain::drain).delete(drain::undo).layer(with_token()))
        .fallback(|| async { said(StatusCode::NOT_FOUND, &format!("there is {ROUTES}")) })
        .method_not_allowed_fallback(|| async {
            said(StatusCode::METHOD_NOT_ALLOWED, &format!("there is {ROUTES}"))
        })
        .layer(from_fn_with_state(admission, admission::check_source))
        .layer(from_fn(admission::harden))
        .with_state(view)
}

/// A sentence.
fn said(status: StatusCode, sentence: &str) -> Response {
    let text = shown(sentence) + "\n";
    (status, [(header::CONTENT_TYPE, "text/plain; charset=utf-8")], text).into_response()
}

/// An object.
fn told(status: StatusCode, object: &Value) -> Response {
    (status, [(header::CONTENT_TYPE, "application/json")], json(object) + "\n").into_response()
}
