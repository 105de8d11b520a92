//! `POST /drain` and `DELETE /drain`: has this instance give up its term, and lead no more until that is
//! undone.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde_json::Value;

use super::{said, told};
use crate::drain::drain_or_undo;
use crate::instance::InstanceView;
use crate::text::field;

pub async fn drain(State(view): State<InstanceView>) -> Response {
    change(&view, true)
}

pub async fn undo(State(view): State<InstanceView>) -> Response {
    change(&view, false)
}

/// Answers at once: `/status` tells when the term is over.
fn change(view: &InstanceView, drains: bool) -> Response {
    let Some(session) = view.session() else {
        let sentence = "this instance has not reached the store yet: try again";
        return said(StatusCode::SERVICE_UNAVAILABLE, sentence);
    };
    drain_or_undo(&session, drains);
    told(StatusCode::OK, &Value::from_iter([field("drained", drains)]))
}
