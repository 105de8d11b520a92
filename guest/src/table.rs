//! A map in the order of its keys, for the few things that an elector has at a
//! time. A sorted list is smaller than a tree, in code and in memory, and quicker.

use alloc::vec::Vec;

/// A map in the order of its keys.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Table<K, V> {
    rows: Vec<(K, V)>,
}

impl<K: Ord + Copy, V> Table<K, V> {
    pub fn new() -> Table<K, V> {
        Table { rows: Vec::new() }
    }

    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    pub fn len(&self) -> usize {
        self.rows.len()
    }

    pub fn contains_key(&self, key: &K) -> bool {
        self.find(key).is_ok()
    }

    pub fn get(&self, key: &K) -> Option<&V> {
        let index = self.find(key).ok()?;
        self.rows.get(index).map(|(_, value)| value)
    }

    pub fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        let index = self.find(key).ok()?;
        self.rows.get_mut(index).map(|(_, value)| value)
    }

    /// Sets the value of a key, whether or not it had one.
    pub fn insert(&mut self, key: K, value: V) {
        match self.find(&key) {
            Ok(index) => {
                if let Some(row) = self.rows.get_mut(index) {
                    row.1 = value;
                }
            }
            Err(index) => self.rows.insert(index, (key, value)),
        }
    }

    pub fn remove(&mut self, key: &K) -> Option<V> {
        let index = self.find(key).ok()?;
        Some(self.rows.remove(index).1)
    }

    pub fn retain(&mut self, mut keep: impl FnMut(&V) -> bool) {
        self.rows.retain(|(_, value)| keep(value));
    }

    pub fn iter(&self) -> impl Iterator<Item = (K, &V)> {
        self.rows.iter().map(|(key, value)| (*key, value))
    }

    pub fn keys(&self) -> impl Iterator<Item = K> {
        self.rows.iter().map(|(key, _)| *key)
    }

    pub fn values(&self) -> impl Iterator<Item = &V> {
        self.rows.iter().map(|(_, value)| value)
    }

    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut V> {
        self.rows.iter_mut().map(|(_, value)| value)
    }

    pub fn into_iter(self) -> alloc::vec::IntoIter<(K, V)> {
        self.rows.into_iter()
    }

    fn find(&self, key: &K) -> Result<usize, usize> {
        // The newest keys are the highest ones, and are asked for most.
        match self.rows.last() {
            Some((last, _)) if last < key => Err(self.rows.len()),
            Some(_) | None => self.rows.binary_search_by(|(row, _)| row.cmp(key)),
        }
    }
}

impl<K: Ord + Copy, V> Default for Table<K, V> {
    fn default() -> Table<K, V> {
        Table::new()
    }
}
