//! The program, as its users run it.
//!
//! | module | what is in it |
//! | --- | --- |
//! | `commands` | every command, its output and its exit status, on a real etcd |
//! | `transfer` | `incumbent transfer`: the candidate that an operator names leads next |
//! | `priority` | `--priority`: preferred candidates are next in line |
//! | `drain` | `incumbent drain`, its signals and routes: an instance leads no more until that is undone |
//! | `run` | `incumbent run`: how it looks after its command |
//! | `guard` | `incumbent run` and its guard: what happens when one of them is killed or stopped |
//! | `http` | the HTTP endpoint of an instance, asked with curl |
//! | `page` | its status page, in a real `browser` |
//! | `notification` | what systemd is told, by a socket that stands for it |
//! | `systemd` | the unit, under a systemd in a container of its own |
//! | `job` | `incumbent run --component`: work that cannot outlive its leadership |
//! | `one_machine` | the program without etcd, on the store of one machine |
//! | `postgres` | the program on PostgreSQL |
//! | `released` | the program of the last release, in elections with this one |
//! | `replay` | recordings, and what is told of them |
//! | `doctor` | what it says of stores that serve, and of each that does not |
//! | `bad_input` | one clear sentence for each fault of the command line, and status 2 |
//! | `security` | logins and certificates that are wrong, or replaced, and secrets that are kept |
//! | `lost_packets` | a cluster whose packets are dropped, in a network of its own |

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "tests"
)]

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, SystemTime};

use incumbent_tests::etcd::{Etcd, Version};
use incumbent_tests::program::work::{BUSY, Work, events_in, last_valid, run};
use incumbent_tests::program::{
    Running, Terminal, children, end, eventually, guard_of, incumbent, is_alive, kill, limited, on,
    process, started_by, status_of, until, write_secret,
};
use rustix::fs::{CWD, Mode, mkfifoat};
use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

mod bad_input;
mod browser;
mod commands;
mod doctor;
mod drain;
mod guard;
mod http;
mod job;
mod lost_packets;
mod notification;
mod one_machine;
mod page;
mod postgres;
mod priority;
mod released;
mod replay;
mod run;
mod security;
mod systemd;
mod transfer;

/// How many candidates are in line.
fn candidates(etcd: &Etcd) -> usize {
    end(on(etcd, ["candidates", "my-service"])).stdout.lines().count()
}
