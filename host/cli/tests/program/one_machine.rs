//! The program without etcd: on the store of one machine.

use std::path::{Path, PathBuf};

use incumbent_tests::program::pid_in;

use super::*;

/// A home with nothing in it.
struct Home(TempDir);

impl Home {
    fn new() -> Self {
        Self(TempDir::new().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// The program of the user who lives there, on the store `local`.
    fn local(&self, arguments: &[&str]) -> Command {
        let mut command = incumbent(arguments);
        command.env_remove("XDG_STATE_HOME").env("HOME", self.0.path());
        command.env("INCUMBENT_STORE", "local");
        command
    }

    fn campaign(&self, id: &str) -> Running {
        let arguments = ["campaign", "my-service", "--id", id, "--ttl", "3s", "-o", "json"];
        Running::start(self.local(&arguments))
    }
}

#[test]
fn candidates_follow_one_another() {
    let home = Home::new();
    let one = home.campaign("one");
    let first = one.event("elected");
    let file = home.path(".local/state/incumbent/local.db");
    let told = one.stderr.line_with("for this machine only");
    assert!(told.contains(file.to_str().unwrap()), "{told}");
    assert!(file.is_file());

    let two = home.campaign("two").once("joined");
    let three = home.campaign("three").once("joined");
    let listed = end(home.local(&["candidates", "my-service"])).expect(0);
    let names: Vec<_> = listed.stdout.lines().collect();
    assert_eq!(names.len(), 3, "{listed:?}");
    assert!(names.iter().zip(["one", "two", "three"]).all(|(line, id)| line.contains(id)));

    one.stop();
    let second = two.event("elected");
    assert!(second["epoch"].as_i64() > first["epoch"].as_i64());
    // Its lease runs out.
    two.signal(Signal::KILL);
    let third = three.event("elected");
    assert!(third["epoch"].as_i64() > second["epoch"].as_i64());

    let leader = end(home.local(&["leader", "my-service", "-o", "json"])).expect(0).json();
    assert_eq!(leader["leader"]["value"], "three");
    end(home.local(&["depose", "my-service"])).expect(0);
    assert_eq!(three.event("demoted")["reason"], "deposed");
    three.event("elected");
    three.stop();
    end(home.local(&["leader", "my-service"])).expect(1);
}

#[test]
fn an_observer_sees_the_gap() {
    let home = Home::new();
    let observer = Running::start(home.local(&["observe", "my-service", "-o", "json"]));
    assert!(observer.event("leader")["leader"].is_null());
    let one = home.campaign("one");
    assert_eq!(observer.event("leader")["leader"]["value"], "one");
    one.stop();
    assert!(observer.event("leader")["leader"].is_null());
    observer.stop();
}

/// Wherever the command goes, and whatever home it has, it finds the store again.
#[test]
fn the_command_writes_as_the_leader() {
    let home = Home::new();
    let script = "cd /; export HOME=/nowhere; \"$0\" put /k inside --fence my-service; \
                  \"$0\" get /k; echo \"$INCUMBENT_EPOCH\" >\"$1\"";
    let epoch = home.path("epoch");
    let program = env!("CARGO_BIN_EXE_incumbent");
    let arguments = ["run", "my-service", "--once", "--", "sh", "-c", script, program];
    let mut command = home.local(&arguments);
    command.arg(&epoch);
    let ended = end(command).expect(0);
    assert!(ended.stdout.starts_with("written at revision "), "{ended:?}");
    assert!(ended.stdout.ends_with("\ninside\n"), "{ended:?}");

    // The same write, after the term.
    let epoch = fs::read_to_string(epoch).unwrap();
    let fence = format!("my-service:{}", epoch.trim());
    let late = end(home.local(&["put", "/k", "late", "--fence", &fence])).expect(3);
    assert!(late.stderr.contains("does not lead"), "{late:?}");
    assert_eq!(end(home.local(&["get", "/k"])).expect(0).stdout, "inside\n");
}

/// The path is relative, and the guard gives the lease back all the same.
#[test]
fn a_killed_supervisor_is_followed_at_once() {
    let home = Home::new();
    let run = |child: &str| {
        let script = format!("echo $$ > {child}; exec sleep 1000");
        let arguments = ["run", "my-service", "--ttl", "60s", "--store", "sqlite:its.db", "--"];
        let mut command = incumbent(arguments);
        command.args(["sh", "-c", &script]).current_dir(home.0.path());
        Running::start(command)
    };
    let one = run("one");
    let work = pid_in(&home.path("one"));
    let two = run("two");
    two.stderr.line_with("joined");
    let guards = children(one.pid());
    one.signal(Signal::KILL);
    // Long before the lease of a minute is over.
    let next = pid_in(&home.path("two"));
    assert!(!is_alive(work) && is_alive(next));
    for (guard, _) in guards {
        until("the guard has gone", || !is_alive(guard));
    }
    two.stop();
    assert!(!is_alive(next));
}

#[test]
fn etcd_is_what_an_unnamed_store_means() {
    let home = Home::new();
    let mut unnamed = home.local(&["leader", "my-service", "--dial-timeout", "2s"]);
    unnamed.env_remove("INCUMBENT_STORE");
    // Perhaps there is an etcd on this machine: then nobody leads there.
    let ended = end(unnamed);
    assert!(!home.path(".local").exists(), "a store of this machine was made");
    assert!([1, 4].contains(&ended.status), "{ended:?}");
    assert!(!ended.stderr.contains("for this machine only:"), "{ended:?}");
    if ended.status == 4 {
        ended.says(&["no etcd answers at 127.0.0.1:2379", "--store local"]);
    }
    // A named one is not talked out of.
    let named = incumbent(["leader", "my-service", "--store", "etcd://127.0.0.1:1"]);
    let ended = end(named).expect(4);
    assert!(!ended.stderr.contains("local"), "{ended:?}");
}

#[test]
fn a_file_that_cannot_serve_is_refused() {
    let home = Home::new();
    let other = home.path("other");
    fs::write(&other, "this is a letter, and no database at all\n".repeat(100)).unwrap();
    for (file, says) in [("other", "other"), ("no/such/directory", "no/such"), (".", "is no file")]
    {
        let store = format!("sqlite:{}", home.path(file).display());
        end(incumbent(["leader", "my-service", "--store", &store])).expect(2).says(&[says]);
    }
    assert!(fs::read_to_string(&other).unwrap().starts_with("this is a letter"));
}

const FILES: [&str; 4] = ["store.db", "store.db-wal", "store.db-shm", "store.db-bell"];

/// A leader on a file in a directory that all may look into, under this umask.
fn leader_on_a_file(home: &Home, umask: &str) -> Running {
    fs::set_permissions(home.0.path(), Permissions::from_mode(0o755)).unwrap();
    let store = format!("sqlite:{}", home.path("store.db").display());
    let command = incumbent(["campaign", "my-service", "-o", "json", "--store", &store]);
    Running::start(limited(&format!("umask {umask}"), &command)).once("elected")
}

/// A user who may read one of the files can take SQLite's locks.
#[test]
fn the_files_are_their_owners_alone() {
    for umask in ["000", "022"] {
        let home = Home::new();
        let leader = leader_on_a_file(&home, umask);
        for file in FILES {
            let mode = fs::metadata(home.path(file)).unwrap().permissions().mode();
            assert_eq!(mode & 0o7777, 0o600, "{file} under {umask}");
        }
        let told = leader.stderr.line_with("for this machine only");
        assert!(!told.contains("may lock"), "{told}");
        if rustix::process::geteuid().is_root() {
            for file in FILES {
                assert!(!nobody_may_open(&home.path(file)), "{file}");
            }
            fs::set_permissions(home.path("store.db"), Permissions::from_mode(0o644)).unwrap();
            assert!(nobody_may_open(&home.path("store.db")), "the check itself");
        }
        leader.stop();
    }
}

/// As another user, who is in no group.
fn nobody_may_open(file: &Path) -> bool {
    let mut command = Command::new("setpriv");
    command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups", "head", "-c", "0"]);
    command.arg(file).stderr(Stdio::null()).status().unwrap().success()
}

#[test]
fn a_file_may_be_shared_on_purpose() {
    for (mode, others) in
        [(0o644, "all users of this machine"), (0o664, "all users"), (0o640, "group ")]
    {
        let home = Home::new();
        fs::write(home.path("store.db"), "").unwrap();
        fs::set_permissions(home.path("store.db"), Permissions::from_mode(mode)).unwrap();
        let leader = leader_on_a_file(&home, "077");
        let told = leader.stderr.line_with("for this machine only");
        assert!(told.contains(&format!("; {others}")) && told.contains("may lock it"), "{told}");
        for file in FILES {
            let found = fs::metadata(home.path(file)).unwrap().permissions().mode();
            assert_eq!(found & 0o7777, mode, "{file}");
        }
        leader.stop();
    }
}

#[test]
fn memory_is_for_one_process() {
    let alone = Running::start(incumbent(["campaign", "my-service", "--store", "memory:"]));
    alone.stderr.line_with("for this process only");
    alone.stdout.line_with("elected");
    alone.stop();
}

/// A process that is stopped anywhere, also in a commit, and goes on.
#[test]
fn a_paused_leader_is_followed_and_gets_back_in_line() {
    let home = Home::new();
    let one = home.campaign("one");
    let first = one.event("elected");
    let two = home.campaign("two").once("joined");
    one.signal(Signal::STOP);
    let second = two.event("elected");
    kill(one.pid(), Signal::CONT);
    let demoted = one.event("demoted");
    assert_eq!(demoted["epoch"], first["epoch"]);
    two.stop();
    let third = eventually("it leads again", || Some(one.event("elected")));
    assert!(third["epoch"].as_i64() > second["epoch"].as_i64());
    one.stop();
}
