//! The URL of an etcd: `etcd://HOST:PORT[,HOST:PORT…][/PREFIX]`.

use std::fmt;
use std::net::Ipv6Addr;
use std::str::FromStr;

use super::{StoreUrlError, shown};

/// etcd's port for clients.
const DEFAULT_PORT: u16 = 2379;

/// The URL of an etcd:
/// `etcd://HOST[:PORT][,HOST[:PORT]…][/PREFIX]`, or `etcds://…` for TLS.
///
/// The port is 2379 unless given; an IPv6 address stands in brackets. With a
/// prefix, every key begins with `PREFIX/`. The first slash after the hosts is not a part of the
/// prefix; all others are.
///
/// ```
/// use incumbent::EtcdUrl;
///
/// let url: EtcdUrl = "etcds://a.example,[::1]:4001/team".parse()?;
/// assert_eq!(url.endpoints(), ["a.example:2379", "[::1]:4001"]);
/// assert_eq!(url.to_string(), "etcds://a.example:2379,[::1]:4001/team");
/// # Ok::<(), incumbent::StoreUrlError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct EtcdUrl {
    tls: bool,
    endpoints: Vec<String>,
    prefix: String,
}

impl EtcdUrl {
    /// Whether connections are made with TLS.
    pub fn tls(&self) -> bool {
        self.tls
    }

    /// The members to talk to, each as `HOST:PORT`; at least one.
    pub fn endpoints(&self) -> &[String] {
        &self.endpoints
    }

    /// The prefix of every key: empty, or a text that ends in a slash.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }
}

/// etcdctl's default.
impl Default for EtcdUrl {
    fn default() -> Self {
        Self {
            tls: false,
            endpoints: vec![format!("127.0.0.1:{DEFAULT_PORT}")],
            prefix: String::new(),
        }
    }
}

impl FromStr for EtcdUrl {
    type Err = StoreUrlError;

    fn from_str(text: &str) -> Result<Self, StoreUrlError> {
        let fault =
            |what: String| StoreUrlError::new(format!("the store {:?} {what}", shown(text)));
        let (tls, rest) = match text.split_once("://") {
            Some(("etcd", rest)) => (false, rest),
            Some(("etcds", rest)) => (true, rest),
            Some((scheme @ ("http" | "https"), rest)) if !rest.contains('@') => {
                let scheme = scheme.replace("http", "etcd");
                return Err(fault(format!("has to be written {scheme}://{rest}")));
            }
            Some(_) => {
                return Err(fault(
                    "is of a kind that is not known: it has to begin with etcd:// or etcds://, \
                     or be local, or sqlite:PATH"
                        .into(),
                ));
            }
            None => {
                return Err(fault(
                    "has to begin with etcd://, or etcds:// for TLS, as in \
                     etcd://127.0.0.1:2379, or to be local, or sqlite:PATH"
                        .into(),
                ));
            }
        };
        if rest.contains('@') {
            return Err(fault(
                "holds a user or a password: give them apart from it, by --user and \
                 --password-file, or by Options::credentials"
                    .into(),
            ));
        }
        if let Some(odd) =
            rest.chars().find(|c| c.is_control() || c.is_whitespace() || matches!(c, '?' | '#'))
        {
            return Err(fault(format!(
                "holds {odd:?}: it is etcd://HOST:PORT, or several of these parted by commas, \
                 and perhaps /PREFIX"
            )));
        }
        let (hosts, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        let endpoints = hosts
            .split(',')
            .map(|host| endpoint(host).map_err(&fault))
            .collect::<Result<_, _>>()?;
        let prefix = prefix.trim_end_matches('/');
        Ok(Self {
            tls,
            endpoints,
            prefix: if prefix.is_empty() { String::new() } else { format!("{prefix}/") },
        })
    }
}

impl fmt::Display for EtcdUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.tls { "etcds" } else { "etcd" };
        write!(f, "{scheme}://{}", self.endpoints.join(","))?;
        match self.prefix.strip_suffix('/') {
            Some(prefix) => write!(f, "/{prefix}"),
            None => Ok(()),
        }
    }
}

/// `HOST:PORT`, or what is wrong with the text.
fn endpoint(text: &str) -> Result<String, String> {
    let (host, port) = if let Some(rest) = text.strip_prefix('[') {
        let (address, after) = rest
            .split_once(']')
            .ok_or_else(|| format!("has a host {text:?} without its closing bracket"))?;
        let address: Ipv6Addr = address.parse().map_err(|_| {
            format!("has a host {text:?} whose brackets do not hold an IPv6 address, as in [::1]")
        })?;
        let port = match after.strip_prefix(':') {
            Some(port) => Some(port),
            None if after.is_empty() => None,
            None => return Err(format!("has a host {text:?}: write it [{address}]:PORT")),
        };
        (format!("[{address}]"), port)
    } else {
        let (host, port) =
            text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port)));
        if port.is_some_and(|port| port.contains(':')) {
            return Err(format!(
                "has a host {text:?}: an IPv6 address stands in brackets, as in [::1]:2379"
            ));
        }
        if host.is_empty() {
            return Err("lacks a host: write it as in etcd://127.0.0.1:2379".into());
        }
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
        if !host.chars().all(plain) {
            return Err(format!(
                "has a host {host:?} that is neither a name nor an address: \
                 write it as in etcd://127.0.0.1:2379"
            ));
        }
        (host.to_owned(), port)
    };
    let port = match port {
        None => DEFAULT_PORT,
        Some(port) => port
            .parse()
            .ok()
            .filter(|number| *number != 0)
            .ok_or_else(|| format!("has a port {port:?}: it is a number from 1 to 65535"))?,
    };
    Ok(format!("{host}:{port}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> EtcdUrl {
        text.parse().unwrap()
    }

    fn fault(text: &str) -> String {
        text.parse::<EtcdUrl>().unwrap_err().to_string()
    }

    #[test]
    fn the_port_is_2379_unless_given() {
        assert_eq!(parsed("etcd://h").endpoints(), ["h:2379"]);
        assert_eq!(parsed("etcd://h,[::1],10.0.0.1:1").endpoints().len(), 3);
        assert_eq!(parsed("etcd://[::1]").endpoints(), ["[::1]:2379"]);
        assert_eq!(parsed("etcd://[0:0::1]:7").endpoints(), ["[::1]:7"]);
        assert_eq!(EtcdUrl::default(), parsed("etcd://127.0.0.1"));
    }

    #[test]
    fn the_prefix_ends_in_one_slash() {
        assert_eq!(parsed("etcd://h").prefix(), "");
        assert_eq!(parsed("etcd://h/").prefix(), "");
        assert_eq!(parsed("etcd://h/a").prefix(), "a/");
        assert_eq!(parsed("etcd://h/a/b/").prefix(), "a/b/");
        assert_eq!(parsed("etcd://h//a").prefix(), "/a/");
    }

    #[test]
    fn what_is_shown_can_be_parsed_again() {
        for text in ["etcd://h:2379", "etcds://a:1,[::1]:2/x/y", "etcd://h:1//x"] {
            assert_eq!(parsed(text).to_string(), text);
        }
        assert!(parsed("etcds://h").tls());
    }

    #[test]
    fn each_fault_is_a_sentence_with_its_mend() {
        for (text, says) in [
            ("", "has to begin with etcd://"),
            ("127.0.0.1:2379", "has to begin with etcd://"),
            ("http://h:1", "etcd://h:1"),
            ("https://h:1", "etcds://h:1"),
            ("redis://h", "etcd:// or etcds://"),
            ("etcd://", "lacks a host"),
            ("etcd:///p", "lacks a host"),
            ("etcd://a,,b", "lacks a host"),
            ("etcd://h:", "from 1 to 65535"),
            ("etcd://h:0", "from 1 to 65535"),
            ("etcd://h:65536", "from 1 to 65535"),
            ("etcd://h:x", "from 1 to 65535"),
            ("etcd://::1:2379", "in brackets"),
            ("etcd://[::1", "closing bracket"),
            ("etcd://[h]:1", "IPv6"),
            ("etcd://[::1]x", "[::1]:PORT"),
            ("etcd://h?x", "'?'"),
            ("etcd://h /x", "' '"),
            ("etcd://h%", "neither a name nor an address"),
        ] {
            let fault = fault(text);
            assert!(fault.contains(says), "{text:?}: {fault}");
            assert!(fault.starts_with("the store "), "{text:?}: {fault}");
        }
    }

    #[test]
    fn a_password_is_not_repeated() {
        for text in
            ["etcd://u:secret@h", "u:secret@h", "http://u:secret@h", "etcd://u:secret@x@h:1"]
        {
            let fault = fault(text);
            assert!(!fault.contains("secret"), "{fault}");
        }
        assert!(fault("etcd://u:secret@h").contains("--user"));
    }
}
