//! `POST /transfer`: has a certain candidate lead next, and answers what became of that.

use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::Response;
use serde::Deserialize;

use super::{said, told};
use crate::args::Transfer;
use crate::exit::Status;
use crate::instance::InstanceView;
use crate::parse::{candidate, epoch, timeout};
use crate::transfer::{Outcome, wish};

/// What a request may say, as the flags of `incumbent transfer`.
#[derive(Debug, Deserialize)]
pub struct Parameters {
    to: String,
    from: Option<String>,
    wait: Option<String>,
}

pub async fn transfer(
    State(view): State<InstanceView>,
    parameters: Result<Query<Parameters>, QueryRejection>,
) -> Response {
    let Ok(Query(parameters)) = parameters else {
        let sentence = "name the candidate to lead next: POST /transfer?to=worker-2";
        return said(StatusCode::BAD_REQUEST, sentence);
    };
    let asked = match asked(&view, &parameters) {
        Ok(asked) => asked,
        Err(sentence) => return said(StatusCode::BAD_REQUEST, &sentence),
    };
    let Some(election) = view.election() else {
        let sentence = "this instance has not reached the store yet: try again";
        return said(StatusCode::SERVICE_UNAVAILABLE, sentence);
    };
    // It goes on if the client goes away.
    let transferring = tokio::spawn({
        let wish = wish(&asked);
        async move { election.transfer(wish).await }
    });
    let Ok(transferred) = transferring.await else {
        return said(StatusCode::INTERNAL_SERVER_ERROR, "the transfer broke off");
    };
    match transferred {
        Ok(transferred) => {
            let outcome = Outcome::new(transferred, &asked);
            let is_done = outcome.status == Status::Done;
            let status = if is_done { StatusCode::OK } else { StatusCode::CONFLICT };
            told(status, &outcome.object())
        }
        Err(failure) => said(StatusCode::BAD_GATEWAY, &failure.to_string()),
    }
}

fn asked(view: &InstanceView, parameters: &Parameters) -> Result<Transfer, String> {
    let Parameters { to, from, wait } = parameters;
    Ok(Transfer {
        election: view.shared().description.election.clone(),
        to: candidate(to).map_err(|sentence| format!("to: {sentence}"))?,
        from: from.as_deref().map(epoch).transpose().map_err(|it| format!("from: {it}"))?,
        wait: timeout(wait.as_deref().unwrap_or("10s")).map_err(|it| format!("wait: {it}"))?,
    })
}
