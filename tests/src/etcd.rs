//! A real etcd of one member, for the length of a test.

pub(crate) mod process;

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::str::FromStr;
use std::time::Instant;

use etcd_client::Client;
use incumbent::Credentials;
use tokio::runtime::Builder;

pub use self::process::Etcd;
use self::process::{Ports, Settings};
use crate::certificates::Certificates;
use crate::wait::LIMIT;

/// Which etcd.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// 3.4, as Debian 12 has it.
    V3_4,
    /// 3.5, one that has the faults of its first releases.
    V3_5,
    /// 3.5, as Debian 13 has it. Its members may be killed: those of the first releases come
    /// to differ then (etcd#13766).
    V3_5_16,
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::V3_4 => "3.4",
            Self::V3_5 => "3.5",
            Self::V3_5_16 => "3.5.16",
        })
    }
}

impl FromStr for Version {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let is_it = |version: &Self| version.to_string() == text;
        let all = [Self::V3_4, Self::V3_5, Self::V3_5_16];
        all.into_iter().find(is_it).ok_or("the versions are 3.4, 3.5 and 3.5.16")
    }
}

impl Version {
    /// The two of most tests, for those that go through them by themselves.
    pub const ALL: [Self; 2] = [Self::V3_4, Self::V3_5];

    /// The directory of `etcd` and `etcdctl`: what `INCUMBENT_ETCD_3_4`,
    /// `INCUMBENT_ETCD_3_5` or `INCUMBENT_ETCD_3_5_16` says, else what setup.sh has put into
    /// `.tools`.
    pub fn programs(self) -> PathBuf {
        let (variable, tools) = match self {
            Self::V3_4 => ("INCUMBENT_ETCD_3_4", ".tools/etcd-3.4"),
            Self::V3_5 => ("INCUMBENT_ETCD_3_5", ".tools/etcd-3.5"),
            Self::V3_5_16 => ("INCUMBENT_ETCD_3_5_16", ".tools/etcd-3.5.16"),
        };
        let root =
            Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("this crate is in the workspace");
        let directory = std::env::var_os(variable).map_or_else(|| root.join(tools), PathBuf::from);
        assert!(
            directory.join("etcd").is_file() && directory.join("etcdctl").is_file(),
            "there is no etcd and etcdctl in {}: run ./setup.sh, \
             or set {variable} to a directory that has both",
            directory.display(),
        );
        directory
    }

    /// Where etcdctl of this version is. It wants `ETCDCTL_API=3`.
    pub fn etcdctl_path(self) -> PathBuf {
        self.programs().join("etcdctl")
    }

    /// etcdctl of this version, for these endpoints.
    pub(crate) fn etcdctl_command(self, endpoints: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(self.etcdctl_path());
        // Its own 2 and 5 seconds are few on a machine that is busy.
        command.env("ETCDCTL_API", "3").args(["--dial-timeout", "30s", "--command-timeout", "30s"]);
        command.args(["--endpoints", endpoints]).args(arguments);
        command
    }
}

/// Makes of each named function one test for each version of etcd. The function takes a
/// [`Version`], or an [`Etcd`] of it, and may be async.
///
/// With rstest each test would have three attributes in place of its name in a list.
#[macro_export]
macro_rules! on_each_version {
    ($($test:ident),+ $(,)?) => {
        $crate::on_each_version!(@ v3_4, V3_4, $($test),+);
        $crate::on_each_version!(@ v3_5, V3_5, $($test),+);
    };
    (@ $module:ident, $version:ident, $($test:ident),+) => {
        mod $module {
            $(
                #[test]
                fn $test() {
                    $crate::etcd::Test::run(super::$test, $crate::etcd::Version::$version);
                }
            )+
        }
    };
}

/// Makes of each named function one test, with an etcd 3.5.
#[macro_export]
macro_rules! on_an_etcd {
    ($($test:ident),+ $(,)?) => {
        $crate::on_each_version!(@ on_an_etcd, V3_5, $($test),+);
    };
}

/// A function that [`on_each_version`] makes tests of; `Kind` tells its arguments and its result.
pub trait Test<Kind> {
    /// Runs it on this version.
    fn run(self, version: Version);
}

impl<A: From<Version>, F: FnOnce(A)> Test<(A, ())> for F {
    fn run(self, version: Version) {
        self(version.into());
    }
}

impl<A: From<Version>, F: FnOnce(A) -> R, R: Future<Output = ()>> Test<(A, R, ())> for F {
    fn run(self, version: Version) {
        let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build();
        runtime.expect("a runtime starts").block_on(async { self(version.into()).await });
    }
}

/// The user `root`, and the password.
const ROOT: &str = "root:secret";

/// For what is measured: an etcd that syncs its data, as it does in production.
pub const SYNCED: &[&str] = &["--unsafe-no-fsync=false"];

impl From<Version> for Etcd {
    fn from(version: Version) -> Self {
        Self::start(version)
    }
}

impl Etcd {
    /// Starts one, and waits until it is healthy.
    pub fn start(version: Version) -> Self {
        Self::start_with(version, &[])
    }

    /// Starts one with more arguments of etcd's own.
    pub fn start_with(version: Version, more: &[&str]) -> Self {
        Self::launch(version, None, more)
    }

    /// Starts one that speaks TLS, and wants certificates of its clients.
    pub fn start_tls(version: Version, certificates: &Certificates) -> Self {
        Self::launch(version, Some(certificates), &[])
    }

    /// As `--store` takes it.
    pub fn url(&self) -> String {
        let scheme = if self.settings.certificates.is_some() { "etcds" } else { "etcd" };
        format!("{scheme}://{}", self.address())
    }

    /// Where etcdctl of the same version is. It wants `ETCDCTL_API=3`.
    pub fn etcdctl_path(&self) -> PathBuf {
        self.version().etcdctl_path()
    }

    /// etcdctl of the same version, for this etcd.
    pub fn etcdctl_command(&self, arguments: &[&str]) -> Command {
        let mut command = self.version().etcdctl_command(&self.address().to_string(), arguments);
        if let Some(certificates) = &self.settings.certificates {
            command
                .arg("--cacert")
                .arg(&certificates.ca)
                .arg("--cert")
                .arg(&certificates.client_cert)
                .arg("--key")
                .arg(&certificates.client_key);
        }
        command
    }

    /// Runs etcdctl of the same version, and gives what it prints. Panics where it
    /// fails.
    pub fn etcdctl(&self, arguments: &[&str]) -> String {
        run(self.etcdctl_command(arguments))
    }

    /// A client of etcd's own, without TLS.
    pub async fn client(&self) -> Client {
        Client::connect([self.address().to_string()], None).await.expect("connects")
    }

    /// Makes a user `root`, and one `name` who may read and write only what begins
    /// with `prefix`, and has everyone log in from now on.
    pub fn enable_users(&self, name: &str, password: &str, prefix: &str) {
        self.etcdctl(&["role", "add", "of-the-prefix"]);
        let grant = ["role", "grant-permission", "--prefix=true"];
        self.etcdctl(&[&grant[..], &["of-the-prefix", "readwrite", prefix]].concat());
        self.etcdctl(&["user", "add", &format!("{name}:{password}")]);
        self.etcdctl(&["user", "grant-role", name, "of-the-prefix"]);
        self.enable_logins();
    }

    /// Makes a user `root`, and has everyone log in from now on.
    pub fn enable_logins(&self) {
        self.etcdctl(&["user", "add", ROOT]);
        self.etcdctl(&["user", "grant-role", "root", "root"]);
        self.etcdctl(&["auth", "enable"]);
    }

    /// Runs etcdctl as `root`, and gives what it prints.
    pub fn as_root(&self, arguments: &[&str]) -> String {
        self.etcdctl(&[&["--user", ROOT], arguments].concat())
    }

    /// Makes the user anew, with this password. All logins end.
    pub fn renew_user(&self, name: &str, password: &str) {
        self.as_root(&["user", "delete", name]);
        self.as_root(&["user", "add", &format!("{name}:{password}")]);
        self.as_root(&["user", "grant-role", name, "of-the-prefix"]);
    }

    fn launch(version: Version, certificates: Option<&Certificates>, more: &[&str]) -> Self {
        let since = Instant::now();
        loop {
            let certificates = certificates.cloned();
            let alone = Settings::alone(version, Ports::free(), more);
            let mut etcd = Self::spawn(Settings { certificates, ..alone });
            if etcd.wait_until_healthy() {
                return etcd;
            }
            // Someone else may have been given a port of ours meanwhile.
            assert!(since.elapsed() < LIMIT, "{}", etcd.excuse());
        }
    }
}

/// The credentials of a user who logs in.
pub fn user(name: &str, password: &str) -> Credentials {
    let mut credentials = Credentials::default();
    credentials.user = Some(name.into());
    credentials.password = Some(password.into());
    credentials
}

/// Runs it, and gives what it prints. Panics where it fails.
pub(crate) fn run(mut command: Command) -> String {
    let output = command.output().expect("it runs");
    assert!(output.status.success(), "{command:?}: {output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}
