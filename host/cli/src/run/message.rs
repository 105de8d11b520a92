//! What supervisor and guard say to each other, and an isolated command's init to its guard.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use incumbent::Mark;
use rustix::process::Pid;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::lease::Lease;

/// What the supervisor tells its guard.
#[derive(Debug, Serialize, Deserialize)]
pub enum Order {
    /// The first order: start the command.
    Begin(Box<Begin>),
    /// The deadline has moved.
    Until(Mark),
    /// Nothing of the command is left, and what follows is the supervisor's task.
    Over,
}

/// What the guard needs to know.
#[derive(Debug, Serialize, Deserialize)]
pub struct Begin {
    /// When it kills what is still alive.
    pub until: Mark,
    /// The command takes the terminal's foreground.
    pub foreground: bool,
    /// The command gets a PID namespace of its own.
    pub isolate: bool,
    /// What it gives back when the supervisor has died.
    pub lease: Lease,
}

/// What the guard tells its supervisor.
#[derive(Debug, Serialize, Deserialize)]
pub enum Report {
    /// The command runs, and leads a process group of this number.
    Started(#[serde(with = "pid")] Pid),
    NotStarted(#[serde(with = "error")] io::Error),
    /// The command has ended, or has been stopped.
    Changed(#[serde(with = "status")] ExitStatus),
    /// The deadline has passed, and the guard kills the work.
    Overdue,
    /// Nothing of the work is left.
    Gone,
}

mod pid {
    use super::*;

    pub fn serialize<S: Serializer>(pid: &Pid, to: S) -> Result<S::Ok, S::Error> {
        pid.as_raw_nonzero().serialize(to)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Pid, D::Error> {
        let number = i32::deserialize(from)?;
        Pid::from_raw(number).ok_or_else(|| D::Error::custom("no process has the number 0"))
    }
}

mod status {
    use super::*;

    pub fn serialize<S: Serializer>(status: &ExitStatus, to: S) -> Result<S::Ok, S::Error> {
        status.into_raw().serialize(to)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<ExitStatus, D::Error> {
        i32::deserialize(from).map(ExitStatus::from_raw)
    }
}

/// The system's errors by their number, others by their text.
mod error {
    use super::*;

    pub fn serialize<S: Serializer>(error: &io::Error, to: S) -> Result<S::Ok, S::Error> {
        error.raw_os_error().ok_or_else(|| error.to_string()).serialize(to)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<io::Error, D::Error> {
        let error: Result<i32, String> = Result::deserialize(from)?;
        Ok(error.map_or_else(io::Error::other, io::Error::from_raw_os_error))
    }
}

#[cfg(test)]
mod tests {
    use incumbent::Credentials;

    use super::*;

    /// What arrives of a message.
    fn again<T: Serialize + for<'de> Deserialize<'de>>(message: &T) -> T {
        postcard::from_bytes(&postcard::to_stdvec(message).unwrap()).unwrap()
    }

    #[test]
    fn what_is_said_is_understood() {
        let mut credentials = Credentials::default();
        credentials.ca = Some("/ca".into());
        credentials.user = Some("me".into());
        credentials.password = Some("secret".into());
        credentials.password_file = Some("/password".into());
        let lease = Lease {
            id: 7,
            store: "etcds://[::1]:2379/x".into(),
            credentials: credentials.clone(),
            dial_timeout: std::time::Duration::from_secs(5),
            command_timeout: std::time::Duration::from_millis(1),
        };
        let begin = Begin { until: Mark::MAX, foreground: true, isolate: false, lease };
        assert_eq!(again(&begin).lease.credentials.password, credentials.password);
        for order in [Order::Begin(Box::new(begin)), Order::Until(8), Order::Over] {
            let shown = format!("{:?}", again(&order));
            assert_eq!(shown, format!("{order:?}"));
            assert!(!shown.contains("secret"));
        }
        for report in [
            Report::Started(rustix::process::getpid()),
            Report::NotStarted(io::Error::from_raw_os_error(8)),
            Report::NotStarted(io::Error::other("why")),
            Report::Changed(ExitStatus::from_raw(0x137f)),
            Report::Overdue,
            Report::Gone,
        ] {
            assert_eq!(format!("{:?}", again(&report)), format!("{report:?}"));
        }
    }

    #[test]
    fn what_is_cut_off_is_not() {
        let message = postcard::to_stdvec(&Report::Changed(ExitStatus::from_raw(9))).unwrap();
        let cut = |length| postcard::from_bytes::<Report>(&message[..length]);
        assert!((0..message.len()).all(|length| cut(length).is_err()));
    }
}
