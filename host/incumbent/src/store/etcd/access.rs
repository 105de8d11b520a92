//! What connections are made with, as the files have it now.
//!
//! The files are looked at when somebody wants a connection, at most once a
//! second; there is no task that would have to be ended. Their contents are
//! compared, not their dates: a file may be replaced twice within one tick of a
//! file system's clock.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, timeout};

use super::connect::ConnectError;
use super::credentials::{Credentials, Files, Secrets};
use super::keyspace::Keyspace;
use crate::store::url::EtcdUrl;

/// How often the files are looked at, at the most.
const INTERVAL: Duration = Duration::from_secs(1);
/// How long anybody waits for a look at them. Where the disk takes longer, what
/// was known is used meanwhile.
const PATIENCE: Duration = Duration::from_millis(250);

/// What all connections have in common.
pub(super) struct Access {
    credentials: Credentials,
    pub(super) with_tls: bool,
    pub(super) dial_timeout: Duration,
    /// A key to prove a connection with: everyone who uses this store is allowed
    /// to read it, if any, and it is not there.
    pub(super) probe: Vec<u8>,
    known: Mutex<Known>,
    /// Held by whoever looks.
    looking: Arc<tokio::sync::Mutex<()>>,
}

/// What came of the looks so far.
struct Known {
    secrets: Arc<Secrets>,
    /// What the last look found, usable or not.
    found: Result<Files, String>,
    looked: Instant,
}

impl Access {
    /// Reads the files.
    ///
    /// # Errors
    /// Where anything of the credentials cannot be used.
    pub(super) async fn new(
        url: &EtcdUrl,
        credentials: &Credentials,
        keyspace: &Keyspace,
        dial_timeout: Duration,
    ) -> Result<Self, ConnectError> {
        let with_tls = url.tls();
        credentials.check(with_tls)?;
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
                looked: Instant::now(),
            }),
            looking: Arc::default(),
        })
    }

    /// What to connect with, as the files had it within the last second.
    pub(super) async fn secrets(self: &Arc<Self>) -> Arc<Secrets> {
        let is_due = self.known(|known| known.looked.elapsed() >= INTERVAL);
        if is_due && self.looking.try_lock().is_ok() {
            self.look_again().await;
        }
        self.known(|known| Arc::clone(&known.secrets))
    }

    /// What to connect with, as the files have it at this moment.
    pub(super) async fn newest_secrets(self: &Arc<Self>) -> Arc<Secrets> {
        self.look_again().await;
        self.known(|known| Arc::clone(&known.secrets))
    }

    /// The files that the secrets were made of.
    pub(super) fn files(&self) -> Files {
        self.known(|known| known.secrets.files.clone())
    }

    /// Looks, once whoever does so already is done.
    async fn look_again(self: &Arc<Self>) {
        if !self.credentials.have_files() {
            return;
        }
        let Ok(turn) = timeout(PATIENCE, Arc::clone(&self.looking).lock_owned()).await else {
            return;
        };
        let access = Arc::clone(self);
        // A disk that hangs holds up this task alone, and no second one is begun.
        let look = tokio::spawn(async move {
            access.look().await;
            drop(turn);
        });
        let _ = timeout(PATIENCE, look).await;
    }

    async fn look(&self) {
        let found = Files::read(&self.credentials).await.map_err(|error| error.to_string());
        let is_new = self.known(|known| {
            known.looked = Instant::now();
            let is_new = known.found != found;
            known.found = found.clone();
            is_new
        });
        if !is_new {
            return;
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
                self.known(|known| known.secrets = Arc::new(secrets));
            }
            Err(error) => tracing::warn!(
                error,
                "the credentials' files have changed, and cannot be used: what they held before \
                 is, until they change again"
            ),
        }
    }

    fn known<T>(&self, of: impl FnOnce(&mut Known) -> T) -> T {
        of(&mut self.known.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
