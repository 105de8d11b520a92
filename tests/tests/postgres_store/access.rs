//! How the servers are reached, and what is said where they are not.

use std::fs;
use std::net::TcpListener;
use std::path::Path;

use incumbent_tests::certificates::{Authority, Certificates};
use incumbent_tests::program::write_secret;
use tempfile::TempDir;

use super::*;

const USERS: &str =
    "CREATE ROLE worker LOGIN PASSWORD 'right'; CREATE ROLE guest LOGIN PASSWORD 'right'";
/// The worker and the guest give a password, and the owner does not.
const HBA: &[&str] =
    &["host all worker 127.0.0.1/32 scram-sha-256", "host all guest 127.0.0.1/32 trust"];

async fn try_open(url: &str, credentials: &Credentials) -> Result<PostgresStore, String> {
    let url = url.parse().map_err(|error: incumbent::StoreUrlError| error.to_string())?;
    let opened = PostgresStore::connect(&url, credentials, Duration::from_secs(3));
    soon("an answer", opened).await.map_err(|error| error.to_string())
}

fn with_password_in(file: &Path) -> Credentials {
    let mut credentials = Credentials::default();
    credentials.password_file = Some(file.to_owned());
    credentials
}

/// What is said of this URL.
async fn refusal(url: &str) -> String {
    try_open(url, &Credentials::default()).await.expect_err(url)
}

#[tokio::test]
async fn each_refusal_is_a_sentence_with_its_mend() {
    let postgres = Postgres::start();
    postgres.sql(USERS);
    postgres.allow(HBA);
    let standby = postgres.standby(&[]);
    let at = postgres.address();
    let free = TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap();
    for schema in ["newer", "empty", "less", "lesser"] {
        drop(open(&format!("{}?schema={schema}", postgres.url())).await);
    }
    postgres.sql(
        "UPDATE newer.meta SET format = 2; CREATE SCHEMA foreign_one; DELETE FROM empty.meta;
         DROP FUNCTION less.renew; DROP TABLE lesser.keys CASCADE",
    );
    for (url, says) in [
        (format!("postgres://owner@{free}/postgres"), ["no PostgreSQL answers at", "--store"]),
        (
            format!("postgres://owner@{at}/nowhere"),
            ["\"nowhere\" does not exist", "createdb nowhere"],
        ),
        (format!("postgres://worker:wrong@{at}/postgres"), ["authentication failed", "PGPASSFILE"]),
        (
            format!("postgres://worker@{at}/postgres?passfile=/dev/null"),
            ["the user worker", "--password-file"],
        ),
        (format!("postgres://nobody@{at}/postgres"), ["no pg_hba.conf entry", "pg_hba.conf"]),
        (
            format!("postgres://owner@{}/postgres", standby.address()),
            ["takes no writes", "primary"],
        ),
        (format!("postgres://owner@{at}/postgres?schema=newer"), ["its format is 2", "?schema="]),
        (
            format!("postgres://owner@{at}/postgres?schema=foreign_one"),
            ["holds no store", "?schema="],
        ),
        (
            format!("postgres://owner@{at}/postgres?schema=empty"),
            ["its table meta is empty", "restore it from a backup"],
        ),
        (
            format!("postgres://owner@{at}/postgres?schema=less"),
            ["there is no function renew(bigint[], jsonb)", "restore it from a backup"],
        ),
        (
            format!("postgres://owner@{at}/postgres?schema=lesser"),
            ["\"lesser.keys\" does not exist", "restore it from a backup"],
        ),
        (
            format!("postgres://guest@{at}/postgres"),
            ["may not make it", "incumbent sql --role guest"],
        ),
        (
            format!("postgres://guest@{at}/postgres?schema=newer"),
            ["may not use", "incumbent sql --role guest"],
        ),
        (format!("postgres://owner@{at}/postgres?sslmode=require"), ["speaks no TLS", "ssl = on"]),
        (format!("postgres://owner@{at}/postgres?passfile=/none"), ["/none cannot be read", ""]),
    ] {
        // A second schema's newer format does not matter here.
        let said = refusal(&url).await;
        assert!(says.iter().all(|part| said.contains(part)), "{url}: {said}");
        assert!(!said.contains("wrong") && !said.contains('\n'), "{url}: {said}");
    }
}

#[tokio::test]
async fn a_role_with_the_least_rights_campaigns() {
    let postgres = Postgres::start();
    postgres.sql(USERS);
    postgres.allow(HBA);
    postgres.sql(&PostgresStore::schema("incumbent", Some("guest")));
    let url = format!("postgres://guest@{}/postgres", postgres.address());
    let (store, other) = (open(&url).await, open(&url).await);
    let at = campaign(&store, "held", 1, 10 * SECOND).await;
    let key = Entry { key: "held".into(), value: Vec::new(), lease: 1, created: at, modified: at };
    let put = incumbent_tests::operations::guarded(&key, vec![Mutation::Proclaim(b"new".to_vec())]);
    assert!(matches!(ask(&store, put).await, Response::Applied(_)));
    assert_eq!(renew(&store, 1).await, Response::Renewed(10 * SECOND));
    assert_eq!(ask(&other, Operation::Revoke(1)).await, Response::Revoked);
    // In a new era as well.
    postgres.sql("UPDATE incumbent.meta SET cluster = 1");
    assert_eq!(ask(&store, grant(2, SECOND)).await, Response::Granted(SECOND));
    assert!(is_later(&store.call(claim("held", 2), LIMIT).await));
    until("a lease time is over", async || {
        matches!(store.call(claim("held", 9), LIMIT).await, Ok(Response::Expired))
    })
    .await;
}

#[tokio::test]
async fn a_password_may_change_while_a_leader_leads() {
    let postgres = Postgres::start();
    postgres.sql(USERS);
    postgres.sql(&PostgresStore::schema("incumbent", Some("worker")));
    postgres.allow(HBA);
    let folder = TempDir::new().unwrap();
    let (password, passfile) = (folder.path().join("password"), folder.path().join("pgpass"));
    write_secret(&password, "right\n");
    write_secret(&passfile, "*:*:*:worker:right\n");
    let at = postgres.address();
    let url = format!("postgres://worker@{at}/postgres");
    let by_url = format!("postgres://worker:right@{at}/postgres");
    let by_passfile = format!("{url}?passfile={}", passfile.display());
    open(&by_url).await;
    let other = open(&by_passfile).await;
    let store = try_open(&url, &with_password_in(&password)).await.unwrap();
    campaign(&store, "held", 1, 60 * SECOND).await;

    postgres.sql("ALTER ROLE worker PASSWORD 'other'");
    write_secret(&password, "other\n");
    write_secret(&passfile, "*:*:*:worker:other\n");
    postgres.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'worker'");
    assert_eq!(renew(&store, 1).await, Response::Renewed(60 * SECOND));
    assert_eq!(read(&other, "").await.1, ["held"]);
}

#[tokio::test]
async fn certificates_are_checked_as_libpq_does() {
    let authority = Authority::new("ours");
    let certificates = authority.certificates();
    let postgres = Postgres::start_tls(&certificates);
    postgres.sql("CREATE ROLE client LOGIN SUPERUSER");
    postgres.allow(&[
        "hostssl all owner 127.0.0.1/32 trust",
        "hostssl all all 127.0.0.1/32 cert map=any",
    ]);
    fs::write(postgres.data().join("pg_ident.conf"), "any /^ client\n").unwrap();
    postgres.sql("SELECT pg_reload_conf()");
    let at = postgres.address();
    let others = Certificates::make();
    let (ours, theirs) = (certificates.ca.display(), others.ca.display());
    let elsewhere =
        format!("postgres://owner@elsewhere.example:{}/postgres?hostaddr=127.0.0.1", at.port());
    for (url, is_taken) in [
        (format!("postgres://owner@{at}/postgres"), true),
        (format!("postgres://owner@{at}/postgres?sslmode=require"), true),
        (format!("postgres://owner@{at}/postgres?sslmode=require&sslrootcert={theirs}"), false),
        (format!("postgres://owner@{at}/postgres?sslmode=verify-ca&sslrootcert={theirs}"), false),
        (format!("postgres://owner@{at}/postgres?sslmode=verify-full&sslrootcert={theirs}"), false),
        (format!("postgres://owner@{at}/postgres?sslmode=verify-full&sslrootcert={ours}"), true),
        (format!("postgres://owner@{at}/postgres?sslrootcert={ours}"), true),
        (format!("{elsewhere}&sslmode=verify-ca&sslrootcert={ours}"), true),
        (format!("{elsewhere}&sslmode=verify-full&sslrootcert={ours}"), false),
        (format!("{elsewhere}&sslrootcert={ours}"), false),
        (format!("postgres://owner@{at}/postgres?sslmode=verify-full"), false),
    ] {
        match try_open(&url, &Credentials::default()).await {
            Ok(_) => assert!(is_taken, "{url}"),
            Err(said) => {
                assert!(!is_taken, "{url}: {said}");
                assert!(said.contains("certificate") && said.contains("--cacert"), "{said}");
            }
        }
    }
    // Our own certificate is what lets us in.
    let url = format!("postgres://client@{at}/postgres");
    let said = refusal(&url).await;
    assert!(said.contains("pg_hba.conf"), "{said}");
    try_open(&url, &certificates.credentials()).await.unwrap();
}

#[tokio::test]
async fn the_server_that_takes_writes_is_found() {
    let postgres = Postgres::start();
    let standby = postgres.standby(&[]);
    let free = TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap();
    let url = format!(
        "postgres://owner@{free},{},{}/postgres?target_session_attrs=read-write",
        standby.address(),
        postgres.address()
    );
    campaign(&open(&url).await, "held", 1, SECOND).await;
}
