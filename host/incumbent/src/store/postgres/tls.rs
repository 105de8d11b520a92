//! TLS, as libpq's `sslmode` asks for it.

use std::sync::Arc;

use tokio_postgres::config::SslMode;
use tokio_postgres_rustls::MakeRustlsConnect;
use tokio_rustls::rustls::client::WebPkiServerVerifier;
use tokio_rustls::rustls::client::danger::{
    HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier,
};
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use tokio_rustls::rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
};

use crate::store::connect_error::ConnectError;
use crate::store::credentials::{Files, NamedFile};

/// What is asked of the server's certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Check {
    /// Nothing. This protects against listeners, but not against a server that pretends to be this one.
    Nothing,
    /// An authority that we know has signed it.
    Authority,
    /// And it is of this host.
    Host,
}

/// How to connect, by `sslmode` and the files. Without `sslmode`, a given authority stands for
/// `verify-full`; otherwise it is `prefer`, as in libpq.
pub(super) fn tls(
    mode: Option<&str>,
    files: &Files,
) -> Result<(SslMode, MakeRustlsConnect), ConnectError> {
    let has_authority = files.ca.is_some();
    let (mode, check) = match mode {
        Some("disable") => (SslMode::Disable, Check::Nothing),
        Some("verify-ca") => (SslMode::Require, Check::Authority),
        Some("verify-full") => (SslMode::Require, Check::Host),
        None if has_authority => (SslMode::Require, Check::Host),
        // Where an authority is known, libpq asks for it here as well.
        Some("require") if has_authority => (SslMode::Require, Check::Authority),
        Some("require") => (SslMode::Require, Check::Nothing),
        Some(_) | None => (SslMode::Prefer, Check::Nothing),
    };
    let provider = Arc::new(ring::default_provider());
    let verifier: Arc<dyn ServerCertVerifier> = match check {
        Check::Nothing => Arc::new(Lenient { inner: None, provider: Arc::clone(&provider) }),
        Check::Authority | Check::Host => {
            let roots = Arc::new(roots(files.ca.as_ref())?);
            let inner = WebPkiServerVerifier::builder_with_provider(roots, Arc::clone(&provider));
            let inner = inner.build().map_err(|_| no_authorities())?;
            if check == Check::Host {
                inner
            } else {
                Arc::new(Lenient { inner: Some(inner), provider: Arc::clone(&provider) })
            }
        }
    };
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|_| ConnectError::Mismatched("this build of the program speaks no TLS"))?
        .dangerous()
        .with_custom_certificate_verifier(verifier);
    let config = match (&files.cert, &files.key) {
        (Some(cert), Some(key)) => {
            let chain = certificates(cert)?;
            key.check("PRIVATE KEY")?;
            let found =
                PrivateKeyDer::from_pem_slice(&key.bytes).map_err(|error| key.unusable(error))?;
            config.with_client_auth_cert(chain, found).map_err(|error| cert.unusable(error))?
        }
        (Some(_), None) | (None, Some(_)) | (None, None) => config.with_no_client_auth(),
    };
    let mut config = config;
    // Servers that are spoken to at once, without a request for TLS, insist on it.
    config.alpn_protocols = vec![b"postgresql".to_vec()];
    Ok((mode, MakeRustlsConnect::new(config)))
}

fn roots(ca: Option<&NamedFile>) -> Result<RootCertStore, ConnectError> {
    let mut roots = RootCertStore::empty();
    match ca {
        Some(ca) => {
            for certificate in certificates(ca)? {
                roots.add(certificate).map_err(|error| ca.unusable(error))?;
            }
        }
        None => {
            let known = rustls_native_certs::load_native_certs();
            roots.add_parsable_certificates(known.certs);
        }
    }
    if roots.is_empty() { Err(no_authorities()) } else { Ok(roots) }
}

fn certificates(file: &NamedFile) -> Result<Vec<CertificateDer<'static>>, ConnectError> {
    file.check("CERTIFICATE")?;
    let found = CertificateDer::pem_slice_iter(&file.bytes).collect::<Result<Vec<_>, _>>();
    found.map_err(|error| file.unusable(error))
}

fn no_authorities() -> ConnectError {
    ConnectError::Mismatched(
        "this machine knows no certificate authorities: give the server's as `ca` (--cacert), or as \
         sslrootcert in the store's URL",
    )
}

/// Takes a certificate of any host, and one of any authority unless it has to ask `inner`.
#[derive(Debug)]
struct Lenient {
    inner: Option<Arc<WebPkiServerVerifier>>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Lenient {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let Some(inner) = &self.inner else { return Ok(ServerCertVerified::assertion()) };
        match inner.verify_server_cert(certificate, intermediates, name, ocsp, now) {
            Err(Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) => Ok(ServerCertVerified::assertion()),
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        tokio_rustls::rustls::crypto::verify_tls12_signature(
            message,
            certificate,
            signed,
            algorithms,
        )
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        tokio_rustls::rustls::crypto::verify_tls13_signature(
            message,
            certificate,
            signed,
            algorithms,
        )
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
