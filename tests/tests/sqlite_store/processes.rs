//! Several processes on one file: killed, stopped, and all at once. They are this program
//! again.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use incumbent::types::{Operation, Response};
use incumbent::{Failure, Options, Session, SqliteStore, Store as _};
use rustix::process::{Pid, Signal, kill_process};
use tokio::time::timeout;

use super::{Place, ask, claimed, keys, open, refusals};
use incumbent_tests::operations::{SECOND, claim, grant, guarded, put};
use incumbent_tests::wait::{ExpectSoon, LIMIT, joins, soon, until};

/// What this program is to do instead of testing, and on what file or folder.
const ROLE: &str = "INCUMBENT_SQLITE_ROLE";
const PLACE: &str = "INCUMBENT_SQLITE_PLACE";
/// Who of several it is.
const NUMBER: &str = "INCUMBENT_SQLITE_NUMBER";
/// What is said between processes; everything else on standard error is the harness's.
const MARK: &str = "incumbent: ";

/// Does what another test asks for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_process() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let place = PathBuf::from(std::env::var_os(PLACE).expect("a place"));
    match role.as_str() {
        "writer" => write_for_ever(&place).await,
        "contender" => contend(&place).await,
        "holder" => hold(&place),
        "reader" => say(keys(&open(&place).await).await.join(" ")),
        "threads" => threads(&place).await,
        "sessions" => sessions(&place).await,
        "deaf" => say(without_inotify(&place).await),
        "full_disk" => {
            refusals::full_disk(&place).await;
            say("done");
        }
        "read_only" => refusals::read_only(&place).await,
        "mounted_alone" => refusals::mounted_alone(&place).await,
        other => panic!("{other}"),
    }
}

/// In one piece, whenever this process is killed.
pub(super) fn say(what: impl AsRef<str>) {
    let line = format!("{MARK}{}\n", what.as_ref());
    std::io::stderr().write_all(line.as_bytes()).expect("somebody listens");
}

/// Where the machine does not let a test do its part. In CI that is a failure.
pub(super) fn skipped(why: &str) {
    assert!(std::env::var_os("CI").is_none(), "{why}");
    println!("skipped: {why}");
}

/// This program again. It ends with its handle.
pub(super) struct Process {
    child: Child,
    lines: Receiver<String>,
}

impl Process {
    fn start(role: &str, place: &Path) -> Self {
        Self::numbered(role, place, 0)
    }

    fn numbered(role: &str, place: &Path, number: usize) -> Self {
        Self::run(Command::new(std::env::current_exe().expect("a program")), role, place, number)
    }

    /// With 1 MB of memory as its disk, mounted at `folder`; none where that is not
    /// allowed.
    pub(super) fn on_a_small_disk(role: &str, folder: &Path) -> Option<Self> {
        let mount = r#"mount -t tmpfs -o size=1m tmpfs "$0""#;
        Self::unshared(role, folder, &["--mount"], mount)
    }

    /// Where the store of `folder` is a mount of its own; none where that is not allowed.
    pub(super) fn with_the_file_mounted(role: &str, folder: &Path) -> Option<Self> {
        let mount = r#"mount --bind "$0/store.db" "$0/store.db""#;
        Self::unshared(role, folder, &["--mount"], mount)
    }

    /// Where this user has no inotify instance left; none where that cannot be arranged.
    fn deaf(role: &str, place: &Path) -> Option<Self> {
        let limit = "echo 0 > /proc/sys/user/max_inotify_instances";
        Self::unshared(role, place, &["--user", "--map-root-user"], limit)
    }

    /// A day ahead of everybody else's clock; none where that is not allowed.
    fn ahead(role: &str, place: &Path) -> Option<Self> {
        let ahead = ["--time", "--boottime", "86400", "--fork", "--kill-child"];
        Self::unshared(role, place, &ahead, "true")
    }

    /// In namespaces of its own, after a command of the shell, which knows the place as `$0`;
    /// none where that is not allowed.
    fn unshared(role: &str, place: &Path, namespaces: &[&str], first: &str) -> Option<Self> {
        let unshared = |then: &str| {
            let mut command = Command::new("unshare");
            command.args(namespaces).args(["sh", "-c", &format!("{first} && {then}")]).arg(place);
            command
        };
        let allowed = unshared("true").stderr(Stdio::null()).status();
        if !allowed.is_ok_and(|status| status.success()) {
            return None;
        }
        let mut command = unshared(r#"exec "$@""#);
        command.arg(std::env::current_exe().expect("a program"));
        Some(Self::run(command, role, place, 0))
    }

    fn run(mut command: Command, role: &str, place: &Path, number: usize) -> Self {
        let mut child = command
            .args(["processes::another_process", "--exact", "--nocapture"])
            .env(ROLE, role)
            .env(PLACE, place)
            .env(NUMBER, number.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("a process");
        let said = BufReader::new(child.stderr.take().expect("a pipe"));
        let (line, lines) = channel();
        std::thread::spawn(move || {
            for said in said.lines().map_while(Result::ok) {
                match said.strip_prefix(MARK) {
                    // Nobody may be interested any more.
                    Some(said) => drop(line.send(said.to_owned())),
                    None => eprintln!("{said}"),
                }
            }
        });
        Self { child, lines }
    }

    /// What it says next.
    pub(super) fn line(&mut self) -> String {
        self.lines.recv_timeout(LIMIT).expect("the other process says something")
    }

    fn lines(&self) -> impl Iterator<Item = String> + '_ {
        std::iter::from_fn(|| self.lines.recv_timeout(LIMIT).ok())
    }

    fn signal(&self, signal: Signal) {
        let id = Pid::from_child(&self.child);
        kill_process(id, signal).expect("it is there");
    }

    fn order(&mut self) {
        let stdin = self.child.stdin.as_mut().expect("a pipe");
        stdin.write_all(b"go\n").expect("it listens");
    }

    fn kill(&mut self) {
        self.child.kill().expect("it is ours");
        self.child.wait().expect("it has ended");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn wait_for_order() {
    let mut order = String::new();
    std::io::stdin().read_line(&mut order).expect("an order");
}

// Killed.

/// Pairs of keys, two of them in one change each.
async fn write_for_ever(path: &Path) {
    let store = open(path).await;
    let lease = i64::from(std::process::id());
    ask(&store, grant(lease, 3_600 * SECOND)).await;
    let guard = claimed(&store, &format!("guard/{lease}"), lease).await;
    let mut writers = Vec::new();
    for writer in 0..4 {
        let (store, guard) = (store.clone(), guard.clone());
        writers.push(tokio::spawn(async move {
            for number in 0.. {
                let name = format!("{lease}/{writer}/{number}");
                match ask(&store, claim(&format!("claim/{name}"), lease)).await {
                    Response::Claimed(_) => say(format!("claim/{name}")),
                    other => panic!("{other:?}"),
                }
                let pair = ["left", "right"].map(|side| put(&format!("{side}/{name}"), ""));
                match ask(&store, guarded(&guard, pair.into())).await {
                    Response::Applied(_) => say(format!("left/{name}")),
                    other => panic!("{other:?}"),
                }
            }
        }));
    }
    for writer in writers {
        writer.expect_soon("no panic").await;
    }
}

#[tokio::test]
async fn kill_9_loses_nothing_that_was_acknowledged() {
    const ROUNDS: usize = 20;
    let place = Place::new();
    let mut acknowledged = Vec::new();
    for round in 0..ROUNDS {
        let mut writer = Process::start("writer", &place.file());
        for _ in 0..1 + fastrand::usize(..40) {
            acknowledged.push(writer.line());
        }
        std::thread::sleep(Duration::from_micros(fastrand::u64(..2_000)));
        writer.kill();
        acknowledged.extend(writer.lines());
        let store = open(&place.file()).await;
        let there: std::collections::BTreeSet<_> = keys(&store).await.into_iter().collect();
        for key in &acknowledged {
            assert!(there.contains(key), "{key} was lost in round {round}");
        }
        for key in &there {
            if let Some(name) = key.strip_prefix("left/") {
                assert!(there.contains(&format!("right/{name}")), "half of {name}");
            }
        }
        // Each change is there once, and the revision is the last one's.
        assert_eq!(
            place.number("SELECT count(DISTINCT revision) FROM history") + 1,
            place.number("SELECT revision FROM meta")
        );
    }
    println!("{} acknowledged changes over {ROUNDS} kills", acknowledged.len());
}

// Stopped.

/// Holds the lock until it is told to let go.
fn hold(path: &Path) {
    let database = rusqlite::Connection::open(path).expect("a database");
    database.busy_timeout(LIMIT).expect("a time");
    database.execute_batch("BEGIN IMMEDIATE").expect("the lock");
    say("held");
    wait_for_order();
    database.execute_batch("COMMIT").expect("it was ours");
    say("free");
    wait_for_order();
}

#[tokio::test]
async fn who_is_stopped_in_a_transaction_holds_up_the_others() {
    let (place, store) = Place::with_lease().await;
    for killed in [false, true] {
        let mut holder = Process::start("holder", &place.file());
        assert_eq!(holder.line(), "held");
        holder.signal(Signal::STOP);
        let soon = Duration::from_millis(300);
        assert_eq!(store.call(Operation::KeepAlive(1), soon).await, Err(Failure::Timeout));
        assert_eq!(store.call(claim("no", 1), soon).await, Err(Failure::Timeout));
        let key = format!("killed: {killed}");
        let waiting = tokio::spawn(store.call(claim(&key, 1), LIMIT));
        if killed {
            holder.kill();
        } else {
            holder.order();
            holder.signal(Signal::CONT);
        }
        let answer = waiting.expect_soon("no panic").await.expect("an answer");
        assert!(matches!(answer, Response::Claimed(_)), "{answer:?}");
    }
    assert_eq!(keys(&store).await, ["killed: false", "killed: true"]);
}

#[tokio::test]
async fn nobody_leads_beyond_its_time_while_the_store_is_held() {
    let place = Place::new();
    let options = Options { ttl: Duration::from_secs(1), ..Options::default() };
    let session =
        async || Session::open(place.open().await, options.clone()).expect_soon("a session").await;
    let (one, other) = (session().await, session().await);
    let leadership = one.election("my-service").campaign().expect_soon("leads").await;
    let mut candidate = joins(&other.election("my-service")).await;
    let mut holder = Process::start("holder", &place.file());
    assert_eq!(holder.line(), "held");
    holder.signal(Signal::STOP);
    soon("it is over in time", leadership.lost()).await;
    assert!(!leadership.is_valid());
    drop(leadership);
    let mut elected = Box::pin(candidate.elected());
    // As long as a lease would have lasted.
    assert!(timeout(Duration::from_secs(1), &mut elected).await.is_err(), "nobody leads");
    holder.kill();
    // One of both leads, who got back first.
    let again = one.election("my-service");
    let leads = async {
        tokio::select! {
            elected = elected => drop(elected.expect("leads")),
            elected = again.campaign() => drop(elected.expect("leads")),
        }
    };
    soon("somebody leads", leads).await;
}

// All at once.

const CONTENDERS: usize = 4;
const KEYS: usize = 60;

/// Claims whatever there is, and says what it got, and how long it waited at most.
async fn contend(path: &Path) {
    let number: i64 = std::env::var(NUMBER).expect("a number").parse().expect("a number");
    let store = open(path).await;
    ask(&store, grant(number, 3_600 * SECOND)).await;
    say("ready");
    wait_for_order();
    let mut longest = Duration::ZERO;
    for key in 0..KEYS {
        let began = Instant::now();
        let answer = ask(&store, claim(&format!("jobs/{key:04}"), number)).await;
        ask(&store, Operation::KeepAlive(number)).await;
        longest = longest.max(began.elapsed());
        match answer {
            Response::Claimed(_) => say(format!("jobs/{key:04}")),
            Response::Taken(_) => {}
            other => panic!("{other:?}"),
        }
    }
    say(format!("waited {} us", longest.as_micros()));
}

#[tokio::test]
async fn of_many_processes_one_wins() {
    let place = Place::new();
    let mut contenders: Vec<_> = (1..=CONTENDERS)
        .map(|number| Process::numbered("contender", &place.file(), number))
        .collect();
    for contender in &mut contenders {
        assert_eq!(contender.line(), "ready");
    }
    for contender in &mut contenders {
        contender.order();
    }
    let mut winners = BTreeMap::new();
    for (number, contender) in contenders.iter().enumerate() {
        let mut won = 0;
        for line in contender.lines() {
            match line.strip_prefix("waited ") {
                Some(waited) => println!("contender {number}: won {won}, waited {waited}"),
                None => {
                    won += 1;
                    let before = winners.insert(line.clone(), number);
                    assert_eq!(before, None, "{line} was won twice");
                }
            }
        }
    }
    assert_eq!(winners.len(), KEYS);
    assert_eq!(keys(&place.open().await).await.len(), KEYS);
}

// Clocks and threads.

#[tokio::test]
async fn a_time_namespace_ends_no_lease() {
    let (place, store) = Place::with_lease().await;
    claimed(&store, "key", 1).await;
    let Some(mut ahead) = Process::ahead("reader", &place.file()) else {
        return skipped("no time namespace");
    };
    assert_eq!(ahead.line(), "key");
    assert_eq!(keys(&store).await, ["key"]);
}

#[tokio::test]
async fn the_threads_end_with_the_last_clone() {
    let place = Place::new();
    assert_eq!(Process::start("threads", &place.file()).line(), "none");
}

/// How many threads of this process have such a name. Linux keeps 15 bytes of it.
fn threads_named(beginning: &str) -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").expect("threads");
    let name = |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("comm"));
    let names = tasks.filter_map(|task| name(task.ok()?).ok());
    names.filter(|name| name.starts_with(beginning)).count()
}

async fn threads(path: &Path) {
    let threads = || threads_named("incumbent");
    let store = SqliteStore::open(path).expect_soon("a store").await;
    assert_eq!(threads(), 1);
    let clone = store.clone();
    let watches = super::started(&store).await;
    assert_eq!(threads(), 2);
    drop((store, clone));
    // Watches are the store's.
    assert_eq!(threads(), 2);
    drop(watches);
    until("no thread is left", async || threads() == 0).await;
    say("none");
}

#[tokio::test]
async fn the_sessions_of_a_process_share_a_store() {
    let place = Place::new();
    assert_eq!(Process::start("sessions", &place.file()).line(), "one after the other");
}

async fn sessions(path: &Path) {
    let url = format!("sqlite:{}", path.display());
    let connect =
        || async { Session::connect(&url, Options::default()).expect_soon("connects").await };
    let writers = || threads_named("incumbent-sqli");
    let sessions = join_all((0..30).map(|_| connect())).await;
    assert_eq!(writers(), 1);
    let campaigns = sessions.iter().map(|session| async {
        let leadership = session.election("my-service").campaign().expect_soon("it leads").await;
        leadership.resign().expect_soon("its key is gone").await;
    });
    join_all(campaigns).await;

    // A session that connects after the file was replaced uses the new one.
    for ending in ["", "-wal", "-shm"] {
        std::fs::remove_file(format!("{}{ending}", path.display())).expect("it was there");
    }
    let late = connect().await;
    assert!(path.exists());
    let leadership = late.election("my-service").campaign().expect_soon("it leads").await;
    leadership.resign().expect_soon("its key is gone").await;

    drop((sessions, late));
    until("no thread is left", async || writers() == 0).await;
    connect().await;
    say("one after the other");
}

#[tokio::test]
async fn who_cannot_hear_the_bell_looks() {
    let place = Place::new();
    let store = place.open().await;
    let Some(mut deaf) = Process::deaf("deaf", &place.file()) else {
        return skipped("no user namespace");
    };
    assert_eq!(deaf.line(), "watching");
    ask(&store, grant(1, 60 * SECOND)).await;
    claimed(&store, "key", 1).await;
    assert_eq!(deaf.line(), "key");
}

async fn without_inotify(path: &Path) -> String {
    use rustix::fs::inotify::{CreateFlags, init};
    assert!(init(CreateFlags::CLOEXEC).is_err(), "it can hear");
    let mut watches = super::started(&open(path).await).await;
    say("watching");
    super::seen(&mut watches).await.1
}
