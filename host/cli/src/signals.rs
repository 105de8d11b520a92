//! The signals that ask the program to end, or to give up what it leads.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

use super::exit::{End, Status, bad_input};

/// Listens as long as the program runs: these signals do not kill it by themselves.
#[derive(Debug)]
pub struct Signals {
    interrupt: Signal,
    terminate: Signal,
    /// None if the caller had hang-ups ignored (nohup).
    hangup: Option<Signal>,
}

/// The signals by which this instance is drained, and takes part again.
#[derive(Debug)]
pub struct DrainSignals {
    drain: Signal,
    undo: Signal,
}

impl DrainSignals {
    pub fn listen() -> Result<Self, End> {
        let listen = |kind| signal(kind).map_err(not_heard);
        let (drain, undo) = (SignalKind::user_defined1(), SignalKind::user_defined2());
        Ok(Self { drain: listen(drain)?, undo: listen(undo)? })
    }

    /// Whether the next one drains. Cancel safe.
    pub async fn next(&mut self) -> bool {
        tokio::select! {
            _ = self.drain.recv() => true,
            _ = self.undo.recv() => false,
        }
    }
}

/// One signal that asked us to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked(pub SignalKind);

impl Signals {
    pub fn listen() -> Result<Self, End> {
        let listen = |kind| signal(kind).map_err(not_heard);
        let hangup = SignalKind::hangup();
        Ok(Self {
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
            hangup: (!ignored(hangup)).then(|| listen(hangup)).transpose()?,
        })
    }

    /// Waits for the next one. Cancel safe.
    pub async fn next(&mut self) -> Asked {
        let hangup = async {
            match &mut self.hangup {
                Some(hangup) => hangup.recv().await,
                None => std::future::pending().await,
            }
        };
        let kind = tokio::select! {
            _ = self.interrupt.recv() => SignalKind::interrupt(),
            _ = self.terminate.recv() => SignalKind::terminate(),
            _ = hangup => SignalKind::hangup(),
        };
        Asked(kind)
    }
}

impl Asked {
    /// For an end at once, without cleanup: as if the signal had killed us.
    pub fn status(self) -> Status {
        Status::Passed(u8::try_from(128 + self.0.as_raw_value()).unwrap_or(u8::MAX))
    }
}

/// The system refuses to deliver signals to us.
pub fn not_heard(error: io::Error) -> End {
    bad_input(format!(
        "the system lets us take no signals ({error}): allow this user more open files (ulimit -n)"
    ))
}

/// Whether a signal was ignored when we were started. False if the system does not say.
fn ignored(kind: SignalKind) -> bool {
    let Ok(status) = std::fs::read_to_string("/proc/self/status") else {
        return false;
    };
    let mask = status
        .lines()
        .find_map(|line| line.strip_prefix("SigIgn:"))
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (kind.as_raw_value() - 1) & 1 == 1)
}
