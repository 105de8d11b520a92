//! The line between two of our processes: whole messages each way, and nobody waits
//! for the other.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;

use rustix::io::{FdFlags, fcntl_getfd, fcntl_setfd};

/// How long a message is, before it.
const LENGTH: usize = size_of::<u64>();

/// One end of it.
#[derive(Debug)]
pub struct Line {
    stream: UnixStream,
    received: Vec<u8>,
    /// What the other one had no room for.
    unsent: Vec<u8>,
    is_open: bool,
}

impl Line {
    /// One end for us, and one that a child is to be given.
    pub fn pair() -> io::Result<(Self, UnixStream)> {
        let (ours, theirs) = UnixStream::pair()?;
        Ok((Self::over(ours)?, theirs))
    }

    /// The end that we were started with: an open file by its number.
    pub fn inherited(number: RawFd) -> io::Result<Self> {
        #[expect(unsafe_code, reason = "a file that is known by its number alone")]
        // SAFETY: whoever started us has opened it for us, and nobody else here
        // uses that number.
        let stream = UnixStream::from(unsafe { OwnedFd::from_raw_fd(number) });
        fcntl_setfd(&stream, fcntl_getfd(&stream)? | FdFlags::CLOEXEC)?;
        // A number that somebody has typed may be of any file.
        stream.local_addr()?;
        Self::over(stream)
    }

    fn over(stream: UnixStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Self { stream, received: Vec::new(), unsent: Vec::new(), is_open: true })
    }

    /// For those who wait for it elsewhere.
    pub fn stream(&self) -> io::Result<UnixStream> {
        self.stream.try_clone()
    }

    /// Sends a message, or keeps what there is no room for until we listen again.
    /// Those to somebody who has gone are lost.
    pub fn send(&mut self, message: &[u8]) {
        self.unsent.extend(message);
        self.flush();
    }

    fn flush(&mut self) {
        while !self.unsent.is_empty() {
            match self.stream.write(&self.unsent) {
                Ok(sent) => drop(self.unsent.drain(..sent.min(self.unsent.len()))),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(_) => self.unsent.clear(),
            }
        }
    }

    /// Takes in all that has come, and sends what there was no room for.
    pub fn listen(&mut self) {
        self.flush();
        while self.is_open && self.read().is_ok() {}
    }

    /// Takes in some of what has come: an error if there is nothing yet.
    pub fn read(&mut self) -> io::Result<()> {
        let mut bytes = [0; 4096];
        match self.stream.read(&mut bytes) {
            Ok(0) => self.is_open = false,
            Ok(count) => self.received.extend(bytes.iter().take(count)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Err(error),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => self.is_open = false,
        }
        Ok(())
    }

    /// The next message that has been taken in.
    pub fn message(&mut self) -> Option<Vec<u8>> {
        let (length, rest) = self.received.split_first_chunk::<LENGTH>()?;
        let length = usize::try_from(u64::from_le_bytes(*length)).ok()?;
        let message = rest.get(..length)?.to_vec();
        self.received.drain(..LENGTH.saturating_add(length));
        Some(message)
    }

    /// Whether the other one is there, as far as has been taken in.
    pub fn is_open(&self) -> bool {
        self.is_open
    }
}

impl AsFd for Line {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

/// Lets the program that we are about to become have a file. Allocates nothing.
pub fn pass_on(file: BorrowedFd<'_>) -> io::Result<RawFd> {
    fcntl_setfd(file, fcntl_getfd(file)? - FdFlags::CLOEXEC)?;
    Ok(file.as_raw_fd())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A process that another test starts at this moment has the other end as well, until it
    /// becomes another program.
    fn listen_to_the_end(line: &mut Line) {
        let begun = std::time::Instant::now();
        while line.is_open() {
            assert!(begun.elapsed().as_secs() < 30, "it stays open");
            line.listen();
        }
    }

    #[test]
    fn messages_come_whole_and_in_order() {
        let (mut ours, theirs) = Line::pair().unwrap();
        let mut theirs = Line::over(theirs).unwrap();
        let message = |byte: u8, length: usize| {
            [&(length as u64).to_le_bytes()[..], &vec![byte; length]].concat()
        };
        // More than there is room for.
        let large = 1 << 20;
        ours.send(&message(b'a', large));
        ours.send(&message(b'b', 1));
        assert!(!ours.unsent.is_empty());
        while !ours.unsent.is_empty() {
            theirs.listen();
            assert_eq!(theirs.message(), None);
            ours.listen();
        }
        theirs.listen();
        assert_eq!(theirs.message(), Some(vec![b'a'; large]));
        assert_eq!(theirs.message(), Some(vec![b'b']));
        assert_eq!(theirs.message(), None);
        drop(ours);
        listen_to_the_end(&mut theirs);
        theirs.send(&message(b'c', 1));
    }

    #[test]
    fn a_peer_that_closes_before_it_has_read_is_gone() {
        let (mut ours, theirs) = Line::pair().unwrap();
        ours.send(b"unread");
        drop(theirs);
        listen_to_the_end(&mut ours);
        ours.send(b"to nobody");
        assert!(ours.unsent.is_empty());
    }
}
