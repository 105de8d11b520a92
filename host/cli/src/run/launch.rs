//! How processes are started: the command, in a group of its own and never to outlive its
//! parent; and this program again, in another role.

#![allow(unsafe_code, reason = "what a process does between fork and exec has no safe interface")]

use std::env;
use std::ffi::{CStr, OsStr, OsString};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use nix::sys::signal::{SigSet, SigmaskHow};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, getpid, getppid};
use rustix::stdio::{dup2_stderr, dup2_stdin, dup2_stdout};
use rustix::termios::tcsetpgrp;

/// Starts the command in a new process group. With `foreground` the group has the terminal
/// before the command runs.
///
/// The caller has to be the thread that lives longest, with all signals blocked: the command is
/// killed when that thread ends, however it ends. The command gets `mask` as its signal mask.
pub fn start(command: &[OsString], foreground: bool, mask: SigSet) -> io::Result<Pid> {
    let (program, arguments) = command.split_first().ok_or(io::ErrorKind::InvalidInput)?;
    let mut command = Command::new(program);
    command.args(arguments).process_group(0);
    let terminal = foreground
        .then(|| OpenOptions::new().read(true).write(true).open("/dev/tty"))
        .transpose()?;
    let parent = getpid();
    let prepare = move || prepare(parent, terminal.as_ref(), mask);
    // SAFETY: `prepare` makes system calls, and does nothing else: it neither
    // allocates nor takes a lock.
    unsafe { command.pre_exec(prepare) };
    // Dropped without a wait: it is reaped with all other children.
    Ok(Pid::from_child(&command.spawn()?))
}

/// In the new process, before it becomes the command.
fn prepare(parent: Pid, terminal: Option<&File>, mask: SigSet) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    // The parent may have died before the call.
    if getppid() != Some(parent) {
        return Err(Errno::SRCH.into());
    }
    if let Some(terminal) = terminal {
        // From the background, which would stop us if the signal was not blocked.
        tcsetpgrp(terminal, getpid())?;
    }
    Ok(mask.thread_set_mask()?)
}

/// Blocks all signals for good. Returns those that were blocked before.
pub fn block_signals() -> io::Result<SigSet> {
    Ok(SigSet::all().thread_swap_mask(SigmaskHow::SIG_SETMASK)?)
}

/// The first argument of the process between the supervisor and the work.
pub const GUARD: &str = "run-guard";

/// The first argument of the process that systemd starts when a service has ended.
pub const CLEAN_UP: &str = "run-clean-up";

/// The first argument of the first process in an isolated work's namespace.
pub const INIT: &str = "run-init";

/// The first argument of the process that finds out whether there can be such a namespace.
pub const PROBE: &str = "run-probe";

/// This program, also where its file has been replaced meanwhile.
fn program() -> io::Result<PathBuf> {
    if cfg!(target_os = "linux") { Ok("/proc/self/exe".into()) } else { env::current_exe() }
}

/// Whether it can be found: checked before other candidates wait for us.
pub fn find() -> io::Result<()> {
    fs::metadata(program()?).map(|_| ())
}

/// This program again, in another role: [`GUARD`], [`INIT`] or [`PROBE`].
pub fn ourselves(role: &str) -> io::Result<Command> {
    let mut command = Command::new(program()?);
    command.arg0("incumbent").arg(role);
    Ok(command)
}

/// A number that the process that started us has given us.
pub fn number(argument: Option<OsString>) -> io::Result<i32> {
    let number = argument.as_deref().and_then(OsStr::to_str).and_then(|text| text.parse().ok());
    number.filter(|number| *number >= 0).ok_or_else(|| io::ErrorKind::InvalidInput.into())
}

/// Sets the name that `ps` shows where it shows no arguments.
pub fn set_name(name: &CStr) {
    #[cfg(target_os = "linux")]
    let _ = nix::sys::prctl::set_name(name);
    #[cfg(not(target_os = "linux"))]
    let _ = name;
}

/// Leaves standard input and output to the command, so that a reader of its output sees its end.
/// Without a /dev/null they stay open, and the reader sees the end only when we end.
pub fn leave_stdio() {
    if let Ok(nothing) = OpenOptions::new().read(true).write(true).open("/dev/null") {
        // None can fail: the file is open.
        let _ = dup2_stdin(&nothing);
        let _ = dup2_stdout(&nothing);
        let _ = dup2_stderr(&nothing);
    }
}
