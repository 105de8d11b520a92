//! Elections side by side on a network that loses packets and delays them, where nothing
//! else is wrong: no leader may lose its term.
//!
//! All of it is in a network namespace of its own, where packets between the hosts and
//! their links to the members are lost; etcd's own are not. The jitter is the links'.

use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use incumbent::Contest;
use tokio::time::{Instant, sleep};

use super::hosts::{Host, Program};
use super::log::{Event, Log, Settings};
use super::run::{bound, end, members_of, nanoseconds, note_counter};
use crate::cluster::Cluster;
use crate::etcd::Version;

const ELECTIONS: usize = 4;
/// One leads, and one waits.
const CANDIDATES: usize = 2;
const MEMBERS: usize = 3;
/// How long all may take to be ready.
const PATIENCE: Duration = Duration::from_secs(60);

/// Set within the namespace.
const INSIDE: &str = "INCUMBENT_SOAK_NETWORK";

/// What a run is to be.
#[derive(Clone, Debug)]
pub struct Options {
    /// Which etcd.
    pub version: Version,
    /// How long leases live: whole seconds.
    pub ttl: Duration,
    /// How long it goes on once all elections have a leader.
    pub length: Duration,
    /// Of a hundred packets, how many are lost.
    pub loss: u8,
    /// How much longer a piece may take than another, each way.
    pub jitter: Duration,
    /// Where the logs are written: an empty directory.
    pub logs: PathBuf,
    /// The program `counter`.
    pub counter: PathBuf,
}

/// Takes this program into a network namespace of its own, if it is not in one yet:
/// begins it again. To be called before it has threads.
///
/// # Errors
///
/// A sentence that says what is missing.
pub fn enter() -> Result<(), String> {
    if std::env::var_os(INSIDE).is_some() {
        return succeed(Command::new("ip").args(["link", "set", "lo", "up"]), "iproute2");
    }
    for (program, package) in [("ip", "iproute2"), ("nft", "nftables")] {
        succeed(Command::new(program).arg("-V").stdout(Stdio::null()), package)?;
    }
    let unshare = || {
        let mut unshare = Command::new("unshare");
        if !rustix::process::geteuid().is_root() {
            unshare.args(["--user", "--map-root-user"]);
        }
        unshare.args(["--net", "--"]);
        unshare
    };
    succeed(unshare().arg("true"), "util-linux")
        .map_err(|error| format!("{error}: it takes root, or a kernel with user namespaces"))?;
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let arguments = std::env::args_os().skip(1);
    let error = unshare().arg(program).args(arguments).env(INSIDE, "1").exec();
    Err(error.to_string())
}

/// Runs it, for [`judge`](super::terms::judge) to read from its logs. Needs a tokio
/// runtime with several threads. Dropped, it ends all that it started.
///
/// # Errors
///
/// Where it could not be carried through; what was written until then can be judged.
pub async fn run(options: &Options) -> io::Result<()> {
    let log = Log::create(&options.logs, "soak", "soak")?;
    log.write(Event::Began(Settings {
        seed: 0,
        etcd: options.version.to_string(),
        ttl: nanoseconds(options.ttl),
        bound: nanoseconds(bound(options.ttl)),
    }));
    let cluster = Cluster::start(options.version, MEMBERS).await;
    let members = members_of(&cluster);
    let mut hosts = Vec::new();
    for election in elections() {
        let program = Program {
            command: vec![options.counter.clone().into()],
            election,
            logs: options.logs.clone(),
            ttl: options.ttl,
            contest: Contest::Queue,
        };
        for candidate in 1..=CANDIDATES {
            let name = format!("worker-{candidate}-of-{}", program.election);
            hosts.push(Host::new(name, program.clone(), None, &members).await);
        }
    }
    let links = || hosts.iter().flat_map(|host| &host.links);
    links().for_each(|link| link.slow(Duration::ZERO, options.jitter));
    let ports: Vec<_> = links().map(|link| link.address().port()).collect();
    lose(options.loss, &ports).map_err(io::Error::other)?;
    for host in &mut hosts {
        host.start()?;
    }
    let since = Instant::now();
    while hosts.iter_mut().map(Host::leads).filter(|leads| *leads).count() < ELECTIONS {
        if since.elapsed() > PATIENCE {
            return Err(io::Error::other("not every election has a leader"));
        }
        sleep(Duration::from_millis(20)).await;
    }
    log.write(Event::Ready);
    sleep(options.length).await;
    log.write(Event::Ended);
    log.write(Event::Lost { packets: lost().map_err(io::Error::other)? });
    for host in &mut hosts {
        if let Some(status) = host.has_ended() {
            let sentence = format!("{} ended by itself, with {status}", host.name);
            return Err(io::Error::other(sentence));
        }
    }
    end(&mut hosts).await?;
    for election in elections() {
        note_counter(&cluster.direct_url(), &election, &log).await?;
    }
    Ok(())
}

fn elections() -> impl Iterator<Item = String> {
    (1..=ELECTIONS).map(|election| format!("office-{election}"))
}

/// Has so many of a hundred packets lost to and from these ports.
fn lose(loss: u8, ports: &[u16]) -> Result<(), String> {
    let ports: Vec<_> = ports.iter().map(ToString::to_string).collect();
    let ports = ports.join(", ");
    // On arrival: what is not let out is known to the sender, and not lost.
    let rules = format!(
        "table inet incumbent {{
            chain arriving {{
                type filter hook input priority 0;
                tcp dport {{ {ports} }} numgen random mod 100 < {loss} counter drop
                tcp sport {{ {ports} }} numgen random mod 100 < {loss} counter drop
            }}
        }}"
    );
    let mut nft = Command::new("nft")
        .args(["-f", "-"])
        .stdin(Stdio::piped())
        .spawn()
        .map_err(|error| missing("nft", "nftables", &error))?;
    let mut input = nft.stdin.take().expect("it is piped");
    input.write_all(rules.as_bytes()).map_err(|error| error.to_string())?;
    drop(input);
    match nft.wait() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("nft ended with {status}: this kernel cannot lose packets")),
        Err(error) => Err(error.to_string()),
    }
}

/// How many packets were lost until now.
fn lost() -> Result<u64, String> {
    let listed = Command::new("nft").args(["list", "table", "inet", "incumbent"]).output();
    let listed = listed.map_err(|error| missing("nft", "nftables", &error))?;
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    // `… counter packets 17 bytes 1234 drop`
    let counted = listed.split("counter packets ").skip(1);
    let counted = counted.filter_map(|rest| rest.split(' ').next()?.parse::<u64>().ok());
    match counted.sum() {
        0 => Err("no packet was lost: nothing was shown".into()),
        packets => Ok(packets),
    }
}

fn succeed(command: &mut Command, package: &str) -> Result<(), String> {
    let program = command.get_program().to_string_lossy().into_owned();
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{program} ended with {status}")),
        Err(error) => Err(missing(&program, package, &error)),
    }
}

fn missing(program: &str, package: &str, error: &io::Error) -> String {
    format!("{program} cannot be run ({error}): install {package}")
}
