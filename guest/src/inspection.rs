//! An inspection: reads the candidates' keys page by page, and then their values, some at a time.

use alloc::vec::Vec;

use crate::context::{Answer, Context, Purpose, snapshot};
use crate::layout::{Layout, point};
use crate::search::{PAGE, smaller};
use crate::table::Table;
use crate::timers::Timer;
use crate::types::{
    ElectionId, Entry, Failure, Listing, Notice, Operation, RequestId, Revision, Snapshot,
};

/// How many values one read asks for.
const VALUES: u32 = 64;
/// How many candidates are listed at most, and how many bytes of their keys and values.
const MOST_CANDIDATES: usize = 30_000;
const MOST_BYTES: usize = 64 << 20;

/// Lists the candidates of an election once.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Inspection {
    election: ElectionId,
    layout: Layout,
    call: Option<RequestId>,
    failed: u32,
    /// Where the next page begins; none once all keys are known.
    from: Option<Vec<u8>>,
    /// How many keys, or values, the next read asks for.
    limit: u32,
    /// The keys whose values were not read yet, in the order of the queue. One transaction may
    /// create several keys, so the order in which they were found counts too.
    keys: Table<(Revision, usize), Vec<u8>>,
    /// The candidates whose values are known.
    candidates: Vec<Entry>,
    /// How many bytes the keys and values have so far.
    bytes: usize,
}

impl Inspection {
    /// Reads nothing until [`due`](Self::due) is called.
    pub fn new(election: ElectionId, layout: Layout) -> Inspection {
        let from = Some(layout.followed().0);
        Inspection {
            election,
            layout,
            call: None,
            failed: 0,
            from,
            limit: PAGE,
            keys: Table::default(),
            candidates: Vec::new(),
            bytes: 0,
        }
    }

    /// Stops reading, because the application asked for it.
    pub fn leave(self, context: &mut Context) {
        context.timers.cancel(Timer::Election(self.election));
        context.forget(self.call);
        context.withdraw(self.election, None);
    }

    /// The next read, or the next try, is due.
    pub fn due(&mut self, context: &mut Context) {
        let selections = match &self.from {
            Some(from) => [self.layout.page(from.clone(), self.limit)].into(),
            None => {
                let next = self.keys.iter().take(self.limit as usize);
                next.map(|(_, key)| point(key.clone())).collect()
            }
        };
        self.call =
            Some(context.call(Purpose::Inspect(self.election), Operation::Read(selections)));
    }

    /// Takes the answer. Returns whether the inspection is over.
    pub fn answered(&mut self, context: &mut Context, outcome: Answer) -> bool {
        self.call = None;
        let failure = match snapshot(outcome) {
            Ok(Snapshot { found, .. }) => {
                self.failed = 0;
                match self.from.take() {
                    Some(_) => self.take_page(found.into_iter().flatten().collect()),
                    None => self.take_values(found),
                }
                return self.go_on(context);
            }
            Err(failure @ (Failure::Denied(_) | Failure::Invalid(_))) => {
                context.withdraw(self.election, Some(failure));
                return true;
            }
            Err(failure) => failure,
        };
        self.limit = smaller(self.limit, &failure);
        let timer = Timer::Election(self.election);
        context.fail(&mut self.failed, timer, self.election, failure);
        false
    }

    fn take_page(&mut self, page: Vec<Entry>) {
        if page.len() >= self.limit as usize {
            self.from = page.last().map(|last| self.layout.after(&last.key));
        }
        for entry in page.into_iter().filter(|entry| self.layout.counts(entry)) {
            self.bytes += entry.key.len();
            self.keys.insert((entry.created, self.keys.len()), entry.key);
        }
        if self.from.is_none() {
            self.limit = VALUES;
        }
    }

    /// Takes the values of the first keys, and leaves out candidates that have gone.
    fn take_values(&mut self, found: Vec<Vec<Entry>>) {
        for found in found {
            let Some((place, _)) = self.keys.first() else { return };
            self.keys.remove(&place);
            let entry = found
                .into_iter()
                .next()
                .filter(|it| it.created == place.0 && self.layout.counts(it));
            self.bytes += entry.as_ref().map_or(0, |entry| entry.value.len());
            self.candidates.extend(entry);
        }
        // If all have gone, others may have come.
        if self.keys.is_empty() && self.candidates.is_empty() {
            self.from = Some(self.layout.followed().0);
            self.limit = PAGE;
            self.bytes = 0;
        }
    }

    /// The next read, or the end.
    fn go_on(&mut self, context: &mut Context) -> bool {
        let too_much = if self.keys.len() + self.candidates.len() > MOST_CANDIDATES {
            Some(
                "there are more than 30,000 candidates, or keys that look like theirs: list them with \
                 the store's own tools",
            )
        } else if self.bytes > MOST_BYTES {
            Some("the candidates' keys and values have more than 64 MiB: shorten them")
        } else {
            None
        };
        if let Some(sentence) = too_much {
            context.withdraw(self.election, Some(Failure::Other(sentence.into())));
            return true;
        }
        if self.from.is_some() || !self.keys.is_empty() {
            self.due(context);
            return false;
        }
        let candidates = core::mem::take(&mut self.candidates);
        context.notify(Notice::Listed(Listing { election: self.election, candidates }));
        true
    }
}
