//! What is wished of an election: that a certain candidate leads next.
//!
//! A wish is at a key that no candidate can have, under a lease. A program for operators writes one,
//! and a candidate with a priority writes one for itself. All candidates of one lease share one
//! watch of such keys. They take a wish at the moment at which they hear of it, or find it in a read: the
//! one that shows them first in line, or the regular check. Nothing waits for a wish, and nothing of it is
//! kept.

use alloc::vec::Vec;

use crate::text::{decimal, hexadecimal};
use crate::types::{Entry, Epoch, LeaseId, Revision};

/// What the keys of all wishes begin with.
const KEYS: &str = "incumbent-wishes/";
/// What follows the election's name and a slash in the key of an operator's wish. No queue's key ends
/// like that.
const TRANSFER: &[u8] = b"transfer";
/// What follows them in the key of a candidate's own wish, before its lease's id. No queue's key ends
/// like that, either.
const OWN: &str = "priority-";
/// The word of a wish whose time has come.
const NOW: &[u8] = b"now";

/// A wish that a candidate in line leads next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Wish<'a> {
    /// The election.
    pub name: &'a [u8],
    /// The term after which that candidate should lead; 0 for any.
    pub epoch: Epoch,
    /// The create revision of that candidate's key.
    pub target: Revision,
    /// That candidate's priority: only those with a lower one do as is wished. All do if there is
    /// none.
    pub priority: Option<i64>,
    /// The term should end now. Before, only the candidates in front of the target make room.
    pub now: bool,
}

impl Wish<'_> {
    /// The prefix to watch.
    pub fn keys() -> Vec<u8> {
        KEYS.into()
    }

    /// The prefix of all wishes of one election, and perhaps of others.
    pub fn keys_of(name: &str) -> Vec<u8> {
        [KEYS, name, "/"].concat().into()
    }

    /// The key of a candidate's own wish.
    pub fn key(name: &str, lease: LeaseId) -> Vec<u8> {
        [KEYS, name, "/", OWN, &hexadecimal(lease.cast_unsigned())].concat().into()
    }

    /// The wish at a key; none if it is other data. Without a lease it would be wished for ever.
    pub fn of(entry: &Entry) -> Option<Wish<'_>> {
        if entry.lease == 0 {
            return None;
        }
        let path = entry.key.strip_prefix(KEYS.as_bytes())?;
        let (name, kind) = path.split_at(path.iter().rposition(|byte| *byte == b'/')?);
        let kind = kind.get(1..)?;
        if kind != TRANSFER && !kind.starts_with(OWN.as_bytes()) {
            return None;
        }
        let mut words = entry.value.split(|byte| *byte == b' ');
        let mut next = || words.next().unwrap_or_default();
        let (epoch, target) = (number(next())?, number(next())?);
        let mut word = next();
        let now = word == NOW;
        if now {
            word = next();
        }
        let priority = if word.is_empty() { None } else { Some(number(word)?) };
        Some(Wish { name, epoch, target, priority, now })
    }

    /// The value of the wish, as it is in the store.
    pub fn text(&self) -> Vec<u8> {
        let now = if self.now { " now" } else { "" };
        let priority = self.priority.unwrap_or_default();
        let sign = if priority < 0 { " -" } else { " " };
        let digits = |number: i64| decimal(number.unsigned_abs());
        let (epoch, target) = (digits(self.epoch), digits(self.target));
        [&epoch, " ", &target, now, sign, &digits(priority)].concat().into()
    }

    /// The same wish without the election's name.
    pub fn nameless(&self) -> Wish<'static> {
        let Wish { epoch, target, priority, now, .. } = *self;
        Wish { name: &[], epoch, target, priority, now }
    }

    /// Whether a candidate in line whose key was created then, and which has this priority, should make
    /// room. The writer of a `now` wish may have taken the candidate of `epoch` for the leader before it
    /// led: that one makes room as well.
    pub fn moves(&self, created: Revision, priority: i64) -> bool {
        let is_after = self.epoch < created || self.now && self.epoch == created;
        is_after && created < self.target && self.outranks(priority)
    }

    /// Whether a candidate with this priority does as is wished.
    pub fn outranks(&self, priority: i64) -> bool {
        self.priority.is_none_or(|it| priority < it)
    }
}

/// A number in decimal digits, perhaps negative; none if it is nothing of the kind. `parse` would
/// add a kilobyte to the component.
fn number(text: &[u8]) -> Option<i64> {
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    let is_number = (1..=18).contains(&digits.len()) && digits.iter().all(u8::is_ascii_digit);
    let add = |number: i64, digit: &u8| number * 10 + i64::from(digit - b'0');
    let number = is_number.then(|| digits.iter().fold(0, add))?;
    Some(if digits.len() < text.len() { -number } else { number })
}
