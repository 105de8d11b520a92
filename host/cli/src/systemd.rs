//! What systemd is told of this instance if it has asked for that (`Type=notify`): that it is
//! ready, what it does, that its driver turns, and that it ends.
//!
//! A thread of its own tells it, as with the HTTP endpoint: a store that is slow, or a process 1
//! that is, takes no time from renewals and deadlines.
//!
//! Not the crate `sd-notify`, which knows no abstract sockets, and waits for process 1.

mod status;

use std::cell::Cell;
use std::env;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::process;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use futures_util::future::{AbortHandle, Abortable, join3};
use tokio::runtime::Runtime;
use tokio::time::{sleep, timeout};

use self::status::Status;
use super::exit::{End, bad_input, say};
use super::instance::InstanceView;

const SOCKET: &str = "NOTIFY_SOCKET";
const WATCHDOG_TIMEOUT: &str = "WATCHDOG_USEC";
const WATCHDOG_PROCESS: &str = "WATCHDOG_PID";

/// What systemd asks for. Our children are not this service, and do not inherit it.
pub const VARIABLES: [&str; 3] = [SOCKET, WATCHDOG_TIMEOUT, WATCHDOG_PROCESS];

/// How soon a status is looked at again if nothing has changed but the time.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// No driver comes round more often.
const SHORTEST_WATCHDOG: Duration = Duration::from_millis(100);

/// How often within the watchdog's time the driver has to come round.
const SIGNS_OF_LIFE: u32 = 3;

/// Tells systemd of this instance until it is dropped.
#[derive(Debug)]
pub struct Notifier {
    telling: AbortHandle,
    thread: Option<JoinHandle<()>>,
}

impl Notifier {
    /// Tells from now on, if systemd has asked for that.
    pub fn start(view: &InstanceView) -> Result<Option<Self>, End> {
        let Some(socket) = env::var_os(SOCKET).filter(|socket| !socket.is_empty()) else {
            return Ok(None);
        };
        let found = address(&socket).and_then(|address| connect(&address).map(|_| address));
        let address = match found {
            Ok(address) => address,
            Err(error) => {
                say(&format!(
                    "systemd is told nothing, because {SOCKET} {} cannot be reached ({error}): \
                     unset the variable if systemd did not start this program",
                    socket.display()
                ));
                return Ok(None);
            }
        };
        let (is_ready, is_stopping) = (Cell::new(false), Cell::new(false));
        let teller = Teller { view: view.clone(), address, is_ready, is_stopping };
        let started = tokio::runtime::Builder::new_current_thread().enable_all().build();
        started.and_then(|runtime| Self::spawn(runtime, teller)).map(Some).map_err(|error| {
            bad_input(format!(
                "systemd cannot be told of this instance ({error}): allow more threads (ulimit \
                 -u) and open files (ulimit -n)"
            ))
        })
    }

    fn spawn(runtime: Runtime, teller: Teller) -> io::Result<Self> {
        let (abort, registration) = AbortHandle::new_pair();
        let tell = move || {
            let _aborted = runtime.block_on(Abortable::new(teller.tell(), registration));
            teller.stopping();
            runtime.shutdown_background();
        };
        let thread = thread::Builder::new().name("incumbent-notify".into()).spawn(tell)?;
        Ok(Self { telling: abort, thread: Some(thread) })
    }
}

impl Drop for Notifier {
    fn drop(&mut self) {
        self.telling.abort();
        // It waits for nothing. Fails if it has panicked, which has been said.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

#[derive(Debug)]
struct Teller {
    view: InstanceView,
    address: SocketAddr,
    /// What has been said once and for all.
    is_ready: Cell<bool>,
    is_stopping: Cell<bool>,
}

impl Teller {
    /// Without end.
    async fn tell(&self) {
        join3(self.view.clone().follow(), self.feed_watchdog(), self.tell_state()).await;
    }

    async fn tell_state(&self) {
        let mut told = None;
        loop {
            if self.view.has_begun() && !self.is_ready.get() {
                self.is_ready.set(self.send("READY=1"));
            }
            if self.view.is_ending() {
                self.stopping();
            }
            let status = Status::of(&self.view).await;
            if status.is_news(told.as_ref()) && self.send(&format!("STATUS={status}")) {
                told = Some(status);
            }
            // What has changed meanwhile is looked at.
            let _ = timeout(LOOK_AGAIN, self.view.changed()).await;
        }
    }

    fn stopping(&self) {
        if !self.is_stopping.get() {
            self.is_stopping.set(self.send("STOPPING=1"));
        }
    }

    /// Gives a sign of life whenever the driver has come round, and at no other time.
    async fn feed_watchdog(&self) {
        let Some(watchdog) = watchdog() else { return };
        loop {
            if self.view.driver_turns().await {
                self.send("WATCHDOG=1");
            }
            sleep(watchdog / SIGNS_OF_LIFE).await;
        }
    }

    /// False if process 1 does not take it now.
    fn send(&self, message: &str) -> bool {
        connect(&self.address).and_then(|socket| socket.send(message.as_bytes())).is_ok()
    }
}

/// A path, or `@` and an abstract name.
fn address(socket: &OsStr) -> io::Result<SocketAddr> {
    #[cfg(target_os = "linux")]
    if let Some(name) = socket.as_bytes().strip_prefix(b"@") {
        return <SocketAddr as std::os::linux::net::SocketAddrExt>::from_abstract_name(name);
    }
    SocketAddr::from_pathname(socket)
}

/// Anew for each message: process 1 may have replaced itself.
fn connect(address: &SocketAddr) -> io::Result<UnixDatagram> {
    let socket = UnixDatagram::unbound()?;
    socket.set_nonblocking(true)?;
    socket.connect_addr(address)?;
    Ok(socket)
}

/// The time within which systemd wants a sign of life, if it wants one from this process.
fn watchdog() -> Option<Duration> {
    let number = |name| env::var(name).ok()?.parse::<u64>().ok();
    let is_ours = number(WATCHDOG_PROCESS).is_none_or(|pid| pid == u64::from(process::id()));
    // Zero asks for none.
    let timeout = number(WATCHDOG_TIMEOUT).filter(|timeout| is_ours && *timeout > 0)?;
    Some(Duration::from_micros(timeout).max(SHORTEST_WATCHDOG))
}
