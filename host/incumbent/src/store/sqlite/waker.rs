//! What wakes the thread that watches: this process, and the bell.

pub(super) use self::system::Waker;

/// By an eventfd and inotify.
#[cfg(target_os = "linux")]
mod system {
    use std::io;
    use std::os::fd::OwnedFd;
    use std::path::Path;
    use std::sync::{Mutex, PoisonError};
    use std::thread::sleep;
    use std::time::{Duration, Instant};

    use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
    use rustix::fs::inotify::{CreateFlags, WatchFlags, add_watch, init, remove_watch};
    use rustix::io::{Errno, read, write};

    /// Where waiting fails.
    const PAUSE: Duration = Duration::from_millis(10);

    #[derive(Debug)]
    pub(in super::super) struct Waker {
        woken: OwnedFd,
        /// None where the system has none left.
        inotify: Option<OwnedFd>,
        /// What is listened to.
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
                        "no inotify instance is left for this user: the store in a file is looked \
                         at every 10 ms instead; raise fs.inotify.max_user_instances (sysctl)"
                    );
                    None
                }
            };
            Ok(Self { woken, inotify, watch: Mutex::new(None) })
        }

        pub(in super::super) fn wake(&self) {
            // Where the counter is full, it is awake.
            let _ = write(&self.woken, &1_u64.to_ne_bytes());
        }

        /// Listens to this file, and to none before it.
        pub(in super::super) fn listen(&self, bell: &Path) -> io::Result<()> {
            let inotify = self.inotify.as_ref().ok_or(Errno::MFILE)?;
            let mut watch = self.watch.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(watch) = watch.take() {
                // It went with its file, perhaps.
                let _ = remove_watch(inotify, watch);
            }
            // Links to it that come and go are attributes.
            let flags = WatchFlags::MODIFY | WatchFlags::ATTRIB | WatchFlags::DONT_FOLLOW;
            *watch = Some(add_watch(inotify, bell, flags)?);
            Ok(())
        }

        /// Waits to be woken, or for the bell where that is asked for. Whether it was the bell.
        pub(in super::super) fn wait(&self, until: Option<Instant>, to_bell: bool) -> bool {
            let listening = self.inotify.as_ref().filter(|_| to_bell);
            let mut waiting = vec![PollFd::new(&self.woken, PollFlags::IN)];
            waiting.extend(listening.map(|inotify| PollFd::new(inotify, PollFlags::IN)));
            let at_most = until.map(|until| until.saturating_duration_since(Instant::now()));
            let at_most = at_most.and_then(|at_most| Timespec::try_from(at_most).ok());
            match poll(&mut waiting, at_most.as_ref()) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => {
                    tracing::debug!(%error, "cannot wait for the bell");
                    sleep(PAUSE);
                }
            }
            let _ = read(&self.woken, &mut [0_u8; 8]);
            listening.is_some_and(is_heard)
        }
    }

    /// Takes all events: each tells the same.
    fn is_heard(inotify: &OwnedFd) -> bool {
        let mut heard = false;
        while read(inotify, &mut [0_u8; 1_024]).is_ok_and(|length| length > 0) {
            heard = true;
        }
        heard
    }
}

/// Elsewhere nobody hears the bell, and the thread looks from time to time.
#[cfg(not(target_os = "linux"))]
mod system {
    use std::io;
    use std::path::Path;
    use std::sync::{Condvar, Mutex, PoisonError};
    use std::time::Instant;

    #[derive(Debug, Default)]
    pub(in super::super) struct Waker {
        woken: Mutex<bool>,
        waking: Condvar,
    }

    impl Waker {
        #[allow(clippy::unnecessary_wraps, reason = "Linux may have too few file descriptors")]
        pub(in super::super) fn new() -> io::Result<Self> {
            Ok(Self::default())
        }

        pub(in super::super) fn wake(&self) {
            *self.woken.lock().unwrap_or_else(PoisonError::into_inner) = true;
            self.waking.notify_all();
        }

        #[allow(clippy::unused_self, reason = "Linux has something to listen with")]
        pub(in super::super) fn listen(&self, _bell: &Path) -> io::Result<()> {
            Err(io::ErrorKind::Unsupported.into())
        }

        pub(in super::super) fn wait(&self, until: Option<Instant>, _to_bell: bool) -> bool {
            let mut woken = self.woken.lock().unwrap_or_else(PoisonError::into_inner);
            while !*woken {
                let Some(until) = until else {
                    woken = self.waking.wait(woken).unwrap_or_else(PoisonError::into_inner);
                    continue;
                };
                let left = until.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    break;
                }
                let waited = self.waking.wait_timeout(woken, left);
                woken = waited.unwrap_or_else(PoisonError::into_inner).0;
            }
            *woken = false;
            false
        }
    }
}
