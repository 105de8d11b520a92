//! One etcd process: the whole of a small etcd, or a member of a cluster.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use super::Version;
use crate::certificates::Certificates;
use crate::wait::LIMIT;

/// How one is started.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) version: Version,
    pub(crate) name: String,
    /// Where its data and its log are.
    pub(crate) directory: TempDir,
    pub(crate) ports: Ports,
    pub(crate) certificates: Option<Certificates>,
    /// Where the other members find it.
    pub(crate) peer: SocketAddr,
    /// All members of a new cluster, as `NAME=URL,…`.
    pub(crate) members: String,
    /// More arguments of etcd's own.
    pub(crate) more: Vec<String>,
}

impl Settings {
    /// An etcd of one member.
    pub(crate) fn alone(version: Version, ports: Ports, more: &[&str]) -> Self {
        Self {
            version,
            name: "test".into(),
            directory: TempDir::with_prefix("incumbent-etcd-").expect("a directory"),
            certificates: None,
            peer: local(ports.peer),
            members: format!("test=http://{}", local(ports.peer)),
            more: more.iter().map(ToString::to_string).collect(),
            ports,
        }
    }
}

/// The ports of one etcd, on 127.0.0.1.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ports {
    client: u16,
    pub(crate) peer: u16,
    metrics: u16,
}

impl Ports {
    /// Somebody else may be given one of them before they are used.
    pub(crate) fn free() -> Self {
        let listeners = [(); 3].map(|()| TcpListener::bind(("127.0.0.1", 0)).expect("a free port"));
        let [client, peer, metrics] =
            listeners.each_ref().map(|one| one.local_addr().expect("a port").port());
        Self { client, peer, metrics }
    }
}

/// This port of this machine.
pub(crate) fn local(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}

/// A running etcd, or one that was killed: the only member, or one of a cluster. Killed when it
/// is dropped; its data are in a directory that goes away with it.
#[derive(Debug)]
pub struct Etcd {
    pub(crate) settings: Settings,
    child: Child,
}

impl Etcd {
    /// Starts one. It may come to be healthy.
    pub(crate) fn spawn(settings: Settings) -> Self {
        let child = spawn(&settings);
        Self { settings, child }
    }

    /// Which etcd this is.
    pub fn version(&self) -> Version {
        self.settings.version
    }

    /// Where clients connect to.
    pub fn address(&self) -> SocketAddr {
        local(self.settings.ports.client)
    }

    /// The process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What etcd has written to its log.
    pub fn log(&self) -> String {
        fs::read_to_string(self.settings.directory.path().join("log")).unwrap_or_default()
    }

    /// etcd's own figures, in Prometheus' form.
    pub fn metrics(&self) -> String {
        self.get("/metrics").expect("etcd answers with its metrics")
    }

    /// The body of what the port for metrics answers, unless etcd has ended.
    pub(crate) fn get(&self, path: &str) -> Option<String> {
        let mut stream = TcpStream::connect(local(self.settings.ports.metrics)).ok()?;
        stream.set_read_timeout(Some(LIMIT)).ok()?;
        write!(stream, "GET {path} HTTP/1.0\r\n\r\n").ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        let (_, body) = answer.split_once("\r\n\r\n")?;
        Some(body.to_owned())
    }

    /// Stops the process in its tracks (SIGSTOP), and waits until all of its
    /// threads stand still.
    pub fn pause(&self) {
        self.signal(Signal::STOP);
        let since = Instant::now();
        while !stands_still(self.pid()) {
            assert!(since.elapsed() < LIMIT, "etcd does not stop");
            sleep(Duration::from_millis(1));
        }
    }

    /// Lets a paused process go on.
    pub fn resume(&self) {
        self.signal(Signal::CONT);
    }

    /// Kills it, and waits for its end. Its data stays.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Kills it if it still runs, and starts it again with the same data and ports.
    pub(crate) fn start_again(&mut self) {
        self.kill();
        self.child = spawn(&self.settings);
    }

    /// Kills it if it still runs, starts it again with the same data and ports, and waits until
    /// it is healthy.
    pub fn restart(&mut self) {
        self.start_again();
        self.expect_healthy();
    }

    /// Waits until it is healthy, and starts it again where it has ended: somebody else may have
    /// had one of its ports for a moment.
    pub(crate) fn expect_healthy(&mut self) {
        let since = Instant::now();
        while !self.wait_until_healthy() {
            assert!(since.elapsed() < LIMIT, "{}", self.excuse());
            self.start_again();
        }
    }

    /// Whether it came to be healthy; else it has ended.
    pub(crate) fn wait_until_healthy(&mut self) -> bool {
        let since = Instant::now();
        while since.elapsed() < LIMIT {
            if self.child.try_wait().expect("etcd is ours").is_some() {
                return false;
            }
            let health = self.get("/health");
            let is_healthy = health.is_some_and(|health| health.contains("\"health\":\"true\""));
            if is_healthy && TcpStream::connect(self.address()).is_ok() {
                return true;
            }
            sleep(Duration::from_millis(10));
        }
        panic!("{}", self.excuse());
    }

    /// Why it does not start, as far as it says.
    pub(crate) fn excuse(&self) -> String {
        let log = self.log();
        let lines: Vec<_> = log.lines().collect();
        let tail = lines[lines.len().saturating_sub(20)..].join("\n");
        format!("etcd {:?} does not start:\n{tail}", self.settings.version)
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("etcd takes signals");
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        self.kill();
    }
}

fn spawn(settings: &Settings) -> Child {
    let Settings { version, name, directory, ports, certificates, peer, members, more } = settings;
    let scheme = if certificates.is_some() { "https" } else { "http" };
    let client = format!("{scheme}://{}", local(ports.client));
    let directory = directory.path();
    let log = File::options().create(true).append(true).open(directory.join("log")).expect("a log");
    let mut command = Command::new(version.programs().join("etcd"));
    command
        .arg("--data-dir")
        .arg(directory.join("data"))
        .args(["--name", name, "--logger", "zap", "--log-level", "info"])
        .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
        .args(["--listen-peer-urls", &format!("http://{}", local(ports.peer))])
        .args(["--initial-advertise-peer-urls", &format!("http://{peer}")])
        .args(["--listen-metrics-urls", &format!("http://{}", local(ports.metrics))])
        .args(["--initial-cluster", members])
        // Data that survive a kill are enough. A disk that is busy with something else would
        // hold up each write, and be taken for a failure.
        .arg("--unsafe-no-fsync")
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
