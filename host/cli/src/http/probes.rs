//! The routes for load balancers and orchestrators: a status, and a sentence for people.

use axum::extract::{Extension, State};
use axum::http::StatusCode;
use axum::response::Response;

use super::said;
use crate::args::ReadyWhen;
use crate::instance::InstanceView;

/// 200 while this instance leads, by the clock at this moment, and its work runs.
pub async fn leader(State(view): State<InstanceView>) -> Response {
    let election = &view.shared().description.election;
    match view.working_term() {
        Some(term) => said(StatusCode::OK, &format!("leads {election} in epoch {}", term.epoch())),
        None => said(StatusCode::SERVICE_UNAVAILABLE, &format!("does not lead {election}")),
    }
}

/// 200 unless a restart is the only help.
pub async fn livez(State(view): State<InstanceView>) -> Response {
    if let Some(term) = view.overdue_term() {
        let sentence = format!(
            "epoch {} is over, and its work still runs: restart this instance",
            term.epoch()
        );
        return said(StatusCode::SERVICE_UNAVAILABLE, &sentence);
    }
    if !view.driver_turns().await {
        let sentence = "the driver of the election does not turn: restart this instance";
        return said(StatusCode::SERVICE_UNAVAILABLE, sentence);
    }
    said(StatusCode::OK, "alive")
}

/// 200 while this instance leads, or could.
pub async fn readyz(
    State(view): State<InstanceView>,
    Extension(ready_when): Extension<ReadyWhen>,
) -> Response {
    match not_ready(&view, ready_when) {
        None => said(StatusCode::OK, "ready"),
        Some(why) => said(StatusCode::SERVICE_UNAVAILABLE, &format!("not ready: {why}")),
    }
}

/// Why this instance is not ready.
fn not_ready(view: &InstanceView, ready_when: ReadyWhen) -> Option<String> {
    if ready_when == ReadyWhen::Leader {
        let leads = view.working_term().is_some();
        return (!leads).then(|| "it does not lead (--ready-when leader)".into());
    }
    view.not_taking_part()
}
