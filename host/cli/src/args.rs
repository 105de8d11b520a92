//! The command line: every flag. Its environment variable is named for it.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::BoolishValueParser;
use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{
    Arg, ArgAction, ArgMatches, Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum,
};
use clap_complete::Shell;
use incumbent::{Epoch, StoreUrl};

use super::parse::{
    Address, Checked, Directory, Target, address, candidate, directory, election_name, epoch,
    host_name, identity, lease_time, prefix, size, span, store_url, target, timeout, variable,
};

#[derive(Debug, Parser)]
#[command(
    name = "incumbent",
    version,
    about = "Elects a leader among the instances of an application, on etcd or on one machine",
    long_about = "Elects a leader among the instances of an application, on etcd or on one \
        machine.\n\n\
        The candidates of an election wait in a queue. The first one leads as long as its \
        lease is renewed. Each leadership has an epoch, a number that only rises: a write \
        that carries it (`incumbent put --fence`) is refused once another candidate leads.",
    after_help = "Start three of these, and stop the one that leads (without etcd, on one machine: add \
        --store local):\n  \
        incumbent campaign my-service\n\n\
        Run a program on one machine of many at a time:\n  \
        incumbent run my-service -- ./worker --port 8080\n\n\
        Exit status: 0 done as asked, also after SIGINT or SIGTERM; 1 not found, or the \
        leadership was lost (--once), or --wait ran out; 2 bad usage; 3 the epoch is \
        stale; 4 the store cannot be reached, or refuses. `run --once` passes on the \
        status of its command: 128 + n if signal n ended it, 134 if a component \
        trapped.",
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
    /// The command line, as help, completions and manual pages describe it.
    pub fn described() -> clap::Command {
        Self::command()
            .mut_args(|arg| flag(arg).global(true))
            .mut_subcommands(|command| command.mut_args(flag))
    }

    /// Parses the command line. The error is a fault in it, or the help that it asks for.
    pub fn read() -> Result<Self, clap::Error> {
        // A bad variable, meant for other commands, must not keep anybody from asking these.
        let is_about_itself = std::env::args_os()
            .nth(1)
            .is_some_and(|first| ["version", "completions", "man"].iter().any(|it| first == *it));
        let mut command = if is_about_itself {
            Self::command().mut_args(|arg| arg.global(true))
        } else {
            Self::described()
        };
        let matches = command.try_get_matches_from_mut(std::env::args_os())?;
        if let Some((_, given)) = matches.subcommand()
            && let Some(message) = flag_without_its_purpose(given)
        {
            return Err(command.error(ErrorKind::MissingRequiredArgument, message));
        }
        Self::from_arg_matches(&matches)
    }
}

/// What all flags have in common. Each has a variable that is named for it, and whose value help
/// does not show, because it may be a secret.
fn flag(arg: Arg) -> Arg {
    let Some(name) = arg.get_long() else {
        return arg;
    };
    // clap keeps names that live as long as the program.
    let variable = format!("INCUMBENT_{}", name.replace('-', "_").to_uppercase()).leak();
    // So that a negative time gets its own error.
    let is_time = arg.get_value_names().is_some_and(|names| names == ["DURATION"]);
    let is_switch = matches!(arg.get_action(), ArgAction::SetTrue);
    let mut arg = arg.hide_env_values(true).allow_hyphen_values(is_time);
    if arg.get_env().is_none() {
        arg = arg.env(&*variable);
    }
    if is_switch { arg.value_parser(BoolishValueParser::new()) } else { arg }
}

/// A flag on the command line that does nothing without another one, which is not there: a sentence.
fn flag_without_its_purpose(command: &ArgMatches) -> Option<String> {
    let none = || clap::Command::new("run");
    let groups = [
        ("component", Grants::augment_args(none()), "a component: give --component FILE too"),
        ("listen", Http::augment_args(none()), "the HTTP endpoint: give --listen ADDRESS too"),
        ("record", Record::augment_args(none()), "a recording: give --record DIR too"),
        ("preempt", Preemption::augment_args(none()), "a candidate with --preempt: give it too"),
    ];
    groups.iter().find_map(|(purpose, flags, advice)| {
        command.try_contains_id(purpose).ok()?;
        let source = command.value_source(purpose);
        let is_there = source.is_some_and(|source| source != ValueSource::DefaultValue);
        let flag = (!is_there).then(|| given(command, flags)).flatten()?;
        Some(format!("--{flag} is for {advice}"))
    })
}

/// The first of these flags that is on the command line. A flag in a variable is not a fault: it
/// may be there for other runs.
fn given(matches: &ArgMatches, flags: &clap::Command) -> Option<String> {
    flags
        .get_arguments()
        .find(|flag| matches.value_source(flag.get_id().as_str()) == Some(ValueSource::CommandLine))
        .and_then(|flag| flag.get_long().map(ToOwned::to_owned))
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a command, or a WASI component, only while leading
    #[command(after_help = "Example:\n  \
        incumbent run my-service -- ./worker --port 8080\n\n\
        The command runs in a process group of its own, with the terminal's foreground. \
        When the leadership cannot be renewed, all processes of the command get SIGTERM in \
        time, and SIGKILL 200 ms before another candidate may lead, also those that have left \
        the group (setsid). A guard, a separate process, kills them when `incumbent run` itself \
        is killed, hangs or is paused; if `incumbent run` was killed, the guard then gives the \
        lease back. If the guard is killed, `incumbent run` kills the command's processes, and \
        campaigns again. If both are killed at the same moment, the command is killed, but \
        processes that it has started may live on, unless --isolate is given.\n\n\
        The command finds in its environment INCUMBENT_ELECTION, INCUMBENT_EPOCH, \
        INCUMBENT_LEADER_KEY, INCUMBENT_ID, INCUMBENT_STORE, INCUMBENT_CONTEST and the TLS \
        paths. So the command can write like this, and is refused when its epoch is over:\n  \
        incumbent put /data/result 42 --fence my-service\n\
        In PostgreSQL there are INCUMBENT_DATABASE_URL and INCUMBENT_FENCE_SQL as well: a \
        transaction that executes this statement commits only while the epoch stands.\n\n\
        With --component the work is a WASI component (world wasi:cli/command). It needs no guard, \
        because it runs in this process. It reaches only what flags grant:\n  \
        incumbent run my-service --component job.wasm --dir ./data::/data -- --fast\n\
        Whatever it is doing, it is interrupted 10 ms before the end of a leadership that cannot \
        be renewed. It is interrupted at once when `incumbent run` is asked to end, or when the \
        leadership was taken away (deposed, lease lost); then another candidate may lead \
        already. A component that imports incumbent:election/leadership is told (`endangered`, \
        `over`), and has --stop-timeout before it is interrupted, but never beyond those 10 ms. \
        `remaining` counts to the end of the leadership, and takes no account of either.\n\
        An interrupted component finishes one instruction at most (filling all of its memory is \
        one), and reaches nothing. Data that it has handed to the system, or that waits in a \
        socket or a pipe, may still be sent. The leadership is not given back before a system \
        call that has begun, such as a write to a file, has returned. The fence protects keys.\n\
        A component that traps has status 134.")]
    Run(Run),
    /// Campaign, and print what happens, until SIGINT or SIGTERM
    #[command(after_help = "Example: wait at most a minute to lead, as lines of JSON\n  \
        incumbent campaign my-service --id worker-1 --wait 1m -o json\n\n\
        The first SIGINT or SIGTERM resigns, a second one exits at once.")]
    Campaign(Campaign),
    /// Print the leader, and each change, until SIGINT or SIGTERM
    #[command(
        visible_alias = "watch",
        after_help = "Example:\n  incumbent observe my-service -o json"
    )]
    Observe(Observe),
    /// Print the leader, once
    #[command(after_help = "Example: the leader's value alone\n  \
        incumbent leader my-service -o json | jq -r .leader.value\n\n\
        Exits with 1, and prints nothing, if nobody leads.")]
    Leader(Named),
    /// Print the candidates, the leader first
    #[command(after_help = "Example:\n  incumbent candidates my-service\n\n\
        In a race only the leader has a key, so only the leader is listed. Exits with 1, and \
        prints nothing, if there are no candidates.")]
    Candidates(Named),
    /// Write a key as the leader of an epoch, or not at all
    #[command(after_help = "Example:\n  \
        incumbent put /data/result 42 --fence my-service:1234\n\n\
        Inside `incumbent run my-service` the epoch may be left out. Names may contain colons: \
        a number after the last colon is the epoch.\n\
        Exits with 3, and changes nothing, if that epoch does not lead any more.")]
    Put(Put),
    /// Print the value of a key
    #[command(after_help = "Example:\n  incumbent get /data/result\n\n\
        Prints the bare value and a newline, as `etcdctl get --print-value-only` does. Exits with 1, \
        and prints nothing, if the key does not exist.")]
    Get(Get),
    /// Remove the current leader: an operator's tool
    #[command(after_help = "Example: only if epoch 1234 still leads\n  \
        incumbent depose my-service:1234\n\n\
        The leader is not asked. It learns of its removal a moment later, and stops; until then \
        two candidates believe that they lead. Writes with `--fence` are safe even then. \
        Exits with 1 if nobody leads, and with 3 if another epoch leads.")]
    Depose(Depose),
    /// Have a certain candidate lead next: an operator's tool
    #[command(after_help = "Example: to worker-2, if epoch 1234 still leads\n  \
        incumbent transfer my-service --to worker-2 --from 1234\n\n\
        The leader stops its work and resigns. Candidates that wait in front of the named one get \
        back in line behind it before that. A candidate of another client does not, and leads \
        first: then its name is told.\n\
        Exits with 0 once the named candidate has said that it leads; with 1 if it does not; with \
        3, and changes nothing, if another epoch leads.")]
    Transfer(Transfer),
    /// Have an instance give up what it leads, and lead no more: an operator's tool
    #[command(after_help = "Example: before a machine is taken down, and after\n  \
        incumbent drain --id worker-1\n  \
        incumbent drain --id worker-1 --undo\n\n\
        The instance stops its work and resigns once somebody else is in line, leaves the line \
        where it waits, and stays out until --undo, or until it is started again. SIGUSR1 does the \
        same, SIGUSR2 undoes it, and so do `POST /drain` and `DELETE /drain` with --listen.\n\
        Exits with 0 once the instance leads nothing; with 1 if it still does after --wait, or if no \
        instance of that name has heard.")]
    Drain(Drain),
    /// Run recordings (--record) again, and tell what happened and why
    #[command(after_help = "Example: what happened on three machines, and a picture of it\n  \
        incumbent replay one/ two/ three/ --svg timeline.svg\n\n\
        Exits with 1 if the component of this program now says something else than what was \
        recorded.")]
    Replay(Replay),
    /// Check, before you trust it, that a store serves for an election
    #[command(after_help = "Example: may the user worker campaign in my-service?\n  \
        incumbent doctor my-service --user worker --password-file password\n\n\
        It reaches every member that --store names, and prints a line for each check: `ok`, \
        `warning` or `fault`, with the mend. It looks at the members and whether they belong \
        together, alarms, versions with known faults, rights, round trips, the rates of the \
        clocks, and what --ttl and --margin mean for them. It is no candidate, and leaves nothing \
        in the store. On etcd it takes 2 s, and up to 12 s over a slow link.\n\n\
        Exits with 0 if there is no fault; with 2 if a flag, this system or a file is at fault; with \
        4 if the store is, or cannot be reached.")]
    Doctor(Doctor),
    /// Print the statements that make the schema of a store in PostgreSQL
    #[command(
        after_help = "Example: the schema, made by its owner, for candidates that are worker\n  \
        incumbent sql --role worker | psql postgres://owner@db/jobs\n\n\
        The first candidate makes the schema by itself, if its user may. Otherwise somebody who may \
        applies these statements once. For a schema of another name, give the --store with its \
        ?schema=NAME. It connects to nothing."
    )]
    Sql(Sql),
    /// Print which build this is: its version, its component's hash, its features
    Version,
    /// Print the completions of this command line for a shell
    #[command(after_help = "Example: for this shell, until it ends\n  \
        source <(incumbent completions bash)")]
    Completions(Completions),
    /// Write the manual pages to a directory, for packages
    #[command(hide = true)]
    Man(ManualPages),
}

/// The flags of every command.
#[derive(Clone, Debug, Args)]
pub struct Common {
    /// The store: etcd://HOST:PORT[,HOST:PORT…][/PREFIX], etcds:// for TLS;
    /// postgres://USER@HOST[:PORT][,HOST…]/DATABASE[?schema=NAME]; for this machine only: local,
    /// or sqlite:PATH [default: etcd://127.0.0.1:2379]
    #[arg(
        long, value_name = "URL", value_parser = Checked::unshown(store_url), help_heading = STORE
    )]
    pub store: Option<StoreUrl>,
    /// Certificate of the authority that the server's certificate must be signed by
    #[arg(long, value_name = "FILE", help_heading = STORE)]
    pub cacert: Option<PathBuf>,
    /// The certificate that we show to the server
    #[arg(long, value_name = "FILE", help_heading = STORE)]
    pub cert: Option<PathBuf>,
    /// The private key of --cert
    #[arg(long = "key", id = "private-key", value_name = "FILE", help_heading = STORE)]
    pub key: Option<PathBuf>,
    /// The user to log in as
    #[arg(long, value_name = "NAME", help_heading = STORE)]
    pub user: Option<String>,
    /// A file whose first line is the password of --user
    #[arg(long, value_name = "FILE", help_heading = STORE)]
    pub password_file: Option<PathBuf>,
    /// How long to try to reach the store at the start
    #[arg(
        long, value_name = "DURATION", default_value = "5s", value_parser = Checked::new(timeout),
        help_heading = STORE
    )]
    pub dial_timeout: Duration,
    /// How long to wait for one answer of the store
    #[arg(
        long, value_name = "DURATION", default_value = "5s", value_parser = Checked::new(timeout),
        help_heading = STORE
    )]
    pub command_timeout: Duration,
    /// How candidates compete; all candidates of an election must use the same
    #[arg(long, value_enum, default_value_t = Contest::Queue)]
    pub contest: Contest,
    /// The name of this instance, for people [default: HOST-PID]
    #[arg(long, value_parser = Checked::new(identity))]
    pub id: Option<String>,
    /// Print lines for people, or one JSON object a line
    #[arg(short, long, value_enum, default_value_t = Form::People)]
    pub output: Form,
    /// Log more on standard error; give it twice for everything
    #[arg(short, long, action = ArgAction::Count)]
    pub verbose: u8,
}

const STORE: &str = "Store";

/// The flags of a candidate.
#[derive(Debug, Args)]
pub struct Candidate {
    /// The value that others read of this candidate, at most 4096 bytes [default: the id]
    #[arg(long)]
    pub value: Option<OsString>,
    /// How much to prefer this candidate: those in line with a lower number get behind it. Below
    /// 0, it leads only if nobody else is in line
    #[arg(long, value_name = "N", default_value_t = 0, allow_negative_numbers = true)]
    pub priority: i32,
    /// Have a leader with a lower --priority hand over to this candidate, once, when it has led
    /// for --min-term
    #[arg(long)]
    pub preempt: bool,
    #[command(flatten)]
    pub preemption: Preemption,
    #[command(flatten)]
    pub lease: Lease,
}

/// When a preferred candidate follows a leader.
#[derive(Debug, Args)]
pub struct Preemption {
    /// How long a leader leads at least before a candidate with --preempt follows it
    #[arg(
        long, value_name = "DURATION", default_value = "5m", value_parser = Checked::new(span)
    )]
    pub min_term: Duration,
}

/// The times of a candidate's lease.
#[derive(Debug, Args)]
pub struct Lease {
    /// How long the lease lives without renewals; a crashed leader is replaced after this
    /// time
    #[arg(
        long, value_name = "DURATION", default_value = "10s",
        value_parser = Checked::new(lease_time)
    )]
    pub ttl: Duration,
    /// The clock error to allow for: stop that much before the lease ends; at least, and by
    /// default, 1% of the lease time
    #[arg(long, value_name = "DURATION", value_parser = Checked::new(span))]
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
    #[arg(long)]
    pub once: bool,
    /// Run the command in its own PID namespace, so that none of its processes survives even
    /// if supervisor and guard are killed at the same moment (Linux)
    #[arg(long)]
    pub isolate: bool,
    /// Append events to this file, one JSON object a line
    #[arg(long, value_name = "FILE")]
    pub events: Option<PathBuf>,
    /// How long the command may take to stop: it gets SIGTERM that much before the end of the
    /// leadership [default: a quarter of --ttl]
    #[arg(long, value_name = "DURATION", value_parser = Checked::new(span))]
    pub stop_timeout: Option<Duration>,
    /// How long to wait before campaigning again when the command ended within a lease time of
    /// its start; doubles each time, up to 30s
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = Checked::new(span))]
    pub restart_delay: Duration,
    /// Run this WASI component, in this process, instead of a command
    #[arg(
        long, env = "INCUMBENT_JOB", value_name = "FILE", conflicts_with = "isolate",
        help_heading = COMPONENT
    )]
    pub component: Option<PathBuf>,
    #[command(flatten)]
    pub grants: Grants,
    #[command(flatten)]
    pub http: Http,
    #[command(flatten)]
    pub record: Record,
    /// The command to run while leading, after --; or the arguments of the component
    #[arg(last = true, required_unless_present = "component", num_args = 1.., value_name = "CMD")]
    pub command: Vec<OsString>,
}

const COMPONENT: &str = "Component";

/// What a component may use.
#[derive(Debug, Args)]
#[command(next_help_heading = COMPONENT)]
pub struct Grants {
    /// Let the component use the directory HOST as GUEST [default: the same name]; may be
    /// given more than once, but its variable holds one
    #[arg(long = "dir", value_name = "HOST[::GUEST]", value_parser = Checked::new(directory))]
    pub directories: Vec<Directory>,
    /// Give the component this variable, with our value unless VALUE is given; may be given
    /// more than once, but its variable holds one
    #[arg(long = "env", value_name = "NAME[=VALUE]", value_parser = Checked::new(variable))]
    pub variables: Vec<(String, String)>,
    /// Let the component read and write the keys that begin with PREFIX, as long as it leads;
    /// may be given more than once, but its variable holds one. The keys of its own election,
    /// ELECTION and all below ELECTION/, are never granted: a PREFIX that reaches them is
    /// refused. Keep other elections out too: `jobs/` lets the component delete the candidates
    /// of an election `jobs/x`, or block its queue for ever
    #[arg(long = "allow-keys", value_name = "PREFIX", value_parser = Checked::new(prefix))]
    pub keys: Vec<String>,
    /// Let the component use the network, including this machine's own: if an etcd there asks
    /// for no certificate or password, the component reaches all of its keys
    #[arg(long = "allow-network")]
    pub network: bool,
    /// How much memory the component has, in MiB
    #[arg(
        long, value_name = "MIB", allow_negative_numbers = true, default_value_t = 1024,
        value_parser = clap::value_parser!(u32).range(1..)
    )]
    pub max_memory: u32,
}

/// The flags of the HTTP endpoint.
#[derive(Debug, Args)]
#[command(next_help_heading = "HTTP endpoint")]
pub struct Http {
    /// Answer HTTP there (the status page, /leader, /livez, /readyz, /status, /events, /metrics, POST
    /// /resign): HOST:PORT, or unix:PATH
    #[arg(long, value_name = "ADDRESS", value_parser = Checked::new(address))]
    pub listen: Option<Address>,
    /// When /readyz says 200
    #[arg(long, value_enum, default_value_t = ReadyWhen::Candidate)]
    pub ready_when: ReadyWhen,
    /// Answer requests for this host name as well; may be given more than once, but its variable
    /// holds one
    #[arg(long = "http-host", value_name = "NAME", value_parser = Checked::new(host_name))]
    pub http_hosts: Vec<String>,
    /// A file whose first line is the token that POST /resign needs. Without it, only a unix socket
    /// takes that
    #[arg(long, value_name = "FILE")]
    pub http_token_file: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ReadyWhen {
    /// While it leads, or is in line and could
    Candidate,
    /// Only while it leads
    Leader,
}

/// The flags of a recording.
#[derive(Debug, Args)]
#[command(next_help_heading = "Recording")]
pub struct Record {
    /// Write what the elector is told and says to files in DIR: `incumbent replay DIR` tells what
    /// happened
    #[arg(long, value_name = "DIR")]
    pub record: Option<PathBuf>,
    /// How much the files of a recording may take; the oldest go first: bytes, or with KiB, MiB or
    /// GiB
    #[arg(
        long, value_name = "SIZE", default_value = "64MiB", value_parser = Checked::new(size)
    )]
    pub record_limit: u64,
    /// Record the values of keys as well, and not stand-ins for them
    #[arg(long)]
    pub record_values: bool,
}

#[derive(Debug, Args)]
pub struct Replay {
    /// Directories of recordings, or files of them
    #[arg(required = true, value_name = "DIR")]
    pub recordings: Vec<PathBuf>,
    /// Draw the timeline into this file
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
    /// Write the first elector's part as a transcript, for the tests of Incumbent
    #[arg(long, value_name = "FILE")]
    pub transcript: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct Doctor {
    /// The election that the user has to have the rights for; it is not disturbed [default: a
    /// scratch election is held]
    #[arg(value_parser = Checked::new(election_name))]
    pub election: Option<String>,
    #[command(flatten)]
    pub lease: Lease,
}

#[derive(Debug, Args)]
pub struct Sql {
    /// The role that candidates log in as: it is given the least that they need
    #[arg(long, value_name = "ROLE")]
    pub role: Option<String>,
}

#[derive(Debug, Args)]
pub struct Completions {
    /// The shell
    #[arg(value_enum)]
    pub shell: Shell,
}

#[derive(Debug, Args)]
pub struct ManualPages {
    /// Where to write them
    #[arg(value_name = "DIR")]
    pub directory: PathBuf,
}

#[derive(Debug, Args)]
pub struct Campaign {
    /// The election's name
    #[arg(value_parser = Checked::new(election_name))]
    pub election: String,
    #[command(flatten)]
    pub candidate: Candidate,
    /// Give up with status 1 if not elected within this time; 0: try once
    #[arg(long, value_name = "DURATION", value_parser = Checked::new(span))]
    pub wait: Option<Duration>,
    #[command(flatten)]
    pub http: Http,
    #[command(flatten)]
    pub record: Record,
}

#[derive(Debug, Args)]
pub struct Observe {
    #[command(flatten)]
    pub named: Named,
    #[command(flatten)]
    pub http: Http,
    #[command(flatten)]
    pub record: Record,
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
    /// Write only while this epoch leads: ELECTION:EPOCH, or ELECTION and the epoch is taken
    /// from INCUMBENT_EPOCH
    #[arg(long, value_name = "ELECTION[:EPOCH]", value_parser = Checked::new(target))]
    pub fence: Target,
}

#[derive(Debug, Args)]
pub struct Get {
    /// The key
    pub key: OsString,
    /// Linearizable: what all members agree on (l); or serializable: what one member knows,
    /// perhaps outdated (s)
    #[arg(long, value_enum, default_value_t = Consistency::Linearizable)]
    pub consistency: Consistency,
}

#[derive(Debug, Args)]
pub struct Depose {
    /// The election, and the epoch to remove [default: the one that leads]
    #[arg(value_name = "ELECTION[:EPOCH]", value_parser = Checked::new(target))]
    pub target: Target,
}

#[derive(Debug, Args)]
pub struct Transfer {
    /// The election's name
    #[arg(value_parser = Checked::new(election_name))]
    pub election: String,
    /// The candidate to lead next: its --value, or its --id
    #[arg(long, value_name = "ID", value_parser = Checked::new(candidate))]
    pub to: String,
    /// Only if this epoch leads
    #[arg(long, value_name = "EPOCH", value_parser = Checked::new(epoch))]
    pub from: Option<Epoch>,
    /// How long to wait until the candidate leads
    #[arg(
        long, value_name = "DURATION", default_value = "10s", value_parser = Checked::new(timeout)
    )]
    pub wait: Duration,
}

#[derive(Debug, Args)]
pub struct Drain {
    /// Have it take part again
    #[arg(long)]
    pub undo: bool,
    /// How many terms it gives up at a time, where it is a program that leads many elections
    #[arg(
        long, value_name = "N", default_value_t = 16, conflicts_with = "undo",
        value_parser = clap::value_parser!(u32).range(1..)
    )]
    pub at_most: u32,
    /// How long to wait until it leads nothing
    #[arg(
        long, value_name = "DURATION", default_value = "10s", value_parser = Checked::new(timeout)
    )]
    pub wait: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Contest {
    /// The candidate that has waited longest leads, as with etcdctl elect
    Queue,
    /// The candidate that creates the one key leads
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
    /// The store that was named, or else etcd. It is never one of this machine by default: a
    /// forgotten flag would give three hosts three leaders.
    pub fn store(&self) -> StoreUrl {
        self.store.clone().unwrap_or_default()
    }
}

impl Lease {
    /// What is taken off a term on a lease of this time.
    pub fn margin_of(&self, ttl: Duration) -> Duration {
        self.margin.unwrap_or_default().max(ttl / 100)
    }
}

impl Contest {
    /// The library's type for it.
    pub fn on_store(self) -> incumbent::Contest {
        match self {
            Self::Queue => incumbent::Contest::Queue,
            Self::Race => incumbent::Contest::Race,
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
