//! The processes that are measured: one on Incumbent, one on etcd's Go client, for both of which
//! the same lines mean the same (`peer.rs` has the list).

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use incumbent::Mark;
use incumbent_tests::line_process::LineProcess;
use rustix::process::{Pid, Signal, kill_process};

/// A lease so long that the requests which are counted are those of a handover.
pub const LONG: Duration = Duration::from_secs(600);

/// Where Debian's packages put the Go sources that the peer is built with.
const GO_SOURCES: &str = "/usr/share/gocode";

/// Whose client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Go,
    Ours,
}

impl Side {
    pub const ALL: [Self; 2] = [Self::Go, Self::Ours];
}

/// Both programs, ready to be started.
pub struct Programs {
    go: PathBuf,
    /// What `go version` says.
    pub go_version: String,
}

impl Programs {
    /// What has to be installed, if anything.
    pub fn lack() -> Option<&'static str> {
        let client = Path::new(GO_SOURCES).join("src/go.etcd.io/etcd/clientv3/concurrency");
        let complete = client.exists() && Command::new("go").arg("version").output().is_ok();
        (!complete).then_some(
            "nothing to compare with: the peer in Go is built with Debian's golang-go and \
             golang-etcd-server-dev (./setup.sh compare)",
        )
    }

    /// Builds the peer in Go.
    pub fn build() -> Result<Self> {
        let built = Path::new(env!("CARGO_TARGET_TMPDIR")).join("compare");
        fs::create_dir_all(&built)?;
        let go = built.join("peer");
        let build = Command::new("go")
            .args(["build", "-o"])
            .arg(&go)
            .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/compare/peer.go"))
            .envs([("GO111MODULE", "off"), ("GOFLAGS", ""), ("GOPATH", GO_SOURCES)])
            .env("GOCACHE", built.join("cache"))
            .status()?;
        ensure!(build.success(), "the peer in Go was not built");
        let version = Command::new("go").arg("version").output()?;
        let go_version = String::from_utf8(version.stdout)?.trim().to_owned();
        Ok(Self { go, go_version })
    }

    /// Starts a peer, and waits until it has connected to the etcd of this URL.
    pub fn start(&self, side: Side, url: &str, ttl: Duration) -> Result<Peer> {
        let ttl = ttl.as_secs().to_string();
        let mut process = match side {
            Side::Go => {
                let address = url.trim_start_matches("etcd://");
                LineProcess::start("the peer in Go", Command::new(&self.go).args([address, &ttl]))?
            }
            Side::Ours => {
                let mut command = Command::new(env::current_exe()?);
                LineProcess::start("our peer", command.args(["peer", url, &ttl]))?
            }
        };
        match process.answer()?.as_str() {
            "ready" => Ok(Peer { process }),
            other => bail!("{} answers {other}", process.name()),
        }
    }
}

/// A peer that runs.
pub struct Peer {
    process: LineProcess,
}

impl Peer {
    pub fn campaign(&mut self, name: &str, count: usize) -> Result<Mark> {
        self.mark(&format!("campaign {name} {count}"))
    }

    pub fn queue(&mut self, name: &str, count: usize) -> Result<Mark> {
        self.mark(&format!("queue {name} {count}"))
    }

    /// Kills it if an answer has not come by then.
    pub fn answers_until(mut self, deadline: Instant) -> Self {
        self.process.answers_until(deadline);
        self
    }

    pub fn resign(&mut self) -> Result<Mark> {
        self.mark("resign")
    }

    pub fn close(&mut self) -> Result<Mark> {
        self.mark("close")
    }

    pub fn drop_terms(&mut self) -> Result<Mark> {
        self.mark("drop")
    }

    /// Waits for so many more elections, and tells how long after this mark each was won.
    pub fn elected(&mut self, count: usize, began: Mark) -> Result<Vec<Duration>> {
        let marks = self.process.ask(&format!("elected {count}"))?;
        let after = |mark: &str| anyhow::Ok(Duration::from_nanos(mark.parse::<Mark>()? - began));
        marks.split_whitespace().map(after).collect()
    }

    /// Hands so many elections over for a while, each once a period or as soon as it can, and
    /// tells how long each handover took. Our peer only.
    pub fn carry(
        &mut self,
        (name, count): (&str, usize),
        period: Duration,
        time: Duration,
    ) -> Result<Vec<Duration>> {
        let (period, time) = (period.as_nanos(), time.as_nanos());
        let times = self.process.ask(&format!("carry {name} {count} {period} {time}"))?;
        let nanoseconds = |time: &str| anyhow::Ok(Duration::from_nanos(time.parse()?));
        times.split_whitespace().map(nanoseconds).collect()
    }

    /// Kills it, as `kill -9` does.
    pub fn kill(&self) -> Result<()> {
        kill_process(pid(self.process.pid())?, Signal::KILL)?;
        Ok(())
    }

    /// Resident memory, in bytes.
    pub fn resident(&self) -> Result<f64> {
        resident(i32::try_from(self.process.pid())?)
    }

    fn mark(&mut self, line: &str) -> Result<Mark> {
        Ok(self.process.ask(line)?.parse()?)
    }
}

/// Resident memory of a process, in bytes.
pub fn resident(pid: i32) -> Result<f64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.and_then(|line| line.trim().strip_suffix(" kB"));
    Ok(kilobytes.context("a process has a VmRSS")?.parse::<f64>()? * 1_024.0)
}

pub fn pid(number: u32) -> Result<Pid> {
    Pid::from_raw(i32::try_from(number)?).context("a process id")
}
