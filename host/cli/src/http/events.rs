//! `GET /events`: the events of `-o json`, as server-sent events.
//!
//! A reader that comes back names the last one that it has seen, as browsers do by themselves. A
//! reader that is too slow gets an event `missed` in place of those that are not kept any more.

use std::convert::Infallible;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::said;
use crate::event::missed_object;
use crate::instance::InstanceView;

/// How many readers there may be at a time.
const READERS: usize = 256;

/// How often a reader hears something though nothing happens.
const KEEP_ALIVE: Duration = Duration::from_secs(10);

static PLACES: LazyLock<Arc<Semaphore>> = LazyLock::new(|| Arc::new(Semaphore::new(READERS)));

/// One reader.
struct Reader {
    view: InstanceView,
    /// The number of the event that comes next.
    next: u64,
    _place: OwnedSemaphorePermit,
}

pub async fn events(State(view): State<InstanceView>, headers: HeaderMap) -> Response {
    let Ok(place) = Arc::clone(&PLACES).try_acquire_owned() else {
        let sentence = format!("{READERS} readers of /events are connected: close one of them");
        return said(StatusCode::SERVICE_UNAVAILABLE, &sentence);
    };
    let last = headers.get("last-event-id").and_then(|id| id.to_str().ok());
    let next = last.and_then(|id| number_after(&view, id)).unwrap_or(0);
    let reader = Reader { view, next, _place: place };
    let events = stream::unfold(reader, |mut reader| async {
        let event = reader.next().await;
        Some((Ok::<_, Infallible>(event), reader))
    });
    Sse::new(events).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)).into_response()
}

impl Reader {
    async fn next(&mut self) -> Event {
        let log = &self.view.shared().log;
        loop {
            let Some((number, object)) = log.get(self.next) else {
                log.wait_for(self.next).await;
                continue;
            };
            let left_out = number - self.next;
            if left_out > 0 && self.next > 0 {
                self.next = number;
                let description = &self.view.shared().description;
                let object = missed_object(&description.election, &description.id, left_out);
                return Event::default().id(id(&self.view, number - 1)).data(object);
            }
            self.next = number + 1;
            return Event::default().id(id(&self.view, number)).data(&*object);
        }
    }
}

/// An event's id: which start of the program, and which of its events.
fn id(view: &InstanceView, number: u64) -> String {
    format!("{}-{number}", start(view))
}

/// The number of the event after the one of this id; none if that was before our start.
fn number_after(view: &InstanceView, id: &str) -> Option<u64> {
    let (of, number) = id.split_once('-')?;
    if of != start(view) {
        return None;
    }
    number.parse::<u64>().ok()?.checked_add(1)
}

fn start(view: &InstanceView) -> String {
    view.shared().started.to_string()
}
