//! The URL of a store.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::str::FromStr;

mod etcd;
mod postgres;

pub use self::etcd::EtcdUrl;
#[cfg(feature = "postgres")]
pub(crate) use self::postgres::PostgresHost;
pub use self::postgres::PostgresUrl;

/// The URL of a store:
///
/// - `etcd://HOST[:PORT][,HOST[:PORT]…][/PREFIX]`, or `etcds://…` for TLS: an etcd;
/// - `postgres://[USER@]HOST[:PORT][,HOST[:PORT]…]/DATABASE[?schema=NAME]`: a PostgreSQL database;
/// - `local`: a file of this user, for the processes of this machine;
/// - `sqlite:PATH`: any other file, for the same;
/// - `memory:` or `memory:NAME`: this process's memory, one store for each name.
///
/// ```
/// use incumbent::StoreUrl;
///
/// let url: StoreUrl = "sqlite:/var/lib/jobs.db".parse()?;
/// assert_eq!(url, StoreUrl::Sqlite("/var/lib/jobs.db".into()));
/// let url: StoreUrl = "etcd://a.example".parse()?;
/// assert_eq!(url.to_string(), "etcd://a.example:2379");
/// # Ok::<(), incumbent::StoreUrlError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StoreUrl {
    /// An etcd.
    Etcd(EtcdUrl),
    /// A PostgreSQL database.
    Postgres(PostgresUrl),
    /// The file of this user on this machine: see [`path`](Self::path).
    Local,
    /// A file, for the processes of this machine.
    Sqlite(PathBuf),
    /// This process's memory, by a name that may be empty.
    Memory(String),
}

/// etcdctl's default etcd. Never a store of one machine: a forgotten flag would give three hosts
/// three leaders.
impl Default for StoreUrl {
    fn default() -> Self {
        Self::Etcd(EtcdUrl::default())
    }
}

impl StoreUrl {
    /// The URL with its password, which is not printed otherwise.
    pub fn with_password(&self) -> String {
        match self {
            Self::Postgres(url) => url.with_password(),
            Self::Etcd(_) | Self::Local | Self::Sqlite(_) | Self::Memory(_) => self.to_string(),
        }
    }

    /// The file of a store in a file; none for others.
    ///
    /// The file of `local` is `incumbent/local.db` in the user's directory for state:
    /// `$XDG_STATE_HOME`, or else `$HOME/.local/state`. That is the same for a login, a service
    /// and a timer unless one of them sets the variable, and it outlives a restart of the
    /// machine, as epochs have to.
    ///
    /// # Errors
    ///
    /// If the environment names no such directory.
    pub fn path(&self) -> Result<Option<PathBuf>, StoreUrlError> {
        match self {
            Self::Local => Ok(Some(state_directory()?.join("incumbent").join("local.db"))),
            Self::Sqlite(path) => Ok(Some(path.clone())),
            Self::Etcd(_) | Self::Postgres(_) | Self::Memory(_) => Ok(None),
        }
    }

    /// The same store for every environment and working directory.
    ///
    /// # Errors
    ///
    /// As [`path`](Self::path), and if there is no working directory.
    pub fn absolute(&self) -> Result<Self, StoreUrlError> {
        let Some(path) = self.path()? else {
            return Ok(self.clone());
        };
        match std::path::absolute(&path) {
            Ok(path) => Ok(Self::Sqlite(path)),
            Err(error) => Err(StoreUrlError {
                sentence: format!(
                    "the store sqlite:{} has no absolute path ({error}): give the whole path",
                    path.display()
                ),
                source: Some(error),
            }),
        }
    }
}

fn state_directory() -> Result<PathBuf, StoreUrlError> {
    let named = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    named("XDG_STATE_HOME").or_else(|| Some(named("HOME")?.join(".local/state"))).ok_or_else(|| {
        StoreUrlError::new(
            "the store local is a file below $HOME, which is not set: set it, or name a file \
             by sqlite:PATH",
        )
    })
}

impl FromStr for StoreUrl {
    type Err = StoreUrlError;

    fn from_str(text: &str) -> Result<Self, StoreUrlError> {
        let fault = |what: &str| StoreUrlError::new(format!("the store {:?} {what}", shown(text)));
        if text == "local" {
            return Ok(Self::Local);
        }
        match text.split_once(':') {
            Some(("local", _)) => Err(fault("says too much: write local")),
            Some(("memory", name)) if name.starts_with("//") => {
                Err(fault("has slashes: write memory:, or memory:NAME"))
            }
            Some(("memory", name)) => Ok(Self::Memory(name.into())),
            Some(("sqlite", "")) => Err(fault("lacks a file: write sqlite:PATH")),
            Some(("sqlite", ":memory:")) => Err(fault("is in memory: write memory:")),
            Some(("sqlite", path)) if path.starts_with("//") && !path.starts_with("///") => {
                let path = path.trim_start_matches('/');
                Err(fault(&format!("has slashes: write sqlite:{path}, or sqlite:/{path}")))
            }
            Some(("sqlite", path)) if path.chars().any(char::is_control) => {
                Err(fault("holds a control character: give the file another name"))
            }
            Some(("sqlite", path)) => Ok(Self::Sqlite(path.into())),
            Some(("postgres" | "postgresql", _)) => Ok(Self::Postgres(text.parse()?)),
            Some(_) | None => Ok(Self::Etcd(text.parse()?)),
        }
    }
}

/// As it is parsed; a path that is no valid text is shown as well as possible.
impl fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Etcd(url) => write!(f, "{url}"),
            Self::Postgres(url) => write!(f, "{url}"),
            Self::Local => f.write_str("local"),
            Self::Sqlite(path) => write!(f, "sqlite:{}", path.display()),
            Self::Memory(name) => write!(f, "memory:{name}"),
        }
    }
}

/// What is wrong with the URL of a store: one sentence, which names the URL and says what to
/// write instead.
#[derive(Debug, thiserror::Error)]
#[error("{sentence}")]
pub struct StoreUrlError {
    sentence: String,
    source: Option<io::Error>,
}

impl StoreUrlError {
    fn new(sentence: impl Into<String>) -> Self {
        Self { sentence: sentence.into(), source: None }
    }
}

/// The text without the part that may hold a password.
fn shown(text: &str) -> String {
    match (text.split_once("://"), text.rsplit_once('@')) {
        (Some((scheme, _)), Some((_, rest))) => format!("{scheme}://…@{rest}"),
        (None, Some((_, rest))) => format!("…@{rest}"),
        (_, None) => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(text: &str) -> String {
        text.parse::<StoreUrl>().unwrap_err().to_string()
    }

    #[test]
    fn what_is_shown_can_be_parsed_again() {
        for text in
            ["etcd://h:2379", "local", "sqlite:a.db", "sqlite:/a b/c", "memory:", "memory:x"]
        {
            assert_eq!(text.parse::<StoreUrl>().unwrap().to_string(), text);
        }
        assert_eq!(StoreUrl::default().to_string(), "etcd://127.0.0.1:2379");
    }

    #[test]
    fn a_file_is_the_same_from_everywhere() {
        let there = "sqlite:a.db".parse::<StoreUrl>().unwrap().absolute().unwrap();
        assert_eq!(there.path().unwrap(), Some(std::env::current_dir().unwrap().join("a.db")));
        assert_eq!(there.absolute().unwrap(), there);
        let etcd = StoreUrl::default();
        assert_eq!((etcd.path().unwrap(), etcd.absolute().unwrap()), (None, etcd.clone()));
    }

    #[test]
    fn each_fault_is_a_sentence_with_its_mend() {
        for (text, says) in [
            ("", "sqlite:PATH"),
            ("redis://h", "sqlite:PATH"),
            ("local:", "write local"),
            ("local://x", "write local"),
            ("memory://x", "memory:NAME"),
            ("sqlite:", "write sqlite:PATH"),
            ("sqlite::memory:", "write memory:"),
            ("sqlite://a.db", "write sqlite:a.db, or sqlite:/a.db"),
            ("sqlite:a\nb", "control character"),
        ] {
            let fault = fault(text);
            assert!(fault.contains(says), "{text:?}: {fault}");
            assert!(fault.starts_with("the store "), "{text:?}: {fault}");
        }
    }
}
