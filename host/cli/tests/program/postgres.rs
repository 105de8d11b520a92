//! The program on PostgreSQL.

use incumbent_tests::postgres::Postgres;
use incumbent_tests::program::path;

use super::*;

fn on_postgres(url: &str, arguments: &[&str]) -> Command {
    let mut command = incumbent(arguments);
    command.env("INCUMBENT_STORE", url);
    command
}

fn campaign(url: &str, id: &str) -> Running {
    let arguments = ["campaign", "my-service", "--id", id, "--ttl", "3s", "-o", "json"];
    Running::start(on_postgres(url, &arguments))
}

#[test]
fn candidates_follow_one_another() {
    let postgres = Postgres::start();
    let url = postgres.url();
    let one = campaign(&url, "one");
    let first = one.event("elected");
    let two = campaign(&url, "two").once("joined");
    let three = campaign(&url, "three").once("joined");
    let listed = end(on_postgres(&url, &["candidates", "my-service"])).expect(0);
    assert_eq!(listed.stdout.lines().count(), 3, "{listed:?}");

    end(on_postgres(&url, &["transfer", "my-service", "--to", "two"])).expect(0);
    let second = two.event("elected");
    assert!(second["epoch"].as_i64() > first["epoch"].as_i64());
    // Its lease runs out.
    two.signal(Signal::KILL);
    let third = three.event("elected");
    assert!(third["epoch"].as_i64() > second["epoch"].as_i64());
    let epoch = third["epoch"].to_string();
    let put = |epoch: &str| {
        let fence = ["put", "setting", "on", "--fence", &format!("my-service:{epoch}")];
        end(on_postgres(&url, &fence))
    };
    put(&epoch).expect(0);
    let stale = put(&first["epoch"].to_string());
    assert_ne!(stale.status, 0, "{stale:?}");
    let setting = end(on_postgres(&url, &["get", "setting"])).expect(0);
    assert_eq!(setting.stdout.trim(), "on");

    end(on_postgres(&url, &["depose", "my-service"])).expect(0);
    assert_eq!(three.event("demoted")["reason"], "deposed");
    one.stop();
    three.stop();
    end(on_postgres(&url, &["leader", "my-service"])).expect(1);
}

#[test]
fn the_command_reaches_the_same_store_with_the_same_password() {
    let postgres = Postgres::start();
    postgres.sql("CREATE ROLE worker LOGIN PASSWORD 'se:cret'");
    postgres.allow(&["host all worker 127.0.0.1/32 scram-sha-256"]);
    let sql = end(incumbent(["sql", "--role", "worker"])).expect(0);
    postgres.sql(&sql.stdout);
    let url = format!("postgres://worker:se%3Acret@{}/postgres", postgres.address());
    let script = r#""$0" put result done --fence "$INCUMBENT_ELECTION""#;
    let program = path();
    let program = program.to_str().unwrap();
    let run = ["run", "my-service", "--once", "-v", "--", "sh", "-c", script, program];
    let ran = end(on_postgres(&url, &run)).expect(0);
    assert!(!ran.stderr.contains("se:cret") && !ran.stderr.contains("se%3A"), "{ran:?}");
    let got = end(on_postgres(&url, &["get", "result"])).expect(0);
    assert_eq!(got.stdout.trim(), "done");
}

#[test]
fn doctor_tells_what_it_finds() {
    let postgres = Postgres::start();
    let examined = end(on_postgres(&postgres.url(), &["doctor"])).expect(0);
    for said in [
        "the schema incumbent of postgres://owner@",
        "round trips to the database",
        "an election can be held",
        "its own clock",
    ] {
        assert!(examined.stdout.contains(said), "{examined:?}");
    }
    assert_eq!(postgres.sql("SELECT count(*) FROM incumbent.keys, incumbent.leases"), "0");
    let standby = postgres.standby(&[]);
    let examined = end(on_postgres(&standby.url(), &["doctor"])).expect(4);
    assert!(examined.stdout.contains("takes no writes"), "{examined:?}");
}

#[test]
fn bad_input_is_answered_in_a_sentence() {
    let store = |url: &'static str| vec!["leader", "my-service", "--store", url];
    for (arguments, says) in [
        (store("postgres://db/jobs?sslmod=require"), "leave it out"),
        (store("postgres://ann:secret@db:x/jobs"), "a number up to 65535"),
        (store("postgres:db"), "postgres://USER@HOST/DATABASE"),
        ([store("postgres://ann@db/jobs"), vec!["--user", "bob"]].concat(), "give one of them"),
        ([store("postgres://db/jobs"), vec!["--cert", "/etc/hostname"]].concat(), "--key FILE"),
        (vec!["sql", "--store", "local"], "has no schema"),
        (vec!["sql", "--role", ""], "--role is no name"),
    ] {
        let ended = end(incumbent(&arguments)).expect(2).only_says(&[says]);
        assert!(!ended.stderr.contains("secret"), "{ended:?}");
    }
}

/// What calls the fence in `examples/postgres` does all jobs, each once, while leaders are killed and
/// paused.
fn jobs_are_done_once(worker: &[&str]) {
    let postgres = Postgres::start();
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/postgres");
    postgres.sql(&fs::read_to_string(format!("{example}/schema.sql")).unwrap());
    let start = || {
        let arguments = [&["run", "jobs", "--ttl", "3s", "--"], worker].concat();
        let mut command = on_postgres(&postgres.url(), &arguments);
        command.current_dir(example);
        Running::start(command)
    };
    let (one, two) = (start(), start());
    let add = "INSERT INTO jobs (what) SELECT 'number ' || n FROM generate_series(1, 20) n";
    let all_are_done = || postgres.sql("SELECT count(*) FROM jobs WHERE done_in IS NULL") == "0";
    postgres.sql(add);
    until("the first jobs are done", all_are_done);
    one.signal(Signal::KILL);
    postgres.sql(add);
    until("the others are done", all_are_done);
    let falls = "SELECT count(*) FROM (SELECT done_in < lag(done_in) OVER (ORDER BY id) AS falls FROM jobs) j WHERE falls";
    assert_eq!(postgres.sql(falls), "0");
    two.stop();
}

#[test]
fn the_worker_in_sql_does_each_job_once() {
    let psql = r#"exec psql -Xqt -v ON_ERROR_STOP=1 -f worker.sql "$INCUMBENT_DATABASE_URL""#;
    jobs_are_done_once(&["sh", "-c", psql]);
}

#[test]
fn the_worker_in_python_does_each_job_once() {
    let python = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/postgres/.venv/bin/python");
    if !fs::exists(python).unwrap() {
        let wanted = std::env::var_os("INCUMBENT_ALL_EXAMPLES").is_some();
        assert!(!wanted, "psycopg is not there: run ./setup.sh postgres");
        println!("skipped: psycopg is not there: run ./setup.sh postgres");
        return;
    }
    jobs_are_done_once(&[python, "worker.py"]);
}
