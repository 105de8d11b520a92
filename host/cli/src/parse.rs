//! The values of flags, from text. What cannot be parsed gets one sentence, which says what
//! to write instead.

use std::env;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::builder::TypedValueParser;
use clap::error::ErrorKind;
use incumbent::{Epoch, StoreUrl};

use super::exit::{End, bad_input};
use super::text::shown_bytes;

/// etcd counts in seconds.
const SHORTEST_LEASE: Duration = Duration::from_secs(1);

/// Stores take no longer one.
const LONGEST_LEASE: Duration = Duration::from_secs(9_000_000_000);

/// How many bytes a candidate's value, and its id, may have.
pub const LONGEST_VALUE: usize = 4096;

/// In bytes.
const SMALLEST_RECORDING: u64 = 64 << 10;

/// How many bytes an election's name may have.
const LONGEST_NAME: usize = 1024;

/// Parses the value of one flag. An error shows a part of the value, because it may be long;
/// and nothing of it where it may hold a password.
#[derive(Clone)]
pub struct Checked<T> {
    read: fn(&str) -> Result<T, String>,
    is_shown: bool,
}

impl<T> Checked<T> {
    pub fn new(read: fn(&str) -> Result<T, String>) -> Self {
        Self { read, is_shown: true }
    }

    pub fn unshown(read: fn(&str) -> Result<T, String>) -> Self {
        Self { read, is_shown: false }
    }
}

impl<T: Clone + Send + Sync + 'static> TypedValueParser for Checked<T> {
    type Value = T;

    fn parse_ref(
        &self,
        _: &clap::Command,
        argument: Option<&clap::Arg>,
        value: &OsStr,
    ) -> Result<T, clap::Error> {
        let fault = match value.to_str() {
            Some(text) => match (self.read)(text) {
                Ok(read) => return Ok(read),
                Err(fault) => fault,
            },
            None => "it is not text (UTF-8): write it with letters and numbers".into(),
        };
        let argument = argument.map(ToString::to_string).unwrap_or_default();
        let shown = if self.is_shown {
            format!(" '{}'", shown_bytes(value.as_bytes()))
        } else {
            String::new()
        };
        Err(clap::Error::raw(
            ErrorKind::ValueValidation,
            format!("invalid value{shown} for '{argument}': {fault}"),
        ))
    }
}

/// A number of bytes, with or without a unit.
pub fn size(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|letter: char| !letter.is_ascii_digit());
    let unit = match text.strip_prefix(digits) {
        Some("") => 1,
        Some("KiB") => 1 << 10,
        Some("MiB") => 1 << 20,
        Some("GiB") => 1 << 30,
        Some(_) | None => return Err("it is no size: write 64MiB, for example".into()),
    };
    let bytes = digits.parse::<u64>().ok().and_then(|number| number.checked_mul(unit));
    match bytes {
        Some(bytes) if bytes >= SMALLEST_RECORDING => Ok(bytes),
        Some(_) => Err("a recording needs more room: give 64KiB at least".into()),
        None => Err("it is no size: write 64MiB, for example".into()),
    }
}

/// An election, and perhaps one of its epochs: `ELECTION[:EPOCH]`.
///
/// Names may hold colons: after the last one, only a number is an epoch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    pub election: String,
    pub epoch: Option<Epoch>,
}

fn epoch_of(text: &str) -> Option<Epoch> {
    text.parse().ok().filter(|epoch| *epoch > Epoch::default())
}

pub fn target(text: &str) -> Result<Target, String> {
    let with_epoch = text
        .rsplit_once(':')
        .filter(|(_, tail)| !tail.is_empty() && tail.bytes().all(|byte| byte.is_ascii_digit()));
    let Some((name, digits)) = with_epoch else {
        return Ok(Target { election: election_name(text)?, epoch: None });
    };
    let epoch = epoch(digits)?;
    Ok(Target { election: election_name(name)?, epoch: Some(epoch) })
}

/// An epoch by itself.
pub fn epoch(digits: &str) -> Result<Epoch, String> {
    epoch_of(digits).ok_or_else(|| {
        format!(
            "{digits} is not an epoch: give the number that `incumbent leader` prints, from 1 \
             to {}",
            i64::MAX
        )
    })
}

/// A directory, and its name for the component.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Directory {
    pub host: PathBuf,
    pub guest: String,
}

/// `HOST[::GUEST]`.
pub fn directory(text: &str) -> Result<Directory, String> {
    let (host, guest) = text.split_once("::").unwrap_or((text, text));
    if host.is_empty() || guest.is_empty() {
        return Err("a directory is missing: write HOST, or HOST::GUEST".into());
    }
    Ok(Directory { host: host.into(), guest: guest.into() })
}

/// `NAME[=VALUE]`, as the name and its value: without a value it is inherited.
pub fn variable(text: &str) -> Result<(String, String), String> {
    let (name, value) = match text.split_once('=') {
        Some((name, value)) => (name, value.to_owned()),
        None => (text, inherited(text)?),
    };
    if name.is_empty() {
        return Err("its name is missing: write NAME, or NAME=VALUE".into());
    }
    if name.starts_with("INCUMBENT_") {
        return Err("incumbent sets the variables INCUMBENT_…: give it another name".into());
    }
    Ok((name.to_owned(), value))
}

fn inherited(name: &str) -> Result<String, String> {
    env::var(name).map_err(|error| match error {
        env::VarError::NotPresent => format!("it is not set here: write {name}=VALUE"),
        env::VarError::NotUnicode(_) => {
            format!("its value here is not text (UTF-8): write {name}=VALUE")
        }
    })
}

/// The beginning of keys.
pub fn prefix(text: &str) -> Result<String, String> {
    if text.is_empty() {
        return Err("it is empty, and would allow every key: give the beginning of the keys".into());
    }
    Ok(text.to_owned())
}

/// Whether a component may be granted the keys that begin with `prefix`. With keys below the
/// election's name it could make itself the leader: etcd's own tools take any key there for a
/// candidate.
pub fn check_prefix(prefix: &str, election: &str) -> Result<(), End> {
    let below = format!("{election}/");
    if !below.starts_with(prefix) && !prefix.starts_with(&below) {
        return Ok(());
    }
    let [prefix, election] = [prefix, election].map(|text| shown_bytes(text.as_bytes()));
    Err(bad_input(format!(
        "--allow-keys {prefix} reaches the election's own keys, {election} and all below \
         {election}/, with which the component could make itself the leader: give a prefix beside \
         them, for example {election}-data/"
    )))
}

impl Target {
    /// The epoch of a fence: the one given, or that of the leadership that we run in.
    pub fn fence_epoch(&self) -> Result<Epoch, End> {
        if let Some(epoch) = self.epoch {
            return Ok(epoch);
        }
        let Some(inherited) = env::var_os("INCUMBENT_EPOCH") else {
            return Err(bad_input(format!(
                "--fence {0} lacks the epoch, and INCUMBENT_EPOCH is not set: \
                 write --fence {0}:EPOCH",
                self.election
            )));
        };
        let of = env::var_os("INCUMBENT_ELECTION");
        if of.as_deref() != Some(self.election.as_ref()) {
            return Err(bad_input(format!(
                "--fence {0} lacks the epoch, and INCUMBENT_EPOCH is that of another election: \
                 write --fence {0}:EPOCH",
                self.election
            )));
        }
        inherited.to_str().and_then(epoch_of).ok_or_else(|| {
            bad_input(format!(
                "INCUMBENT_EPOCH is {inherited:?}, which is not an epoch: write --fence {}:EPOCH",
                self.election
            ))
        })
    }
}

pub fn store_url(text: &str) -> Result<StoreUrl, String> {
    text.parse().map_err(|error: <StoreUrl as FromStr>::Err| error.to_string())
}

pub fn election_name(text: &str) -> Result<String, String> {
    if text.is_empty() {
        return Err("an election needs a name: give 1 to 1024 bytes".into());
    }
    if text.len() > LONGEST_NAME {
        return Err(format!("the name has {} bytes: give at most {LONGEST_NAME}", text.len()));
    }
    if text.chars().any(char::is_control) {
        return Err("the name holds a control character: leave it out".into());
    }
    Ok(text.to_owned())
}

pub fn identity(text: &str) -> Result<String, String> {
    if text.is_empty() {
        return Err("it is empty: leave --id out to be called HOST-PID".into());
    }
    if text.len() > LONGEST_VALUE {
        return Err(format!("it has {} bytes: give at most {LONGEST_VALUE}", text.len()));
    }
    Ok(text.to_owned())
}

/// A candidate, by what it shows of itself.
pub fn candidate(text: &str) -> Result<String, String> {
    if text.is_empty() {
        return Err("it is empty: give a name that `incumbent candidates` lists".into());
    }
    identity(text)
}

/// A key of the store: any bytes, but at least one.
pub fn key_bytes(key: &OsStr) -> Result<Vec<u8>, End> {
    if key.is_empty() {
        return Err(bad_input("KEY is empty: a key has at least one byte"));
    }
    Ok(key.as_bytes().to_vec())
}

/// A span of time, perhaps zero.
pub fn span(text: &str) -> Result<Duration, String> {
    let is_negative = text
        .strip_prefix('-')
        .is_some_and(|rest| rest.starts_with(|first: char| first.is_ascii_digit()));
    humantime::parse_duration(text).map_err(|fault| {
        if is_negative {
            "a time cannot be negative: leave out the minus".into()
        } else if fault == humantime::DurationError::NumberOverflow {
            format!("it is too long: give {} s or less", LONGEST_LEASE.as_secs())
        } else {
            "write a number and its unit, for example 500ms, 10s or 1m 30s".into()
        }
    })
}

/// A time-out, which cannot be zero.
pub fn timeout(text: &str) -> Result<Duration, String> {
    match span(text)? {
        Duration::ZERO => Err("nothing can be done in no time: give 1s or more".into()),
        longer => Ok(longer),
    }
}

pub fn lease_time(text: &str) -> Result<Duration, String> {
    match span(text)? {
        shorter if shorter < SHORTEST_LEASE => {
            Err("a lease lives for a second at least: give 2s or more".into())
        }
        longer if longer > LONGEST_LEASE => {
            Err(format!("the longest lease lives {} s: give less", LONGEST_LEASE.as_secs()))
        }
        span => Ok(span),
    }
}

/// A host's name, without a port.
pub fn host_name(text: &str) -> Result<String, String> {
    let is_fine = |one: char| one.is_ascii_alphanumeric() || ['.', '-', '_'].contains(&one);
    if text.is_empty() || !text.chars().all(is_fine) {
        return Err("give a host's name alone, like my-service.example".into());
    }
    Ok(text.to_owned())
}

/// The value of --listen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// A host's name or its IP address, and a port.
    Tcp {
        host: String,
        port: u16,
    },
    Unix(PathBuf),
}

/// Parses the value of --listen.
pub fn address(text: &str) -> Result<Address, String> {
    if let Some(path) = text.strip_prefix("unix:") {
        return match path {
            "" => Err("give the path of the socket: unix:/run/my-service.sock".into()),
            path => Ok(Address::Unix(path.into())),
        };
    }
    let advice = || "give HOST:PORT, like 127.0.0.1:8080 or [::]:8080, or unix:PATH".to_owned();
    let (host, port) = text.rsplit_once(':').ok_or_else(advice)?;
    let port = port.parse().map_err(|_| advice())?;
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    match bare.unwrap_or(host) {
        "" => Err(format!(
            "it has no host: for all addresses of this machine give 0.0.0.0:{port} or [::]:{port}"
        )),
        host if bare.is_none() && host.contains(':') => Err(advice()),
        host => Ok(Address::Tcp { host: host.to_owned(), port }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_epoch_follows_the_last_colon_if_it_is_a_number() {
        for (text, election, epoch) in [
            ("a", "a", None),
            ("a:12", "a", Some(12_i64)),
            ("a:b", "a:b", None),
            ("a:b:12", "a:b", Some(12)),
            ("a:5:12", "a:5", Some(12)),
            ("a:", "a:", None),
            ("a:-5", "a:-5", None),
        ] {
            let epoch = epoch.map(Epoch::from);
            assert_eq!(target(text), Ok(Target { election: election.into(), epoch }));
        }
        for bad in ["", ":12", "a:0", "a:99999999999999999999", "a\nb"] {
            assert!(target(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn spans_have_units() {
        assert_eq!(span("0"), Ok(Duration::ZERO));
        assert_eq!(span("1m 30s"), Ok(Duration::from_secs(90)));
        assert!(span("10").unwrap_err().contains("unit"));
        assert!(lease_time("0s").is_err());
        assert!(lease_time("9000000000s").is_ok());
        assert!(lease_time("9000000001s").is_err());
    }

    #[test]
    fn addresses_are_told_apart() {
        let tcp = |host: &str, port| Ok(Address::Tcp { host: host.into(), port });
        assert_eq!(address("127.0.0.1:80"), tcp("127.0.0.1", 80));
        assert_eq!(address("[::1]:0"), tcp("::1", 0));
        assert_eq!(address("my-host:8080"), tcp("my-host", 8080));
        assert_eq!(address("unix:/a b"), Ok(Address::Unix("/a b".into())));
        for bad in ["", "8080", ":8080", "::1:8080", "my-host:", "my-host:99999", "unix:"] {
            assert!(address(bad).is_err_and(|advice| advice.contains("give")), "{bad}");
        }
    }
}
