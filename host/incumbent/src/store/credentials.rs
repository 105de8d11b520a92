//! The credentials for the servers of a store: the files and names that the user gives.

use std::error::Error;
use std::fmt;
use std::path::PathBuf;

use super::connect_error::ConnectError;

/// The certificates and the user that etcd or PostgreSQL lets in.
///
/// The files are read again when they change: new contents are taken up while the store is in
/// use, within seconds, and no leadership is lost. If they cannot be used, or are
/// refused, a warning is logged, and the store goes on with the old ones.
#[non_exhaustive]
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub struct Credentials {
    /// The authorities that signed the server's certificate: a PEM file. The system's authorities
    /// unless given.
    pub ca: Option<PathBuf>,
    /// Our own certificate: a PEM file. Goes with `key`.
    pub cert: Option<PathBuf>,
    /// The key of our own certificate: a PEM file.
    pub key: Option<PathBuf>,
    /// The user to log in as. On etcd it goes with `password`, or `password_file`.
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
    /// Whether its parts go together. `plain` says how to ask for TLS where the URL does not.
    pub(crate) fn check(&self, plain: Option<&'static str>) -> Result<(), ConnectError> {
        let certificates = [&self.ca, &self.cert, &self.key];
        if let (Some(mend), true) = (plain, certificates.into_iter().any(Option::is_some)) {
            return Err(ConnectError::Mismatched(mend));
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
        Ok(())
    }

    /// Whether any part is in a file, which may change.
    #[cfg(feature = "etcd")]
    pub(crate) fn have_files(&self) -> bool {
        [&self.ca, &self.cert, &self.key, &self.password_file].into_iter().any(Option::is_some)
    }

    /// The password, from its file if it is in one.
    pub(crate) fn password_of<'a>(
        &'a self,
        files: &'a Files,
    ) -> Result<Option<&'a str>, ConnectError> {
        let Some(file) = &files.password else { return Ok(self.password.as_deref()) };
        let text =
            str::from_utf8(&file.bytes).map_err(|_| file.unusable("it is no text (UTF-8)"))?;
        match text.lines().next().filter(|line| !line.is_empty()) {
            Some(line) => Ok(Some(line)),
            None => Err(file.unusable("its first line is empty: write the password there")),
        }
    }
}

/// The files that the credentials name, as they were at one time. It holds secrets:
/// no `Debug`.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Files {
    pub(crate) ca: Option<NamedFile>,
    pub(crate) cert: Option<NamedFile>,
    pub(crate) key: Option<NamedFile>,
    password: Option<NamedFile>,
}

impl Files {
    pub(crate) async fn read(credentials: &Credentials) -> Result<Self, ConnectError> {
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
pub(crate) struct NamedFile {
    what: &'static str,
    path: PathBuf,
    pub(crate) bytes: Vec<u8>,
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
    pub(crate) fn check(&self, kind: &str) -> Result<(), ConnectError> {
        let text = String::from_utf8_lossy(&self.bytes);
        let holds = text.lines().any(|line| {
            line.starts_with("-----BEGIN ") && line.trim_end().ends_with(&format!("{kind}-----"))
        });
        if holds { Ok(()) } else { Err(self.unusable(format!("it holds no {kind} in PEM form"))) }
    }

    pub(crate) fn unusable(&self, reason: impl Into<Box<dyn Error + Send + Sync>>) -> ConnectError {
        let (path, reason) = (self.path.clone(), reason.into());
        ConnectError::Unusable { what: self.what, path, reason }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Credentials with a part for each letter: CA, certificate, key, user, password, file.
    pub(crate) fn with(parts: &str) -> Credentials {
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
        for (parts, plain, refusal) in [
            ("", Some("ask for TLS"), ""),
            ("a", Some("ask for TLS"), "ask for TLS"),
            ("ck", Some("ask for TLS"), "ask for TLS"),
            ("ack", None, ""),
            ("c", None, "a certificate goes with its key"),
            ("k", None, "a certificate goes with its key"),
            ("upf", None, "give one of them"),
        ] {
            match with(parts).check(plain) {
                Ok(()) => assert_eq!(refusal, "", "{parts}"),
                Err(error) => {
                    let error = error.to_string();
                    assert!(!refusal.is_empty() && error.contains(refusal), "{parts}: {error}");
                }
            }
        }
    }

    #[cfg(feature = "etcd")]
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
