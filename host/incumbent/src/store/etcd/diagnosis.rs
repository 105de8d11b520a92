//! Why nothing came of a connection: another look by hand, for a sentence that
//! says what to mend.

use std::sync::Arc;
use std::time::Duration;

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

use super::connect::{ConnectError, not_an_etcd, refused, unreachable};
use super::credentials::Files;
use super::endpoints::Endpoint;

/// How long each look may take.
const PATIENCE: Duration = Duration::from_secs(1);

/// What is wrong with a member that did not answer within this time.
pub(super) async fn silence(endpoint: &Endpoint, within: Duration) -> ConnectError {
    match look(endpoint.address()).await {
        Look::Closed(reason) => unreachable(endpoint, reason),
        Look::Open | Look::SpeaksTls => unreachable(
            endpoint,
            format!("it takes connections, but gave no answer within {within:.1?}"),
        ),
    }
}

/// What is wrong with a member that was not connected to, or closed the
/// connection. `objection` is what TLS had against it on our side.
pub(super) async fn diagnose(
    endpoint: &Endpoint,
    objection: Option<rustls::Error>,
) -> ConnectError {
    match objection {
        Some(rustls::Error::InvalidCertificate(fault)) => {
            return refused(endpoint, its_certificate(endpoint, &fault));
        }
        Some(rustls::Error::AlertReceived(_)) => {
            return refused(endpoint, our_certificate(&endpoint.access().files()));
        }
        Some(_) | None => {}
    }
    let with_tls = endpoint.access().with_tls;
    match look(endpoint.address()).await {
        Look::Closed(reason) => unreachable(endpoint, reason),
        // With TLS 1.3, what a server has against a client comes when the client
        // takes the connection for made, and is lost on the way.
        Look::SpeaksTls if with_tls => {
            let files = endpoint.access().files();
            match shake_hands(endpoint.address(), &files).await {
                Some(rustls::Error::AlertReceived(_)) => refused(endpoint, our_certificate(&files)),
                Some(_) | None => refused(
                    endpoint,
                    "it closes the connection after the TLS handshake: give a certificate that \
                     its CA has signed with --cert and --key, unless it is no etcd",
                ),
            }
        }
        Look::SpeaksTls => refused(endpoint, "it speaks TLS: write etcds:// in place of etcd://"),
        Look::Open if with_tls => {
            refused(endpoint, "it does not speak TLS: write etcd:// in place of etcds://")
        }
        Look::Open => not_an_etcd(endpoint, "it takes connections, but speaks no gRPC"),
    }
}

/// What we have against etcd's certificate.
fn its_certificate(endpoint: &Endpoint, fault: &CertificateError) -> String {
    use CertificateError as Fault;
    // Named are those that an operator can do something about.
    if matches!(fault, Fault::Expired | Fault::ExpiredContext { .. }) {
        "its certificate has expired: renew it, unless it is this machine's clock that is wrong"
            .into()
    } else if matches!(fault, Fault::NotValidYet | Fault::NotValidYetContext { .. }) {
        "its certificate is not valid yet: wait, unless it is this machine's clock that is wrong"
            .into()
    } else if matches!(fault, Fault::NotValidForName | Fault::NotValidForNameContext { .. }) {
        let host = host(endpoint.address());
        format!("its certificate is not for {host} ({fault}): name it in --store as it is there")
    } else if matches!(fault, Fault::UnknownIssuer | Fault::BadSignature) {
        // The latter is what a CA of the right name comes to, with another key.
        "its certificate is signed by nobody that we trust: give the CA that signed it with \
         --cacert"
            .into()
    } else {
        format!(
            "its certificate is not to be trusted ({fault}): give the CA that signed it with \
             --cacert"
        )
    }
}

/// What etcd has against our certificate. Not all versions say.
fn our_certificate(files: &Files) -> &'static str {
    match files.certificates().1 {
        None => {
            "it wants a certificate of ours: give one that its CA has signed with --cert and --key"
        }
        Some(pem) if has_expired(pem) => "our certificate (--cert) has expired: renew it",
        Some(_) => {
            "it does not take our certificate: give one that its CA has signed, for clients, with \
             --cert and --key"
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
    // Nobody vouches for it here, which is found out after its dates.
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
    let mut stream = match timeout(PATIENCE, TcpStream::connect(address)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => return Look::Closed(error.to_string()),
        Err(_) => return Look::Closed("it does not take connections".into()),
    };
    let mut answer = [0; 2];
    let objection = timeout(PATIENCE, async {
        stream.write_all(&BROKEN_HELLO).await?;
        stream.read_exact(&mut answer).await
    });
    match objection.await {
        Ok(Ok(_)) if answer == [ALERT, 3] => Look::SpeaksTls,
        Ok(_) | Err(_) => Look::Open,
    }
}

/// Shakes hands in TLS, and waits for what the server has against us. None where
/// there is nothing, or without a CA of our own.
async fn shake_hands(address: &str, files: &Files) -> Option<rustls::Error> {
    let config = config(files)?;
    let name = ServerName::try_from(host(address).to_owned()).ok()?;
    let objection = timeout(PATIENCE, async {
        let stream = TcpStream::connect(address).await?;
        let mut stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await?;
        stream.read_u8().await
    });
    let error = objection.await.ok()?.err()?;
    error.get_ref().and_then(|inside| inside.downcast_ref()).cloned()
}

fn config(files: &Files) -> Option<ClientConfig> {
    let (ca, cert) = files.certificates();
    let mut roots = RootCertStore::empty();
    for ca in CertificateDer::pem_slice_iter(ca?) {
        // A bundle may hold what is of no use.
        let _ = roots.add(ca.ok()?);
    }
    let config = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .ok()?
        .with_root_certificates(roots);
    let mut config = match (cert, files.key()) {
        (Some(cert), Some(key)) => {
            let chain = CertificateDer::pem_slice_iter(cert).collect::<Result<_, _>>().ok()?;
            config.with_client_auth_cert(chain, PrivateKeyDer::from_pem_slice(key).ok()?).ok()?
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
