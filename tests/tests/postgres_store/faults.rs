//! What happens to a database.

use futures_util::future::select_all;
use incumbent::{Options, Session};
use incumbent_tests::postgres::Pooler;
use incumbent_tests::relay::Relay;
use tokio::time::{sleep, timeout};

use super::*;

/// Leaders that hand over, one after the other, while something goes on. Their epochs.
async fn hand_over(url: &str, times: usize) -> Vec<i64> {
    let mut candidates = Vec::new();
    for _ in 0..3 {
        let options = Options { request_timeout: Duration::from_secs(1), ..Options::default() };
        let session = Session::open(open(url).await, options).await.unwrap();
        candidates.push(session.election("handed-over").join());
    }
    let mut epochs = Vec::new();
    for turn in 0..times {
        let elected = candidates.iter_mut().map(|candidate| Box::pin(candidate.elected()));
        let (leadership, ..) = soon("a leader", select_all(elected)).await;
        let leadership = leadership.unwrap();
        epochs.push(i64::from(leadership.epoch()));
        let fence = leadership.fence();
        loop {
            if fence.put("turn", turn.to_string()).await.is_ok() || !leadership.is_valid() {
                break;
            }
        }
        let _ = leadership.resign().await;
    }
    epochs
}

const END_VICTIMS: &str = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE application_name = 'victim'";

fn rise(epochs: &[i64]) -> bool {
    epochs.is_sorted_by(|one, other| one < other)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_are_ended_all_the_time_hold_up_no_election() {
    let postgres = Postgres::start();
    let url = format!("{}?application_name=victim", postgres.url());
    let handing_over = hand_over(&url, 20);
    tokio::pin!(handing_over);
    let epochs = loop {
        if let Ok(epochs) = timeout(Duration::from_millis(100), &mut handing_over).await {
            break epochs;
        }
        postgres.sql(END_VICTIMS);
    };
    assert!(epochs.len() == 20 && rise(&epochs), "{epochs:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_is_opened_though_its_first_connections_are_ended() {
    let postgres = Postgres::start();
    let url = format!("{}?application_name=victim", postgres.url());
    let opening = tokio::spawn(async move {
        for _ in 0..40 {
            open(&url).await;
        }
    });
    while !opening.is_finished() {
        postgres.sql(END_VICTIMS);
        sleep(Duration::from_millis(20)).await;
    }
    opening.await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_owner_of_the_database_has_set_does_not_matter() {
    let postgres = Postgres::start();
    postgres.sql(
        "ALTER DATABASE postgres SET default_transaction_isolation = 'serializable';
         ALTER DATABASE postgres SET default_transaction_deferrable = on;
         ALTER DATABASE postgres SET lock_timeout = '1ms';
         ALTER DATABASE postgres SET statement_timeout = '200ms';
         ALTER DATABASE postgres SET idle_in_transaction_session_timeout = '1ms';
         ALTER DATABASE postgres SET synchronous_commit = off;
         ALTER DATABASE postgres SET search_path = nowhere;
         ALTER DATABASE postgres SET bytea_output = escape;
         ALTER DATABASE postgres SET timezone = 'Pacific/Kiritimati';
         ALTER DATABASE postgres SET standard_conforming_strings = off",
    );
    let epochs = hand_over(&postgres.url(), 10).await;
    assert!(rise(&epochs), "{epochs:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_killed_and_started_again_keeps_everything() {
    let mut postgres = Postgres::start_with(&["fsync=on"]);
    let store = open(&postgres.url()).await;
    let mut watches = watch(&store, None);
    assert!(matches!(next(&mut watches).await, Change::Started(_)));
    for number in 1..=5 {
        campaign(&store, &format!("key{number}"), number, 600 * SECOND).await;
        postgres.restart();
        let Change::Put(entry) = next(&mut watches).await else { panic!("no change") };
        assert_eq!(entry.key, format!("key{number}").as_bytes());
        assert_eq!(renew(&store, number).await, Response::Renewed(600 * SECOND));
    }
    assert_eq!(read(&store, "").await.1.len(), 5);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_or_a_link_that_is_silent_is_waited_for_no_longer_than_asked() {
    let postgres = Postgres::start();
    let relay = Relay::start(postgres.address()).await;
    let store = open(&format!("postgres://owner@{}/postgres", relay.address())).await;
    campaign(&store, "held", 1, 600 * SECOND).await;
    let ways: [(Deed<'_>, Deed<'_>); 4] = [
        (&|| postgres.pause(), &|| postgres.resume()),
        (&|| relay.stall_requests(), &|| relay.flow()),
        (&|| relay.stall_replies(), &|| relay.flow()),
        (&|| relay.refuse(), &|| relay.accept()),
    ];
    for (stop, go_on) in ways {
        stop();
        let read = Operation::Read(vec![all("")]);
        let answer = soon("an end", store.call(read, Duration::from_millis(300))).await;
        assert!(matches!(answer, Err(Failure::Timeout | Failure::Unavailable)), "{answer:?}");
        go_on();
        assert_eq!(read_keys(&store).await, ["held"]);
        assert_eq!(renew(&store, 1).await, Response::Renewed(600 * SECOND));
    }
}

type Deed<'a> = &'a dyn Fn();

async fn read_keys(store: &PostgresStore) -> Vec<String> {
    read(store, "").await.1
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_without_a_free_connection_serves_those_that_it_has() {
    let postgres =
        Postgres::start_with(&["max_connections=12", "superuser_reserved_connections=0"]);
    let store = open(&postgres.url()).await;
    has_looked(&store).await;
    campaign(&store, "held", 1, 600 * SECOND).await;
    let mut others = Vec::new();
    while let Ok((client, connection)) =
        tokio_postgres::connect(&postgres.url(), tokio_postgres::NoTls).await
    {
        tokio::spawn(connection);
        others.push(client);
    }
    let url = postgres.url().parse().unwrap();
    let refused = PostgresStore::connect(&url, &Credentials::default(), LIMIT).await;
    let said = refused.unwrap_err().to_string();
    assert!(said.contains("too many clients") && said.contains("max_connections"), "{said}");
    assert_eq!(renew(&store, 1).await, Response::Renewed(600 * SECOND));
    assert_eq!(read_keys(&store).await, ["held"]);
    others.clear();
    until("a connection is free again", async || {
        PostgresStore::connect(&url, &Credentials::default(), LIMIT).await.is_ok()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pooler_between_holds_up_nobody() {
    let postgres = Postgres::start();
    let direct = open(&postgres.url()).await;
    for mode in ["transaction", "session"] {
        let pooler = Pooler::start(&postgres, mode);
        let pooled = open(&pooler.url()).await;
        let mut watches = watch(&pooled, None);
        assert!(matches!(next(&mut watches).await, Change::Started(_)));
        let lease = if mode == "session" { 1 } else { 2 };
        campaign(&direct, mode, lease, 600 * SECOND).await;
        let Change::Put(entry) = next(&mut watches).await else { panic!("no change") };
        assert_eq!(entry.key, mode.as_bytes());
        assert_eq!(renew(&pooled, lease).await, Response::Renewed(600 * SECOND));
        let epochs = hand_over(&pooler.url(), 10).await;
        assert!(rise(&epochs), "{mode}: {epochs:?}");
    }
}

/// Row 50 of the edge cases: renewals do not wait for what others wait for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn renewals_go_on_while_others_wait() {
    let postgres = Postgres::start();
    let store = open(&postgres.url()).await;
    campaign(&store, "held", 1, 600 * SECOND).await;
    let (other, connection) =
        tokio_postgres::connect(&postgres.url(), tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    other.batch_execute("BEGIN; SELECT FROM incumbent.meta FOR UPDATE").await.unwrap();
    let waiting = tokio::spawn(store.call(grant(2, SECOND), LIMIT));
    let waits = "SELECT count(*) FROM pg_locks WHERE NOT granted";
    until("the grant waits", async || postgres.sql(waits) != "0").await;
    assert_eq!(renew(&store, 1).await, Response::Renewed(600 * SECOND));
    assert!(!waiting.is_finished());
    other.batch_execute("COMMIT").await.unwrap();
    assert_eq!(waiting.await.unwrap(), Ok(Response::Granted(SECOND)));
}

/// It would fail for all that wait in the same transaction.
#[tokio::test]
async fn a_key_that_is_too_long_fails_alone() {
    let postgres = Postgres::start();
    let store = open(&postgres.url()).await;
    assert_eq!(ask(&store, grant(1, 600 * SECOND)).await, Response::Granted(600 * SECOND));
    // So that PostgreSQL cannot make it shorter.
    let mut random = fastrand::Rng::with_seed(1);
    let mut long = |bytes| -> String {
        std::iter::repeat_with(|| random.alphanumeric()).take(bytes).collect()
    };
    for (bytes, is_taken) in [(2_600, true), (2_601, false)] {
        match store.call(claim(&long(bytes), 1), LIMIT).await {
            Ok(Response::Claimed(_)) => assert!(is_taken, "{bytes}"),
            Err(Failure::Invalid(said)) => {
                assert!(!is_taken && said.contains("2601 bytes"), "{bytes}: {said}");
            }
            other => panic!("{other:?}"),
        }
    }
}

/// A table of ours that an owner rewrites, or that a long transaction looks at.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_work_in_the_database_holds_up_nobody_for_long() {
    let postgres = Postgres::start();
    let store = open(&postgres.url()).await;
    campaign(&store, "held", 1, 600 * SECOND).await;
    let (reader, connection) =
        tokio_postgres::connect(&postgres.url(), tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    let look = "BEGIN ISOLATION LEVEL SERIALIZABLE; SELECT count(*) FROM incumbent.keys";
    reader.batch_execute(look).await.unwrap();
    let epochs = hand_over(&postgres.url(), 10).await;
    assert!(rise(&epochs), "{epochs:?}");
    reader.batch_execute("COMMIT").await.unwrap();
    let tables = ["meta", "leases", "keys", "history"];
    let rewritten = tables.map(|table| format!("VACUUM FULL incumbent.{table};")).concat();
    let url = postgres.url();
    let (epochs, ()) = tokio::join!(hand_over(&url, 10), async {
        for _ in 0..5 {
            postgres.sql(&rewritten);
            sleep(Duration::from_millis(20)).await;
        }
    });
    assert!(rise(&epochs), "{epochs:?}");
    assert_eq!(renew(&store, 1).await, Response::Renewed(600 * SECOND));
}

/// Nothing that is held is lost, and nobody hears that it was done.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_is_said_and_ends_no_lease() {
    let postgres = Postgres::start_on_disk(120);
    let store = open(&postgres.url()).await;
    campaign(&store, "held", 1, 600 * SECOND).await;
    // The log of the next writes has its room already, and their tables have none.
    postgres.sql("CHECKPOINT; SELECT pg_switch_wal(); CHECKPOINT");
    postgres.fill_disk();
    let mut granted = Vec::new();
    let refused = loop {
        let lease = i64::try_from(granted.len()).unwrap() + 2;
        match store.call(grant(lease, 600 * SECOND), LIMIT).await {
            Ok(_) => granted.push(lease),
            Err(failure) => break failure,
        }
        assert!(granted.len() < 5_000, "the disk is not full");
    };
    assert!(refused.to_string().contains("No space left on device"), "{refused}");
    assert_eq!(renew(&store, 1).await, Response::Renewed(600 * SECOND));
    postgres.free_disk();
    assert_eq!(ask(&store, grant(100_000, SECOND)).await, Response::Granted(SECOND));
    assert_eq!(read_keys(&store).await, ["held"]);
    for lease in granted {
        assert_eq!(renew(&store, lease).await, Response::Renewed(600 * SECOND));
    }
}
