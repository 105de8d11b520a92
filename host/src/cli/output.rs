//! Where lines go.
//!
//! A terminal that is held (Ctrl-S) or a pipe that nobody reads makes a write
//! wait, and whoever waits renews no lease and stops no work in time. So lines
//! are written by a thread of their own, and left out when too many wait.

use std::fs::File;
use std::io::{self, Write};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use tokio::sync::{oneshot, watch};
use tracing_subscriber::fmt::MakeWriter;

use super::exit::{End, Status, bad_input};

/// How many lines may wait to be written.
const WAITING: usize = 4096;

/// How long the last lines may take to be written.
const LAST_LINES: Duration = Duration::from_secs(2);

/// Prints the answer of a command that asks once. A reader that has gone away
/// wants no answer.
pub fn print(answer: impl Into<Vec<u8>>) -> Result<Status, End> {
    let mut answer = answer.into();
    answer.push(b'\n');
    let mut stdout = io::stdout().lock();
    match stdout.write_all(&answer).and_then(|()| stdout.flush()) {
        Ok(()) => Ok(Status::Done),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(Status::Done),
        Err(error) => Err(End::new(
            Status::BadInput,
            format!("the answer cannot be written to standard output: {error}"),
        )),
    }
}

/// Something that takes whole lines.
#[derive(Clone, Debug)]
pub struct Output {
    messages: SyncSender<Message>,
    open: watch::Receiver<bool>,
}

#[derive(Debug)]
enum Message {
    Line(Vec<u8>),
    /// To be answered when all before it is written.
    Flush(oneshot::Sender<()>),
}

impl Output {
    pub fn to_stdout() -> Result<Self, End> {
        Self::to(io::stdout())
    }

    pub fn to_stderr() -> Result<Self, End> {
        Self::to(io::stderr())
    }

    pub fn to_file(file: File) -> Result<Self, End> {
        Self::to(file)
    }

    fn to(target: impl Write + Send + 'static) -> Result<Self, End> {
        let (messages, waiting) = sync_channel(WAITING);
        let (closing, open) = watch::channel(true);
        let write = move || write_all(&waiting, target, &closing);
        let writing = thread::Builder::new().name("incumbent-output".into()).spawn(write);
        writing.map_err(|error| {
            bad_input(format!(
                "no thread can be started ({error}): allow this user more (ulimit -u)"
            ))
        })?;
        Ok(Self { messages, open })
    }

    /// Has a line written, soon. The newline is ours.
    pub fn line(&self, text: impl Into<Vec<u8>>) {
        let mut line = text.into();
        line.push(b'\n');
        // Full or closed: nobody reads, and we have other things to do.
        let _ = self.messages.try_send(Message::Line(line));
    }

    /// Waits until nothing can be written any more, because nobody reads. Cancel
    /// safe.
    pub async fn closed(&self) {
        // An error means that the thread has ended.
        let _ = self.open.clone().wait_for(|open| !open).await;
    }

    /// Has the last lines written, unless nobody takes them.
    pub async fn flush(&self) {
        let (written, answer) = oneshot::channel();
        if self.messages.try_send(Message::Flush(written)).is_ok() {
            let _ = tokio::time::timeout(LAST_LINES, answer).await;
        }
    }
}

fn write_all(waiting: &Receiver<Message>, mut target: impl Write, closing: &watch::Sender<bool>) {
    for message in waiting {
        match message {
            Message::Line(line) => {
                if target.write_all(&line).and_then(|()| target.flush()).is_err() {
                    break;
                }
            }
            Message::Flush(written) => {
                // Who asked may have stopped waiting.
                let _ = written.send(());
            }
        }
    }
    closing.send_replace(false);
}

/// For the log.
impl<'a> MakeWriter<'a> for Output {
    type Writer = LogLine;

    fn make_writer(&'a self) -> LogLine {
        LogLine { messages: self.messages.clone() }
    }
}

/// What the log writes at once is one line.
#[derive(Debug)]
pub struct LogLine {
    messages: SyncSender<Message>,
}

impl Write for LogLine {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let _ = self.messages.try_send(Message::Line(bytes.to_vec()));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
