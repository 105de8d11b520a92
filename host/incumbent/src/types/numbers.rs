//! The numbers that a store gives out, each a type of its own.

use std::fmt;
use std::num::ParseIntError;
use std::str::FromStr;

macro_rules! number {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(i64);

        impl From<i64> for $name {
            fn from(number: i64) -> Self {
                Self(number)
            }
        }

        impl From<$name> for i64 {
            fn from(number: $name) -> Self {
                number.0
            }
        }
    };
}

macro_rules! decimal {
    ($name:ident) => {
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl FromStr for $name {
            type Err = ParseIntError;

            fn from_str(text: &str) -> Result<Self, ParseIntError> {
                text.parse().map(Self)
            }
        }
    };
}

number! {
    /// The fencing token: it rises strictly from one leadership of an election to the next, and
    /// is never 0. It is the revision that created the leader's key.
    ///
    /// A system that takes the epoch along with each request, and refuses one that is lower than
    /// the highest it has seen, is safe from former leaders.
    Epoch
}
decimal!(Epoch);

number! {
    /// A point in the history of a store: each change has a greater one than all before. 0 stands
    /// for the last change of a key that does not exist.
    Revision
}
decimal!(Revision);

number! {
    /// A lease of a store. 0 stands for none.
    ///
    /// It is written as etcd's tools write it, in hexadecimal:
    ///
    /// ```
    /// use incumbent::LeaseId;
    ///
    /// let lease: LeaseId = "694d8a1b2c3d4e5f".parse()?;
    /// assert_eq!(lease.to_string(), "694d8a1b2c3d4e5f");
    /// # Ok::<(), std::num::ParseIntError>(())
    /// ```
    LeaseId
}

impl fmt::Display for LeaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.0 < 0 { "-" } else { "" };
        write!(f, "{sign}{:x}", self.0.unsigned_abs())
    }
}

impl FromStr for LeaseId {
    type Err = ParseIntError;

    fn from_str(text: &str) -> Result<Self, ParseIntError> {
        i64::from_str_radix(text, 16).map(Self)
    }
}
