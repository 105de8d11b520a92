//! A set of watches, and the changes that it tells.

use std::future::poll_fn;
use std::time::Duration;

use tokio::time::timeout;

use super::verdict::{Stop, Verdict, name};
use incumbent::Watches;
use incumbent::types::{Change, Entry, RequestId, Watch, Watched};

pub(super) struct Listener {
    watches: Box<dyn Watches>,
    timeout: Duration,
}

impl Listener {
    pub(super) fn new(watches: Box<dyn Watches>, timeout: Duration) -> Self {
        Self { watches, timeout }
    }

    pub(super) fn open(&mut self, watch: Watch) {
        self.watches.open(watch);
    }

    pub(super) fn close(&mut self, id: RequestId) {
        self.watches.close(id);
    }

    /// The next thing that it tells, however long that takes.
    pub(super) async fn told(&mut self) -> Watched {
        poll_fn(|context| self.watches.poll_next(context)).await
    }

    /// The next thing that it tells, unless that takes too long.
    pub(super) async fn within(&mut self, time: Duration) -> Option<Watched> {
        timeout(time, self.told()).await.ok()
    }

    /// The next thing that it has to tell.
    pub(super) async fn next(&mut self) -> Verdict<Watched> {
        let timeout = self.timeout;
        self.within(timeout).await.ok_or_else(|| {
            Stop::Breach(format!(
                "a watch tells what has happened, but it told nothing within {timeout:?}"
            ))
        })
    }

    /// Opens a watch, and waits until it is on: what it tells comes after this revision.
    pub(super) async fn listen(&mut self, watch: Watch) -> Verdict<i64> {
        let id = watch.id;
        self.open(watch);
        self.started(id).await
    }

    pub(super) async fn started(&mut self, id: RequestId) -> Verdict<i64> {
        let watched = self.next().await?;
        expect!(watched.change, Change::Started(at), "a watch tells first that it has started");
        ensure!(watched.id == id, "watch {id} was opened, but it was {} that started", watched.id);
        Ok(at)
    }

    /// Waits for a put of this key, by this revision, and nothing else.
    pub(super) async fn put(&mut self, id: RequestId, key: &str, at: i64) -> Verdict<Entry> {
        let watched = self.next().await?;
        let told = watched.clone();
        expect!(
            watched.change,
            Change::Put(entry),
            "the next that watch {id} has to tell is the put of `{key}` at {at}"
        );
        ensure!(
            told.id == id && entry.key == key.as_bytes() && entry.modified == at,
            "the next thing to be told is by watch {id} the put of `{key}` at {at}, \
             but it was by watch {} the one of `{}` at {}",
            told.id,
            name(&entry.key),
            entry.modified,
        );
        Ok(entry)
    }

    /// Waits for the end of this key, by this revision, and nothing else.
    pub(super) async fn deleted(&mut self, id: RequestId, key: &str, at: i64) -> Verdict {
        let watched = self.next().await?;
        expect!(
            watched.change.clone(),
            Change::Deleted(gone),
            "the next that watch {id} has to tell is the deletion of `{key}` at {at}"
        );
        ensure!(
            watched.id == id && gone.key == key.as_bytes() && gone.at == at,
            "the next thing to be told is by watch {id} the deletion of `{key}` at {at}, \
             but it was: {watched:?}",
        );
        Ok(())
    }
}

/// A watch of one key, from now on.
pub(super) fn of_key(id: RequestId, key: &str) -> Watch {
    Watch { id, key: key.into(), prefix: false, since: None }
}

/// A watch of all keys that begin so, from now on.
pub(super) fn of_all(id: RequestId, prefix: &str) -> Watch {
    Watch { prefix: true, ..of_key(id, prefix) }
}
