//! Judges terms of leadership: no two of one election overlap, and epochs rise.
//!
//! The demonstration, the soak and the simulation share this rule. It is a crate of its own because
//! the demonstration should not compile the simulation, nor the simulation the library.

/// A term of leadership.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Term<T> {
    /// Whatever tells this term from others.
    pub id: T,
    /// Its epoch.
    pub epoch: i64,
    /// When it began, in nanoseconds of the clock that all terms share.
    pub from: u64,
    /// When its leader stopped regarding itself as leader, or will.
    pub until: u64,
}

/// Two terms that must not both be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault<T> {
    /// The later one began while the earlier one still stood.
    Overlap {
        /// Of all earlier terms, the one that ended last.
        earlier: Term<T>,
        /// The term that began too soon.
        later: Term<T>,
    },
    /// The later one has no higher epoch.
    Epoch {
        /// Of all earlier terms, the one with the highest epoch.
        earlier: Term<T>,
        /// The term whose epoch is too low.
        later: Term<T>,
    },
}

impl<T> Term<T> {
    /// Whether it began before an earlier one had ended.
    pub fn overlaps(&self, earlier: &Self) -> bool {
        self.from < earlier.until
    }

    /// Whether its epoch is above that of an earlier one.
    pub fn rises_above(&self, earlier: &Self) -> bool {
        self.epoch > earlier.epoch
    }
}

/// Judges all terms of one election, given in any order.
pub fn judge<T: Copy>(terms: impl IntoIterator<Item = Term<T>>) -> Vec<Fault<T>> {
    let mut terms: Vec<_> = terms.into_iter().collect();
    terms.sort_by_key(|term| term.from);
    let mut terms = terms.into_iter();
    let Some(first) = terms.next() else { return Vec::new() };
    let (mut longest, mut newest) = (first, first);
    let mut faults = Vec::new();
    for later in terms {
        if later.overlaps(&longest) {
            faults.push(Fault::Overlap { earlier: longest, later });
        }
        if !later.rises_above(&newest) {
            faults.push(Fault::Epoch { earlier: newest, later });
        }
        if later.until > longest.until {
            longest = later;
        }
        if later.rises_above(&newest) {
            newest = later;
        }
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Terms as (epoch, from, until), and the faults as pairs of their numbers.
    #[track_caller]
    fn finds(terms: &[(i64, u64, u64)], overlaps: &[(usize, usize)], epochs: &[(usize, usize)]) {
        let term = |(id, (epoch, from, until))| Term { id, epoch, from, until };
        let (mut found_overlaps, mut found_epochs) = (Vec::new(), Vec::new());
        // The judge sorts them.
        for fault in judge(terms.iter().copied().enumerate().map(term).rev()) {
            match fault {
                Fault::Overlap { earlier, later } => found_overlaps.push((earlier.id, later.id)),
                Fault::Epoch { earlier, later } => found_epochs.push((earlier.id, later.id)),
            }
        }
        assert_eq!((&found_overlaps[..], &found_epochs[..]), (overlaps, epochs), "{terms:?}");
    }

    #[test]
    fn terms_may_follow_each_other_at_once() {
        finds(&[], &[], &[]);
        finds(&[(1, 0, 5), (2, 5, 9), (7, 9, 12)], &[], &[]);
    }

    #[test]
    fn an_overlap_is_found_however_short_and_beyond_the_neighbour() {
        finds(&[(1, 0, 5), (2, 4, 9)], &[(0, 1)], &[]);
        finds(&[(1, 0, 9), (2, 2, 3), (3, 8, 20), (4, 20, 21)], &[(0, 1), (0, 2)], &[]);
    }

    #[test]
    fn an_epoch_is_above_all_before() {
        finds(&[(1, 0, 1), (1, 2, 3)], &[], &[(0, 1)]);
        finds(&[(5, 0, 1), (3, 2, 3), (4, 4, 5), (6, 6, 7)], &[], &[(0, 1), (0, 2)]);
    }
}
