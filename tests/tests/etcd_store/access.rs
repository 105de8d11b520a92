//! Users and TLS: who is let in, and what is said to the others.

use std::io::Write as _;

use incumbent_tests::certificates::Certificates;
use tempfile::TempDir;

use super::*;

on_each_version! {
    what_is_forbidden_is_denied,
    logins_are_renewed,
    a_user_is_no_harm_where_nobody_logs_in,
    a_wrong_password_is_refused,
    a_missing_user_is_refused,
    tls_lets_in_whom_it_knows,
    tls_and_plain_are_told_apart,
}

// Users.

async fn what_is_forbidden_is_denied(etcd: Etcd) {
    etcd.enable_users("me", "mine", "my/");
    // Of all keys, this user may not read the one that `connect` asks for.
    let store = connect_as(&etcd.url(), "me", "mine").await.unwrap();
    for operation in [Operation::Read(vec![all("your/")]), operations::claim("your/k", 7)] {
        if let Operation::Claim(_) = operation {
            grant(&store, 7, 10).await.unwrap();
        }
        let answer = call(&store, operation).await;
        assert!(matches!(answer, Err(Failure::Denied(_))), "{answer:?}");
    }
    let mut watches = watching(&store, "my/k").await;
    watches.open(watch(2, "your/k"));
    let watched = next_watched(&mut watches).await;
    assert_eq!(watched.id, 2);
    assert!(matches!(watched.change, Change::Ended(Failure::Denied(_))), "{watched:?}");
    // The other watch goes on.
    assert!(matches!(claim(&store, "my/k", 7).await, Ok(Response::Claimed(_))));
    assert_eq!(next_put(&mut watches).await.key, b"my/k");
}

async fn logins_are_renewed(etcd: Etcd) {
    etcd.enable_users("me", "mine", "my/");
    let relay = Relay::start(etcd.address()).await;
    let url = format!("{}/my", relay.url());
    let store = connect_as(&url, "me", "mine").await.unwrap();
    grant(&store, 7, 60).await.unwrap();
    call(&store, Operation::KeepAlive(7)).await.unwrap();
    let mut watches = watching(&store, "k").await;
    // A user that is made anew has to log in anew. (etcd remembers logins over a
    // restart: they are in its log.)
    let forget = || etcd.renew_user("me", "mine");

    // The watch comes back without the help of any call.
    forget();
    relay.cut();
    etcd.etcdctl(&["--user", "me:mine", "put", "my/k", "v"]);
    assert_eq!(next_put(&mut watches).await.key, b"k");

    forget();
    let renewed = call(&store, Operation::KeepAlive(7)).await;
    assert_eq!(renewed, Ok(Response::Renewed(60 * SECOND)));

    forget();
    let answer = claim(&store, "l", 7).await;
    assert!(matches!(answer, Ok(Response::Claimed(_))), "{answer:?}");

    // Where the password is another one, that is the end.
    etcd.renew_user("me", "changed");
    let answer = claim(&store, "m", 7).await;
    assert!(matches!(answer, Err(Failure::Denied(_))), "{answer:?}");
    relay.cut();
    let change = next(&mut watches).await;
    assert!(matches!(change, Change::Ended(Failure::Denied(_))), "{change:?}");
}

async fn a_user_is_no_harm_where_nobody_logs_in(etcd: Etcd) {
    let store = connect_as(&etcd.url(), "me", "mine").await.unwrap();
    leader(&store, "k", 7).await;
}

async fn a_wrong_password_is_refused(etcd: Etcd) {
    etcd.enable_users("me", "mine", "my/");
    for (name, password) in [("me", "not-mine"), ("you", "yours")] {
        let parts = ["--password-file", &etcd.address().to_string()];
        let error = refused(&etcd.url(), &user(name, password), &parts).await;
        assert!(!format!("{error} {error:?}").contains("not-mine"));
    }
}

async fn a_missing_user_is_refused(etcd: Etcd) {
    etcd.enable_users("me", "mine", "my/");
    refused(&etcd.url(), &Credentials::default(), &["--user"]).await;
}

/// What etcd refuses, with a sentence that holds these parts.
async fn refused(url: &str, credentials: &Credentials, parts: &[&str]) -> ConnectError {
    let error = try_connect(url, credentials).await.unwrap_err();
    assert!(matches!(error, ConnectError::Refused { .. }), "{error:?}");
    says(&error, parts);
    error
}

// TLS.

async fn tls_lets_in_whom_it_knows(version: Version) {
    let known = Certificates::make();
    let etcd = Etcd::start_tls(version, &known);
    let store = try_connect(&etcd.url(), &known.credentials()).await.unwrap();
    leader(&store, "k", 7).await;
    assert_eq!(etcd.etcdctl(&["get", "--print-value-only", "k"]), "by 7\n");

    let unknown = Certificates::make();
    let without_ca = with(&known, |c| c.ca = None);
    let error = try_connect(&etcd.url(), &without_ca).await.unwrap_err();
    // Unless this machine has no authorities at all.
    if !error.is_configuration() {
        assert!(matches!(error, ConnectError::Refused { .. }), "{error:?}");
    }
    says(&error, &["--cacert"]);
    let other_ca = with(&known, |c| c.ca = Some(unknown.ca.clone()));
    refused(&etcd.url(), &other_ca, &["--cacert"]).await;
    let without_cert = with(&known, |c| (c.cert, c.key) = (None, None));
    let other_cert = with(&known, |c| {
        (c.cert, c.key) = (Some(unknown.client_cert.clone()), Some(unknown.client_key.clone()));
    });
    for credentials in [without_cert, other_cert] {
        refused(&etcd.url(), &credentials, &["--cert", "--key"]).await;
    }
}

async fn tls_and_plain_are_told_apart(version: Version) {
    let certificates = Certificates::make();
    let secret = Etcd::start_tls(version, &certificates);
    let plain = Etcd::start(version);
    let url = format!("etcd://{}", secret.address());
    refused(&url, &Credentials::default(), &["etcds://"]).await;
    let url = format!("etcds://{}", plain.address());
    refused(&url, &certificates.credentials(), &["does not speak TLS"]).await;
}

/// The client's credentials, but for something.
fn with(certificates: &Certificates, change: impl FnOnce(&mut Credentials)) -> Credentials {
    let mut credentials = certificates.credentials();
    change(&mut credentials);
    credentials
}

#[tokio::test]
async fn credentials_that_cannot_be_used_are_named() {
    let directory = TempDir::new().unwrap();
    let good = Certificates::make();
    let file = |name: &str, text: &str| {
        let path = directory.path().join(name);
        std::fs::File::create(&path).unwrap().write_all(text.as_bytes()).unwrap();
        Some(path)
    };
    let missing = Some(directory.path().join("missing.pem"));
    let empty = file("empty.pem", "");
    let torn = file("torn.pem", "-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n");
    let not_a_key =
        file("torn.key", "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n");
    for (credentials, parts) in [
        (with(&good, |c| c.ca = missing.clone()), ["--cacert", "missing.pem"]),
        (with(&good, |c| c.cert = missing.clone()), ["--cert", "missing.pem"]),
        (with(&good, |c| c.key = missing.clone()), ["--key", "missing.pem"]),
        (with(&good, |c| c.ca = empty.clone()), ["--cacert", "empty.pem"]),
        (with(&good, |c| c.ca = torn.clone()), ["--cacert", "torn.pem"]),
        (with(&good, |c| c.cert = torn.clone()), ["--cert", "torn.pem"]),
        (with(&good, |c| c.key = not_a_key.clone()), ["--key", "torn.key"]),
        (with(&good, |c| c.key = Some(good.server_key.clone())), ["--key", "server.key"]),
        (with(&good, |c| c.cert = None), ["--cert", "both"]),
        (with(&good, |c| c.user = Some("u".into())), ["--user", "both"]),
    ] {
        let error = try_connect("etcds://127.0.0.1:1", &credentials).await.unwrap_err();
        assert!(error.is_configuration(), "{error:?}");
        says(&error, &parts);
    }
    let error = try_connect("etcd://127.0.0.1:1", &good.credentials()).await.unwrap_err();
    assert!(error.is_configuration(), "{error:?}");
    says(&error, &["etcds://"]);
}
