//! Which leases are over.
//!
//! Nobody trusts the database's clock: it can be set, and that of a standby is another one. A lease that
//! was renewed on this machine is judged by this machine's clock. Any other one is over if its renewal
//! is still the last one when its time to live has passed since this process first saw it.
//!
//! A newcomer has seen nothing. It need not wait if the wall clocks of both machines and the database's
//! clock say alike that the time is over, and were together at the renewal as they are now. One of them
//! that was set shows. Only where the newcomer and the database live on one machine, whose clock is set
//! while the holder is on another one and cannot renew, two of three are wrong alike.

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use super::request::{Recent, Renewal};
use crate::store::time::Time;
use crate::types::Mark;

/// How much two wall clocks, or one and the database's, may be apart.
const APART: u64 = 1_000_000_000;

/// How many leases end in one transaction at most: each takes a lock in the server's memory.
const TOGETHER: usize = 256;
/// How long after a lease could not be ended it is tried again: somebody has a transaction with its fence
/// open that may not be ended.
const AGAIN: u64 = 5_000_000_000;

/// The leases of the store, as far as this process knows.
#[derive(Debug, Default)]
pub(super) struct Sightings {
    leases: BTreeMap<i64, Sighting>,
    /// The number of the last renewal that was seen.
    heard: i64,
}

#[derive(Debug)]
struct Sighting {
    number: i64,
    over: Mark,
    /// When the database was asked to end it.
    asked: Option<Mark>,
}

impl Sighting {
    /// When to ask that it ends.
    fn ask_at(&self) -> Mark {
        self.asked.map_or(self.over, |asked| asked.saturating_add(AGAIN))
    }
}

/// The clocks of this process.
#[derive(Debug)]
pub(super) struct Moment<'a> {
    pub(super) boot: &'a str,
    pub(super) mark: Mark,
    pub(super) wall: i64,
}

impl<'a> Moment<'a> {
    pub(super) fn now(time: &'a Time) -> Self {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let wall = wall.as_nanos().try_into().unwrap_or(i64::MAX);
        Self { boot: &time.boot, mark: time.now().unsigned_abs(), wall }
    }
}

impl Sightings {
    /// The number of the last renewal that was seen, and the leases that it does not tell of: those
    /// that should have ended. A renewal can be committed after one with a higher number was seen.
    pub(super) fn question(&self) -> (i64, Vec<i64>) {
        let doubted = self.leases.iter().filter(|(_, sighting)| sighting.asked.is_some());
        (self.heard, doubted.map(|(lease, _)| *lease).collect())
    }

    /// Takes the answer to a question about the doubted leases, which was asked at this moment or
    /// later.
    pub(super) fn take(&mut self, recent: &Recent, doubted: &[i64], here: &Moment<'_>) {
        let gone = |lease: &i64| recent.leases.iter().all(|renewal| renewal.lease != *lease);
        for lease in doubted.iter().filter(|lease| gone(lease)) {
            self.leases.remove(lease);
        }
        for renewal in &recent.leases {
            self.heard = self.heard.max(renewal.number);
            self.renewed(renewal.lease, renewal.number, over(renewal, recent.now, here));
        }
    }

    /// This process has renewed a lease itself.
    pub(super) fn renewed(&mut self, lease: i64, number: i64, over: Mark) {
        if self.leases.get(&lease).is_none_or(|known| known.number < number) {
            self.leases.insert(lease, Sighting { number, over, asked: None });
        }
    }

    /// The leases that are over, in the order in which they ended, each with its last renewal, for
    /// the database to end them.
    pub(super) fn ask_to_end(&mut self, now: Mark) -> Vec<(i64, i64)> {
        let over = self.leases.iter_mut().filter(|(_, it)| it.ask_at() <= now);
        let mut over: Vec<_> = over.collect();
        over.sort_by_key(|(lease, sighting)| (sighting.over, **lease));
        over.truncate(TOGETHER);
        let ask = |(lease, sighting): (&i64, &mut Sighting)| {
            sighting.asked = Some(now);
            (*lease, sighting.number)
        };
        over.into_iter().map(ask).collect()
    }

    /// The database may not have heard.
    pub(super) fn ask_again(&mut self) {
        for sighting in self.leases.values_mut() {
            sighting.asked = None;
        }
    }

    /// When to ask for the next one.
    pub(super) fn next(&self) -> Option<Mark> {
        self.leases.values().map(Sighting::ask_at).min()
    }
}

/// When a lease is over, unless it is renewed.
fn over(renewal: &Renewal, database: i64, here: &Moment<'_>) -> Mark {
    let ttl = renewal.ttl;
    if renewal.boot == here.boot {
        return renewal.mark.saturating_add(ttl);
    }
    let wall = here.wall.saturating_sub(renewal.wall);
    let at = database.saturating_sub(renewal.at);
    let longest = i64::try_from(ttl.saturating_add(APART)).unwrap_or(i64::MAX);
    // Without a boot id it is of another era, and has no times.
    if !renewal.boot.is_empty() && wall >= longest && at >= longest && wall.abs_diff(at) <= APART {
        return here.mark;
    }
    here.mark.saturating_add(ttl)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;
    const HERE: Moment<'static> = Moment { boot: "here", mark: 1000 * SECOND, wall: 0 };

    /// Renewed so long ago by each clock, in seconds.
    fn renewal(boot: &str, mark: u64, wall: i64, at: i64) -> Renewal {
        let ago = |seconds: i64| -seconds * SECOND as i64;
        let mark = HERE.mark - mark * SECOND;
        let (wall, at) = (ago(wall), ago(at));
        Renewal { lease: 7, ttl: 10 * SECOND, number: 1, boot: boot.into(), mark, wall, at }
    }

    /// In how many seconds it is over.
    fn left(renewal: &Renewal) -> i64 {
        (over(renewal, 0, &HERE) as i64 - HERE.mark as i64) / SECOND as i64
    }

    #[test]
    fn only_the_clock_of_its_own_machine_is_trusted_alone() {
        assert_eq!(left(&renewal("here", 4, 0, 0)), 6);
        // Whatever the other clocks say.
        assert_eq!(left(&renewal("here", 4, 9999, -9999)), 6);
        assert_eq!(left(&renewal("here", 14, 0, 0)), -4);
        assert_eq!(left(&renewal("there", 900, 5, 5)), 10);
        assert_eq!(left(&renewal("there", 900, 10, 10)), 10);
        // One of them was set.
        assert_eq!(left(&renewal("there", 900, 3600, 5)), 10);
        assert_eq!(left(&renewal("there", 900, 5, 3600)), 10);
        assert_eq!(left(&renewal("there", 900, 3600, 20)), 10);
        // Both say alike that it is over.
        assert_eq!(left(&renewal("there", 0, 12, 12)), 0);
        // It is of an era before, whose clock was another one.
        assert_eq!(left(&renewal("", 0, 12, 12)), 10);
    }

    #[test]
    fn a_lease_is_ended_by_its_last_renewal() {
        let mut sightings = Sightings::default();
        let recent = |leases| Recent { revision: 1, compacted: 0, changes: vec![], now: 0, leases };
        let at = |mark, number| Renewal { number, ..renewal("here", mark, 0, 0) };
        sightings.take(&recent(vec![at(5, 3)]), &[], &HERE);
        assert_eq!(sightings.question(), (3, vec![]));
        assert_eq!(sightings.ask_to_end(HERE.mark), []);
        assert_eq!(sightings.ask_to_end(HERE.mark + 6 * SECOND), [(7, 3)]);
        // Asked once, and again if it could not be ended, or the database did not hear.
        assert_eq!(sightings.ask_to_end(HERE.mark + 11 * SECOND - 1), []);
        assert_eq!(sightings.next(), Some(HERE.mark + 11 * SECOND));
        assert_eq!(sightings.ask_to_end(HERE.mark + 11 * SECOND), [(7, 3)]);
        sightings.ask_again();
        assert_eq!(sightings.ask_to_end(HERE.mark + 6 * SECOND), [(7, 3)]);
        // A renewal that was committed late, with a lower number than another one's.
        let (heard, doubted) = sightings.question();
        assert_eq!((heard, &doubted[..]), (3, &[7][..]));
        sightings.take(&recent(vec![at(1, 4)]), &doubted, &HERE);
        assert_eq!(sightings.next(), Some(HERE.mark + 9 * SECOND));
        assert_eq!(sightings.ask_to_end(HERE.mark + 10 * SECOND), [(7, 4)]);
        sightings.take(&recent(vec![]), &[7], &HERE);
        assert!(sightings.leases.is_empty());
    }
}
