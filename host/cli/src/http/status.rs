//! `GET /status`: all that this instance knows, as JSON.

use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use incumbent::{BootClock, Clock, Mark};
use serde_json::Value;

use super::told;
use crate::event::{participant, time_before};
use crate::instance::queue::{Demand, Reading};
use crate::instance::{Description, InstanceView, Role};
use crate::text::{Field, bytes_field, field};

pub async fn status(State(view): State<InstanceView>) -> Response {
    let key = view.key();
    let reading = view.candidates(Demand::ONCE).await;
    // After the wait, so that it holds at this moment.
    let Description { command, election, id, contest, store, .. } = &view.shared().description;
    let term = view.term();
    let role = match view.role() {
        _ if view.stopping_term().is_some() => "stopping",
        Role::Leading => "leading",
        Role::Connecting => "connecting",
        Role::Observing => "observing",
        Role::Joining => "joining",
        Role::Waiting => "waiting",
        Role::Withdrawn => "withdrawn",
    };
    let term = term.map(|term| {
        Value::from_iter([
            field("epoch", i64::from(term.epoch())),
            field("remaining_ms", milliseconds(term.remaining())),
        ])
    });
    let mut fields = vec![
        field("election", election.as_str()),
        field("id", id.as_str()),
        field("command", *command),
        field("contest", *contest),
        field("time", time_before(Duration::ZERO)),
        field("started", time_before(since(view.shared().started))),
        field("role", role),
        field("drained", view.is_drained()),
        field("term", term),
    ];
    fields.extend(key.map(|key| bytes_field("key", &key)));
    fields.extend(queue(reading.as_deref()));
    let changes = view.shared().log.changes();
    let changes = changes.iter().filter_map(|change| serde_json::from_str(change).ok());
    fields.push(field("changes", changes.collect::<Vec<Value>>()));
    let silence = view.since_answer();
    fields.push(field(
        "store",
        Value::from_iter([
            field("url", store.as_str()),
            field("last_answer", silence.map(time_before)),
            field("last_answer_age_ms", silence.map(milliseconds)),
        ]),
    ));
    fields.push(field("version", env!("CARGO_PKG_VERSION")));
    told(StatusCode::OK, &fields.into_iter().collect())
}

/// What the store said of the candidates, and how long ago.
fn queue(reading: Option<&Reading>) -> Vec<Field> {
    let Some(reading) = reading else {
        return vec![field("seen", Value::Null)];
    };
    let seen =
        [field("time", time_before(reading.age())), field("age_ms", milliseconds(reading.age()))];
    let shown: Vec<Value> = reading.shown.iter().map(participant).collect();
    vec![
        field("seen", Value::from_iter(seen)),
        field("position", reading.position),
        field("leader", shown.first().cloned()),
        field("candidates", shown),
        field("candidates_total", reading.many),
    ]
}

fn milliseconds(span: Duration) -> u64 {
    span.as_millis().try_into().unwrap_or(u64::MAX)
}

fn since(mark: Mark) -> Duration {
    Duration::from_nanos(BootClock.now().saturating_sub(mark))
}
