//! Watches while many tasks write: together, the changes that they tell have to be the
//! acknowledged ones, and have to lead to the final keys.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use super::listener::{Listener, of_all, of_key};
use super::stores::{Handle, Stores, all, delete, guard_of, put};
use super::verdict::{Verdict, name};
use incumbent::types::{Change, Entry, Response, Watch};

const WRITERS: usize = 6;
const ROUNDS: usize = 15;
const KEYS: [&str; 4] = ["w/0", "w/1", "w/2", "w/3"];

pub(super) async fn watches_under_load_miss_and_repeat_nothing(stores: Stores) -> Verdict {
    let guard = guard_of(&stores.here.leader("lead").await?);
    let mut listeners = Vec::new();
    for handle in stores.handles() {
        let mut listener = handle.listener();
        let mut watches = vec![Told::begin(&mut listener, of_all(1, "w/")).await?];
        for (id, key) in (2..).zip(KEYS) {
            watches.push(Told::begin(&mut listener, of_key(id, key)).await?);
        }
        listeners.push((listener, watches));
    }

    // Two others begin in the middle: one at a revision of the past, one from now on.
    let newest = Arc::new(AtomicI64::new(guard.epoch));
    let acknowledged = stores.at_once(WRITERS, |handle, number| {
        write(handle, number, guard.clone(), Arc::clone(&newest))
    });
    let begin = async {
        let mut begun = Vec::new();
        for handle in stores.handles() {
            let mut listener = handle.listener();
            let since = Some(newest.load(Ordering::SeqCst));
            let past = Told::begin(&mut listener, Watch { since, ..of_all(1, "w/") }).await?;
            begun.push((listener, vec![past]));
            let mut listener = handle.listener();
            let from_now = Told::begin(&mut listener, of_all(2, "w/")).await?;
            begun.push((listener, vec![from_now]));
        }
        Ok(begun)
    };
    let (acknowledged, begun) = futures_util::future::try_join(acknowledged, begin).await?;
    listeners.extend(begun);
    let mut acknowledged: BTreeSet<Written> = acknowledged.into_iter().flatten().collect();

    // The last change is of all keys.
    let last = KEYS.map(|key| put(key, "the end")).into();
    let end = stores.here.applied(&guard, last).await?;
    acknowledged.extend(KEYS.map(|key| (end, key.as_bytes().to_vec())));
    let left = stores.there.read(vec![all("w/")]).await?.found.concat();

    for (mut listener, mut watches) in listeners {
        while !watches.iter().all(|watch| watch.is_over(end)) {
            let watched = listener.next().await?;
            match watches.iter_mut().find(|watch| watch.watch.id == watched.id) {
                Some(watch) => watch.tell(watched.change)?,
                None => ensure!(false, "only open watches tell something, but {watched:?} came"),
            }
        }
        for watch in watches {
            watch.judge(&acknowledged, &left)?;
        }
    }
    Ok(())
}

/// A put key, and its revision.
type Written = (i64, Vec<u8>);

/// Puts, deletes and makes keys that other tasks change too. Returns the certain puts.
async fn write(
    handle: Handle,
    number: usize,
    guard: incumbent::types::Guard,
    newest: Arc<AtomicI64>,
) -> Verdict<Vec<Written>> {
    let lease = handle.lease().await?;
    let mut written = Vec::new();
    for round in 0..ROUNDS {
        tokio::task::yield_now().await;
        let mut keys = KEYS.iter().cycle().skip(number + round);
        let (Some(one), Some(two)) = (keys.next(), keys.next()) else { break };
        let value = format!("{number}.{round}");
        let (at, puts) = match round % 3 {
            0 => {
                let both = vec![put(one, &value), put(two, &value)];
                (handle.applied(&guard, both).await?, vec![one, two])
            }
            1 => {
                let change = vec![put(one, &value), delete(two)];
                (handle.applied(&guard, change).await?, vec![one])
            }
            _ => {
                let answer = handle.claim(two, lease).await?;
                if let Response::Claimed(of) = answer {
                    (of.at, vec![two])
                } else {
                    expect!(answer, Response::Taken(of), "a claim gives a key or its owner");
                    (of.at, vec![])
                }
            }
        };
        written.extend(puts.into_iter().map(|key| (at, key.as_bytes().to_vec())));
        newest.fetch_max(at, Ordering::SeqCst);
    }
    Ok(written)
}

/// A watch, and the changes that it has told.
struct Told {
    watch: Watch,
    /// Its changes come after this revision.
    after: i64,
    changes: Vec<Change>,
}

impl Told {
    async fn begin(listener: &mut Listener, watch: Watch) -> Verdict<Self> {
        let started = listener.listen(watch.clone()).await?;
        let since = watch.since;
        let after = since.map_or(started, |since| since - 1);
        ensure!(
            started <= after,
            "what a watch since {since:?} tells comes after the revision at which it starts, but \
             that was {started}"
        );
        Ok(Self { watch, after, changes: Vec::new() })
    }

    fn sees(&self, key: &[u8]) -> bool {
        if self.watch.prefix { key.starts_with(&self.watch.key) } else { key == self.watch.key }
    }

    fn is_over(&self, end: i64) -> bool {
        let told = self.changes.iter().filter(|change| position(change).0 == end).count();
        told >= KEYS.iter().filter(|key| self.sees(key.as_bytes())).count()
    }

    fn tell(&mut self, change: Change) -> Verdict {
        let (at, key) = position(&change);
        let is_change = matches!(change, Change::Put(_) | Change::Deleted(_));
        ensure!(
            is_change && self.sees(key) && at > self.after,
            "watch {} tells the changes of its keys after {}, but it told {change:?}",
            self.watch.id,
            self.after
        );
        let last = self.changes.last().map_or(0, |last| position(last).0);
        ensure!(
            at >= last,
            "a watch tells what one revision changed before what the next did, but after {last} \
             it told {change:?}"
        );
        self.changes.push(change);
        Ok(())
    }

    /// Checks that it told every change, once.
    fn judge(&self, acknowledged: &BTreeSet<Written>, left: &[Entry]) -> Verdict {
        let mut told = BTreeSet::new();
        let mut keys: BTreeMap<&[u8], Option<&Entry>> = BTreeMap::new();
        for change in &self.changes {
            let (at, key) = position(change);
            ensure!(
                told.insert((at, key.to_vec())),
                "a watch tells each change once, but it repeated {change:?}"
            );
            // Before the first change, the state of a key is unknown.
            let before = keys.get(key).copied();
            match change {
                Change::Put(entry) => {
                    let follows = match before {
                        None => entry.created == at || entry.created <= self.after,
                        Some(None) => entry.created == at,
                        Some(Some(old)) => entry.created == old.created,
                    };
                    ensure!(
                        follows,
                        "a watch tells each change, but none between {before:?} and {change:?}"
                    );
                    keys.insert(key, Some(entry));
                }
                Change::Deleted(_) | Change::Started(_) | Change::Ended(_) => {
                    ensure!(
                        before != Some(None),
                        "a key is gone once, but a watch told {change:?} where it was gone before"
                    );
                    keys.insert(key, None);
                }
            }
        }
        for written in acknowledged.iter().filter(|(at, key)| *at > self.after && self.sees(key)) {
            ensure!(
                told.contains(written),
                "a watch tells each change after {}, but not that of `{}` at {}, which was \
                 acknowledged",
                self.after,
                name(&written.1),
                written.0
            );
        }
        for entry in left.iter().filter(|entry| self.sees(&entry.key)) {
            let last = keys.get(&*entry.key).copied().flatten();
            ensure!(
                last == Some(entry),
                "what a watch has told last is what is there, {entry:?}, but it was {last:?}"
            );
        }
        Ok(())
    }
}

/// The revision and the key of a change.
fn position(change: &Change) -> (i64, &[u8]) {
    match change {
        Change::Put(entry) => (entry.modified, &entry.key),
        Change::Deleted(deletion) => (deletion.at, &deletion.key),
        Change::Started(_) | Change::Ended(_) => (0, &[]),
    }
}
