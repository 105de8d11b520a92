//! A counter in etcd that leaders count up together: each reads it, and writes it one
//! higher, guarded by its term and only if nobody has written it since.

use std::time::Duration;

use incumbent::{
    Credentials, EtcdStore, EtcdUrl, Failure, Fence, Revision, Write, WriteError, admin,
};

use incumbent_simulation::history::Outcome;

/// A counter, and the way to it. A cheap clone.
#[derive(Clone, Debug)]
pub struct Counter {
    store: EtcdStore,
    key: String,
}

/// How long a connection, and a read, may take.
const WITHIN: Duration = Duration::from_secs(5);

impl Counter {
    /// The counter of the leaders of `election`, on the etcd at `url`. Fails where no etcd
    /// answers within 5 s.
    pub async fn connect(url: &str, election: &str) -> Result<Self, Failure> {
        let key = key(election);
        let url: EtcdUrl = url.parse().expect("is a URL");
        let store = EtcdStore::connect(&url, &Credentials::default(), WITHIN).await;
        store.map(|store| Self { store, key }).map_err(|error| Failure::Other(error.to_string()))
    }

    /// The counter of another election's leaders, on the same etcd.
    #[must_use]
    pub fn of(&self, election: &str) -> Self {
        Self { store: self.store.clone(), key: key(election) }
    }

    /// Its value. Fails where etcd does not answer.
    pub async fn value(&self) -> Result<u64, Failure> {
        self.read().await.map(|(value, _)| value)
    }

    /// Counts one up. `seen` is told the value that was read, before it is written one
    /// higher.
    pub async fn increment(&self, fence: &Fence, seen: impl FnOnce(u64)) -> Outcome {
        let Ok((value, modified)) = self.read().await else { return Outcome::Nothing };
        seen(value);
        let (key, next) = (self.key.as_str(), (value + 1).to_string());
        let write = Write::new().expect(key, modified).put(key, next);
        match fence.write(write).await {
            Ok(_) => Outcome::Applied,
            Err(WriteError::Stale | WriteError::Conflict | WriteError::Failed(_)) => {
                Outcome::Nothing
            }
            Err(_) => Outcome::Unknown,
        }
    }

    /// The value, and the revision of its last change.
    async fn read(&self) -> Result<(u64, Revision), Failure> {
        Ok(admin::get(&self.store, self.key.as_str(), WITHIN).await?.map_or_else(
            Default::default,
            |entry| {
                let text = String::from_utf8(entry.value).expect("a counter is text");
                (text.parse().expect("and a number"), entry.modified)
            },
        ))
    }
}

fn key(election: &str) -> String {
    format!("counter-of-{election}")
}
