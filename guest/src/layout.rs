//! How an election is laid out in the store, and what its keys say.

use alloc::string::String;
use alloc::vec::Vec;

use crate::text::{decimal, hexadecimal};
use crate::types::{
    Contest, Entry, Epoch, Guard, LeaseId, Mutation, Order, Put, Revision, Selection,
};
use crate::wish::Wish;

/// The longest name, in bytes.
const LONGEST_NAME: usize = 1_024;

/// The longest value that a candidate may proclaim, in bytes: a range read makes
/// etcd read every value.
const LONGEST_VALUE: usize = 4_096;

/// The longest lease ids in a key, without their signs: in hexadecimal, and in decimal.
const LONGEST_HEXADECIMAL: usize = 16;
const LONGEST_DECIMAL: usize = 19;

/// How many keys of the other layout a candidate's first read asks for.
const OTHER_LAYOUT_LIMIT: u32 = 16;

/// How many keys show whether anybody is in line behind a leader.
pub const NEWEST: u32 = 64;

/// How many wishes a candidate that may have missed some asks for, the newest.
const MOST_WISHES: u32 = 1_000;

/// Finds a name, or a key, among many. Names themselves would be slow to compare,
/// because they are long and begin alike.
pub type NameHash = u64;

/// The hash of a name or a key. Different ones may share it.
pub fn hash(name: &[u8]) -> NameHash {
    let mut hash = name.len() as u64;
    for chunk in name.chunks(8) {
        let mut word = [0; 8];
        word.iter_mut().zip(chunk).for_each(|(to, from)| *to = *from);
        hash = (hash ^ u64::from_le_bytes(word)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        hash ^= hash >> 32;
    }
    hash
}

/// The name of the queue that a key would be in, if it looks like a queue's key.
pub fn queue_of(key: &[u8]) -> Option<&[u8]> {
    let slash = key.iter().rposition(|byte| *byte == b'/')?;
    let (name, id) = key.split_at_checked(slash)?;
    is_lease_id(id.get(1..)?).then_some(name)
}

/// An election's name and the meaning of its keys.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Layout {
    pub name: String,
    pub contest: Contest,
    /// Of the name.
    pub hash: NameHash,
}

impl Layout {
    /// Refuses, with a sentence, a name that no election can have.
    pub fn new(name: String, contest: Contest) -> Result<Layout, String> {
        if name.is_empty() {
            return Err("the election's name is empty: give it 1 to 1,024 bytes".into());
        }
        if name.len() > LONGEST_NAME {
            let length = decimal(name.len() as u64);
            let parts =
                ["the election's name has ", &length, " bytes: shorten it to 1,024 at most"];
            return Err(parts.concat());
        }
        if name.chars().any(char::is_control) {
            return Err("the election's name has a control character: leave it out".into());
        }
        let hash = hash(name.as_bytes());
        Ok(Layout { name, contest, hash })
    }

    /// The key that a candidate claims under this lease.
    pub fn key(&self, lease: LeaseId) -> Vec<u8> {
        match self.contest {
            // As Go's `%x`: lower case, no padding; and no sign, for ours are positive.
            Contest::Queue => [&*self.name, "/", &hexadecimal(lease.cast_unsigned())].concat(),
            Contest::Race => self.name.clone(),
        }
        .into_bytes()
    }

    /// Whether a key belongs to a candidate of this election. In a queue, a candidate's key ends in the
    /// id of the lease that it is attached to. Any other key is other data: elections may nest below the
    /// name, and people may put keys there that only look like a candidate's.
    pub fn counts(&self, entry: &Entry) -> bool {
        match self.contest {
            Contest::Queue => {
                self.id(&entry.key).is_some_and(|id| is_lease_id(id) && is_id_of(id, entry.lease))
            }
            Contest::Race => entry.key == self.name.as_bytes(),
        }
    }

    /// Whether a key has the form of a candidate's key. A deletion does not tell the lease.
    pub fn may_count(&self, key: &[u8]) -> bool {
        match self.contest {
            Contest::Queue => self.id(key).is_some_and(is_lease_id),
            Contest::Race => key == self.name.as_bytes(),
        }
    }

    /// Whether a key is under a lease and directly below the name, but is no candidate's by our rule. An
    /// unknown election client may have written it.
    pub fn looks_like_a_candidate(&self, entry: &Entry) -> bool {
        self.contest == Contest::Queue
            && entry.lease != 0
            && !self.counts(entry)
            && self.id(&entry.key).is_some_and(|id| !id.contains(&b'/'))
    }

    /// Whether a key belongs to an election of this name, in either layout.
    pub fn owns(&self, key: &[u8]) -> bool {
        key == self.name.as_bytes() || self.id(key).is_some_and(is_lease_id)
    }

    /// The key to watch to follow who leads, and whether it is a prefix.
    pub fn followed(&self) -> (Vec<u8>, bool) {
        match self.contest {
            Contest::Queue => (self.prefix(), true),
            Contest::Race => (self.name.clone().into_bytes(), false),
        }
    }

    /// Selects the oldest key. It is the leader's, unless it is other data.
    pub fn oldest(&self) -> Selection {
        let (key, prefix) = self.followed();
        Selection { prefix, limit: 1, ..point(key) }
    }

    /// Selects the newest keys up to a revision. For a candidate whose key was created then, these are
    /// its own, its predecessor's, and so on, unless other data lie there.
    pub fn newest_until(&self, created: Revision, limit: u32) -> Selection {
        Selection {
            prefix: true,
            created_before: Some(created.saturating_add(1)),
            order: Order::NewestFirst,
            limit,
            keys_only: true,
            ..point(self.prefix())
        }
    }

    /// Selects the newest keys. Somebody else's is among them if anybody is in line, unless there are
    /// as many of other data. None in a race, where nobody is seen in line.
    pub fn newest(&self) -> Option<Selection> {
        let newest = || Selection { created_before: None, ..self.newest_until(0, NEWEST) };
        (self.contest == Contest::Queue).then(newest)
    }

    /// Selects so many keys that are not below `from`.
    pub fn page(&self, from: Vec<u8>, limit: u32) -> Selection {
        let (key, prefix) = self.followed();
        let from = Some(from);
        Selection { prefix, from, order: Order::ByKey, limit, keys_only: true, ..point(key) }
    }

    /// Where the page after this key begins. It skips all keys that share this key's
    /// beginning, as far as no candidate's key can begin like that.
    pub fn after(&self, key: &[u8]) -> Vec<u8> {
        let mut next = key.to_vec();
        let prefix = self.prefix();
        let id = key.strip_prefix(prefix.as_slice()).unwrap_or_default();
        let sign = usize::from(id.first() == Some(&b'-'));
        let digits = |is_digit: fn(&u8) -> bool| {
            id.iter().skip(sign).take_while(|byte| is_digit(byte)).count()
        };
        let hexadecimal = digits(is_hexadecimal).min(LONGEST_HEXADECIMAL);
        let fits = sign + hexadecimal.max(digits(u8::is_ascii_digit).min(LONGEST_DECIMAL));
        if fits >= id.len() {
            next.push(0);
            return next;
        }
        next.truncate(prefix.len() + fits + 1);
        while next.pop_if(|last| *last == u8::MAX).is_some() {}
        if let Some(last) = next.last_mut() {
            *last += 1;
        }
        next
    }

    /// Selects some of the keys that the other layout would have under this name.
    pub fn other_layout(&self) -> Selection {
        match self.contest {
            Contest::Queue => point_of_key(self.name.clone().into_bytes()),
            Contest::Race => self.other().page(self.prefix(), OTHER_LAYOUT_LIMIT),
        }
    }

    /// Whether `other_layout` found a candidate of the other layout: one of its keys
    /// under a lease.
    pub fn is_mixed(&self, found: &[Entry]) -> bool {
        let other = self.other();
        found.iter().any(|entry| entry.lease != 0 && other.counts(entry))
    }

    /// The guard of a key's deletion. In a queue the lease does not matter: the key is
    /// ours alone, and a plain put may have detached it from the lease. In a race the
    /// key may be anybody's.
    pub fn deletion_guard(&self, key: Vec<u8>, created: Epoch, lease: LeaseId) -> Guard {
        let lease = match self.contest {
            Contest::Queue => None,
            Contest::Race => Some(lease),
        };
        Guard { key, epoch: created, lease }
    }

    /// The refusal of a write to this election's own key.
    pub fn refuse_write(&self, key: &[u8]) -> String {
        // It is the name, or the name and a lease id, so nothing needs escaping.
        let key = str::from_utf8(key).unwrap_or_default();
        let election = &self.name;
        ["the key `", key, "` belongs to the election `", election, "` itself: write to another"]
            .concat()
    }

    /// What follows the name and a slash in a key.
    fn id<'a>(&self, key: &'a [u8]) -> Option<&'a [u8]> {
        key.strip_prefix(self.name.as_bytes()).and_then(|rest| rest.strip_prefix(b"/"))
    }

    fn prefix(&self) -> Vec<u8> {
        [&*self.name, "/"].concat().into_bytes()
    }

    fn other(&self) -> Layout {
        let contest = match self.contest {
            Contest::Queue => Contest::Race,
            Contest::Race => Contest::Queue,
        };
        Layout { contest, ..self.clone() }
    }
}

/// The key that a guarded write changes. Refuses, with a sentence, a change that an
/// application may not make.
pub fn written_key(mutation: &Mutation) -> Result<&[u8], String> {
    match mutation {
        Mutation::Put(Put { key, .. }) | Mutation::Delete(key) if key.is_empty() => {
            Err("the key to write is empty: name one".into())
        }
        Mutation::Put(Put { key, .. }) | Mutation::Delete(key) => Ok(key),
        Mutation::Proclaim(_) => Err("a guarded write cannot proclaim: use `proclaim`".into()),
    }
}

/// Selects one key, without its value.
pub fn point_of_key(key: Vec<u8>) -> Selection {
    Selection { keys_only: true, ..point(key) }
}

/// Selects the wishes of an election that are in the store.
pub fn wishes_of(name: &str) -> Selection {
    let order = Order::NewestFirst;
    Selection { prefix: true, order, limit: MOST_WISHES, ..point(Wish::keys_of(name)) }
}

/// Selects one key.
pub fn point(key: Vec<u8>) -> Selection {
    Selection {
        key,
        prefix: false,
        from: None,
        created_before: None,
        order: Order::OldestFirst,
        limit: 0,
        keys_only: false,
    }
}

/// Refuses, with a sentence, a value that is too long to proclaim.
pub fn check_value(value: &[u8]) -> Result<(), String> {
    if value.len() > LONGEST_VALUE {
        let length = decimal(value.len() as u64);
        let parts = ["the candidate's value has ", &length, " bytes: shorten it to 4,096 at most"];
        return Err(parts.concat());
    }
    Ok(())
}

/// Whether this is what a lease's id looks like in a key.
fn is_lease_id(id: &[u8]) -> bool {
    let digits = id.strip_prefix(b"-").unwrap_or(id);
    let longest = match digits.iter().all(u8::is_ascii_digit) {
        true => LONGEST_DECIMAL,
        false => LONGEST_HEXADECIMAL,
    };
    (1..=longest).contains(&digits.len()) && digits.iter().all(is_hexadecimal)
}

/// Whether this id is the lease's. Go writes it in hexadecimal, Python's `etcd3aio` pads that to 16
/// digits, and Node.js's `etcd3` writes it in decimal.
fn is_id_of(id: &[u8], lease: LeaseId) -> bool {
    let (sign, digits) = id.split_at(usize::from(id.first() == Some(&b'-')));
    let is_in = |base: u64| {
        let value = |digit: &u8| {
            u64::from(if digit.is_ascii_digit() { digit - b'0' } else { digit - b'a' + 10 })
        };
        let add = |sum: u64, digit| sum.wrapping_mul(base).wrapping_add(value(digit));
        digits.iter().fold(0, add) == lease.unsigned_abs()
    };
    let is_whole = digits.first() != Some(&b'0');
    let is_padded = digits.len() == LONGEST_HEXADECIMAL;
    lease != 0
        && sign.is_empty() == (lease > 0)
        && (digits.len() <= LONGEST_HEXADECIMAL && (is_whole || is_padded) && is_in(16)
            || is_whole && digits.iter().all(u8::is_ascii_digit) && is_in(10))
}

fn is_hexadecimal(byte: &u8) -> bool {
    matches!(byte, b'0'..=b'9' | b'a'..=b'f')
}

#[cfg(test)]
mod tests {
    use super::Layout;
    use crate::types::Contest;

    #[test]
    fn a_key_bears_its_own_lease() {
        for (id, lease, is_id_of) in [
            ("1f", 0x1f, true),
            ("31", 0x1f, true),
            ("000000000000001f", 0x1f, true),
            ("01f", 0x1f, false),
            ("031", 0x1f, false),
            ("-1f", 0x1f, false),
            ("-1f", -0x1f, true),
            ("-31", -0x1f, true),
            ("1f", -0x1f, false),
            ("1f", 0x1e, false),
            ("1f", 0, false),
            ("0", 0, false),
            ("7fffffffffffffff", i64::MAX, true),
            ("9223372036854775807", i64::MAX, true),
            ("-8000000000000000", i64::MIN, true),
            ("-9223372036854775808", i64::MIN, true),
            ("10", 0x10, true),
            ("10", 10, true),
        ] {
            assert_eq!(super::is_id_of(id.as_bytes(), lease), is_id_of, "{id} and {lease:x}");
        }
    }

    #[test]
    fn a_page_ends_behind_what_cannot_be_a_candidates() {
        let layout = Layout::new("jobs".into(), Contest::Queue).unwrap();
        for (key, after) in [
            ("jobs/1f", "jobs/1f\0"),
            ("jobs/-1f", "jobs/-1f\0"),
            ("jobs/", "jobs/\0"),
            ("jobs/data/1", "jobs/dau"),
            ("jobs/zz", "jobs/{"),
            ("jobs/1f/x", "jobs/1f0"),
            ("jobs/0123456789abcdef", "jobs/0123456789abcdef\0"),
            ("jobs/0123456789abcdef0123", "jobs/0123456789abcdef1"),
            ("jobs/1234567890123456789", "jobs/1234567890123456789\0"),
            ("jobs/12345678901234567890", "jobs/12345678901234567891"),
            ("jobs/-a-", "jobs/-a."),
        ] {
            assert_eq!(layout.after(key.as_bytes()), after.as_bytes(), "{key}");
        }
        assert_eq!(layout.after(b"jobs/1\xff\xff"), b"jobs/2");
        assert_eq!(layout.after(b"jobs/\xff"), b"jobs0");
    }
}
