//! Certificates, logins and roles that change while candidates lead, wait and look
//! on, on a real etcd.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use incumbent::types::Failure;
use incumbent::{
    Contest, Credentials, Error, EtcdStore, Event, Leaders, Leadership, Options, Session,
    WriteError, admin,
};
use incumbent_tests::certificates::{Authority, Certificates, Validity};
use incumbent_tests::etcd::{Etcd, Version};
use incumbent_tests::on_each_version;
use tempfile::TempDir;
use tokio::time::{sleep, timeout};

/// How long anything may take before a test fails.
const PATIENCE: Duration = Duration::from_secs(20);
/// Longer than etcd takes to start again.
const LEASE_TIME: Duration = Duration::from_secs(6);
/// A life of tokens, in which etcd counts whole seconds.
const TOKEN_LIFE: Duration = Duration::from_secs(1);
const NAME: &str = "my/office";
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
    let (theirs, ours) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let (old, new) = (Authority::new("old"), Authority::new("new"));
    let both = old.pem() + &new.pem();
    let etcds = old.certificates(theirs.path());
    fs::write(&etcds.ca, &both).unwrap();
    let mut etcd = Etcd::start_tls(version, &etcds);
    let ours = old.certificates(ours.path());
    let url = etcd.url();

    let (one, two) = (session(&url, shown(&ours)).await, session(&url, shown(&ours)).await);
    let leadership = soon(one.election(NAME).campaign()).await.expect("leads");
    let mut waits = soon(two.election(NAME).join()).await.expect("waits");
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
    soon(leadership.resign()).await.expect("resigns");
    let next = soon(waits.elected()).await.expect("leads");
    assert!(next.epoch() > epoch);
    loop {
        // The gap may be seen, or not.
        if next_epoch(&mut leaders).await == Some(next.epoch()) {
            break;
        }
    }
}

// Logins.

async fn logins_that_end_every_second_cost_nothing(version: Version) {
    let directory = TempDir::new().unwrap();
    let etcd = with_short_logins(version, directory.path());
    let url = etcd.url();
    let sessions = [(); 3].map(|()| session(&url, user("me", "mine")));
    let [one, two, three] = sessions;
    let (one, two, three) = (one.await, two.await, three.await);
    let leadership = soon(one.election(NAME).campaign()).await.expect("leads");
    let mut waits = soon(two.election(NAME).join()).await.expect("waits");
    let mut leaders = three.election(NAME).observe();
    assert_eq!(next_epoch(&mut leaders).await, Some(leadership.epoch()));

    let since = Instant::now();
    let mut written = 0;
    while since.elapsed() < 5 * TOKEN_LIFE {
        soon(leadership.fence().put(KEY, "v")).await.expect("the login is renewed");
        written += 1;
        sleep(Duration::from_millis(100)).await;
    }
    assert!(written > 10, "{written}");
    assert!(leadership.is_valid());
    // What was opened with a login of long ago still tells.
    soon(leadership.resign()).await.expect("resigns");
    let next = soon(waits.elected()).await.expect("leads");
    loop {
        if next_epoch(&mut leaders).await == Some(next.epoch()) {
            break;
        }
    }
    soon(next.resign()).await.expect("resigns");
    for session in [one, two, three] {
        soon(session.close()).await.expect("closes");
    }
    assert_eq!(as_root(&etcd, &["get", "--prefix", "my/office"]), "");
}

async fn a_new_password_is_taken_up_in_the_right_order(version: Version) {
    let (etcd, directory) = with_users(version);
    let file = directory.path().join("password");
    fs::write(&file, "mine\n").unwrap();
    let one = session(&etcd.url(), user_of_file("me", &file)).await;
    let leadership = soon(one.election(NAME).campaign()).await.expect("leads");

    fs::write(&file, "new\n").unwrap();
    // Refused by etcd as yet, and no harm.
    let since = Instant::now();
    while since.elapsed() < Duration::from_millis(1500) {
        soon(leadership.fence().put(KEY, "v")).await.expect("the old login holds");
        sleep(Duration::from_millis(50)).await;
    }
    change_password(&etcd, "me", "new");
    eventually_written(&leadership).await;
    let waits = soon(one.election("my/other").campaign()).await.expect("leads");
    assert!(leadership.is_valid() && waits.is_valid());
}

async fn a_new_password_is_taken_up_in_the_wrong_order(version: Version) {
    let (etcd, directory) = with_users(version);
    let file = directory.path().join("password");
    fs::write(&file, "mine\n").unwrap();
    let one = session(&etcd.url(), user_of_file("me", &file)).await;
    let leadership = soon(one.election(NAME).campaign()).await.expect("leads");

    change_password(&etcd, "me", "new");
    let refused = soon(leadership.fence().put(KEY, "v")).await;
    assert!(matches!(refused, Err(WriteError::Failed(Failure::Denied(_)))), "{refused:?}");
    fs::write(&file, "new\n").unwrap();
    eventually_written(&leadership).await;
    assert!(leadership.is_valid());
}

// Roles.

async fn a_role_is_taken_away_and_given_back(version: Version) {
    let (etcd, _directory) = with_users(version);
    taken_away_and_given_back(&etcd).await;
}

/// A login of this kind ends with each change of etcd's users, and etcd says so in
/// other words.
async fn a_role_is_taken_away_from_logins_that_carry_it(version: Version) {
    let directory = TempDir::new().unwrap();
    let token = token(directory.path(), Duration::from_secs(600));
    let etcd = Etcd::start_with(version, &["--auth-token", &token]);
    etcd.enable_users("root's", "me", "mine", "my/");
    taken_away_and_given_back(&etcd).await;
}

async fn taken_away_and_given_back(etcd: &Etcd) {
    let url = etcd.url();
    let one = session(&url, user("me", "mine")).await;
    let two = session(&url, user("me", "mine")).await;
    let mut candidate = soon(one.election(NAME).join()).await.expect("in line");
    let mut events = candidate.events();
    let leadership = soon(candidate.elected()).await.expect("leads");
    as_root(etcd, &["user", "revoke-role", "me", "of-the-prefix"]);

    // Who has a key keeps it: etcd asks nobody's leave to renew a lease.
    let denied = soon(async {
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
    // Who has none gets none, and is told why.
    match soon(two.election(NAME).campaign()).await {
        Err(Error::Withdrawn(Failure::Denied(text))) => {
            assert!(text.contains("permission denied"), "{text}");
        }
        answer => panic!("{answer:?}"),
    }

    as_root(etcd, &["user", "grant-role", "me", "of-the-prefix"]);
    eventually_written(&leadership).await;
    let mut waits = soon(two.election(NAME).join()).await.expect("a new candidacy gets in");
    let epoch = leadership.epoch();
    soon(leadership.resign()).await.expect("resigns");
    assert!(soon(waits.elected()).await.expect("leads").epoch() > epoch);
}

/// The roles are those of OPERATING.md, word for word.
async fn the_documented_roles_are_enough(version: Version) {
    let etcd = Etcd::start(version);
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
    etcd.etcdctl(&["user", "add", "root:root's"]);
    etcd.etcdctl(&["user", "grant-role", "root", "root"]);
    etcd.etcdctl(&["auth", "enable"]);
    let url = etcd.url();

    let looks = session(&url, user("my-observer", "secret")).await;
    for (name, contest) in [("my-service", Contest::Queue), ("my-race", Contest::Race)] {
        let election =
            async || session(&url, user(name, "secret")).await.election(name).contest(contest);
        let (one, two) = (election().await, election().await);
        let first = soon(one.campaign()).await.expect("leads");
        let mut waits = soon(two.join()).await.expect("waits");
        let data = format!("{name}-data/k");
        soon(first.fence().put(data.as_str(), "v")).await.expect("writes");
        // As `incumbent put --fence` inside of `incumbent run`.
        let writer = user("my-writer", "secret");
        let url = url.parse().unwrap();
        let store = EtcdStore::connect(&url, &writer, PATIENCE).await.expect("connects");
        let epoch = first.epoch();
        let write = admin::fenced_put(&store, name, contest, epoch, data, "w", PATIENCE);
        write.await.expect("writes");

        let seen = looks.election(name).contest(contest);
        assert_eq!(
            soon(seen.leader()).await.expect("reads").map(|leader| leader.epoch),
            Some(epoch)
        );
        let mut leaders = seen.observe();
        assert_eq!(next_epoch(&mut leaders).await, Some(epoch));
        soon(first.resign()).await.expect("resigns");
        let second = soon(waits.elected()).await.expect("leads");
        while next_epoch(&mut leaders).await != Some(second.epoch()) {}
        soon(second.resign()).await.expect("resigns");
        soon(waits.leave()).await.expect("leaves");
        assert_eq!(as_root(&etcd, &["get", "--prefix", "--keys-only", &format!("{name}/")]), "");

        let denied = soon(seen.campaign()).await;
        assert!(matches!(denied, Err(Error::Withdrawn(Failure::Denied(_)))), "{denied:?}");
    }
}

// What the tests share.

fn shown(certificates: &Certificates) -> Credentials {
    let mut credentials = Credentials::default();
    credentials.ca = Some(certificates.ca.clone());
    credentials.cert = Some(certificates.client_cert.clone());
    credentials.key = Some(certificates.client_key.clone());
    credentials
}

fn user(name: &str, password: &str) -> Credentials {
    let mut credentials = Credentials::default();
    credentials.user = Some(name.into());
    credentials.password = Some(password.into());
    credentials
}

fn user_of_file(name: &str, file: &Path) -> Credentials {
    let mut credentials = Credentials::default();
    credentials.user = Some(name.into());
    credentials.password_file = Some(file.into());
    credentials
}

async fn session(url: &str, credentials: Credentials) -> Session {
    let options = Options { credentials, ttl: LEASE_TIME, ..Options::default() };
    soon(Session::connect(url, options)).await.expect("connects")
}

/// An etcd of which `me` may have what begins with `my/`.
fn with_users(version: Version) -> (Etcd, TempDir) {
    let etcd = Etcd::start(version);
    etcd.enable_users("root's", "me", "mine", "my/");
    (etcd, TempDir::new().unwrap())
}

fn with_short_logins(version: Version, directory: &Path) -> Etcd {
    let token = token(directory, TOKEN_LIFE);
    let etcd = Etcd::start_with(version, &["--auth-token", &token]);
    etcd.enable_users("root's", "me", "mine", "my/");
    etcd
}

/// Of the kind of tokens whose life can be set in all versions.
fn token(directory: &Path, life: Duration) -> String {
    let key = directory.join("token.key");
    fs::write(&key, "of no use outside of this test").unwrap();
    format!("jwt,priv-key={},sign-method=HS256,ttl={}s", key.display(), life.as_secs())
}

fn as_root(etcd: &Etcd, arguments: &[&str]) -> String {
    etcd.etcdctl(&[&["--user", "root:root's"], arguments].concat())
}

fn change_password(etcd: &Etcd, name: &str, password: &str) {
    as_root(etcd, &["user", "delete", name]);
    as_root(etcd, &["user", "add", &format!("{name}:{password}")]);
    as_root(etcd, &["user", "grant-role", name, "of-the-prefix"]);
}

/// Writes as the leader, as soon as that is possible in this term.
async fn eventually_written(leadership: &Leadership) {
    let since = Instant::now();
    loop {
        match soon(leadership.fence().put(KEY, "again")).await {
            Ok(_) => return,
            Err(WriteError::Unknown | WriteError::Failed(_)) => {}
            Err(error) => panic!("{error}"),
        }
        assert!(since.elapsed() < PATIENCE, "nothing can be written");
        sleep(Duration::from_millis(50)).await;
    }
}

async fn next_epoch(leaders: &mut Leaders) -> Option<i64> {
    let seen = soon(leaders.next()).await.expect("goes on").expect("may look");
    seen.map(|leader| leader.epoch)
}

async fn extended(events: &mut (impl StreamExt<Item = Event> + Unpin)) {
    loop {
        match soon(events.next()).await.expect("goes on") {
            Event::Extended { .. } => return,
            Event::Demoted { reason, .. } => panic!("{reason}"),
            _ => {}
        }
    }
}

async fn soon<F: Future>(future: F) -> F::Output {
    timeout(PATIENCE, future).await.expect("it takes too long")
}
