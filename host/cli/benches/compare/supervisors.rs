//! `etcdctl lock NAME CMD` and `incumbent run NAME -- CMD` as programs: each starts, waits, is told
//! to stop, and is killed.

use std::io::{BufRead as _, BufReader, Lines};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use incumbent_tests::etcd::Etcd;
use incumbent_tests::program::{children, is_alive};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use tokio::time::sleep;

use crate::elections::SHORT;
use crate::handovers::SETTLED;
use crate::peers::{Side, pid, resident};
use crate::store::Store;

/// It says when it runs, and under which process id.
const WORK: [&str; 3] = ["sh", "-c", "echo $$; exec sleep 1000"];
/// How long a supervisor has for a SIGTERM, until its work counts as not stopped.
const HEEDED_WITHIN: Duration = Duration::from_secs(1);

/// What was measured of one of the programs.
#[derive(Default)]
pub struct Supervised {
    /// From its start until the work ran.
    pub start: Vec<Duration>,
    /// Of all its processes but the work, while the work runs, in bytes.
    pub leading: Vec<f64>,
    /// Of a program that waits, in bytes.
    pub waiting: Vec<f64>,
    /// From Ctrl-C until the work of the waiting program ran.
    pub interrupted: Vec<Duration>,
    /// From `kill -9` of the program until the work of the waiting one ran.
    pub killed: Vec<Duration>,
    /// How often the work of the killed program still ran then.
    pub side_by_side: usize,
    /// How often the work ended when the program alone got a SIGTERM.
    pub heeded: usize,
}

/// Starts two of them, interrupts the first, starts a third, and kills the second.
pub async fn round(
    side: Side,
    etcd: &Etcd,
    store: &mut Store<'_>,
    measured: &mut Supervised,
    number: usize,
) -> Result<()> {
    let name = format!("program-{side:?}-{number}");
    let start = || Supervisor::start(side, etcd, &name);
    let began = Instant::now();
    let mut first = start()?;
    let work = first.works()?;
    measured.start.push(began.elapsed());

    let mut second = start()?;
    store.in_line(&name, 2).await?;
    sleep(SETTLED).await;
    measured.leading.push(first.memory(Some(work))?);
    measured.waiting.push(second.memory(None)?);
    let began = Instant::now();
    // As a terminal sends it: to the program and to what is in its process group.
    kill_process_group(pid(first.process.id())?, Signal::INT)?;
    let work = second.works()?;
    measured.interrupted.push(began.elapsed());
    first.process.wait()?;

    let mut third = start()?;
    store.in_line(&name, 2).await?;
    sleep(SETTLED).await;
    let began = Instant::now();
    second.process.kill()?;
    let next = third.works()?;
    measured.killed.push(began.elapsed());
    measured.side_by_side += usize::from(is_alive(work));
    end(work)?;

    kill_process(pid(third.process.id())?, Signal::TERM)?;
    let began = Instant::now();
    while is_alive(next) && began.elapsed() < HEEDED_WITHIN {
        thread::sleep(Duration::from_millis(5));
    }
    measured.heeded += usize::from(!is_alive(next));
    end(next)?;
    third.process.wait()?;
    Ok(())
}

/// Kills the work, if it still runs.
fn end(work: i32) -> Result<()> {
    // It may have ended meanwhile.
    let _ = kill_process(Pid::from_raw(work).context("a process id")?, Signal::KILL);
    Ok(())
}

/// One that runs. Killed when it is dropped, with what it has started.
struct Supervisor {
    process: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Supervisor {
    fn start(side: Side, etcd: &Etcd, name: &str) -> Result<Self> {
        let ttl = SHORT.as_secs();
        let mut command = match side {
            Side::Go => etcd.etcdctl_command(&["lock", "--ttl", &ttl.to_string(), name, "--"]),
            Side::Ours => {
                let mut command = Command::new(env!("CARGO_BIN_EXE_incumbent"));
                command.args(["run", name, "--store", &etcd.url()]);
                command.args(["--ttl", &format!("{ttl}s"), "--"]);
                command
            }
        };
        let command = command.args(WORK).process_group(0);
        let mut process =
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        let lines = BufReader::new(process.stdout.take().context("a pipe")?).lines();
        Ok(Self { process, lines })
    }

    /// Waits until its work runs, and tells the process id of the work.
    fn works(&mut self) -> Result<i32> {
        Ok(self.lines.next().context("the program has ended")??.parse()?)
    }

    /// Resident memory of all its processes but the work, in bytes.
    fn memory(&self, work: Option<i32>) -> Result<f64> {
        let mut sum = 0.0;
        let mut processes = vec![i32::try_from(self.process.id())?];
        while let Some(process) = processes.pop() {
            if Some(process) != work {
                sum += resident(process)?;
                processes.extend(children(process).into_iter().map(|(child, _)| child));
            }
        }
        Ok(sum)
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
