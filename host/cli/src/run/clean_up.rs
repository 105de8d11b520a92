//! What systemd runs when a service has ended (`ExecStopPost=` of its unit): it waits for the guard,
//! which kills the work and gives the lease back, and then kills what is left of the service.
//!
//! Systemd could kill that itself (`KillMode=mixed`), but then it kills the guard too, before the
//! guard has given the lease back.

use std::time::Duration;
use std::{env, fs, io, thread};

use rustix::process::{Pid, Signal, getpid, kill_process};

use super::launch::GUARD;
use super::process_tree::{all, runs};

/// A guard ends within milliseconds of its supervisor, if the store answers.
const LOOK_AGAIN: Duration = Duration::from_millis(2);

/// The process. Systemd ends it after `TimeoutStopSec=`.
pub fn main() -> io::Result<()> {
    // Systemd sets these for this purpose. Without them, or outside of a service, we would be in
    // somebody's login, desktop or container.
    let is_set = |name| env::var_os(name).is_some();
    let service = fs::read("/proc/self/cgroup")?;
    let is_service = service.split(|byte| *byte == b'\n').any(|line| line.ends_with(b".service"));
    if !(is_set("SERVICE_RESULT") && is_set("INVOCATION_ID") && is_service) {
        return Err(io::Error::other("systemd did not start it, for a service that has ended"));
    }
    loop {
        let left: Vec<Pid> = all()?
            .into_iter()
            .filter(|pid| *pid != getpid() && read(*pid, "cgroup") == service && runs(*pid))
            .collect();
        if left.is_empty() {
            return Ok(());
        }
        if !left.iter().any(|pid| is_guard(*pid)) {
            for pid in left {
                // It may have ended meanwhile, or be another user's, whom systemd knows as well.
                let _ = kill_process(pid, Signal::KILL);
            }
        }
        thread::sleep(LOOK_AGAIN);
    }
}

fn is_guard(pid: Pid) -> bool {
    read(pid, "cmdline").split(|byte| *byte == 0).nth(1) == Some(GUARD.as_bytes())
}

/// Empty if there is no such process any more.
fn read(pid: Pid, file: &str) -> Vec<u8> {
    fs::read(format!("/proc/{}/{file}", pid.as_raw_nonzero())).unwrap_or_default()
}
