//! The candidates' processes.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, Stdio};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::sync::mpsc::UnboundedSender;

use super::candidate::WRITE_LATE;
use super::lines::Lines;
use super::stage::Happened;
use crate::cli::args::{Common, DEMO_CANDIDATE};
use crate::cli::run::launch;

/// One of them. It does not outlive us, nor this: it is killed when it is dropped.
#[derive(Debug)]
pub struct Process {
    child: Child,
    /// None once it has ended.
    orders: Option<ChildStdin>,
}

impl Process {
    /// To be called on the thread that lives longest, and within tokio's runtime. Returns
    /// what it reports as well.
    ///
    /// What it says on standard error is told through `happened`, as candidate `who`.
    pub fn start(
        common: &Common,
        election: &str,
        name: &str,
        ttl: Duration,
        who: usize,
        happened: UnboundedSender<Happened>,
    ) -> io::Result<(Self, Lines)> {
        let mut command = launch::this_program()?;
        command
            .args([DEMO_CANDIDATE, election, "--id", name, "--value", name, "--ttl"])
            .arg(humantime::format_duration(ttl).to_string())
            .arg("--store")
            .arg(common.store().to_string())
            .arg("--dial-timeout")
            .arg(humantime::format_duration(common.dial_timeout).to_string())
            .arg("--command-timeout")
            .arg(humantime::format_duration(common.command_timeout).to_string());
        let files = [
            ("--cacert", &common.cacert),
            ("--cert", &common.cert),
            ("--key", &common.key),
            ("--password-file", &common.password_file),
        ];
        for (flag, file) in files {
            if let Some(file) = file {
                command.arg(flag).arg(file);
            }
        }
        if let Some(user) = &common.user {
            command.arg("--user").arg(user);
        }
        // Nothing here asks for one, and it may be more than our short lease.
        command.env_remove("INCUMBENT_MARGIN");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = launch::start_bound(command)?;
        let orders = child.stdin.take();
        let (reports, remarks) = (child.stdout.take(), child.stderr.take());
        let process = Self { child, orders };
        // A thread, which always reads: no candidate waits until its remarks are read.
        if let Some(remarks) = remarks {
            thread::spawn(move || {
                read(remarks, |line| happened.send(Happened::Remarked(who, line)).is_ok());
            });
        }
        // These are read in order. The pipe holds about a minute of them.
        let reports = reports.ok_or(io::ErrorKind::BrokenPipe)?;
        Ok((process, Lines::of(reports.into())?))
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn kill(&mut self) -> io::Result<()> {
        self.child.kill()
    }

    /// Asks it to end in order.
    pub fn ask_to_stop(&self) -> io::Result<()> {
        self.signal(Signal::TERM)
    }

    pub fn pause(&self) -> io::Result<()> {
        self.signal(Signal::STOP)
    }

    pub fn resume(&self) -> io::Result<()> {
        self.signal(Signal::CONT)
    }

    /// It finds this when it runs, or runs again.
    pub fn write_late(&mut self) -> io::Result<()> {
        let orders = self.orders.as_mut().ok_or(io::ErrorKind::BrokenPipe)?;
        orders.write_all(format!("{WRITE_LATE}\n").as_bytes())?;
        orders.flush()
    }

    /// To be called when it is known to have ended.
    pub fn reap(&mut self) -> io::Result<()> {
        self.orders = None;
        self.child.wait().map(|_| ())
    }

    /// Nobody else has its number before we have reaped it.
    fn signal(&self, signal: Signal) -> io::Result<()> {
        Ok(kill_process(Pid::from_child(&self.child), signal)?)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Both fail where it has been reaped.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Line by line, to the end of the pipe or of the interest.
fn read(pipe: impl Read, mut tell: impl FnMut(String) -> bool) {
    let mut pipe = BufReader::new(pipe);
    let mut line = Vec::new();
    while pipe.read_until(b'\n', &mut line).unwrap_or(0) > 0 {
        let text = String::from_utf8_lossy(&line).trim_end().to_owned();
        if !tell(text) {
            break;
        }
        line.clear();
    }
}
