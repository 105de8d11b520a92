//! Elections on a real cluster whose members and links fail, each fault by its name.
//!
//! What must hold: while a quorum can be reached, no fault costs a leadership. Without a
//! quorum, a leader leads to its deadline, and gets back in.

use std::time::{Duration, Instant};

use futures_util::future::{BoxFuture, join_all};
use futures_util::{FutureExt, Stream, StreamExt};
use incumbent::admin::{self, Admin};
use incumbent::{
    BootClock, Candidate, Clock, Credentials, EtcdStore, Event, KeyValue, Leadership, Options,
    Participant, Reason, Session, Store as _,
};
use incumbent_tests::cluster::{Cluster, Failure};
use incumbent_tests::etcd::{Etcd, Version};
use incumbent_tests::on_each_version;
use incumbent_tests::relay::Relay;
use incumbent_tests::wait::{ExpectSoon, joins, soon};
use tempfile::TempDir;
use tokio::time::{sleep, timeout};

const LONG_LEASE: Duration = Duration::from_secs(30);
/// Longer than etcd takes to find another leader, most of it being left when a
/// renewal is due.
const LONG: Duration = Duration::from_secs(5);
const SHORT: Duration = Duration::from_secs(3);
/// The shortest that etcd grants.
const SHORTEST: Duration = Duration::from_secs(2);

on_each_version! {
    a_member_that_fails_costs_no_leadership,
    a_link_that_fails_costs_no_leadership,
    another_etcd_leader_costs_no_leadership_of_ten_seconds,
    without_a_quorum_a_leader_leads_to_its_deadline,
    a_watch_that_died_in_silence_is_replaced,
    members_are_replaced_under_a_leader,
    an_observer_outlives_a_compaction,
    without_space_leaders_go_on_and_candidates_wait,
    a_backup_does_not_bring_old_epochs_back,
    a_member_that_is_behind_is_not_believed,
}

/// Rows 7, 21 and 24.
async fn a_member_that_fails_costs_no_leadership(version: Version) {
    let mut cluster = Cluster::start(version, 3).await;
    // Each member is the one that somebody is connected to.
    let pairs = (0..3).map(|first| Pair::open(cluster.url_from(first), first, LONG));
    let pairs = join_all(pairs).await;
    for failure in [Failure::Killed, Failure::Paused, Failure::Isolated] {
        for (name, member) in [
            ("a follower", Cluster::follower as fn(&Cluster) -> usize),
            ("the leader", Cluster::leader),
        ] {
            cluster.fail(member(&cluster), failure);
            let renewals = join_all(pairs.iter().map(Pair::is_renewed)).await;
            println!("{version:?}: {name} {failure:?}: renewed after {renewals:.2?}");
            cluster.heal();
        }
    }
    for pair in pairs {
        pair.hands_over().await;
    }
}

/// Rows 7, 21 and 23: the link to the member that the leader is connected to.
async fn a_link_that_fails_costs_no_leadership(version: Version) {
    let cluster = Cluster::start(version, 3).await;
    let faults: [LinkFault; 7] = [
        ("requests are held back", |link| link.stall_requests()),
        ("replies are held back", |link| link.stall_replies()),
        ("nothing passes, and connections are taken", |link| link.black_hole()),
        ("connections are refused", |link| link.refuse()),
        ("connections are closed once", |link| link.cut()),
        ("connections die in silence", |link| link.freeze()),
        ("a slow link that loses packets", slow),
    ];
    let mut pairs = Vec::new();
    for (at, (name, fault)) in faults.into_iter().enumerate() {
        // A link of each one's own.
        let link = Relay::start(cluster.address(0)).await;
        let url = format!("{},{},{}", link.url(), cluster.address(1), cluster.address(2));
        pairs.push((name, fault, Pair::open(url, at, SHORT).await, link));
    }
    // Where there is no other member, the connection is what is replaced.
    let link = Relay::start(cluster.address(1)).await;
    let alone = Pair::open(link.url(), faults.len(), SHORT).await;
    pairs.push(("the only connection dies in silence", |link| link.freeze(), alone, link));
    let faults = pairs.iter().map(|(name, fault, pair, link)| async move {
        fault(link);
        // The first may have been under way already.
        let first = pair.is_renewed().await;
        pair.is_renewed().await;
        println!("{version:?}: {name}: renewed after {first:.2?}");
    });
    join_all(faults).await;
    for (_, _, pair, link) in pairs {
        link.heal();
        link.accept();
        pair.hands_over().await;
    }
}

type LinkFault = (&'static str, fn(&Relay));

/// A lost packet is sent again after 200 ms.
fn slow(link: &Relay) {
    link.slow(Duration::from_millis(50), Duration::from_millis(200));
}

/// A promise of the README.
async fn another_etcd_leader_costs_no_leadership_of_ten_seconds(version: Version) {
    let mut cluster = Cluster::start(version, 3).await;
    let ttl = Duration::from_secs(10);
    let pair = Pair::open(cluster.url(), 0, ttl).await;
    cluster.fail(cluster.leader(), Failure::Killed);
    let renewed = pair.is_renewed().await;
    println!("{version:?}: another etcd leader: renewed after {renewed:.2?}");
    assert!(pair.leader.is_valid());
}

/// A member that is cut off from the others answers from what it had, for as long as it
/// believes in its leader. Whatever is asked about the present is answered by another
/// member, or not at all.
async fn a_member_that_is_behind_is_not_believed(version: Version) {
    /// How long it is to believe: longer than all of this takes.
    const BELIEVES: [&str; 4] = ["--heartbeat-interval", "100", "--election-timeout", "9000"];
    /// The value that an answer tells, if there is an answer.
    type Told = Option<Option<Vec<u8>>>;
    /// How long to wait for what may never come.
    const WAIT: Duration = Duration::from_secs(2);
    let mut cluster = Cluster::start_with(version, 3, &BELIEVES).await;
    let behind = cluster.follower();
    let others = [0, 1, 2].into_iter().filter(|member| *member != behind);
    let others: Vec<_> = others.map(|member| cluster.address(member).to_string()).collect();
    let session = async |url: &str| {
        let options = Options { ttl: LONG_LEASE, ..Options::default() };
        Session::connect(url, options).expect_soon("connects").await
    };
    // One way to the member that will be behind, and one on which another can be asked.
    let alone = format!("etcd://{}", cluster.address(behind));
    let first = cluster.url_from(behind);
    let truth = format!("etcd://{}", others.join(","));
    let writer = session(&truth).await;
    let lead = async |value: &str| {
        let leader = writer.election("jobs").value(value).campaign().expect_soon("leads").await;
        leader.fence().put("k", value).expect_soon("writes").await;
        leader
    };
    let old = lead("old").await;
    let mut asked = Vec::new();
    for url in [alone, first] {
        let url = url.parse().expect("a URL");
        let store =
            EtcdStore::connect(&url, &Credentials::default(), WAIT).expect_soon("a store").await;
        let options = Options { ttl: LONG_LEASE, ..Options::default() };
        let session = Session::open(store.clone(), options).expect_soon("opens").await;
        // A leader reads from the same member.
        let name = format!("own-{}", asked.len());
        let own = session.election(name).campaign().expect_soon("leads").await;
        asked.push((store, session, own));
    }
    let peek = async || {
        let found = asked[0].0.peek(b"k".into(), WAIT).await;
        found.ok().flatten().map(|entry| String::from_utf8_lossy(&entry.value).into_owned())
    };
    while peek().await.as_deref() != Some("old") {}

    cluster.fail(behind, Failure::Isolated);
    old.resign().expect_soon("resigns").await;
    let new = lead("new").await;
    // A peek tells what one member has.
    assert_eq!(peek().await.as_deref(), Some("old"));

    let answers = join_all(asked.iter().map(async |(store, session, own)| {
        let jobs = session.election("jobs");
        let operator = Admin::new(store, "jobs").timeout(WAIT);
        let (fence, mut leaders) = (own.fence(), jobs.observe());
        let told = |leader: Option<Participant>| leader.map(|leader| leader.value);
        let value = |entry: Option<KeyValue>| entry.map(|entry| entry.value);
        let first = |all: Vec<Participant>| told(all.into_iter().next());
        let questions: [(_, BoxFuture<'_, Told>); 6] = [
            ("get", admin::get(store, "k", WAIT).map(|got| got.ok().map(value)).boxed()),
            ("the fence's get", fence.get("k").map(|got| got.ok().map(value)).boxed()),
            ("leader", operator.leader().map(|leader| leader.ok().map(told)).boxed()),
            ("the session's leader", jobs.leader().map(|leader| leader.ok().map(told)).boxed()),
            ("candidates", jobs.candidates().map(|all| all.ok().map(first)).boxed()),
            ("observe", leaders.next().map(|seen| seen?.ok().map(told)).boxed()),
        ];
        join_all(
            questions
                .map(async |(name, question)| (name, timeout(WAIT, question).await.ok().flatten())),
        )
        .await
    }))
    .await;
    assert_eq!(peek().await.as_deref(), Some("old"), "it was behind until now");
    println!("{version:?}: {answers:?}");
    let is_old = |answer: &Option<Vec<u8>>| answer.as_deref() != Some(b"new");
    let lies: Vec<_> = answers
        .iter()
        .flatten()
        .filter(|(_, answer)| answer.as_ref().is_some_and(is_old))
        .collect();
    assert!(lies.is_empty(), "what was true once was told as of now: {lies:?}");
    let silent: Vec<_> = answers[1].iter().filter(|(_, answer)| answer.is_none()).collect();
    assert!(silent.is_empty(), "another member was there to ask: {silent:?}");
    drop(new);
}

/// Row 22: of two members that are paused, one leads.
async fn without_a_quorum_a_leader_leads_to_its_deadline(version: Version) {
    let mut cluster = Cluster::start(version, 3).await;
    let Pair { leader, mut candidate, mut waiter, sessions: _sessions, .. } =
        Pair::open(cluster.url(), 0, SHORTEST).await;
    for member in [cluster.leader(), cluster.follower()] {
        cluster.fail(member, Failure::Paused);
    }
    let reason = soon("the term is lost", leader.lost()).await;
    assert_eq!(reason, Reason::Expired);
    assert!(BootClock.now() >= leader.valid_until(), "it led to the deadline");
    assert!(!leader.is_valid());
    // Nobody can lead now.
    let nobody = timeout(SHORTEST, waiter.elected()).await;
    assert!(nobody.is_err(), "{nobody:?}");
    let epoch = leader.epoch();
    drop(leader);
    cluster.recover();
    let since = Instant::now();
    let next = soon("somebody leads", async {
        tokio::select! {
            next = candidate.elected() => next,
            next = waiter.elected() => next,
        }
    });
    let next = next.expect_soon("leads").await;
    println!("{version:?}: a quorum is back: elected after {:.2?}", since.elapsed());
    assert!(next.epoch() > epoch);
}

/// Row 19: an observer asks for nothing that would show that its link is dead.
async fn a_watch_that_died_in_silence_is_replaced(version: Version) {
    let etcd = Etcd::start(version);
    let link = Relay::start(etcd.address()).await;
    let watching = session(&link.url(), SHORT).await;
    let mut leaders = watching.election("jobs-0").observe();
    let mut next = async || leaders.next().expect_soon("goes on").await.expect("sees");
    assert_eq!(next().await, None);
    let pair = Pair::open(etcd.url(), 0, SHORT).await;
    assert_eq!(next().await.map(|leader| leader.epoch), Some(pair.leader.epoch()));
    link.freeze();
    let since = Instant::now();
    let (follows, _follower) = pair.hands_over().await;
    while next().await.is_none_or(|leader| leader.epoch != follows.epoch()) {}
    println!("{version:?}: a dead watch: seen after {:.2?}", since.elapsed());
    // Sooner than pings of the connection, or the slow re-check.
    assert!(since.elapsed() < Duration::from_secs(10), "{:?}", since.elapsed());
}

/// Row 21: with the data of all members put in order meanwhile.
async fn members_are_replaced_under_a_leader(version: Version) {
    let mut cluster = Cluster::start(version, 3).await;
    let pair = Pair::open(cluster.url(), 0, LONG).await;
    for key in 0..50 {
        cluster.etcdctl(&["put", &format!("filling-{}", key % 5), &"v".repeat(100_000)]);
    }
    cluster.etcdctl(&["defrag"]);
    pair.is_renewed().await;
    // The member that the leader is connected to.
    cluster.remove(0);
    pair.is_renewed().await;
    cluster.add().await;
    pair.is_renewed().await;
    pair.hands_over().await;
}

/// Row 18.
async fn an_observer_outlives_a_compaction(etcd: Etcd) {
    let link = Relay::start(etcd.address()).await;
    let watching = session(&link.url(), SHORT).await;
    let mut leaders = watching.election("jobs-0").observe();
    assert_eq!(leaders.next().expect_soon("goes on").await.expect("sees"), None);
    link.refuse();
    // Seen by nobody, and compacted away.
    Pair::open(etcd.url(), 0, SHORTEST).await.closes().await;
    let pair = Pair::open(etcd.url(), 0, SHORT).await;
    let revision = i64::from(pair.leader.epoch()) + 1;
    etcd.etcdctl(&["put", "k", "v"]);
    etcd.etcdctl(&["put", "k", "v"]);
    etcd.etcdctl(&["compact", &revision.to_string()]);
    link.accept();
    let seen = leaders.next().expect_soon("goes on").await.expect("sees");
    assert_eq!(seen.expect("somebody leads").epoch, pair.leader.epoch());
    // And goes on.
    let (follows, _follower) = pair.hands_over().await;
    let mut next = async || leaders.next().expect_soon("goes on").await.expect("sees");
    while next().await.is_none_or(|leader| leader.epoch != follows.epoch()) {}
}

/// Row 26.
async fn without_space_leaders_go_on_and_candidates_wait(version: Version) {
    let etcd = Etcd::start_with(version, &["--quota-backend-bytes", "1000000"]);
    let pair = Pair::open(etcd.url(), 0, SHORTEST).await;
    let put = || etcd.etcdctl_command(&["put", "k", &"v".repeat(100_000)]).output();
    while put().expect("etcdctl runs").status.success() {}
    assert!(etcd.etcdctl(&["alarm", "list"]).contains("NOSPACE"));
    let late = session(&etcd.url(), SHORTEST).await;
    let mut candidate = late.election("jobs-1").join();
    let mut events = candidate.events();
    let trouble = |event: &Event| matches!(event, Event::Trouble(failure) if format!("{failure:?}").contains("space exceeded"));
    until(&mut events, trouble).await;
    // More than a lease time, in which the tries slow down.
    let tries = etcd_writes(&etcd);
    for _ in 0..4 {
        pair.is_renewed().await;
    }
    let tries = etcd_writes(&etcd) - tries;
    assert!(tries < 50, "{tries} tries");
    let fields = etcd.etcdctl(&["get", "k", "--write-out", "fields"]);
    let revision = fields.lines().find_map(|line| line.strip_prefix("\"ModRevision\" : "));
    etcd.etcdctl(&["compact", revision.expect("it is there")]);
    etcd.etcdctl(&["defrag"]);
    etcd.etcdctl(&["alarm", "disarm"]);
    let leadership = candidate.elected().expect_soon("leads").await;
    assert!(leadership.is_valid());
    pair.hands_over().await;
}

/// Row 27: as an operator must not do it, with the candidates still running, and
/// revisions that go back.
async fn a_backup_does_not_bring_old_epochs_back(version: Version) {
    let directory = TempDir::new().expect("a directory");
    let backup = directory.path().join("backup");
    let mut cluster = Cluster::start(version, 3).await;
    cluster.etcdctl_at(0, &["snapshot", "save", &backup.to_string_lossy()]);
    for _ in 0..30 {
        cluster.etcdctl(&["put", "k", "v"]);
    }
    let session = session(&cluster.url(), SHORT).await;
    let mut candidate = session.election("jobs-0").join();
    let mut events = candidate.events();
    let leader = candidate.elected().expect_soon("leads").await;
    let epoch = leader.epoch();
    cluster.restore(&backup);
    soon("the term is lost", leader.lost()).await;
    drop(leader);
    // Any claim of its own would have an epoch that was there before.
    let trouble = |event: &Event| matches!(event, Event::Trouble(_));
    until(&mut events, trouble).await;
    let too_early = timeout(SHORT, candidate.elected()).await;
    assert!(too_early.is_err(), "{too_early:?}");
    for _ in 0..40 {
        cluster.etcdctl(&["put", "k", "v"]);
    }
    let next = candidate.elected().expect_soon("leads again").await;
    assert!(next.epoch() > epoch, "{} {epoch}", next.epoch());
}

// What the tests share.

/// A candidate that leads, and one that waits, each on a lease of its own.
struct Pair {
    ttl: Duration,
    leader: Leadership,
    candidate: Candidate,
    waiter: Candidate,
    sessions: [Session; 2],
}

impl Pair {
    async fn open(url: String, number: usize, ttl: Duration) -> Self {
        let name = format!("jobs-{number}");
        let sessions = [session(&url, ttl).await, session(&url, ttl).await];
        let mut candidate = joins(&sessions[0].election(&name)).await;
        let leader = candidate.elected().expect_soon("leads").await;
        let waiter = joins(&sessions[1].election(&name)).await;
        Self { ttl, leader, candidate, waiter, sessions }
    }

    /// Waits for a renewal that was sent from now on, and says how long that took.
    async fn is_renewed(&self) -> Duration {
        let since = Instant::now();
        let good = self.ttl - self.ttl / 100;
        let until = BootClock.now() + good.as_nanos() as u64;
        while self.leader.valid_until() < until {
            assert!(self.leader.is_valid(), "it is demoted after {:.2?}", since.elapsed());
            sleep(Duration::from_millis(5)).await;
        }
        since.elapsed()
    }

    /// Resigns, and sees the other one lead, as long as what is returned is kept.
    async fn hands_over(mut self) -> (Leadership, impl Sized) {
        let epoch = self.leader.epoch();
        self.leader.resign().expect_soon("resigns").await;
        let next = self.waiter.elected().expect_soon("leads").await;
        assert!(next.epoch() > epoch);
        assert!(next.is_valid());
        (next, (self.waiter, self.sessions))
    }

    async fn closes(self) {
        let Self { leader, candidate, waiter, sessions, .. } = self;
        drop((leader, candidate, waiter));
        for session in sessions {
            session.close().expect_soon("closes").await;
        }
    }
}

async fn session(url: &str, ttl: Duration) -> Session {
    incumbent_tests::log();
    let options = Options { ttl, ..Options::default() };
    Session::connect(url, options).expect_soon("connects").await
}

/// How many proposals etcd has had.
fn etcd_writes(etcd: &Etcd) -> u64 {
    let metrics = etcd.metrics();
    let line = metrics.lines().find(|line| line.starts_with("etcd_server_proposals_applied_total"));
    let count = line.and_then(|line| line.rsplit_once(' ')).map(|(_, count)| count);
    count.and_then(|count| count.parse::<f64>().ok()).expect("a figure of etcd's") as u64
}

async fn until(events: &mut (impl Stream<Item = Event> + Unpin), is_it: impl Fn(&Event) -> bool) {
    soon("it is told", async { while !is_it(&events.next().expect_soon("goes on").await) {} })
        .await;
}
