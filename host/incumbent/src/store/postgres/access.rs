//! How the servers are reached: one after the other, until one takes writes.
//!
//! The credentials' files are read for each connection, so new contents are taken up with the next
//! one. PostgreSQL keeps the connections that it has.

use std::fmt;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::mpsc::UnboundedSender;
use tokio::time::timeout;
use tokio_postgres::config::{ChannelBinding, SslMode, SslNegotiation, TargetSessionAttrs};
use tokio_postgres::{Client, Config};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::connection::drive;
use super::failure::objection;
use super::{passfile, tls};
use crate::store::connect_error::ConnectError;
use crate::store::credentials::{Credentials, Files};
use crate::store::url::{PostgresHost, PostgresUrl};

/// How long one of several servers may take before the next one is asked.
const EACH: Duration = Duration::from_secs(1);

/// What all connections have in common.
pub(super) struct Access {
    pub(super) url: PostgresUrl,
    credentials: Credentials,
    dial_timeout: Duration,
    /// Which server took writes last.
    serving: AtomicUsize,
}

impl Access {
    /// # Errors
    ///
    /// If the parts of the credentials do not go together.
    pub(super) fn new(
        url: &PostgresUrl,
        credentials: &Credentials,
        dial_timeout: Duration,
    ) -> Result<Self, ConnectError> {
        let option = |name| url.option(name).map(Into::into);
        let mut all = credentials.clone();
        // `system` are the machine's own authorities.
        let authority = option("sslrootcert").filter(|file| file != Path::new("system"));
        all.ca = all.ca.or(authority);
        if all.cert.is_none() && all.key.is_none() {
            (all.cert, all.key) = (option("sslcert"), option("sslkey"));
        }
        let plain = url.option("sslmode") == Some("disable");
        all.check(plain.then_some(
            "certificates (--cacert, --cert, --key, sslrootcert, sslcert, sslkey) are of use with \
             TLS only: write another sslmode than disable in the store's URL, or leave them out",
        ))?;
        if let (Some(one), Some(other)) = (&all.user, url.user())
            && one != other
        {
            return Err(ConnectError::Mismatched(
                "the store's URL names another user than `user` (--user): give one of them",
            ));
        }
        if url.password().is_some() && (all.password.is_some() || all.password_file.is_some()) {
            return Err(ConnectError::Mismatched(
                "the store's URL holds a password, and there is `password` or `password_file` \
                 (--password-file): give one of them",
            ));
        }
        all.user = all.user.or_else(|| url.user().map(str::to_owned));
        let begins_anywhere = url.option("load_balance_hosts") == Some("random");
        let first = if begins_anywhere { getrandom::u32().unwrap_or_default() } else { 0 };
        let serving = AtomicUsize::new(first as usize % url.hosts().len().max(1));
        Ok(Self { url: url.clone(), credentials: all, dial_timeout, serving })
    }

    /// Connects to the first server that takes writes, beginning with the one that did so last. Its
    /// notifications are told to `notified`.
    pub(super) async fn connect(
        &self,
        notified: Option<UnboundedSender<()>>,
    ) -> Result<Client, ConnectError> {
        let files = Files::read(&self.credentials).await?;
        let (ssl_mode, tls) = tls::tls(self.url.option("sslmode"), &files)?;
        let hosts = self.url.hosts();
        let each = if hosts.len() == 1 { self.dial_timeout } else { EACH.min(self.dial_timeout) };
        let first = self.serving.load(Ordering::Relaxed);
        let mut telling: Option<ConnectError> = None;
        for index in (0..hosts.len()).map(|number| (first + number) % hosts.len()) {
            let Some(host) = hosts.get(index) else { continue };
            let config = self.config(host, ssl_mode, &files).await?;
            match self.connect_to(&config, host, tls.clone(), each, notified.clone()).await {
                Ok(client) => {
                    self.serving.store(index, Ordering::Relaxed);
                    return Ok(client);
                }
                Err(error) => {
                    // A refusal tells more than silence.
                    if matches!(telling, None | Some(ConnectError::Unreachable { .. })) {
                        telling = Some(error);
                    }
                }
            }
        }
        Err(telling.unwrap_or(ConnectError::Mismatched("the store URL names no host")))
    }

    async fn connect_to(
        &self,
        config: &Config,
        host: &PostgresHost,
        tls: MakeRustlsConnect,
        within: Duration,
        notified: Option<UnboundedSender<()>>,
    ) -> Result<Client, ConnectError> {
        let endpoint = host.endpoint();
        match timeout(within, config.connect(tls)).await {
            Ok(Ok((client, connection))) => {
                tokio::spawn(drive(connection, notified));
                Ok(client)
            }
            Ok(Err(error)) => Err(objection(&self.url, &endpoint, config, error)),
            Err(_) => {
                let reason = format!("it gave no answer within {within:.1?}");
                Err(ConnectError::unreachable("PostgreSQL", &endpoint, reason))
            }
        }
    }

    /// What a connection to one server is made with.
    async fn config(
        &self,
        host: &PostgresHost,
        ssl_mode: SslMode,
        files: &Files,
    ) -> Result<Config, ConnectError> {
        let number = |name| self.url.option(name).and_then(|text| text.parse::<u32>().ok());
        let seconds = |name| number(name).map(|seconds| Duration::from_secs(seconds.into()));
        let mut config = Config::new();
        config.host(&host.host).port(host.port).ssl_mode(ssl_mode);
        if let Some(Ok(address)) = host.address.as_deref().map(str::parse) {
            config.hostaddr(address);
        }
        // As libpq: the user of the system.
        let user = self.credentials.user.clone().or_else(|| whoami::username().ok());
        let user = user.unwrap_or_default();
        config.user(&user);
        let database = self.url.database().unwrap_or(&user);
        config.dbname(database);
        let password = match self.credentials.password_of(files)?.or(self.url.password()) {
            Some(password) => Some(password.to_owned()),
            None => self.known_password(host, database, &user).await?,
        };
        if let Some(password) = password {
            config.password(password);
        }
        config.application_name(self.url.option("application_name").unwrap_or("incumbent"));
        if let Some(options) = self.url.option("options") {
            config.options(options);
        }
        config.connect_timeout(seconds("connect_timeout").unwrap_or(self.dial_timeout));
        // A server that has gone without a word is found out.
        config.tcp_user_timeout(
            number("tcp_user_timeout").map_or(self.dial_timeout, |milliseconds| {
                Duration::from_millis(milliseconds.into())
            }),
        );
        config.keepalives(self.url.option("keepalives") != Some("0"));
        config.keepalives_idle(seconds("keepalives_idle").unwrap_or(Duration::from_secs(5)));
        config.keepalives_interval(seconds("keepalives_interval").unwrap_or(EACH));
        config.keepalives_retries(number("keepalives_count").unwrap_or(5));
        config.target_session_attrs(TargetSessionAttrs::ReadWrite);
        config.channel_binding(match self.url.option("channel_binding") {
            Some("disable") => ChannelBinding::Disable,
            Some("require") => ChannelBinding::Require,
            Some(_) | None => ChannelBinding::Prefer,
        });
        if self.url.option("sslnegotiation") == Some("direct") {
            config.ssl_negotiation(SslNegotiation::Direct);
        }
        Ok(config)
    }

    /// The password in `PGPASSWORD`, or else in libpq's password file.
    async fn known_password(
        &self,
        host: &PostgresHost,
        database: &str,
        user: &str,
    ) -> Result<Option<String>, ConnectError> {
        if let Ok(password) = std::env::var("PGPASSWORD") {
            return Ok(Some(password));
        }
        let given = self.url.option("passfile");
        let Some(path) = passfile::place(given) else { return Ok(None) };
        match tokio::fs::read_to_string(&path).await {
            Ok(text) => {
                let name = if host.host.starts_with('/') { "localhost" } else { &host.host };
                Ok(passfile::find(&text, [name, &host.port.to_string(), database, user]))
            }
            Err(source) if given.is_some() => {
                Err(ConnectError::Unreadable { what: "passfile", path, source })
            }
            Err(_) => Ok(None),
        }
    }
}

/// Without the password.
impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Access").field(&self.url).finish()
    }
}
