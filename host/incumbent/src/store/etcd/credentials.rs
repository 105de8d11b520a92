//! The credentials for etcd: the files and names that the user gives, and what is made of
//! them.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use etcd_client::{Certificate, Client, ConnectOptions, Identity, TlsOptions};

use super::error::ConnectError;
use super::failure::chain;

const CA: &str = "CA certificate (--cacert)";
const CERT: &str = "certificate (--cert)";
const KEY: &str = "key (--key)";
const PASSWORD: &str = "password file (--password-file)";

/// The certificates and the user that etcd lets in.
///
/// The files are read again when they change: new contents are taken up while the store is in
/// use, within seconds, and no leadership is lost. If they cannot be used, or etcd refuses
/// them, a warning is logged, and the store goes on with the old ones.
#[non_exhaustive]
#[derive(Default, Clone)]
pub struct Credentials {
    /// The authorities that signed etcd's certificate: a PEM file. The system's authorities
    /// unless given.
    pub ca: Option<PathBuf>,
    /// Our own certificate: a PEM file. Goes with `key`.
    pub cert: Option<PathBuf>,
    /// The key of our own certificate: a PEM file.
    pub key: Option<PathBuf>,
    /// The user to log in as. Goes with `password`, or `password_file`.
    pub user: Option<String>,
    /// The user's password.
    pub password: Option<String>,
    /// In place of `password`: a file whose first line is the user's password.
    pub password_file: Option<PathBuf>,
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
            .field("password_file", &self.password_file)
            .finish()
    }
}

impl Credentials {
    /// Whether its parts go together, with and without TLS.
    pub(super) fn check(&self, with_tls: bool) -> Result<(), ConnectError> {
        if !with_tls && (self.ca.is_some() || self.cert.is_some() || self.key.is_some()) {
            return Err(ConnectError::Mismatched(
                "certificates (--cacert, --cert, --key) are of use with TLS only: \
                 write etcds:// in place of etcd:// in --store, or leave them out",
            ));
        }
        if self.cert.is_some() != self.key.is_some() {
            return Err(ConnectError::Mismatched(
                "a certificate goes with its key: give both --cert and --key, or neither",
            ));
        }
        if self.password.is_some() && self.password_file.is_some() {
            return Err(ConnectError::Mismatched(
                "there is a password, and a file with one (--password-file): give one of them",
            ));
        }
        if self.user.is_some() != (self.password.is_some() || self.password_file.is_some()) {
            return Err(ConnectError::Mismatched(
                "a user goes with a password: give both --user and --password-file, or neither",
            ));
        }
        Ok(())
    }

    /// Whether any part is in a file, which may change.
    pub(super) fn have_files(&self) -> bool {
        [&self.ca, &self.cert, &self.key, &self.password_file].into_iter().any(Option::is_some)
    }
}

/// The files that the credentials name, as they were at one time. It holds secrets:
/// no `Debug`.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Files {
    ca: Option<Vec<u8>>,
    cert: Option<Vec<u8>>,
    key: Option<Vec<u8>>,
    password: Option<Vec<u8>>,
}

impl Files {
    pub(super) async fn read(credentials: &Credentials) -> Result<Self, ConnectError> {
        Ok(Self {
            ca: read(CA, credentials.ca.as_deref()).await?,
            cert: read(CERT, credentials.cert.as_deref()).await?,
            key: read(KEY, credentials.key.as_deref()).await?,
            password: read(PASSWORD, credentials.password_file.as_deref()).await?,
        })
    }

    /// The CA's certificates, and our own, in PEM form.
    pub(super) fn certificates(&self) -> (Option<&[u8]>, Option<&[u8]>) {
        (self.ca.as_deref(), self.cert.as_deref())
    }

    /// The key of our own certificate, in PEM form.
    pub(super) fn key(&self) -> Option<&[u8]> {
        self.key.as_deref()
    }
}

/// What connections are made with. It holds secrets: no `Debug`.
pub(super) struct Secrets {
    pub(super) tls: Option<TlsOptions>,
    /// Name and password.
    pub(super) user: Option<(String, String)>,
    /// The files that it was made of.
    pub(super) files: Files,
}

impl Secrets {
    /// Fails if TLS cannot be made of the files, or if a password is missing.
    pub(super) async fn new(
        credentials: &Credentials,
        with_tls: bool,
        files: Files,
    ) -> Result<Self, ConnectError> {
        let tls = if with_tls { Some(tls(credentials, &files).await?) } else { None };
        let user = user(credentials, &files)?;
        Ok(Self { tls, user, files })
    }
}

async fn tls(credentials: &Credentials, files: &Files) -> Result<TlsOptions, ConnectError> {
    let options = TlsOptions::new();
    let options = match (&credentials.ca, &files.ca) {
        (Some(path), Some(pem)) => {
            contains(CA, path, pem, "CERTIFICATE")?;
            let options = options.ca_certificate(Certificate::from_pem(pem));
            usable(&options).await.map_err(|reason| unusable(CA, path, reason))?;
            options
        }
        _ => {
            let options = options.with_native_roots();
            usable(&options).await.map_err(|_| {
                ConnectError::Mismatched(
                    "this machine knows no certificate authorities: give etcd's with --cacert",
                )
            })?;
            options
        }
    };
    let (Some(cert), Some(key)) = (&credentials.cert, &credentials.key) else {
        return Ok(options);
    };
    let (Some(certificate), Some(private_key)) = (&files.cert, &files.key) else {
        return Ok(options);
    };
    contains(CERT, cert, certificate, "CERTIFICATE")?;
    contains(KEY, key, private_key, "PRIVATE KEY")?;
    let options = options.identity(Identity::from_pem(certificate, private_key));
    usable(&options).await.map_err(|reason| {
        if reason.contains("key") {
            unusable(KEY, key, reason)
        } else {
            unusable(CERT, cert, reason)
        }
    })?;
    Ok(options)
}

/// Fails with a reason if TLS cannot be made of these options.
async fn usable(options: &TlsOptions) -> Result<(), String> {
    let options = ConnectOptions::new().with_tls(options.clone());
    // Without a user it builds the TLS configuration, and does not connect.
    match Client::connect(["https://localhost"], Some(options)).await {
        Ok(_) => Ok(()),
        Err(error) => Err(chain(&error)),
    }
}

fn user(
    credentials: &Credentials,
    files: &Files,
) -> Result<Option<(String, String)>, ConnectError> {
    let Some(name) = &credentials.user else {
        return Ok(None);
    };
    let password = match (&credentials.password_file, &files.password) {
        (Some(path), Some(bytes)) => {
            let text = str::from_utf8(bytes)
                .map_err(|_| unusable(PASSWORD, path, "it is no text (UTF-8)".into()))?;
            let line = text.lines().next().filter(|line| !line.is_empty());
            line.map(ToOwned::to_owned).ok_or_else(|| {
                unusable(PASSWORD, path, "its first line is empty: write the password there".into())
            })?
        }
        _ => credentials.password.clone().unwrap_or_default(),
    };
    Ok(Some((name.clone(), password)))
}

async fn read(what: &'static str, path: Option<&Path>) -> Result<Option<Vec<u8>>, ConnectError> {
    let Some(path) = path else {
        return Ok(None);
    };
    let unreadable =
        |source: io::Error| ConnectError::Unreadable { what, path: path.into(), source };
    Ok(Some(tokio::fs::read(path).await.map_err(unreadable)?))
}

/// Whether the file holds at least one object of this kind.
fn contains(what: &'static str, path: &Path, pem: &[u8], kind: &str) -> Result<(), ConnectError> {
    let text = String::from_utf8_lossy(pem);
    let holds = text.lines().any(|line| {
        line.starts_with("-----BEGIN ") && line.trim_end().ends_with(&format!("{kind}-----"))
    });
    if holds {
        Ok(())
    } else {
        Err(unusable(what, path, format!("it holds no {kind} in PEM form")))
    }
}

fn unusable(what: &'static str, path: &Path, reason: String) -> ConnectError {
    ConnectError::Unusable { what, path: path.to_owned(), reason }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Credentials with a part for each letter: CA, certificate, key, user, password, file.
    fn with(parts: &str) -> Credentials {
        let path = |letter| parts.contains(letter).then(|| PathBuf::from("there"));
        let text = |letter| parts.contains(letter).then(|| "secret".to_owned());
        Credentials {
            ca: path('a'),
            cert: path('c'),
            key: path('k'),
            user: text('u'),
            password: text('p'),
            password_file: path('f'),
        }
    }

    #[test]
    fn parts_that_do_not_go_together_are_refused() {
        let without_tls = [
            ("", ""),
            ("a", "etcds://"),
            ("c", "etcds://"),
            ("k", "etcds://"),
            ("ck", "etcds://"),
            ("u", "a user goes with a password"),
            ("p", "a user goes with a password"),
            ("f", "a user goes with a password"),
            ("up", ""),
            ("uf", ""),
            ("upf", "give one of them"),
        ];
        let with_tls = [
            ("", ""),
            ("a", ""),
            ("c", "a certificate goes with its key"),
            ("k", "a certificate goes with its key"),
            ("ack", ""),
            ("ckuf", ""),
        ];
        let cases = without_tls.map(|case| (false, case)).into_iter();
        for (tls, (parts, refusal)) in cases.chain(with_tls.map(|case| (true, case))) {
            match with(parts).check(tls) {
                Ok(()) => assert_eq!(refusal, "", "{parts}, {tls}"),
                Err(error) => {
                    let error = error.to_string();
                    assert!(!refusal.is_empty() && error.contains(refusal), "{parts}: {error}");
                }
            }
        }
    }

    #[test]
    fn only_files_can_change() {
        for parts in ["a", "c", "k", "f"] {
            assert!(with(parts).have_files(), "{parts}");
        }
        assert!(!with("up").have_files());
    }

    #[test]
    fn a_file_without_an_object_of_its_kind_is_refused() {
        let holds = |pem: &str| contains(CERT, Path::new("there"), pem.as_bytes(), "CERTIFICATE");
        assert!(holds("of example.com\n-----BEGIN CERTIFICATE-----\r\nMII").is_ok());
        for other in ["", "-----BEGIN PRIVATE KEY-----\nMII", "a CERTIFICATE-----\n"] {
            let error = holds(other).expect_err(other).to_string();
            assert!(error.contains("holds no CERTIFICATE"), "{error}");
        }
    }

    #[test]
    fn the_password_is_not_printed() {
        let printed = format!("{:?}", Credentials { user: Some("ann".into()), ..with("p") });
        assert!(printed.contains("ann") && !printed.contains("secret"), "{printed}");
    }
}
