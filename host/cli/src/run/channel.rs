//! The channel between two of our processes: whole messages each way, written by serde with
//! postcard. Neither process ever waits for the other.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;

use rustix::io::{FdFlags, fcntl_getfd, fcntl_setfd};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// What ends a message (postcard's COBS).
const END: u8 = 0;

/// One end of it.
#[derive(Debug)]
pub struct Channel {
    stream: UnixStream,
    received: Vec<u8>,
    /// What the peer had no room for.
    unsent: Vec<u8>,
    is_open: bool,
}

impl Channel {
    /// One end for us, and one for a child.
    pub fn pair() -> io::Result<(Self, UnixStream)> {
        let (ours, theirs) = UnixStream::pair()?;
        Ok((Self::over(ours)?, theirs))
    }

    /// The end that we were started with: an open file by its number.
    pub fn inherited(number: RawFd) -> io::Result<Self> {
        #[expect(unsafe_code, reason = "a file that is known by its number alone")]
        // SAFETY: the process that started us has opened it for us, and nothing else here
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

    /// The same stream, for tokio to wait on.
    pub fn stream(&self) -> io::Result<UnixStream> {
        self.stream.try_clone()
    }

    /// Sends a message. What the peer has no room for is kept until the next
    /// [`exchange`](Self::exchange); what a dead peer does not take is lost.
    pub fn send(&mut self, message: &impl Serialize) {
        // Cannot fail: it is written to memory, and our messages know their lengths.
        self.unsent.extend(postcard::to_stdvec_cobs(message).unwrap_or_default());
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

    /// Reads everything that has arrived, and sends what there was no room for.
    pub fn exchange(&mut self) {
        self.flush();
        while self.is_open && self.read().is_ok() {}
    }

    /// Reads some of what has arrived; an error if nothing has.
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

    /// The next message that has been read. Both ends are the same program: a message that
    /// neither could have sent is left out.
    pub fn message<T: DeserializeOwned>(&mut self) -> Option<T> {
        loop {
            let end = self.received.iter().position(|byte| *byte == END)?;
            let mut message: Vec<u8> = self.received.drain(..=end).collect();
            if let Ok(message) = postcard::from_bytes_cobs(&mut message) {
                return Some(message);
            }
        }
    }

    /// Whether the peer is there, as far as has been read.
    pub fn is_open(&self) -> bool {
        self.is_open
    }
}

impl AsFd for Channel {
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
    fn read_to_the_end(channel: &mut Channel) {
        let begun = std::time::Instant::now();
        while channel.is_open() {
            assert!(begun.elapsed().as_secs() < 30, "it stays open");
            channel.exchange();
        }
    }

    #[test]
    fn messages_come_whole_and_in_order() {
        let (mut ours, theirs) = Channel::pair().unwrap();
        let mut theirs = Channel::over(theirs).unwrap();
        // More than there is room for.
        let large = 1 << 20;
        ours.send(&"a".repeat(large));
        ours.send(&"b");
        assert!(!ours.unsent.is_empty());
        while !ours.unsent.is_empty() {
            theirs.exchange();
            assert_eq!(theirs.message::<String>(), None);
            ours.exchange();
        }
        theirs.exchange();
        assert_eq!(theirs.message(), Some("a".repeat(large)));
        assert_eq!(theirs.message(), Some("b".to_owned()));
        assert_eq!(theirs.message::<String>(), None);
        drop(ours);
        read_to_the_end(&mut theirs);
        theirs.send(&"c");
    }

    #[test]
    fn a_peer_that_closes_before_it_has_read_is_gone() {
        let (mut ours, theirs) = Channel::pair().unwrap();
        ours.send(&"unread");
        drop(theirs);
        read_to_the_end(&mut ours);
        ours.send(&"to nobody");
        assert!(ours.unsent.is_empty());
    }
}
