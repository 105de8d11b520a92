//! Standard output and standard error, as a component writes them.
//!
//! A pipe that nobody reads makes a write wait, and a thread that waits in the kernel
//! cannot be interrupted: so a thread of their own writes, one for each, for all terms. A
//! component that is interrupted leaves there what it had handed over.

use std::io::{self, IsTerminal, Write};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;

use bytes::Bytes;
use tokio::io::{AsyncWrite, sink};
use tokio::sync::watch;
use wasmtime_wasi::async_trait;
use wasmtime_wasi::cli::{self, StdoutStream};
use wasmtime_wasi::p2::{OutputStream, Pollable, StreamError, StreamResult};

/// How much is handed over at once.
const CHUNK: usize = 64 * 1024;

/// What a component may write to. Clones are the same.
#[derive(Clone, Debug)]
pub struct Outlet {
    chunks: Sender<Bytes>,
    standing: watch::Sender<Standing>,
    is_terminal: bool,
}

/// How far the thread is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// So many chunks are not written yet.
    Waiting(usize),
    /// Nobody reads any more.
    Closed,
    /// The last write failed, and nobody has been told yet.
    Failed(io::ErrorKind),
}

impl Outlet {
    pub fn to(target: impl Write + IsTerminal + Send + 'static) -> io::Result<Self> {
        let (chunks, waiting) = mpsc::channel();
        let is_terminal = target.is_terminal();
        let standing = watch::Sender::new(Standing::Waiting(0));
        let told = standing.clone();
        thread::Builder::new()
            .name("incumbent-outlet".into())
            .spawn(move || write_all(&waiting, target, &told))?;
        Ok(Self { chunks, standing, is_terminal })
    }

    /// Waits until all of it has been written, or cannot be. Cancel safe.
    pub async fn written(&self) {
        let written = |standing: &Standing| !matches!(standing, Standing::Waiting(1..));
        // We hold a sender: it does not close.
        let _ = self.standing.subscribe().wait_for(written).await;
    }
}

fn write_all(chunks: &Receiver<Bytes>, mut target: impl Write, told: &watch::Sender<Standing>) {
    for chunk in chunks {
        let written = target.write_all(&chunk).and_then(|()| target.flush());
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

impl StdoutStream for Outlet {
    fn p2_stream(&self) -> Box<dyn OutputStream> {
        Box::new(self.clone())
    }

    /// For WASI 0.3, which is not linked.
    fn async_stream(&self) -> Box<dyn AsyncWrite + Send + Sync> {
        Box::new(sink())
    }
}

impl cli::IsTerminal for Outlet {
    fn is_terminal(&self) -> bool {
        self.is_terminal
    }
}

impl OutputStream for Outlet {
    fn write(&mut self, bytes: Bytes) -> StreamResult<()> {
        self.standing.send_modify(|standing| {
            if let Standing::Waiting(many) = standing {
                *many += 1;
            }
        });
        self.chunks.send(bytes).map_err(|_| StreamError::Closed)
    }

    fn flush(&mut self) -> StreamResult<()> {
        Ok(())
    }

    fn check_write(&mut self) -> StreamResult<usize> {
        let standing = *self.standing.borrow();
        match standing {
            Standing::Waiting(0) => Ok(CHUNK),
            Standing::Waiting(_) => Ok(0),
            Standing::Closed => Err(StreamError::Closed),
            Standing::Failed(kind) => {
                self.standing.send_replace(Standing::Waiting(0));
                Err(StreamError::LastOperationFailed(io::Error::from(kind).into()))
            }
        }
    }
}

#[async_trait]
impl Pollable for Outlet {
    async fn ready(&mut self) {
        self.written().await;
    }
}
