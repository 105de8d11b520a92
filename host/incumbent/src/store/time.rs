//! The clock that all processes of a machine share.

use std::error::Error;
#[cfg(any(target_os = "linux", target_os = "android"))]
use std::fs;
use std::sync::Arc;

use crate::clock::{BootClock, Clock};
#[cfg(any(target_os = "linux", target_os = "android", target_os = "macos"))]
use crate::explained::Explained;
#[cfg(any(target_os = "linux", target_os = "android"))]
use crate::types::Mark;

/// The time since the machine was started, and which of its starts that was: leases run on
/// while the machine is suspended, and end when it is started anew.
#[derive(Clone, Debug)]
pub(crate) struct Time {
    clock: Arc<dyn Clock>,
    pub(crate) boot: Arc<str>,
}

impl Time {
    pub(crate) fn new(clock: Arc<dyn Clock>, boot: &str) -> Self {
        Self { clock, boot: boot.into() }
    }

    /// Nanoseconds, as databases hold them: for 292 years.
    pub(crate) fn now(&self) -> i64 {
        self.clock.now().try_into().unwrap_or(i64::MAX)
    }
}

#[cfg(any(target_os = "linux", target_os = "android"))]
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
#[cfg(any(target_os = "linux", target_os = "android"))]
const OFFSETS: &str = "/proc/self/timens_offsets";
/// The number of /proc in statfs(2).
#[cfg(any(target_os = "linux", target_os = "android"))]
const PROC: u64 = 0x9fa0;

/// Why it is not known which start of the machine this is.
type Unknown = Box<dyn Error + Send + Sync>;

#[cfg(any(target_os = "linux", target_os = "android", target_os = "macos"))]
fn unknown(source: &str, error: std::io::Error) -> Unknown {
    Explained::new(format!("{source}: {error}"), error).into()
}

#[cfg(any(target_os = "linux", target_os = "android"))]
fn read(path: &str) -> Result<String, Unknown> {
    fs::read_to_string(path).map_err(|error| unknown(path, error))
}

#[cfg(any(target_os = "linux", target_os = "android"))]
impl Time {
    pub(crate) fn of_this_machine() -> Result<Self, Unknown> {
        let boot = read(BOOT_ID)?;
        // A container may have a boot id of its own, mounted over the machine's: containers
        // would end one another's leases.
        if rustix::fs::statfs(BOOT_ID).is_ok_and(|found| found.f_type as u64 != PROC) {
            return Err("this container has a boot id of its own".into());
        }
        // Without time namespaces there is no such file.
        let has_offsets = std::path::Path::new(OFFSETS).exists();
        let offsets = if has_offsets { read(OFFSETS)? } else { String::new() };
        let clock = Machine { ahead: boot_time_ahead(&offsets) };
        Ok(Self::new(Arc::new(clock), boot.trim()))
    }
}

#[cfg(target_os = "macos")]
impl Time {
    pub(crate) fn of_this_machine() -> Result<Self, Unknown> {
        let asked = std::process::Command::new("/usr/sbin/sysctl")
            .args(["-n", "kern.bootsessionuuid"])
            .output();
        let boot = match asked {
            Ok(answer) => String::from_utf8_lossy(&answer.stdout).trim().to_owned(),
            Err(error) => return Err(unknown("sysctl", error)),
        };
        if boot.is_empty() {
            return Err("sysctl: no kern.bootsessionuuid".into());
        }
        Ok(Self::new(Arc::new(BootClock), &boot))
    }
}

#[cfg(not(any(target_os = "linux", target_os = "android", target_os = "macos")))]
impl Time {
    pub(crate) fn of_this_machine() -> Result<Self, Unknown> {
        Err("only Linux and macOS are known to tell".into())
    }
}

/// The boot clock, as it is outside of any time namespace.
#[cfg(any(target_os = "linux", target_os = "android"))]
#[derive(Debug)]
struct Machine {
    /// How far this process's clock is ahead of that.
    ahead: i64,
}

#[cfg(any(target_os = "linux", target_os = "android"))]
impl Clock for Machine {
    fn now(&self) -> Mark {
        BootClock.now().saturating_add_signed(self.ahead.saturating_neg())
    }

    fn sleep_until(&self, mark: Mark) -> futures_util::future::BoxFuture<'static, ()> {
        BootClock.sleep_until(mark.saturating_add_signed(self.ahead))
    }
}

/// Nanoseconds, from lines such as `boottime 3600 0`.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn boot_time_ahead(offsets: &str) -> i64 {
    let ahead = offsets.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        if words.next()? != "boottime" {
            return None;
        }
        let seconds: i64 = words.next()?.parse().ok()?;
        let rest: i64 = words.next()?.parse().ok()?;
        seconds.checked_mul(1_000_000_000)?.checked_add(rest)
    });
    ahead.unwrap_or_default()
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn a_time_namespace_is_ahead_or_behind() {
        assert_eq!(
            boot_time_ahead("monotonic           0         0\nboottime 3600 5\n"),
            3_600_000_000_005
        );
        assert_eq!(boot_time_ahead("boottime -1 500000000"), -500_000_000);
        assert_eq!(boot_time_ahead("monotonic 7 0\nboottime 0 0"), 0);
        assert_eq!(boot_time_ahead(""), 0);
    }

    #[test]
    fn the_offset_is_taken_off() {
        let shifted = Machine { ahead: -3_600_000_000_000 };
        let difference = shifted.now().abs_diff(BootClock.now());
        assert!(difference.abs_diff(3_600_000_000_000) < 60_000_000_000, "{difference}");
    }
}
