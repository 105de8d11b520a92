//! What processes say, line by line, in an order that can be relied on.

use std::io;
use std::os::fd::OwnedFd;

use rustix::io::{Errno, read};
use tokio::net::unix::pipe::Receiver;

/// What a process has said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Said {
    Line(String),
    /// It will say nothing more.
    End,
}

/// The lines out of a pipe.
#[derive(Debug)]
pub struct Lines {
    pipe: Receiver,
    unfinished: Vec<u8>,
    is_open: bool,
}

impl Lines {
    /// To be called within tokio's runtime.
    pub fn of(pipe: OwnedFd) -> io::Result<Self> {
        let pipe = Receiver::from_owned_fd(pipe)?;
        Ok(Self { pipe, unfinished: Vec::new(), is_open: true })
    }

    /// Waits until there is something to be read, or the pipe is closed. Cancel safe.
    pub async fn ready(&self) {
        if !self.is_open {
            std::future::pending::<()>().await;
        }
        // An error is found by reading.
        let _ = self.pipe.readable().await;
    }

    /// Takes all lines that have been written by now, and the end.
    fn take(&mut self, mut tell: impl FnMut(Said)) {
        let mut bytes = [0; 4096];
        let was_open = self.is_open;
        while self.is_open {
            // Tokio may not know yet of what was just written, so the pipe itself is read. When it
            // is empty, a read by tokio makes tokio wait for more.
            let count = match read(&self.pipe, &mut bytes) {
                Err(Errno::AGAIN) => self.pipe.try_read(&mut bytes),
                count => count.map_err(io::Error::from),
            };
            match count {
                Ok(0) => self.is_open = false,
                Ok(count) => self.unfinished.extend(bytes.iter().take(count)),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(_) => self.is_open = false,
            }
        }
        while let Some(end) = self.unfinished.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.unfinished.drain(..=end).collect();
            tell(Said::Line(String::from_utf8_lossy(&line).trim_end().to_owned()));
        }
        if was_open && !self.is_open {
            tell(Said::End);
        }
    }
}

/// Takes what all processes have said by now, with the number of each.
///
/// Whatever was written before one of these lines, by any process, is among them: all pipes are
/// read again until none has anything. A candidate that leads because another one has stopped
/// says so after that one.
pub fn said(all: &mut [Lines]) -> Vec<(usize, Said)> {
    let mut said = Vec::new();
    loop {
        let before = said.len();
        for (who, lines) in all.iter_mut().enumerate() {
            lines.take(|it| said.push((who, it)));
        }
        if said.len() == before {
            return said;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Write as _, pipe};

    use super::*;

    #[tokio::test]
    async fn what_was_written_before_is_not_missed() {
        let (first, mut first_says) = pipe().unwrap();
        let (second, mut second_says) = pipe().unwrap();
        let mut all = [first, second].map(|pipe| Lines::of(pipe.into()).unwrap());
        assert_eq!(said(&mut all), []);
        let line = |text: &str| Said::Line(text.into());
        for round in 0..100 {
            // Read in another order than it was written, and more than is read at once.
            let long = "x".repeat(5_000 * usize::from(round == 7));
            writeln!(second_says, "stopped{long}").unwrap();
            writeln!(first_says, "leads").unwrap();
            write!(first_says, "unfinished").unwrap();
            let mut heard = said(&mut all);
            heard.sort_by_key(|(who, _)| *who);
            assert_eq!(heard, [(0, line("leads")), (1, line(&format!("stopped{long}")))]);
            writeln!(first_says).unwrap();
            all[0].ready().await;
            assert_eq!(said(&mut all), [(0, line("unfinished"))]);
        }
        drop(second_says);
        all[1].ready().await;
        while said(&mut all) != [(1, Said::End)] {}
        assert_eq!(said(&mut all), []);
    }
}
