//! The credentials as they are on disk now.
//!
//! The files are read when a connection is wanted, at most once a second: so there is no task
//! to end. Their contents are compared, not their dates, because a file may be replaced twice
//! within one tick of a file system's clock.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, timeout};

use super::keyspace::Keyspace;
use super::secrets::{Secrets, check};
use crate::store::connect_error::ConnectError;
use crate::store::credentials::{Credentials, Files};
use crate::store::url::EtcdUrl;

/// How often the files are read, at the most.
const INTERVAL: Duration = Duration::from_secs(1);
/// How long a caller waits for the files. Where the disk takes longer, the last known
/// credentials serve meanwhile.
const TIMEOUT: Duration = Duration::from_millis(250);

/// What all connections have in common.
pub(super) struct Access {
    credentials: Credentials,
    pub(super) with_tls: bool,
    pub(super) dial_timeout: Duration,
    /// A key to prove a connection with: every user of this store may read it, if any key at
    /// all, and it does not exist.
    pub(super) probe: Vec<u8>,
    known: Mutex<Known>,
    /// Held while the files are read.
    reading: Arc<tokio::sync::Mutex<()>>,
}

/// What was read so far.
struct Known {
    secrets: Arc<Secrets>,
    /// What was read last, usable or not.
    found: Result<Files, String>,
    read: Instant,
}

impl Access {
    /// Reads the files.
    ///
    /// # Errors
    /// If any part of the credentials cannot be used.
    pub(super) async fn new(
        url: &EtcdUrl,
        credentials: &Credentials,
        keyspace: &Keyspace,
        dial_timeout: Duration,
    ) -> Result<Self, ConnectError> {
        let with_tls = url.tls();
        check(credentials, with_tls)?;
        let files = Files::read(credentials).await?;
        let secrets = Secrets::new(credentials, with_tls, files.clone()).await?;
        let mut probe = keyspace.wire(b"");
        if probe.is_empty() {
            probe.push(0);
        }
        Ok(Self {
            credentials: credentials.clone(),
            with_tls,
            dial_timeout,
            probe,
            known: Mutex::new(Known {
                secrets: Arc::new(secrets),
                found: Ok(files),
                read: Instant::now(),
            }),
            reading: Arc::default(),
        })
    }

    /// What to connect with, no older than a second.
    pub(super) async fn secrets(self: &Arc<Self>) -> Arc<Secrets> {
        let is_due = self.known.lock().read.elapsed() >= INTERVAL;
        if is_due && self.reading.try_lock().is_ok() {
            self.read_again().await;
        }
        Arc::clone(&self.known.lock().secrets)
    }

    /// What to connect with, as it is on disk at this moment.
    pub(super) async fn newest_secrets(self: &Arc<Self>) -> Arc<Secrets> {
        self.read_again().await;
        Arc::clone(&self.known.lock().secrets)
    }

    /// The files that the secrets were made of.
    pub(super) fn files(&self) -> Files {
        self.known.lock().secrets.files.clone()
    }

    /// Reads the files, after a reading that is under way.
    async fn read_again(self: &Arc<Self>) {
        if !self.credentials.have_files() {
            return;
        }
        let Ok(turn) = timeout(TIMEOUT, Arc::clone(&self.reading).lock_owned()).await else {
            return;
        };
        let access = Arc::clone(self);
        // A disk that hangs holds up this task alone, and no second one is started.
        let read = tokio::spawn(async move {
            access.read().await;
            drop(turn);
        });
        let _ = timeout(TIMEOUT, read).await;
    }

    async fn read(&self) {
        let found = Files::read(&self.credentials).await.map_err(|error| error.to_string());
        {
            let mut known = self.known.lock();
            known.read = Instant::now();
            if known.found == found {
                return;
            }
            known.found = found.clone();
        }
        let made = match found {
            Ok(files) => Secrets::new(&self.credentials, self.with_tls, files)
                .await
                .map_err(|error| error.to_string()),
            Err(error) => Err(error),
        };
        match made {
            Ok(secrets) => {
                tracing::info!("the credentials' files have changed, and are taken up");
                self.known.lock().secrets = Arc::new(secrets);
            }
            Err(error) => tracing::warn!(
                error,
                "the credentials' files have changed, and cannot be used: their old contents \
                 stay in use until they change again"
            ),
        }
    }
}
