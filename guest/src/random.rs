//! Numbers that look random, from the seed: for jitter and lease ids.

use crate::types::LeaseId;

/// The generator xoroshiro128++. The seed is its first state.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Random {
    state: (u64, u64),
}

impl Default for Random {
    fn default() -> Random {
        Random::new((0, 0))
    }
}

impl Random {
    /// Starts from a seed. The same seed gives the same numbers.
    pub fn new(seed: (u64, u64)) -> Random {
        // A state of zeros would only give zeros.
        let state = if seed == (0, 0) { (1, 0) } else { seed };
        let mut random = Random { state };
        // After this, seeds that differed in a few bits differ in many.
        for _ in 0..8 {
            random.next();
        }
        random
    }

    /// A number from 0 up to, and not including, `bound`; 0 if `bound` is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.next().checked_rem(bound).unwrap_or(0)
    }

    /// A lease id: 63 random bits, never 0.
    pub fn lease(&mut self) -> LeaseId {
        ((self.next() >> 1) as LeaseId).max(1)
    }

    fn next(&mut self) -> u64 {
        let (a, mut b) = self.state;
        let number = a.wrapping_add(b).rotate_left(17).wrapping_add(a);
        b ^= a;
        self.state = (a.rotate_left(49) ^ b ^ (b << 21), b.rotate_left(28));
        number
    }
}
