//! Credentials, and the proof that an etcd answers.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use etcd_client::{Certificate, Client, ConnectOptions, Identity, TlsOptions};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};

use super::endpoints::{Access, Endpoint, Endpoints};
use super::failure::{chain, failure, is_from_another_service};
use super::keyspace::Keyspace;
use crate::store::url::StoreUrl;
use crate::types::Failure;

/// How long to look for the reason why nothing came of a connection.
const DIAGNOSIS: Duration = Duration::from_secs(1);

/// What etcd is shown to be let in.
#[non_exhaustive]
#[derive(Default, Clone)]
pub struct Credentials {
    /// Who vouches for etcd's certificate: a PEM file. The system's authorities
    /// unless given.
    pub ca: Option<PathBuf>,
    /// Our own certificate: a PEM file. Goes with `key`.
    pub cert: Option<PathBuf>,
    /// The key of our own certificate: a PEM file.
    pub key: Option<PathBuf>,
    /// The user to log in as. Goes with `password`.
    pub user: Option<String>,
    /// The user's password.
    pub password: Option<String>,
}

/// Without the password.
impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials")
            .field("ca", &self.ca)
            .field("cert", &self.cert)
            .field("key", &self.key)
            .field("user", &self.user)
            .field("password", &self.password.as_ref().map(|_| "…"))
            .finish()
    }
}

/// Why there is no connection to an etcd: one sentence each, which says what to
/// do about it.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// A certificate or key cannot be read.
    #[error("the {what} {} cannot be read: {source}", path.display())]
    Unreadable {
        /// Which one, and its flag.
        what: &'static str,
        /// Where it was looked for.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// A certificate or key is none.
    #[error("the {what} {} cannot be used: {reason}", path.display())]
    Unusable {
        /// Which one, and its flag.
        what: &'static str,
        /// Where it is.
        path: PathBuf,
        /// Why not.
        reason: String,
    },
    /// The credentials do not go together.
    #[error("{0}")]
    Mismatched(&'static str),
    /// Nothing answers in time.
    #[error("no etcd answers at {endpoint} ({reason}): is it running, and is --store right?")]
    Unreachable {
        /// `HOST:PORT`
        endpoint: String,
        /// What happened.
        reason: String,
    },
    /// There is something, but it does not let us in.
    #[error("{endpoint} refuses the connection: {reason}")]
    Refused {
        /// `HOST:PORT`
        endpoint: String,
        /// What is wrong, and what to do.
        reason: String,
    },
    /// Something answers, and it is no etcd.
    #[error("what answers at {endpoint} is no etcd ({reason}): is --store right?")]
    NotAnEtcd {
        /// `HOST:PORT`
        endpoint: String,
        /// What gave it away.
        reason: String,
    },
}

impl ConnectError {
    /// Whether it is wrong as it was asked for, so that no store was tried.
    pub fn is_configuration(&self) -> bool {
        match self {
            Self::Unreadable { .. } | Self::Unusable { .. } | Self::Mismatched(_) => true,
            Self::Unreachable { .. } | Self::Refused { .. } | Self::NotAnEtcd { .. } => false,
        }
    }
}

/// Tries one member after the other, each with its share of the time.
pub(super) async fn connect(
    url: &StoreUrl,
    credentials: &Credentials,
    keyspace: &Keyspace,
    dial_timeout: Duration,
) -> Result<Endpoints, ConnectError> {
    let access =
        Access { tls: tls(url, credentials).await?, user: user(credentials)?, dial_timeout };
    let all: Vec<_> = url
        .endpoints()
        .iter()
        .map(|address| Arc::new(Endpoint::new(address, access.clone())))
        .collect();
    // No deadline: a very long time-out ends beyond what an instant can hold.
    let start = Instant::now();
    let mut telling: Option<ConnectError> = None;
    for (left, endpoint) in (1..=all.len()).rev().zip(&all) {
        let remaining = dial_timeout.saturating_sub(start.elapsed());
        let share = remaining / u32::try_from(left).unwrap_or(u32::MAX);
        match try_member(endpoint, keyspace, share).await {
            Ok(()) => return Ok(Endpoints::new(all.clone(), Arc::clone(endpoint))),
            Err(error) => {
                tracing::debug!(%error, "etcd member not connected");
                // A member that refuses tells more than one that is not there.
                if matches!(telling, None | Some(ConnectError::Unreachable { .. })) {
                    telling = Some(error);
                }
            }
        }
    }
    Err(telling.unwrap_or(ConnectError::Mismatched("the store URL names no host")))
}

/// Whether this member is an etcd that lets us in.
async fn try_member(
    endpoint: &Endpoint,
    keyspace: &Keyspace,
    within: Duration,
) -> Result<(), ConnectError> {
    // A key that everyone who uses this store is allowed to read, if any, and
    // that is not there.
    let mut key = keyspace.wire(b"");
    if key.is_empty() {
        key.push(0);
    }
    let answer = timeout(within, async {
        let client = endpoint.client().await?;
        client.kv_client().get(key, None).await
    });
    let error = match answer.await {
        Ok(Ok(_)) => return Ok(()),
        Ok(Err(error)) => error,
        Err(_) => {
            let reason = match look(endpoint.address()).await {
                Look::Closed(reason) => reason,
                Look::Open | Look::SpeaksTls => {
                    format!("it takes connections, but gave no answer within {within:.1?}")
                }
            };
            return Err(unreachable(endpoint, reason));
        }
    };
    if is_from_another_service(&error) {
        return Err(not_an_etcd(endpoint, "it speaks HTTP/2, but not etcd's services"));
    }
    let said = chain(&error);
    match failure(error) {
        // Not this key, but the etcd is there and knows us.
        Failure::Denied(text) if text.contains("permission denied") => Ok(()),
        Failure::Denied(text) if text.contains("user name is empty") => {
            Err(refused(endpoint, "it wants a user: give --user and --password-file"))
        }
        Failure::Denied(text) => {
            Err(refused(endpoint, &format!("{text}: check --user and --password-file")))
        }
        Failure::Unavailable => Err(explain(endpoint, &said).await),
        Failure::Timeout | Failure::Compacted(_) | Failure::Invalid(_) | Failure::Other(_) => {
            Err(unreachable(endpoint, said))
        }
    }
}

/// Why a connection came to nothing.
async fn explain(endpoint: &Endpoint, said: &str) -> ConnectError {
    let tls = endpoint.access().tls.is_some();
    if tls && said.contains("invalid peer certificate") {
        let reason = format!(
            "its certificate is not to be trusted ({}): \
             give the CA that signed it with --cacert, and the host by a name that is in it",
            last(said)
        );
        return refused(endpoint, &reason);
    }
    if tls && said.contains("fatal alert") {
        let reason = format!(
            "it does not take our certificate ({}): \
             give one that its CA has signed with --cert and --key",
            last(said)
        );
        return refused(endpoint, &reason);
    }
    if said.contains("etcdserver:") {
        return unreachable(endpoint, said.to_owned());
    }
    match look(endpoint.address()).await {
        Look::Closed(reason) => unreachable(endpoint, reason),
        // With TLS 1.3, what a server has against a client comes when the client
        // takes the connection for made, and is lost on the way.
        Look::SpeaksTls if tls => refused(
            endpoint,
            "it closes the connection after the TLS handshake: give a certificate that its CA \
             has signed with --cert and --key, unless it is no etcd",
        ),
        Look::SpeaksTls => refused(endpoint, "it speaks TLS: write etcds:// in place of etcd://"),
        Look::Open if tls => {
            refused(endpoint, "it does not speak TLS: write etcd:// in place of etcds://")
        }
        Look::Open => not_an_etcd(endpoint, "it takes connections, but speaks no gRPC"),
    }
}

/// What there is at an address.
enum Look {
    /// No connection, and why.
    Closed(String),
    Open,
    SpeaksTls,
}

/// Connects once more by hand, and says something that any TLS server objects to
/// in TLS, and no other.
async fn look(address: &str) -> Look {
    // A record that claims to hold a ClientHello, and holds nothing of one.
    const BROKEN_HELLO: [u8; 9] = [0x16, 3, 1, 0, 4, 1, 0, 0, 0];
    const ALERT: u8 = 0x15;
    let mut stream = match timeout(DIAGNOSIS, TcpStream::connect(address)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => return Look::Closed(error.to_string()),
        Err(_) => return Look::Closed("it does not take connections".into()),
    };
    let mut answer = [0; 2];
    let objection = timeout(DIAGNOSIS, async {
        stream.write_all(&BROKEN_HELLO).await?;
        stream.read_exact(&mut answer).await
    });
    match objection.await {
        Ok(Ok(_)) if answer == [ALERT, 3] => Look::SpeaksTls,
        Ok(_) | Err(_) => Look::Open,
    }
}

fn unreachable(endpoint: &Endpoint, reason: String) -> ConnectError {
    ConnectError::Unreachable { endpoint: endpoint.address().to_owned(), reason }
}

fn refused(endpoint: &Endpoint, reason: &str) -> ConnectError {
    ConnectError::Refused { endpoint: endpoint.address().to_owned(), reason: reason.to_owned() }
}

fn not_an_etcd(endpoint: &Endpoint, reason: &str) -> ConnectError {
    ConnectError::NotAnEtcd { endpoint: endpoint.address().to_owned(), reason: reason.to_owned() }
}

/// What is at the bottom of a chain of errors.
fn last(chain: &str) -> &str {
    match chain.rfind(": ") {
        Some(at) => chain.get(at + 2..).unwrap_or(chain),
        None => chain,
    }
}

const CA: &str = "CA certificate (--cacert)";
const CERT: &str = "certificate (--cert)";
const KEY: &str = "key (--key)";

async fn tls(
    url: &StoreUrl,
    credentials: &Credentials,
) -> Result<Option<TlsOptions>, ConnectError> {
    let Credentials { ca, cert, key, .. } = credentials;
    if !url.tls() {
        if ca.is_some() || cert.is_some() || key.is_some() {
            return Err(ConnectError::Mismatched(
                "certificates (--cacert, --cert, --key) are of use with TLS only: \
                 write etcds:// in place of etcd:// in --store, or leave them out",
            ));
        }
        return Ok(None);
    }
    let mut options = TlsOptions::new();
    options = match ca {
        Some(path) => {
            let pem = pem(CA, path, "CERTIFICATE").await?;
            let options = options.ca_certificate(Certificate::from_pem(pem));
            usable(&options).await.map_err(|reason| unusable(CA, path, reason))?;
            options
        }
        None => {
            let options = options.with_native_roots();
            usable(&options).await.map_err(|_| {
                ConnectError::Mismatched(
                    "this machine knows no certificate authorities: give etcd's with --cacert",
                )
            })?;
            options
        }
    };
    match (cert, key) {
        (Some(cert), Some(key)) => {
            let certificate = pem(CERT, cert, "CERTIFICATE").await?;
            let private_key = pem(KEY, key, "PRIVATE KEY").await?;
            options = options.identity(Identity::from_pem(certificate, private_key));
            usable(&options).await.map_err(|reason| {
                if reason.contains("key") {
                    unusable(KEY, key, reason)
                } else {
                    unusable(CERT, cert, reason)
                }
            })?;
        }
        (None, None) => {}
        (Some(_), None) | (None, Some(_)) => {
            return Err(ConnectError::Mismatched(
                "a certificate goes with its key: give both --cert and --key, or neither",
            ));
        }
    }
    Ok(Some(options))
}

/// Whether TLS can be made of this, or what it does not like.
async fn usable(options: &TlsOptions) -> Result<(), String> {
    let options = ConnectOptions::new().with_tls(options.clone());
    // Without a user there is nothing that it would connect for.
    match Client::connect(["https://localhost"], Some(options)).await {
        Ok(_) => Ok(()),
        Err(error) => Err(chain(&error)),
    }
}

fn user(credentials: &Credentials) -> Result<Option<(String, String)>, ConnectError> {
    match (&credentials.user, &credentials.password) {
        (Some(name), Some(password)) => Ok(Some((name.clone(), password.clone()))),
        (None, None) => Ok(None),
        (Some(_), None) | (None, Some(_)) => Err(ConnectError::Mismatched(
            "a user goes with a password: give both --user and --password-file, or neither",
        )),
    }
}

/// A file that holds at least one object of this kind.
async fn pem(what: &'static str, path: &Path, kind: &str) -> Result<Vec<u8>, ConnectError> {
    let bytes = tokio::fs::read(path).await.map_err(|source| ConnectError::Unreadable {
        what,
        path: path.to_owned(),
        source,
    })?;
    let text = String::from_utf8_lossy(&bytes);
    let holds = text.lines().any(|line| {
        line.starts_with("-----BEGIN ") && line.trim_end().ends_with(&format!("{kind}-----"))
    });
    if holds {
        Ok(bytes)
    } else {
        let reason = format!("it holds no {kind} in PEM form");
        Err(unusable(what, path, reason))
    }
}

fn unusable(what: &'static str, path: &Path, reason: String) -> ConnectError {
    ConnectError::Unusable { what, path: path.to_owned(), reason }
}
