//! The fence in SQL: a transaction of the user commits only while its epoch stands.

use std::cell::Cell;
use std::sync::Mutex;

use incumbent_tests::postgres::Pooler;
use tokio_postgres::{Client, NoTls};

use super::*;

async fn client(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

/// A database with a table of the user's, and an epoch of the election `jobs`.
struct Fenced {
    postgres: Postgres,
    store: PostgresStore,
    epoch: i64,
}

impl Fenced {
    async fn start(settings: &[&str]) -> Self {
        let postgres = Postgres::start_with(settings);
        postgres.sql("CREATE TABLE counter (n bigint); INSERT INTO counter VALUES (0)");
        let store = open(&postgres.url()).await;
        let epoch = campaign(&store, "jobs/1", 1, 600 * SECOND).await;
        Self { postgres, store, epoch }
    }

    /// The next leader takes over: the lease is over, or the key is deleted. Its epoch.
    async fn take_over(&self, by_lease: bool) -> i64 {
        if by_lease {
            assert_eq!(ask(&self.store, Operation::Revoke(1)).await, Response::Revoked);
        } else {
            let guard = Guard { key: "jobs/1".into(), epoch: self.epoch, lease: None };
            let mutations = vec![Mutation::Delete("jobs/1".into())];
            let deletion = Operation::Guarded(Guarded { guard, expect: Vec::new(), mutations });
            assert!(matches!(ask(&self.store, deletion).await, Response::Applied(_)));
        }
        campaign(&self.store, "jobs/2", 2, 600 * SECOND).await
    }

    fn count(&self) -> i64 {
        self.postgres.sql("SELECT n FROM counter").parse().unwrap()
    }
}

fn call(epoch: i64) -> String {
    format!("SELECT incumbent.fence('jobs', {epoch})")
}

/// The same with the lease that holds the first epoch.
fn call_with_lease(epoch: i64) -> String {
    format!("SELECT incumbent.fence('jobs', {epoch}, 1)")
}

const COUNT: &str = "UPDATE counter SET n = n + 1";
const LEVELS: [&str; 3] = ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"];

fn is_refused(error: &tokio_postgres::Error) -> bool {
    let Some(refusal) = error.as_db_error() else { return false };
    let says = ["does not stand", "cannot commit"];
    refusal.code().code() == "IN001" && says.iter().all(|part| refusal.message().contains(part))
}

#[tokio::test]
async fn a_transaction_commits_while_its_epoch_stands() {
    let fenced = Fenced::start(&[]).await;
    let mut client = client(&fenced.postgres.url()).await;
    let ways = LEVELS.iter().flat_map(|level| [(level, false), (level, true)]);
    for (number, (level, with_lease)) in ways.enumerate() {
        let call = if with_lease { call_with_lease } else { call };
        let (call, wrong) = (call(fenced.epoch), call(fenced.epoch + 1));
        let all = format!("BEGIN ISOLATION LEVEL {level}; {COUNT}; {call}; COMMIT");
        client.batch_execute(&all).await.unwrap();
        // With a savepoint that is given up.
        let all = format!(
            "BEGIN ISOLATION LEVEL {level}; SAVEPOINT one; {call}; ROLLBACK TO one; {call}; {COUNT}; COMMIT"
        );
        client.batch_execute(&all).await.unwrap();
        let all = format!("BEGIN ISOLATION LEVEL {level}; {COUNT}; {wrong}; COMMIT");
        assert!(is_refused(&client.batch_execute(&all).await.unwrap_err()), "{level}");
        client.batch_execute("ROLLBACK").await.unwrap();
        assert_eq!(fenced.count(), 2 * (number as i64 + 1), "{level}");
    }
    // Of another election, and of one whose name begins alike.
    for name in ["other", "job", "jobs/1", ""] {
        let call = format!("SELECT incumbent.fence('{name}', {})", fenced.epoch);
        let answer = client.batch_execute(&call).await;
        assert_eq!(answer.is_ok(), name == "jobs/1", "{name}");
    }
    // Its candidates' keys lie among those of the election `jobs`.
    let deep = campaign(&fenced.store, "jobs/deep/3", 3, 600 * SECOND).await;
    for call in [call(deep), format!("SELECT incumbent.fence('jobs', {deep}, 3)")] {
        assert!(is_refused(&client.batch_execute(&call).await.unwrap_err()));
    }
    client.batch_execute(&format!("SELECT incumbent.fence('jobs/deep', {deep}, 3)")).await.unwrap();
    // A revision of another key is no epoch.
    let plain = incumbent_tests::operations::put("jobs/plain", "");
    let guard = Guard { key: "jobs/1".into(), epoch: fenced.epoch, lease: None };
    let put = Operation::Guarded(Guarded { guard, expect: Vec::new(), mutations: vec![plain] });
    let Response::Applied(at) = ask(&fenced.store, put).await else { panic!("not put") };
    for call in [call(at), format!("SELECT incumbent.fence('jobs', {at}, 0)")] {
        assert!(is_refused(&client.batch_execute(&call).await.unwrap_err()));
    }
    // A lease that does not hold it changes nothing.
    let wrong = format!("SELECT incumbent.fence('jobs', {}, 3)", fenced.epoch);
    client.batch_execute(&wrong).await.unwrap();
    // Prepared.
    let transaction = client.transaction().await.unwrap();
    let fence = transaction.prepare("SELECT incumbent.fence($1, $2)").await.unwrap();
    transaction.execute(&fence, &[&"jobs", &fenced.epoch]).await.unwrap();
    transaction.commit().await.unwrap();
}

/// Whenever the transaction has called the fence, and whichever ended the epoch.
#[tokio::test]
async fn what_calls_after_a_takeover_is_refused() {
    for level in LEVELS {
        for by_lease in [true, false] {
            let fenced = Fenced::start(&[]).await;
            let client = client(&fenced.postgres.url()).await;
            // It sees the past from here on, except under read committed.
            let begin = format!("BEGIN ISOLATION LEVEL {level}; SELECT n FROM counter; {COUNT}");
            client.batch_execute(&begin).await.unwrap();
            let epoch = fenced.take_over(by_lease).await;
            assert!(epoch > fenced.epoch);
            let call = if by_lease { call } else { call_with_lease };
            let refused = client.batch_execute(&call(fenced.epoch)).await.unwrap_err();
            assert!(is_refused(&refused), "{level}: {refused:?}");
            client.batch_execute("COMMIT").await.unwrap();
            assert_eq!(fenced.count(), 0, "{level}");
        }
    }
}

/// It is ended by the takeover, which waits no longer than a second for it.
#[tokio::test]
async fn a_transaction_that_sleeps_after_the_call_holds_up_nobody_and_cannot_commit() {
    for level in LEVELS {
        for by_lease in [true, false] {
            let fenced = Fenced::start(&[]).await;
            let client = client(&fenced.postgres.url()).await;
            let call = if by_lease { call_with_lease } else { call };
            let begin = format!("BEGIN ISOLATION LEVEL {level}; {}; {COUNT}", call(fenced.epoch));
            client.batch_execute(&begin).await.unwrap();
            let since = std::time::Instant::now();
            fenced.take_over(by_lease).await;
            println!("{level}, {by_lease}: {:?}", since.elapsed());
            assert!(client.batch_execute("COMMIT").await.is_err(), "{level}");
            assert_eq!(fenced.count(), 0, "{level}");
        }
    }
}

/// A short transaction is waited for: it commits before the epoch ends.
#[tokio::test]
async fn a_transaction_that_ends_soon_is_waited_for() {
    // No longer than for a second. Where that is over before the test sees it, it tries once more.
    until("it commits before the epoch ends", async || {
        let fenced = Fenced::start(&[]).await;
        let client = client(&fenced.postgres.url()).await;
        let begin = format!("BEGIN; {}; {COUNT}", call(fenced.epoch));
        client.batch_execute(&begin).await.unwrap();
        let over = Cell::new(false);
        let take_over = async {
            let epoch = fenced.take_over(true).await;
            over.set(true);
            epoch
        };
        let (epoch, committed) = tokio::join!(take_over, async {
            let waits = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted";
            until("the takeover waits", async || over.get() || fenced.postgres.sql(waits) == "1")
                .await;
            client.batch_execute("COMMIT").await.is_ok()
        });
        assert!(epoch > fenced.epoch);
        assert_eq!(fenced.count(), i64::from(committed));
        committed
    })
    .await;
}

/// Many transactions of an old leader and of new ones: in the order of their commits, epochs rise.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_order_of_commits_lets_an_old_leader_follow_a_new_one() {
    let postgres = Postgres::start();
    postgres.sql("CREATE TABLE log (place bigserial, epoch bigint)");
    let store = open(&postgres.url()).await;
    // An epoch and the lease that holds it; none at the end.
    let newest = Arc::new(Mutex::new(Some((0, 0))));
    let mut writers = tokio::task::JoinSet::new();
    for number in 0..8 {
        let (url, newest) = (postgres.url(), Arc::clone(&newest));
        writers.spawn(async move {
            let client = client(&url).await;
            let (mut written, level) = (0, LEVELS[number % 3]);
            loop {
                let Some((epoch, lease)) = *newest.lock().unwrap() else { return written };
                let call = match number % 2 {
                    0 => call(epoch),
                    _ => format!("SELECT incumbent.fence('jobs', {epoch}, {lease})"),
                };
                // The lock on the table is what tells the order of the commits.
                let all = format!(
                    "BEGIN ISOLATION LEVEL {level}; {call}; LOCK log IN EXCLUSIVE MODE; \
                     INSERT INTO log (epoch) VALUES ({epoch}); COMMIT"
                );
                match client.batch_execute(&all).await {
                    Ok(()) => written += 1,
                    Err(_) => client.batch_execute("ROLLBACK").await.unwrap(),
                }
            }
        });
    }
    for lease in 1..=40 {
        let epoch = campaign(&store, &format!("jobs/{lease}"), lease, 600 * SECOND).await;
        *newest.lock().unwrap() = Some((epoch, lease));
        let wrote = format!("SELECT count(*) > 0 FROM log WHERE epoch = {epoch}");
        until("the leader writes", async || postgres.sql(&wrote) == "t").await;
        assert_eq!(ask(&store, Operation::Revoke(lease)).await, Response::Revoked);
    }
    *newest.lock().unwrap() = None;
    let written: i32 = writers.join_all().await.iter().sum();
    let disorder = "SELECT count(*) FROM (SELECT epoch < lag(epoch) OVER (ORDER BY place) AS falls FROM log) l WHERE falls";
    assert_eq!(postgres.sql(disorder), "0", "of {written} writes");
}

#[tokio::test]
async fn a_transaction_with_a_fence_cannot_be_prepared() {
    let fenced = Fenced::start(&["max_prepared_transactions=5"]).await;
    let client = client(&fenced.postgres.url()).await;
    let begin = format!("BEGIN; {}; {COUNT}", call(fenced.epoch));
    client.batch_execute(&begin).await.unwrap();
    let refused = client.batch_execute("PREPARE TRANSACTION 'one'").await.unwrap_err();
    let refusal = refused.as_db_error().unwrap();
    assert_eq!(refusal.code().code(), "IN002");
    assert!(refusal.message().contains("cannot be prepared"), "{refusal}");
    client.batch_execute(&begin).await.unwrap();
    let hidden = "/* now */ PREPARE/**/TRANSACTION 'one'";
    assert!(client.batch_execute(hidden).await.is_err());
    let talks = "SELECT 'please prepare transaction'";
    client.batch_execute(&format!("{begin}; {talks}; COMMIT")).await.unwrap();
    assert_eq!(fenced.postgres.sql("SELECT count(*) FROM incumbent.fences"), "0");
    client
        .batch_execute(&format!("BEGIN READ ONLY; {}; COMMIT", call(fenced.epoch)))
        .await
        .unwrap();
    fenced.take_over(true).await;
}

/// Prepares a transaction in spite of its fence, as `one`.
async fn prepare(client: &Client, call: &str) {
    let begin = format!("BEGIN; {call}; SET CONSTRAINTS ALL IMMEDIATE");
    client.batch_execute(&begin).await.unwrap();
    client.batch_execute("PREPARE TRANSACTION 'one'").await.unwrap();
}

/// Nobody can end it but its owner: the epoch stands until then, and all others have their elections.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_that_cannot_be_ended_holds_up_its_election_alone() {
    let fenced = Fenced::start(&["max_prepared_transactions=5"]).await;
    let postgres = &fenced.postgres;
    postgres.sql("CREATE ROLE guest LOGIN");
    postgres.allow(&["host all guest 127.0.0.1/32 trust"]);
    postgres.sql(&PostgresStore::schema("mine", Some("guest")));
    let guest =
        open(&format!("postgres://guest@{}/postgres?schema=mine", postgres.address())).await;
    let call = |epoch| format!("SELECT mine.fence('jobs', {epoch})");
    let client = client(&postgres.url()).await;
    for lease in [1, 2] {
        let key = format!("jobs/{lease}");
        let epoch = campaign(&guest, &key, lease, 600 * SECOND).await;
        if lease == 1 {
            // A superuser's.
            client.batch_execute(&format!("BEGIN; {}", call(epoch))).await.unwrap();
        } else {
            prepare(&client, &call(epoch)).await;
        }
        let guard = Guard { key: key.clone().into(), epoch, lease: None };
        let mutations = vec![Mutation::Delete(key.clone().into())];
        let deletion = Operation::Guarded(Guarded { guard, expect: Vec::new(), mutations });
        for ending in [Operation::Revoke(lease), deletion] {
            let other = format!("other/{lease}");
            let (ended, other) = tokio::join!(
                guest.call(ending, LIMIT),
                campaign(&guest, &other, 100 + lease, 600 * SECOND)
            );
            assert!(other > epoch);
            let Err(Failure::Other(said)) = ended else { panic!("{ended:?}") };
            let says = ["called the fence", "pg_prepared_xacts", "pg_signal_backend"];
            assert!(says.iter().all(|part| said.contains(part)), "{said}");
            assert_eq!(ask(&guest, Operation::Revoke(100 + lease)).await, Response::Revoked);
        }
        assert_eq!(read(&guest, "jobs").await.1, [key]);
        client.batch_execute("ROLLBACK").await.unwrap();
        if lease == 2 {
            client.batch_execute("ROLLBACK PREPARED 'one'").await.unwrap();
        }
        assert_eq!(ask(&guest, Operation::Revoke(lease)).await, Response::Revoked);
    }
}

/// The same for a lease that nobody renews: it is not tried again and again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_that_cannot_be_ended_holds_up_nobody_else() {
    let postgres = Postgres::start_with(&["max_prepared_transactions=5"]);
    let clock = ManualClock::default();
    let store = open_at(&postgres.url(), &clock, "mine").await;
    let epoch = campaign(&store, "jobs/1", 1, 10 * SECOND).await;
    let client = client(&postgres.url()).await;
    prepare(&client, &call(epoch)).await;
    clock.advance(Duration::from_secs(10));
    until("it was tried", async || {
        postgres.sql("SELECT count(*) FROM incumbent.leases WHERE fenced > 0") == "1"
    })
    .await;
    let tried = postgres.sql("SELECT fenced FROM incumbent.leases WHERE id = 1");
    for lease in 2..=11 {
        campaign(&store, &format!("other/{lease}"), lease, 600 * SECOND).await;
    }
    assert_eq!(postgres.sql("SELECT fenced FROM incumbent.leases WHERE id = 1"), tried);
    assert_eq!(read(&store, "jobs").await.1, ["jobs/1"]);
    client.batch_execute("ROLLBACK PREPARED 'one'").await.unwrap();
    until("the lease is over", async || {
        clock.advance(Duration::from_secs(1));
        read(&store, "jobs").await.1.is_empty()
    })
    .await;
}

/// They are waited for together, for half a second in all.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sleepers_of_many_leases_are_ended_together() {
    const LEASES: i64 = 8;
    let postgres = Postgres::start();
    let clock = ManualClock::default();
    let store = open_at(&postgres.url(), &clock, "mine").await;
    let mut sleepers = Vec::new();
    for lease in 1..=LEASES {
        let epoch = campaign(&store, &format!("jobs/{lease}"), lease, 10 * SECOND).await;
        let client = client(&postgres.url()).await;
        client.batch_execute(&format!("BEGIN; {}", call(epoch))).await.unwrap();
        sleepers.push(client);
    }
    clock.advance(Duration::from_secs(10));
    until("the leases are over", async || read(&store, "").await.1.is_empty()).await;
    for sleeper in sleepers {
        assert!(sleeper.batch_execute("COMMIT").await.is_err());
    }
    // All keys were deleted in one transaction: its time is the same.
    let times =
        "SELECT count(*), count(DISTINCT xmin::text) FROM incumbent.history WHERE value IS NULL";
    assert_eq!(postgres.sql(times), format!("{LEASES}|1"));
}

#[tokio::test]
async fn it_works_through_a_pooler() {
    let fenced = Fenced::start(&[]).await;
    let pooler = Pooler::start(&fenced.postgres, "transaction");
    let client = client(&pooler.url()).await;
    let all = format!("BEGIN; {}; {COUNT}; COMMIT", call(fenced.epoch));
    client.batch_execute(&all).await.unwrap();
    client.batch_execute(&format!("BEGIN; {}; {COUNT}", call(fenced.epoch))).await.unwrap();
    fenced.take_over(true).await;
    assert!(client.batch_execute("COMMIT").await.is_err());
    assert_eq!(fenced.count(), 1);
}

/// The library gives the statement and its parameters.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leadership_has_the_fence_of_its_epoch() {
    let postgres = Postgres::start();
    let url = format!("{}?schema=lead", postgres.url());
    let session = incumbent::Session::connect(&url, incumbent::Options::default()).await.unwrap();
    let leadership = session.election("it's \\ours").campaign().await.unwrap();
    let fence = leadership.fence().postgres().unwrap();
    let client = client(&postgres.url()).await;
    client.execute(fence.statement(), &[&fence.election(), &fence.epoch()]).await.unwrap();
    for strings in ["on", "off"] {
        client
            .batch_execute(&format!("SET standard_conforming_strings = {strings}"))
            .await
            .unwrap();
        client.batch_execute(&fence.to_string()).await.unwrap();
    }
    leadership.resign().await.unwrap();
    let refused = client.execute(fence.statement(), &[&fence.election(), &fence.epoch()]).await;
    assert!(is_refused(&refused.unwrap_err()));
    let other =
        incumbent::Session::connect("memory:", incumbent::Options::default()).await.unwrap();
    let leadership = other.election("jobs").campaign().await.unwrap();
    assert!(leadership.fence().postgres().is_none());
}
