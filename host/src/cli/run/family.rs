//! Who descends from whom: so that nothing of the work gets away by leaving its group.

use std::collections::BTreeSet;
use std::fs;
use std::io;

use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, getpgid, getpid, kill_process, kill_process_group, test_kill_process_group,
};

/// The work's processes, as one sees them who is above all of them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Family {
    /// The process group that the command was started in: its own number.
    group: Option<Pid>,
    /// The command is not reaped yet: nobody else can have the group's number.
    leads: bool,
    /// Below us, and none of the work: its guard.
    guard: Option<Pid>,
}

impl Family {
    /// For the supervisor, between whom and the work there is a guard.
    pub fn behind(guard: Pid) -> Self {
        Self { guard: Some(guard), ..Self::default() }
    }

    /// The command runs.
    pub fn started(&mut self, leader: Pid) {
        self.group = Some(leader);
        self.leads = true;
    }

    /// The command has ended, and is reaped.
    pub fn ended(&mut self) {
        // Elsewhere the group is all that is known, and may live on.
        self.leads = !cfg!(target_os = "linux");
    }

    /// The guard has ended, and is reaped.
    pub fn unguarded(&mut self) {
        self.guard = None;
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

    /// Signals the group, and each one below us that has left it.
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        let group = self.group.filter(|_| self.leads);
        let mut result = group.map_or(Ok(()), |group| known(kill_process_group(group, signal)));
        let mut told = group.is_some();
        for pid in self.members() {
            let its_group = getpgid(Some(pid)).ok();
            let signalled = match self.group.filter(|group| its_group == Some(*group)) {
                Some(_) if told => continue,
                Some(group) => {
                    told = true;
                    kill_process_group(group, signal)
                }
                None => kill_process(pid, signal),
            };
            result = result.and(known(signalled));
        }
        result
    }

    /// Signals the group alone.
    pub fn signal_group(&self, signal: Signal) -> io::Result<()> {
        match self.group.filter(|_| self.leads) {
            Some(group) => known(kill_process_group(group, signal)),
            None => Ok(()),
        }
    }

    /// Whether nothing of it seems to run, though some may not be reaped. Somebody whose
    /// parent ends at this moment may be overlooked.
    pub fn is_dead(&self) -> bool {
        if cfg!(target_os = "linux") {
            !self.members().into_iter().any(runs)
        } else {
            self.group.is_none_or(|group| test_kill_process_group(group) == Err(Errno::SRCH))
        }
    }

    fn members(&self) -> Vec<Pid> {
        let mut members = descendants(getpid());
        members.retain(|pid| Some(*pid) != self.guard);
        members
    }
}

/// Those that are gone need no signal.
fn known(signalled: Result<(), Errno>) -> io::Result<()> {
    match signalled {
        Ok(()) | Err(Errno::SRCH) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// All that descends from a process, children before their own. Whoever is born
/// meanwhile may be missing: ask again until nobody is left. Empty where the
/// system does not say.
fn descendants(root: Pid) -> Vec<Pid> {
    let mut found = children(root);
    let mut known: BTreeSet<i32> = found.iter().map(|pid| pid.as_raw_nonzero().get()).collect();
    let mut next = 0;
    while let Some(parent) = found.get(next).copied() {
        next += 1;
        found.extend(
            children(parent).into_iter().filter(|pid| known.insert(pid.as_raw_nonzero().get())),
        );
    }
    found
}

/// The children of a process.
fn children(parent: Pid) -> Vec<Pid> {
    let threads = format!("/proc/{}/task", parent.as_raw_nonzero());
    let mut found = Vec::new();
    for thread in fs::read_dir(threads).into_iter().flatten().flatten() {
        match fs::read_to_string(thread.path().join("children")) {
            Ok(pids) => found.extend(pids.split_whitespace().filter_map(pid)),
            // The kernel keeps no such lists.
            Err(_) if thread.path().exists() => return children_among_all(parent),
            // The thread has ended.
            Err(_) => {}
        }
    }
    found
}

fn children_among_all(parent: Pid) -> Vec<Pid> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = processes.filter_map(|process| pid(process.file_name().to_str()?));
    pids.filter(|pid| stat(*pid).is_some_and(|(_, its_parent)| its_parent == Some(parent)))
        .collect()
}

/// The child of an init that has this number in the init's namespace.
pub fn inside(init: Pid, number: Pid) -> Option<Pid> {
    children(init).into_iter().find(|child| {
        let status = fs::read_to_string(format!("/proc/{}/status", child.as_raw_nonzero()));
        let status = status.unwrap_or_default();
        // From our namespace to the innermost.
        let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
        numbers.and_then(|numbers| numbers.split_whitespace().last().and_then(pid)) == Some(number)
    })
}

fn runs(process: Pid) -> bool {
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
        let all = descendants(getpid());
        let sleeper = *children(parent).first().unwrap();
        assert!(all.contains(&parent) && all.contains(&sleeper), "{all:?}");
        assert_eq!(children_among_all(parent), [sleeper]);
        drop(shell.stdin.take());
        shell.wait().unwrap();
    }
}
