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
        let (run, row) = self.position(key).ok()?;
        self.runs.get(run)?.get(row).map(|(_, value)| value)
    }

    pub fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        let (run, row) = self.position(key).ok()?;
        self.runs.get_mut(run)?.get_mut(row).map(|(_, value)| value)
    }

    /// Sets the value of a key, whether or not it had one.
    pub fn insert(&mut self, key: K, value: V) {
        let (mut index, mut row) = match self.position(&key) {
            Ok((run, row)) => {
                if let Some((_, old)) = self.runs.get_mut(run).and_then(|run| run.get_mut(row)) {
                    *old = value;
                }
                return;
            }
            Err(position) => position,
        };
        let last = index + 1 >= self.runs.len();
        match self.runs.get_mut(index) {
            Some(run) if run.len() < LONGEST => {}
            Some(run) if !last || row < LONGEST => {
                let second = run.split_off(LONGEST / 2);
                self.runs.insert(index + 1, second);
                return self.insert(key, value);
            }
            // Most new keys come at the end, and begin a new run there.
            Some(_) | None => {
                (index, row) = (self.runs.len(), 0);
                self.runs.push(Vec::new());
            }
        }
        if let Some(run) = self.runs.get_mut(index) {
            run.insert(row, (key, value));
            self.len += 1;
        }
    }

    pub fn remove(&mut self, key: &K) -> Option<V> {
        let (index, row) = self.position(key).ok()?;
        let run = self.runs.get_mut(index)?;
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
        let (Ok((index, row)) | Err((index, row))) = self.position(from);
        let found = self.runs.get(index)?.get(row).or_else(|| self.runs.get(index + 1)?.first());
        found.map(|(key, value)| (*key, value))
    }

    /// The lowest key that is not below this one and whose value is wanted.
    pub fn find(&self, from: K, wanted: impl Fn(&V) -> bool) -> Option<K> {
        self.from(from).find(|(_, value)| wanted(value)).map(|(key, _)| key)
    }

    /// The rows from this key on.
    fn from(&self, from: K) -> impl Iterator<Item = (K, &V)> {
        let (Ok((index, _)) | Err((index, _))) = self.position(&from);
        let runs = self.runs.get(index..).unwrap_or_default();
        let rows = runs.iter().flatten().map(|(key, value)| (*key, value));
        rows.filter(move |(key, _)| *key >= from)
    }

    /// All rows, from this key on and then from the first one on.
    pub fn around(&self, from: K) -> impl Iterator<Item = (K, &V)> {
        self.from(from).chain(self.iter().take_while(move |(key, _)| *key < from))
    }

    pub fn iter(&self) -> impl Iterator<Item = (K, &V)> {
        self.runs.iter().flatten().map(|(key, value)| (*key, value))
    }

    pub fn into_iter(self) -> impl Iterator<Item = (K, V)> {
        self.runs.into_iter().flatten()
    }

    /// The run and the row where a key is, or where it would be.
    fn position(&self, key: &K) -> Result<(usize, usize), (usize, usize)> {
        // The newest keys are the highest ones, and are looked up most.
        let begins_by = |run: &Vec<(K, V)>| run.first().is_some_and(|(first, _)| first <= key);
        let index = match self.runs.last().is_some_and(begins_by) {
            true => self.runs.len(),
            false => self.runs.partition_point(begins_by),
        };
        let index = index.saturating_sub(1);
        let run = self.runs.get(index).map_or(&[][..], Vec::as_slice);
        match run.binary_search_by(|(row, _)| row.cmp(key)) {
            Ok(row) => Ok((index, row)),
            Err(row) => Err((index, row)),
        }
    }
}

/// The second numbers of the rows that begin with this one, in their order.
pub fn with_first(table: &Table<(u64, u64), ()>, first: u64) -> impl Iterator<Item = u64> {
    let mut from = Some((first, 0));
    core::iter::from_fn(move || {
        let ((of, id), ()) = table.next(&from?)?;
        from = Some((first, id.checked_add(1)?));
        (of == first).then_some(id)
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
