//! The command line: every flag, and its variable.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::BoolishValueParser;
use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{
    ArgAction, ArgMatches, Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum,
};
use incumbent::store::url::StoreUrl;

use super::parse::{
    Checked, Directory, Target, Variable, directory, election_name, identity, lease_time,
    passed_on, prefix, span, store_url, target, variable,
};

#[derive(Debug, Parser)]
#[command(
    name = "incumbent",
    version,
    about = "Elects a leader among the instances of an application, on etcd or on one machine",
    long_about = "Elects a leader among the instances of an application, on etcd or on one \
        machine.\n\n\
        Candidates of one election queue for one office; the first in line leads, for \
        as long as its lease is renewed. Each leadership has an epoch, a number that \
        only rises: a write that carries it (`incumbent put --fence`) is refused once \
        somebody else leads.",
    after_help = "Start three of these, and stop the one that leads (without etcd, on one machine: add \
        --store local):\n  \
        incumbent campaign my-service\n\n\
        Run a program on one machine of many at a time:\n  \
        incumbent run my-service -- ./worker --port 8080\n\n\
        Exit status: 0 as asked, also after SIGINT or SIGTERM; 1 not found, or the \
        leadership was lost (--once), or --wait ran out; 2 bad usage; 3 the epoch is \
        stale; 4 the store was not reached, or refuses. `run --once` passes on the \
        status of its command, 128 + n where signal n ended it, 134 where a component \
        broke off.",
    disable_help_subcommand = true,
    subcommand_required = true,
    arg_required_else_help = false
)]
pub struct Cli {
    #[command(flatten)]
    pub common: Common,
    #[command(subcommand)]
    pub command: Command,
}

impl Cli {
    /// The command line, or what is wrong with it, or the help that it asks for.
    pub fn read() -> Result<Self, clap::Error> {
        let mut command = Self::command();
        let matches = command.try_get_matches_from_mut(std::env::args_os())?;
        if let Some(("run", run)) = matches.subcommand()
            && let Some(grant) = grant_to_nobody(run)
        {
            let message = format!("--{grant} is for a component: give --component FILE too");
            return Err(command.error(ErrorKind::MissingRequiredArgument, message));
        }
        Self::from_arg_matches(&matches)
    }
}

/// A grant on the command line, and no component. A variable is no such fault: it may be
/// there for other runs.
fn grant_to_nobody(run: &ArgMatches) -> Option<String> {
    if run.contains_id("component") {
        return None;
    }
    let command = Grants::augment_args(clap::Command::new("run"));
    command
        .get_arguments()
        .find(|grant| run.value_source(grant.get_id().as_str()) == Some(ValueSource::CommandLine))
        .and_then(|grant| grant.get_long().map(ToOwned::to_owned))
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a command, or a WASI component, while leading, and only then
    #[command(after_help = "Example:\n  \
        incumbent run my-service -- ./worker --port 8080\n\n\
        The command runs in a process group of its own, with the terminal's foreground. \
        When the leadership cannot be renewed, the group gets SIGTERM in time, and SIGKILL \
        200 ms before anybody else may lead; and so does what has left the group (setsid). \
        A guard, a process of its own, kills them when `incumbent run` itself is killed, hangs \
        or is paused; if it was killed, the guard then gives the lease back. If the guard is \
        killed, `incumbent run` kills them, and campaigns again. If both are killed at one \
        moment, the command is killed, but what it has started may live on, unless --isolate \
        is given.\n\n\
        The command finds in its environment INCUMBENT_ELECTION, INCUMBENT_EPOCH, \
        INCUMBENT_LEADER_KEY, INCUMBENT_ID, INCUMBENT_STORE, INCUMBENT_CONTEST and the TLS \
        paths, so that inside it this writes, and is refused when the epoch is over:\n  \
        incumbent put /data/result 42 --fence my-service\n\n\
        With --component the work is a WASI component (world wasi:cli/command), and needs no \
        guard: it runs in this process, and reaches what it is granted here and nothing else:\n  \
        incumbent run my-service --component job.wasm --dir ./data::/data -- --fast\n\
        It is interrupted, whatever it does: 10 ms before the leadership ends where that cannot \
        be renewed; and at once where it is asked to end, or the leadership was taken from it \
        (deposed, lease lost), in which case another one may lead already. One that imports \
        incumbent:election/leadership is told (`endangered`, `over`), and has --stop-timeout \
        before it is interrupted, but never beyond those 10 ms. `remaining` \
        counts to the end of the leadership, and knows of neither.\n\
        Interrupted, it computes on for the length of one instruction at most (filling all of \
        its memory is one), and reaches nothing. What it has handed to the system, or what \
        waits in a socket or a pipe, may still go; a call to the system that has begun, as a \
        write to a file, is waited for before the leadership is given back; keys are safe by \
        the fence.\n\
        A component that traps has status 134.")]
    Run(Run),
    /// Campaign, and print what happens, until SIGINT or SIGTERM
    #[command(after_help = "Example: wait at most a minute to lead, as lines of JSON\n  \
        incumbent campaign my-service --id worker-1 --wait 1m -o json\n\n\
        The first SIGINT or SIGTERM resigns, a second one exits at once.")]
    Campaign(Campaign),
    /// Print who leads, and each change, until SIGINT or SIGTERM
    #[command(
        visible_alias = "watch",
        after_help = "Example:\n  incumbent observe my-service -o json"
    )]
    Observe(Named),
    /// Print who leads, once
    #[command(after_help = "Example: the leader's value alone\n  \
        incumbent leader my-service -o json | jq -r .leader.value\n\n\
        Exits with 1, and prints nothing, if there is none.")]
    Leader(Named),
    /// Print the candidates, the leader first
    #[command(after_help = "Example:\n  incumbent candidates my-service\n\n\
        In a race only the leader has a key, and is listed. Exits with 1, and prints \
        nothing, if there is none.")]
    Candidates(Named),
    /// Write a key while a leadership stands
    #[command(after_help = "Example:\n  \
        incumbent put /data/result 42 --fence my-service:1234\n\n\
        Inside `incumbent run my-service` the epoch may be left out. Names may hold colons: \
        what follows the last one is the epoch if it is a number.\n\
        Exits with 3, and changes nothing, when that epoch does not lead any more.")]
    Put(Put),
    /// Print the value of a key
    #[command(after_help = "Example:\n  incumbent get /data/result\n\n\
        Prints the bare value and a newline, as `etcdctl get --print-value-only` does. Exits with 1, and \
        prints nothing, if there is no such key.")]
    Get(Get),
    /// Remove the present leader: an operator's tool
    #[command(after_help = "Example: only if epoch 1234 still leads\n  \
        incumbent depose my-service:1234\n\n\
        The leader is not asked. It learns of it a moment later, and stops; until then there \
        are two who believe that they lead. Writes with `--fence` are safe even then. \
        Exits with 1 if nobody leads, and with 3 if it is not that epoch.")]
    Depose(Depose),
}

/// What every command takes.
#[derive(Clone, Debug, Args)]
pub struct Common {
    /// Where the store is: etcd://HOST:PORT[,HOST:PORT…][/PREFIX], etcds:// for TLS; for
    /// this machine only: local, or sqlite:PATH [default: etcd://127.0.0.1:2379]
    #[arg(
        long,
        global = true,
        env = "INCUMBENT_STORE",
        hide_env_values = true,
        value_name = "URL",
        value_parser = Checked::unshown(store_url),
        help_heading = STORE
    )]
    pub store: Option<StoreUrl>,
    /// Certificate of the authority that etcd's certificate must be signed by
    #[arg(
        long,
        global = true,
        env = "INCUMBENT_CACERT",
        hide_env_values = true,
        value_name = "FILE",
        help_heading = STORE
    )]
    pub cacert: Option<PathBuf>,
    /// Our own certificate, to be shown to etcd
    #[arg(
        long,
        global = true,
        env = "INCUMBENT_CERT",
        hide_env_values = true,
        value_name = "FILE",
        help_heading = STORE
    )]
    pub cert: Option<PathBuf>,
    /// The private key of --cert
    #[arg(
        long = "key",
        id = "private-key",
        global = true,
        env = "INCUMBENT_KEY",
        hide_env_values = true,
        value_name = "FILE",
        help_heading = STORE
    )]
    pub key: Option<PathBuf>,
    /// Whom to log in to etcd as
    #[arg(
        long,
        global = true,
        env = "INCUMBENT_USER",
        hide_env_values = true,
        value_name = "NAME",
        help_heading = STORE
    )]
    pub user: Option<String>,
    /// A file whose first line is the password of --user
    #[arg(
        long,
        global = true,
        env = "INCUMBENT_PASSWORD_FILE",
        hide_env_values = true,
        value_name = "FILE",
        help_heading = STORE
    )]
    pub password_file: Option<PathBuf>,
    /// How long to try to reach the store at first
    #[arg(
        long,
        global = true,
        env = "INCUMBENT_DIAL_TIMEOUT",
        hide_env_values = true,
        value_name = "DURATION",
        // A time below zero has a sentence of its own.
        allow_hyphen_values = true,
        default_value = "5s",
        value_parser = Checked::new(passed_on),
        help_heading = STORE
    )]
    pub dial_timeout: Duration,
    /// How long to wait for one answer of the store
    #[arg(
        long,
        global = true,
        env = "INCUMBENT_COMMAND_TIMEOUT",
        hide_env_values = true,
        value_name = "DURATION",
        allow_hyphen_values = true,
        default_value = "5s",
        value_parser = Checked::new(passed_on),
        help_heading = STORE
    )]
    pub command_timeout: Duration,
    /// How candidates share the election; all of them have to agree
    #[arg(
        long,
        global = true,
        env = "INCUMBENT_CONTEST",
        hide_env_values = true,
        value_enum,
        default_value_t = Contest::Queue
    )]
    pub contest: Contest,
    /// Who we are, for people [default: HOST-PID]
    #[arg(
        long,
        global = true,
        env = "INCUMBENT_ID",
        hide_env_values = true,
        value_parser = Checked::new(identity),
        hide_default_value = true
    )]
    pub id: Option<String>,
    /// Lines for people, or one JSON object a line
    #[arg(
        short,
        long,
        global = true,
        env = "INCUMBENT_OUTPUT",
        hide_env_values = true,
        value_enum,
        default_value_t = Form::People
    )]
    pub output: Form,
    /// Say more on standard error; twice: all of it
    #[arg(
        short,
        long,
        global = true,
        env = "INCUMBENT_VERBOSE",
        hide_env_values = true,
        action = ArgAction::Count
    )]
    pub verbose: u8,
}

const STORE: &str = "Store";

/// What a candidate takes.
#[derive(Debug, Args)]
pub struct Candidate {
    /// What others read of this candidate, at most 4096 bytes [default: the id]
    #[arg(long, env = "INCUMBENT_VALUE", hide_env_values = true)]
    pub value: Option<OsString>,
    /// How long the lease lives without renewals: a crashed leader is replaced that
    /// much later
    #[arg(
        long,
        env = "INCUMBENT_TTL",
        hide_env_values = true,
        value_name = "DURATION",
        allow_hyphen_values = true,
        default_value = "10s",
        value_parser = Checked::new(lease_time)
    )]
    pub ttl: Duration,
    /// Stop that much before the lease ends, for clocks that run at different rates; at
    /// least 1% of the lease time [default: that]
    #[arg(
        long,
        env = "INCUMBENT_MARGIN",
        hide_env_values = true,
        value_name = "DURATION",
        allow_hyphen_values = true,
        value_parser = Checked::new(span)
    )]
    pub margin: Option<Duration>,
}

#[derive(Debug, Args)]
pub struct Run {
    /// The election's name
    #[arg(value_parser = Checked::new(election_name))]
    pub election: String,
    #[command(flatten)]
    pub candidate: Candidate,
    /// Run the command once, and exit with its status
    #[arg(
        long,
        env = "INCUMBENT_ONCE",
        hide_env_values = true,
        action = ArgAction::SetTrue,
        value_parser = BoolishValueParser::new()
    )]
    pub once: bool,
    /// Run the command in a PID namespace of its own, so that no process of it outlives us
    /// even if supervisor and guard are killed at one moment (Linux)
    #[arg(
        long,
        env = "INCUMBENT_ISOLATE",
        hide_env_values = true,
        action = ArgAction::SetTrue,
        value_parser = BoolishValueParser::new()
    )]
    pub isolate: bool,
    /// Append what happens to this file, one JSON object a line
    #[arg(long, env = "INCUMBENT_EVENTS", hide_env_values = true, value_name = "FILE")]
    pub events: Option<PathBuf>,
    /// How long the command may take to stop: SIGTERM comes that much before the
    /// leadership's end [default: a quarter of --ttl]
    #[arg(
        long,
        env = "INCUMBENT_STOP_TIMEOUT",
        hide_env_values = true,
        value_name = "DURATION",
        allow_hyphen_values = true,
        value_parser = Checked::new(span)
    )]
    pub stop_timeout: Option<Duration>,
    /// How long to stay away after the command has ended within a lease time of its
    /// start; doubles each time, up to 30s
    #[arg(
        long,
        env = "INCUMBENT_RESTART_DELAY",
        hide_env_values = true,
        value_name = "DURATION",
        allow_hyphen_values = true,
        default_value = "1s",
        value_parser = Checked::new(span)
    )]
    pub restart_delay: Duration,
    /// Run this WASI component, in this process, instead of a command
    #[arg(
        long,
        env = "INCUMBENT_JOB",
        hide_env_values = true,
        value_name = "FILE",
        conflicts_with = "isolate",
        help_heading = COMPONENT
    )]
    pub component: Option<PathBuf>,
    #[command(flatten)]
    pub grants: Grants,
    /// The command to run while leading, after --; or what the component is given as
    /// arguments
    #[arg(last = true, required_unless_present = "component", num_args = 1.., value_name = "CMD")]
    pub command: Vec<OsString>,
}

const COMPONENT: &str = "Component";

/// What a component may reach.
#[derive(Debug, Args)]
pub struct Grants {
    /// Let the component use this directory, under this name [default: the same]; may be
    /// given more than once, its variable holds one
    #[arg(
        long = "dir",
        env = "INCUMBENT_DIR",
        hide_env_values = true,
        value_name = "HOST[::GUEST]",
        value_parser = Checked::new(directory),
        help_heading = COMPONENT
    )]
    pub directories: Vec<Directory>,
    /// Let the component have this variable, with our value unless one is given; may be
    /// given more than once, its variable holds one
    #[arg(
        long = "env",
        env = "INCUMBENT_ENV",
        hide_env_values = true,
        value_name = "NAME[=VALUE]",
        value_parser = Checked::new(variable),
        help_heading = COMPONENT
    )]
    pub variables: Vec<Variable>,
    /// Let the component read and write the keys that begin so, as long as it leads; may
    /// be given more than once, its variable holds one. The keys of its own election, ELECTION
    /// and all below ELECTION/, are never granted, and a PREFIX that reaches them is refused.
    /// Keep other elections out of it too: `jobs/` lets it delete the candidates of an election
    /// `jobs/x`, or stand in its queue for ever
    #[arg(
        long = "allow-keys",
        env = "INCUMBENT_ALLOW_KEYS",
        hide_env_values = true,
        value_name = "PREFIX",
        value_parser = Checked::new(prefix),
        help_heading = COMPONENT
    )]
    pub keys: Vec<String>,
    /// Let the component use the network, this machine's own included: an etcd that asks
    /// for no certificate or password there is open to it, with every key
    #[arg(
        long = "allow-network",
        env = "INCUMBENT_ALLOW_NETWORK",
        hide_env_values = true,
        action = ArgAction::SetTrue,
        value_parser = BoolishValueParser::new(),
        help_heading = COMPONENT
    )]
    pub network: bool,
    /// How much memory the component has, in MiB
    #[arg(
        long,
        env = "INCUMBENT_MAX_MEMORY",
        hide_env_values = true,
        value_name = "MIB",
        allow_negative_numbers = true,
        default_value_t = 1024,
        value_parser = clap::value_parser!(u32).range(1..),
        help_heading = COMPONENT
    )]
    pub max_memory: u32,
}

#[derive(Debug, Args)]
pub struct Campaign {
    /// The election's name
    #[arg(value_parser = Checked::new(election_name))]
    pub election: String,
    #[command(flatten)]
    pub candidate: Candidate,
    /// Give up, with status 1, when not elected by then; 0: try once
    #[arg(
        long,
        env = "INCUMBENT_WAIT",
        hide_env_values = true,
        value_name = "DURATION",
        allow_hyphen_values = true,
        value_parser = Checked::new(span)
    )]
    pub wait: Option<Duration>,
}

#[derive(Debug, Args)]
pub struct Named {
    /// The election's name
    #[arg(value_parser = Checked::new(election_name))]
    pub election: String,
}

#[derive(Debug, Args)]
pub struct Put {
    /// The key
    pub key: OsString,
    /// Its new value
    pub value: OsString,
    /// Write only while this epoch leads: ELECTION:EPOCH, or ELECTION with the epoch in
    /// INCUMBENT_EPOCH
    #[arg(long, env = "INCUMBENT_FENCE",
        hide_env_values = true, value_name = "ELECTION[:EPOCH]", value_parser = Checked::new(target))]
    pub fence: Target,
}

#[derive(Debug, Args)]
pub struct Get {
    /// The key
    pub key: OsString,
    /// Linearizable, as all members agree (l), or serializable, as the member that is
    /// asked has it, perhaps old (s)
    #[arg(
        long,
        env = "INCUMBENT_CONSISTENCY",
        hide_env_values = true,
        value_enum,
        default_value_t = Consistency::Linearizable
    )]
    pub consistency: Consistency,
}

#[derive(Debug, Args)]
pub struct Depose {
    /// The election, and the epoch to be removed [default: whichever leads]
    #[arg(value_name = "ELECTION[:EPOCH]", value_parser = Checked::new(target))]
    pub target: Target,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Contest {
    /// First come, first served, as with etcdctl elect
    Queue,
    /// One key, and whoever creates it leads
    Race,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Form {
    /// Lines for people
    People,
    /// One object a line
    Json,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Consistency {
    #[value(name = "l")]
    Linearizable,
    #[value(name = "s")]
    Serializable,
}

impl Common {
    /// The store that was named, or else etcd.
    pub fn store(&self) -> StoreUrl {
        self.store.clone().unwrap_or_default()
    }
}

impl Contest {
    /// The library's word for it.
    pub fn on_store(self) -> incumbent::types::Contest {
        match self {
            Self::Queue => incumbent::types::Contest::Queue,
            Self::Race => incumbent::types::Contest::Race,
        }
    }

    /// As `--contest` takes it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Queue => "queue",
            Self::Race => "race",
        }
    }
}
