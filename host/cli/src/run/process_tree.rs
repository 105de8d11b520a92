//! Which processes descend from which: so that nothing of the work gets away by leaving its
//! process group.
//!
//! The number of a process that has ended may be another process's a moment later. So a process
//! is signalled by a descriptor (pidfd), which stands for that one process, and only if it was
//! found below us again after the descriptor was opened. Kernels before 5.3 have no descriptors:
//! there it is signalled by its number.

use std::collections::HashSet;
use std::fs;
use std::io;
#[cfg(target_os = "linux")]
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, getpgid, getpid, kill_process, kill_process_group, test_kill_process_group,
};
#[cfg(target_os = "linux")]
use rustix::process::{PidfdFlags, pidfd_open, pidfd_send_signal};

/// How often to kill again while new processes are found.
const PASSES: usize = 50;

/// The processes of the work, seen from a process above all of them.
#[derive(Clone, Debug, Default)]
pub struct ProcessTree {
    /// The process group that the command was started in: its own number.
    group: Option<Pid>,
    /// The command is not reaped yet: no other process can have the group's number.
    leads: bool,
    /// The guard between us and the work, if there is one.
    guard: Option<Pid>,
    /// Children that we had before the guard: they do not belong to the work.
    unrelated: Vec<Pid>,
}

impl ProcessTree {
    /// For the supervisor, with a guard between it and the work, and the children that it had
    /// before.
    pub fn behind(guard: Pid, unrelated: Vec<Pid>) -> Self {
        Self { guard: Some(guard), unrelated, ..Self::default() }
    }

    /// The command runs.
    pub fn started(&mut self, leader: Pid) {
        self.group = Some(leader);
        self.leads = true;
    }

    /// The command has ended, and is reaped.
    pub fn ended(&mut self) {
        // On other systems only the group is known, and it may live on.
        self.leads = !cfg!(target_os = "linux");
    }

    /// A child of ours has ended, and is reaped: another process may get its number.
    pub fn reaped(&mut self, child: Pid) {
        if self.guard == Some(child) {
            self.guard = None;
        }
        if self.is_led_by(child) {
            self.ended();
        }
        self.unrelated.retain(|unrelated_child| *unrelated_child != child);
    }

    /// The group of the command.
    pub fn group(&self) -> Option<Pid> {
        self.group
    }

    pub fn guard(&self) -> Option<Pid> {
        self.guard
    }

    pub fn is_led_by(&self, pid: Pid) -> bool {
        self.group == Some(pid)
    }

    /// Signals the group, and each process below us that has left it.
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        let (told, result) = self.signal_all(signal);
        told.map(drop).and(result)
    }

    /// Kills all of them, and those that are forked meanwhile, as far as they are found.
    pub fn kill(&self) -> io::Result<()> {
        let mut known = HashSet::new();
        let mut result = Ok(());
        for _ in 0..PASSES {
            let (told, killed) = self.signal_all(Signal::KILL);
            result = killed;
            let Signalled { signalled, seen } = told?;
            let before = known.len();
            known.extend(signalled);
            // Processes that are killed fork no more: these are all.
            if known.len() == before && seen.iter().all(|pid| known.contains(pid)) {
                break;
            }
        }
        result
    }

    /// Signals all that can be listed.
    fn signal_all(&self, signal: Signal) -> (io::Result<Signalled>, io::Result<()>) {
        // Before the group is signalled: a process whose parent ends meanwhile may be missing.
        let listed = self.members().and_then(|first| {
            let processes: Vec<_> = first.into_iter().map(Process::of).collect();
            Ok((processes, self.members()?))
        });
        let group = self.group.filter(|_| self.leads);
        let mut result =
            group.map_or(Ok(()), |group| unless_gone(kill_process_group(group, signal)));
        let (processes, seen) = match listed {
            Ok(listed) => listed,
            Err(error) => return (Err(error), result),
        };
        let still: HashSet<_> = seen.iter().copied().collect();
        let mut signalled = Vec::new();
        for process in processes {
            if !still.contains(&process.pid) {
                continue;
            }
            signalled.push(process.pid);
            if group.is_none() || getpgid(Some(process.pid)).ok() != group {
                result = result.and(unless_gone(process.signal(signal)));
            }
        }
        (Ok(Signalled { signalled, seen }), result)
    }

    /// Signals the group alone.
    pub fn signal_group(&self, signal: Signal) -> io::Result<()> {
        match self.group.filter(|_| self.leads) {
            Some(group) => unless_gone(kill_process_group(group, signal)),
            None => Ok(()),
        }
    }

    /// Whether none of them seems to run, although some may not be reaped. A process whose parent
    /// ends at this moment may be overlooked. False if the processes cannot be listed.
    pub fn is_dead(&self) -> bool {
        if cfg!(target_os = "linux") {
            self.members().is_ok_and(|members| !members.into_iter().any(runs))
        } else {
            self.group.is_none_or(|group| test_kill_process_group(group) == Err(Errno::SRCH))
        }
    }

    /// Whether none of them is left. The caller has just reaped all that could be reaped;
    /// `is_childless` if we have no child any more.
    pub fn is_gone(&self, is_childless: bool) -> bool {
        if cfg!(target_os = "linux") {
            // A process below us that loses its parent becomes our child at that moment.
            is_childless
                || self.guard.is_none() && self.members().is_ok_and(|members| members.is_empty())
        } else {
            self.guard.is_none() && self.is_dead()
        }
    }

    fn members(&self) -> io::Result<Vec<Pid>> {
        if !cfg!(target_os = "linux") {
            return Ok(Vec::new());
        }
        if let Some(guard) = self.guard {
            let members = descendants(children(guard)?)?;
            // When it has died, they are ours.
            if runs(guard) {
                return Ok(members);
            }
        }
        let mut ours = own_children()?;
        ours.retain(|pid| self.guard != Some(*pid) && !self.unrelated.contains(pid));
        descendants(ours)
    }
}

/// The result of a signal to all of them.
#[derive(Debug)]
struct Signalled {
    signalled: Vec<Pid>,
    /// Those that were there when all descriptors were open.
    seen: Vec<Pid>,
}

/// One process, even if another process gets its number.
#[derive(Debug)]
struct Process {
    pid: Pid,
    /// An error if the system has no descriptors.
    #[cfg(target_os = "linux")]
    descriptor: Result<OwnedFd, Errno>,
}

impl Process {
    /// The process that has this number at this moment.
    fn of(pid: Pid) -> Self {
        Self {
            pid,
            #[cfg(target_os = "linux")]
            descriptor: pidfd_open(pid, PidfdFlags::empty()),
        }
    }

    fn signal(&self, signal: Signal) -> Result<(), Errno> {
        #[cfg(target_os = "linux")]
        match &self.descriptor {
            Ok(descriptor) => return pidfd_send_signal(descriptor, signal),
            Err(Errno::SRCH) => return Err(Errno::SRCH),
            // An old kernel, a sandbox, or too many open files.
            Err(_) => {}
        }
        kill_process(self.pid, signal)
    }
}

/// Processes that are gone need no signal.
fn unless_gone(signalled: Result<(), Errno>) -> io::Result<()> {
    match signalled {
        Ok(()) | Err(Errno::SRCH) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// These processes and all their descendants, parents first. A process that is forked meanwhile
/// may be missing: ask again until none is left.
fn descendants(mut found: Vec<Pid>) -> io::Result<Vec<Pid>> {
    let mut known: HashSet<_> = found.iter().copied().collect();
    let mut next = 0;
    while let Some(parent) = found.get(next).copied() {
        next += 1;
        found.extend(children(parent)?.into_iter().filter(|pid| known.insert(*pid)));
    }
    Ok(found)
}

/// Our own children. An error as well where there is no /proc.
pub fn own_children() -> io::Result<Vec<Pid>> {
    children_by_thread(getpid())
}

/// The children of a process, which may have ended.
fn children(parent: Pid) -> io::Result<Vec<Pid>> {
    match children_by_thread(parent) {
        Err(error) if is_gone(&error) => Ok(Vec::new()),
        children => children,
    }
}

fn children_by_thread(parent: Pid) -> io::Result<Vec<Pid>> {
    let threads = format!("/proc/{}/task", parent.as_raw_nonzero());
    let mut found = Vec::new();
    for thread in fs::read_dir(threads)? {
        let thread = thread?.path();
        match fs::read_to_string(thread.join("children")) {
            Ok(pids) => found.extend(pids.split_whitespace().filter_map(pid)),
            // The kernel keeps no such lists, or the thread has ended.
            Err(error) if is_gone(&error) => {
                if thread.exists() {
                    return children_among_all(parent);
                }
            }
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}

fn children_among_all(parent: Pid) -> io::Result<Vec<Pid>> {
    let is_child = |pid: &Pid| stat(*pid).is_some_and(|(_, its_parent)| its_parent == Some(parent));
    Ok(all()?.into_iter().filter(is_child).collect())
}

/// All processes that we may see.
pub fn all() -> io::Result<Vec<Pid>> {
    let mut found = Vec::new();
    for process in fs::read_dir("/proc")? {
        found.extend(process?.file_name().to_str().and_then(pid));
    }
    Ok(found)
}

/// Whether the error means that a process, or a thread, has gone.
fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound
        || error.raw_os_error() == Some(Errno::SRCH.raw_os_error())
}

/// The child of an init that has this number in the init's namespace.
pub fn inside(init: Pid, number: Pid) -> Option<Pid> {
    children(init).ok()?.into_iter().find(|child| {
        let status = fs::read_to_string(format!("/proc/{}/status", child.as_raw_nonzero()));
        let status = status.unwrap_or_default();
        // From our namespace to the innermost.
        let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
        numbers.and_then(|numbers| numbers.split_whitespace().last().and_then(pid)) == Some(number)
    })
}

/// Whether it can do something: it has neither ended nor been reaped.
pub fn runs(process: Pid) -> bool {
    stat(process).is_some_and(|(state, _)| !matches!(state, 'Z' | 'X'))
}

/// The state and the parent of a process, if there is one.
fn stat(process: Pid) -> Option<(char, Option<Pid>)> {
    let stat = fs::read_to_string(format!("/proc/{}/stat", process.as_raw_nonzero())).ok()?;
    // They follow the name, which may hold anything, in brackets.
    let mut fields = stat.rsplit_once(") ")?.1.split(' ');
    Some((fields.next()?.chars().next()?, fields.next().and_then(pid)))
}

fn pid(text: &str) -> Option<Pid> {
    text.parse().ok().and_then(Pid::from_raw)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn finds_those_who_have_left_the_group() {
        let mut shell = Command::new("sh")
            .args(["-c", "setsid sleep 1000 & echo; read line; kill $!"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut ready = [0];
        io::Read::read_exact(shell.stdout.as_mut().unwrap(), &mut ready).unwrap();
        let parent = Pid::from_child(&shell);
        let all = descendants(own_children().unwrap()).unwrap();
        let sleeper = *children(parent).unwrap().first().unwrap();
        assert!(all.contains(&parent) && all.contains(&sleeper), "{all:?}");
        assert_eq!(children_among_all(parent).unwrap(), [sleeper]);
        drop(shell.stdin.take());
        shell.wait().unwrap();
    }

    /// A process that got the number of one that has ended is not signalled for it.
    #[test]
    fn a_number_that_was_given_again_is_somebody_else() {
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "--pid", "--fork", "--mount-proc"]);
        command.args(["--kill-child"]).arg(std::env::current_exe().unwrap());
        command.args(["--exact", "--ignored", "--nocapture"]);
        let inside = "run::process_tree::tests::in_a_namespace_where_numbers_are_given_again";
        let output = command.arg(inside).output().unwrap();
        let told = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && told.contains("1 passed"), "{output:?}");
    }

    #[test]
    #[ignore = "for the test above: it says which number the system gives next"]
    fn in_a_namespace_where_numbers_are_given_again() {
        let start = || Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let mut first = start();
        let process = Process::of(Pid::from_child(&first));
        first.kill().unwrap();
        first.wait().unwrap();
        fs::write("/proc/sys/kernel/ns_last_pid", (first.id() - 1).to_string()).unwrap();
        let mut second = start();
        assert_eq!(second.id(), first.id());
        assert_eq!(process.signal(Signal::KILL), Err(Errno::SRCH));
        drop(second.stdin.take());
        assert!(second.wait().unwrap().success(), "it was killed");
    }

    #[test]
    fn who_was_there_before_is_none_of_it() {
        let stdio = || Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let (mut before, mut guard, mut work) = (stdio(), stdio(), stdio());
        let [unrelated_child, guard_pid, leader] = [&before, &guard, &work].map(Pid::from_child);
        let mut tree = ProcessTree::behind(guard_pid, vec![unrelated_child]);
        // What is not below the guard is not its business.
        assert_eq!(tree.members().unwrap(), []);
        tree.started(leader);
        guard.kill().unwrap();
        guard.wait().unwrap();
        tree.reaped(guard_pid);
        let members = tree.members().unwrap();
        assert!(members.contains(&leader) && !members.contains(&unrelated_child), "{members:?}");
        work.kill().unwrap();
        work.wait().unwrap();
        tree.reaped(leader);
        assert!(!tree.leads, "its number may be somebody else's");
        before.kill().unwrap();
        before.wait().unwrap();
        tree.reaped(unrelated_child);
        assert_eq!(tree.unrelated, []);
    }
}
