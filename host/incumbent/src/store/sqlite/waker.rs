//! What wakes the thread that serves the watches: this process, and the notifications of others.

pub(super) use self::system::Waker;

/// By an eventfd and inotify.
#[cfg(target_os = "linux")]
mod system {
    use std::io;
    use std::os::fd::OwnedFd;
    use std::path::Path;
    use std::thread::sleep;
    use std::time::{Duration, Instant};

    use parking_lot::Mutex;
    use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
    use rustix::fs::inotify::{CreateFlags, WatchFlags, add_watch, init, remove_watch};
    use rustix::io::{Errno, read, write};

    /// How long to sleep if waiting fails.
    const PAUSE: Duration = Duration::from_millis(10);

    #[derive(Debug)]
    pub(in super::super) struct Waker {
        woken: OwnedFd,
        /// None if the system has none left.
        inotify: Option<OwnedFd>,
        /// The file that it listens to.
        watch: Mutex<Option<i32>>,
    }

    impl Waker {
        pub(in super::super) fn new() -> io::Result<Self> {
            let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
            let woken = eventfd(0, flags)?;
            let inotify = match init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK) {
                Ok(inotify) => Some(inotify),
                Err(error) => {
                    // The same error means that this process may open no more files.
                    woken.try_clone()?;
                    tracing::warn!(
                        %error,
                        "no inotify instance is left for this user: the store in a file is polled \
                         every 10 ms instead; raise fs.inotify.max_user_instances (sysctl)"
                    );
                    None
                }
            };
            Ok(Self { woken, inotify, watch: Mutex::new(None) })
        }

        pub(in super::super) fn wake(&self) {
            // If the counter is full, it is awake.
            let _ = write(&self.woken, &1_u64.to_ne_bytes());
        }

        /// Listens to this file, and to none before it.
        pub(in super::super) fn listen(&self, notifier: &Path) -> io::Result<()> {
            let inotify = self.inotify.as_ref().ok_or(Errno::MFILE)?;
            let mut watch = self.watch.lock();
            if let Some(watch) = watch.take() {
                // It may have ended with its file.
                let _ = remove_watch(inotify, watch);
            }
            // ATTRIB tells of links to the file that come and go.
            let flags = WatchFlags::MODIFY | WatchFlags::ATTRIB | WatchFlags::DONT_FOLLOW;
            *watch = Some(add_watch(inotify, notifier, flags)?);
            Ok(())
        }

        /// Waits to be woken, or with `listening` for a notification too. Whether that came.
        pub(in super::super) fn wait(&self, until: Option<Instant>, listening: bool) -> bool {
            let listening = self.inotify.as_ref().filter(|_| listening);
            let mut waiting = vec![PollFd::new(&self.woken, PollFlags::IN)];
            waiting.extend(listening.map(|inotify| PollFd::new(inotify, PollFlags::IN)));
            let at_most = until.map(|until| until.saturating_duration_since(Instant::now()));
            let at_most = at_most.and_then(|at_most| Timespec::try_from(at_most).ok());
            match poll(&mut waiting, at_most.as_ref()) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => {
                    tracing::debug!(%error, "cannot wait for notifications");
                    sleep(PAUSE);
                }
            }
            let _ = read(&self.woken, &mut [0_u8; 8]);
            listening.is_some_and(is_notified)
        }
    }

    /// Reads all events: each means the same.
    fn is_notified(inotify: &OwnedFd) -> bool {
        let mut notified = false;
        while read(inotify, &mut [0_u8; 1_024]).is_ok_and(|length| length > 0) {
            notified = true;
        }
        notified
    }
}

/// Elsewhere there are no notifications, and the thread polls.
#[cfg(not(target_os = "linux"))]
mod system {
    use std::io;
    use std::path::Path;
    use std::time::{Duration, Instant};

    use crate::clock::Notifier;

    /// How long to wait where there is no limit: the caller looks again.
    const LONG: Duration = Duration::from_secs(3_600);

    #[derive(Debug, Default)]
    pub(in super::super) struct Waker(Notifier);

    impl Waker {
        #[allow(clippy::unnecessary_wraps, reason = "Linux may have too few file descriptors")]
        pub(in super::super) fn new() -> io::Result<Self> {
            Ok(Self::default())
        }

        pub(in super::super) fn wake(&self) {
            self.0.notify();
        }

        #[allow(clippy::unused_self, reason = "Linux has something to listen with")]
        pub(in super::super) fn listen(&self, _notifier: &Path) -> io::Result<()> {
            Err(io::ErrorKind::Unsupported.into())
        }

        pub(in super::super) fn wait(&self, until: Option<Instant>, _listening: bool) -> bool {
            let at_most = until.map(|until| until.saturating_duration_since(Instant::now()));
            self.0.wait(at_most.unwrap_or(LONG));
            false
        }
    }
}
