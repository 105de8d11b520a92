//! What makes two worlds the same: they are hashed through glasses that see
//!
//! - a mark as the steps of time from now, and a long past as one;
//! - a revision as its distance from the store's;
//! - a number of failures beyond a few as many;
//! - leases, requests and watches by the order in which they are met;
//! - no random number, so that of two worlds that differ in their jitter alone one
//!   is explored;
//! - the candidates in an order of their own: who is first does not matter;
//! - of the store's history only what a watch has yet to tell.
//!
//! The elector is seen as its derived `Hash` shows it, field by field. Which kind a
//! number is follows from its type and its size: everything begins at a mark beyond
//! all spans, spans are beyond all ids, leases beyond all revisions.

use std::hash::{Hash, Hasher};

use incumbent_guest::types::{Duration, LeaseId, Mark, Revision};
use incumbent_simulation::store::Store;

use crate::world::{BEGINNING, Candidate, NAME, World, in_steps};

/// Random numbers are beyond this, but for one in 4,096: those hide nothing.
const MARKS_END: u64 = 4 * BEGINNING;
/// 17 ms: less is an id.
const SPANS_BEGIN: u64 = 1 << 24;
const LEASES_BEGIN: u64 = 1 << 40;
/// More failures are as many: their pauses take one step of time all the same, and
/// fewer claims than this are under way.
const MANY: u32 = 4;

/// A number for each world that is the same.
pub fn print(world: &World) -> u64 {
    let mut seen: Vec<(u64, Vec<LeaseId>)> = world
        .candidates
        .iter()
        .map(|candidate| {
            let mut view = View::new(world);
            candidate.see(&mut view, &world.store);
            (view.finish(), view.leases)
        })
        .collect();
    seen.sort_by_key(|(print, _)| *print);
    let mut view = View::new(world);
    for (print, leases) in &seen {
        view.hash.mix(*print);
        for lease in leases {
            view.write_i64(*lease);
        }
    }
    world.see(&mut view);
    view.finish()
}

impl World {
    /// What is not any candidate's.
    fn see(&self, view: &mut View) {
        self.left.hash(view);
        self.newest.hash(view);
        self.meddled.hash(view);
        self.broken.hash(view);
        let mut entries: Vec<_> = self.store.keys().collect();
        entries.sort_by_key(|entry| (entry.created, entry.modified));
        entries.hash(view);
        let mut leases: Vec<(usize, Mark, LeaseId)> = self
            .store
            .leases()
            .filter_map(|lease| Some((view.find(lease)?, self.store.end_of(lease)?, lease)))
            .collect();
        // Nobody knows the others any more, and they hold no key.
        leases.sort_unstable();
        for (_, end, lease) in leases {
            (lease, end).hash(view);
        }
    }
}

impl Candidate {
    fn see(&self, view: &mut View, store: &Store) {
        self.elector.hash(view);
        self.deadline.hash(view);
        self.calls.hash(view);
        self.strays.hash(view);
        for open in &self.watches {
            open.watch.id.hash(view);
            open.told.is_some().hash(view);
            for change in open.news(store) {
                change.hash(view);
            }
        }
        self.asleep.hash(view);
        if let Some(held) = &self.term {
            held.yielded.hash(view);
            match held.yielded {
                // Of what is done only the key may be left.
                true => held.leadership.term.hash(view),
                false => held.hash(view),
            }
        }
        self.earlier.hash(view);
        self.allowed.hash(view);
        self.cut.hash(view);
        self.withdrawn.hash(view);
        self.dead.hash(view);
        self.asked.hash(view);
    }
}

/// Mixes numbers into one: a state is a few hundred of them.
#[derive(Default)]
struct Mixer(u64);

impl Mixer {
    fn mix(&mut self, number: u64) {
        let product = u128::from(self.0 ^ number ^ 0x9e37_79b9_7f4a_7c15) * 0xda94_2042_e4dd_58b5;
        self.0 = (product as u64 ^ (product >> 64) as u64).rotate_left(23);
    }
}

struct View {
    hash: Mixer,
    now: Mark,
    long_past: Duration,
    revision: Revision,
    leases: Vec<LeaseId>,
    ids: Vec<u64>,
}

impl View {
    fn new(world: &World) -> View {
        View {
            hash: Mixer::default(),
            now: world.now,
            // Nothing in an elector reaches back further than a lease lives.
            long_past: world.ttl,
            revision: world.store.revision(),
            leases: Vec::new(),
            ids: Vec::new(),
        }
    }

    fn find(&self, lease: LeaseId) -> Option<usize> {
        self.leases.iter().position(|met| *met == lease)
    }

    fn lease(&mut self, lease: LeaseId) {
        let index = self.find(lease).unwrap_or_else(|| {
            self.leases.push(lease);
            self.leases.len() - 1
        });
        self.kind(b'l', index as u64);
    }

    fn kind(&mut self, kind: u8, number: u64) {
        self.hash.mix(u64::from(kind) << 56 ^ number);
    }
}

impl Hasher for View {
    fn finish(&self) -> u64 {
        self.hash.0
    }

    fn write(&mut self, bytes: &[u8]) {
        let id = bytes.strip_prefix(NAME.as_bytes()).and_then(|rest| rest.strip_prefix(b"/"));
        let id = id.and_then(|id| std::str::from_utf8(id).ok());
        match id.and_then(|id| LeaseId::from_str_radix(id, 16).ok()) {
            Some(lease) => self.lease(lease),
            None => bytes.chunks(8).for_each(|chunk| {
                self.hash.mix(chunk.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)));
            }),
        }
    }

    fn write_u64(&mut self, number: u64) {
        match number {
            0 => self.kind(b'0', 0),
            MARKS_END.. => self.kind(b'r', 0),
            BEGINNING.. => {
                let number = in_steps(number);
                let past = self.now.saturating_sub(number).min(self.long_past);
                self.kind(b'm', number.saturating_sub(self.now));
                self.kind(b'm', past);
            }
            SPANS_BEGIN.. => self.kind(b's', number),
            id => {
                let index = self.ids.iter().position(|met| *met == id).unwrap_or_else(|| {
                    self.ids.push(id);
                    self.ids.len() - 1
                });
                self.kind(b'i', index as u64);
            }
        }
    }

    fn write_i64(&mut self, number: i64) {
        match number.unsigned_abs() {
            0 => self.kind(b'0', 0),
            LEASES_BEGIN.. => self.lease(number),
            _ => self.kind(b'v', (self.revision - number) as u64),
        }
    }

    // The sizes and kinds of things, and small counts, are what they are.

    fn write_u8(&mut self, number: u8) {
        self.hash.mix(number.into());
    }

    fn write_u32(&mut self, number: u32) {
        self.hash.mix(number.min(MANY).into());
    }

    fn write_usize(&mut self, number: usize) {
        self.hash.mix(number as u64);
    }

    fn write_isize(&mut self, number: isize) {
        self.hash.mix(number as u64);
    }
}
