//! `incumbent run` and its guard: whichever of them is killed, or stopped, no work
//! runs on past its deadline.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use rustix::process::{Pid, kill_process};
use rustix::time::{ClockId, clock_gettime};

use super::*;

incumbent_tests::on_each_version!(
    a_killed_supervisor_costs_no_lease_time,
    the_guard_logs_in_to_give_the_lease_back,
);

incumbent_tests::on_an_etcd!(
    a_supervisor_that_is_paused_or_hangs_does_not_hold_up_the_end,
    a_guard_that_is_killed_takes_the_work_along_and_is_replaced,
    once_ends_with_its_guard,
    a_process_stopped_between_us_and_the_command_is_woken,
    a_stopped_guard_holds_up_nothing,
    the_command_does_not_outlive_both_guard_and_supervisor,
    the_guard_hears_of_every_renewal,
    work_that_flees_is_caught,
    what_the_command_leaves_behind_is_asked_and_killed_before_others_lead,
    who_has_left_is_asked_while_their_parents_end,
    who_was_there_before_is_none_of_the_work,
    who_is_killed_again_and_again_lets_others_have_their_turn,
    a_second_signal_gives_nothing_back_before_the_work_is_dead,
    a_signal_while_the_command_starts_is_not_lost,
    a_reader_of_the_commands_output_sees_its_end,
    signals_to_all_of_us_are_the_supervisors_business,
    an_isolated_command_has_the_keyboard_and_its_own_proc,
);

/// What each of the work's processes does: it says that it lives, and by which clock.
/// None listens.
const BEAT: &str = r#"
trap '' HUP INT QUIT TERM
while read up rest < /proc/uptime; do echo "$up" >> "$1"; sleep 0.01; done
"#;

/// In the group of the command, and out of it: in a session of its own, and without
/// the parent that has started it.
const MEMBERS: [&str; 3] = ["command", "member", "stray"];

/// Work of three processes that nothing but SIGKILL stops.
struct Stubborn {
    work: Work,
    beat: String,
}

impl Stubborn {
    fn new() -> Self {
        let mut work = Work::new("");
        let beat = work.path("beat").display().to_string();
        fs::write(&beat, BEAT).unwrap();
        work.script +=
            &format!("(setsid sh '{beat}' stray &); sh '{beat}' member & exec sh '{beat}' command");
        Self { work, beat }
    }

    fn start(&self, etcd: &Etcd, more: &[&str]) -> Running {
        let running = Running::start(self.work.command(etcd, more));
        self.wait_until_it_works();
        running
    }

    fn wait_until_it_works(&self) {
        until("all of it works", || self.alive().len() == MEMBERS.len());
        for name in MEMBERS {
            until("its heart beats", || !self.beats(name).is_empty());
        }
    }

    /// Those that live, by name. In a namespace they have other numbers than they
    /// think.
    fn alive(&self) -> Vec<(String, i32)> {
        let mut alive = Vec::new();
        for process in fs::read_dir("/proc").unwrap().flatten() {
            let arguments = fs::read_to_string(process.path().join("cmdline")).unwrap_or_default();
            let mut arguments = arguments.split('\0').skip(1);
            if arguments.next() == Some(&self.beat) {
                let name = arguments.next().unwrap().to_owned();
                let pid = process.file_name().to_str().unwrap().parse().unwrap();
                alive.extend(is_alive(pid).then_some((name, pid)));
            }
        }
        alive
    }

    fn pid(&self, name: &str) -> i32 {
        let alive = self.alive();
        alive.iter().find(|(its, _)| its == name).unwrap_or_else(|| panic!("{alive:?}")).1
    }

    /// By `CLOCK_BOOTTIME`, to a hundredth of a second, cut.
    fn beats(&self, name: &str) -> Vec<Duration> {
        let text = fs::read_to_string(self.work.path(name)).unwrap_or_default();
        let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
        whole.lines().map(|line| Duration::from_secs_f64(line.parse().unwrap())).collect()
    }

    fn last_beat(&self) -> Duration {
        MEMBERS.iter().flat_map(|name| self.beats(name)).max().unwrap()
    }

    /// Until when it may have worked.
    fn deadline(&self) -> Duration {
        let since = SystemTime::UNIX_EPOCH;
        let wall = since.elapsed().unwrap();
        last_valid(&self.work.events()).duration_since(since).unwrap() + boot_time() - wall
    }

    /// It worked no more when this candidate was elected. Killed processes may be there a little longer.
    #[track_caller]
    fn expect_an_end_before(&self, successor: &Running) {
        successor.event("elected");
        let elected = boot_time();
        until("all of it is dead", || self.alive().is_empty());
        assert!(self.last_beat() < elected);
    }

    #[track_caller]
    fn expect_an_end_in_time(&self) {
        until("all of it is dead", || self.alive().is_empty());
        let (last, deadline) = (self.last_beat(), self.deadline());
        println!("{:?} late", last.saturating_sub(deadline));
        assert!(last < deadline + BUSY, "{:?} late", last - deadline);
    }
}

/// Where a test fails, and where something is meant to be left.
impl Drop for Stubborn {
    fn drop(&mut self) {
        for (_, pid) in self.alive() {
            kill(pid, Signal::KILL);
        }
    }
}

fn boot_time() -> Duration {
    clock_gettime(ClockId::Boottime).try_into().unwrap()
}

fn a_killed_supervisor_costs_no_lease_time(etcd: Etcd) {
    let stubborn = Stubborn::new();
    // Longer than any patience.
    let running = stubborn.start(&etcd, &["--ttl", "10m"]);
    let guard = guard_of(running.pid());
    let successor = Running::campaign(&etcd, "my-service", &[]).once("joined");
    assert_eq!(leases(&etcd), 2);
    running.signal(Signal::KILL);
    stubborn.expect_an_end_before(&successor);
    assert_eq!(leases(&etcd), 1);
    until("the guard is gone", || !is_alive(guard));
    successor.stop();
}

fn the_guard_logs_in_to_give_the_lease_back(etcd: Etcd) {
    etcd.enable_users("worker", "se-cret", "my-service");
    let stubborn = Stubborn::new();
    let password = stubborn.work.path("password");
    fs::write(&password, "se-cret\n").unwrap();
    let login = ["--user", "worker", "--password-file", password.to_str().unwrap()];
    let running = stubborn.start(&etcd, &[&login[..], &["--ttl", "10m"]].concat());
    let guard = guard_of(running.pid());
    for secret in ["cmdline", "environ"] {
        let shown = fs::read(format!("/proc/{guard}/{secret}")).unwrap();
        assert!(!String::from_utf8_lossy(&shown).contains("se-cret"));
    }
    let successor = Running::campaign(&etcd, "my-service", &login).once("joined");
    running.signal(Signal::KILL);
    successor.event("elected");
    successor.stop();
}

fn leases(etcd: &Etcd) -> usize {
    etcd.etcdctl(&["lease", "list"]).lines().skip(1).filter(|line| !line.is_empty()).count()
}

fn a_supervisor_that_is_paused_or_hangs_does_not_hold_up_the_end(etcd: Etcd) {
    for isolate in [false, true] {
        let stubborn = Stubborn::new();
        let running = stubborn.start(&etcd, if isolate { &["--isolate"] } else { &[] });
        running.signal(Signal::STOP);
        let successor = Running::campaign(&etcd, "my-service", &[]);
        stubborn.expect_an_end_before(&successor);
        stubborn.expect_an_end_in_time();
        // It wakes, and has nobody to kill.
        running.signal(Signal::CONT);
        running.stderr.line_with("demoted");
        until("it is back in line", || candidates(&etcd) == 2);
        assert_eq!(stubborn.alive(), []);
        successor.stop();
        stubborn.wait_until_it_works();
        running.stop();
        assert_eq!(stubborn.alive(), []);
    }
}

fn a_guard_that_is_killed_takes_the_work_along_and_is_replaced(etcd: Etcd) {
    for isolate in [false, true] {
        let stubborn = Stubborn::new();
        let more = ["--ttl", "10m", "--stop-timeout", "300ms", "--isolate"];
        let running = stubborn.start(&etcd, &more[..4 + usize::from(isolate)]);
        let (first, command) = (guard_of(running.pid()), stubborn.pid("command"));
        let successor = Running::campaign(&etcd, "my-service", &[]).once("joined");
        kill(first, Signal::KILL);
        // It resigns, and others lead.
        successor.event("elected");
        assert_eq!(stubborn.alive(), []);
        running.stderr.line_with("the guard of the command has ended");
        until("it is back in line", || candidates(&etcd) == 2);
        successor.stop();
        stubborn.wait_until_it_works();
        let second = guard_of(running.pid());
        assert!(second != first && stubborn.pid("command") != command);
        running.stop();
    }
}

fn once_ends_with_its_guard(etcd: Etcd) {
    let stubborn = Stubborn::new();
    let mut running = stubborn.start(&etcd, &["--once", "--ttl", "10m"]);
    kill(guard_of(running.pid()), Signal::KILL);
    assert_eq!(running.wait(), 1);
    assert_eq!(stubborn.alive(), []);
    assert_eq!(etcd.etcdctl(&["get", "--prefix", "my-service"]), "");
}

fn a_process_stopped_between_us_and_the_command_is_woken(etcd: Etcd) {
    for isolate in [false, true] {
        let work = Work::new("touch begun; read line; exit 7");
        let more = ["--once", "--ttl", "10m", "--isolate"];
        let mut command = work.command(&etcd, &more[..3 + usize::from(isolate)]);
        command.stdin(Stdio::piped());
        let mut running = Running::start(command);
        until("it works", || work.path("begun").exists());
        let guard = guard_of(running.pid());
        kill(guard, Signal::STOP);
        if isolate {
            kill(guard_of(guard), Signal::STOP);
        }
        // Nobody else could tell of its end.
        drop(running.stdin());
        assert_eq!(running.wait(), 7);
    }
}

fn a_stopped_guard_holds_up_nothing(etcd: Etcd) {
    let stubborn = Stubborn::new();
    let running = stubborn.start(&etcd, &[]);
    let guard = guard_of(running.pid());
    etcd.pause();
    // Stopped again and again, until all is over.
    until("the work is dead", || {
        // It may end at any moment.
        let _ = kill_process(Pid::from_raw(guard).unwrap(), Signal::STOP);
        stubborn.alive().is_empty()
    });
    stubborn.expect_an_end_in_time();
    etcd.resume();
    stubborn.wait_until_it_works();
    assert_ne!(guard_of(running.pid()), guard);
    running.stop();
}

fn the_command_does_not_outlive_both_guard_and_supervisor(etcd: Etcd) {
    for (guard_first, gap, isolate) in [
        (true, 0, false),
        (true, 2, true),
        (true, 20, true),
        (false, 0, true),
        (false, 1, true),
        (false, 2, false),
        (false, 20, true),
    ] {
        let stubborn = Stubborn::new();
        let election = format!("my-service-{guard_first}-{gap}");
        let mut command = run(&etcd, &election, &["--ttl", "10m"]);
        command.args(isolate.then_some("--isolate"));
        command.args(["--", "sh", "-c", &stubborn.work.script]);
        let running = Running::start(command);
        stubborn.wait_until_it_works();
        let command = stubborn.pid("command");
        let guard = guard_of(running.pid());
        let order = if guard_first { [guard, running.pid()] } else { [running.pid(), guard] };
        for pid in order {
            // The guard may have done its work, and be gone.
            if process(pid).is_some() {
                kill(pid, Signal::KILL);
            }
            sleep(Duration::from_millis(gap));
        }
        until("the command is dead", || !is_alive(command));
        if isolate {
            until("all of it is dead", || stubborn.alive().is_empty());
        }
    }
}

fn the_guard_hears_of_every_renewal(etcd: Etcd) {
    let work = Work::new("echo $$ > child; exec sleep 1000");
    let (running, child) = work.start(&etcd, &[]);
    // Each comes after a third of the lease time.
    until("the lease is renewed", || work.events_of("extended").len() >= 6);
    assert!(work.events_of("demoted").is_empty());
    assert_eq!(work.pid("child"), child);
    assert!(is_alive(child));
    running.stop();
}

fn work_that_flees_is_caught(etcd: Etcd) {
    for guard_dies in [false, true] {
        // Another process each time, in another session, whose parent is gone.
        let work = Work::new("sh flee & exec sleep 1000");
        let flee = "read up rest < /proc/uptime; echo $up >> seen; setsid sh flee &";
        fs::write(work.path("flee"), flee).unwrap();
        let election = format!("my-service-{guard_dies}");
        let mut command = run(&etcd, &election, &["--ttl", "10m"]);
        command.args(["--", "sh", "-c", &work.script]);
        let running = Running::start(command);
        until("it flees", || work.path("seen").exists());
        let successor = Running::campaign(&etcd, &election, &[]).once("joined");
        let guard = guard_of(running.pid());
        kill(if guard_dies { guard } else { running.pid() }, Signal::KILL);
        successor.event("elected");
        let seen = || fs::read_to_string(work.path("seen")).unwrap().lines().count();
        let before = seen();
        sleep(Duration::from_millis(100));
        assert_eq!(seen(), before, "it is still there");
    }
}

fn what_the_command_leaves_behind_is_asked_and_killed_before_others_lead(etcd: Etcd) {
    for (ttl, script) in [
        // In its group.
        (
            "10s",
            "(trap 'echo asked >> asked' TERM; echo here > ready; while :; do sleep 0.01; done) & \
             echo $! > left; until [ -s ready ]; do sleep 0.01; done; exit 0",
        ),
        // And out of it.
        (
            "10m",
            "(setsid sh -c 'trap \"echo asked >> asked\" TERM; echo $$ > left; \
             while :; do sleep 0.01; done' &); until [ -s left ]; do sleep 0.01; done; exit 0",
        ),
    ] {
        let work = Work::new(script);
        // Time for a trap on a busy machine.
        let arguments = ["--once", "--ttl", ttl, "--stop-timeout", "2s"];
        let mut running = Running::start(work.command(&etcd, &arguments));
        let left = work.pid("left");
        until("it is dead", || {
            let over = !work.events_of("demoted").is_empty();
            assert!(!over || !is_alive(left), "resigned while work runs: {script}");
            !is_alive(left)
        });
        assert_eq!(running.wait(), 0, "{script}");
        assert_eq!(fs::read_to_string(work.path("asked")).unwrap(), "asked\n", "{script}");
    }
}

fn who_has_left_is_asked_while_their_parents_end(etcd: Etcd) {
    const ALL: usize = 20;
    for _ in 0..4 {
        let work = Work::new(&format!("sh chain {ALL}"));
        let chain = "[ $1 = 0 ] || { setsid sh left & sh chain $(($1 - 1)) & }; wait";
        fs::write(work.path("chain"), chain).unwrap();
        let left = "trap 'echo asked >> asked; exit' TERM; echo here >> here; \
                    while :; do sleep 0.01; done";
        fs::write(work.path("left"), left).unwrap();
        let running = Running::start(work.command(&etcd, &["--ttl", "10m"]));
        let lines = |name| fs::read_to_string(work.path(name)).unwrap_or_default().lines().count();
        until("all are there", || lines("here") == ALL);
        running.stop();
        assert_eq!(lines("asked"), ALL);
    }
}

fn who_was_there_before_is_none_of_the_work(etcd: Etcd) {
    let stubborn = Stubborn::new();
    let more = ["--ttl", "10m", "--stop-timeout", "300ms", "--restart-delay", "0s"];
    let path = stubborn.work.path("stranger");
    let deed = format!("sleep 1000 & echo $! > '{}'", path.display());
    let running = Running::start(limited(&deed, &stubborn.work.command(&etcd, &more)));
    stubborn.wait_until_it_works();
    let stranger = stubborn.work.pid("stranger");
    let (pid, first) = (running.pid(), stubborn.pid("command"));
    let guard = || children(pid).iter().map(|(child, _)| *child).find(|it| *it != stranger);
    kill(guard().unwrap(), Signal::KILL);
    until("it works again", || {
        let alive = stubborn.alive();
        let is_another = |(name, pid): &(String, i32)| name == "command" && *pid != first;
        alive.len() == MEMBERS.len() && alive.iter().any(is_another)
    });
    assert!(is_alive(stranger));
    running.stop();
    assert_eq!(stubborn.alive(), []);
    assert!(is_alive(stranger));
    kill(stranger, Signal::KILL);
}

fn who_is_killed_again_and_again_lets_others_have_their_turn(etcd: Etcd) {
    for isolate in [false, true] {
        let work = Work::new("echo $$ > child; exec sleep 1000");
        let more = ["--ttl", "10m", "--restart-delay", "10m", "--isolate"];
        let (running, _) = work.start(&etcd, &more[..4 + usize::from(isolate)]);
        let guard = guard_of(running.pid());
        // The guard, or the init.
        kill(if isolate { guard_of(guard) } else { guard }, Signal::KILL);
        running.stderr.line_with("back in line in");
        assert_eq!(candidates(&etcd), 0);
        running.stop();
    }
}

fn a_second_signal_gives_nothing_back_before_the_work_is_dead(etcd: Etcd) {
    let stubborn = Stubborn::new();
    let mut running = stubborn.start(&etcd, &["--ttl", "10m", "--stop-timeout", "4m"]);
    let guard = guard_of(running.pid());
    let successor = Running::campaign(&etcd, "my-service", &[]).once("joined");
    running.signal(Signal::INT);
    running.signal(Signal::TERM);
    assert!([130, 143].contains(&running.wait()));
    stubborn.expect_an_end_before(&successor);
    until("the guard is gone", || !is_alive(guard));
    assert_eq!(leases(&etcd), 1);
    successor.stop();
}

fn a_signal_while_the_command_starts_is_not_lost(etcd: Etcd) {
    for wait in 0..20 {
        let mut command = run(&etcd, "my-service", &["--ttl", "10m"]);
        command.args(["--", "sleep", "1000"]);
        let running = Running::start(command);
        running.stderr.line_with("joined");
        // About when it is elected, and its guard starts.
        sleep(Duration::from_micros(500 * wait));
        running.stop();
    }
}

fn a_reader_of_the_commands_output_sees_its_end(etcd: Etcd) {
    let work = Work::new("echo $$ > child; echo here; exec sleep 1000");
    let (running, _) = work.start(&etcd, &["--ttl", "10m"]);
    let guard = guard_of(running.pid());
    // The guard has a while to do.
    etcd.pause();
    running.signal(Signal::KILL);
    assert_eq!(running.stdout.all(), ["here"]);
    running.stderr.all();
    assert!(is_alive(guard));
    etcd.resume();
    until("the guard is gone", || !is_alive(guard));
    assert_eq!(leases(&etcd), 0);
}

fn signals_to_all_of_us_are_the_supervisors_business(etcd: Etcd) {
    let work = Work::new(
        "trap 'echo asked >> asked; exit 0' TERM; echo $$ > child; while :; do sleep 0.01; done",
    );
    let (running, child) = work.start(&etcd, &["--ttl", "10m"]);
    let guard = guard_of(running.pid());
    for signal in [Signal::HUP, Signal::INT, Signal::QUIT, Signal::TERM, Signal::TSTP] {
        kill(guard, signal);
    }
    sleep(Duration::from_millis(50));
    assert!(is_alive(guard) && process(guard).unwrap().1 != 'T' && is_alive(child));
    // As systemd does it.
    kill(guard, Signal::TERM);
    running.stop();
    assert_eq!(process(guard), None);
    assert_eq!(fs::read_to_string(work.path("asked")).unwrap(), "asked\n");
}

fn an_isolated_command_has_the_keyboard_and_its_own_proc(etcd: Etcd) {
    let work = Work::new(
        "echo \"number $(cut -d' ' -f1 /proc/self/stat | tr -dc 0-9 | wc -c)\"; \
         while read line; do echo \"got $line\"; done",
    );
    let mut terminal = Terminal::shell(&etcd, &work.line(&["--ttl", "60s", "--isolate"]));
    terminal.line_with("number 1");
    terminal.answers("\x1a", "Stopped");
    terminal.answers("fg\ntwo\n", "got two");
    terminal.interrupt();
}

#[test]
fn isolation_that_the_system_does_not_allow_is_said_before_joining() {
    // A user namespace in which there may be no PID namespaces: nobody listens there,
    // but it is found out before that matters.
    let run = ["run", "my-service", "--isolate", "--store", "etcd://127.0.0.1:1", "--", "true"];
    let command = limited("echo 0 > /proc/sys/user/max_pid_namespaces", &incumbent(run));
    let ended = end(started_by(&["unshare", "--user", "--map-root-user"], &command));
    ended.expect(2).says(&["incumbent: --isolate: the system lets us"]);
}

#[test]
fn a_guard_that_cannot_be_is_said_before_joining() {
    let run = ["run", "my-service", "--store", "etcd://127.0.0.1:1", "--", "true"];
    let command = limited("mount -t tmpfs nothing /proc", &incumbent(run));
    let ended = end(started_by(&["unshare", "--user", "--map-root-user", "--mount"], &command));
    ended.expect(2).says(&["is /proc mounted"]);
}

#[test]
fn a_part_of_run_is_not_for_people() {
    for arguments in [&["run-guard"][..], &["run-guard", "0", "true"], &["run-init", "x"]] {
        let ended = end(incumbent(arguments)).expect(2);
        assert!(ended.stderr.contains("incumbent run ELECTION -- CMD"), "{ended:?}");
    }
}

#[test]
fn a_guard_without_orders_ends_with_its_supervisor() {
    let (supervisor, line) = UnixStream::pair().unwrap();
    let mut command = incumbent(["run-guard", "0", "true"]);
    command.stdin(OwnedFd::from(line));
    let mut guard = Running::start(command);
    drop(supervisor);
    assert_eq!(guard.wait(), 0);
}
