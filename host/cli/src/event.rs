//! What happens, as a line for people or as one JSON object.

use std::time::{Duration, SystemTime};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use incumbent::{Clock, Event, Failure, Leader, Mark, Reason};
use serde_json::{Map, Value};

use super::args::Form;
use super::output::{Gap, Output};
use super::text::{json, shown, shown_bytes};

/// Says what happens in one election, in all the forms asked for.
#[derive(Clone, Debug)]
pub struct Teller {
    election: String,
    id: String,
    targets: Vec<(Form, Output)>,
    /// The key of the last leadership, which its end does not name.
    key: Vec<u8>,
}

impl Teller {
    pub fn new(election: &str, id: &str, targets: Vec<(Form, Output)>) -> Self {
        Self { election: election.to_owned(), id: id.to_owned(), targets, key: Vec::new() }
    }

    pub fn tell(&mut self, event: &Event, clock: &dyn Clock) {
        if let Event::Elected { key, .. } = event {
            self.key.clone_from(key);
        }
        let now = clock.now();
        for (form, output) in &self.targets {
            match form {
                Form::People => {
                    if let Some(line) = self.line(event, now) {
                        output.line(line);
                    }
                }
                Form::Json => output.line(self.object(event, now)),
            }
        }
    }

    /// For people alone: what is no event.
    pub fn remark(&self, sentence: &str) {
        for (form, output) in &self.targets {
            match form {
                Form::People => output.line(format!("incumbent: {sentence}")),
                Form::Json => {}
            }
        }
    }

    /// Has the last lines written.
    pub async fn flush(&self) {
        for (_, output) in &self.targets {
            output.flush().await;
        }
    }

    /// People are not told of every renewal.
    fn line(&self, event: &Event, now: Mark) -> Option<String> {
        let election = shown_bytes(self.election.as_bytes());
        Some(match event {
            Event::Joined { key, .. } => {
                format!("joined {election} as {}", shown_bytes(key))
            }
            Event::Elected { epoch, valid_until, .. } => format!(
                "elected: leading {election} in epoch {epoch}, for {} and as long as renewed",
                in_seconds(left(*valid_until, now))
            ),
            Event::Extended { .. } => return None,
            Event::Endangered { epoch, valid_until, .. } => format!(
                "endangered: renewals fail, epoch {epoch} of {election} ends in {}",
                in_seconds(left(*valid_until, now))
            ),
            Event::Demoted { epoch, reason } => {
                format!("demoted: epoch {epoch} of {election} is over: {reason}")
            }
            Event::Leader(leader) => sighting(&self.election, leader.as_ref()),
            Event::Trouble(failure) => {
                format!("trouble: {}", shown(&failure.to_string()))
            }
            Event::Withdrawn(cause) => {
                let cause = cause.as_ref().map(|failure| shown(&format!(": {failure}")));
                format!(
                    "withdrawn: no candidate of {election} any more{}",
                    cause.unwrap_or_default()
                )
            }
            other => format!("{other:?}"),
        })
    }

    fn object(&self, event: &Event, now: Mark) -> String {
        let mut object = head(name(event), &self.election, &self.id);
        match event {
            Event::Joined { key, .. } => put_bytes(&mut object, "key", key),
            Event::Elected { epoch, key, lease, valid_until }
            | Event::Extended { epoch, key, lease, valid_until }
            | Event::Endangered { epoch, key, lease, valid_until } => {
                object.insert("epoch".into(), (*epoch).into());
                put_bytes(&mut object, "key", key);
                object.insert("lease".into(), format!("{lease:x}").into());
                let left = left(*valid_until, now).as_millis();
                object.insert("remaining_ms".into(), serde_json::json!(left));
            }
            Event::Demoted { epoch, reason } => {
                object.insert("epoch".into(), (*epoch).into());
                put_bytes(&mut object, "key", &self.key);
                object.insert("reason".into(), reason_name(reason).into());
                if let Reason::Other(detail) = reason {
                    object.insert("detail".into(), detail.as_str().into());
                }
            }
            Event::Leader(leader) => {
                let leader = leader.as_ref().map_or(Value::Null, leader_object);
                object.insert("leader".into(), leader);
            }
            Event::Trouble(failure) => put_failure(&mut object, failure),
            Event::Withdrawn(cause) => {
                cause.iter().for_each(|failure| put_failure(&mut object, failure));
            }
            _ => {}
        }
        json(&Value::Object(object))
    }
}

/// What an object begins with.
fn head(event: &str, election: &str, id: &str) -> Map<String, Value> {
    let time = humantime::format_rfc3339_millis(SystemTime::now()).to_string();
    [("event", event), ("election", election), ("id", id), ("time", time.as_str())]
        .map(|(name, value)| (name.to_owned(), Value::from(value)))
        .into_iter()
        .collect()
}

/// What stands for lines that were left out, because nobody took them in time.
pub fn missed(form: Form, election: &str, id: &str) -> Gap {
    let [election, id] = [election, id].map(ToOwned::to_owned);
    match form {
        Form::People => Box::new(|many| {
            format!("incumbent: lines are missing here, because they were not read in time: {many}")
        }),
        Form::Json => Box::new(move |many| {
            let mut object = head("missed", &election, &id);
            object.insert("lines".into(), many.into());
            json(&Value::Object(object))
        }),
    }
}

/// Who leads, as one line for people.
pub fn sighting(election: &str, leader: Option<&Leader>) -> String {
    let election = shown_bytes(election.as_bytes());
    match leader {
        Some(leader) => format!(
            "{} leads {election} in epoch {} ({})",
            shown_bytes(&leader.value),
            leader.epoch,
            shown_bytes(&leader.key)
        ),
        None => format!("nobody leads {election}"),
    }
}

/// `{"key","value","epoch"}`, and the lease.
pub fn leader_object(leader: &Leader) -> Value {
    let mut object = Map::new();
    put_bytes(&mut object, "key", &leader.key);
    put_bytes(&mut object, "value", &leader.value);
    object.insert("epoch".into(), leader.epoch.into());
    object.insert("lease".into(), format!("{:x}", leader.lease).into());
    Value::Object(object)
}

/// Under `NAME` as text, or under `NAME_base64` where it is none.
pub fn put_bytes(object: &mut Map<String, Value>, name: &str, bytes: &[u8]) {
    match str::from_utf8(bytes) {
        Ok(text) => object.insert(name.to_owned(), text.into()),
        Err(_) => object.insert(format!("{name}_base64"), STANDARD.encode(bytes).into()),
    };
}

fn put_failure(object: &mut Map<String, Value>, failure: &Failure) {
    object.insert("failure".into(), failure_name(failure).into());
    object.insert("detail".into(), failure.to_string().into());
}

fn name(event: &Event) -> &'static str {
    match event {
        Event::Joined { .. } => "joined",
        Event::Elected { .. } => "elected",
        Event::Extended { .. } => "extended",
        Event::Endangered { .. } => "endangered",
        Event::Demoted { .. } => "demoted",
        Event::Leader(_) => "leader",
        Event::Trouble(_) => "trouble",
        Event::Withdrawn(_) => "withdrawn",
        _ => "other",
    }
}

/// As JSON names it.
fn reason_name(reason: &Reason) -> &'static str {
    match reason {
        Reason::Resigned => "resigned",
        Reason::Expired => "expired",
        Reason::LeaseLost => "lease-lost",
        Reason::Deposed => "deposed",
        Reason::Fenced => "fenced",
        Reason::Other(_) => "other",
    }
}

fn failure_name(failure: &Failure) -> &'static str {
    match failure {
        Failure::Timeout => "timeout",
        Failure::Unavailable => "unavailable",
        Failure::Compacted(_) => "compacted",
        Failure::Denied(_) => "denied",
        Failure::Invalid(_) => "invalid",
        Failure::Other(_) => "other",
    }
}

fn left(valid_until: Mark, now: Mark) -> Duration {
    Duration::from_nanos(valid_until.saturating_sub(now))
}

/// To a tenth.
pub fn in_seconds(span: Duration) -> String {
    format!("{:.1} s", span.as_secs_f64())
}
