//! Elections in PostgreSQL: how long a handover takes, how long many elections take to be led, and what
//! the fence costs a transaction, against the same without it, and with a `SELECT 1` in its place.
//!
//! `just bench postgres [SECONDS]`

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use incumbent::{Options, Session};
use incumbent_tests::postgres::Postgres;
use tokio::task::JoinSet;
use tokio::time::sleep;
use tokio_postgres::NoTls;

/// How many handovers are measured, and how long the candidates rest before each.
const ROUNDS: usize = 100;
const REST: Duration = Duration::from_millis(50);
const CLIENTS: i64 = 50;
/// How long is looked at what elections cost while nothing happens.
const IDLE: Duration = Duration::from_secs(10);

fn main() -> Result<()> {
    // Cargo adds `--bench`.
    let seconds = std::env::args().skip(1).find_map(|argument| argument.parse().ok());
    let seconds = Duration::from_secs(seconds.unwrap_or(5));
    let runtime = tokio::runtime::Runtime::new()?;
    runtime.block_on(async {
        let postgres = Postgres::start_with(&["fsync=on"]);
        handovers(&postgres).await?;
        for elections in [10, 100, 1_000, 10_000] {
            campaigns(&postgres, elections).await?;
        }
        fence(&postgres, seconds).await
    })
}

async fn session(postgres: &Postgres, schema: &str) -> Result<Session> {
    let url = format!("{}?schema={schema}", postgres.url());
    Ok(Session::connect(&url, Options::default()).await?)
}

async fn handovers(postgres: &Postgres) -> Result<()> {
    let mut candidates = Vec::new();
    for _ in 0..3 {
        // A store of its own each, as in processes of their own.
        let url =
            format!("{}?schema=handover&application_name=c{}", postgres.url(), candidates.len());
        let session = Session::connect(&url, Options::default()).await?;
        candidates.push((session.election("handover").join(), session));
    }
    let mut took = Vec::new();
    let mut resigned = None;
    for round in 0..=ROUNDS {
        let elected = candidates.iter_mut().map(|(candidate, _)| Box::pin(candidate.elected()));
        let (leadership, ..) = futures_util::future::select_all(elected).await;
        let elected: Instant = Instant::now();
        let leadership = leadership?;
        if let Some(resigned) = resigned {
            took.push(elected.duration_since(resigned).as_secs_f64() * 1_000.0);
        }
        sleep(REST).await;
        if round < ROUNDS {
            resigned = Some(Instant::now());
            let _ = leadership.resign().await;
        }
    }
    took.sort_by(f64::total_cmp);
    let at = |percent: usize| took.get(took.len() * percent / 100).copied().unwrap_or_default();
    println!(
        "resigned, and the next of three is elected: p50 {:.2} ms, p90 {:.2} ms",
        at(50),
        at(90)
    );
    Ok(())
}

async fn campaigns(postgres: &Postgres, elections: usize) -> Result<()> {
    let session = session(postgres, "campaigns").await?;
    let began = Instant::now();
    let mut won = JoinSet::new();
    for number in 0..elections {
        let election = session.election(format!("of-{elections}-{number}"));
        won.spawn(async move { election.campaign().await });
    }
    let mut held = Vec::new();
    while let Some(leadership) = won.join_next().await {
        held.push(leadership??);
    }
    let led = began.elapsed().as_secs_f64();
    let transactions = postgres.transactions();
    sleep(IDLE).await;
    let idle = (postgres.transactions() - transactions) as f64 / IDLE.as_secs_f64();
    println!(
        "{elections:6} elections are led after {led:.3} s; then {idle:.1} transactions a second"
    );
    drop(held);
    session.close().await?;
    Ok(())
}

async fn fence(postgres: &Postgres, seconds: Duration) -> Result<()> {
    let session = session(postgres, "incumbent").await?;
    let leadership = session.election("fenced").campaign().await?;
    let fence = leadership.fence().postgres().context("a fence")?.to_string();
    postgres.sql(&format!(
        "CREATE TABLE accounts (id bigint PRIMARY KEY, n bigint NOT NULL) WITH (fillfactor = 50);
         INSERT INTO accounts SELECT n, 0 FROM generate_series(1, {CLIENTS}) n"
    ));
    let [plain, one, fenced] = ["", "SELECT 1", &fence];
    for (messages, said) in [(3, "in three messages"), (1, "in one message")] {
        // Each of them more than once, in turns: the disk and the machine are not always the same.
        let mut rates = [0.0; 3];
        for _ in 0..3 {
            for (rate, first) in rates.iter_mut().zip([plain, one, fenced]) {
                *rate += updates(postgres, first, messages, seconds).await? / 3.0;
            }
        }
        let [plain, one, fenced] = rates;
        println!("{CLIENTS} clients, a transaction of one update, {said}: {plain:.0} a second");
        println!("  with SELECT 1 after BEGIN: {one:.0}, {:.2} times the time", plain / one);
        println!("  with the fence after BEGIN: {fenced:.0}, {:.2} times the time", plain / fenced);
    }
    leadership.resign().await?;
    Ok(())
}

/// How many transactions a second there are, of this statement and an update: in so many messages, BEGIN
/// and the statement in the first one, as applications send them, or in one.
async fn updates(
    postgres: &Postgres,
    first: &str,
    messages: usize,
    seconds: Duration,
) -> Result<f64> {
    let (ended, done) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let mut clients = JoinSet::new();
    for id in 1..=CLIENTS {
        let (client, connection) = tokio_postgres::connect(&postgres.url(), NoTls).await?;
        tokio::spawn(connection);
        let (ended, done) = (Arc::clone(&ended), Arc::clone(&done));
        let update = format!("UPDATE accounts SET n = n + 1 WHERE id = {id}");
        let all = [format!("BEGIN; {first}"), update, "COMMIT".into()];
        let all = if messages == 1 { vec![all.join("; ")] } else { all.to_vec() };
        clients.spawn(async move {
            while !ended.load(Ordering::Relaxed) {
                for message in &all {
                    client.batch_execute(message).await?;
                }
                done.fetch_add(1, Ordering::Relaxed);
            }
            Ok::<(), tokio_postgres::Error>(())
        });
    }
    sleep(seconds).await;
    let rate = done.load(Ordering::Relaxed) as f64 / seconds.as_secs_f64();
    ended.store(true, Ordering::Relaxed);
    while let Some(client) = clients.join_next().await {
        client??;
    }
    Ok(rate)
}
