//! What an operator wishes of an election: that a certain candidate leads next.
//!
//! A program for operators writes a wish to a key that no candidate can have, under a lease of its
//! own. All candidates of one lease share one watch of such keys. They take a wish at the moment at
//! which they hear of it, or not at all: nothing waits for one, and nothing of it is kept. So that
//! program repeats a wish that seems not to be heard.

use alloc::vec::Vec;

use crate::types::{Entry, Epoch, Revision};

/// What the keys of all wishes begin with.
const KEYS: &[u8] = b"incumbent-wishes/";
/// What follows the election's name. No queue's key ends like that.
const TRANSFER: &[u8] = b"/transfer";
/// The last word of a wish whose time has come.
const NOW: &[u8] = b"now";

/// A wish that a candidate in line leads next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wish<'a> {
    /// The election.
    pub name: &'a [u8],
    /// The term after which that candidate should lead.
    pub epoch: Epoch,
    /// The create revision of that candidate's key.
    pub target: Revision,
    /// The term should end now. Before, only the candidates in front of the target make room.
    pub now: bool,
}

impl Wish<'_> {
    /// The prefix to watch.
    pub fn keys() -> Vec<u8> {
        KEYS.into()
    }

    /// The wish at a key; none if it is other data.
    pub fn of(entry: &Entry) -> Option<Wish<'_>> {
        let name = entry.key.strip_prefix(KEYS)?.strip_suffix(TRANSFER)?;
        let mut words = entry.value.split(|byte| *byte == b' ');
        let (epoch, target) = (number(words.next()?)?, number(words.next()?)?);
        Some(Wish { name, epoch, target, now: words.next() == Some(NOW) })
    }

    /// Whether a key that was created then stands in front of the target.
    pub fn is_in_front(&self, created: Revision) -> bool {
        self.epoch < created && created < self.target
    }
}

/// A revision in decimal digits; none if it is nothing of the kind. `parse` would add a kilobyte to
/// the component.
fn number(digits: &[u8]) -> Option<i64> {
    let is_number = digits.len() <= 18 && digits.iter().all(u8::is_ascii_digit);
    let add = |number: i64, digit: &u8| number * 10 + i64::from(digit - b'0');
    is_number.then(|| digits.iter().fold(0, add))
}
