//! What a candidate tells of itself: one JSON object a line.
//!
//! Marks are those of the boot clock, which all processes of a machine share.

use incumbent::Mark;
use serde_json::{Value, json};

/// One thing that a candidate did, or learnt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Report {
    /// In line; the epoch is what its term will have.
    Joined { at: Mark, epoch: i64 },
    /// Leads from now on, until `valid_until` unless extended.
    Elected { at: Mark, epoch: i64, valid_until: Mark },
    /// A renewal was acknowledged.
    Extended { at: Mark, epoch: i64, valid_until: Mark },
    /// The work of the term has stopped: nothing is asked for in it any more.
    Stopped { at: Mark, epoch: i64 },
    /// It has learnt that the term is over, and why.
    Demoted { at: Mark, epoch: i64, reason: String },
    /// About to write: if no outcome follows, nobody heard of one.
    Writing { at: Mark, epoch: i64, value: u64, is_late: bool },
    /// What the store said to it.
    Written { at: Mark, epoch: i64, value: u64, outcome: Outcome },
    /// Was to write late, and has no term that is over.
    NothingToWriteLate { at: Mark },
    /// Something a person should know.
    Trouble { sentence: String },
}

/// What became of a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Made, at this revision of the store.
    Accepted { revision: i64 },
    /// Refused by its guard: nothing was changed.
    Refused,
    /// Anything else: it may have been made.
    Unclear { why: String },
}

impl Report {
    pub fn line(&self) -> String {
        match self {
            Self::Joined { at, epoch } => json!({ "event": "joined", "at": at, "epoch": epoch }),
            Self::Elected { at, epoch, valid_until } => {
                json!({ "event": "elected", "at": at, "epoch": epoch, "valid_until": valid_until })
            }
            Self::Extended { at, epoch, valid_until } => {
                json!({ "event": "extended", "at": at, "epoch": epoch, "valid_until": valid_until })
            }
            Self::Stopped { at, epoch } => json!({ "event": "stopped", "at": at, "epoch": epoch }),
            Self::Demoted { at, epoch, reason } => {
                json!({ "event": "demoted", "at": at, "epoch": epoch, "reason": reason })
            }
            Self::Writing { at, epoch, value, is_late } => json!({
                "event": "writing", "at": at, "epoch": epoch, "value": value, "late": is_late
            }),
            Self::Written { at, epoch, value, outcome } => match outcome {
                Outcome::Accepted { revision } => json!({
                    "event": "wrote", "at": at, "epoch": epoch, "value": value,
                    "revision": revision
                }),
                Outcome::Refused => {
                    json!({ "event": "refused", "at": at, "epoch": epoch, "value": value })
                }
                Outcome::Unclear { why } => json!({
                    "event": "unclear", "at": at, "epoch": epoch, "value": value, "why": why
                }),
            },
            Self::NothingToWriteLate { at } => json!({ "event": "no-past-term", "at": at }),
            Self::Trouble { sentence } => json!({ "event": "trouble", "sentence": sentence }),
        }
        .to_string()
    }

    /// When it happened, if that is known.
    pub fn at(&self) -> Option<Mark> {
        match self {
            Self::Joined { at, .. }
            | Self::Elected { at, .. }
            | Self::Extended { at, .. }
            | Self::Stopped { at, .. }
            | Self::Demoted { at, .. }
            | Self::Writing { at, .. }
            | Self::Written { at, .. }
            | Self::NothingToWriteLate { at } => Some(*at),
            Self::Trouble { .. } => None,
        }
    }

    /// None for what is no report.
    pub fn read(line: &str) -> Option<Self> {
        let object: Value = serde_json::from_str(line).ok()?;
        let text = |name: &str| object.get(name)?.as_str().map(str::to_owned);
        let at = || object.get("at")?.as_u64();
        let epoch = || object.get("epoch")?.as_i64();
        let value = || object.get("value")?.as_u64();
        let valid_until = || object.get("valid_until")?.as_u64();
        let written =
            |outcome| Some(Self::Written { at: at()?, epoch: epoch()?, value: value()?, outcome });
        match text("event")?.as_str() {
            "joined" => Some(Self::Joined { at: at()?, epoch: epoch()? }),
            "elected" => {
                Some(Self::Elected { at: at()?, epoch: epoch()?, valid_until: valid_until()? })
            }
            "extended" => {
                Some(Self::Extended { at: at()?, epoch: epoch()?, valid_until: valid_until()? })
            }
            "stopped" => Some(Self::Stopped { at: at()?, epoch: epoch()? }),
            "demoted" => {
                Some(Self::Demoted { at: at()?, epoch: epoch()?, reason: text("reason")? })
            }
            "writing" => Some(Self::Writing {
                at: at()?,
                epoch: epoch()?,
                value: value()?,
                is_late: object.get("late")?.as_bool()?,
            }),
            "wrote" => written(Outcome::Accepted { revision: object.get("revision")?.as_i64()? }),
            "refused" => written(Outcome::Refused),
            "unclear" => written(Outcome::Unclear { why: text("why")? }),
            "no-past-term" => Some(Self::NothingToWriteLate { at: at()? }),
            "trouble" => Some(Self::Trouble { sentence: text("sentence")? }),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_is_understood() {
        let (at, epoch, value, valid_until) = (u64::MAX, i64::MAX, 7, 12);
        let written = |outcome| Report::Written { at, epoch, value, outcome };
        for report in [
            Report::Joined { at, epoch },
            Report::Elected { at, epoch, valid_until },
            Report::Extended { at, epoch, valid_until },
            Report::Stopped { at, epoch },
            Report::Demoted { at, epoch, reason: "a \"reason\"\n".into() },
            Report::Writing { at, epoch, value, is_late: true },
            written(Outcome::Accepted { revision: 9 }),
            written(Outcome::Refused),
            written(Outcome::Unclear { why: "no answer".into() }),
            Report::NothingToWriteLate { at },
            Report::Trouble { sentence: "of some kind".into() },
        ] {
            let line = report.line();
            assert!(!line.contains('\n'), "{line}");
            assert_eq!(Report::read(&line), Some(report));
        }
        for nonsense in ["", "{}", "[]", "incumbent: something", r#"{"event":"joined"}"#] {
            assert_eq!(Report::read(nonsense), None, "{nonsense}");
        }
    }
}
