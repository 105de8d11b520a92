//! Why a connection failed: a second attempt, made by hand, for an error that says what
//! to correct.

use std::sync::Arc;
use std::time::Duration;

use etcd_client::Error;
use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, ClientConfig, RootCertStore};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::{TlsConnector, rustls};

use super::access::Access;
use super::failure::{chain, failure, is_from_another_service, tls_objection};
use crate::explained::Explained;
use crate::store::connect_error::ConnectError;
use crate::store::credentials::Files;
use crate::types::Failure;

/// How long each attempt may take.
const TIMEOUT: Duration = Duration::from_secs(1);

/// Why the member at this address did not let us in. Takes 2 s at most.
pub(super) async fn objection(address: &str, access: &Access, error: Error) -> ConnectError {
    if is_from_another_service(&error) {
        return ConnectError::not_an_etcd(address, "it speaks HTTP/2, but not etcd's services");
    }
    let said = chain(&error);
    let tls = tls_objection(&error).cloned();
    match failure(&error) {
        Failure::Denied(text) if text.contains("user name is empty") => {
            let wants =
                "it wants a user: give `user` (--user) and `password_file` (--password-file)";
            ConnectError::refused(address, Explained::new(wants, error))
        }
        Failure::Denied(text) => {
            let check =
                format!("{text}: check `user` (--user) and `password_file` (--password-file)");
            ConnectError::refused(address, Explained::new(check, error))
        }
        Failure::Unavailable if said.contains("etcdserver:") => {
            ConnectError::unreachable("etcd", address, Explained::new(said, error))
        }
        Failure::Unavailable => diagnose(address, access, tls).await,
        Failure::Timeout | Failure::Compacted(_) | Failure::Invalid(_) | Failure::Other(_) => {
            ConnectError::unreachable("etcd", address, Explained::new(said, error))
        }
    }
}

/// Why a member did not answer within this time.
pub(super) async fn silence(address: &str, within: Duration) -> ConnectError {
    let reason = match look(address).await {
        Look::Closed(reason) => reason,
        Look::Open | Look::SpeaksTls => {
            format!("it takes connections, but gave no answer within {within:.1?}").into()
        }
    };
    ConnectError::unreachable("etcd", address, reason)
}

/// Why a member took no connection, or closed it. `objection` is what TLS on our side found
/// wrong.
async fn diagnose(
    address: &str,
    access: &Access,
    objection: Option<rustls::Error>,
) -> ConnectError {
    let refused = |reason: &str| ConnectError::refused(address, reason);
    match objection {
        Some(rustls::Error::InvalidCertificate(fault)) => {
            let sentence = its_certificate(address, &fault);
            let error = rustls::Error::InvalidCertificate(fault);
            return ConnectError::refused(address, Explained::new(sentence, error));
        }
        Some(rustls::Error::AlertReceived(_)) => return refused(our_certificate(&access.files())),
        Some(_) | None => {}
    }
    match look(address).await {
        Look::Closed(reason) => ConnectError::unreachable("etcd", address, reason),
        // With TLS 1.3, a server's alert about our certificate comes after our side has
        // finished the handshake, and etcd-client does not see it.
        Look::SpeaksTls if access.with_tls => {
            let files = access.files();
            match shake_hands(address, &files).await {
                Some(rustls::Error::AlertReceived(_)) => refused(our_certificate(&files)),
                Some(_) | None => refused(
                    "it closes the connection after the TLS handshake: give a certificate that \
                     its CA has signed, as `cert` (--cert) and `key` (--key), unless it is no etcd",
                ),
            }
        }
        Look::SpeaksTls => refused("it speaks TLS: write etcds:// in place of etcd://"),
        Look::Open if access.with_tls => {
            refused("it does not speak TLS: write etcd:// in place of etcds://")
        }
        Look::Open => {
            ConnectError::not_an_etcd(address, "it takes connections, but speaks no gRPC")
        }
    }
}

/// What is wrong with etcd's certificate, with the remedy where an operator has one.
fn its_certificate(address: &str, fault: &CertificateError) -> String {
    use CertificateError as Fault;
    if matches!(fault, Fault::Expired | Fault::ExpiredContext { .. }) {
        "its certificate has expired: renew it, unless it is this machine's clock that is wrong"
            .into()
    } else if matches!(fault, Fault::NotValidYet | Fault::NotValidYetContext { .. }) {
        "its certificate is not valid yet: wait, unless it is this machine's clock that is wrong"
            .into()
    } else if matches!(fault, Fault::NotValidForName | Fault::NotValidForNameContext { .. }) {
        let host = host(address);
        format!(
            "its certificate is not for {host} ({fault}): name it in the store's URL (--store) as \
             it is there"
        )
    } else if matches!(fault, Fault::UnknownIssuer | Fault::BadSignature) {
        // A CA of the right name, but with another key, gives a bad signature.
        "its certificate is signed by nobody that we trust: give the CA that signed it as \
         `ca` (--cacert)"
            .into()
    } else {
        format!(
            "its certificate cannot be trusted ({fault}): give the CA that signed it as `ca` \
             (--cacert)"
        )
    }
}

/// What etcd finds wrong with our certificate. Not all versions say.
fn our_certificate(files: &Files) -> &'static str {
    match &files.cert {
        None => {
            "it wants a certificate of ours: give one that its CA has signed, as `cert` (--cert) \
             and `key` (--key)"
        }
        Some(cert) if has_expired(&cert.bytes) => {
            "our certificate `cert` (--cert) has expired: renew it"
        }
        Some(_) => {
            "it does not take our certificate: give one that its CA has signed, for clients, as \
             `cert` (--cert) and `key` (--key)"
        }
    }
}

/// Whether the first certificate has expired.
fn has_expired(pem: &[u8]) -> bool {
    let Ok(certificate) = CertificateDer::from_pem_slice(pem) else {
        return false;
    };
    let Ok(certificate) = ParsedCertificate::try_from(&certificate) else {
        return false;
    };
    // No authority is given, but the dates are verified first.
    let verdict = verify_server_cert_signed_by_trust_anchor(
        &certificate,
        &RootCertStore::empty(),
        &[],
        UnixTime::now(),
        provider().signature_verification_algorithms.all,
    );
    matches!(
        verdict,
        Err(rustls::Error::InvalidCertificate(
            CertificateError::Expired | CertificateError::ExpiredContext { .. }
        ))
    )
}

/// What an address answers.
enum Look {
    /// It takes no connection, and why.
    Closed(Box<dyn std::error::Error + Send + Sync>),
    Open,
    SpeaksTls,
}

/// Connects once more by hand, and sends a broken TLS record: every TLS server answers it
/// with an alert, and no other server does.
async fn look(address: &str) -> Look {
    // A record that announces a ClientHello, and holds none.
    const BROKEN_HELLO: [u8; 9] = [0x16, 3, 1, 0, 4, 1, 0, 0, 0];
    const ALERT: u8 = 0x15;
    let mut stream = match timeout(TIMEOUT, TcpStream::connect(address)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => return Look::Closed(error.into()),
        Err(_) => return Look::Closed("it does not take connections".into()),
    };
    let mut answer = [0; 2];
    let objection = timeout(TIMEOUT, async {
        stream.write_all(&BROKEN_HELLO).await?;
        stream.read_exact(&mut answer).await
    });
    match objection.await {
        Ok(Ok(_)) if answer == [ALERT, 3] => Look::SpeaksTls,
        Ok(_) | Err(_) => Look::Open,
    }
}

/// Shakes hands in TLS, and waits for the server's alert. None without an alert, or
/// without a CA of our own.
async fn shake_hands(address: &str, files: &Files) -> Option<rustls::Error> {
    let config = config(files)?;
    let name = ServerName::try_from(host(address).to_owned()).ok()?;
    let objection = timeout(TIMEOUT, async {
        let stream = TcpStream::connect(address).await?;
        let mut stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await?;
        stream.read_u8().await
    });
    let error = objection.await.ok()?.err()?;
    error.get_ref().and_then(|inside| inside.downcast_ref()).cloned()
}

fn config(files: &Files) -> Option<ClientConfig> {
    let mut roots = RootCertStore::empty();
    for ca in CertificateDer::pem_slice_iter(&files.ca.as_ref()?.bytes) {
        // A bundle may hold certificates that rustls cannot use.
        let _ = roots.add(ca.ok()?);
    }
    let config = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .ok()?
        .with_root_certificates(roots);
    let mut config = match (&files.cert, &files.key) {
        (Some(cert), Some(key)) => {
            let chain = CertificateDer::pem_slice_iter(&cert.bytes).collect::<Result<_, _>>();
            let key = PrivateKeyDer::from_pem_slice(&key.bytes).ok()?;
            config.with_client_auth_cert(chain.ok()?, key).ok()?
        }
        (_, None) | (None, _) => config.with_no_client_auth(),
    };
    config.alpn_protocols.push(b"h2".into());
    Some(config)
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

/// The host of `HOST:PORT`, an IPv6 address without its brackets.
fn host(address: &str) -> &str {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    host.trim_start_matches('[').trim_end_matches(']')
}
