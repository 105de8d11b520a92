//! How the guard gives the lease back when the supervisor is dead.

use std::ffi::OsString;
use std::time::Duration;

use incumbent::types::Operation;
use incumbent::{Credentials, Options, Store};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use tokio::runtime::Builder;
use tokio::time::timeout;

/// The lease of a term, and how to reach the store that has granted it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Lease {
    pub id: i64,
    /// The store's URL.
    pub store: String,
    #[serde(with = "credentials")]
    pub credentials: Credentials,
    pub dial_timeout: Duration,
    pub command_timeout: Duration,
}

impl Lease {
    /// Revokes it now. One try: if that fails, the lease runs out.
    pub fn give_back(&self) {
        let Ok(runtime) = Builder::new_current_thread().enable_all().build() else {
            return;
        };
        let Self { credentials, dial_timeout, .. } = self.clone();
        let options = Options { credentials, dial_timeout, ..Options::default() };
        let revoked = async {
            let store = incumbent::connect(&self.store.parse().ok()?, &options).await.ok()?;
            store.call(Operation::Revoke(self.id), self.command_timeout).await.ok()
        };
        // A refusal is explained within two seconds, to nobody here.
        let within = self.dial_timeout.saturating_add(self.command_timeout);
        let _ = runtime.block_on(async { timeout(within, revoked).await });
        runtime.shutdown_background();
    }
}

/// Paths of any bytes.
mod credentials {
    use super::*;

    type Fields = ([Option<OsString>; 4], [Option<String>; 2]);

    pub fn serialize<S: Serializer>(from: &Credentials, to: S) -> Result<S::Ok, S::Error> {
        let Credentials { ca, cert, key, user, password, password_file, .. } = from;
        let paths =
            [ca, cert, key, password_file].map(|path| path.as_ref().map(|it| it.as_os_str()));
        (paths, [user, password]).serialize(to)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Credentials, D::Error> {
        let (paths, [user, password]): Fields = Deserialize::deserialize(from)?;
        let [ca, cert, key, password_file] = paths.map(|path| path.map(Into::into));
        let mut credentials = Credentials::default();
        credentials.ca = ca;
        credentials.cert = cert;
        credentials.key = key;
        credentials.password_file = password_file;
        credentials.user = user;
        credentials.password = password;
        Ok(credentials)
    }
}
