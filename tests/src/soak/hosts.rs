//! Hosts that count, as processes, each with its own links to all members.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use incumbent::{BootClock, Clock, Contest, Mark};
use rustix::process::{Pid, Signal, kill_process};
use tokio::time::sleep;

use super::log::{Event, Line};
use crate::relay::Relay;

/// How long a host may take to end in order.
const PATIENCE: Duration = Duration::from_secs(20);

/// How hosts are started.
#[derive(Clone, Debug)]
pub struct Program {
    /// What counts, and the arguments that come before its own: the program `counter`, or
    /// one like it in another language.
    pub command: Vec<OsString>,
    /// What they campaign for.
    pub election: String,
    /// Where it writes down what happens.
    pub logs: PathBuf,
    /// How long leases live: whole seconds.
    pub ttl: Duration,
    /// How all decide who leads.
    pub contest: Contest,
}

/// One host: always a process, or none while it is killed.
#[derive(Debug)]
pub struct Host {
    /// What its processes' names begin with.
    pub name: String,
    program: Program,
    /// When to let others have their turn is drawn from it; never without it.
    seed: Option<u64>,
    /// To each member.
    pub links: Vec<Relay>,
    lives: u64,
    process: Option<Child>,
    log: Tail,
}

impl Host {
    /// A host with links to these members, which does not run yet.
    pub async fn new(
        name: String,
        program: Program,
        seed: Option<u64>,
        members: &[SocketAddr],
    ) -> Self {
        let mut links = Vec::new();
        for member in members {
            links.push(Relay::start(*member).await);
        }
        let log = Tail::default();
        Self { name, program, seed, links, lives: 0, process: None, log }
    }

    /// Starts its next process.
    ///
    /// # Errors
    ///
    /// Where there is no such program.
    pub fn start(&mut self) -> io::Result<()> {
        self.lives += 1;
        let process = format!("{}.{}", self.name, self.lives);
        let members: Vec<_> = self.links.iter().map(|link| link.address().to_string()).collect();
        let said = File::create(self.program.logs.join(&process).with_added_extension("stderr"))?;
        let Program { command, election, logs, ttl, contest } = &self.program;
        let (program, first) = command.split_first().expect("a command has a program");
        let mut command = Command::new(program);
        command
            .args(first)
            .args(["--store", &format!("etcd://{}", members.join(","))])
            .args(["--process", &process, "--election", election])
            .args(["--ttl", &ttl.as_secs().to_string()])
            .arg("--logs")
            .arg(logs)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(said)
            // Ctrl-C is for the soak alone, which ends its hosts.
            .process_group(0);
        if *contest == Contest::Race {
            command.args(["--contest", "race"]);
        }
        if let Some(seed) = self.seed {
            command.args(["--seed", &seed.wrapping_add(self.lives).to_string()]);
        }
        self.log = Tail::of(self.program.logs.join(process).with_added_extension("jsonl"));
        self.process = Some(command.spawn()?);
        Ok(())
    }

    /// Whether it can be asked to leave: it heeds signals before it begins its log.
    pub fn is_up(&self) -> bool {
        self.log.path.exists()
    }

    /// Whether it regards itself as leader, as far as its log tells.
    pub fn leads(&mut self) -> bool {
        self.epoch().is_some()
    }

    /// The epoch of its term, if it leads.
    pub fn epoch(&mut self) -> Option<i64> {
        self.process.is_some().then(|| self.log.epoch())?
    }

    /// Its process's own end, which nobody asked for.
    pub fn has_ended(&mut self) -> Option<ExitStatus> {
        self.process.as_mut()?.try_wait().ok().flatten()
    }

    /// SIGKILL.
    pub fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            let _ = process.kill();
            let _ = process.wait();
        }
    }

    /// SIGSTOP.
    pub fn pause(&self) {
        self.signal(Signal::STOP);
    }

    /// SIGCONT.
    pub fn resume(&self) {
        self.signal(Signal::CONT);
    }

    /// Asks it to leave.
    pub fn end(&self) {
        self.signal(Signal::TERM);
    }

    /// Waits for its end, within reason.
    ///
    /// # Errors
    ///
    /// Where it does not end, or not in order.
    pub async fn ended(&mut self) -> Result<(), String> {
        let since = Instant::now();
        while let Some(process) = &mut self.process {
            match process.try_wait() {
                Ok(Some(status)) if status.success() => self.process = None,
                Ok(Some(status)) => return Err(format!("{} ended with {status}", self.name)),
                Ok(None) if since.elapsed() < PATIENCE => sleep(Duration::from_millis(10)).await,
                Ok(None) => return Err(format!("{} does not end", self.name)),
                Err(error) => return Err(format!("{}: {error}", self.name)),
            }
        }
        Ok(())
    }

    fn signal(&self, signal: Signal) {
        let pid = self.process.as_ref().and_then(|process| i32::try_from(process.id()).ok());
        if let Some(pid) = pid.and_then(Pid::from_raw) {
            // A process that has ended by itself is noticed elsewhere.
            let _ = kill_process(pid, signal);
        }
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.kill();
    }
}

/// What the log of a process tells, as it grows.
#[derive(Debug, Default)]
struct Tail {
    path: PathBuf,
    read: u64,
    /// The epoch of the term that stands, and its deadline.
    term: (i64, Mark),
}

impl Tail {
    fn of(path: PathBuf) -> Self {
        Self { path, ..Self::default() }
    }

    fn epoch(&mut self) -> Option<i64> {
        // There is no log yet where the process has just begun.
        for line in self.more().unwrap_or_default() {
            match line.event {
                Event::Elected { epoch, valid_until, .. }
                | Event::Extended { epoch, valid_until, .. } => self.term = (epoch, valid_until),
                Event::Demoted { .. } => self.term.1 = 0,
                _ => {}
            }
        }
        (BootClock.now() < self.term.1).then_some(self.term.0)
    }

    fn more(&mut self) -> io::Result<Vec<Line>> {
        let mut file = File::open(&self.path)?;
        file.seek(SeekFrom::Start(self.read))?;
        let mut text = String::new();
        file.read_to_string(&mut text)?;
        let whole = text.rfind('\n').map_or("", |end| &text[..=end]);
        self.read += whole.len() as u64;
        Ok(whole.lines().filter_map(|line| serde_json::from_str(line).ok()).collect())
    }
}
