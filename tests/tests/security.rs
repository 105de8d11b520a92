//! Certificates, logins and roles that change while candidates lead, wait and look
//! on, on a real etcd.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use incumbent::admin::Admin;
use incumbent::{
    Contest, Credentials, Epoch, Error, EtcdStore, Event, Failure, Leaders, Leadership, Options,
    Session, WriteError,
};
use incumbent_tests::certificates::{Authority, Validity};
use incumbent_tests::etcd::{Etcd, Version, user};
use incumbent_tests::on_each_version;
use incumbent_tests::wait::{ExpectSoon, LIMIT, joins, soon, until};
use tempfile::TempDir;
use tokio::time::sleep;

/// Longer than etcd takes to start again.
const LEASE_TIME: Duration = Duration::from_secs(6);
/// A life of tokens, in which etcd counts whole seconds.
const TOKEN_LIFE: Duration = Duration::from_secs(1);
const NAME: &str = "my/service";
const KEY: &str = "my/data";

on_each_version! {
    all_certificates_are_replaced_while_a_leader_leads,
    logins_that_end_every_second_cost_nothing,
    a_new_password_is_taken_up_in_the_right_order,
    a_new_password_is_taken_up_in_the_wrong_order,
    a_role_is_taken_away_and_given_back,
    a_role_is_taken_away_from_logins_that_carry_it,
    the_documented_roles_are_enough,
}

// Certificates.

/// As operators do it: first everyone trusts both CAs, then everyone shows a
/// certificate of the new one, then nobody trusts the old one.
async fn all_certificates_are_replaced_while_a_leader_leads(version: Version) {
    let (old, new) = (Authority::new("old"), Authority::new("new"));
    let both = old.pem() + &new.pem();
    let etcds = old.certificates();
    fs::write(&etcds.ca, &both).unwrap();
    let mut etcd = Etcd::start_tls(version, &etcds);
    let ours = old.certificates();
    let url = etcd.url();

    let (one, two) =
        (session(&url, ours.credentials()).await, session(&url, ours.credentials()).await);
    let leadership = one.election(NAME).campaign().expect_soon("leads").await;
    let mut waits = joins(&two.election(NAME)).await;
    let mut leaders = two.election(NAME).observe();
    let epoch = leadership.epoch();
    assert_eq!(next_epoch(&mut leaders).await, Some(epoch));

    fs::write(&ours.ca, &both).unwrap();
    new.client(Validity::Now).write(&ours.client_cert, &ours.client_key);
    fs::write(&ours.ca, new.pem()).unwrap();
    new.server(Validity::Now, true).write(&etcds.server_cert, &etcds.server_key);
    fs::write(&etcds.ca, new.pem()).unwrap();
    etcd.restart();

    eventually_written(&leadership).await;
    assert!(leadership.is_valid());
    leadership.resign().expect_soon("resigns").await;
    let next = waits.elected().expect_soon("leads").await;
    assert!(next.epoch() > epoch);
    // The gap may be seen, or not.
    while next_epoch(&mut leaders).await != Some(next.epoch()) {}
}

// Logins.

async fn logins_that_end_every_second_cost_nothing(version: Version) {
    let (etcd, _directory) = with_users(version, Some(TOKEN_LIFE));
    let url = etcd.url();
    let session = async || session(&url, user("me", "mine")).await;
    let (one, two, three) = (session().await, session().await, session().await);
    let leadership = one.election(NAME).campaign().expect_soon("leads").await;
    let mut waits = joins(&two.election(NAME)).await;
    let mut leaders = three.election(NAME).observe();
    assert_eq!(next_epoch(&mut leaders).await, Some(leadership.epoch()));

    let since = Instant::now();
    let mut written = 0;
    while since.elapsed() < 5 * TOKEN_LIFE {
        leadership.fence().put(KEY, "v").expect_soon("the login is renewed").await;
        written += 1;
        sleep(Duration::from_millis(100)).await;
    }
    assert!(written > 10, "{written}");
    assert!(leadership.is_valid());
    // What was opened with a login of long ago still tells.
    leadership.resign().expect_soon("resigns").await;
    let next = waits.elected().expect_soon("leads").await;
    while next_epoch(&mut leaders).await != Some(next.epoch()) {}
    next.resign().expect_soon("resigns").await;
    for session in [one, two, three] {
        session.close().expect_soon("closes").await;
    }
    assert_eq!(etcd.as_root(&["get", "--prefix", "my/service"]), "");
}

async fn a_new_password_is_taken_up_in_the_right_order(version: Version) {
    let (etcd, directory) = with_users(version, None);
    let file = directory.path().join("password");
    let (one, leadership) = leads_by_password(&etcd, &file).await;

    fs::write(&file, "new\n").unwrap();
    // Refused by etcd as yet, and no harm.
    let since = Instant::now();
    while since.elapsed() < Duration::from_millis(1500) {
        leadership.fence().put(KEY, "v").expect_soon("the old login holds").await;
        sleep(Duration::from_millis(50)).await;
    }
    etcd.renew_user("me", "new");
    eventually_written(&leadership).await;
    let waits = one.election("my/other").campaign().expect_soon("leads").await;
    assert!(leadership.is_valid() && waits.is_valid());
}

async fn a_new_password_is_taken_up_in_the_wrong_order(version: Version) {
    let (etcd, directory) = with_users(version, None);
    let file = directory.path().join("password");
    let (_one, leadership) = leads_by_password(&etcd, &file).await;

    etcd.renew_user("me", "new");
    let refused = soon("the write is answered", leadership.fence().put(KEY, "v")).await;
    assert!(matches!(refused, Err(WriteError::Failed(Failure::Denied(_)))), "{refused:?}");
    fs::write(&file, "new\n").unwrap();
    eventually_written(&leadership).await;
    assert!(leadership.is_valid());
}

// Roles.

async fn a_role_is_taken_away_and_given_back(version: Version) {
    let (etcd, _directory) = with_users(version, None);
    taken_away_and_given_back(&etcd).await;
}

/// A login of this kind ends with each change of etcd's users, and etcd says so in
/// other words.
async fn a_role_is_taken_away_from_logins_that_carry_it(version: Version) {
    let (etcd, _directory) = with_users(version, Some(Duration::from_secs(600)));
    taken_away_and_given_back(&etcd).await;
}

async fn taken_away_and_given_back(etcd: &Etcd) {
    let url = etcd.url();
    let one = session(&url, user("me", "mine")).await;
    let two = session(&url, user("me", "mine")).await;
    let mut candidate = joins(&one.election(NAME)).await;
    let mut events = candidate.events();
    let leadership = candidate.elected().expect_soon("leads").await;
    etcd.as_root(&["user", "revoke-role", "me", "of-the-prefix"]);

    // A candidate that has a key keeps it: etcd lets everybody renew a lease.
    let denied = soon("the write is denied", async {
        loop {
            match leadership.fence().put(KEY, "v").await {
                // With the old login, which nobody could know.
                Err(WriteError::Unknown) => sleep(Duration::from_millis(50)).await,
                answer => break answer,
            }
        }
    })
    .await;
    assert!(matches!(denied, Err(WriteError::Failed(Failure::Denied(_)))), "{denied:?}");
    for _ in 0..2 {
        extended(&mut events).await;
    }
    assert!(leadership.is_valid());
    // One without a key gets none, and is told why.
    match soon("the campaign is answered", two.election(NAME).campaign()).await {
        Err(Error::Withdrawn(Failure::Denied(text))) => {
            assert!(text.contains("permission denied"), "{text}");
        }
        answer => panic!("{answer:?}"),
    }

    etcd.as_root(&["user", "grant-role", "me", "of-the-prefix"]);
    eventually_written(&leadership).await;
    let mut waits = joins(&two.election(NAME)).await;
    let epoch = leadership.epoch();
    leadership.resign().expect_soon("resigns").await;
    assert!(waits.elected().expect_soon("leads").await.epoch() > epoch);
}

/// The roles are those of OPERATING.md, word for word.
async fn the_documented_roles_are_enough(etcd: Etcd) {
    let page = include_str!("../../OPERATING.md");
    let documented: Vec<_> =
        page.lines().filter(|line| line.starts_with("etcdctl role ")).collect();
    for line in &documented {
        etcd.etcdctl(&line.split_whitespace().skip(1).collect::<Vec<_>>());
    }
    for role in ["my-service", "my-race", "my-observer", "my-writer"] {
        assert!(
            documented.iter().any(|line| line.ends_with(&format!("role add {role}"))),
            "{role}"
        );
        etcd.etcdctl(&["user", "add", &format!("{role}:secret")]);
        etcd.etcdctl(&["user", "grant-role", role, role]);
    }
    etcd.enable_logins();
    let url = etcd.url();

    let looks = session(&url, user("my-observer", "secret")).await;
    for (name, contest) in [("my-service", Contest::Queue), ("my-race", Contest::Race)] {
        let election =
            async || session(&url, user(name, "secret")).await.election(name).contest(contest);
        let (one, two) = (election().await, election().await);
        let first = one.campaign().expect_soon("leads").await;
        let mut waits = joins(&two).await;
        let data = format!("{name}-data/k");
        first.fence().put(data.as_str(), "v").expect_soon("writes").await;
        // As `incumbent put --fence` inside of `incumbent run`.
        let writer = user("my-writer", "secret");
        let url = url.parse().unwrap();
        let store = EtcdStore::connect(&url, &writer, LIMIT).expect_soon("connects").await;
        let epoch = first.epoch();
        let admin = Admin::new(&store, name).contest(contest).timeout(LIMIT);
        let write = admin.fenced_put(epoch, data, "w");
        write.expect_soon("writes").await;

        let seen = looks.election(name).contest(contest);
        assert_eq!(
            seen.leader().expect_soon("reads").await.map(|leader| leader.epoch),
            Some(epoch)
        );
        let mut leaders = seen.observe();
        assert_eq!(next_epoch(&mut leaders).await, Some(epoch));
        first.resign().expect_soon("resigns").await;
        let second = waits.elected().expect_soon("leads").await;
        while next_epoch(&mut leaders).await != Some(second.epoch()) {}
        second.resign().expect_soon("resigns").await;
        waits.leave().expect_soon("leaves").await;
        assert_eq!(etcd.as_root(&["get", "--prefix", "--keys-only", &format!("{name}/")]), "");

        let denied = soon("the campaign is answered", seen.campaign()).await;
        assert!(matches!(denied, Err(Error::Withdrawn(Failure::Denied(_)))), "{denied:?}");
    }
}

// What the tests share.

/// Leads as `me`, whose password is in this file.
async fn leads_by_password(etcd: &Etcd, file: &Path) -> (Session, Leadership) {
    fs::write(file, "mine\n").unwrap();
    let mut credentials = Credentials::default();
    credentials.user = Some("me".into());
    credentials.password_file = Some(file.into());
    let session = session(&etcd.url(), credentials).await;
    let leadership = session.election(NAME).campaign().expect_soon("leads").await;
    (session, leadership)
}

async fn session(url: &str, credentials: Credentials) -> Session {
    let options = Options { credentials, ttl: LEASE_TIME, ..Options::default() };
    Session::connect(url, options).expect_soon("connects").await
}

/// An etcd of which `me` may have what begins with `my/`. With a life, its tokens carry the roles:
/// the only kind whose life can be set in all versions.
fn with_users(version: Version, token_life: Option<Duration>) -> (Etcd, TempDir) {
    let directory = TempDir::new().unwrap();
    let token = token_life.map(|life| {
        let key = directory.path().join("token.key");
        fs::write(&key, "of no use outside of this test").unwrap();
        format!("jwt,priv-key={},sign-method=HS256,ttl={}s", key.display(), life.as_secs())
    });
    let more: Vec<_> = token.iter().flat_map(|token| ["--auth-token", token]).collect();
    let etcd = Etcd::start_with(version, &more);
    etcd.enable_users("me", "mine", "my/");
    (etcd, directory)
}

/// Writes as the leader, as soon as that is possible in this term.
async fn eventually_written(leadership: &Leadership) {
    let written = async || match leadership.fence().put(KEY, "again").await {
        Ok(_) => true,
        Err(WriteError::Unknown | WriteError::Failed(_)) => false,
        Err(error) => panic!("{error}"),
    };
    until("the leader can write", written).await;
}

async fn next_epoch(leaders: &mut Leaders) -> Option<Epoch> {
    let seen = leaders.next().expect_soon("goes on").await.expect("may look");
    seen.map(|leader| leader.epoch)
}

async fn extended(events: &mut (impl StreamExt<Item = Event> + Unpin)) {
    loop {
        match events.next().expect_soon("goes on").await {
            Event::Extended(_) => return,
            Event::Demoted { reason, .. } => panic!("{reason}"),
            _ => {}
        }
    }
}
