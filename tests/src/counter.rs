//! A counter that leaders count up together: each reads it, and writes it one higher, guarded by its
//! term. In etcd, it does so only if nobody has written it since.

use std::time::Duration;

use incumbent::{
    Credentials, EtcdStore, EtcdUrl, Failure, Fence, Revision, Write, WriteError, admin,
};

use incumbent_simulation::history::Outcome;

use self::postgres::Table;

pub mod postgres;

/// A counter, and the way to it. A cheap clone.
#[derive(Clone, Debug)]
pub struct Counter(Way);

#[derive(Clone, Debug)]
enum Way {
    Etcd { store: EtcdStore, key: String },
    Postgres(Table),
}

/// How long a connection, and a read, may take.
const WITHIN: Duration = Duration::from_secs(5);

impl Counter {
    /// The counter of the leaders of `election`, in the store at `url`. Fails where no etcd answers
    /// within 5 s.
    pub async fn connect(url: &str, election: &str) -> Result<Self, Failure> {
        if url.starts_with("postgres:") {
            let table = Table::new(url, election).expect("is a URL");
            return Ok(Self(Way::Postgres(table)));
        }
        let key = key(election);
        let url: EtcdUrl = url.parse().expect("is a URL");
        let store = EtcdStore::connect(&url, &Credentials::default(), WITHIN).await;
        store
            .map(|store| Self(Way::Etcd { store, key }))
            .map_err(|error| Failure::Other(error.to_string()))
    }

    /// The counter of another election's leaders, in the same store.
    #[must_use]
    pub fn of(&self, election: &str) -> Self {
        Self(match &self.0 {
            Way::Etcd { store, .. } => Way::Etcd { store: store.clone(), key: key(election) },
            Way::Postgres(table) => Way::Postgres(table.of(election)),
        })
    }

    /// Its value. Fails where the store does not answer.
    pub async fn value(&self) -> Result<u64, Failure> {
        match &self.0 {
            Way::Etcd { store, key } => read(store, key).await.map(|(value, _)| value),
            Way::Postgres(table) => {
                table.value().await.map_err(|error| Failure::Other(error.to_string()))
            }
        }
    }

    /// Counts one up. `seen` is told the value that was read, before it is written one higher, and on
    /// PostgreSQL the timeline that it was read on.
    pub async fn increment(&self, fence: &Fence, seen: impl FnOnce(u64, Option<u32>)) -> Outcome {
        let (store, key) = match &self.0 {
            Way::Etcd { store, key } => (store, key.as_str()),
            Way::Postgres(table) => {
                let seen = |value, timeline| seen(value, Some(timeline));
                return table.increment(fence, seen).await;
            }
        };
        let Ok((value, modified)) = read(store, key).await else { return Outcome::Nothing };
        seen(value, None);
        let next = (value + 1).to_string();
        let write = Write::new().expect(key, modified).put(key, next);
        match fence.write(write).await {
            Ok(_) => Outcome::Applied,
            Err(WriteError::Stale | WriteError::Conflict | WriteError::Failed(_)) => {
                Outcome::Nothing
            }
            Err(_) => Outcome::Unknown,
        }
    }
}

/// The value, and the revision of its last change.
async fn read(store: &EtcdStore, key: &str) -> Result<(u64, Revision), Failure> {
    Ok(admin::get(store, key, WITHIN).await?.map_or_else(Default::default, |entry| {
        let text = String::from_utf8(entry.value).expect("a counter is text");
        (text.parse().expect("and a number"), entry.modified)
    }))
}

fn key(election: &str) -> String {
    format!("counter-of-{election}")
}
