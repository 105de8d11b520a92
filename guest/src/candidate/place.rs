//! A candidate's place: whether its key is intact, and who is in front of it.

use alloc::vec;
use alloc::vec::Vec;

use super::common::OwnKey;
use crate::layout::{Layout, point_of_key};
use crate::search::{Found, Search};
use crate::types::{Contest, Entry, Selection};

/// What a read has shown of a candidate's place.
pub enum Place {
    First,
    /// Behind this candidate. The keys in front of that one follow, the newest first: two at most, and
    /// fewer only if there are no more.
    Behind(Entry, Vec<Entry>),
    /// Our key is gone, or not ours any more. What is at its place now, as far as it was read.
    Displaced(Option<Entry>),
    /// The search for who is in front has to read again.
    Unfinished,
}

/// What to read. In a queue one read usually shows both: the newest keys up to our own.
pub fn selections(layout: &Layout, own: &OwnKey, search: &Search) -> Vec<Selection> {
    let in_front = || search.selection(layout, Some(own.created));
    let at_own = || point_of_key(own.key.clone());
    match (layout.contest, search) {
        (Contest::Race, _) => vec![at_own()],
        (Contest::Queue, Search::First) => vec![in_front()],
        (Contest::Queue, _) => vec![in_front(), at_own()],
    }
}

impl Place {
    /// Takes what that read found. None if it does not fit.
    pub fn take(
        layout: &Layout,
        own: &OwnKey,
        search: &mut Search,
        found: &mut impl Iterator<Item = Vec<Entry>>,
    ) -> Option<Place> {
        let (at_own, in_front) = match (layout.contest, &*search) {
            (Contest::Race, _) => (found.next()?.into_iter().next(), Vec::new()),
            (Contest::Queue, Search::First) => {
                let mut newest = found.next()?;
                // Keys below other names that were created together with ours may hide it.
                if newest.len() > 1 && newest.iter().all(|entry| is_other(own, entry)) {
                    search.turn_pages(layout);
                    return Some(Place::Unfinished);
                }
                let at_own = newest.iter().position(|entry| entry.key == own.key);
                (at_own.map(|index| newest.remove(index)), newest)
            }
            (Contest::Queue, _) => {
                let page = found.next()?;
                (found.next()?.into_iter().next(), page)
            }
        };
        if !own.is_intact(at_own.as_ref()) {
            return Some(Place::Displaced(at_own));
        }
        Some(match search.take(layout, Some(own.created), in_front) {
            Found::One(entry, in_front) => Place::Behind(entry, in_front),
            Found::Nobody => Place::First,
            Found::Unfinished => Place::Unfinished,
        })
    }
}

/// Whether a key is another one of our key's create revision.
fn is_other(own: &OwnKey, entry: &Entry) -> bool {
    entry.created == own.created && entry.key != own.key
}
