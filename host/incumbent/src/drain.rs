//! How an instance hears that an operator drains it: by a key that the operator's program writes,
//! under a short lease, and into which the instance writes how far it is.

use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;
use tracing::{debug, info};

use crate::driver::Pool;
use crate::store::{Store, read};
use crate::types::{Change, Entry, Failure, Guard, Guarded, Mutation, Operation, Response, Watch};

/// How often the instance looks how far it is.
const LOOK: Duration = Duration::from_millis(50);
/// How often it says so even if nothing has changed: a refused write shows that nobody asks any more.
const AGAIN: Duration = Duration::from_secs(1);
/// The pause before the watch is opened again.
const PAUSE: Duration = Duration::from_secs(1);
/// And where the store does not allow it.
const DENIED_PAUSE: Duration = Duration::from_secs(30);

/// What an operator asks of an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    /// To hand over so many terms at a time, and take part no more.
    Drain(u32),
    Undo,
}

/// The key for an instance of this identity. Wishes end in `/transfer` or `/priority-…`, so no election's
/// name can produce it.
pub(crate) fn key(identity: &str) -> Vec<u8> {
    format!("incumbent-wishes/{identity}/drain").into_bytes()
}

impl Request {
    pub(crate) fn text(self) -> Vec<u8> {
        match self {
            Self::Drain(at_once) => format!("drain {at_once}").into_bytes(),
            Self::Undo => b"undo".into(),
        }
    }

    fn of(value: &[u8]) -> Option<Self> {
        match str::from_utf8(value).ok()?.split_once(' ') {
            Some(("drain", at_once)) => at_once.parse().ok().map(Self::Drain),
            Some(_) => None,
            None => (value == b"undo").then_some(Self::Undo),
        }
    }
}

/// The answer: how many terms the instance holds.
fn answer(terms: usize) -> Vec<u8> {
    format!("holds {terms}").into_bytes()
}

/// How many terms the instance holds, by its answer.
pub(crate) fn answered(value: &[u8]) -> Option<usize> {
    str::from_utf8(value).ok()?.strip_prefix("holds ")?.parse().ok()
}

/// Does what operators ask, for ever.
pub(crate) async fn heed(pool: Pool, store: Arc<dyn Store>, within: Duration) {
    let key = key(&pool.first().identity);
    let mut pause = PAUSE;
    loop {
        let mut watches = store.watches();
        watches.open(Watch { id: 1, key: key.clone(), prefix: false, since: None });
        loop {
            match poll_fn(|context| watches.poll_next(context)).await.change {
                Change::Started(_) => {
                    pause = PAUSE;
                    // It may have been written before.
                    if let Ok(Some(entry)) = read::get(&*store, key.clone(), within).await {
                        serve(&pool, &*store, within, entry).await;
                    }
                }
                Change::Put(entry) => serve(&pool, &*store, within, entry).await,
                Change::Deleted(_) => {}
                Change::Ended(failure) => {
                    debug!(%failure, "operators' wishes to drain are not heard");
                    if let Failure::Denied(_) = failure {
                        pause = DENIED_PAUSE;
                    }
                    break;
                }
            }
        }
        sleep(pause).await;
    }
}

/// Does what is asked, and says how far that is for as long as somebody asks.
async fn serve(pool: &Pool, store: &dyn Store, within: Duration, entry: Entry) {
    let Some(request) = Request::of(&entry.value) else { return };
    info!(?request, "asked by an operator");
    pool.drain(match request {
        Request::Drain(at_once) => Some(at_once),
        Request::Undo => None,
    });
    let guard = Guard { key: entry.key, epoch: entry.created, lease: Some(entry.lease) };
    let mut looks = 0;
    let mut told = None;
    loop {
        let Ok(terms) = pool.terms().await else { return };
        if told != Some(terms) || LOOK * looks >= AGAIN {
            let (guard, mutations) = (guard.clone(), vec![Mutation::Proclaim(answer(terms))]);
            let write = Operation::Guarded(Guarded { guard, expect: Vec::new(), mutations });
            let written = store.call(write, within).await;
            if !matches!(written, Ok(Response::Applied(_))) {
                return;
            }
            (told, looks) = (Some(terms), 0);
        }
        if terms == 0 || request == Request::Undo {
            return;
        }
        sleep(LOOK).await;
        looks += 1;
    }
}
