//! `incumbent run`: how it looks after its command, on a real etcd.

use incumbent_tests::program::parent;
use incumbent_tests::program::work::time;

use super::*;

incumbent_tests::on_each_version!(
    the_command_knows_its_term,
    the_whole_group_stops_on_a_signal,
    work_stops_in_time_while_the_store_is_away,
    a_deposed_leader_stops_its_work,
);

incumbent_tests::on_an_etcd!(
    once_passes_the_status_on,
    nothing_is_left_a_zombie,
    work_that_ignores_us_gets_the_stop_time_out_and_no_more,
    a_second_signal_kills_at_once,
    a_second_signal_asks_nobody,
    a_signal_while_it_waits_leaves_the_queue,
    work_that_crashes_at_once_lets_others_have_their_turn,
    work_that_ends_after_a_while_resigns_and_comes_back,
    ctrl_c_reaches_the_command_alone_and_ends_us_in_order,
    the_command_reads_the_terminal,
    ctrl_z_takes_us_along_and_the_foreground_brings_us_back,
    a_term_that_is_over_is_not_continued,
    a_command_that_somebody_stops_does_not_stop_us,
    a_held_terminal_holds_up_nothing,
    events_survive_a_full_disk,
    where_few_files_can_be_opened_it_works_or_does_not_join,
);

fn the_command_knows_its_term(etcd: Etcd) {
    let directory = TempDir::new().unwrap();
    let events = directory.path().join("events");
    let script = "env | grep ^INCUMBENT_ | sort; \
                  \"$0\" put /k inside --fence \"$INCUMBENT_ELECTION\"; exit 7";
    let mut command = run(&etcd, "my-service", &["--once", "--id", "me", "--contest", "race"]);
    command.arg("--events").arg(&events);
    command.args(["--", "sh", "-c", script, env!("CARGO_BIN_EXE_incumbent")]);
    command.env("INCUMBENT_CONTEST", "race");
    // Its own, which the command could not take as well.
    command.env("INCUMBENT_LISTEN", format!("unix:{}", directory.path().join("socket").display()));
    let ended = end(command).expect(7);

    let events = events_in(&events);
    let names: Vec<&str> = events.iter().map(|event| event["event"].as_str().unwrap()).collect();
    assert_eq!(names, ["joined", "elected", "demoted", "withdrawn"]);
    assert_eq!(events[2]["reason"], "resigned");
    let epoch = &events[1]["epoch"];
    let mut lines = ended.stdout.lines();
    assert_eq!(
        lines.by_ref().take(6).collect::<Vec<_>>(),
        [
            "INCUMBENT_CONTEST=race",
            "INCUMBENT_ELECTION=my-service",
            &format!("INCUMBENT_EPOCH={epoch}"),
            "INCUMBENT_ID=me",
            "INCUMBENT_LEADER_KEY=my-service",
            &format!("INCUMBENT_STORE={}", etcd.url()),
        ]
    );
    assert!(lines.next().unwrap().starts_with("written at revision "));
    assert_eq!(lines.next(), None, "standard output is the command's");
    assert!(ended.stderr.contains("elected: leading my-service"), "{ended:?}");
    assert_eq!(etcd.etcdctl(&["get", "--print-value-only", "/k"]).trim(), "inside");
    assert_eq!(etcd.etcdctl(&["get", "--prefix", "my-service"]), "");
}

fn the_whole_group_stops_on_a_signal(etcd: Etcd) {
    let work = Work::new("sleep 1000 & echo $! > grandchild; echo $$ > child; wait");
    let running = Running::start(work.command(&etcd, &[]));
    let (child, grandchild) = (work.pid("child"), work.pid("grandchild"));
    running.stop();
    assert!(!is_alive(child) && !is_alive(grandchild));
    assert_eq!(work.events().last().unwrap()["event"], "withdrawn");
    assert_eq!(etcd.etcdctl(&["get", "--prefix", "my-service"]), "");
}

fn work_stops_in_time_while_the_store_is_away(etcd: Etcd) {
    let work = Work::new(
        "trap 'echo asked >> asked' TERM; echo $$ > child; while :; do : > beat; sleep 0.01; done",
    );
    // A shell on a busy machine has 0.8 s to hear that it is asked.
    let (running, child) = work.start(&etcd, &["--ttl", "4s"]);
    etcd.pause();
    until("the work is dead", || !is_alive(child));
    // It was asked first, and died by force before anybody else may lead.
    assert_eq!(fs::read_to_string(work.path("asked")).unwrap(), "asked\n");
    work.expect_an_end_in_time();
    etcd.resume();
    // The next term, with the next command.
    until("it is started again", || work.pid("child") != child);
    running.stop();
}

fn a_deposed_leader_stops_its_work(etcd: Etcd) {
    let work = Work::new(
        "trap 'echo asked >> asked; exit 0' TERM; echo $$ > child; while :; do sleep 0.01; done",
    );
    let (running, child) = work.start(&etcd, &["--ttl", "60s"]);
    end(on(&etcd, ["depose", "my-service"])).expect(0);
    until("it is started again", || work.pid("child") != child);
    assert!(!is_alive(child));
    assert_eq!(fs::read_to_string(work.path("asked")).unwrap(), "asked\n");
    assert_eq!(work.events_of("demoted")[0]["reason"], "deposed");
    running.stop();
}

fn once_passes_the_status_on(etcd: Etcd) {
    for (script, status, isolate) in [
        ("exit 0", 0, false),
        ("exit 7", 7, false),
        ("kill -9 $$", 137, false),
        ("kill -64 $$", 192, false),
        ("exit 7", 7, true),
        ("kill -9 $$", 137, true),
    ] {
        let mut command = run(&etcd, "my-service", &["--once"]);
        command.args(isolate.then_some("--isolate"));
        command.args(["--", "sh", "-c", script]);
        end(command).expect(status);
        assert_eq!(etcd.etcdctl(&["get", "--prefix", "my-service"]), "");
    }
    // A leadership that is lost is another story than the command's end.
    let work = Work::new("echo $$ > child; exec sleep 1000");
    let (mut running, _) = work.start(&etcd, &["--once"]);
    end(on(&etcd, ["depose", "my-service"])).expect(0);
    assert_eq!(running.wait(), 1);
    // And so is a signal to us.
    let work = Work::new("echo $$ > child; exec sleep 1000");
    let (running, _) = work.start(&etcd, &["--once"]);
    running.stop();
}

fn nothing_is_left_a_zombie(etcd: Etcd) {
    // A process that leaves the group, and whose parent does not wait.
    let work = Work::new(
        "sh -c 'setsid sh -c \"echo \\$\\$ > orphan; sleep 0.05\" &'; echo $$ > child; exec sleep 1000",
    );
    let running = Running::start(work.command(&etcd, &[]));
    let (orphan, child) = (work.pid("orphan"), work.pid("child"));
    until("the orphan is gone", || process(orphan).is_none());
    let guard = guard_of(running.pid());
    for (parent, only) in [(running.pid(), guard), (guard, child)] {
        until("only the guard and the command are left", || {
            children(parent).iter().all(|(pid, state)| *pid == only && *state != 'Z')
        });
    }
    running.stop();
    assert_eq!(process(guard), None);
}

fn work_that_ignores_us_gets_the_stop_time_out_and_no_more(etcd: Etcd) {
    let work = Work::new("trap '' TERM; echo $$ > child; while :; do sleep 0.01; done");
    let arguments = ["--ttl", "60s", "--stop-timeout", "500ms"];
    let (mut running, child) = work.start(&etcd, &arguments);
    let asked = SystemTime::now();
    running.signal(Signal::TERM);
    until("it is dead", || !is_alive(child));
    let took = asked.elapsed().unwrap();
    assert!((Duration::from_millis(500)..Duration::from_secs(5)).contains(&took), "{took:?}");
    assert_eq!(running.wait(), 0);
}

fn a_second_signal_kills_at_once(etcd: Etcd) {
    let work =
        Work::new("trap 'echo asked >> asked' TERM; echo $$ > child; while :; do sleep 0.01; done");
    let (mut running, child) = work.start(&etcd, &["--ttl", "10m"]);
    running.signal(Signal::TERM);
    until("it was asked", || work.path("asked").exists());
    running.signal(Signal::INT);
    assert_eq!(running.wait(), 130);
    until("the work is dead", || !is_alive(child));
}

fn a_second_signal_asks_nobody(etcd: Etcd) {
    let work = Work::new("trap '' TERM; echo $$ > child; while :; do sleep 0.01; done");
    let arguments = ["--ttl", "10m", "--command-timeout", "10m"];
    let (mut running, child) = work.start(&etcd, &arguments);
    etcd.pause();
    running.signal(Signal::INT);
    running.signal(Signal::TERM);
    assert!([130, 143].contains(&running.wait()));
    until("the work is dead", || !is_alive(child));
    etcd.resume();
}

fn a_signal_while_it_waits_leaves_the_queue(etcd: Etcd) {
    let leader = Running::campaign(&etcd, "my-service", &[]).once("elected");
    let work = Work::new("echo $$ > child; exec sleep 1000");
    let mut running = Running::start(work.command(&etcd, &[]));
    running.stderr.line_with("joined");
    running.signal(Signal::HUP);
    assert_eq!(running.wait(), 0);
    assert!(!work.path("child").exists());
    assert_eq!(candidates(&etcd), 1);
    leader.stop();
}

fn work_that_crashes_at_once_lets_others_have_their_turn(etcd: Etcd) {
    let work = Work::new("exit 3");
    let running = Running::start(work.command(&etcd, &["--restart-delay", "500ms"]));
    running.stderr.line_with("ended with status 3");
    running.stderr.line_with("back in line in");
    running.stderr.line_with("withdrawn");
    running.stderr.line_with("ended with status 3");
    running.stderr.line_with("ended with status 3");
    let times: Vec<SystemTime> = work.events_of("joined").iter().map(time).collect();
    let gaps: Vec<Duration> =
        times.windows(2).map(|pair| pair[1].duration_since(pair[0]).unwrap()).collect();
    assert!(gaps[0] >= Duration::from_millis(500), "{gaps:?}");
    assert!(gaps[1] >= Duration::from_millis(1000), "{gaps:?}");
    running.stop();
}

fn work_that_ends_after_a_while_resigns_and_comes_back(etcd: Etcd) {
    let work = Work::new("echo $$ > child; sleep 2.1");
    let (running, child) = work.start(&etcd, &["--restart-delay", "1m"]);
    let other = Running::campaign(&etcd, "my-service", &[]).once("joined");
    other.event("elected");
    assert!(!is_alive(child));
    // It stands in line again without a pause.
    until("both are in line", || candidates(&etcd) == 2);
    other.stop();
    until("it leads again", || work.pid("child") != child);
    running.stop();
}

fn ctrl_c_reaches_the_command_alone_and_ends_us_in_order(etcd: Etcd) {
    let work = Work::new(
        "trap 'echo interrupted > interrupted; trap - INT; kill -INT $$' INT; cat > typed & echo ready; while :; do sleep 0.01; done",
    );
    let mut terminal = Terminal::start(&etcd, &work.line(&[]));
    terminal.line_with("ready");
    terminal.answers("\x03", "withdrawn");
    assert_eq!(terminal.wait(), 0);
    assert_eq!(fs::read_to_string(work.path("interrupted")).unwrap(), "interrupted\n");
    assert_eq!(etcd.etcdctl(&["get", "--prefix", "my-service"]), "");
}

fn the_command_reads_the_terminal(etcd: Etcd) {
    let work = Work::new("read line; echo \"got $line\"; exit 5");
    let mut terminal = Terminal::start(&etcd, &work.line(&["--once"]));
    terminal.line_with("elected");
    terminal.answers("something\n", "got something");
    assert_eq!(terminal.wait(), 5);
}

fn ctrl_z_takes_us_along_and_the_foreground_brings_us_back(etcd: Etcd) {
    let work = Work::new("echo $$ > child; while read line; do echo \"got $line\"; done");
    let mut terminal = Terminal::shell(&etcd, &work.line(&["--ttl", "60s"]));
    let child = work.pid("child");
    terminal.answers("one\n", "got one");
    terminal.answers("\x1a", "Stopped");
    let supervisor = parent(parent(child));
    for stopped in [child, supervisor] {
        assert_eq!(process(stopped).unwrap().1, 'T');
    }
    terminal.type_in("fg\n");
    until("both run", || [child, supervisor].iter().all(|pid| process(*pid).unwrap().1 != 'T'));
    terminal.answers("two\n", "got two");
    terminal.interrupt();
}

fn a_term_that_is_over_is_not_continued(etcd: Etcd) {
    let work = Work::new("echo $$ > child; while read line; do echo \"got $line\" >> lines; done");
    let mut terminal = Terminal::shell(&etcd, &work.line(&[]));
    let child = work.pid("child");
    terminal.answers("\x1a", "Stopped");
    let other = Running::campaign(&etcd, "my-service", &[]).once("elected");
    terminal.type_in("fg\n");
    until("the work is dead", || !is_alive(child));
    assert!(!work.path("lines").exists());
    terminal.line_with("demoted");
    // We wait our turn now, and the keyboard is ours.
    terminal.interrupt();
    other.stop();
}

fn a_command_that_somebody_stops_does_not_stop_us(etcd: Etcd) {
    let work = Work::new(
        "trap 'echo asked >> asked; exit 0' TERM; echo $$ > child; while :; do sleep 0.01; done",
    );
    let (running, child) = work.start(&etcd, &[]);
    kill(child, Signal::STOP);
    // A lease time and more.
    until("the lease is renewed", || work.events_of("extended").len() >= 4);
    running.stop();
    assert!(work.path("asked").exists(), "it was woken to stop");
}

fn a_held_terminal_holds_up_nothing(etcd: Etcd) {
    let work = Work::new("trap '' TERM; echo $$ > child; while :; do : > beat; sleep 0.01; done");
    // Standard error is a pipe that nobody reads, and that is full.
    let (reader, writer) = std::io::pipe().unwrap();
    let mut filler = Command::new("head")
        .args(["-c", "1000000", "/dev/zero"])
        .stdout(writer.try_clone().unwrap())
        .spawn()
        .unwrap();
    let mut command = work.command(&etcd, &[]);
    command.stderr(writer).stdout(Stdio::null());
    let mut running = command.spawn().unwrap();
    let child = work.pid("child");
    etcd.pause();
    until("the work is dead", || !is_alive(child));
    work.expect_an_end_in_time();
    etcd.resume();
    kill(i32::try_from(running.id()).unwrap(), Signal::TERM);
    let ended = eventually("it ends", || running.try_wait().unwrap());
    assert_eq!(status_of(ended), 0);
    drop(reader);
    filler.wait().unwrap();
}

/// The events' file system is full while it works, and is freed.
fn events_survive_a_full_disk(etcd: Etcd) {
    let directory = TempDir::new().unwrap();
    let folder = directory.path().to_str().unwrap();
    // To the last byte of the last page.
    let script = "cat /dev/zero > fill; while echo; do :; done >> events; echo full; read go; \
                  rm fill; echo freed; exec sleep 1000";
    let events = ["-o", "json", "--events", "events", "--", "sh", "-c", script];
    let full = format!("mount -t tmpfs -o size=64k nothing {folder} && cd {folder}");
    let command = limited(&full, &run(&etcd, "my-service", &events));
    let mut command = started_by(&["unshare", "--user", "--map-root-user", "--mount"], &command);
    command.stdin(Stdio::piped());
    let mut running = Running::start(command);
    let path = format!("/proc/{}/root{folder}/events", running.pid());
    let events = || {
        let text = fs::read_to_string(&path).unwrap();
        let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
        let lines = whole.lines().filter(|line| !line.is_empty());
        lines.map(|line| serde_json::from_str(line).expect(line)).collect::<Vec<Value>>()
    };
    running.stdout.line_with("full");
    let said = running.stderr.line_with("--events events cannot be written");
    assert!(said.contains("No space left on device"), "{said}");
    let before = events().len();
    for _ in 0..3 {
        running.stderr.event("extended");
    }
    assert_eq!(events().len(), before, "nothing has room");
    std::io::Write::write_all(&mut running.stdin(), b"go\n").unwrap();
    running.stderr.line_with("--events events is written again");
    until("what was kept, and what is new, is written", || events().len() > before + 2);
    running.signal(Signal::TERM);
    running.stderr.line_with("withdrawn");
    assert_eq!(running.wait(), 0);
    let told = running.stderr.all();
    let sentences = told.iter().filter(|line| line.contains("cannot be written"));
    assert_eq!(sentences.count(), 1, "{told:#?}");
}

/// Enough is found before joining, and is enough.
fn where_few_files_can_be_opened_it_works_or_does_not_join(etcd: Etcd) {
    for files in [20, 30, 34, 36, 38, 42, 50] {
        let command = run(&etcd, "my-service", &["--once", "--", "true"]);
        let ended = end(limited(&format!("ulimit -n {files}"), &command));
        println!("{files} files: {}", ended.status);
        if files < 35 || ended.status == 2 {
            let ended = ended.expect(2);
            assert!(ended.stderr.contains("ulimit -n"), "{ended:?}");
            assert!(!ended.stderr.contains("joined"), "{ended:?}");
        } else {
            ended.expect(0);
        }
    }
}
