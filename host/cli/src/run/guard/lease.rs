//! How the guard gives the lease back, where the supervisor cannot any more.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::time::Duration;

use incumbent::types::Operation;
use incumbent::{Credentials, Options, Store, StoreUrl, store};
use tokio::runtime::Builder;
use tokio::time::timeout;

use super::message::{Reader, Writer};

/// The lease of a term, and how to reach who has granted it.
#[derive(Clone, Debug)]
pub struct Lease {
    pub id: i64,
    pub store: StoreUrl,
    pub credentials: Credentials,
    pub dial_timeout: Duration,
    pub command_timeout: Duration,
}

impl Lease {
    /// Has the store end it now. One try: if that fails, the lease runs out.
    pub fn give_back(&self) {
        let Ok(runtime) = Builder::new_current_thread().enable_all().build() else {
            return;
        };
        let Self { credentials, dial_timeout, .. } = self.clone();
        let options = Options { credentials, dial_timeout, ..Options::default() };
        let revoked = async {
            let store = store::connect(&self.store, &options).await.ok()?;
            store.call(Operation::Revoke(self.id), self.command_timeout).await.ok()
        };
        // A refusal is explained within two seconds, to nobody here.
        let within = self.dial_timeout.saturating_add(self.command_timeout);
        let _ = runtime.block_on(async { timeout(within, revoked).await });
        runtime.shutdown_background();
    }

    pub fn write(&self, message: &mut Writer) {
        let Credentials { ca, cert, key, user, password, password_file, .. } = &self.credentials;
        message.signed(self.id);
        message.bytes(self.store.to_string().as_bytes());
        for path in [ca, cert, key, password_file] {
            message.option(path.as_ref().map(|path| path.as_os_str().as_bytes()));
        }
        for text in [user, password] {
            message.option(text.as_ref().map(String::as_bytes));
        }
        for span in [self.dial_timeout, self.command_timeout] {
            message.number(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX));
        }
    }

    pub fn read(message: &mut Reader<'_>) -> Option<Self> {
        let path = |bytes: Option<Vec<u8>>| bytes.map(|it| PathBuf::from(OsString::from_vec(it)));
        let text = |bytes: Option<Vec<u8>>| bytes.and_then(|it| String::from_utf8(it).ok());
        let id = message.signed()?;
        let store = message.text()?.parse().ok()?;
        let mut credentials = Credentials::default();
        credentials.ca = path(message.option()?);
        credentials.cert = path(message.option()?);
        credentials.key = path(message.option()?);
        credentials.password_file = path(message.option()?);
        credentials.user = text(message.option()?);
        credentials.password = text(message.option()?);
        let dial_timeout = Duration::from_nanos(message.number()?);
        let command_timeout = Duration::from_nanos(message.number()?);
        Some(Self { id, store, credentials, dial_timeout, command_timeout })
    }
}
