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

use super::connections::MOST;
use super::said;
use crate::event::missed_object;
use crate::instance::InstanceView;

/// How many readers there may be at a time: most places are for others.
const READERS: usize = MOST / 4;

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
        let (number, object) = reader.next().await;
        let event = Event::default().id(id(&reader.view, number)).data(&*object);
        Some((Ok::<_, Infallible>(event), reader))
    });
    Sse::new(events).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)).into_response()
}

impl Reader {
    /// The next event with its number, or in place of those that are not kept any more an event
    /// that says how many they are.
    async fn next(&mut self) -> (u64, Arc<str>) {
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
                return (number - 1, object.into());
            }
            self.next = number + 1;
            return (number, object);
        }
    }
}

/// An event's id: which start of the program, and which of its events.
fn id(view: &InstanceView, number: u64) -> String {
    format!("{}-{number}", start(view))
}

/// The number of the event after the one of this id; none if this start of the program has had no
/// such event.
fn number_after(view: &InstanceView, id: &str) -> Option<u64> {
    let (of, number) = id.split_once('-')?;
    let next = number.parse::<u64>().ok()?.checked_add(1)?;
    (of == start(view) && next <= view.shared().log.many()).then_some(next)
}

fn start(view: &InstanceView) -> String {
    view.shared().started.to_string()
}

#[cfg(test)]
mod tests {
    use incumbent::Event;

    use super::*;
    use crate::instance::Description;

    #[tokio::test]
    async fn a_slow_reader_learns_how_many_events_it_has_missed() {
        let view = InstanceView::new(Description {
            command: "observe",
            election: "my-service".into(),
            id: "me".into(),
            contest: "queue",
            store: "local".into(),
            silence: Duration::ZERO,
        });
        view.shared().log.keep();
        let place = Arc::clone(&PLACES).try_acquire_owned().unwrap();
        let mut reader = Reader { view: view.clone(), next: 0, _place: place };
        let record =
            |number: u64| view.record(&Event::Leader(None), format!("{number:>1000}"), None);
        record(0);
        assert_eq!(reader.next().await.0, 0);
        (1..3_000).for_each(record);
        let (last_missed, object) = reader.next().await;
        let missed: serde_json::Value = serde_json::from_str(&object).unwrap();
        assert_eq!((&missed["event"], &missed["lines"]), (&"missed".into(), &last_missed.into()));
        let (next, object) = reader.next().await;
        assert_eq!((next, object.trim()), (last_missed + 1, next.to_string().as_str()));
        assert_eq!(number_after(&view, &id(&view, last_missed)), Some(next));
        assert_eq!(number_after(&view, &format!("1{}", id(&view, next))), None);
        assert_eq!(number_after(&view, &id(&view, 3_000)), None, "not yet");
        for nonsense in ["", "-", "x-1", "99999999999999999999-1"] {
            assert_eq!(number_after(&view, nonsense), None, "{nonsense}");
        }
    }
}
