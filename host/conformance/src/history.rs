//! Forgotten history: a watch that asks for it is told so.

use super::listener::of_key;
use super::stores::{Stores, guard_of, put};
use super::verdict::{Stop, Verdict};
use incumbent::Failure;
use incumbent::types::{Change, Watch};

pub(super) async fn what_is_forgotten_is_told(stores: Stores) -> Verdict {
    let guard = guard_of(&stores.here.leader("lead").await?);
    let mut listener = stores.there.listener();
    let on = listener.listen(of_key(1, "k")).await?;
    let mut written = Vec::new();
    for number in 0..4 {
        let at = stores.here.applied(&guard, vec![put("k", &number.to_string())]).await?;
        listener.put(1, "k", at).await?;
        written.push(at);
    }
    let [first, .., oldest, last] = written[..] else { return Ok(()) };
    if !stores.place.compact(oldest.into()).await {
        return Err(Stop::Skip("this place forgets nothing when it is told to".into()));
    }
    let since = |id, since| Watch { since: Some(since), ..of_key(id, "k") };
    for (handle, id, asked) in [(&stores.here, 2, first), (&stores.there, 3, on + 1)] {
        let mut late = handle.listener();
        late.open(since(id, asked));
        // It may start before it finds out.
        let mut watched = late.next().await?;
        if matches!(watched.change, Change::Started(_)) {
            watched = late.next().await?;
        }
        ensure!(
            watched.id == id && watched.change == Change::Ended(Failure::Compacted(oldest)),
            "a watch since {asked} ends where only {oldest} and what came later is kept, and says \
             so, but it told {watched:?}"
        );
        // What is kept is told, from the oldest on.
        late.listen(since(id + 10, oldest)).await?;
        late.put(id + 10, "k", oldest).await?;
        late.put(id + 10, "k", last).await?;
    }
    // An open watch misses nothing, and keys are not forgotten.
    let found = stores.there.get("k").await?.map(|entry| entry.modified);
    ensure!(
        found == Some(last),
        "history is forgotten, not keys: `k` is of revision {last}, but it was {found:?}"
    );
    let at = stores.here.applied(&guard, vec![put("k", "after")]).await?;
    listener.put(1, "k", at).await?;
    Ok(())
}
