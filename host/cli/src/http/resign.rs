//! `POST /resign`: stops the work, resigns, and answers when the next one leads.

use std::time::Duration;

use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::Response;
use futures_util::StreamExt;
use incumbent::{Epoch, Error, Leaders, Participant};
use serde::Deserialize;
use serde_json::Value;

use super::{said, told};
use crate::event::participant;
use crate::instance::InstanceView;
use crate::text::field;

/// How long the end of the work and the next leader are waited for.
const TIMEOUT: Duration = Duration::from_secs(60);

/// What a request may say.
#[derive(Debug, Deserialize)]
pub struct Parameters {
    /// Only this epoch resigns.
    epoch: Option<i64>,
}

pub async fn resign(
    State(view): State<InstanceView>,
    parameters: Result<Query<Parameters>, QueryRejection>,
) -> Response {
    let election = &view.shared().description.election;
    let Ok(Query(Parameters { epoch: wanted })) = parameters else {
        return said(StatusCode::BAD_REQUEST, "the epoch is a number: POST /resign?epoch=42");
    };
    let (Some(term), Some(observed)) = (view.term(), view.election()) else {
        let sentence = format!("this instance does not lead {election}: ask the one that does");
        return said(StatusCode::CONFLICT, &sentence);
    };
    let epoch = term.epoch();
    if let Some(wanted) = wanted
        && wanted != i64::from(epoch)
    {
        let sentence = format!("epoch {wanted} of {election} is over: this is epoch {epoch}");
        return said(StatusCode::CONFLICT, &sentence);
    }
    let mut leaders = observed.observe();
    view.resign(epoch);
    match tokio::time::timeout(TIMEOUT, next_leader(&mut leaders, epoch)).await {
        Ok(Ok(leader)) => {
            let leader = leader.as_ref().map(participant);
            let fields = [field("resigned", i64::from(epoch)), field("leader", leader)];
            told(StatusCode::OK, &Value::from_iter(fields))
        }
        Ok(Err(sentence)) => said(StatusCode::BAD_GATEWAY, &sentence),
        Err(_) => {
            let seconds = TIMEOUT.as_secs();
            let what = match view.term().is_some_and(|term| term.epoch() == epoch) {
                true => "leads on until its work has stopped",
                false => "has ended, and the store names no next leader yet",
            };
            let sentence = format!("epoch {epoch} of {election} {what}, after {seconds} s");
            said(StatusCode::GATEWAY_TIMEOUT, &sentence)
        }
    }
}

/// The first leader after this epoch. None if this instance ends before that.
async fn next_leader(leaders: &mut Leaders, epoch: Epoch) -> Result<Option<Participant>, String> {
    loop {
        match leaders.next().await {
            Some(Ok(Some(leader))) if leader.epoch > epoch => return Ok(Some(leader)),
            Some(Ok(_)) => {}
            Some(Err(Error::Closed)) | None => return Ok(None),
            Some(Err(error)) => return Err(error.to_string()),
        }
    }
}
