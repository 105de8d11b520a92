//! The candidates' processes.

use std::env;
use std::io::{self, BufRead as _, BufReader, PipeWriter, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::thread;

use rustix::process::{Pid, Signal, kill_process};

use crate::candidate::{CANDIDATE, Part, WRITE_LATE};
use crate::end::shortened;
use crate::record::Action;
use crate::report::{self, Report};

/// A candidate's process, which is killed when this is dropped.
#[derive(Debug)]
pub struct Process(Child);

impl Process {
    /// Starts this program again, as a candidate that reports into the pipe.
    ///
    /// To be called on the thread that lives longest: the candidate is killed when it ends.
    pub fn start(part: &Part, reports: &PipeWriter) -> io::Result<Self> {
        // This program, even if its file has been replaced meanwhile.
        let program = if cfg!(target_os = "linux") {
            PathBuf::from("/proc/self/exe")
        } else {
            env::current_exe()?
        };
        let child = Command::new(program)
            .arg0("incumbent-demo")
            .args([CANDIDATE, &serde_json::to_string(part)?])
            // Ctrl-C in the terminal must not reach it.
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(reports.try_clone()?)
            .stderr(Stdio::piped())
            .spawn()?;
        let mut process = Self(child);
        let stderr = process.0.stderr.take().ok_or(io::ErrorKind::BrokenPipe)?;
        let (name, reports) = (part.name.clone(), reports.try_clone()?);
        thread::Builder::new().spawn(move || follow(stderr, &name, reports))?;
        Ok(process)
    }

    pub fn pid(&self) -> u32 {
        self.0.id()
    }

    /// No other process gets its number before it is reaped.
    pub fn act(&mut self, action: Action) -> io::Result<()> {
        let signal = match action {
            Action::Stop => Signal::TERM,
            Action::Kill => Signal::KILL,
            Action::Pause => Signal::STOP,
            Action::Resume => Signal::CONT,
            Action::WriteLate => {
                // It reads this as soon as it is awake.
                let orders = self.0.stdin.as_mut().ok_or(io::ErrorKind::BrokenPipe)?;
                return writeln!(orders, "{WRITE_LATE}");
            }
        };
        Ok(kill_process(Pid::from_child(&self.0), signal)?)
    }

    /// To be called when it is known to have ended.
    pub fn reap(&mut self) -> io::Result<()> {
        self.0.wait().map(|_| ())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Both fail if it has been reaped.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Reports on behalf of a process: what it says on standard error, and its end.
fn follow(stderr: ChildStderr, name: &str, mut reports: PipeWriter) {
    for line in BufReader::new(stderr).split(b'\n').map_while(Result::ok) {
        let line = shortened(String::from_utf8_lossy(&line));
        // Fails, here and below, only if the demonstration has ended.
        let _ = report::write(&mut reports, name, &Report::Trouble(line));
    }
    let _ = report::write(&mut reports, name, &Report::Ended);
}
