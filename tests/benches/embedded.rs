//! What the store in a file takes, among several processes: to hand over, to follow a
//! crash, to tell of a change, and to do nothing. Beside it the floor: a commit of SQLite's
//! that is on the disk.
//!
//! `cargo bench -p incumbent-tests --features component --bench embedded [-- ROUNDS]`

use std::future::poll_fn;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use futures_util::future::try_join_all;
use incumbent::types::{Change, Claim, Grant, Operation, Response, Watch};
use incumbent::{BootClock, Clock as _, Options, Session, SqliteStore, Store as _};
use tokio::io::{AsyncBufReadExt as _, BufReader as AsyncBufReader};
use tokio::runtime::Runtime;

/// What this program is to be, if it is not the one that measures.
const ROLE: &str = "INCUMBENT_EMBEDDED_ROLE";
const TIMEOUT: Duration = Duration::from_secs(30);

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let Ok(role) = std::env::var(ROLE) {
        let path = Path::new(&role);
        return match arguments.first().map(String::as_str) {
            Some("watcher") => runtime()?.block_on(watch(path)),
            Some(ttl) => runtime()?.block_on(campaign(path, Duration::from_secs(ttl.parse()?))),
            None => bail!("{ROLE} is for the processes that this program starts"),
        };
    }
    // Cargo adds `--bench`.
    let rounds = arguments.iter().find_map(|argument| argument.parse().ok()).unwrap_or(200);
    let folder = tempfile::tempdir()?;
    let commit = commits(&folder.path().join("floor.db"), rounds)?;
    let floor = spread("a commit of SQLite's alone", commit, None);
    let in_folder = |name: &str| folder.path().join(name);
    events(&in_folder("events.db"), rounds, floor)?;
    handovers(&in_folder("handovers.db"), rounds, floor)?;
    crashes(&in_folder("crashes.db"))?;
    many(&in_folder("many.db"))?;
    idle(&in_folder("idle.db"))
}

fn runtime() -> Result<Runtime> {
    Ok(tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?)
}

fn commits(path: &Path, rounds: usize) -> Result<Vec<u64>> {
    let database = rusqlite::Connection::open(path)?;
    database.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(()))?;
    database.pragma_update(None, "synchronous", "FULL")?;
    database.execute_batch("CREATE TABLE floor (number INTEGER)")?;
    let mut insert = database.prepare("INSERT INTO floor VALUES (?1)")?;
    let mut took = Vec::new();
    for round in 0..rounds {
        let began = BootClock.now();
        insert.execute([round as i64])?;
        took.push(BootClock.now() - began);
    }
    Ok(took)
}

// What is measured.

/// From the answer to a write in one process until another one has seen it.
fn events(path: &Path, rounds: usize, floor: u64) -> Result<()> {
    let mut others = Others::default();
    let runtime = runtime()?;
    let store = runtime.block_on(SqliteStore::open(path))?;
    let mut took = Vec::new();
    others.start(path, "watcher")?;
    others.hear("started")?;
    runtime.block_on(
        store.call(Operation::Grant(Grant { lease: 1, ttl: 600_000_000_000 }), TIMEOUT),
    )?;
    for round in 0..rounds {
        let claim = Claim { key: format!("key/{round}").into(), value: Vec::new(), lease: 1 };
        let claimed = runtime.block_on(store.call(Operation::Claim(claim), TIMEOUT))?;
        let acknowledged = BootClock.now();
        let Response::Claimed(_) = claimed else { bail!("{claimed:?}") };
        took.push(others.hear("saw")?.at.saturating_sub(acknowledged));
        sleep(Duration::from_millis(2));
    }
    spread("acknowledged to seen elsewhere", took, Some(floor));
    Ok(())
}

/// From the call of `resign` in one process to a leadership in another one.
fn handovers(path: &Path, rounds: usize, floor: u64) -> Result<()> {
    let mut others = Others::default();
    for _ in 0..3 {
        others.start(path, "10")?;
    }
    let mut leader = others.hear("elected")?;
    let mut took = Vec::new();
    for _ in 0..rounds {
        sleep(Duration::from_millis(20));
        others.order(leader.from)?;
        let resigned = others.hear("resigning")?;
        leader = others.hear("elected")?;
        let span = leader.at.checked_sub(resigned.at);
        took.push(span.context("elected before the other one had to resign")?);
    }
    spread("resign to elected, three processes", took, Some(floor));
    Ok(())
}

/// From SIGKILL to a leadership in another process.
fn crashes(path: &Path) -> Result<()> {
    let mut others = Others::default();
    for _ in 0..3 {
        others.start(path, "1")?;
    }
    let mut leader = others.hear("elected")?;
    let mut took = Vec::new();
    for round in 0..8_u64 {
        // At any point between two renewals.
        sleep(Duration::from_millis(200 + 37 * round));
        let killed = BootClock.now();
        others.kill(leader.from)?;
        leader = others.hear("elected")?;
        took.push(leader.at.saturating_sub(killed));
        others.start(path, "1")?;
    }
    spread("kill -9 to elected, lease of 1 s", took, None);
    Ok(())
}

/// A thousand elections in one process.
fn many(path: &Path) -> Result<()> {
    runtime()?.block_on(async {
        let session = Session::open(SqliteStore::open(path).await?, Options::default()).await?;
        let elections: Vec<_> =
            (0..1_000).map(|number| session.election(format!("election-{number}"))).collect();
        let began = Instant::now();
        let terms = try_join_all(elections.iter().map(|election| election.campaign())).await?;
        println!("campaign in 1,000 elections: {:.2} s", began.elapsed().as_secs_f64());
        let began = Instant::now();
        try_join_all(terms.into_iter().map(|leadership| leadership.resign())).await?;
        println!("resign all of them: {:.2} s", began.elapsed().as_secs_f64());
        session.close().await?;
        Ok(())
    })
}

/// What processes need that wait.
fn idle(path: &Path) -> Result<()> {
    const SPAN: Duration = Duration::from_secs(5);
    let mut others = Others::default();
    let watcher = others.start(path, "watcher")?;
    others.hear("started")?;
    let leader = others.start(path, "10")?;
    others.hear("elected")?;
    let waiter = others.start(path, "10")?;
    sleep(Duration::from_secs(1));
    let before = [watcher, leader, waiter].map(|number| others.ran(number));
    sleep(SPAN);
    for (what, number) in [("watcher", watcher), ("leader", leader), ("waiter", waiter)] {
        let ran = others.ran(number) - before[number];
        println!("idle {what}: {:.3}% of a core", 100.0 * ran as f64 / SPAN.as_nanos() as f64);
    }
    Ok(())
}

// The other processes.

/// Leads, until it is told to resign, again and again. It ends with its input.
async fn campaign(path: &Path, ttl: Duration) -> Result<()> {
    let mut orders = AsyncBufReader::new(tokio::io::stdin()).lines();
    let store = SqliteStore::open(path).await?;
    let session = Session::open(store, Options { ttl, ..Options::default() }).await?;
    let election = session.election("jobs");
    loop {
        let leadership = tokio::select! {
            elected = election.campaign() => elected?,
            _ = orders.next_line() => return Ok(()),
        };
        say("elected");
        if orders.next_line().await?.is_none() {
            return Ok(());
        }
        say("resigning");
        leadership.resign().await?;
    }
}

async fn watch(path: &Path) -> Result<()> {
    let mut watches = SqliteStore::open(path).await?.watches();
    watches.open(Watch { id: 1, key: b"key/".into(), prefix: true, since: None });
    loop {
        match poll_fn(|context| watches.poll_next(context)).await.change {
            Change::Started(_) => say("started"),
            Change::Put(_) => say("saw"),
            other => bail!("{other:?}"),
        }
    }
}

fn say(what: &str) {
    println!("{what} {}", BootClock.now());
}

/// What another process said.
struct Said {
    from: usize,
    what: String,
    at: u64,
}

struct Others {
    processes: Vec<(Child, ChildStdin)>,
    say: Sender<Said>,
    said: Receiver<Said>,
    /// Heard, and not asked for yet.
    pending: Vec<Said>,
}

impl Default for Others {
    fn default() -> Self {
        let (say, said) = channel();
        Self { processes: Vec::new(), say, said, pending: Vec::new() }
    }
}

impl Others {
    fn start(&mut self, path: &Path, role: &str) -> Result<usize> {
        let mut process = Command::new(std::env::current_exe()?)
            .arg(role)
            .env(ROLE, path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let orders = process.stdin.take().context("a pipe")?;
        let lines = BufReader::new(process.stdout.take().context("a pipe")?).lines();
        let from = self.processes.len();
        let say = self.say.clone();
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                let Some((what, at)) = line.split_once(' ') else { continue };
                let Ok(at) = at.parse() else { continue };
                let _ = say.send(Said { from, what: what.into(), at });
            }
        });
        self.processes.push((process, orders));
        Ok(from)
    }

    /// What one of them says; lines of several may come in any order.
    fn hear(&mut self, what: &str) -> Result<Said> {
        if let Some(known) = self.pending.iter().position(|said| said.what == what) {
            return Ok(self.pending.remove(known));
        }
        loop {
            let said = self.said.recv_timeout(TIMEOUT).with_context(|| format!("no {what}"))?;
            if said.what == what {
                return Ok(said);
            }
            self.pending.push(said);
        }
    }

    fn order(&mut self, number: usize) -> Result<()> {
        Ok(self.processes[number].1.write_all(b"resign\n")?)
    }

    fn kill(&mut self, number: usize) -> Result<()> {
        self.processes[number].0.kill()?;
        self.processes[number].0.wait()?;
        Ok(())
    }

    /// Nanoseconds on a processor, of all threads.
    fn ran(&self, number: usize) -> u64 {
        let process = self.processes[number].0.id();
        let threads = std::fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten();
        let ran = threads.flatten().filter_map(|thread| {
            let line = std::fs::read_to_string(thread.path().join("schedstat")).ok()?;
            line.split(' ').next()?.parse::<u64>().ok()
        });
        ran.sum()
    }
}

impl Drop for Others {
    fn drop(&mut self) {
        for (process, _) in &mut self.processes {
            // It may have ended.
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

/// Prints how long something took, and returns the median.
fn spread(what: &str, mut took: Vec<u64>, floor: Option<u64>) -> u64 {
    took.sort_unstable();
    let at = |percent: usize| took[(took.len() * percent / 100).min(took.len() - 1)];
    let ms = |nanoseconds: u64| nanoseconds as f64 / 1e6;
    let [median, p99, most] = [50, 99, 100].map(at).map(ms);
    let ratio = floor
        .map_or(String::new(), |floor| format!(", ratio to a commit {:.1}", median / ms(floor)));
    println!("{what}: median {median:.2} ms, p99 {p99:.2} ms, most {most:.2} ms{ratio}");
    at(50)
}
