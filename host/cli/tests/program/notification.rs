//! What systemd is told: a socket stands for it.

use std::ffi::OsString;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::PathBuf;
use std::time::Instant;

use incumbent_tests::wait::LIMIT;
use nix::sys::ptrace;
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;

use super::*;

incumbent_tests::on_an_etcd!(who_never_was_in_line_never_was_ready);

/// The socket of one service, and what was told there.
struct Manager {
    socket: UnixDatagram,
    name: OsString,
    told: Vec<String>,
}

impl Manager {
    fn on(path: PathBuf) -> Self {
        let socket = UnixDatagram::bind(&path).unwrap();
        Self { socket, name: path.into(), told: Vec::new() }
    }

    fn abstract_() -> Self {
        let name = format!("incumbent-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let socket = UnixDatagram::bind_addr(&address).unwrap();
        Self { socket, name: format!("@{name}").into(), told: Vec::new() }
    }

    /// The service, as systemd would start it.
    fn service(&self, mut command: Command) -> Command {
        command.env("NOTIFY_SOCKET", &self.name);
        command
    }

    fn next_within(&mut self, wait: Duration) -> Option<String> {
        self.socket.set_read_timeout(Some(wait)).unwrap();
        let mut message = [0; 4096];
        let length = self.socket.recv(&mut message).ok()?;
        let message = String::from_utf8(message[..length].to_vec()).unwrap();
        self.told.push(message.clone());
        Some(message)
    }

    /// Waits for a message with this beginning and this end.
    #[track_caller]
    fn hears(&mut self, beginning: &str, end: &str) -> String {
        loop {
            let message = self.next_within(LIMIT);
            let message = message.unwrap_or_else(|| panic!("no {beginning}: {:#?}", self.told));
            if message.starts_with(beginning) && message.ends_with(end) {
                return message;
            }
        }
    }

    /// All that was told, once the service has ended.
    fn all(mut self) -> Vec<String> {
        while self.next_within(Duration::from_millis(1)).is_some() {}
        self.told
    }
}

/// The program on the store of this directory.
fn in_directory(directory: &TempDir, arguments: &[&str]) -> Command {
    let mut command = incumbent(arguments);
    command.env("INCUMBENT_STORE", format!("sqlite:{}/its.db", directory.path().display()));
    command
}

#[test]
fn each_instance_tells_its_role_and_who_leads() {
    let directory = TempDir::new().unwrap();
    let campaign = |id| in_directory(&directory, &["campaign", "jobs", "--ttl", "2s", "--id", id]);
    let [mut one, mut two] = ["one", "two"].map(|name| Manager::on(directory.path().join(name)));
    let mut observer = Manager::abstract_();

    let first = Running::start(one.service(campaign("one")));
    one.hears("READY=1", "");
    let leads = one.hears("STATUS=leads in epoch ", " s left");
    let (leads, left) = leads.split_once(", ").unwrap();
    assert!(left.starts_with(['1', '2']), "{left}");
    let epoch = leads.strip_prefix("STATUS=leads in ").unwrap();
    let second = Running::start(two.service(campaign("two")));
    two.hears("READY=1", "");
    two.hears(&format!("STATUS=waits, next in line; one leads in {epoch}"), "");
    let observing = in_directory(&directory, &["observe", "jobs"]);
    let observing = Running::start(observer.service(observing));
    observer.hears(&format!("STATUS=one leads in {epoch}"), "");
    // Renewals move the end.
    one.hears("STATUS=leads in ", " s left");

    first.stop();
    two.hears("STATUS=leads in ", " s left");
    observer.hears("STATUS=two leads in ", "");
    second.stop();
    observing.stop();
    for told in [one.all(), two.all(), observer.all()] {
        for message in ["READY=1", "STOPPING=1"] {
            assert_eq!(told.iter().filter(|one| *one == message).count(), 1, "{told:#?}");
        }
        assert!(!told.iter().any(|one| one.starts_with("WATCHDOG")), "{told:#?}");
    }
}

/// It has reached the store, which does not let it in.
fn who_never_was_in_line_never_was_ready(etcd: Etcd) {
    etcd.enable_users("ann", "password", "my-service");
    let directory = TempDir::new().unwrap();
    let manager = Manager::on(directory.path().join("socket"));
    let password = directory.path().join("password");
    write_secret(&password, "password");
    let mut command = on(&etcd, ["campaign", "theirs", "--user", "ann", "--password-file"]);
    command.arg(password);
    end(manager.service(command)).expect(4);
    let told = manager.all();
    assert!(!told.iter().any(|message| message.contains("READY")), "{told:?}");
    assert!(told.contains(&"STOPPING=1".into()), "{told:?}");
}

#[test]
fn the_watchdog_is_fed_by_turns_of_the_driver_alone() {
    let watchdog = Duration::from_millis(1_200);
    let directory = TempDir::new().unwrap();
    let of = |manager: &Manager, pid: &str, watchdog: Duration| {
        let mut command = manager.service(in_directory(&directory, &["observe", "jobs"]));
        command.env("WATCHDOG_USEC", watchdog.as_micros().to_string());
        Running::start(limited(&format!("export WATCHDOG_PID={pid}"), &command))
    };
    let mut manager = Manager::on(directory.path().join("socket"));
    let another = Manager::on(directory.path().join("another"));
    let unwatched = Manager::on(directory.path().join("unwatched"));
    let observer = of(&manager, "$$", watchdog);
    let others = [of(&another, "1", watchdog), of(&unwatched, "$$", Duration::ZERO)];
    // Nothing happens in the election, and its driver turns all the same.
    manager.hears("WATCHDOG=1", "");
    let since = Instant::now();
    manager.hears("WATCHDOG=1", "");
    manager.hears("WATCHDOG=1", "");
    assert!(since.elapsed() < watchdog, "{:?}", since.elapsed());

    // Its main thread alone, where the driver is.
    let driver = Pid::from_raw(observer.pid());
    ptrace::seize(driver, ptrace::Options::empty()).unwrap();
    ptrace::interrupt(driver).unwrap();
    waitpid(driver, Some(WaitPidFlag::__WALL)).unwrap();
    while manager.next_within(Duration::from_millis(1)).is_some() {}
    let told = manager.next_within(watchdog / 2);
    assert_eq!(told, None, "it stands still");
    ptrace::detach(driver, None).unwrap();
    manager.hears("WATCHDOG=1", "");
    observer.stop();
    for other in others {
        other.stop();
    }
    for told in [another.all(), unwatched.all()] {
        assert!(told.contains(&"READY=1".into()), "{told:?}");
        assert!(!told.contains(&"WATCHDOG=1".into()), "{told:?}");
    }
}

/// Otherwise the work could say that the service is ready.
#[test]
fn the_work_and_its_guard_do_not_inherit_what_systemd_asks_for() {
    let directory = TempDir::new().unwrap();
    let manager = Manager::on(directory.path().join("socket"));
    let script = "tr '\\0' '\\n' </proc/$PPID/environ; echo its own:; env";
    let run = ["run", "jobs", "--once", "--", "sh", "-c", script];
    let run = || {
        let mut command = in_directory(&directory, &run);
        command.env("WATCHDOG_USEC", "1000000000");
        command
    };
    let ended = end(manager.service(run())).expect(0);
    let (guard, work) = ended.stdout.split_once("its own:").unwrap();
    for environment in [guard, work] {
        assert!(environment.contains("INCUMBENT_EPOCH="), "{environment}");
        assert!(!environment.contains("NOTIFY_SOCKET"), "{environment}");
        assert!(!environment.contains("WATCHDOG_"), "{environment}");
    }
    let told = manager.all();
    assert!(told.contains(&"READY=1".into()), "{told:?}");

    // A shell may have inherited the variable from a service that is no more.
    let mut command = run();
    command.env("NOTIFY_SOCKET", directory.path().join("nobody"));
    let ended = end(command).expect(0);
    assert!(ended.stderr.contains("systemd is told nothing"), "{ended:?}");
}
