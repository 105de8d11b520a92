//! `incumbent run --component`: work that cannot outlive its leadership, on a real etcd.

use std::fs::OpenOptions;
use std::io::{PipeWriter, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::process::Child;

use incumbent_tests::job;
use rustix::fs::OFlags;

use super::http::Endpoint;
use super::*;

/// To open a pipe for reading before anybody writes.
const NONBLOCK: i32 = OFlags::NONBLOCK.bits().cast_signed();

/// What a pipe holds.
const PIPE: usize = 65_536;

/// A component in a file, and a directory that it may use.
#[derive(Debug)]
struct Job {
    directory: TempDir,
}

impl Job {
    fn doing(deed: &str) -> Self {
        let directory = TempDir::new().unwrap();
        fs::write(directory.path().join("job.wasm"), job::doing(deed)).unwrap();
        Self { directory }
    }

    /// The example in JavaScript, if what makes it a component is there.
    fn of_the_example() -> Option<Self> {
        let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/job");
        if !fs::exists(format!("{example}/node_modules")).unwrap() {
            let wanted = std::env::var_os("INCUMBENT_ALL_EXAMPLES").is_some();
            assert!(!wanted, "the job cannot be made a component: run ./setup.sh job");
            println!("skipped: the job cannot be made a component: run ./setup.sh job");
            return None;
        }
        let job = Self { directory: TempDir::new().unwrap() };
        let mut build = Command::new("npm");
        build.args(["run", "--prefix", example, "build", "--", "--output", &job.path("job.wasm")]);
        end(build).expect(0);
        Some(job)
    }

    fn path(&self, name: &str) -> String {
        self.directory.path().join(name).to_str().unwrap().to_owned()
    }

    fn events(&self) -> Vec<Value> {
        events_in(self.path("events").as_ref())
    }

    /// Starts it with an output that only the test reads, and waits until it is elected.
    fn elected(&self, etcd: &Etcd, stdout: PipeWriter) -> Child {
        let mut command = self.command(etcd, &["--once", "--ttl", "60s"]);
        let child = command.stdout(stdout).stderr(Stdio::null()).spawn().unwrap();
        until("it is elected", || self.events().iter().any(|event| event["event"] == "elected"));
        child
    }

    /// Makes `trace` a pipe: to open it is a call to the system that goes on until
    /// somebody reads it.
    fn with_a_pipe(self) -> Self {
        mkfifoat(CWD, self.path("trace"), Mode::RWXU).unwrap();
        self
    }

    /// Until somebody reads `trace`, a call to the system goes on.
    fn stuck(&self, etcd: &Etcd, more: &[&str]) -> Running {
        let running = self.at_work(etcd, &[&["--dir", &self.path("")], more].concat());
        until("it opens the pipe", || opens(running.pid()));
        running
    }

    fn read_the_pipe(&self) {
        let reader = OpenOptions::new().read(true).custom_flags(NONBLOCK).open(self.path("trace"));
        drop(reader.unwrap());
    }

    fn command(&self, etcd: &Etcd, more: &[&str]) -> Command {
        self.command_in(etcd, "my-service", more)
    }

    fn command_in(&self, etcd: &Etcd, election: &str, more: &[&str]) -> Command {
        let mut command = run(etcd, election, more);
        command.args(["--events", &self.path("events"), "--component", &self.path("job.wasm")]);
        command
    }

    /// Runs until it says that it is at work.
    fn at_work(&self, etcd: &Etcd, more: &[&str]) -> Running {
        let running = Running::start(self.command(etcd, more));
        running.stdout.line_with("at work");
        running
    }
}

/// Opens `trace`.
const OPENS: &str = "(call $at-work) (drop (call $trace))";

/// Whether a thread of the process waits in `openat2` or `openat`.
fn opens(pid: i32) -> bool {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let calls =
        tasks.filter_map(|task| fs::read_to_string(task.unwrap().path().join("syscall")).ok());
    calls.into_iter().any(|call| {
        ["437", "257", "56"].contains(&call.split_whitespace().next().unwrap_or_default())
    })
}

incumbent_tests::on_each_version!(
    a_component_is_told_and_given_what_was_granted,
    whatever_it_does_it_is_interrupted_in_time,
);

incumbent_tests::on_an_etcd!(
    nothing_is_written_after_the_deadline,
    a_component_whose_output_nobody_reads_is_interrupted,
    all_that_it_prints_is_printed,
    directories_are_what_was_granted,
    its_end_is_ours_with_once,
    one_that_fails_at_once_lets_others_have_their_turn,
    it_runs_again_in_the_next_term,
    a_paused_process_finds_its_time_over,
    one_that_listens_has_time_to_stop,
    one_that_resigns_ends_by_itself,
    keys_are_what_was_granted,
    keys_below_its_own_election_are_never_granted,
    one_that_listens_and_goes_on_gets_the_stop_time_out_and_no_more,
    nothing_is_given_back_before_a_call_to_the_system_has_returned,
    a_call_to_the_system_that_never_returns_leaves_the_lease_to_itself,
    the_endpoint_tells_of_work_that_outlives_its_term,
    a_component_resigns_when_it_is_asked_to,
    it_takes_no_more_of_the_machine_than_it_may,
    one_that_ends_because_its_term_is_over_has_lost_it,
    what_is_granted_can_be_a_variable,
    a_variable_that_grants_is_nothing_to_a_command,
    nothing_is_left_when_the_process_is_killed,
);

fn a_component_is_told_and_given_what_was_granted(etcd: Etcd) {
    let job = Job::doing(job::TELLS);
    let mut command = job.command(&etcd, &["--once", "--id", "me"]);
    command.args(["--env", "A=b=c", "--env", "INHERITED", "--", "one", "--two"]);
    command.env("INHERITED", "from here").env("SECRET", "not for it");
    let ended = end(command).expect(0);
    let elected = &job.events()[1];
    let (epoch, key) = (&elected["epoch"], elected["key"].as_str().unwrap());
    assert_eq!(
        ended.stdout.lines().collect::<Vec<_>>(),
        [
            "job.wasm",
            "one",
            "--two",
            "A=b=c",
            "INHERITED=from here",
            "INCUMBENT_ELECTION=my-service",
            &format!("INCUMBENT_EPOCH={epoch}"),
            &format!("INCUMBENT_LEADER_KEY={key}"),
            "INCUMBENT_ID=me",
            &format!("INCUMBENT_STORE={}", etcd.url()),
            "INCUMBENT_CONTEST=queue",
        ]
    );
    assert_eq!(etcd.etcdctl(&["get", "--prefix", "my-service"]), "");
}

fn whatever_it_does_it_is_interrupted_in_time(etcd: Etcd) {
    // One after the other: those that compute would be late because of one another.
    for (name, deed) in [
        ("an endless loop", job::LOOPS),
        ("a loop of host calls", job::CALLS),
        ("a loop of random bytes", job::RANDOM),
        ("a sleep of 20 s", job::SLEEPS),
        ("a read from standard input", job::READS),
    ] {
        let job = Job::doing(deed);
        let mut command = job.command_in(&etcd, name, &["--once", "-v"]);
        command.stdin(Stdio::piped());
        let mut running = Running::start(command);
        running.stdout.line_with("at work");
        etcd.pause();
        let line = running.stderr.line_with("the component was interrupted");
        etcd.resume();
        let left = number_in(&line, "left_us=");
        println!("{name}: ended {left} µs before the leadership");
        assert!(left > -i64::try_from(BUSY.as_micros()).unwrap(), "{name}: {line}");
        assert!(left <= 10_000, "{name} was interrupted too early: {line}");
        assert_eq!(running.wait(), 1);
    }
}

/// What follows a name in a line of the log.
fn number_in(line: &str, name: &str) -> i64 {
    let (_, rest) = line.split_once(name).expect(line);
    rest.split_whitespace().next().unwrap().parse().expect(line)
}

fn nothing_is_written_after_the_deadline(etcd: Etcd) {
    let job = Job::doing(job::WRITES);
    let mut running = job.at_work(&etcd, &["--once", "--dir", &job.path(""), "-v"]);
    etcd.pause();
    running.stderr.line_with("the component was interrupted");
    let limit = last_valid(&job.events());
    let written = fs::metadata(job.path("trace")).unwrap().modified().unwrap();
    assert!(written <= limit + BUSY, "{:?} late", written.duration_since(limit));
    etcd.resume();
    assert_eq!(running.wait(), 1);
}

/// A pipe that nobody reads holds up a thread in the kernel.
fn a_component_whose_output_nobody_reads_is_interrupted(etcd: Etcd) {
    let job = Job::doing(job::PRINTS);
    let (reader, writer) = std::io::pipe().unwrap();
    let mut child = job.elected(&etcd, writer);
    until("the pipe is full", || rustix::io::ioctl_fionread(&reader).unwrap() >= PIPE as u64);
    kill(child.id().cast_signed(), Signal::TERM);
    assert_eq!(status_of(child.wait().unwrap()), 0);
    assert_eq!(etcd.etcdctl(&["get", "--prefix", "my-service"]), "");
}

/// It may take as long as the leadership lasts.
fn all_that_it_prints_is_printed(etcd: Etcd) {
    // Not flushed: the stream takes it, and the program ends.
    let job = Job::doing(
        "(local.set $kept (call $get-stdout))
         (call $output-stream.check-write (local.get $kept) (i32.const 0))
         (call $output-stream.write
            (local.get $kept) (i32.const 1024) (i32.const 8) (i32.const 0))",
    );
    let (mut reader, mut writer) = std::io::pipe().unwrap();
    writer.write_all(&[b'.'; PIPE]).unwrap();
    let mut child = job.elected(&etcd, writer);
    sleep(Duration::from_millis(200));
    assert_eq!(child.try_wait().unwrap(), None, "it waits for its reader");
    let mut printed = String::new();
    reader.read_to_string(&mut printed).unwrap();
    assert_eq!(printed.trim_start_matches('.'), "at work\n");
    assert_eq!(status_of(child.wait().unwrap()), 0);
}

fn directories_are_what_was_granted(etcd: Etcd) {
    let job =
        Job::doing("(call $write-all (call $trace) (i32.const 1024) (i32.const 8) (i32.const 0))");
    let denied = end(job.command(&etcd, &["--once"])).expect(134);
    assert!(denied.stderr.contains("the component broke off"), "{denied:?}");
    let inside = job.path("inside");
    fs::create_dir(&inside).unwrap();
    end(job.command(&etcd, &["--once", "--dir", &format!("{inside}::/data")])).expect(0);
    assert_eq!(fs::read_to_string(format!("{inside}/trace")).unwrap(), "at work\n");
}

fn its_end_is_ours_with_once(etcd: Etcd) {
    for (deed, status) in [
        ("", 0),
        ("(return (i32.const 1))", 1),
        ("(call $exit-with-code (i32.const 0))", 0),
        ("(call $exit-with-code (i32.const 7))", 7),
        ("(unreachable)", 134),
    ] {
        let ended = end(Job::doing(deed).command(&etcd, &["--once"])).expect(status);
        assert!(ended.stderr.contains(&format!("the component ended with status {status}")));
        assert_eq!(etcd.etcdctl(&["get", "--prefix", "my-service"]), "");
    }
}

fn one_that_fails_at_once_lets_others_have_their_turn(etcd: Etcd) {
    let job = Job::doing("(unreachable)");
    let running = Running::start(job.command(&etcd, &["--restart-delay", "500ms"]));
    for _ in 0..2 {
        running.stderr.line_with("the component ended with status 134");
        running.stderr.line_with("back in line in");
        running.stderr.line_with("withdrawn");
    }
    running.stop();
}

fn it_runs_again_in_the_next_term(etcd: Etcd) {
    let job = Job::doing(job::LOOPS);
    let running = job.at_work(&etcd, &["--ttl", "10m"]);
    for _ in 0..2 {
        end(on(&etcd, ["depose", "my-service"])).expect(0);
        running.stdout.line_with("at work");
    }
    running.stop();
    let events = job.events();
    let reasons: Vec<_> = events.iter().filter(|event| event["event"] == "demoted").collect();
    assert_eq!(reasons[0]["reason"], "deposed");
    assert_eq!(reasons[2]["reason"], "resigned");
    assert_eq!(etcd.etcdctl(&["get", "--prefix", "my-service"]), "");
}

#[test]
fn the_example_counts_on_where_the_last_leader_stopped() {
    let Some(job) = Job::of_the_example() else { return };
    let etcd = Etcd::start(Version::V3_5);
    let start = || Running::start(job.command(&etcd, &["--allow-keys", "jobs/"]));
    let mut first = start();
    first.stdout.line_with("counted to 2");
    let second = start();
    second.stderr.line_with("joined");
    first.signal(Signal::TERM);
    first.stdout.line_with("no longer: endangered");
    let line = second.stdout.line_with("counted to");
    assert!(number_in(&line, "to") > 2, "{line}");
    assert_eq!(first.wait(), 0);
    second.stop();
}

fn a_paused_process_finds_its_time_over(etcd: Etcd) {
    let job = Job::doing(job::WRITES);
    let mut running = job.at_work(&etcd, &["--once", "--dir", &job.path(""), "-v"]);
    running.signal(Signal::STOP);
    until("it stands still", || process(running.pid()).is_some_and(|(_, state)| state == 'T'));
    let other = Running::campaign(&etcd, "my-service", &[]).once("elected");
    let before = fs::metadata(job.path("trace")).unwrap().len();
    let woken = SystemTime::now();
    running.signal(Signal::CONT);
    running.stderr.line_with("the component was interrupted");
    let trace = fs::metadata(job.path("trace")).unwrap();
    // A write that was under way is completed by the system, and no more than that.
    println!("written after waking: {} bytes", trace.len() - before);
    assert!(trace.modified().unwrap() <= woken + BUSY);
    assert!(trace.len() - before <= 1, "it worked on after waking");
    assert_eq!(running.wait(), 1);
    other.stop();
}

fn one_that_listens_has_time_to_stop(etcd: Etcd) {
    let job = Job::doing(job::LISTENS);
    let long = ["--ttl", "60s", "--allow-keys", "jobs/"];
    let running = job.at_work(&etcd, &long);
    running.stop();
    assert_eq!(etcd.etcdctl(&["get", "--print-value-only", "jobs/last"]).trim(), "done");

    // Renewals fail, and it stops by itself.
    let mut running = job.at_work(&etcd, &["--once", "--allow-keys", "jobs/"]);
    etcd.pause();
    running.stdout.line_with("told");
    etcd.resume();
    assert!([11, 14].contains(&running.wait()), "written, or nobody knows");

    // The term is over, and its writes are refused.
    let running = job.at_work(&etcd, &long);
    end(on(&etcd, ["depose", "my-service"])).expect(0);
    running.stdout.line_with("at work");
    running.stop();
}

fn one_that_resigns_ends_by_itself(etcd: Etcd) {
    let job = Job::doing("(call $term.resign (call $term)) (call $exit-with-code (i32.const 7))");
    end(job.command(&etcd, &["--once", "--ttl", "60s"])).expect(7);
    assert_eq!(etcd.etcdctl(&["get", "--prefix", "my-service"]), "");
}

fn keys_are_what_was_granted(etcd: Etcd) {
    let job = Job::doing("(call $exit-with-code (call $done (call $term)))");
    for others in [&["--once", "--allow-keys", "others/"][..], &["--once"]] {
        let not_permitted = end(job.command(&etcd, others)).expect(4);
        let told =
            not_permitted.stderr.matches("not granted to it election=my-service key=jobs/last");
        assert_eq!(told.count(), 1, "{not_permitted:?}");
    }
    end(job.command(&etcd, &["--once", "--allow-keys", "a", "--allow-keys", "jobs/"])).expect(0);
    assert_eq!(etcd.etcdctl(&["get", "--print-value-only", "jobs/last"]).trim(), "done");
}

/// `etcdctl elect` would take what it writes there for a candidate.
fn keys_below_its_own_election_are_never_granted(etcd: Etcd) {
    let job = Job::doing("(call $exit-with-code (call $done (call $term)))");
    for (election, keys) in [("jobs", "jobs/"), ("jobs/last", "jobs/"), ("jobs", "jobs/last")] {
        let command = job.command_in(&etcd, election, &["--once", "--allow-keys", keys]);
        let refused = end(command).expect(2);
        assert!(refused.stderr.contains(&format!("--allow-keys {keys} reaches")), "{refused:?}");
    }
    assert_eq!(etcd.etcdctl(&["get", "--prefix", "jobs"]), "");
    // What is only named alike is something else.
    end(job.command_in(&etcd, "job", &["--once", "--allow-keys", "jobs/"])).expect(0);
}

fn one_that_listens_and_goes_on_gets_the_stop_time_out_and_no_more(etcd: Etcd) {
    let job = Job::doing("(drop (call $term)) (call $at-work) (loop (br 0))");
    let running = job.at_work(&etcd, &["--ttl", "60s", "--stop-timeout", "500ms"]);
    let asked = SystemTime::now();
    running.stop();
    let took = asked.elapsed().unwrap();
    assert!((Duration::from_millis(500)..Duration::from_secs(5)).contains(&took), "{took:?}");
    // A second signal waits for nobody.
    let mut running = job.at_work(&etcd, &["--ttl", "10m"]);
    running.signal(Signal::TERM);
    running.signal(Signal::INT);
    assert!([130, 143].contains(&running.wait()));
}

/// Nobody can interrupt it, and the next leader would find it at work.
fn nothing_is_given_back_before_a_call_to_the_system_has_returned(etcd: Etcd) {
    let job = Job::doing(OPENS).with_a_pipe();
    let mut running = job.stuck(&etcd, &["--ttl", "60s"]);
    running.signal(Signal::TERM);
    running.stderr.line_with("the leadership is not given back before it returns");
    assert_ne!(etcd.etcdctl(&["get", "--prefix", "my-service"]), "");
    job.read_the_pipe();
    assert_eq!(running.wait(), 0);
    assert_eq!(etcd.etcdctl(&["get", "--prefix", "my-service"]), "");

    // Deposed, it is not in line before that.
    let running = job.stuck(&etcd, &["--ttl", "60s"]);
    end(on(&etcd, ["depose", "my-service"])).expect(0);
    running.stderr.line_with("the leadership is not given back before it returns");
    assert_eq!(etcd.etcdctl(&["get", "--prefix", "my-service"]), "");
    job.read_the_pipe();
    running.stdout.line_with("at work");
    until("it opens the pipe", || opens(running.pid()));
    job.read_the_pipe();
    running.stop();
}

fn a_call_to_the_system_that_never_returns_leaves_the_lease_to_itself(etcd: Etcd) {
    let job = Job::doing(OPENS).with_a_pipe();
    let mut running = job.stuck(&etcd, &["--ttl", "3s"]);
    running.signal(Signal::TERM);
    running.stderr.line_with("the lease runs out by itself");
    assert_eq!(running.wait(), 0);
    let events = job.events();
    assert!(events.iter().all(|event| event["event"] != "demoted"), "{events:?}");
    let other = Running::campaign(&etcd, "my-service", &[]).once("elected");
    assert!(SystemTime::now() >= last_valid(&events), "it was given back");
    other.stop();
}

fn the_endpoint_tells_of_work_that_outlives_its_term(etcd: Etcd) {
    let job = Job::doing(OPENS).with_a_pipe();
    let listen = format!("unix:{}", job.path("socket"));
    let running = job.stuck(&etcd, &["--ttl", "2s", "--listen", &listen]);
    let endpoint = Endpoint::on(job.path("socket").as_ref());
    assert_eq!((endpoint.status("/livez"), endpoint.status("/leader")), (200, 200));
    etcd.pause();
    until("it is not alive", || endpoint.status("/livez") == 503);
    assert!(endpoint.asked("/livez", &[]).body.contains("its work still runs"));
    assert_eq!((endpoint.status("/leader"), endpoint.status("/readyz")), (503, 503));
    etcd.resume();
    job.read_the_pipe();
    until("it is alive", || endpoint.status("/livez") == 200);
    running.stdout.line_with("at work");
    job.read_the_pipe();
    running.stop();
}

fn a_component_resigns_when_it_is_asked_to(etcd: Etcd) {
    let job = Job::doing(job::LOOPS);
    let listen = format!("unix:{}", job.path("socket"));
    let running = job.at_work(&etcd, &["--ttl", "60s", "--listen", &listen]);
    let endpoint = Endpoint::on(job.path("socket").as_ref());
    let resigned = endpoint.asked("/resign", &["--request", "POST"]).json();
    // Nobody else is in line, and it works again at once.
    assert!(resigned["leader"]["epoch"].as_i64() > resigned["resigned"].as_i64(), "{resigned}");
    running.stdout.line_with("at work");
    let demoted = job.events().into_iter().find(|event| event["event"] == "demoted").unwrap();
    assert_eq!(demoted["reason"], "resigned");
    running.stop();
}

fn it_takes_no_more_of_the_machine_than_it_may(etcd: Etcd) {
    // It has 4 MiB, and wants as much again.
    let job =
        Job::doing("(call $exit-with-code (i32.eq (memory.grow (i32.const 64)) (i32.const -1)))");
    end(job.command(&etcd, &["--once"])).expect(0);
    end(job.command(&etcd, &["--once", "--max-memory", "8"])).expect(0);
    end(job.command(&etcd, &["--once", "--max-memory", "7"])).expect(1);
    end(job.command(&etcd, &["--once", "--max-memory", "3"])).expect(134);
    let many = "(loop
        (drop (call $subscribe-duration (i64.const 0)))
        (br_if 0 (i32.lt_u
            (local.tee $kept (i32.add (local.get $kept) (i32.const 1)))
            (i32.const 600))))";
    end(Job::doing(many).command(&etcd, &["--once"])).expect(134);
    let random = |bytes: u32| {
        let job =
            Job::doing(&format!("(call $get-random-bytes (i64.const {bytes}) (i32.const 0))"));
        end(job.command(&etcd, &["--once"]))
    };
    random(1 << 16).expect(0);
    let refused = random((1 << 16) + 1).expect(134);
    assert!(refused.stderr.contains("65537 exceeds limit 65536"), "{refused:?}");
    // At once, and unasked.
    let write = |to: &str, bytes: u32| {
        let job = Job::doing(&format!(
            "(call $output-stream.write
                (call ${to}) (i32.const 0) (i32.const {bytes}) (i32.const 0))"
        ));
        end(job.command(&etcd, &["--once", "--dir", &job.path("")]))
    };
    write("get-stdout", 8).expect(134);
    write("trace", 1 << 20).expect(0);
    write("trace", 3 << 20).expect(134);
}

/// What comes first for the component has not come first for the leadership.
fn one_that_ends_because_its_term_is_over_has_lost_it(etcd: Etcd) {
    let job = Job::doing(
        "(local.set $kept (call $term)) (call $at-work)
        (drop (call $shaken (local.get $kept)))",
    );
    for _ in 0..3 {
        let mut running = job.at_work(&etcd, &["--once", "--ttl", "60s"]);
        end(on(&etcd, ["depose", "my-service"])).expect(0);
        assert_eq!(running.wait(), 1);
    }
}

/// A variable is for all that is started with it; what a component is granted is for one.
fn what_is_granted_can_be_a_variable(etcd: Etcd) {
    let job = Job::doing(OPENS);
    let mut command = on(&etcd, ["run", "my-service", "--once"]);
    command.envs([
        ("INCUMBENT_JOB", job.path("job.wasm").as_str()),
        ("INCUMBENT_DIR", &job.path("")),
        ("INCUMBENT_ENV", "A=b"),
        ("INCUMBENT_ALLOW_KEYS", "jobs/"),
        ("INCUMBENT_ALLOW_NETWORK", "no"),
        ("INCUMBENT_MAX_MEMORY", "16"),
    ]);
    end(command).expect(0);
    assert!(fs::exists(job.path("trace")).unwrap());
}

/// It may be there for other runs.
fn a_variable_that_grants_is_nothing_to_a_command(etcd: Etcd) {
    let mut command = on(&etcd, ["run", "my-service", "--once", "--", "true"]);
    command.envs([("INCUMBENT_DIR", "/nowhere"), ("INCUMBENT_ALLOW_NETWORK", "yes")]);
    end(command).expect(0);
}

fn nothing_is_left_when_the_process_is_killed(etcd: Etcd) {
    let job = Job::doing(job::WRITES);
    let mut running = job.at_work(&etcd, &["--dir", &job.path("")]);
    assert_eq!(children(running.pid()), [], "it needs nobody");
    running.signal(Signal::KILL);
    assert_eq!(running.wait(), 137);
    let length = || fs::metadata(job.path("trace")).unwrap().len();
    let left = length();
    let other = Running::campaign(&etcd, "my-service", &[]).once("elected");
    assert_eq!(length(), left);
    other.stop();
}

#[test]
fn what_is_no_job_is_found_before_joining() {
    let directory = TempDir::new().unwrap();
    let file = |name: &str, bytes: &[u8]| {
        let path = directory.path().join(name);
        fs::write(&path, bytes).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let whole = job::doing("");
    let elector = incumbent_tests::hostile::elector(&[]);
    for (file, says) in [
        (file("text", b"#!/bin/sh\n"), "is not WebAssembly"),
        (file("empty", b""), "is not WebAssembly"),
        (file("module", b"\0asm\x01\0\0\0"), "is a core module"),
        (file("cut", &whole[..whole.len() / 2]), "does not compile"),
        (file("elector", &elector), "is not a program"),
        (file("wants", &job::wanting("acme:tools/hammer@1.2.3")), "acme:tools/hammer@1.2.3"),
        ("/no/such/file".into(), "cannot be read"),
        (directory.path().to_str().unwrap().to_owned(), "is not a file"),
        ("/dev/zero".into(), "is not a file"),
    ] {
        // There is no store: it would be 4 if one were asked.
        let command = ["run", "e", "--store", "etcd://127.0.0.1:1", "--component", &file];
        end(incumbent(command)).expect(2).says(&[says, &file]);
    }
    let job = file("job", &whole);
    for grant in ["/no/such/directory", &job] {
        let command = ["run", "e", "--store", "etcd://127.0.0.1:1", "--component", &job];
        let bad = end(incumbent(command.iter().chain(&["--dir", grant]))).expect(2);
        bad.says(&[&format!("--dir {grant} cannot be opened")]);
    }
}

/// To try one: nobody else could lead.
#[test]
fn a_store_of_this_process_serves() {
    let job = Job::doing(job::TELLS);
    let command = ["run", "e", "--once", "--store", "memory:", "--component"];
    let ended = end(incumbent(command.iter().chain(&[job.path("job.wasm").as_str()]))).expect(0);
    assert!(ended.stdout.contains("INCUMBENT_STORE=memory:"), "{ended:?}");
}
