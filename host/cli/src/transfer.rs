//! `incumbent transfer`: an operator has a certain candidate lead next.

use std::time::Duration;

use incumbent::admin::{self, Transferred};
use incumbent::{Failure, Participant};
use serde_json::Value;

use super::args::{Common, Form, Transfer};
use super::event::participant;
use super::exit::{End, Status};
use super::output::print;
use super::session::{admin, denied, store};
use super::text::{Field, field, json, leader_line, shown_bytes};

pub async fn transfer(common: &Common, transfer: &Transfer) -> Result<Status, End> {
    let store = store(common).await?;
    let admin = admin(common, &store, &transfer.election);
    let transferred = admin.transfer(wish(transfer)).await.map_err(|failure| {
        if let Failure::Denied(text) = failure {
            denied(common, &text, "read the election, and ")
        } else {
            failure.into()
        }
    })?;
    let outcome = Outcome::new(transferred, transfer);
    match common.output {
        Form::Json => {
            print(json(&outcome.object()))?;
            Ok(outcome.status)
        }
        Form::People if outcome.status == Status::Done => print(outcome.sentence),
        Form::People => Err(End::new(outcome.status, outcome.sentence)),
    }
}

/// What the flags ask for.
pub fn wish(asked: &Transfer) -> admin::Transfer {
    let wish = admin::Transfer::to(asked.to.as_bytes()).wait(asked.wait);
    match asked.from {
        Some(epoch) => wish.from(epoch),
        None => wish,
    }
}

/// What became of a transfer: for people, and for programs.
#[derive(Debug)]
pub struct Outcome {
    pub status: Status,
    result: &'static str,
    pub sentence: String,
    /// The leader at its end.
    leader: Option<Participant>,
    leaderless: Option<Duration>,
}

impl Outcome {
    pub fn new(transferred: Transferred, asked: &Transfer) -> Self {
        let election = shown_bytes(asked.election.as_bytes());
        let to = shown_bytes(asked.to.as_bytes());
        let wait = humantime::format_duration(asked.wait);
        let leads = |leader: Option<&Participant>| leader_line(&asked.election, leader);
        let outcome = |status, result, sentence, leader| Self {
            status,
            result,
            sentence,
            leader,
            leaderless: None,
        };
        match transferred {
            Transferred::Done { leader, leaderless } => {
                let ms = leaderless.as_secs_f64() * 1e3;
                let sentence = format!("{}; nobody led for {ms:.1} ms", leads(Some(&leader)));
                let leaderless = Some(leaderless);
                Self { leaderless, ..outcome(Status::Done, "done", sentence, Some(leader)) }
            }
            Transferred::Leads(leader) => {
                let sentence = format!("{} already", leads(Some(&leader)));
                outcome(Status::Done, "leads", sentence, Some(leader))
            }
            Transferred::NotInLine => {
                let sentence = format!(
                    "no candidate of {election} in line is called {to}: `incumbent candidates` lists \
                     them"
                );
                outcome(Status::NotFound, "not-in-line", sentence, None)
            }
            Transferred::Gone => {
                let sentence = format!("{to} has left {election}, or its lease has run out");
                outcome(Status::NotFound, "gone", sentence, None)
            }
            Transferred::Silent(leader) => {
                let sentence = format!(
                    "{}, and has not said so: it stands still, or belongs to another client",
                    leads(Some(&leader))
                );
                outcome(Status::NotFound, "silent", sentence, Some(leader))
            }
            Transferred::Overtaken(leader) => {
                let sentence = format!(
                    "{}: it stood in front of {to}. It belongs to another client, which makes no \
                     room, or the last leader went too soon",
                    leads(Some(&leader))
                );
                outcome(Status::NotFound, "overtaken", sentence, Some(leader))
            }
            Transferred::Changed(leader) => {
                let sentence = format!("{}: nothing was changed", leads(leader.as_ref()));
                let status = if leader.is_some() { Status::Fenced } else { Status::NotFound };
                outcome(status, "changed", sentence, leader)
            }
            Transferred::NotHandedOver(leader) => {
                let sentence = format!(
                    "{} still, after --wait {wait}: its work has not stopped yet, or it belongs to \
                     another client",
                    leads(Some(&leader))
                );
                outcome(Status::NotFound, "not-handed-over", sentence, Some(leader))
            }
            Transferred::Blocked(blocks) => {
                let sentence = format!(
                    "{} stands in front of {to}, and its lease is not renewed: it is dead or stands \
                     still, and would lead. The leader was not asked. Try again when its lease has \
                     run out, or give more --wait",
                    shown_bytes(&blocks.value)
                );
                outcome(Status::NotFound, "blocked", sentence, None)
            }
            Transferred::UnderWay => {
                let sentence = format!(
                    "another transfer of {election} is under way (or was killed less than 5 s ago): try \
                     again"
                );
                outcome(Status::NotFound, "under-way", sentence, None)
            }
            other => outcome(Status::NotFound, "other", format!("{other:?}"), None),
        }
    }

    pub fn object(&self) -> Value {
        let mut fields: Vec<Field> = vec![field("result", self.result)];
        fields.push(field("leader", self.leader.as_ref().map(participant)));
        if let Some(leaderless) = self.leaderless {
            fields.push(field("leaderless_ms", leaderless.as_secs_f64() * 1e3));
        }
        if self.status != Status::Done {
            fields.push(field("detail", self.sentence.as_str()));
        }
        Value::from_iter(fields)
    }
}
