//! The library as a user has it, on a real etcd.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::StreamExt;
use incumbent::admin::Admin;
use incumbent::{
    Component, Contest, Credentials, Election, Epoch, Error, EtcdStore, EtcdUrl, Event, Failure,
    Options, Reason, Session, Write, WriteError,
};
use incumbent_tests::etcd::Etcd;
use incumbent_tests::stores::Spoilt;
use incumbent_tests::wait::{ExpectSoon, joins, soon, until};
use incumbent_tests::{hostile, on_each_version};
use tokio::time::{sleep, timeout};

/// Makes a module for each test, with the test on each kind of store.
macro_rules! on_each_store {
    ($($test:ident),+ $(,)?) => {
        $(
            mod $test {
                use super::*;

                on_each_version! { etcd }

                async fn etcd(version: Version) {
                    let etcd = Etcd::start(version);
                    super::$test(store(&etcd).await).await;
                }

                #[tokio::test]
                async fn memory() {
                    super::$test(MemoryStore::new(Arc::new(BootClock))).await;
                }

                #[tokio::test]
                async fn file() {
                    let folder = tempfile::tempdir().expect("a folder");
                    let store = SqliteStore::open(folder.path().join("store.db")).await;
                    super::$test(store.expect("opens")).await;
                }
            }
        )+
    };
}

// After the macro.
mod shares;
mod size;

const WITHIN: Duration = Duration::from_secs(5);
const NAME: &str = "jobs";

on_each_version! {
    a_leader_that_resigns_is_followed_at_once,
    a_race_is_handed_over_as_well,
    a_dropped_campaign_leaves_nothing_behind,
    a_dropped_leadership_is_resigned,
    a_dropped_candidate_gives_its_term_back,
    a_guarded_write_holds_while_the_term_stands,
    a_candidate_whose_lease_is_revoked_gets_back_in_line,
    a_deposed_leader_is_told_and_leads_again_only_after_it_has_stopped,
    a_term_that_nobody_takes_is_given_up_by_itself,
    an_observer_sees_leaders_and_gaps,
    the_candidates_are_listed_leader_first,
    a_proclaimed_value_is_seen,
    events_tell_the_whole_story_once,
    lead_works_in_each_term,
    lead_drops_the_work_when_the_term_is_lost,
    a_closed_session_leaves_nothing_behind,
    a_session_whose_last_handle_is_dropped_leaves_nothing_behind,
    an_impossible_name_is_refused_with_a_sentence,
    a_second_candidate_of_one_session_is_refused,
    a_campaign_waits_for_the_end_of_the_one_before,
    an_operators_writes_are_guarded_by_the_epoch,
    an_operator_deposes_the_leader_of_an_epoch,
    a_broken_elector_is_replaced_and_its_term_stands_to_the_deadline,
}

async fn a_leader_that_resigns_is_followed_at_once(etcd: Etcd) {
    let (one, two) = (session(&etcd, "one").await, session(&etcd, "two").await);
    let first = one.election(NAME).campaign().expect_soon("leads").await;
    assert!(first.is_valid());
    assert!(first.remaining() > Duration::from_millis(500));
    assert_eq!(first.key(), format!("{NAME}/{}", first.lease()).as_bytes());

    let next = two.election(NAME);
    let waits = tokio::spawn(async move { next.campaign().await });
    sleep(Duration::from_millis(300)).await;
    assert!(!waits.is_finished());
    first.resign().expect_soon("resigns").await;
    let second = timeout(Duration::from_millis(500), waits).await.expect("no lease time goes by");
    let second = second.expect("ends").expect("leads");
    assert!(second.is_valid());
    second.resign().expect_soon("resigns").await;
    assert_eq!(keys(&etcd), "");
}

async fn a_race_is_handed_over_as_well(etcd: Etcd) {
    let (one, two) = (session(&etcd, "one").await, session(&etcd, "two").await);
    let race = |session: &Session| session.election(NAME).contest(Contest::Race);
    let first = race(&one).campaign().expect_soon("leads").await;
    assert_eq!(first.key(), NAME.as_bytes());
    let epoch = first.epoch();

    let mut second = joins(&race(&two)).await;
    sleep(Duration::from_millis(200)).await;
    first.resign().expect_soon("resigns").await;
    let second = second.elected().expect_soon("leads").await;
    assert!(second.epoch() > epoch);
}

async fn a_dropped_campaign_leaves_nothing_behind(etcd: Etcd) {
    let (one, two) = (session(&etcd, "one").await, session(&etcd, "two").await);
    let first = one.election(NAME).campaign().expect_soon("leads").await;
    let waiting = two.election(NAME);
    timeout(Duration::from_millis(500), waiting.campaign()).await.expect_err("waits");
    until("one key is left", async || keys(&etcd).lines().count() == 1).await;
    // And again, from the same session.
    timeout(Duration::from_millis(500), waiting.campaign()).await.expect_err("waits");
    first.resign().expect_soon("resigns").await;
    until("no key is left", async || keys(&etcd).is_empty()).await;
}

async fn a_dropped_leadership_is_resigned(etcd: Etcd) {
    let session = session(&etcd, "one").await;
    let election = session.election(NAME);
    let leadership = election.campaign().expect_soon("leads").await;
    let fence = leadership.fence();
    drop(leadership);
    until("no key is left", async || keys(&etcd).is_empty()).await;
    assert!(!fence.is_valid());
    assert_eq!(fence.put("/data", "late").await, Err(WriteError::Stale));
}

async fn a_dropped_candidate_gives_its_term_back(etcd: Etcd) {
    let session = session(&etcd, "one").await;
    let mut candidate = session.election(NAME).join();
    let leadership = candidate.elected().expect_soon("leads").await;
    drop(candidate);
    assert_eq!(soon("the term is lost", leadership.lost()).await, Reason::Resigned);
    // Its work may still go on: the key is there.
    sleep(Duration::from_millis(200)).await;
    assert_eq!(keys(&etcd).lines().count(), 1);
    drop(leadership);
    until("no key is left", async || keys(&etcd).is_empty()).await;
}

async fn a_guarded_write_holds_while_the_term_stands(etcd: Etcd) {
    let session = session(&etcd, "one").await;
    let leadership = session.election(NAME).campaign().expect_soon("leads").await;
    let fence = leadership.fence();
    let at = fence.put("/data", "1").expect_soon("writes").await;
    let write = Write::new().expect("/data", at).put("/data", "2").put("/more", "3");
    fence.write(write).expect_soon("writes").await;
    let write = Write::new().expect("/data", at).put("/data", "4");
    assert_eq!(soon("the write is answered", fence.write(write)).await, Err(WriteError::Conflict));
    fence.delete("/more").expect_soon("writes").await;
    assert_eq!(etcd.etcdctl(&["get", "/data", "--print-value-only"]).trim(), "2");
    assert_eq!(etcd.etcdctl(&["get", "/more"]), "");

    let own = soon("the write is answered", fence.put(format!("{NAME}/1"), "mine")).await;
    assert!(matches!(own, Err(WriteError::Failed(Failure::Invalid(_)))), "{own:?}");
    leadership.resign().expect_soon("resigns").await;
    let late = soon("the write is answered", fence.put("/data", "5")).await;
    assert_eq!(late, Err(WriteError::Stale));
}

async fn a_candidate_whose_lease_is_revoked_gets_back_in_line(etcd: Etcd) {
    let session = session(&etcd, "one").await;
    let mut candidate = session.election(NAME).join();
    let first = candidate.elected().expect_soon("leads").await;
    etcd.etcdctl(&["lease", "revoke", &first.lease().to_string()]);
    let reason = soon("the term is lost", first.lost()).await;
    assert!(matches!(reason, Reason::LeaseLost | Reason::Deposed), "{reason:?}");
    assert!(!first.is_valid());
    assert_eq!(first.remaining(), Duration::ZERO);
    let (epoch, lease) = (first.epoch(), first.lease());
    assert!(matches!(first.resign().await, Err(Error::Lost(_))));
    let second = candidate.elected().expect_soon("leads again").await;
    assert!(second.epoch() > epoch);
    assert_ne!(second.lease(), lease);
}

async fn a_deposed_leader_is_told_and_leads_again_only_after_it_has_stopped(etcd: Etcd) {
    let session = session(&etcd, "one").await;
    let mut candidate = session.election(NAME).join();
    let first = candidate.elected().expect_soon("leads").await;
    etcd.etcdctl(&["del", &String::from_utf8_lossy(first.key())]);
    assert_eq!(soon("the term is lost", first.lost()).await, Reason::Deposed);
    timeout(Duration::from_millis(700), candidate.elected()).await.expect_err("has not yielded");
    let epoch = first.epoch();
    drop(first);
    let second = candidate.elected().expect_soon("leads again").await;
    assert!(second.epoch() > epoch);
}

async fn a_term_that_nobody_takes_is_given_up_by_itself(etcd: Etcd) {
    let session = session(&etcd, "one").await;
    let mut candidate = session.election(NAME).join();
    let mut events = candidate.events();
    let epoch = elected(&mut events).await;
    etcd.etcdctl(&["del", "--prefix", NAME]);
    let again = elected(&mut events).await;
    assert!(again > epoch);
    let leadership = candidate.elected().expect_soon("leads").await;
    assert_eq!(leadership.epoch(), again);
}

async fn an_observer_sees_leaders_and_gaps(etcd: Etcd) {
    let (one, two) = (session(&etcd, "one").await, session(&etcd, "two").await);
    let mut leaders = two.election(NAME).observe();
    assert_eq!(leaders.next().expect_soon("goes on").await.expect("sees"), None);
    let leadership = one.election(NAME).campaign().expect_soon("leads").await;
    let leader = leaders.next().expect_soon("goes on").await.expect("sees").expect("leads");
    assert_eq!(leader.value, b"one");
    assert_eq!(leader.epoch, leadership.epoch());
    assert_eq!(leader.key, leadership.key());
    assert_eq!(leader.lease, leadership.lease());
    leadership.resign().expect_soon("resigns").await;
    assert_eq!(leaders.next().expect_soon("goes on").await.expect("sees"), None);
    // It took no lease.
    until("one lease is left", async || leases(&etcd) <= 1).await;
    two.close().expect_soon("closes").await;
    assert!(soon("something more is told", leaders.next()).await.is_none());
}

async fn the_candidates_are_listed_leader_first(etcd: Etcd) {
    let mut sessions = Vec::new();
    let mut candidates = Vec::new();
    for name in ["one", "two", "three"] {
        let session = session(&etcd, name).await;
        candidates.push(joins(&session.election(NAME)).await);
        sessions.push(session);
    }
    let election = session(&etcd, "observer").await.election(NAME);
    let listed = election.candidates().expect_soon("lists").await;
    let values: Vec<_> = listed.iter().map(|leader| leader.value.as_slice()).collect();
    assert_eq!(values, [&b"one"[..], b"two", b"three"]);
    let leader = election.leader().expect_soon("asks").await.expect("leads");
    assert_eq!(leader.value, b"one");
    for candidate in candidates {
        candidate.leave().expect_soon("leaves").await;
    }
    assert_eq!(election.leader().expect_soon("asks").await, None);
}

async fn a_proclaimed_value_is_seen(etcd: Etcd) {
    let session = session(&etcd, "one").await;
    let election = session.election(NAME).value("at first");
    let mut candidate = joins(&election).await;
    let leadership = candidate.elected().expect_soon("leads").await;
    candidate.proclaim("and then").expect_soon("proclaims").await;
    let leader = election.leader().expect_soon("asks").await.expect("leads");
    assert_eq!(leader.value, b"and then");
    assert!(leadership.is_valid());
}

async fn events_tell_the_whole_story_once(etcd: Etcd) {
    let session = session(&etcd, "one").await;
    let mut candidate = session.election(NAME).join();
    let leadership = candidate.elected().expect_soon("leads").await;
    let epoch = leadership.epoch();
    let before = leadership.valid_until();
    // A renewal comes after a third of the lease time.
    sleep(Duration::from_millis(1_500)).await;
    assert!(leadership.valid_until() > before);
    let events = candidate.events();
    leadership.resign().expect_soon("resigns").await;
    candidate.leave().expect_soon("leaves").await;
    let events: Vec<Event> = soon("the end of what is told", events.collect()).await;
    assert!(matches!(&events[0], Event::Joined { epoch: joined, .. } if *joined == epoch));
    assert!(matches!(&events[1], Event::Elected(term) if term.valid_until == before));
    assert!(matches!(&events[2], Event::Extended(term) if term.valid_until > before));
    let demoted = Event::Demoted { epoch, reason: Reason::Resigned };
    assert_eq!(events.iter().filter(|event| **event == demoted).count(), 1);
    assert_eq!(events.last(), Some(&Event::Withdrawn(None)));
    let ends = |event: &&Event| matches!(event, Event::Withdrawn(_));
    assert_eq!(events.iter().filter(ends).count(), 1);
}

async fn lead_works_in_each_term(etcd: Etcd) {
    let session = session(&etcd, "one").await;
    let election = session.election(NAME);
    let terms = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&terms);
    let lead = tokio::spawn(async move {
        election
            .lead(|leadership| {
                counted.fetch_add(1, Ordering::SeqCst);
                async move {
                    leadership.fence().put("/epoch", leadership.epoch().to_string()).await.ok();
                }
            })
            .await
    });
    until("three terms began", async || terms.load(Ordering::SeqCst) >= 3).await;
    session.close().expect_soon("closes").await;
    lead.expect_soon("ends").await.expect("was closed");
    assert_eq!(keys(&etcd), "");
}

async fn lead_drops_the_work_when_the_term_is_lost(etcd: Etcd) {
    let session = session(&etcd, "one").await;
    let election = session.election(NAME);
    let (starts, running) = (Arc::new(AtomicUsize::new(0)), Arc::new(()));
    let (started, runs) = (Arc::clone(&starts), Arc::downgrade(&running));
    let lead = tokio::spawn(async move {
        election
            .lead(|leadership| {
                let runs = runs.upgrade();
                started.fetch_add(1, Ordering::SeqCst);
                async move {
                    std::future::pending::<()>().await;
                    drop((leadership, runs));
                }
            })
            .await
    });
    until("the work begins", async || starts.load(Ordering::SeqCst) == 1).await;
    etcd.etcdctl(&["del", "--prefix", NAME]);
    until("it begins again", async || starts.load(Ordering::SeqCst) == 2).await;
    assert_eq!(Arc::strong_count(&running), 2, "the first work was dropped");
    lead.abort();
    until("no key is left", async || keys(&etcd).is_empty()).await;
    assert_eq!(Arc::strong_count(&running), 1, "so was the second");
}

async fn a_closed_session_leaves_nothing_behind(etcd: Etcd) {
    let session = session(&etcd, "one").await;
    let election = session.election(NAME);
    let leadership = election.campaign().expect_soon("leads").await;
    let other = joins(&session.election("other")).await;
    let closing = tokio::spawn({
        let session = session.clone();
        async move { session.close().await }
    });
    assert_eq!(soon("the term is lost", leadership.lost()).await, Reason::Resigned);
    drop(leadership);
    closing.expect_soon("ends").await.expect("closes");
    assert_eq!(etcd.etcdctl(&["get", "--prefix", "", "--keys-only"]).trim(), "");
    assert_eq!(leases(&etcd), 0);

    session.close().expect_soon("is closed").await;
    let campaign = soon("the campaign is answered", election.campaign()).await;
    assert!(matches!(campaign, Err(Error::Closed)));
    assert!(matches!(soon("the leader is read", election.leader()).await, Err(Error::Closed)));
    other.leave().expect_soon("has left").await;
}

async fn a_session_whose_last_handle_is_dropped_leaves_nothing_behind(etcd: Etcd) {
    let session = session(&etcd, "one").await;
    let candidate = joins(&session.election(NAME)).await;
    drop(session);
    sleep(Duration::from_millis(300)).await;
    assert_eq!(keys(&etcd).lines().count(), 1);
    drop(candidate);
    until("nothing is left", async || keys(&etcd).is_empty() && leases(&etcd) == 0).await;
}

async fn an_impossible_name_is_refused_with_a_sentence(etcd: Etcd) {
    let session = session(&etcd, "one").await;
    for name in ["", "a\0b", "a\nb", &"x".repeat(1_025)] {
        let election = session.election(name);
        let refused = [
            soon("the campaign is answered", election.campaign()).await.err(),
            soon("the election is joined", election.join().joined()).await.err(),
            soon("the candidates are read", election.candidates()).await.err(),
            election.observe().next().expect_soon("answers").await.err(),
        ];
        for error in refused {
            assert!(matches!(error, Some(Error::Withdrawn(Failure::Invalid(_)))), "{error:?}");
        }
    }
    let election = session.election(NAME).value(vec![0; 4_097]);
    let error =
        soon("the campaign is answered", election.campaign()).await.expect_err("is too long");
    assert!(matches!(error, Error::Withdrawn(Failure::Invalid(_))), "{error:?}");
    assert_eq!(etcd.etcdctl(&["get", "--prefix", ""]), "");
}

async fn a_second_candidate_of_one_session_is_refused(etcd: Etcd) {
    let session = session(&etcd, "one").await;
    let mut first = joins(&session.election(NAME)).await;
    let term = first.elected().expect_soon("leads").await;
    let second = session.election(NAME);
    let error = soon("the campaign is answered", second.campaign()).await.expect_err("is refused");
    assert!(matches!(error, Error::Withdrawn(Failure::Invalid(_))), "{error:?}");
    assert!(term.is_valid());
}

async fn a_campaign_waits_for_the_end_of_the_one_before(etcd: Etcd) {
    let session = session(&etcd, "one").await;
    let election = session.election(NAME);
    // Dropped at any moment, that of the election included.
    for round in 0..200 {
        let within = Duration::from_micros(round * 50);
        let _ = timeout(within, election.campaign()).await;
    }
    let first = election.campaign().expect_soon("leads").await;
    let epoch = first.epoch();
    let second = tokio::spawn({
        let election = election.clone();
        async move { election.campaign().await }
    });
    assert!(first.is_valid());
    drop(first);
    let second = second.expect_soon("runs").await.expect("leads");
    assert!(second.epoch() > epoch);
}

async fn an_operators_writes_are_guarded_by_the_epoch(etcd: Etcd) {
    let store = store(&etcd).await;
    let (queue, race) = (Contest::Queue, Contest::Race);
    // Another election's candidate, and what is none, stand before ours.
    etcd.etcdctl(&["put", &format!("{NAME}/below/1f"), "other"]);
    etcd.etcdctl(&["put", &format!("{NAME}/NOTE"), "none"]);
    let session = session(&etcd, "one").await;
    for contest in [queue, race] {
        let name = format!("{NAME}{}", if contest == race { "-race" } else { "" });
        let admin = Admin::new(&store, &name).contest(contest).timeout(WITHIN);
        let put = async |epoch, key: &[u8]| {
            soon("the write is answered", admin.fenced_put(epoch, key, "1")).await
        };
        assert_eq!(put(Epoch::from(1), b"/out").await, Err(WriteError::Stale));
        let election = session.election(name.as_str()).contest(contest);
        let leadership = election.campaign().expect_soon("leads").await;
        let epoch = leadership.epoch();
        put(epoch, b"/out").await.expect("writes");
        assert_eq!(put(after(epoch), b"/out").await, Err(WriteError::Stale));
        let own = put(epoch, leadership.key()).await;
        assert!(matches!(own, Err(WriteError::Failed(Failure::Invalid(_)))), "{own:?}");
        leadership.resign().expect_soon("resigns").await;
        assert_eq!(put(epoch, b"/out").await, Err(WriteError::Stale));
    }
}

fn after(epoch: Epoch) -> Epoch {
    Epoch::from(i64::from(epoch) + 1)
}

async fn an_operator_deposes_the_leader_of_an_epoch(etcd: Etcd) {
    let store = store(&etcd).await;
    let admin = Admin::new(&store, NAME).timeout(WITHIN);
    let depose = async |epoch| soon("the deposition is answered", admin.depose(epoch)).await;
    assert_eq!(depose(None).await, Ok(None));
    let (one, two) = (session(&etcd, "one").await, session(&etcd, "two").await);
    let first = one.election(NAME).campaign().expect_soon("leads").await;
    let mut next = joins(&two.election(NAME)).await;
    assert_eq!(depose(Some(after(first.epoch()))).await, Ok(None));
    let deposed = depose(Some(first.epoch())).await.expect("deposes").expect("led");
    assert_eq!(deposed.value, b"one");
    assert_eq!(soon("the term is lost", first.lost()).await, Reason::Deposed);
    let second = next.elected().expect_soon("leads").await;
    depose(None).await.expect("deposes").expect("led");
    assert_eq!(soon("the term is lost", second.lost()).await, Reason::Deposed);
}

async fn a_broken_elector_is_replaced_and_its_term_stands_to_the_deadline(etcd: Etcd) {
    let store = Spoilt::new(store(&etcd).await);
    let bytes = Arc::clone(&store.bytes);
    let component = Some(hostile::cramped(Component::EMBEDDED, 96).into());
    let options = Options { component, ..options("one") };
    let session = Session::open(store, options).expect_soon("opens").await;
    let other = joins(&session.election("other")).await;
    let mut other_events = other.events();
    let mut candidate = session.election(NAME).join();
    let mut events = candidate.events();
    let first = candidate.elected().expect_soon("leads").await;

    // More than it has memory for.
    bytes.store(7_500_000, Ordering::SeqCst);
    soon("the term is in danger", first.endangered()).await;
    bytes.store(0, Ordering::SeqCst);
    assert!(first.is_valid(), "its lease is good for a while");
    let late = first.fence().put("/data", "1").await;
    assert!(late.is_err(), "{late:?}");
    // The deadline is kept, and the key until then.
    let keys = keys(&etcd);
    assert!(keys.lines().count() == 1 || !first.is_valid(), "{keys}");
    assert_eq!(soon("the term is lost", first.lost()).await, Reason::Expired);
    let (epoch, lease) = (first.epoch(), first.lease());
    timeout(Duration::from_millis(500), candidate.elected()).await.expect_err("has not yielded");
    drop(first);
    let second = candidate.elected().expect_soon("leads again").await;
    assert!(second.epoch() > epoch);
    assert_ne!(second.lease(), lease);
    let (mut endangered, mut demoted) = (false, false);
    loop {
        match events.next().expect_soon("goes on").await {
            Event::Endangered(_) => endangered = true,
            Event::Demoted { epoch: ended, .. } if ended == epoch => demoted = true,
            Event::Elected(next) if next.epoch == second.epoch() => break,
            _ => {}
        }
    }
    assert!(endangered && demoted);
    // The candidate whose term nobody took is back as well.
    let first = elected(&mut other_events).await;
    let again = elected(&mut other_events).await;
    assert!(again > first);
    second.resign().expect_soon("resigns").await;
    session.close().expect_soon("closes").await;
    until("no lease is left", async || leases(&etcd) == 0).await;
}

fn options(identity: &str) -> Options {
    Options { identity: identity.into(), ttl: Duration::from_secs(2), ..Options::default() }
}

async fn session(etcd: &Etcd, identity: &str) -> Session {
    incumbent_tests::log();
    let url = etcd.url();
    let session = Session::connect(&url, options(identity));
    session.expect_soon("connects").await
}

async fn store(etcd: &Etcd) -> EtcdStore {
    let url: EtcdUrl = etcd.url().parse().expect("is a URL");
    let credentials = Credentials::default();
    let store = EtcdStore::connect(&url, &credentials, WITHIN);
    store.expect_soon("connects").await
}

async fn elected(events: &mut (impl StreamExt<Item = Event> + Unpin)) -> Epoch {
    loop {
        if let Event::Elected(term) = events.next().expect_soon("goes on").await {
            return term.epoch;
        }
    }
}

/// The candidates' keys, one a line.
fn keys(etcd: &Etcd) -> String {
    let keys = etcd.etcdctl(&["get", "--prefix", NAME, "--keys-only"]);
    keys.lines().filter(|line| !line.is_empty()).map(|line| format!("{line}\n")).collect()
}

/// How many leases there are.
fn leases(etcd: &Etcd) -> usize {
    // The first line is a headline.
    etcd.etcdctl(&["lease", "list"]).lines().count() - 1
}

/// What a spawned task needs.
fn _is_send(election: Election) -> impl Send + Sync + 'static {
    fn all<T: Send + Sync>() {}
    all::<incumbent::Leadership>();
    all::<incumbent::Fence>();
    all::<incumbent::Candidate>();
    election
}
