//! `--isolate`: the command in a PID namespace of its own, which the kernel kills as a whole
//! when its first process ends. That process is an init of ours: a child of the guard, which
//! dies with the guard, however the guard ends.
//!
//! The init is cloned, not unshared: after `unshare(CLONE_NEWPID)` the guard could start no
//! thread, and it needs one to look up a name when it gives the lease back.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use incumbent::Mark;
use nix::sys::signal::SigSet;
use rustix::process::{Pid, Signal, kill_process};

use super::channel::Channel;
use super::children::{Reaped, reap};
use super::launch::{self, block_signals, leave_stdio, ourselves};
use super::message::Report;
use super::poller::Poller;
use super::process_tree::{ProcessTree, inside};
use crate::exit::{End, bad_input};

/// The init, as the guard sees it.
#[derive(Debug)]
pub struct Init {
    pid: Pid,
    channel: Channel,
    /// It has reported that the command has begun, or that it does not.
    has_told: bool,
    /// It has reported how the command has ended, or that it does not begin.
    has_ended: bool,
    /// The init itself is reaped: its number may be another process's now.
    is_gone: bool,
}

impl Init {
    /// To wait for what it says.
    pub fn channel(&self) -> Option<BorrowedFd<'_>> {
        self.channel.is_open().then(|| self.channel.as_fd())
    }

    /// Kills it, and so all that is in its namespace.
    pub fn kill(&self) {
        if !self.is_gone {
            // It is our child, and may have ended.
            let _ = kill_process(self.pid, Signal::KILL);
        }
    }

    /// A child of the guard's has changed: perhaps the init. An init that is stopped is woken;
    /// one that has ended has taken the command along. Returns what the supervisor does not
    /// know yet.
    pub fn changed(
        &mut self,
        child: Pid,
        status: ExitStatus,
        tree: &mut ProcessTree,
    ) -> Option<Report> {
        if child != self.pid || self.is_gone {
            return None;
        }
        if status.stopped_signal().is_some() {
            // Fails if it has gone meanwhile.
            let _ = kill_process(child, Signal::CONT);
            return None;
        }
        self.is_gone = true;
        tree.ended();
        if self.has_ended {
            return None;
        }
        // Killed before it said so, it may have begun the command all the same.
        Some(if self.has_told || status.signal().is_some() {
            Report::Changed(ExitStatus::from_raw(Signal::KILL.as_raw()))
        } else {
            Report::NotStarted(io::Error::other("its namespace ended before it began"))
        })
    }

    /// Passes on what it has said.
    pub fn relay(&mut self, tree: &mut ProcessTree, supervisor: &mut Channel) {
        self.channel.exchange();
        while let Some(mut report) = self.channel.message() {
            self.has_told = true;
            match &mut report {
                // Inside, every process has another number.
                Report::Started(pid) => match inside(self.pid, *pid) {
                    Some(leader) => {
                        tree.started(leader);
                        *pid = leader;
                    }
                    // It has ended already.
                    None => continue,
                },
                Report::Changed(status) => {
                    if status.stopped_signal().is_none() {
                        self.has_ended = true;
                        tree.ended();
                    }
                }
                Report::NotStarted(_) => self.has_ended = true,
                Report::Overdue | Report::Gone => {}
            }
            supervisor.send(&report);
        }
    }
}

/// The process: the number of its channel to the guard, whether the command takes the
/// foreground, and the command.
pub fn main(mut arguments: impl Iterator<Item = OsString>) -> io::Result<()> {
    let number = launch::number(arguments.next())?;
    let mut guard = Channel::inherited(number)?;
    let foreground = launch::number(arguments.next())? != 0;
    let mask = block_signals()?;
    launch::set_name(c"incumbent-init");
    let command: Vec<OsString> = arguments.collect();
    let mut poller = Poller::new()?;
    let leader = match launch::start(&command, foreground, mask) {
        Ok(leader) => leader,
        Err(error) => {
            guard.send(&Report::NotStarted(error));
            return Ok(());
        }
    };
    guard.send(&Report::Started(leader));
    leave_stdio();
    loop {
        guard.exchange();
        if !guard.is_open() {
            // The whole namespace dies with us.
            return Ok(());
        }
        match reap() {
            Reaped::One(pid, status) if pid == leader => guard.send(&Report::Changed(status)),
            Reaped::One(..) => {}
            Reaped::NotYet => poller.wait(&[guard.as_fd()], Mark::MAX)?,
            Reaped::NoneLeft => return Ok(()),
        }
    }
}

/// Whether the system lets us do that: found out before other candidates wait for us.
pub fn find() -> Result<(), End> {
    let reason = match ourselves(launch::PROBE).and_then(|mut probe| probe.output()) {
        Ok(output) if output.status.success() => return Ok(()),
        Ok(output) => String::from_utf8_lossy(&output.stdout).trim().to_owned(),
        Err(error) => error.to_string(),
    };
    Err(bad_input(format!(
        "--isolate: the system lets us make no PID namespace ({reason}): run as root, have it \
         allow user namespaces (sysctl user.max_user_namespaces and the like), or leave \
         --isolate out"
    )))
}

pub use self::system::{probe, start};

#[cfg(target_os = "linux")]
mod system {
    #![allow(unsafe_code, reason = "a process in new namespaces has no safe interface")]

    use std::ffi::CStr;
    use std::fs;
    use std::os::unix::process::CommandExt;
    use std::process::Command;

    use nix::errno::Errno;
    use nix::mount::{MsFlags, mount};
    use nix::sched::{CloneFlags, clone};
    use nix::sys::signal::Signal::SIGCHLD;
    use rustix::process::{WaitOptions, getgid, getuid, set_parent_process_death_signal, waitpid};

    use super::super::channel::pass_on;
    use super::*;

    /// What the init's first steps take.
    const STACK: usize = 1 << 20;

    /// Starts the init, which starts the command. The caller has one thread, and has blocked
    /// all signals; the command gets `mask` as its own.
    pub fn start(command: &[OsString], foreground: bool, mask: SigSet) -> io::Result<Init> {
        let (channel, theirs) = Channel::pair()?;
        let mut init = ourselves(launch::INIT)?;
        init.arg(pass_on(theirs.as_fd())?.to_string())
            .arg(u8::from(foreground).to_string())
            .args(command);
        let pid = in_new_namespaces(&mut || match mask.thread_set_mask() {
            // Returns where it fails.
            Ok(()) => init.exec(),
            Err(error) => error.into(),
        })?;
        Ok(Init { pid, channel, has_told: false, has_ended: false, is_gone: false })
    }

    /// The process that finds out whether this is allowed. An error if not.
    pub fn probe() -> io::Result<()> {
        let mut nothing = Command::new("/proc/self/exe");
        nothing.arg("--version").stdout(std::process::Stdio::null());
        let pid = in_new_namespaces(&mut || nothing.exec())?;
        match waitpid(Some(pid), WaitOptions::empty())? {
            Some((_, status)) if status.exit_status() == Some(0) => Ok(()),
            Some(_) | None => Err(io::Error::other("a process in it does not run")),
        }
    }

    /// Runs `body` as the first process of a PID namespace; in a user namespace where nothing
    /// else is allowed. It is killed when the caller dies.
    fn in_new_namespaces(body: &mut dyn FnMut() -> io::Error) -> io::Result<Pid> {
        let alone = CloneFlags::CLONE_NEWPID | CloneFlags::CLONE_NEWNS;
        match first_process(alone, None, body) {
            Err(Errno::EPERM) => {
                let ids = (getuid().as_raw(), getgid().as_raw());
                Ok(first_process(alone | CloneFlags::CLONE_NEWUSER, Some(ids), body)?)
            }
            started => Ok(started?),
        }
    }

    fn first_process(
        namespaces: CloneFlags,
        ids: Option<(u32, u32)>,
        body: &mut dyn FnMut() -> io::Error,
    ) -> Result<Pid, Errno> {
        let mut stack = vec![0; STACK];
        let run = || {
            let prepared = set_parent_process_death_signal(Some(Signal::KILL))
                .map_err(io::Error::from)
                .and_then(|()| ids.map_or(Ok(()), keep_ids));
            if prepared.is_ok() {
                show_own_processes();
                let _ = body();
            }
            1
        };
        // SAFETY: without CLONE_VM this is a fork, of a process with one thread: no
        // other can hold a lock. The stack is large enough for what is done here.
        let pid = unsafe { clone(Box::new(run), &mut stack, namespaces, Some(SIGCHLD as i32)) }?;
        Pid::from_raw(pid.as_raw()).ok_or(Errno::ESRCH)
    }

    /// In a user namespace: our user and group keep their numbers, and no other is mapped.
    fn keep_ids((user, group): (u32, u32)) -> io::Result<()> {
        fs::write("/proc/self/setgroups", "deny")?;
        fs::write("/proc/self/uid_map", format!("{user} {user} 1"))?;
        fs::write("/proc/self/gid_map", format!("{group} {group} 1"))
    }

    /// A /proc with our numbers, where that is allowed: without it, `ps` and its
    /// like see numbers that mean nothing here.
    fn show_own_processes() {
        const NONE: Option<&CStr> = None;
        // What is mounted outside is seen inside, and not the other way round.
        let slave = MsFlags::MS_SLAVE | MsFlags::MS_REC;
        let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
        let _ = mount(NONE, c"/", NONE, slave, NONE)
            .and_then(|()| mount(Some(c"proc"), c"/proc", Some(c"proc"), flags, NONE));
    }
}

#[cfg(not(target_os = "linux"))]
mod system {
    use super::*;

    pub fn start(_: &[OsString], _: bool, _: SigSet) -> io::Result<Init> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub fn probe() -> io::Result<()> {
        Err(io::Error::other("only Linux has them"))
    }
}
