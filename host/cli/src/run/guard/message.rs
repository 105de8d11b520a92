//! What supervisor and guard say to each other, and how it is written: the length,
//! a letter, and what belongs to it. Both are the same program.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use incumbent::Mark;
use rustix::process::Pid;

use super::lease::Lease;

/// What the supervisor tells its guard.
#[derive(Debug)]
pub enum Order {
    /// The first: start the command. None of its work is to be alive after `until`.
    Begin { until: Mark, foreground: bool, isolate: bool, lease: Box<Lease> },
    /// The end of the work has moved.
    Until(Mark),
    /// The work has ended, and what follows is the supervisor's.
    Over,
}

/// What the guard tells its supervisor; and an isolated work's init its guard.
#[derive(Debug)]
pub enum Report {
    /// The command runs, in a group of this number.
    Started(Pid),
    NotStarted(io::Error),
    /// The command has ended, or has been stopped.
    Changed(ExitStatus),
    /// The time was over, and the guard has killed the work.
    Overdue,
    /// Nothing of the work is left.
    Gone,
}

impl Order {
    /// As it is sent.
    pub fn message(&self) -> Vec<u8> {
        let mut message = Writer::default();
        match self {
            Self::Begin { until, foreground, isolate, lease } => {
                message.letter(b'b');
                message.number(*until);
                message.number(u64::from(*foreground));
                message.number(u64::from(*isolate));
                lease.write(&mut message);
            }
            Self::Until(until) => {
                message.letter(b'u');
                message.number(*until);
            }
            Self::Over => message.letter(b'o'),
        }
        message.finish()
    }

    /// None for what no supervisor of this program says.
    pub fn read(message: &[u8]) -> Option<Self> {
        let (letter, mut rest) = open(message)?;
        Some(match letter {
            b'b' => Self::Begin {
                until: rest.number()?,
                foreground: rest.number()? != 0,
                isolate: rest.number()? != 0,
                lease: Box::new(Lease::read(&mut rest)?),
            },
            b'u' => Self::Until(rest.number()?),
            b'o' => Self::Over,
            _ => return None,
        })
    }
}

impl Report {
    /// As it is sent.
    pub fn message(&self) -> Vec<u8> {
        let mut message = Writer::default();
        match self {
            Self::Started(pid) => {
                message.letter(b's');
                message.signed(pid.as_raw_nonzero().get().into());
            }
            Self::NotStarted(error) => {
                message.letter(b'n');
                message.signed(error.raw_os_error().unwrap_or_default().into());
                message.bytes(error.to_string().as_bytes());
            }
            Self::Changed(status) => {
                message.letter(b'c');
                message.signed(status.into_raw().into());
            }
            Self::Overdue => message.letter(b'o'),
            Self::Gone => message.letter(b'g'),
        }
        message.finish()
    }

    /// None for what no guard of this program says.
    pub fn read(message: &[u8]) -> Option<Self> {
        let (letter, mut rest) = open(message)?;
        let small = |number: i64| i32::try_from(number).ok();
        Some(match letter {
            b's' => Self::Started(Pid::from_raw(small(rest.signed()?)?)?),
            b'n' => Self::NotStarted(match (small(rest.signed()?)?, rest.text()?) {
                (0, text) => io::Error::other(text),
                (code, _) => io::Error::from_raw_os_error(code),
            }),
            b'c' => Self::Changed(ExitStatus::from_raw(small(rest.signed()?)?)),
            b'o' => Self::Overdue,
            b'g' => Self::Gone,
            _ => return None,
        })
    }
}

fn open(message: &[u8]) -> Option<(u8, Reader<'_>)> {
    let (letter, rest) = message.split_first()?;
    Some((*letter, Reader(rest)))
}

/// Writes one message.
#[derive(Debug, Default)]
pub struct Writer(Vec<u8>);

impl Writer {
    fn letter(&mut self, letter: u8) {
        self.0.push(letter);
    }

    pub fn number(&mut self, number: u64) {
        self.0.extend(number.to_le_bytes());
    }

    pub fn signed(&mut self, number: i64) {
        self.0.extend(number.to_le_bytes());
    }

    pub fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        self.0.extend(bytes);
    }

    pub fn option(&mut self, bytes: Option<&[u8]>) {
        self.number(u64::from(bytes.is_some()));
        if let Some(bytes) = bytes {
            self.bytes(bytes);
        }
    }

    fn finish(self) -> Vec<u8> {
        let mut message = (self.0.len() as u64).to_le_bytes().to_vec();
        message.extend(self.0);
        message
    }
}

/// Reads one message.
#[derive(Debug)]
pub struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    pub fn number(&mut self) -> Option<u64> {
        let (number, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u64::from_le_bytes(*number))
    }

    pub fn signed(&mut self) -> Option<i64> {
        Some(i64::from_le_bytes(self.number()?.to_le_bytes()))
    }

    pub fn bytes(&mut self) -> Option<Vec<u8>> {
        let length = usize::try_from(self.number()?).ok()?;
        let (bytes, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(bytes.to_vec())
    }

    pub fn text(&mut self) -> Option<String> {
        String::from_utf8(self.bytes()?).ok()
    }

    /// None where it cannot be read; an inner none where there is nothing.
    pub fn option(&mut self) -> Option<Option<Vec<u8>>> {
        Some(if self.number()? == 0 { None } else { Some(self.bytes()?) })
    }
}

#[cfg(test)]
mod tests {
    use incumbent::Credentials;

    use super::*;

    fn body(message: &[u8]) -> &[u8] {
        let (length, body) = message.split_first_chunk().unwrap();
        assert_eq!(u64::from_le_bytes(*length), body.len() as u64);
        body
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
            store: "etcds://[::1]:2379/x".parse().unwrap(),
            credentials,
            dial_timeout: std::time::Duration::from_secs(5),
            command_timeout: std::time::Duration::from_millis(1),
        };
        let lease = Box::new(lease);
        let begin = Order::Begin { until: Mark::MAX, foreground: true, isolate: false, lease };
        for order in [begin, Order::Until(8), Order::Over] {
            let again = Order::read(body(&order.message())).unwrap();
            assert_eq!(again.message(), order.message());
            assert!(!format!("{again:?}").contains("secret"));
        }
        for report in [
            Report::Started(rustix::process::getpid()),
            Report::NotStarted(io::Error::from_raw_os_error(8)),
            Report::NotStarted(io::Error::other("why")),
            Report::Changed(ExitStatus::from_raw(0x137f)),
            Report::Overdue,
            Report::Gone,
        ] {
            let again = Report::read(body(&report.message())).unwrap();
            assert_eq!(format!("{again:?}"), format!("{report:?}"));
        }
    }

    #[test]
    fn what_is_cut_off_is_not() {
        let message = Report::Changed(ExitStatus::from_raw(9)).message();
        let body = body(&message);
        assert!((0..body.len()).all(|length| Report::read(&body[..length]).is_none()));
    }
}
