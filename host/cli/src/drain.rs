//! `incumbent drain`: an operator has an instance give up what it leads. And how an instance hears
//! of that: by this command, or by a signal.

use incumbent::admin::{self, Drained};
use incumbent::{Failure, Session};
use serde_json::Value;
use tokio::task::JoinHandle;

use super::args::{Common, Drain, Form};
use super::exit::{End, Status, bad_input, say};
use super::output::print;
use super::session::{denied, store};
use super::signals::DrainSignals;
use super::text::{field, json, shown_bytes};

pub async fn drain(common: &Common, drain: &Drain) -> Result<Status, End> {
    let Some(id) = &common.id else {
        return Err(bad_input("which instance? Name it: incumbent drain --id worker-1"));
    };
    let store = store(common).await?;
    let wish = admin::Drain::of(id.as_str()).wait(drain.wait);
    let wish = if drain.undo { wish.undo() } else { wish.at_once(drain.at_most) };
    let drained = admin::drain(&store, wish, common.command_timeout).await.map_err(|failure| {
        if let Failure::Denied(text) = failure { denied(common, &text, "") } else { failure.into() }
    })?;
    let (status, result, sentence) = outcome(drained, &shown_bytes(id.as_bytes()), drain);
    match common.output {
        Form::Json => {
            let mut fields = vec![field("id", id.as_str()), field("result", result)];
            if let Drained::Holds(terms) = drained {
                fields.push(field("holds", terms));
            }
            if status != Status::Done {
                fields.push(field("detail", sentence));
            }
            print(json(&Value::from_iter(fields)))?;
            Ok(status)
        }
        Form::People if status == Status::Done => print(sentence),
        Form::People => Err(End::new(status, sentence)),
    }
}

fn outcome(drained: Drained, id: &str, drain: &Drain) -> (Status, &'static str, String) {
    let wait = humantime::format_duration(drain.wait);
    match drained {
        Drained::Done if drain.undo => {
            (Status::Done, "undone", format!("{id} takes part in its elections again"))
        }
        Drained::Done => {
            let sentence = format!("{id} leads nothing, and stands in no line");
            (Status::Done, "drained", sentence)
        }
        Drained::Holds(terms) => {
            let terms = if terms == 1 { "one term".into() } else { format!("{terms} terms") };
            let sentence = format!(
                "{id} still holds {terms} after --wait {wait}, and goes on: nobody else is in line, or \
                 the work has not stopped yet"
            );
            (Status::NotFound, "holds", sentence)
        }
        Drained::Unheard => {
            let sentence = format!(
                "no instance called {id} has said that it heard: is that its --id, does it use this \
                 store, and does its role allow to read and write incumbent-wishes/?"
            );
            (Status::NotFound, "unheard", sentence)
        }
        Drained::UnderWay => {
            let sentence = format!(
                "another drain of {id} is under way (or was killed less than 5 s ago): try again"
            );
            (Status::NotFound, "under-way", sentence)
        }
        other => (Status::NotFound, "other", format!("{other:?}")),
    }
}

/// Has a session do what signals and operators ask. It ends with the session.
pub fn heed(mut signals: DrainSignals, session: &Session) -> JoinHandle<()> {
    let session = session.clone();
    tokio::spawn(async move {
        let signals = async {
            loop {
                drain_or_undo(&session, signals.next().await);
            }
        };
        tokio::select! {
            () = signals => {}
            () = session.heed_drains() => {}
        }
    })
}

/// Drains a session of one election, or undoes that.
pub fn drain_or_undo(session: &Session, drains: bool) {
    if drains {
        session.drain(1);
        say(
            "drained: it gives up its term once somebody else is in line, and leads no more until \
             SIGUSR2 or `incumbent drain --undo`",
        );
    } else {
        session.undo_drain();
        say("drained no more: it takes part again");
    }
}
