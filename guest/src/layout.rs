//! How an election is laid out in the store, and what its keys say.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use crate::types::{
    Contest, Entry, Epoch, Guard, LeaseId, Mutation, Observation, Order, Revision, Selection,
};

/// The longest name, in bytes.
const LONGEST_NAME: usize = 1_024;

/// The longest value that a candidate may proclaim, in bytes: a range read makes
/// etcd read every value.
const LONGEST_VALUE: usize = 4_096;

/// From here on a look asks for all keys.
const WIDEST: u32 = 4_096;

/// How many keys of the other layout the joining read looks at.
const OTHER_LAYOUT_LIMIT: u32 = 16;

/// An election's name and the meaning of its keys.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Layout {
    name: String,
    contest: Contest,
}

impl Layout {
    /// Refuses, with a sentence, a name that no election can have.
    pub fn new(name: String, contest: Contest) -> Result<Layout, String> {
        if name.is_empty() {
            return Err("the election's name is empty: give it 1 to 1,024 bytes".into());
        }
        if name.len() > LONGEST_NAME {
            return Err(format!(
                "the election's name has {} bytes: shorten it to 1,024 at most",
                name.len()
            ));
        }
        if name.chars().any(char::is_control) {
            return Err("the election's name has a control character: leave it out".into());
        }
        Ok(Layout { name, contest })
    }

    pub fn of(observation: Observation) -> Result<Layout, String> {
        Layout::new(observation.name, observation.contest)
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn contest(&self) -> Contest {
        self.contest
    }

    /// The key that a candidate has, or fights for, under this lease.
    pub fn key(&self, lease: LeaseId) -> Vec<u8> {
        match self.contest {
            // As Go's `%x`: lower case, no padding; and no sign, for ours are positive.
            Contest::Queue => format!("{}/{:x}", self.name, lease),
            Contest::Race => self.name.clone(),
        }
        .into_bytes()
    }

    /// Whether a key belongs to a candidate of this election. Other elections may
    /// nest below its name.
    pub fn counts(&self, key: &[u8]) -> bool {
        match self.contest {
            Contest::Queue => is_queue_key(&self.name, key),
            Contest::Race => key == self.name.as_bytes(),
        }
    }

    /// Whether a key belongs to an election of this name, in either layout.
    pub fn owns(&self, key: &[u8]) -> bool {
        key == self.name.as_bytes() || is_queue_key(&self.name, key)
    }

    /// What to watch to follow who leads: a key, and whether as a prefix.
    pub fn followed(&self) -> (Vec<u8>, bool) {
        match self.contest {
            Contest::Queue => (self.prefix(), true),
            Contest::Race => (self.name.clone().into_bytes(), false),
        }
    }

    /// Selects the leader, or with limit 0 all candidates, the leader first.
    pub fn leader_first(&self, limit: u32) -> Selection {
        let (key, prefix) = self.followed();
        Selection { key, prefix, created_before: None, order: Order::OldestFirst, limit }
    }

    /// Selects the candidates in front of one, the nearest first; none in a race.
    pub fn in_front(&self, created: Revision, limit: u32) -> Option<Selection> {
        match self.contest {
            Contest::Queue => Some(Selection {
                key: self.prefix(),
                prefix: true,
                created_before: Some(created),
                order: Order::NewestFirst,
                limit,
            }),
            Contest::Race => None,
        }
    }

    /// Selects what the other layout would have under this name.
    pub fn other_layout(&self) -> Selection {
        self.other().leader_first(OTHER_LAYOUT_LIMIT)
    }

    /// Whether what `other_layout` found is a candidate of the other layout: a
    /// key of the name under a lease.
    pub fn is_mixed(&self, found: &[Entry]) -> bool {
        let other = self.other();
        found.iter().any(|entry| entry.lease != 0 && other.counts(&entry.key))
    }

    /// The guard of a write in a term.
    pub fn guard(&self, key: Vec<u8>, epoch: Epoch, lease: LeaseId) -> Guard {
        Guard { key, epoch, lease: Some(lease) }
    }

    /// The guard of a key's removal. In a queue the name is ours alone, and a
    /// plain put may have taken the lease off; in a race it is anyone's.
    pub fn removal_guard(&self, key: Vec<u8>, created: Epoch, lease: LeaseId) -> Guard {
        let lease = match self.contest {
            Contest::Queue => None,
            Contest::Race => Some(lease),
        };
        Guard { key, epoch: created, lease }
    }

    /// Refuses, with a sentence, a guarded change that the application has no
    /// business to make.
    pub fn check_mutation(&self, mutation: &Mutation) -> Result<(), String> {
        let key = match mutation {
            Mutation::Put(put) => &put.key,
            Mutation::Delete(key) => key,
            Mutation::Proclaim(_) => {
                return Err("a guarded write cannot proclaim: use `proclaim`".into());
            }
        };
        if key.is_empty() {
            return Err("the key to write is empty: name one".into());
        }
        if self.owns(key) {
            return Err(format!(
                "the key `{}` belongs to the election `{}` itself: write to another",
                String::from_utf8_lossy(key).escape_debug(),
                self.name
            ));
        }
        Ok(())
    }

    fn prefix(&self) -> Vec<u8> {
        format!("{}/", self.name).into_bytes()
    }

    fn other(&self) -> Layout {
        let contest = match self.contest {
            Contest::Queue => Contest::Race,
            Contest::Race => Contest::Queue,
        };
        Layout { name: self.name.clone(), contest }
    }
}

/// How many keys the next look asks for, where one with this limit found none that
/// counts: 8, and eight times more each time, until it is all of them.
pub fn wider(limit: u32) -> u32 {
    let wider = limit.saturating_mul(8);
    if wider > WIDEST { 0 } else { wider }
}

/// Selects one key.
pub fn point(key: Vec<u8>) -> Selection {
    Selection { key, prefix: false, created_before: None, order: Order::OldestFirst, limit: 0 }
}

/// Refuses, with a sentence, a value that is too long to proclaim.
pub fn check_value(value: &[u8]) -> Result<(), String> {
    if value.len() > LONGEST_VALUE {
        return Err(format!(
            "the candidate's value has {} bytes: shorten it to 4,096 at most",
            value.len()
        ));
    }
    Ok(())
}

/// `NAME/` and a lease id as Go writes it, perhaps with a sign.
fn is_queue_key(name: &str, key: &[u8]) -> bool {
    let Some(id) = key.strip_prefix(name.as_bytes()).and_then(|rest| rest.strip_prefix(b"/"))
    else {
        return false;
    };
    let digits = id.strip_prefix(b"-").unwrap_or(id);
    (1..=16).contains(&digits.len())
        && digits.iter().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'))
}
