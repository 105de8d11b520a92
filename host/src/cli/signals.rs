//! The signals that ask the program to end.

use std::io;
use std::time::{Duration, Instant};

use tokio::signal::unix::{Signal, SignalKind, signal};

use super::exit::Status;

/// A signal that follows one of its kind this soon is the same request: `timeout` of coreutils
/// sends its signal to the process, and then to the process's group.
const ECHO: Duration = Duration::from_millis(100);

/// Listens from its making on: such a signal ends nothing by itself any more.
#[derive(Debug)]
pub struct Signals {
    interrupt: Signal,
    terminate: Signal,
    /// None where whoever started us wants hang-ups to be ignored (nohup).
    hangup: Option<Signal>,
    last: Option<(Asked, Instant)>,
}

/// One signal that asked us to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked(SignalKind);

impl Signals {
    pub fn listen() -> io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: if ignored(SignalKind::hangup()) {
                None
            } else {
                Some(signal(SignalKind::hangup())?)
            },
            last: None,
        })
    }

    /// Waits for the next one. Cancel safe.
    pub async fn next(&mut self) -> Asked {
        loop {
            let asked = self.receive().await;
            let now = Instant::now();
            if !is_echo(self.last, asked, now) {
                self.last = Some((asked, now));
                return asked;
            }
        }
    }

    async fn receive(&mut self) -> Asked {
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
    /// For an end at once, without the orderly rest: as if the signal had done it.
    pub fn status(self) -> Status {
        Status::Passed(u8::try_from(128 + self.0.as_raw_value()).unwrap_or(u8::MAX))
    }
}

fn is_echo(last: Option<(Asked, Instant)>, asked: Asked, now: Instant) -> bool {
    last.is_some_and(|(last, at)| last == asked && now.duration_since(at) < ECHO)
}

/// Whether a signal was ignored when we were started. Where the system does not
/// say, it was not.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_signal_at_once_is_no_second_one() {
        let (terminate, interrupt) =
            (Asked(SignalKind::terminate()), Asked(SignalKind::interrupt()));
        let first = Instant::now();
        let last = Some((terminate, first));
        assert!(!is_echo(None, terminate, first));
        assert!(is_echo(last, terminate, first + ECHO / 2));
        assert!(!is_echo(last, interrupt, first + ECHO / 2));
        assert!(!is_echo(last, terminate, first + ECHO));
    }
}
