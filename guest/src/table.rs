//! A map in the order of its keys, quick with a few rows and with ten thousand.
//!
//! The sorted rows are cut into short runs, and a change moves the rows of one run only.
//! The standard library's trees do the same, but make the component 60 KB larger.

use alloc::vec::Vec;

/// How many rows a run has at most.
const LONGEST: usize = 64;

/// A map in the order of its keys.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Table<K, V> {
    /// No run is empty.
    runs: Vec<Vec<(K, V)>>,
    len: usize,
}

impl<K, V> Default for Table<K, V> {
    fn default() -> Table<K, V> {
        Table { runs: Vec::new(), len: 0 }
    }
}

impl<K: Ord + Copy, V> Table<K, V> {
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn contains_key(&self, key: &K) -> bool {
        self.get(key).is_some()
    }

    pub fn get(&self, key: &K) -> Option<&V> {
        let run = self.runs.get(self.run_of(key)?)?;
        let row = run.binary_search_by(|(row, _)| row.cmp(key)).ok()?;
        run.get(row).map(|(_, value)| value)
    }

    pub fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        let index = self.run_of(key)?;
        let run = self.runs.get_mut(index)?;
        let row = run.binary_search_by(|(row, _)| row.cmp(key)).ok()?;
        run.get_mut(row).map(|(_, value)| value)
    }

    /// Sets the value of a key, whether or not it had one.
    pub fn insert(&mut self, key: K, value: V) {
        let index = self.run_of(&key).unwrap_or(0);
        let last = index + 1 >= self.runs.len();
        let Some(run) = self.runs.get_mut(index) else {
            self.runs.push([(key, value)].into());
            self.len = 1;
            return;
        };
        let row = match run.binary_search_by(|(row, _)| row.cmp(&key)) {
            Ok(row) => {
                if let Some((_, old)) = run.get_mut(row) {
                    *old = value;
                }
                return;
            }
            Err(row) => row,
        };
        self.len += 1;
        if run.len() < LONGEST {
            run.insert(row, (key, value));
            return;
        }
        // Most new keys come at the end, and begin a new run there.
        let cut = if last && row == LONGEST { LONGEST } else { LONGEST / 2 };
        let mut second = run.split_off(cut);
        if row < cut {
            run.insert(row, (key, value));
        } else {
            second.insert(row - cut, (key, value));
        }
        self.runs.insert(index + 1, second);
    }

    pub fn remove(&mut self, key: &K) -> Option<V> {
        let index = self.run_of(key)?;
        let run = self.runs.get_mut(index)?;
        let row = run.binary_search_by(|(row, _)| row.cmp(key)).ok()?;
        let (_, value) = run.remove(row);
        if run.is_empty() {
            self.runs.remove(index);
        }
        self.len -= 1;
        Some(value)
    }

    /// The row with the lowest key.
    pub fn first(&self) -> Option<(K, &V)> {
        self.iter().next()
    }

    /// The row with the lowest key that is not below this one.
    pub fn next(&self, from: &K) -> Option<(K, &V)> {
        let index = self.run_of(from)?;
        let run = self.runs.get(index)?;
        let row = run.partition_point(|(row, _)| row < from);
        let found = run.get(row).or_else(|| self.runs.get(index + 1)?.first());
        found.map(|(key, value)| (*key, value))
    }

    /// The lowest key that is not below this one and whose value is wanted.
    pub fn find(&self, from: K, wanted: impl Fn(&V) -> bool) -> Option<K> {
        let runs = self.runs.get(self.run_of(&from)?..)?;
        for (key, value) in runs.iter().flatten() {
            if *key >= from && wanted(value) {
                return Some(*key);
            }
        }
        None
    }

    pub fn iter(&self) -> impl Iterator<Item = (K, &V)> {
        self.runs.iter().flatten().map(|(key, value)| (*key, value))
    }

    pub fn into_iter(self) -> impl Iterator<Item = (K, V)> {
        self.runs.into_iter().flatten()
    }

    /// The run where a key is, or would be; none if there is no run.
    fn run_of(&self, key: &K) -> Option<usize> {
        // The newest keys are the highest ones, and are looked up most.
        let begins_by = |run: &Vec<(K, V)>| run.first().is_some_and(|(first, _)| first <= key);
        if self.runs.last().is_some_and(begins_by) {
            return Some(self.runs.len() - 1);
        }
        match self.runs.is_empty() {
            true => None,
            false => Some(self.runs.partition_point(begins_by).saturating_sub(1)),
        }
    }
}

/// The numbers that share a hash, in their order.
pub fn with_hash(table: &Table<(u64, u64), ()>, hash: u64) -> impl Iterator<Item = u64> {
    let mut from = Some((hash, 0));
    core::iter::from_fn(move || {
        let ((of, id), ()) = table.next(&from?)?;
        from = Some((hash, id.checked_add(1)?));
        (of == hash).then_some(id)
    })
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeMap;

    use super::Table;

    #[test]
    fn it_is_a_map_in_order() {
        let mut table = Table::default();
        let mut map = BTreeMap::new();
        let mut seed = 1_u64;
        for round in 0..20_000_u64 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            // It grows to some thousand rows, and then stays there or shrinks.
            let key = if round.is_multiple_of(3) { round } else { (seed >> 33) % 5_000 };
            if round < 8_000 || (seed >> 20).is_multiple_of(2) {
                table.insert(key, round);
                map.insert(key, round);
            } else {
                assert_eq!(table.remove(&key), map.remove(&key));
                let first = map.keys().next().copied().unwrap_or_default();
                assert_eq!(table.remove(&first), map.remove(&first));
            }
            assert_eq!(table.len(), map.len());
            assert_eq!(table.get(&key), map.get(&key));
            assert_eq!(table.get_mut(&key), map.get_mut(&key));
            let next = map.range(key + 1..).next().map(|(key, value)| (*key, value));
            assert_eq!(table.next(&(key + 1)), next);
            assert_eq!(table.first(), map.first_key_value().map(|(key, value)| (*key, value)));
        }
        assert!(table.len() > 100);
        assert!(table.iter().eq(map.iter().map(|(key, value)| (*key, value))));
        for key in map.keys() {
            table.remove(key);
        }
        assert_eq!(table, Table::default());
        assert!(table.into_iter().next().is_none());
    }
}
