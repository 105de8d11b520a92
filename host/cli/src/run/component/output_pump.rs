//! Standard output and standard error of a component.
//!
//! A write to a pipe that nobody reads blocks, and a thread that waits in the kernel cannot be
//! interrupted. So a separate thread writes, one for each of the two, for all terms. When a
//! component is interrupted, the thread completes the chunk that it has begun.

use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;

use bytes::Bytes;
use tokio::io::{AsyncWrite, sink};
use tokio::sync::watch;
use wasmtime_wasi::async_trait;
use wasmtime_wasi::cli::{self, StdoutStream};
use wasmtime_wasi::p2::{OutputStream, Pollable, StreamError, StreamResult};

use super::limit::Limit;

/// How many bytes a stream hands over at once.
const CHUNK: usize = 64 * 1024;

/// One of the two, for all runs. Clones are the same.
#[derive(Clone, Debug)]
pub struct OutputPump {
    chunks: Sender<Chunk>,
    standing: watch::Sender<Standing>,
    is_terminal: bool,
}

/// The stream of one run.
#[derive(Clone, Debug)]
pub struct Stdout {
    pump: OutputPump,
    limit: Arc<Limit>,
}

/// What a component writes to.
#[derive(Debug)]
struct Stream {
    pump: OutputPump,
    limit: Arc<Limit>,
    /// How many bytes the last check-write has permitted.
    permit: usize,
}

/// The bytes of one write. They are dropped once the limit of its run is over.
#[derive(Debug)]
struct Chunk {
    bytes: Bytes,
    limit: Arc<Limit>,
}

/// How far the thread has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// This many chunks are not written yet.
    Waiting(usize),
    /// The reader has gone.
    Closed,
    /// The last write failed, and the component does not know yet.
    Failed(io::ErrorKind),
}

impl OutputPump {
    /// Writes to a duplicate of the descriptor: the thread may block in the kernel, and other
    /// writers to `target` do not wait for it.
    pub fn to(target: impl AsFd) -> io::Result<Self> {
        let target = File::from(target.as_fd().try_clone_to_owned()?);
        let (chunks, waiting) = mpsc::channel();
        let is_terminal = target.is_terminal();
        let standing = watch::Sender::new(Standing::Waiting(0));
        let told = standing.clone();
        thread::Builder::new()
            .name("incumbent-pump".into())
            .spawn(move || write_all(&waiting, target, &told))?;
        Ok(Self { chunks, standing, is_terminal })
    }

    /// For one run.
    pub fn within(&self, limit: &Arc<Limit>) -> Stdout {
        Stdout { pump: self.clone(), limit: Arc::clone(limit) }
    }

    /// Waits until everything is written, or cannot be. Cancel safe.
    pub async fn written(&self) {
        let written = |standing: &Standing| !matches!(standing, Standing::Waiting(1..));
        // Cannot fail: we hold a sender.
        let _ = self.standing.subscribe().wait_for(written).await;
    }
}

fn write_all(chunks: &Receiver<Chunk>, mut target: File, told: &watch::Sender<Standing>) {
    for Chunk { bytes, limit } in chunks {
        // The rest of a run that is over must not be printed in the next one.
        let written = if limit.is_over() { Ok(()) } else { target.write_all(&bytes) };
        told.send_modify(|standing| {
            *standing = match (written, *standing) {
                (Ok(()), Standing::Waiting(many)) => Standing::Waiting(many.saturating_sub(1)),
                (Ok(()), same @ (Standing::Closed | Standing::Failed(_))) => same,
                (Err(error), _) if error.kind() == io::ErrorKind::BrokenPipe => Standing::Closed,
                (Err(error), _) => Standing::Failed(error.kind()),
            };
        });
    }
}

impl StdoutStream for Stdout {
    fn p2_stream(&self) -> Box<dyn OutputStream> {
        let Self { pump, limit } = self.clone();
        Box::new(Stream { pump, limit, permit: 0 })
    }

    /// For WASI 0.3, which is not linked.
    fn async_stream(&self) -> Box<dyn AsyncWrite + Send + Sync> {
        Box::new(sink())
    }
}

impl cli::IsTerminal for Stdout {
    fn is_terminal(&self) -> bool {
        self.pump.is_terminal
    }
}

impl OutputStream for Stream {
    fn write(&mut self, bytes: Bytes) -> StreamResult<()> {
        if bytes.len() > self.permit {
            return Err(StreamError::trap("more is written than check-write has permitted"));
        }
        self.permit = 0;
        self.pump.standing.send_modify(|standing| {
            if let Standing::Waiting(many) = standing {
                *many += 1;
            }
        });
        let chunk = Chunk { bytes, limit: Arc::clone(&self.limit) };
        self.pump.chunks.send(chunk).map_err(|_| StreamError::Closed)
    }

    fn flush(&mut self) -> StreamResult<()> {
        Ok(())
    }

    fn check_write(&mut self) -> StreamResult<usize> {
        let standing = *self.pump.standing.borrow();
        self.permit = if standing == Standing::Waiting(0) { CHUNK } else { 0 };
        match standing {
            Standing::Waiting(_) => Ok(self.permit),
            Standing::Closed => Err(StreamError::Closed),
            Standing::Failed(kind) => {
                self.pump.standing.send_replace(Standing::Waiting(0));
                Err(StreamError::LastOperationFailed(io::Error::from(kind).into()))
            }
        }
    }
}

#[async_trait]
impl Pollable for Stream {
    async fn ready(&mut self) {
        self.pump.written().await;
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, pipe};

    use incumbent::Mark;
    use wasmtime::Engine;

    use super::*;

    /// What a pipe holds.
    const PIPE: usize = 65_536;

    #[test]
    fn what_is_not_begun_when_the_run_is_over_is_not_printed() {
        let (mut reader, mut writer) = pipe().unwrap();
        writer.write_all(&[b'.'; PIPE]).unwrap();
        let pump = OutputPump::to(&writer).unwrap();
        drop(writer);
        let runs = [(); 3].map(|()| Limit::keep(&Engine::default(), Mark::MAX).unwrap());
        let mut streams = runs.each_ref().map(|limit| pump.within(limit).p2_stream());
        for stream in &mut streams {
            assert_eq!(stream.check_write().unwrap(), CHUNK);
        }
        // For the first the thread waits in the kernel.
        for (stream, bytes) in streams.iter_mut().zip(["first", "second", "third"]) {
            stream.write(bytes.into()).unwrap();
        }
        runs[1].done();
        drop((streams, pump));
        let mut printed = String::new();
        reader.read_to_string(&mut printed).unwrap();
        assert_eq!(printed.trim_start_matches('.'), "firstthird");
        runs.iter().for_each(|limit| limit.done());
    }

    #[test]
    fn a_stream_takes_no_more_than_it_has_permitted() {
        let (_reader, writer) = pipe().unwrap();
        let pump = OutputPump::to(writer).unwrap();
        let limit = Limit::keep(&Engine::default(), Mark::MAX).unwrap();
        let mut stream = pump.within(&limit).p2_stream();
        assert!(matches!(stream.write(vec![0; 1].into()), Err(StreamError::Trap(_))), "unasked");
        stream.check_write().unwrap();
        assert!(matches!(stream.write(vec![0; CHUNK + 1].into()), Err(StreamError::Trap(_))));
        stream.write(vec![0; CHUNK].into()).unwrap();
        assert!(matches!(stream.write(vec![0; 1].into()), Err(StreamError::Trap(_))), "used up");
        limit.done();
    }
}
