//! Hosts that count, as processes, each with its own links to all members.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use incumbent::{BootClock, Clock, Mark};
use rustix::process::{Pid, Signal, kill_process};
use tokio::time::sleep;

use super::log::{Event, Line};
use super::servers::Store;
use crate::relay::Relay;

/// How long a host may take to end in order.
const END_TIMEOUT: Duration = Duration::from_secs(20);

/// How hosts are started.
#[derive(Clone, Debug)]
pub struct Program {
    /// What counts, and the arguments that come before its own: the program `counter`, or
    /// one like it in another language.
    pub command: Vec<OsString>,
    /// Which kind of store the members are.
    pub store: Store,
    /// What they campaign for.
    pub elections: Vec<String>,
    /// The directory of its log.
    pub logs: PathBuf,
    /// How long leases live: whole seconds.
    pub ttl: Duration,
}

/// One host: always a process, or none while it is killed.
#[derive(Debug)]
pub struct Host {
    /// What its processes' names begin with.
    pub name: String,
    program: Program,
    /// The times of its resignations are drawn from it. Without it, it keeps its terms.
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
        Self { name, program, seed, links, lives: 0, process: None, log: Tail::default() }
    }

    /// Starts its next process.
    ///
    /// # Errors
    ///
    /// Where there is no such program.
    pub fn start(&mut self) -> io::Result<()> {
        self.lives += 1;
        let process = format!("{}.{}", self.name, self.lives);
        let stderr = File::create(self.program.logs.join(&process).with_added_extension("stderr"))?;
        let Program { command, store, elections, logs, ttl } = &self.program;
        let (program, first) = command.split_first().expect("a command has a program");
        let mut command = Command::new(program);
        command
            .args(first)
            .args(["--store", &store.url(self.links.iter().map(Relay::address))])
            .args(["--process", &process])
            .args(elections.iter().flat_map(|election| ["--election", election]))
            .args(["--ttl", &ttl.as_secs().to_string()])
            .arg("--logs")
            .arg(logs)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(stderr)
            // Ctrl-C is for the soak alone, which ends its hosts.
            .process_group(0);
        if let Some(seed) = self.seed {
            command.args(["--seed", &seed.wrapping_add(self.lives).to_string()]);
        }
        let path = self.program.logs.join(process).with_added_extension("jsonl");
        self.log = Tail { path, ..Tail::default() };
        self.process = Some(command.spawn()?);
        Ok(())
    }

    /// Whether it can be asked to leave: it heeds signals before it begins its log.
    pub fn is_up(&self) -> bool {
        self.log.path.exists()
    }

    /// Whether it regards itself as leader of any election, as far as its log tells.
    pub fn leads(&mut self) -> bool {
        !self.terms().is_empty()
    }

    /// The elections that it leads, and the epochs of its terms.
    pub fn terms(&mut self) -> BTreeMap<&str, i64> {
        if self.process.is_some() { self.log.terms() } else { BTreeMap::new() }
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

    /// SIGTERM: asks it to leave.
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
                Ok(None) if since.elapsed() < END_TIMEOUT => sleep(Duration::from_millis(10)).await,
                Ok(None) => return Err(format!("{} does not end", self.name)),
                Err(error) => return Err(format!("{}: {error}", self.name)),
            }
        }
        Ok(())
    }

    fn signal(&self, signal: Signal) {
        if let Some(process) = &self.process {
            // A process that has ended by itself is noticed elsewhere.
            let _ = kill_process(Pid::from_child(process), signal);
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
    /// None where the process has just begun.
    file: Option<BufReader<File>>,
    /// The line that is being read: it may be there in part.
    line: String,
    /// By election, the epoch of the term that stands, and its deadline.
    terms: BTreeMap<String, (i64, Mark)>,
}

impl Tail {
    fn terms(&mut self) -> BTreeMap<&str, i64> {
        self.read();
        let now = BootClock.now();
        let stand = self.terms.iter().filter(|(_, (_, valid_until))| now < *valid_until);
        stand.map(|(election, (epoch, _))| (election.as_str(), *epoch)).collect()
    }

    /// Reads what has come since.
    fn read(&mut self) {
        if self.file.is_none() {
            self.file = File::open(&self.path).ok().map(BufReader::new);
        }
        let Some(file) = &mut self.file else { return };
        while file.read_line(&mut self.line).is_ok_and(|read| read > 0) && self.line.ends_with('\n')
        {
            match serde_json::from_str(&self.line).map(|line: Line| line.event) {
                Ok(Event::Elected(term) | Event::Extended(term)) => {
                    self.terms.insert(term.election, (term.epoch, term.valid_until));
                }
                Ok(Event::Demoted { term, .. }) => {
                    self.terms.remove(&term.election);
                }
                Ok(_) | Err(_) => {}
            }
            self.line.clear();
        }
    }
}
