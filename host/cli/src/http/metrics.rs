//! `GET /metrics`, in Prometheus' text format: what the library counts, and what is known of this
//! instance at this moment.

use std::fmt::Write as _;
use std::time::Duration;

use axum::extract::{Extension, State};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use metrics::{counter, describe_counter};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use parking_lot::Mutex;

use crate::event::unix_time_before;
use crate::exit::{End, bad_input};
use crate::instance::InstanceView;
use crate::instance::queue::Demand;

/// The upper bounds of durations, in seconds: a store on this machine answers in less than a
/// millisecond, and the longest time-out that is usual is 5 s.
const BUCKETS: [f64; 12] =
    [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0];

/// How often the recorder sorts its samples into buckets. Otherwise they would pile up in memory
/// until somebody asks for the metrics.
const UPKEEP: Duration = Duration::from_secs(5);

/// The one recorder of this process. A recorder is installed once, and for good.
static RECORDER: Mutex<Option<PrometheusHandle>> = Mutex::new(None);

/// Counts and measures from now on.
pub fn record() -> Result<PrometheusHandle, End> {
    let mut installed = RECORDER.lock();
    if let Some(handle) = &*installed {
        return Ok(handle.clone());
    }
    let not_measured = |error| bad_input(format!("metrics cannot be recorded: {error}"));
    let builder = PrometheusBuilder::new().set_buckets(&BUCKETS);
    let recorder = builder.map_err(|error| not_measured(error.to_string()))?.build_recorder();
    let handle = recorder.handle();
    metrics::set_global_recorder(recorder).map_err(|error| not_measured(error.to_string()))?;
    incumbent::metrics::describe();
    describe_counter!("incumbent_guard_kills_total", "How often the guard had to kill the work.");
    counter!("incumbent_guard_kills_total").increment(0);
    *installed = Some(handle.clone());
    Ok(handle)
}

/// Sorts what was measured, without end.
pub async fn keep_up(handle: PrometheusHandle) {
    loop {
        tokio::time::sleep(UPKEEP).await;
        handle.run_upkeep();
    }
}

pub async fn metrics(
    State(view): State<InstanceView>,
    Extension(handle): Extension<PrometheusHandle>,
) -> Response {
    let reading = view.candidates(Demand::ONCE).await;
    let mut text = handle.render();
    let of = [("election", view.shared().description.election.as_str())];
    let remaining = view.term().map(|term| term.remaining()).unwrap_or_default();
    metric(
        &mut text,
        ("incumbent_term_remaining_seconds", "gauge"),
        "What is left of the term that this instance leads; 0 if it does not lead.",
        &of,
        remaining.as_secs_f64(),
    );
    if let Some(position) = reading.and_then(|reading| reading.position) {
        metric(
            &mut text,
            ("incumbent_queue_position", "gauge"),
            "How many candidates are in front of this instance.",
            &of,
            u32::try_from(position).unwrap_or(u32::MAX).into(),
        );
    }
    if let Some(silence) = view.since_answer() {
        metric(
            &mut text,
            ("incumbent_store_last_answer_timestamp_seconds", "gauge"),
            "When the store answered last.",
            &[],
            unix_time_before(silence).as_secs_f64(),
        );
    }
    metric(
        &mut text,
        ("incumbent_leaderless_seconds_total", "counter"),
        "How long nobody has led, as far as this instance has seen.",
        &of,
        view.shared().leaderless.total().as_secs_f64(),
    );
    metric(
        &mut text,
        ("incumbent_build_info", "gauge"),
        "Which program this is: always 1.",
        &[("version", env!("CARGO_PKG_VERSION"))],
        1.0,
    );
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text).into_response()
}

/// Adds one metric of one series.
fn metric(
    text: &mut String,
    (name, kind): (&str, &str),
    help: &str,
    labels: &[(&str, &str)],
    value: f64,
) {
    let labels: Vec<String> =
        labels.iter().map(|(label, value)| format!("{label}=\"{}\"", escaped(value))).collect();
    let labels =
        if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
    // Cannot fail: it is written to memory.
    let _ = write!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n{name}{labels} {value}\n\n");
}

/// A label's value, as the format wants it.
fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}
