//! One etcd process: the whole of a small etcd, or a member of a cluster.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::Version;
use crate::certificates::Certificates;
use crate::wait::LIMIT;

/// How one is started.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) version: Version,
    pub(crate) name: String,
    /// Where its data and its log are.
    pub(crate) directory: PathBuf,
    pub(crate) ports: Ports,
    pub(crate) certificates: Option<Certificates>,
    /// Where the other members find it.
    pub(crate) peer: SocketAddr,
    /// All members of a new cluster, as `NAME=URL,…`.
    pub(crate) members: String,
    /// More arguments of etcd's own.
    pub(crate) more: Vec<String>,
}

/// The ports of one etcd, on 127.0.0.1.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ports {
    pub(crate) client: u16,
    pub(crate) peer: u16,
    pub(crate) metrics: u16,
}

impl Ports {
    /// Somebody else may be given one of them before they are used.
    pub(crate) fn free() -> Self {
        let listeners: Vec<_> =
            (0..3).map(|_| TcpListener::bind(("127.0.0.1", 0)).expect("a free port")).collect();
        let port = |at: usize| listeners[at].local_addr().expect("a port").port();
        Self { client: port(0), peer: port(1), metrics: port(2) }
    }

    pub(crate) fn client(&self) -> SocketAddr {
        local(self.client)
    }

    pub(crate) fn peer(&self) -> SocketAddr {
        local(self.peer)
    }
}

fn local(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}

/// A running etcd, or one that was killed; killed when it is dropped.
#[derive(Debug)]
pub(crate) struct Process {
    settings: Settings,
    child: Child,
}

impl Process {
    /// Starts one. It may come to be healthy.
    pub(crate) fn start(settings: Settings) -> Self {
        let child = spawn(&settings);
        Self { settings, child }
    }

    pub(crate) fn settings(&self) -> &Settings {
        &self.settings
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What etcd has written to its log.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.settings.directory.join("log")).unwrap_or_default()
    }

    /// etcd's own figures, in Prometheus' form, unless it has ended.
    pub(crate) fn metrics(&self) -> Option<String> {
        get(self.settings.ports.metrics, "/metrics")
    }

    /// Stops the process in its tracks (SIGSTOP), and waits until all of its
    /// threads stand still.
    pub(crate) fn pause(&self) {
        self.signal(Signal::STOP);
        let since = Instant::now();
        while !stands_still(self.pid()) {
            assert!(since.elapsed() < LIMIT, "etcd does not stop");
            sleep(Duration::from_millis(1));
        }
    }

    /// Lets a paused process go on.
    pub(crate) fn resume(&self) {
        self.signal(Signal::CONT);
    }

    /// Kills it, and waits for its end. Its data stays.
    pub(crate) fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Kills it if it still runs, and starts it again with the same data and ports.
    pub(crate) fn start_again(&mut self) {
        self.kill();
        self.child = spawn(&self.settings);
    }

    /// The same, and waits until it is healthy.
    pub(crate) fn restart(&mut self) {
        let since = Instant::now();
        loop {
            self.start_again();
            if self.wait_until_healthy() {
                return;
            }
            assert!(since.elapsed() < LIMIT, "{}", self.excuse());
        }
    }

    /// Whether it came to be healthy; else it has ended.
    pub(crate) fn wait_until_healthy(&mut self) -> bool {
        let since = Instant::now();
        while since.elapsed() < LIMIT {
            if self.child.try_wait().expect("etcd is ours").is_some() {
                return false;
            }
            let health = get(self.settings.ports.metrics, "/health");
            let is_healthy = health.is_some_and(|health| health.contains("\"health\":\"true\""));
            if is_healthy && TcpStream::connect(self.settings.ports.client()).is_ok() {
                return true;
            }
            sleep(Duration::from_millis(10));
        }
        panic!("{}", self.excuse());
    }

    /// Why it does not start, as far as it says.
    pub(crate) fn excuse(&self) -> String {
        let log = self.log();
        let tail: Vec<_> = log.lines().rev().take(20).collect();
        let tail: Vec<_> = tail.into_iter().rev().collect();
        format!("etcd {:?} does not start:\n{}", self.settings.version, tail.join("\n"))
    }

    fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        kill_process(pid.expect("a process id"), signal).expect("etcd takes signals");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

fn spawn(settings: &Settings) -> Child {
    let Settings { version, name, directory, ports, certificates, peer, members, more } = settings;
    let scheme = if certificates.is_some() { "https" } else { "http" };
    let client = format!("{scheme}://{}", ports.client());
    let listen_peer = format!("http://{}", ports.peer());
    let metrics = format!("http://{}", local(ports.metrics));
    let log = File::options().create(true).append(true).open(directory.join("log")).expect("a log");
    let mut command = Command::new(version.programs().join("etcd"));
    command
        .arg("--data-dir")
        .arg(directory.join("data"))
        .args(["--name", name, "--logger", "zap", "--log-level", "info"])
        .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
        .args(["--listen-peer-urls", &listen_peer])
        .args(["--initial-advertise-peer-urls", &format!("http://{peer}")])
        .args(["--listen-metrics-urls", &metrics])
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

/// The body of an HTTP answer, where there is one.
fn get(port: u16, path: &str) -> Option<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    stream.set_read_timeout(Some(LIMIT)).ok()?;
    write!(stream, "GET {path} HTTP/1.0\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let (_, body) = answer.split_once("\r\n\r\n")?;
    Some(body.to_owned())
}
