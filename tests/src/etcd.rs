//! A real etcd of one member, for the length of a test.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// How long anything of etcd's may take before a test fails.
const PATIENCE: Duration = Duration::from_secs(30);

/// Which etcd.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// 3.4, as Debian 12 has it.
    V3_4,
    /// 3.5.
    V3_5,
}

impl Version {
    /// Both, for tests that go through them by themselves.
    pub const ALL: [Self; 2] = [Self::V3_4, Self::V3_5];

    /// The directory of `etcd` and `etcdctl`: what `INCUMBENT_ETCD_3_4` or
    /// `INCUMBENT_ETCD_3_5` says, else what setup.sh has put into `.tools`.
    pub fn programs(self) -> PathBuf {
        let (variable, tools) = match self {
            Self::V3_4 => ("INCUMBENT_ETCD_3_4", ".tools/etcd-3.4"),
            Self::V3_5 => ("INCUMBENT_ETCD_3_5", ".tools/etcd-3.5"),
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
}

/// Makes of each named `async fn(Version)` one test for each version of etcd.
#[macro_export]
macro_rules! on_each_version {
    ($($test:ident),+ $(,)?) => {
        $crate::on_each_version!(@ v3_4, V3_4, $($test),+);
        $crate::on_each_version!(@ v3_5, V3_5, $($test),+);
    };
    (@ $module:ident, $version:ident, $($test:ident),+) => {
        mod $module {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $test() {
                    super::$test($crate::etcd::Version::$version).await;
                }
            )+
        }
    };
}

/// A running etcd, with its data in a directory that goes away with it.
#[derive(Debug)]
pub struct Etcd {
    version: Version,
    directory: TempDir,
    certificates: Option<Certificates>,
    more: Vec<String>,
    ports: Ports,
    process: Child,
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

    /// Which etcd this is.
    pub fn version(&self) -> Version {
        self.version
    }

    /// Where clients connect to.
    pub fn address(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.ports.client))
    }

    /// As `--store` takes it.
    pub fn url(&self) -> String {
        match self.certificates {
            Some(_) => format!("etcds://{}", self.address()),
            None => format!("etcd://{}", self.address()),
        }
    }

    /// The process.
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// What etcd has written to its log.
    pub fn log(&self) -> String {
        fs::read_to_string(self.directory.path().join("log")).unwrap_or_default()
    }

    /// etcd's own figures, in Prometheus' form.
    pub fn metrics(&self) -> String {
        get(self.ports.metrics, "/metrics").expect("etcd answers with its metrics")
    }

    /// Stops the process in its tracks (SIGSTOP), and waits until all of its
    /// threads stand still.
    pub fn pause(&self) {
        self.signal(Signal::STOP);
        let since = Instant::now();
        while !stands_still(self.pid()) {
            assert!(since.elapsed() < PATIENCE, "etcd does not stop");
            sleep(Duration::from_millis(1));
        }
    }

    /// Lets a paused process go on.
    pub fn resume(&self) {
        self.signal(Signal::CONT);
    }

    /// Kills it, and waits for its end. Its data stays.
    pub fn kill(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }

    /// Kills it if it still runs, starts it again with the same data and ports,
    /// and waits until it is healthy.
    pub fn restart(&mut self) {
        self.kill();
        let since = Instant::now();
        loop {
            self.process = self.spawn();
            if self.wait_until_healthy() {
                return;
            }
            assert!(since.elapsed() < PATIENCE, "{}", self.excuse());
        }
    }

    /// Where etcdctl of the same version is. It wants `ETCDCTL_API=3`.
    pub fn etcdctl_path(&self) -> PathBuf {
        self.version.programs().join("etcdctl")
    }

    /// etcdctl of the same version, for this etcd.
    pub fn etcdctl_command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(self.etcdctl_path());
        command
            .env("ETCDCTL_API", "3")
            .arg("--endpoints")
            .arg(self.address().to_string())
            .args(arguments);
        if let Some(certificates) = &self.certificates {
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
        let output = self.etcdctl_command(arguments).output().expect("etcdctl runs");
        assert!(output.status.success(), "etcdctl {arguments:?}: {output:?}");
        text(&output)
    }

    /// Makes a user `root`, and one `name` who may read and write only what begins
    /// with `prefix`, and has everyone log in from now on.
    pub fn enable_users(&self, root_password: &str, name: &str, password: &str, prefix: &str) {
        self.etcdctl(&["user", "add", &format!("root:{root_password}")]);
        self.etcdctl(&["user", "grant-role", "root", "root"]);
        self.etcdctl(&["role", "add", "of-the-prefix"]);
        let grant = ["role", "grant-permission", "--prefix=true"];
        self.etcdctl(&[&grant[..], &["of-the-prefix", "readwrite", prefix]].concat());
        self.etcdctl(&["user", "add", &format!("{name}:{password}")]);
        self.etcdctl(&["user", "grant-role", name, "of-the-prefix"]);
        self.etcdctl(&["auth", "enable"]);
    }

    fn launch(version: Version, certificates: Option<&Certificates>, more: &[&str]) -> Self {
        let since = Instant::now();
        loop {
            let directory = TempDir::with_prefix("incumbent-etcd-").expect("a directory");
            let ports = Ports::free();
            let certificates = certificates.cloned();
            let more: Vec<_> = more.iter().map(ToString::to_string).collect();
            let process = spawn(version, directory.path(), &ports, certificates.as_ref(), &more);
            let mut etcd = Self { version, directory, certificates, more, ports, process };
            if etcd.wait_until_healthy() {
                return etcd;
            }
            // Someone else may have been given a port of ours meanwhile.
            assert!(since.elapsed() < PATIENCE, "{}", etcd.excuse());
        }
    }

    fn spawn(&self) -> Child {
        spawn(
            self.version,
            self.directory.path(),
            &self.ports,
            self.certificates.as_ref(),
            &self.more,
        )
    }

    /// Whether it came to be healthy; else it has ended.
    fn wait_until_healthy(&mut self) -> bool {
        let since = Instant::now();
        while since.elapsed() < PATIENCE {
            if self.process.try_wait().expect("etcd is ours").is_some() {
                return false;
            }
            let health = get(self.ports.metrics, "/health");
            let is_healthy = health.is_some_and(|health| health.contains("\"health\":\"true\""));
            if is_healthy && TcpStream::connect(self.address()).is_ok() {
                return true;
            }
            sleep(Duration::from_millis(10));
        }
        panic!("{}", self.excuse());
    }

    fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.process.id()).ok().and_then(Pid::from_raw);
        kill_process(pid.expect("a process id"), signal).expect("etcd takes signals");
    }

    fn excuse(&self) -> String {
        let log = self.log();
        let tail: Vec<_> = log.lines().rev().take(20).collect();
        let tail: Vec<_> = tail.into_iter().rev().collect();
        format!("etcd {:?} does not start:\n{}", self.version, tail.join("\n"))
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Certificates of a CA of the test's own: for an etcd on this machine, and for a
/// client.
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
}

impl Certificates {
    /// Makes them in this directory, with the `openssl` program.
    pub fn make(directory: &Path) -> Self {
        let file = |name: &str| directory.join(name);
        let openssl = |arguments: &[&str]| {
            let output = Command::new("openssl")
                .current_dir(directory)
                .args(arguments)
                .output()
                .expect("openssl runs: run ./setup.sh, or install it");
            assert!(output.status.success(), "openssl {arguments:?}: {output:?}");
        };
        let key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"];
        openssl(
            &[
                &["req", "-x509", "-subj", "/CN=test-ca", "-days", "2"],
                &key[..],
                &["-keyout", "ca.key", "-out", "ca.pem"],
            ]
            .concat(),
        );
        let usage = "extendedKeyUsage=serverAuth,clientAuth";
        let names = "subjectAltName=IP:127.0.0.1,DNS:localhost";
        fs::write(file("leaf.cnf"), format!("{usage}\n{names}\n")).expect("a file");
        for name in ["server", "client"] {
            let [subject, keyout, request, cert] = [
                format!("/CN={name}"),
                format!("{name}.key"),
                format!("{name}.csr"),
                format!("{name}.pem"),
            ];
            openssl(
                &[&["req", "-subj", &subject], &key[..], &["-keyout", &keyout, "-out", &request]]
                    .concat(),
            );
            openssl(&[
                "x509",
                "-req",
                "-in",
                &request,
                "-CA",
                "ca.pem",
                "-CAkey",
                "ca.key",
                "-CAcreateserial",
                "-days",
                "2",
                "-extfile",
                "leaf.cnf",
                "-out",
                &cert,
            ]);
        }
        Self {
            ca: file("ca.pem"),
            server_cert: file("server.pem"),
            server_key: file("server.key"),
            client_cert: file("client.pem"),
            client_key: file("client.key"),
        }
    }
}

#[derive(Debug)]
struct Ports {
    client: u16,
    peer: u16,
    metrics: u16,
}

impl Ports {
    fn free() -> Self {
        let listeners: Vec<_> =
            (0..3).map(|_| TcpListener::bind(("127.0.0.1", 0)).expect("a free port")).collect();
        let port = |at: usize| listeners[at].local_addr().expect("a port").port();
        Self { client: port(0), peer: port(1), metrics: port(2) }
    }
}

fn spawn(
    version: Version,
    directory: &Path,
    ports: &Ports,
    certificates: Option<&Certificates>,
    more: &[String],
) -> Child {
    let client = match certificates {
        Some(_) => format!("https://127.0.0.1:{}", ports.client),
        None => format!("http://127.0.0.1:{}", ports.client),
    };
    let peer = format!("http://127.0.0.1:{}", ports.peer);
    let metrics = format!("http://127.0.0.1:{}", ports.metrics);
    let cluster = format!("test={peer}");
    let log = File::options().create(true).append(true).open(directory.join("log")).expect("a log");
    let mut command = Command::new(version.programs().join("etcd"));
    command
        .arg("--data-dir")
        .arg(directory.join("data"))
        .args(["--name", "test", "--logger", "zap", "--log-level", "info"])
        .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
        .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
        .args(["--listen-metrics-urls", &metrics])
        .args(["--initial-cluster", &cluster])
        .args(more)
        // Debian's etcd would take its settings from the environment as well.
        .env_clear()
        .stdin(Stdio::null())
        .stdout(log.try_clone().expect("a log"))
        .stderr(log);
    if let Some(certificates) = certificates {
        command
            .arg("--client-cert-auth")
            .arg("--trusted-ca-file")
            .arg(&certificates.ca)
            .arg("--cert-file")
            .arg(&certificates.server_cert)
            .arg("--key-file")
            .arg(&certificates.server_key);
    }
    command.spawn().expect("etcd runs")
}

/// Whether every thread of the process is stopped. (Where there is no /proc, it is
/// taken to be.)
fn stands_still(pid: u32) -> bool {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else {
        return true;
    };
    threads.flatten().all(|thread| {
        let stat = fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        // The state follows the name, which may hold anything, in brackets.
        let state = stat.rsplit_once(") ").map(|(_, rest)| rest.starts_with('T'));
        state.unwrap_or(true)
    })
}

/// The body of an HTTP answer, where there is one.
fn get(port: u16, path: &str) -> Option<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    stream.set_read_timeout(Some(PATIENCE)).ok()?;
    write!(stream, "GET {path} HTTP/1.0\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let (_, body) = answer.split_once("\r\n\r\n")?;
    Some(body.to_owned())
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}
