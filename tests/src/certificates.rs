//! Certificates of the tests' own: authorities, and what they sign.

use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use incumbent::Credentials;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose, SanType, date_time_ymd,
};
use tempfile::TempDir;

/// The files that an etcd on this machine and one client of it want.
#[derive(Clone, Debug)]
pub struct Certificates {
    /// The CA's certificate.
    pub ca: PathBuf,
    /// etcd's, for 127.0.0.1 and localhost.
    pub server_cert: PathBuf,
    /// Its key.
    pub server_key: PathBuf,
    /// The client's.
    pub client_cert: PathBuf,
    /// Its key.
    pub client_key: PathBuf,
    /// Where all of them are, until nobody has them any more.
    _directory: Arc<TempDir>,
}

impl Certificates {
    /// Makes them, with a CA that nobody needs any more.
    pub fn make() -> Self {
        Authority::new("test-ca").certificates()
    }

    /// What a client shows.
    pub fn credentials(&self) -> Credentials {
        let mut credentials = Credentials::default();
        credentials.ca = Some(self.ca.clone());
        credentials.cert = Some(self.client_cert.clone());
        credentials.key = Some(self.client_key.clone());
        credentials
    }
}

/// Who signs certificates.
#[derive(Debug)]
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

/// Which days a certificate is good for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Validity {
    /// All that a test may run on.
    Now,
    /// Long gone.
    Past,
}

impl Authority {
    /// A CA of this name, with a key of its own.
    pub fn new(name: &str) -> Self {
        let mut params = named(name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let issuer = CertifiedIssuer::self_signed(params, key()).expect("a CA");
        Self { issuer }
    }

    /// Its certificate, in PEM form.
    pub fn pem(&self) -> String {
        self.issuer.pem()
    }

    /// Signs for etcd and one client.
    pub fn certificates(&self) -> Certificates {
        let directory = TempDir::new().expect("a directory");
        let file = |name: &str| directory.path().join(name);
        let certificates = Certificates {
            ca: file("ca.pem"),
            server_cert: file("server.pem"),
            server_key: file("server.key"),
            client_cert: file("client.pem"),
            client_key: file("client.key"),
            _directory: Arc::new(directory),
        };
        fs::write(&certificates.ca, self.pem()).expect("a file");
        self.server(Validity::Now, true).write(&certificates.server_cert, &certificates.server_key);
        self.client(Validity::Now).write(&certificates.client_cert, &certificates.client_key);
        certificates
    }

    /// Signs for an etcd: on this machine, or of a name that this machine has not.
    pub fn server(&self, validity: Validity, is_here: bool) -> Signed {
        let mut params = named("server");
        params.subject_alt_names = if is_here {
            let localhost = "localhost".try_into().expect("a name");
            vec![SanType::IpAddress(IpAddr::V4(Ipv4Addr::LOCALHOST)), SanType::DnsName(localhost)]
        } else {
            vec![SanType::DnsName("etcd.example".try_into().expect("a name"))]
        };
        self.sign(params, validity)
    }

    /// Signs for a client.
    pub fn client(&self, validity: Validity) -> Signed {
        self.sign(named("client"), validity)
    }

    fn sign(&self, mut params: CertificateParams, validity: Validity) -> Signed {
        // etcd is a client of its own, with its server's certificate.
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        if validity == Validity::Past {
            params.not_before = date_time_ymd(2001, 1, 1);
            params.not_after = date_time_ymd(2002, 1, 1);
        }
        let key = key();
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate");
        Signed { certificate: certificate.pem(), key: key.serialize_pem() }
    }
}

/// A certificate and its key, in PEM form.
#[derive(Clone)]
pub struct Signed {
    /// The certificate.
    pub certificate: String,
    /// Its key.
    pub key: String,
}

impl Signed {
    /// Puts them into these files.
    pub fn write(&self, certificate: &Path, key: &Path) {
        fs::write(certificate, &self.certificate).expect("a file");
        fs::write(key, &self.key).expect("a file");
    }
}

fn named(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params
}

fn key() -> KeyPair {
    KeyPair::generate().expect("a key")
}
