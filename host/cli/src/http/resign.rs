//! `POST /resign`: stops the work, resigns, and answers when the next one leads.

use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use futures_util::StreamExt;
use incumbent::{Epoch, Leaders, Participant};
use serde_json::Value;

use super::{said, told};
use crate::event::participant;
use crate::instance::InstanceView;
use crate::text::field;

/// How long the end of the work and the next leader are waited for.
const TIMEOUT: Duration = Duration::from_secs(60);

pub async fn resign(State(view): State<InstanceView>) -> Response {
    let election = &view.shared().description.election;
    let (Some(term), Some(observed)) = (view.term(), view.election()) else {
        let sentence = format!("this instance does not lead {election}: ask the one that does");
        return said(StatusCode::CONFLICT, &sentence);
    };
    let epoch = term.epoch();
    let mut leaders = observed.observe();
    view.resign(epoch);
    match tokio::time::timeout(TIMEOUT, next_leader(&mut leaders, epoch)).await {
        Ok(Ok(leader)) => {
            let fields =
                [field("resigned", i64::from(epoch)), field("leader", participant(&leader))];
            told(StatusCode::OK, &Value::from_iter(fields))
        }
        Ok(Err(sentence)) => said(StatusCode::BAD_GATEWAY, &sentence),
        Err(_) => {
            let sentence = format!(
                "epoch {epoch} of {election} was asked to resign, and nobody else leads after {} s",
                TIMEOUT.as_secs()
            );
            said(StatusCode::GATEWAY_TIMEOUT, &sentence)
        }
    }
}

/// The first leader after this epoch.
async fn next_leader(leaders: &mut Leaders, epoch: Epoch) -> Result<Participant, String> {
    loop {
        match leaders.next().await {
            Some(Ok(Some(leader))) if leader.epoch > epoch => return Ok(leader),
            Some(Ok(_)) => {}
            Some(Err(error)) => return Err(error.to_string()),
            None => return Err("this instance has ended, and nobody else leads".into()),
        }
    }
}
