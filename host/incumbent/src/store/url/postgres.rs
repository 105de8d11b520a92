//! The URL of a PostgreSQL database, as libpq takes it.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

use super::{StoreUrlError, shown};

/// The schema, unless another one is named.
const SCHEMA: &str = "incumbent";
/// PostgreSQL cuts longer names.
const LONGEST_NAME: usize = 63;
const PORT: u16 = 5432;
const KEPT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// The options of libpq that mean something here, each with the values that it may have. Without
/// values: any text.
const OPTIONS: &[(&str, &[&str])] = &[
    ("application_name", &[]),
    ("channel_binding", &["disable", "prefer", "require"]),
    ("connect_timeout", NUMBER),
    ("keepalives", &["0", "1"]),
    ("keepalives_count", NUMBER),
    ("keepalives_idle", NUMBER),
    ("keepalives_interval", NUMBER),
    ("load_balance_hosts", &["disable", "random"]),
    ("options", &[]),
    ("passfile", &[]),
    ("sslcert", &[]),
    ("sslkey", &[]),
    ("sslmode", &["disable", "prefer", "require", "verify-ca", "verify-full"]),
    ("sslnegotiation", &["postgres", "direct"]),
    ("sslrootcert", &[]),
    // An election writes: whatever is asked for, a standby is passed over.
    ("target_session_attrs", &["read-write", "primary", "any"]),
    ("tcp_user_timeout", NUMBER),
];
/// Stands for all numbers.
const NUMBER: &[&str] = &["NUMBER"];
/// Options of libpq that change nothing here, for URLs that others use as well.
const WITHOUT_EFFECT: &[&str] = &["client_encoding", "fallback_application_name", "gssencmode"];

/// `postgres://[USER[:PASSWORD]@]HOST[:PORT][,HOST[:PORT]…]/DATABASE[?OPTIONS]`, with the options of
/// libpq, and `schema=NAME` for another schema than `incumbent`.
///
/// ```
/// use incumbent::PostgresUrl;
///
/// let url: PostgresUrl = "postgres://ann:secret@a.example,b.example/jobs?schema=lead".parse()?;
/// assert_eq!(url.schema(), "lead");
/// assert_eq!(url.to_string(), "postgres://ann@a.example,b.example/jobs?schema=lead");
/// # Ok::<(), incumbent::StoreUrlError>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct PostgresUrl {
    user: Option<String>,
    password: Option<String>,
    hosts: Vec<PostgresHost>,
    database: Option<String>,
    schema: String,
    options: BTreeMap<&'static str, String>,
}

/// A server.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PostgresHost {
    /// A name, an address, or the directory of a socket.
    pub(crate) host: String,
    /// Where the name is, if it need not be looked up.
    pub(crate) address: Option<String>,
    pub(crate) port: u16,
}

impl PostgresUrl {
    /// The schema that holds the store.
    pub fn schema(&self) -> &str {
        &self.schema
    }

    /// The user to log in as, if the URL names one.
    pub fn user(&self) -> Option<&str> {
        self.user.as_deref()
    }

    /// The database, if the URL names one.
    pub fn database(&self) -> Option<&str> {
        self.database.as_deref()
    }

    /// The same URL with its password, which is not printed otherwise.
    pub fn with_password(&self) -> String {
        self.text(true)
    }

    /// The URL as clients of libpq take it, with its password and without the schema.
    pub fn libpq(&self) -> String {
        Self { schema: SCHEMA.into(), ..self.clone() }.text(true)
    }

    #[cfg_attr(not(any(test, feature = "postgres")), expect(dead_code, reason = "for the store"))]
    pub(crate) fn password(&self) -> Option<&str> {
        self.password.as_deref()
    }

    #[cfg_attr(not(any(test, feature = "postgres")), expect(dead_code, reason = "for the store"))]
    pub(crate) fn hosts(&self) -> &[PostgresHost] {
        &self.hosts
    }

    /// An option of libpq.
    #[cfg_attr(not(any(test, feature = "postgres")), expect(dead_code, reason = "for the store"))]
    pub(crate) fn option(&self, name: &str) -> Option<&str> {
        self.options.get(name).map(String::as_str)
    }

    fn text(&self, with_password: bool) -> String {
        let encode = |text: &str| utf8_percent_encode(text, KEPT).to_string();
        let mut text = "postgres://".to_owned();
        if let Some(user) = &self.user {
            text += &encode(user);
            if let (true, Some(password)) = (with_password, &self.password) {
                text += &format!(":{}", encode(password));
            }
            text.push('@');
        }
        let hosts = self.hosts.iter().map(PostgresHost::shown);
        text += &hosts.collect::<Vec<_>>().join(",");
        if let Some(database) = &self.database {
            text += &format!("/{}", encode(database));
        }
        let addresses: Vec<_> = self.hosts.iter().map(|host| host.address.as_deref()).collect();
        let addresses = addresses.iter().any(Option::is_some).then(|| {
            (
                "hostaddr",
                addresses.iter().map(|it| it.unwrap_or_default()).collect::<Vec<_>>().join(","),
            )
        });
        let schema = (self.schema != SCHEMA).then(|| ("schema", self.schema.clone()));
        let others = self.options.iter().map(|(name, value)| (*name, value.clone()));
        for (number, (name, value)) in others.chain(addresses).chain(schema).enumerate() {
            let sign = if number == 0 { '?' } else { '&' };
            text += &format!("{sign}{name}={}", encode(&value));
        }
        text
    }
}

impl PostgresHost {
    /// `HOST:PORT`, or the directory of the socket.
    #[cfg(any(test, feature = "postgres"))]
    pub(crate) fn endpoint(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }

    fn shown(&self) -> String {
        let host = if self.host.contains(':') {
            format!("[{}]", self.host)
        } else {
            utf8_percent_encode(&self.host, KEPT).to_string()
        };
        if self.port == PORT { host } else { format!("{host}:{}", self.port) }
    }
}

impl FromStr for PostgresUrl {
    type Err = StoreUrlError;

    fn from_str(text: &str) -> Result<Self, StoreUrlError> {
        parse(text)
            .map_err(|what| StoreUrlError::new(format!("the store {:?} {what}", shown(text))))
    }
}

fn parse(text: &str) -> Result<PostgresUrl, String> {
    let rest = text.strip_prefix("postgres://").or_else(|| text.strip_prefix("postgresql://"));
    let rest = rest.ok_or("lacks slashes: write postgres://USER@HOST/DATABASE")?;
    let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (authority, database) = place.split_once('/').unwrap_or((place, ""));
    let (login, hosts) = match authority.rsplit_once('@') {
        Some((login, hosts)) => (login, hosts),
        None => ("", authority),
    };
    let (user, password) = match login.split_once(':') {
        Some((user, password)) => (user, Some(decode(password)?)),
        None => (login, None),
    };
    let mut url = PostgresUrl {
        user: (!user.is_empty()).then(|| decode(user)).transpose()?,
        password,
        hosts: Vec::new(),
        database: (!database.is_empty()).then(|| decode(database)).transpose()?,
        schema: SCHEMA.into(),
        options: BTreeMap::new(),
    };
    let (mut names, mut ports): (Vec<String>, Vec<String>) = (Vec::new(), Vec::new());
    for host in hosts.split(',').filter(|_| !hosts.is_empty()) {
        let (name, port) = match (host.strip_prefix('['), host.rsplit_once(':')) {
            (Some(inner), _) => {
                let (name, port) = inner.split_once(']').ok_or("has a bracket too many")?;
                (name, port.trim_start_matches(':'))
            }
            (None, Some((name, port))) => (name, port),
            (None, None) => (host, ""),
        };
        names.push(decode(name)?);
        ports.push(port.to_owned());
    }
    let mut addresses = Vec::new();
    let list = |value: &str| value.split(',').map(str::to_owned).collect::<Vec<_>>();
    for option in query.split('&').filter(|option| !option.is_empty()) {
        let (name, value) = option.split_once('=').unwrap_or((option, ""));
        let value = decode(value)?;
        match name {
            "schema" => url.schema = value,
            "user" => url.user = Some(value),
            "password" => url.password = Some(value),
            "dbname" => url.database = Some(value),
            "host" => names = list(&value),
            "hostaddr" => addresses = list(&value),
            "port" => ports = list(&value),
            _ if WITHOUT_EFFECT.contains(&name) => {}
            _ => {
                let (name, value) = known(name, value)?;
                url.options.insert(name, value);
            }
        }
    }
    check_schema(&url.schema)?;
    url.hosts = hosts_of(names, &addresses, &ports)?;
    Ok(url)
}

/// An option, if it is known and has such a value.
fn known(name: &str, value: String) -> Result<(&'static str, String), String> {
    let Some((name, values)) = OPTIONS.iter().find(|(known, _)| *known == name) else {
        let known: Vec<_> = OPTIONS.iter().map(|(known, _)| *known).collect();
        return Err(format!(
            "has the option {name:?}, which is not known here: leave it out, or write one of \
             schema, {}",
            known.join(", ")
        ));
    };
    let is_right = values.is_empty()
        || if *values == NUMBER { value.parse::<u32>().is_ok() } else { values.contains(&&*value) };
    if !is_right {
        return Err(format!("has {name}={value}: write {name}={}", values.join("|")));
    }
    Ok((name, value))
}

fn check_schema(schema: &str) -> Result<(), String> {
    let is_name = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
    let begins = schema.bytes().next().is_some_and(|byte| is_name(byte) && !byte.is_ascii_digit());
    let is_reserved = schema.starts_with("pg_");
    if begins && !is_reserved && schema.len() <= LONGEST_NAME && schema.bytes().all(is_name) {
        return Ok(());
    }
    Err("names a schema with other characters than a-z, 0-9 and _, or one of PostgreSQL's own: \
         write schema=NAME, as in schema=incumbent"
        .into())
}

fn hosts_of(
    names: Vec<String>,
    addresses: &[String],
    ports: &[String],
) -> Result<Vec<PostgresHost>, String> {
    let names = if names.is_empty() { addresses.to_vec() } else { names };
    if names.is_empty() {
        return Err("names no host: write postgres://USER@HOST/DATABASE".into());
    }
    if !addresses.is_empty() && addresses.len() != names.len() {
        return Err("names more or fewer addresses (hostaddr) than hosts: give one for each".into());
    }
    let port = |index: usize| {
        let port = ports.get(index).or_else(|| ports.first().filter(|_| ports.len() == 1));
        match port.map(String::as_str) {
            None | Some("") => Ok(PORT),
            Some(port) => port
                .parse()
                .map_err(|_| format!("has the port {port:?}: write a number up to 65535")),
        }
    };
    let hosts = names.into_iter().enumerate().map(|(index, host)| {
        if host.is_empty() {
            return Err("names a host without a name: write postgres://USER@HOST/DATABASE".into());
        }
        let address = addresses.get(index).filter(|address| !address.is_empty()).cloned();
        if let Some(address) = &address
            && address.parse::<std::net::IpAddr>().is_err()
        {
            return Err(format!("has the address {address:?}: write hostaddr=ADDRESS"));
        }
        Ok(PostgresHost { host, address, port: port(index)? })
    });
    hosts.collect()
}

fn decode(text: &str) -> Result<String, String> {
    let decoded = percent_decode_str(text).decode_utf8();
    Ok(decoded.map_err(|_| "holds what is no text: write its % signs as %25")?.into_owned())
}

/// Without the password.
impl fmt::Display for PostgresUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text(false))
    }
}

/// Without the password.
impl fmt::Debug for PostgresUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PostgresUrl").field(&self.to_string()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> PostgresUrl {
        text.parse().unwrap()
    }

    #[test]
    fn what_is_shown_is_the_same_database() {
        for text in [
            "postgres://db/jobs",
            "postgres://ann@db:5433/jobs",
            "postgres://ann@a,b:1,[::1]:2/jobs?sslmode=verify-full&schema=lead",
            "postgres://%2Frun%2Fpostgresql/jobs",
            "postgres://a,b/jobs?hostaddr=10.0.0.1%2C",
            "postgres://db",
        ] {
            assert_eq!(parsed(text).to_string(), text);
            assert_eq!(parsed(&parsed(text).with_password()), parsed(text));
        }
    }

    #[test]
    fn the_password_is_not_printed() {
        let url = parsed("postgresql://ann:a%40secret@db/jobs?connect_timeout=3");
        assert_eq!(url.password(), Some("a@secret"));
        for printed in [url.to_string(), format!("{url:?}")] {
            assert!(!printed.contains("secret") && printed.contains("ann@db"), "{printed}");
        }
        assert_eq!(parsed(&url.with_password()), url);
        let url = parsed("postgres://db/jobs?user=ann&password=secret");
        assert_eq!((url.user(), url.password()), (Some("ann"), Some("secret")));
    }

    #[test]
    fn hosts_can_be_options() {
        let url = parsed("postgres:///jobs?host=/run/postgresql,db&port=1,2");
        let hosts: Vec<_> = url.hosts().iter().map(PostgresHost::endpoint).collect();
        assert_eq!(hosts, ["/run/postgresql:1", "db:2"]);
        let url = parsed("postgres://a,b/jobs?port=7");
        assert!(url.hosts().iter().all(|host| host.port == 7));
    }

    #[test]
    fn each_fault_is_a_sentence_with_its_mend() {
        for (text, says) in [
            ("postgres:db", "postgres://USER@HOST/DATABASE"),
            ("postgres://", "names no host"),
            ("postgres://ann@/jobs", "names no host"),
            ("postgres://a,/jobs", "a host without a name"),
            ("postgres://db:x/jobs", "up to 65535"),
            ("postgres://db:70000/jobs", "up to 65535"),
            ("postgres://db/jobs?sslmod=require", "leave it out"),
            ("postgres://db/jobs?sslmode=on", "verify-full"),
            ("postgres://db/jobs?connect_timeout=soon", "connect_timeout=NUMBER"),
            ("postgres://db/jobs?target_session_attrs=standby", "read-write"),
            ("postgres://db/jobs?schema=", "schema=NAME"),
            ("postgres://db/jobs?schema=a.b", "schema=NAME"),
            ("postgres://db/jobs?schema=pg_x", "schema=NAME"),
            ("postgres://db/jobs?hostaddr=here", "hostaddr=ADDRESS"),
            ("postgres://a,b/jobs?hostaddr=10.0.0.1", "one for each"),
            ("postgres://ann:%ff@db/jobs", "%25"),
        ] {
            let fault = text.parse::<PostgresUrl>().unwrap_err().to_string();
            assert!(fault.contains(says), "{text}: {fault}");
            assert!(fault.starts_with("the store "), "{text}: {fault}");
        }
    }
}
