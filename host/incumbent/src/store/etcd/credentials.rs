//! The credentials for etcd: the files and names that the user gives, and what is made of
//! them.

use std::error::Error;
use std::fmt;
use std::path::PathBuf;

use etcd_client::{Certificate, Client, ConnectOptions, Identity, TlsOptions};

use super::error::ConnectError;
use super::failure::chain;
use crate::explained::Explained;

/// The certificates and the user that etcd lets in.
///
/// The files are read again when they change: new contents are taken up while the store is in
/// use, within seconds, and no leadership is lost. If they cannot be used, or etcd refuses
/// them, a warning is logged, and the store goes on with the old ones.
#[non_exhaustive]
#[derive(Clone, Default, PartialEq, Eq, Hash)]
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
                "certificates (`ca`, `cert`, `key`: --cacert, --cert, --key) are of use with TLS \
                 only: write etcds:// in place of etcd:// in the store's URL, or leave them out",
            ));
        }
        if self.cert.is_some() != self.key.is_some() {
            return Err(ConnectError::Mismatched(
                "a certificate goes with its key: give both `cert` (--cert) and `key` (--key), or \
                 neither",
            ));
        }
        if self.password.is_some() && self.password_file.is_some() {
            return Err(ConnectError::Mismatched(
                "there are both `password` and `password_file` (--password-file): give one of them",
            ));
        }
        if self.user.is_some() != (self.password.is_some() || self.password_file.is_some()) {
            return Err(ConnectError::Mismatched(
                "a user goes with a password: give both `user` (--user) and `password` or \
                 `password_file` (--password-file), or neither",
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
    pub(super) ca: Option<NamedFile>,
    pub(super) cert: Option<NamedFile>,
    pub(super) key: Option<NamedFile>,
    password: Option<NamedFile>,
}

impl Files {
    pub(super) async fn read(credentials: &Credentials) -> Result<Self, ConnectError> {
        let Credentials { ca, cert, key, password_file, .. } = credentials;
        Ok(Self {
            ca: NamedFile::read("CA certificate `ca` (--cacert)", ca.as_ref()).await?,
            cert: NamedFile::read("certificate `cert` (--cert)", cert.as_ref()).await?,
            key: NamedFile::read("private key `key` (--key)", key.as_ref()).await?,
            password: NamedFile::read("`password_file` (--password-file)", password_file.as_ref())
                .await?,
        })
    }
}

/// A file, and what it is for. It holds secrets: no `Debug`.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct NamedFile {
    what: &'static str,
    path: PathBuf,
    pub(super) bytes: Vec<u8>,
}

impl NamedFile {
    async fn read(
        what: &'static str,
        path: Option<&PathBuf>,
    ) -> Result<Option<Self>, ConnectError> {
        let Some(path) = path.cloned() else { return Ok(None) };
        match tokio::fs::read(&path).await {
            Ok(bytes) => Ok(Some(Self { what, path, bytes })),
            Err(source) => Err(ConnectError::Unreadable { what, path, source }),
        }
    }

    /// Fails unless the file holds at least one object of this kind.
    fn check(&self, kind: &str) -> Result<(), ConnectError> {
        let text = String::from_utf8_lossy(&self.bytes);
        let holds = text.lines().any(|line| {
            line.starts_with("-----BEGIN ") && line.trim_end().ends_with(&format!("{kind}-----"))
        });
        if holds { Ok(()) } else { Err(self.unusable(format!("it holds no {kind} in PEM form"))) }
    }

    fn unusable(&self, reason: impl Into<Box<dyn Error + Send + Sync>>) -> ConnectError {
        let (path, reason) = (self.path.clone(), reason.into());
        ConnectError::Unusable { what: self.what, path, reason }
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
        let tls = if with_tls { Some(tls(&files).await?) } else { None };
        let user = user(credentials, &files)?;
        Ok(Self { tls, user, files })
    }
}

async fn tls(files: &Files) -> Result<TlsOptions, ConnectError> {
    let options = TlsOptions::new();
    let options = match &files.ca {
        Some(ca) => {
            ca.check("CERTIFICATE")?;
            let options = options.ca_certificate(Certificate::from_pem(&ca.bytes));
            usable(&options).await.map_err(|reason| ca.unusable(reason))?;
            options
        }
        None => {
            let options = options.with_native_roots();
            usable(&options).await.map_err(|_| {
                ConnectError::Mismatched(
                    "this machine knows no certificate authorities: give etcd's as `ca` (--cacert)",
                )
            })?;
            options
        }
    };
    let (Some(cert), Some(key)) = (&files.cert, &files.key) else {
        return Ok(options);
    };
    cert.check("CERTIFICATE")?;
    key.check("PRIVATE KEY")?;
    let options = options.identity(Identity::from_pem(&cert.bytes, &key.bytes));
    usable(&options).await.map_err(|reason| {
        let wrong = if reason.to_string().contains("key") { key } else { cert };
        wrong.unusable(reason)
    })?;
    Ok(options)
}

/// Fails with a reason if TLS cannot be made of these options.
async fn usable(options: &TlsOptions) -> Result<(), Explained> {
    let options = ConnectOptions::new().with_tls(options.clone());
    // Without a user it builds the TLS configuration, and does not connect.
    let connected = Client::connect(["https://localhost"], Some(options)).await;
    connected.map(drop).map_err(|error| Explained::new(chain(&error), error))
}

fn user(
    credentials: &Credentials,
    files: &Files,
) -> Result<Option<(String, String)>, ConnectError> {
    let Some(name) = &credentials.user else {
        return Ok(None);
    };
    let password = match &files.password {
        Some(file) => {
            let text =
                str::from_utf8(&file.bytes).map_err(|_| file.unusable("it is no text (UTF-8)"))?;
            let line = text.lines().next().filter(|line| !line.is_empty());
            line.ok_or_else(|| file.unusable("its first line is empty: write the password there"))?
        }
        None => credentials.password.as_deref().unwrap_or_default(),
    };
    Ok(Some((name.clone(), password.to_owned())))
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
        let file = |pem: &str| NamedFile { what: "", path: "there".into(), bytes: pem.into() };
        let holds = |pem| file(pem).check("CERTIFICATE");
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
