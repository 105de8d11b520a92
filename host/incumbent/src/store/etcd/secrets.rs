//! The credentials for etcd, as its client takes them.

use etcd_client::{Certificate, Client, ConnectOptions, Identity, TlsOptions};

use super::failure::chain;
use crate::explained::Explained;
use crate::store::connect_error::ConnectError;
use crate::store::credentials::{Credentials, Files};

/// Whether the parts of the credentials go together, with and without TLS.
pub(super) fn check(credentials: &Credentials, with_tls: bool) -> Result<(), ConnectError> {
    credentials.check((!with_tls).then_some(
        "certificates (`ca`, `cert`, `key`: --cacert, --cert, --key) are of use with TLS only: \
         write etcds:// in place of etcd:// in the store's URL, or leave them out",
    ))?;
    let Credentials { user, password, password_file, .. } = credentials;
    if user.is_some() != (password.is_some() || password_file.is_some()) {
        return Err(ConnectError::Mismatched(
            "a user goes with a password: give both `user` (--user) and `password` or \
             `password_file` (--password-file), or neither",
        ));
    }
    Ok(())
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
    let password = credentials.password_of(files)?.unwrap_or_default();
    Ok(Some((name.clone(), password.to_owned())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::credentials::tests::with;

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
            match check(&with(parts), tls) {
                Ok(()) => assert_eq!(refusal, "", "{parts}, {tls}"),
                Err(error) => {
                    let error = error.to_string();
                    assert!(!refusal.is_empty() && error.contains(refusal), "{parts}: {error}");
                }
            }
        }
    }
}
