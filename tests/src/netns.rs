//! A network of one machine of its own, in which packets can be lost.

use std::env;
use std::ffi::OsStr;
use std::io::Write;
use std::process::{Command, Stdio};

/// Set within the namespace.
const INSIDE: &str = "INCUMBENT_NETWORK_NAMESPACE";

/// Whether this process is in a network namespace of its own.
pub fn is_inside() -> bool {
    env::var_os(INSIDE).is_some()
}

/// This program, to be run again in a network namespace with its own loopback. Needs `unshare`,
/// `ip` and `nft`, and root or user namespaces.
///
/// # Errors
///
/// Where there can be no such namespace here: the reason.
pub fn this_program_inside() -> Result<Command, String> {
    let trial = inside("true").output();
    let trial = trial.map_err(|error| format!("unshare, of util-linux, does not run: {error}"))?;
    if !trial.status.success() {
        return Err(format!(
            "cannot make a network namespace, which takes root or user namespaces, ip and nft: {}",
            String::from_utf8_lossy(&trial.stderr).trim()
        ));
    }
    Ok(inside(env::current_exe().map_err(|error| error.to_string())?))
}

/// Runs a program in a new network namespace.
fn inside(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new("unshare");
    if !rustix::process::geteuid().is_root() {
        command.args(["--user", "--map-root-user"]);
    }
    let ready = "ip link set lo up && nft list ruleset && exec \"$0\" \"$@\"";
    command.args(["--net", "--", "sh", "-c", ready]).arg(program).env(INSIDE, "1");
    command
}

/// From now on, the packets are lost that any of these expressions of nft selects, and no others.
pub fn lose_packets(which: &[&str]) {
    let rules: String = which.iter().map(|which| format!("{which} counter drop\n")).collect();
    // On arrival: the sender knows of a packet that is not let out, and sends it again at once.
    let ruleset = format!(
        "flush ruleset\ntable inet faults {{\nchain arriving {{\n\
         type filter hook input priority 0;\n{rules}}}\n}}\n"
    );
    let nft = Command::new("nft").args(["-f", "-"]).stdin(Stdio::piped()).spawn();
    let mut nft = nft.expect("nft runs");
    nft.stdin.take().expect("it is piped").write_all(ruleset.as_bytes()).expect("nft reads");
    assert!(nft.wait().expect("nft ends").success(), "{ruleset}");
}

/// How many packets have been lost by these rules.
pub fn packets_lost() -> u64 {
    let listed = Command::new("nft").args(["list", "ruleset"]).output().expect("nft runs");
    // `… counter packets 17 bytes 1234 drop`
    let listed = String::from_utf8_lossy(&listed.stdout);
    let counted = listed.split("counter packets ").skip(1);
    counted.filter_map(|rest| rest.split(' ').next()?.parse::<u64>().ok()).sum()
}
