//! A real PostgreSQL of one server, for the length of a test.

use std::fs::{self, File, Permissions};
use std::io::Write;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::certificates::Certificates;
use crate::wait::LIMIT;

/// In a server's directory, where its own disk is.
const DISK: &str = "disk";
/// The user who owns the database, and may do everything.
const OWNER: &str = "owner";

/// A running PostgreSQL, or one that was killed. Ended when it is dropped; its data are in a directory
/// that goes away with it.
#[derive(Debug)]
pub struct Postgres {
    directory: TempDir,
    port: u16,
    settings: Vec<String>,
    machine: Machine,
    child: Child,
}

/// What the server runs on.
#[derive(Clone, Debug, Default)]
enum Machine {
    #[default]
    This,
    /// Debian's `faketime` changes its clock, by as much as this says.
    WithClock(String),
    /// Its data are copied to a disk of so many megabytes, which is there as long as it runs.
    WithDisk(u32),
}

impl Postgres {
    /// Starts one, and waits until it answers.
    pub fn start() -> Self {
        Self::start_with(&[])
    }

    /// The same with settings, each as `NAME=VALUE`.
    pub fn start_with(settings: &[&str]) -> Self {
        let directory = directory();
        let made = command("initdb")
            .arg("--pgdata")
            .arg(directory.path().join("data"))
            .args(["--no-sync", "--auth", "trust", "--username", OWNER])
            .args(["--encoding", "UTF8", "--locale", "C"])
            .output()
            .expect("initdb runs: ./setup.sh brings it");
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        Self::open(directory, free_port(), Machine::This, settings)
    }

    /// One whose disk has room for so many megabytes. Not to be killed: the disk goes with it.
    pub fn start_on_disk(megabytes: u32) -> Self {
        let mut postgres = Self::start();
        postgres.machine = Machine::WithDisk(megabytes);
        postgres.restart();
        postgres
    }

    /// Fills its disk with a table, of which no log is written.
    pub fn fill_disk(&self) {
        self.sql("CREATE UNLOGGED TABLE filler (x text)");
        let more = "INSERT INTO filler SELECT repeat('x', 1000) FROM generate_series(1, 100);\n";
        let (_, said) = self.psql(&more.repeat(10_000));
        assert!(said.contains("No space left on device"), "{said}");
    }

    /// Makes room again.
    pub fn free_disk(&self) {
        self.sql("DROP TABLE filler");
    }

    /// The same, and it speaks TLS.
    pub fn start_tls(certificates: &Certificates) -> Self {
        // Each of its files has to be its own.
        let mut postgres = Self::start();
        for (file, name) in [
            (&certificates.ca, "ca.pem"),
            (&certificates.server_cert, "cert.pem"),
            (&certificates.server_key, "key.pem"),
        ] {
            let place = postgres.data().join(name);
            fs::copy(file, &place).expect("a copy");
            fs::set_permissions(&place, Permissions::from_mode(0o600)).expect("its rights");
            if let Some((user, group)) = servant() {
                chown(&place, Some(user), Some(group)).expect("root may");
            }
        }
        postgres.settings =
            ["ssl=on", "ssl_ca_file=ca.pem", "ssl_cert_file=cert.pem", "ssl_key_file=key.pem"]
                .map(ToString::to_string)
                .into();
        postgres.restart();
        postgres
    }

    /// A standby that follows this one.
    pub fn standby(&self, settings: &[&str]) -> Self {
        self.follower(free_port(), Machine::This, settings)
    }

    /// The same on this port, with a clock that is ahead or behind, as `+1h` or `-10m`.
    pub fn standby_on(&self, port: u16, ahead: &str, settings: &[&str]) -> Self {
        self.follower(port, Machine::WithClock(ahead.into()), settings)
    }

    fn follower(&self, port: u16, machine: Machine, settings: &[&str]) -> Self {
        let directory = directory();
        let copied = command("pg_basebackup")
            .arg("--pgdata")
            .arg(directory.path().join("data"))
            .args(["--no-sync", "--checkpoint", "fast", "--write-recovery-conf"])
            .args(["--dbname", &self.connection("standby")])
            .output()
            .expect("pg_basebackup runs");
        assert!(copied.status.success(), "{}", String::from_utf8_lossy(&copied.stderr));
        Self::open(directory, port, machine, settings)
    }

    fn open(directory: TempDir, port: u16, machine: Machine, settings: &[&str]) -> Self {
        let settings: Vec<_> = settings.iter().map(ToString::to_string).collect();
        let child = spawn(&directory, port, &settings, &machine);
        let mut postgres = Self { directory, port, settings, machine, child };
        postgres.expect_ready();
        postgres
    }

    /// `HOST:PORT`.
    pub fn address(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.port))
    }

    /// The URL of a store, for the owner.
    pub fn url(&self) -> String {
        format!("postgres://{OWNER}@{}/postgres", self.address())
    }

    /// What a client of libpq connects with.
    fn connection(&self, name: &str) -> String {
        format!(
            "host=127.0.0.1 port={} user={OWNER} dbname=postgres application_name={name}",
            self.port
        )
    }

    /// Runs statements, and returns the rows without headings.
    pub fn sql(&self, statements: &str) -> String {
        let answer = self.psql(statements);
        assert!(answer.0, "{statements}: {}", answer.1);
        answer.1
    }

    /// Runs statements. Whether they succeeded, and what was printed.
    pub fn psql(&self, statements: &str) -> (bool, String) {
        let mut psql = Command::new(programs().join("psql"))
            .args(["--no-psqlrc", "--quiet", "--tuples-only", "--no-align", "--file", "-"])
            .args(["--set", "ON_ERROR_STOP=1", "--set", "VERBOSITY=verbose"])
            .arg(self.connection("psql"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("psql runs");
        let mut input = psql.stdin.take().expect("a pipe");
        // It ends early at the first error.
        let _ = input.write_all(statements.as_bytes());
        drop(input);
        let ran = psql.wait_with_output().expect("psql ends");
        let text = if ran.status.success() { ran.stdout } else { ran.stderr };
        (ran.status.success(), String::from_utf8_lossy(&text).trim().to_owned())
    }

    /// How many transactions have ended in the database, soon after they have.
    pub fn transactions(&self) -> u64 {
        let sum = "SELECT sum(xact_commit + xact_rollback) FROM pg_stat_database";
        self.sql(sum).parse().expect("a number")
    }

    /// All that the database holds, as statements.
    pub fn dump(&self) -> String {
        let dumped = Command::new(programs().join("pg_dump"))
            .args(["--dbname", &self.connection("dump")])
            .output()
            .expect("pg_dump runs");
        assert!(dumped.status.success(), "{}", String::from_utf8_lossy(&dumped.stderr));
        String::from_utf8(dumped.stdout).expect("text")
    }

    /// Lets others in than the owner: lines of `pg_hba.conf`.
    pub fn allow(&self, lines: &[&str]) {
        let own = ["local all all trust", "host all owner 127.0.0.1/32 trust"];
        let replication = ["host replication owner 127.0.0.1/32 trust"];
        let lines = [&own[..], &replication, lines].concat();
        fs::write(self.data().join("pg_hba.conf"), lines.join("\n") + "\n").expect("a file");
        self.sql("SELECT pg_reload_conf()");
    }

    /// What the server has written to its log.
    pub fn log(&self) -> String {
        fs::read_to_string(self.directory.path().join("log")).unwrap_or_default()
    }

    /// Where its data are.
    pub fn data(&self) -> PathBuf {
        self.directory.path().join("data")
    }

    /// Stops all of its processes in their tracks.
    pub fn pause(&self) {
        for pid in self.processes() {
            let _ = kill_process(pid, Signal::STOP);
        }
    }

    /// Lets them go on.
    pub fn resume(&self) {
        for pid in self.processes() {
            let _ = kill_process(pid, Signal::CONT);
        }
    }

    /// Kills all of its processes, and waits for the end. Its data stay.
    pub fn kill(&mut self) {
        for pid in self.processes() {
            let _ = kill_process(pid, Signal::KILL);
        }
        let _ = self.child.wait();
        // What `faketime` shares with its children.
        for shared in ["faketime_shm", "sem.faketime_sem"] {
            let _ = fs::remove_file(format!("/dev/shm/{shared}_{}", self.child.id()));
        }
    }

    /// Kills it if it still runs, starts it again with the same data and port, and waits until it
    /// answers.
    pub fn restart(&mut self) {
        self.kill();
        self.child = spawn(&self.directory, self.port, &self.settings, &self.machine);
        self.expect_ready();
    }

    /// The same, with a clock that is ahead or behind, as `+1h` or `-10m`.
    pub fn restart_at(&mut self, ahead: &str) {
        self.machine = Machine::WithClock(ahead.to_owned());
        self.restart();
    }

    /// Makes a primary of a standby, and waits until it is one.
    pub fn promote(&self) {
        assert_eq!(self.sql("SELECT pg_promote(true, 60)"), "t");
    }

    fn processes(&self) -> Vec<Pid> {
        let all = fs::read_dir("/proc").expect("/proc");
        let of_us = all.flatten().filter_map(|entry| {
            let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
            let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
            let (_, rest) = stat.rsplit_once(") ")?;
            let parent: u32 = rest.split(' ').nth(1)?.parse().ok()?;
            (parent == self.child.id()).then(|| Pid::from_raw(pid)).flatten()
        });
        // The first one before its children, which it would start anew.
        std::iter::once(Pid::from_child(&self.child)).chain(of_us).collect()
    }

    fn expect_ready(&mut self) {
        let since = Instant::now();
        while !self.answers() {
            assert!(since.elapsed() < LIMIT, "PostgreSQL does not start:\n{}", self.log());
            if self.child.try_wait().expect("PostgreSQL is ours").is_some() {
                // What it was killed with may still hold its memory, or somebody its port.
                self.child = spawn(&self.directory, self.port, &self.settings, &self.machine);
            }
            sleep(Duration::from_millis(20));
        }
    }

    fn answers(&self) -> bool {
        let mut ready = Command::new(programs().join("pg_isready"));
        ready.args(["--quiet", "--dbname", &self.connection("ready")]);
        ready.status().is_ok_and(|status| status.success())
    }
}

impl Drop for Postgres {
    /// Asks it to end at once, before it is killed: a killed server leaves shared memory behind.
    fn drop(&mut self) {
        self.resume();
        for pid in self.processes() {
            let _ = kill_process(pid, Signal::QUIT);
        }
        let since = Instant::now();
        while matches!(self.child.try_wait(), Ok(None)) && since.elapsed() < LIMIT / 10 {
            sleep(Duration::from_millis(5));
        }
        self.kill();
    }
}

/// A pgbouncer before a PostgreSQL.
#[derive(Debug)]
pub struct Pooler {
    directory: TempDir,
    port: u16,
    child: Child,
}

impl Pooler {
    /// Starts one in this mode, and waits until it answers.
    pub fn start(postgres: &Postgres, mode: &str) -> Self {
        let directory = directory();
        let port = free_port();
        let place = directory.path().join("pgbouncer.ini");
        let database = format!("postgres = host=127.0.0.1 port={} user={OWNER}", postgres.port);
        fs::write(
            &place,
            format!(
                "[databases]\n{database}\n[pgbouncer]\nlisten_addr = 127.0.0.1\n\
                 listen_port = {port}\nauth_type = any\npool_mode = {mode}\n\
                 unix_socket_dir =\ndefault_pool_size = 20\n"
            ),
        )
        .expect("a file");
        let log = File::create(directory.path().join("log")).expect("a log");
        let mut command = Command::new("/usr/sbin/pgbouncer");
        as_servant(&mut command);
        let command = command.arg("--quiet").arg(place).stdin(Stdio::null());
        let child = command.stdout(log.try_clone().expect("a log")).stderr(log).spawn();
        let pooler = Self { directory, port, child: child.expect("pgbouncer runs") };
        let since = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            let log = fs::read_to_string(pooler.directory.path().join("log")).unwrap_or_default();
            assert!(since.elapsed() < LIMIT, "pgbouncer does not start:\n{log}");
            sleep(Duration::from_millis(20));
        }
        pooler
    }

    /// The URL of a store, for the owner.
    pub fn url(&self) -> String {
        format!("postgres://{OWNER}@127.0.0.1:{}/postgres", self.port)
    }
}

impl Drop for Pooler {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Somebody else may be given it before it is used.
fn free_port() -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
    listener.local_addr().expect("a port").port()
}

/// The directory of PostgreSQL's programs: what `INCUMBENT_POSTGRES` says, else where Debian has them.
fn programs() -> PathBuf {
    if let Some(given) = std::env::var_os("INCUMBENT_POSTGRES") {
        return given.into();
    }
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let programs = versions.map(|version| version.path().join("bin"));
    programs.filter(|bin| bin.join("postgres").exists()).max().unwrap_or_default()
}

/// A directory of the server's user.
fn directory() -> TempDir {
    let directory = TempDir::with_prefix("incumbent-postgres-").expect("a directory");
    if let Some((user, group)) = servant() {
        chown(directory.path(), Some(user), Some(group)).expect("root may");
    }
    directory
}

/// PostgreSQL does not run as root.
fn servant() -> Option<(u32, u32)> {
    if !rustix::process::getuid().is_root() {
        return None;
    }
    let users = fs::read_to_string("/etc/passwd").expect("users");
    let line = users.lines().find(|line| line.starts_with("postgres:")).expect("a user postgres");
    let mut fields = line.split(':').skip(2).map(|field| field.parse().expect("a number"));
    Some((fields.next().expect("a user"), fields.next().expect("a group")))
}

/// A program in a namespace of its own, with a disk in this directory, and a copy of the data on it. It
/// runs as the server's user in the end; who is not root is root for the namespace alone.
fn on_disk(disk: &Path, megabytes: u32, data: &Path) -> Command {
    let (user, group) = servant().unwrap_or_else(|| {
        (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw())
    });
    let (root, servant) = if rustix::process::getuid().is_root() {
        ("unshare --mount", format!("setpriv --reuid {user} --regid {group} --clear-groups"))
    } else {
        (
            "unshare --user --map-root-user --mount",
            format!("unshare --user --map-user={user} --map-group={group}"),
        )
    };
    let owner = if rustix::process::getuid().is_root() { (user, group) } else { (0, 0) };
    let mount =
        format!("mount -t tmpfs -o size={megabytes}m,mode=700,uid={},gid={}", owner.0, owner.1);
    let script = format!(
        "exec {root} sh -c '{mount} tmpfs \"$0\" && cp -a \"$1\" \"$0/data\" && shift && exec {servant} \"$@\"' \"$@\""
    );
    let mut command = Command::new("sh");
    command.env_clear().env("LC_ALL", "C").current_dir("/");
    command.args(["-c", &script, "sh"]).arg(disk).arg(data);
    command
}

/// One of its programs.
fn command(name: &str) -> Command {
    let mut command = Command::new(programs().join(name));
    as_servant(&mut command);
    command
}

fn as_servant(command: &mut Command) {
    command.env_clear().env("LC_ALL", "C").current_dir("/");
    if let Some((user, group)) = servant() {
        command.uid(user).gid(group);
    }
}

fn spawn(directory: &TempDir, port: u16, settings: &[String], machine: &Machine) -> Child {
    let path = directory.path();
    let log = File::options().create(true).append(true).open(path.join("log")).expect("a log");
    let server = programs().join("postgres");
    let mut data = path.join("data");
    let mut command = match machine {
        Machine::This => Command::new(server),
        Machine::WithClock(ahead) => {
            let mut command = Command::new("faketime");
            command.args(["--exclude-monotonic", "-f", ahead]).arg(server);
            command
        }
        Machine::WithDisk(megabytes) => {
            let disk = path.join(DISK);
            fs::create_dir_all(&disk).expect("a directory");
            let mut command = on_disk(&disk, *megabytes, &data);
            data = disk.join("data");
            command.arg(server);
            command
        }
    };
    if !matches!(machine, Machine::WithDisk(_)) {
        as_servant(&mut command);
    }
    command
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .arg("-D")
        .arg(data)
        .args(["-p", &port.to_string(), "-c", "listen_addresses=127.0.0.1"])
        .arg("-k")
        .arg(path)
        // Data that survive a kill are enough: a busy disk would hold up each write.
        .args(["-c", "fsync=off", "-c", "max_connections=300"])
        .args(settings.iter().flat_map(|setting| ["-c", setting]))
        .stdin(Stdio::null())
        .stdout(log.try_clone().expect("a log"))
        .stderr(log);
    command.spawn().expect("PostgreSQL runs: ./setup.sh brings it")
}
