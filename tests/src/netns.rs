//! A network of one machine of its own, in which packets can be dropped.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};

/// A network namespace with its own loopback. It lives as long as this, and the
/// processes in it. Needs `unshare`, `nsenter`, `ip` and `nft`, and root or user
/// namespaces.
#[derive(Debug)]
pub struct Network {
    holder: Child,
}

impl Network {
    /// Opens one, or says why that is not possible here.
    pub fn open() -> Result<Self, String> {
        let mut holder = Command::new("unshare")
            .args(if is_root() { &[][..] } else { &["--user", "--map-root-user"] })
            .args(["--net", "sh", "-c"])
            // It ends with its input: with this process at the latest.
            .arg("ip link set lo up && nft list ruleset && echo ready && exec cat")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| format!("unshare, of util-linux, does not run: {error}"))?;
        let mut said = String::new();
        BufReader::new(holder.stdout.take().expect("it is piped"))
            .read_line(&mut said)
            .expect("it can be read");
        if said != "ready\n" {
            let output = holder.wait_with_output().expect("it ends");
            let reason = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            return Err(format!("there is no network namespace with nftables here: {reason}"));
        }
        Ok(Self { holder })
    }

    /// A program in this network.
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new("nsenter");
        command
            .args(["--target", &self.holder.id().to_string()])
            .args(if is_root() { &[][..] } else { &["--user", "--preserve-credentials"] })
            .args(["--net", "--"])
            .arg(program);
        command
    }

    /// Drops the packets that any of these expressions of nft select, and no others
    /// from now on.
    pub fn drop_packets(&self, which: &[&str]) {
        let rules: String = which.iter().map(|which| format!("{which} drop\n")).collect();
        let ruleset = format!(
            "flush ruleset\ntable inet faults {{\nchain output {{\n\
             type filter hook output priority 0;\n{rules}}}\n}}\n"
        );
        let mut nft = self.command("nft");
        let mut nft = nft.args(["-f", "-"]).stdin(Stdio::piped()).spawn().expect("nft runs");
        nft.stdin.take().expect("it is piped").write_all(ruleset.as_bytes()).expect("nft reads");
        assert!(nft.wait().expect("nft ends").success(), "{ruleset}");
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}
