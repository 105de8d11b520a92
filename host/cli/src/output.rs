//! Where lines are written.
//!
//! A write to a terminal that is held (Ctrl-S), or to a pipe that nobody reads, blocks, and a
//! thread that blocks renews no lease and stops no work in time. So a separate thread writes
//! the lines. When too much waits, the oldest lines are left out, and a line in their place
//! says how many: a reader that goes on reading learns that something is missing, and the
//! present state.

use std::collections::VecDeque;
use std::fmt;
use std::fs::File;
use std::io::{self, Write};
use std::mem;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use tokio::sync::watch;

use super::exit::{End, Status, bad_input, say};

/// How many bytes may wait to be written. A longer line waits alone.
const WAITING: usize = 1 << 20;

/// How many bytes a line counts in addition to its own.
const LINE: usize = 64;

/// How long the last lines may take to be written.
const LAST_LINES: Duration = Duration::from_secs(2);

/// How soon a file that could not be written is tried again.
const AGAIN: Duration = Duration::from_secs(1);

/// Prints the answer of a command that asks once. That its reader has gone is no error.
pub fn print(answer: impl Into<Vec<u8>>) -> Result<Status, End> {
    let mut answer = answer.into();
    answer.push(b'\n');
    let mut stdout = io::stdout().lock();
    match stdout.write_all(&answer).and_then(|()| stdout.flush()) {
        Ok(()) => Ok(Status::Done),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(Status::Done),
        Err(error) => Err(not_written(&error)),
    }
}

/// Standard output takes nothing more.
fn not_written(error: &impl fmt::Display) -> End {
    bad_input(format!("standard output cannot be written ({error}): send it where it can"))
}

/// Takes whole lines. Clones share one thread.
#[derive(Clone)]
pub struct Output(Arc<Shared>);

/// What the program and the writing thread share.
struct Shared {
    queue: Mutex<Queue>,
    /// Notified when there is something to write.
    grown: Condvar,
    progress: watch::Sender<Progress>,
    gap: Gap,
    /// None if a write that fails is not tried again.
    retry: Option<Retry>,
}

/// For a file whose writes are tried again.
struct Retry {
    /// Its name for people.
    name: String,
    /// Where they read that writes fail.
    people: Output,
}

#[derive(Default)]
struct Queue {
    lines: VecDeque<Vec<u8>>,
    /// How many bytes they count.
    bytes: usize,
    /// How many lines were left out since the last one that was written.
    left_out: u64,
    /// How many lines have ever been taken.
    taken: u64,
}

/// How far the thread has come.
#[derive(Debug, Default)]
struct Progress {
    /// How many of the lines that were taken are written, or counted as left out.
    done: u64,
    closed: Option<Closed>,
}

impl fmt::Debug for Output {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Output").finish_non_exhaustive()
    }
}

/// Makes the line in place of so many that were left out.
pub type Gap = Box<dyn Fn(u64) -> String + Send + Sync>;

/// Why the thread has stopped writing.
#[derive(Clone, Debug)]
enum Closed {
    /// Its reader has gone.
    Unread,
    Failed(String),
}

impl Output {
    pub fn to_stdout(gap: Gap) -> Result<Self, End> {
        Self::to(io::stdout(), gap, None)
    }

    pub fn to_stderr(gap: Gap) -> Result<Self, End> {
        Self::to(io::stderr(), gap, None)
    }

    /// To a file. A write that fails, for example on a full disk, is tried again; `people` are
    /// told once, and once more when it works again.
    pub fn to_file(file: File, name: String, gap: Gap, people: Self) -> Result<Self, End> {
        Self::to(file, gap, Some(Retry { name, people }))
    }

    fn to(target: impl AsFd, gap: Gap, retry: Option<Retry>) -> Result<Self, End> {
        let not_started = |error: io::Error| {
            bad_input(format!(
                "no line can be written ({error}): allow more threads (ulimit -u) and open files \
                 (ulimit -n)"
            ))
        };
        // Without std's buffer, so that we know what has been written.
        let target = target.as_fd().try_clone_to_owned().map_err(not_started)?;
        let shared = Arc::new(Shared {
            queue: Mutex::default(),
            grown: Condvar::new(),
            progress: watch::Sender::default(),
            gap,
            retry,
        });
        let writer = Arc::clone(&shared);
        thread::Builder::new()
            .name("incumbent-output".into())
            .spawn(move || writer.write_all(File::from(target)))
            .map_err(not_started)?;
        Ok(Self(shared))
    }

    /// Hands a line to the thread, and adds the newline.
    pub fn line(&self, text: impl Into<Vec<u8>>) {
        let mut line = text.into();
        line.push(b'\n');
        self.take(line);
    }

    fn take(&self, line: Vec<u8>) {
        self.0.queue.lock().take(line);
        self.0.grown.notify_one();
    }

    /// Waits until nothing can be written any more: the reader has gone, which is an end as
    /// asked, or a write has failed. Cancel safe.
    pub async fn closed(&self) -> Result<Status, End> {
        let mut progress = self.0.progress.subscribe();
        // Cannot fail: we hold the sender.
        let progress = progress.wait_for(|progress| progress.closed.is_some()).await;
        match progress.ok().and_then(|progress| progress.closed.clone()) {
            Some(Closed::Failed(error)) => Err(not_written(&error)),
            Some(Closed::Unread) | None => Ok(Status::Done),
        }
    }

    /// Waits until the last lines are written, or for two seconds if nobody reads.
    pub async fn flush(&self) {
        let taken = self.0.queue.lock().taken;
        let mut progress = self.0.progress.subscribe();
        let written = progress.wait_for(|now| now.done >= taken || now.closed.is_some());
        if tokio::time::timeout(LAST_LINES, written).await.is_err()
            && let Some(Retry { name, .. }) = &self.0.retry
        {
            let left = taken.saturating_sub(self.0.progress.borrow().done);
            say(&format!("{name}: the last lines could not be written: {left}"));
        }
    }
}

impl Queue {
    /// The newest line always gets in: it tells the present state.
    fn take(&mut self, line: Vec<u8>) {
        self.taken += 1;
        self.bytes += line.len() + LINE;
        self.lines.push_back(line);
        while self.bytes > WAITING && self.lines.len() > 1 {
            self.give();
            self.left_out += 1;
        }
    }

    fn give(&mut self) -> Option<Vec<u8>> {
        let line = self.lines.pop_front()?;
        self.bytes -= line.len() + LINE;
        Some(line)
    }
}

impl Shared {
    /// The thread, which ends with the process, or when nothing can be written any more.
    fn write_all(&self, mut target: File) {
        loop {
            let (line, many) = self.next();
            if let Err(error) = self.write(&mut target, &line) {
                let is_unread = error.kind() == io::ErrorKind::BrokenPipe;
                let closed =
                    if is_unread { Closed::Unread } else { Closed::Failed(error.to_string()) };
                self.progress.send_modify(|progress| progress.closed = Some(closed));
                return;
            }
            self.progress.send_modify(|progress| progress.done += many);
        }
    }

    /// The next line, and how many lines it counts for. Lines that were left out are older than
    /// those that wait.
    fn next(&self) -> (Vec<u8>, u64) {
        let mut queue = self.queue.lock();
        loop {
            let left_out = mem::take(&mut queue.left_out);
            if left_out > 0 {
                let line = (self.gap)(left_out) + "\n";
                return (line.into_bytes(), left_out);
            }
            if let Some(line) = queue.give() {
                return (line, 1);
            }
            self.grown.wait(&mut queue);
        }
    }

    /// Writes all of a line, also if a full disk has cut it for a while.
    fn write(&self, target: &mut File, line: &[u8]) -> io::Result<()> {
        let mut rest = line;
        let mut has_failed = false;
        while !rest.is_empty() {
            let error = match target.write(rest) {
                Ok(0) => io::ErrorKind::WriteZero.into(),
                Ok(written) => {
                    rest = rest.get(written..).unwrap_or_default();
                    continue;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => error,
            };
            let Some(Retry { name, people }) = &self.retry else {
                return Err(error);
            };
            if !mem::replace(&mut has_failed, true) {
                people.line(format!(
                    "incumbent: {name} cannot be written ({error}): what happens is kept, the \
                     last 1 MiB of it, until it can"
                ));
            }
            thread::sleep(AGAIN);
        }
        if let (true, Some(Retry { name, people })) = (has_failed, &self.retry) {
            people.line(format!("incumbent: {name} is written again"));
        }
        Ok(())
    }
}

/// For the log, which writes each of its lines at once.
impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.take(bytes.to_vec());
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, pipe};

    use super::*;

    fn to_a_pipe() -> (BufReader<io::PipeReader>, Output) {
        let (reader, writer) = pipe().unwrap();
        let gap = Box::new(|many| format!("left out: {many}"));
        (BufReader::new(reader), Output::to(writer, gap, None).unwrap())
    }

    #[test]
    fn a_reader_that_stalls_costs_bounded_memory_and_learns_of_the_gap() {
        let (mut reader, output) = to_a_pipe();
        let many = 10_000;
        for number in 0..many {
            output.line(format!("{number} {}", "x".repeat(1000)));
            assert!(output.0.queue.lock().bytes <= WAITING);
        }
        let (mut next, mut gaps) = (0, 0);
        while next < many {
            let mut line = String::new();
            reader.read_line(&mut line).unwrap();
            if let Some(left_out) = line.strip_prefix("left out: ") {
                next += left_out.trim().parse::<u64>().unwrap();
                gaps += 1;
            } else {
                let number: u64 = line.split(' ').next().unwrap().parse().unwrap();
                assert_eq!(number, next, "in order, and what is missing is counted");
                next += 1;
            }
        }
        assert_eq!(next, many, "the newest lines were kept");
        assert!(gaps >= 1, "something was left out");
    }

    #[test]
    fn a_line_beyond_the_bound_is_told_all_the_same() {
        let (mut reader, output) = to_a_pipe();
        for _ in 0..3 {
            output.line("x".repeat(3 * WAITING));
            assert!(output.0.queue.lock().lines.len() <= 1);
        }
        output.line("last");
        let mut line = String::new();
        while line != "last\n" {
            line.clear();
            reader.read_line(&mut line).unwrap();
        }
    }
}
