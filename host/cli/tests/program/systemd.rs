//! The unit `incumbent@.service`, under a real systemd: process 1 of namespaces of its own, on this
//! machine's files with a layer above them that is thrown away.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use super::*;

incumbent_tests::on_an_etcd!(
    a_leader_that_is_killed_is_followed_at_once,
    a_leader_that_hangs_is_ended_by_the_watchdog,
    a_leader_that_is_stopped_is_followed_at_once,
);

/// Much less than the lease time, on a machine that is busy.
const AT_ONCE: Duration = Duration::from_secs(2);
const LEASE_TIME: &str = "15s";

const SERVICE: &str = "incumbent@jobs.service";
const UNIT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/systemd/incumbent@.service");
const USER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/systemd/sysusers.conf");

/// Makes what systemd has as its root, in the directory $1, with the program $2, the unit $3 and
/// its user $4, and becomes it.
const BOOT: &str = r#"
set -e
mount -t tmpfs tmpfs "$1"
cd "$1"
mkdir upper work root
mount -t overlay -o "lowerdir=/,upperdir=$1/upper,workdir=$1/work" overlay root
cd root
mount -t proc proc proc
mount -t sysfs sysfs sys
mount -t cgroup2 cgroup2 sys/fs/cgroup
mount -t tmpfs tmpfs run
mount -t tmpfs tmpfs dev
for device in null zero full random urandom tty; do
    touch dev/$device
    mount --bind /dev/$device dev/$device
done
mkdir dev/pts dev/shm dev/mqueue dev/hugepages
mount -t devpts -o newinstance,ptmxmode=0666 devpts dev/pts
ln -s pts/ptmx dev/ptmx
# No service but ours.
mount -t tmpfs tmpfs "$(realpath lib/systemd/system)"
rm -rf etc/systemd etc/incumbent
mkdir -p etc/systemd/system/incumbent@.service.d etc/incumbent mnt
cd etc/systemd/system
for target in sysinit basic shutdown network-online machine; do
    printf '[Unit]\nDefaultDependencies=no\n' >$target.target
done
cp "$3" .
printf '[Service]\nStandardOutput=append:/output\nStandardError=append:/output\n' \
    >incumbent@.service.d/output.conf
cd ../../..
touch usr/bin/incumbent
mount --bind "$2" usr/bin/incumbent
systemd-sysusers --root=. - <"$4"
pivot_root . mnt
umount -l mnt
exec env -i container=incumbent PATH="$PATH" /lib/systemd/systemd \
    --unit=machine.target --log-target=null --show-status=no
"#;

/// A systemd, until it is dropped.
struct Machine {
    process: Running,
    cgroup: PathBuf,
    _directory: TempDir,
}

impl Machine {
    /// None if there can be none here, and nobody insists.
    fn boot() -> Option<Self> {
        match Self::try_boot() {
            Ok(machine) => Some(machine),
            Err(reason) => {
                let wanted = std::env::var_os("INCUMBENT_ALL_EXAMPLES").is_some();
                assert!(!wanted, "no systemd can run here: {reason}");
                println!("skipped: no systemd can run here: {reason}");
                None
            }
        }
    }

    fn try_boot() -> Result<Self, String> {
        if !rustix::process::geteuid().is_root() {
            return Err("this needs root".into());
        }
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
        let groups = mounts.lines().find_map(|line| {
            let mut fields = line.split(' ');
            fields.nth(1).filter(|_| fields.next() == Some("cgroup2"))
        });
        let groups = groups.ok_or("no cgroups of version 2 are mounted")?;
        let name = format!("incumbent-test-{}-{number}", std::process::id());
        let cgroup = Path::new(groups).join(name);
        fs::create_dir(&cgroup).map_err(|error| format!("{}: {error}", cgroup.display()))?;
        let directory = TempDir::new().unwrap();
        let mut shell = Command::new("sh");
        let enter = "echo $$ >\"$0/cgroup.procs\" && exec unshare \"$@\"";
        shell.args(["-c", enter]).arg(&cgroup);
        shell.args(["--mount", "--pid", "--cgroup", "--ipc", "--uts", "--fork", "--kill-child"]);
        shell.args(["sh", "-c", BOOT, "boot"]).arg(directory.path());
        shell.arg(incumbent_tests::program::path()).args([UNIT, USER]).stdin(Stdio::null());
        let process = Running::start(shell);
        let mut machine = Self { process, cgroup, _directory: directory };
        let has_booted = eventually("systemd answers", || {
            if machine.process.try_status().is_some() {
                return Some(false);
            }
            machine.init()?;
            let said = end(machine.inside("systemctl", &["is-system-running"])).stdout;
            (said.trim_end() == "running").then_some(true)
        });
        if has_booted { Ok(machine) } else { Err(machine.process.stderr.all().join(" ")) }
    }

    /// Systemd's number out here.
    fn init(&self) -> Option<i32> {
        Some(children(self.process.pid()).first()?.0)
    }

    fn path(&self, inside: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/root{inside}", self.init().unwrap()))
    }

    fn inside(&self, program: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--target={}", self.init().unwrap())).arg("--all");
        command.arg("--").arg(program).args(arguments).stdin(Stdio::null());
        command
    }

    #[track_caller]
    fn systemctl(&self, arguments: &[&str]) -> String {
        let ended = end(self.inside("systemctl", arguments));
        let output = fs::read_to_string(self.path("/output")).unwrap_or_default();
        assert_eq!(ended.status, 0, "{ended:?}\n{output}");
        ended.stdout.trim_end().to_owned()
    }

    fn property(&self, name: &str) -> String {
        self.systemctl(&["show", "--value", "--property", name, SERVICE])
    }

    /// The processes of the service: their numbers out here, and their names.
    fn numbers_and_names(&self) -> Vec<(i32, String)> {
        let service = self.cgroup.join("system.slice/system-incumbent.slice").join(SERVICE);
        let all = fs::read_to_string(service.join("cgroup.procs")).unwrap_or_default();
        let named = |pid: &str| {
            let name = fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
            Some((pid.parse().ok()?, name.trim_end().to_owned()))
        };
        all.lines().filter_map(named).collect()
    }

    fn processes(&self) -> Vec<String> {
        self.numbers_and_names().into_iter().map(|(_, name)| name).collect()
    }

    fn works(&self) {
        let all = ["incumbent", "incumbent-guard", "sh", "sleep"];
        until("it works", || self.processes() == all);
    }

    fn start(&self, variables: &str, drop_in: &str) {
        fs::write(self.path("/etc/incumbent/jobs.env"), variables).unwrap();
        let folder = self.path("/etc/systemd/system/incumbent@.service.d");
        fs::write(folder.join("test.conf"), drop_in).unwrap();
        self.systemctl(&["start", SERVICE]);
    }

    /// A service that leads, and a candidate outside that waits.
    fn leads(&self, etcd: &Etcd, drop_in: &str) -> Running {
        let variables = format!(
            "INCUMBENT_STORE={}\nINCUMBENT_TTL={LEASE_TIME}\nINCUMBENT_ID=service\n\
             INCUMBENT_COMMAND=/bin/sh -c 'setsid sleep 1000 & wait'\n",
            etcd.url()
        );
        self.start(&variables, drop_in);
        let first = end(on(etcd, ["candidates", "jobs"])).expect(0).stdout;
        assert!(first.contains("  service  "), "it has started before it is in line: {first}");
        self.works();
        until("it says that it leads", || {
            self.property("StatusText").starts_with("leads in epoch ")
        });
        let standby = ["campaign", "jobs", "--id", "standby", "--ttl", LEASE_TIME, "-o", "json"];
        Running::start(on(etcd, standby)).once("joined")
    }

    /// Restarted, it waits behind the candidate outside.
    fn is_back_in_line(&self) {
        until("it is back in line", || {
            self.property("StatusText").starts_with("waits, next in line; standby leads in epoch ")
        });
        assert_eq!(self.property("NRestarts"), "1");
        assert_eq!(self.processes(), ["incumbent"]);
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.process.signal(Signal::KILL);
        let since = Instant::now();
        while remove(&self.cgroup).is_err() && since.elapsed() < BUSY {
            sleep(Duration::from_millis(5));
        }
    }
}

/// Removes a control group that has no processes any more.
fn remove(group: &Path) -> std::io::Result<()> {
    for entry in fs::read_dir(group)?.flatten() {
        if entry.path().is_dir() {
            remove(&entry.path())?;
        }
    }
    fs::remove_dir(group)
}

#[track_caller]
fn is_followed_at_once(machine: &Machine, standby: &Running, since: Instant) {
    standby.event("elected");
    let gap = since.elapsed();
    println!("the next one led after {gap:?}");
    assert!(gap < AT_ONCE, "{gap:?}");
    let left = machine.processes();
    assert!(!left.contains(&"sleep".to_owned()), "{left:?}");
}

/// Its guard gives the lease back. Without a guard, nothing of the work is left either.
fn a_leader_that_is_killed_is_followed_at_once(etcd: Etcd) {
    let Some(machine) = Machine::boot() else { return };
    let standby = machine.leads(&etcd, "");
    let since = Instant::now();
    machine.systemctl(&["kill", "--kill-whom=main", "--signal=KILL", SERVICE]);
    is_followed_at_once(&machine, &standby, since);
    machine.is_back_in_line();

    standby.stop();
    machine.works();
    let all = machine.numbers_and_names();
    for (process, _) in all.iter().filter(|(_, name)| name.starts_with("incumbent")) {
        kill(*process, Signal::KILL);
    }
    until("the work has gone", || !all.iter().any(|(process, _)| is_alive(*process)));
    until("it is in line again", || machine.processes() == ["incumbent"]);
}

fn a_leader_that_hangs_is_ended_by_the_watchdog(etcd: Etcd) {
    let Some(machine) = Machine::boot() else { return };
    let standby = machine.leads(&etcd, "[Service]\nWatchdogSec=1s\n");
    let since = Instant::now();
    machine.systemctl(&["kill", "--kill-whom=main", "--signal=STOP", SERVICE]);
    is_followed_at_once(&machine, &standby, since);
    assert_eq!(machine.property("Result"), "watchdog");
    machine.is_back_in_line();
    standby.stop();
}

fn a_leader_that_is_stopped_is_followed_at_once(etcd: Etcd) {
    let Some(machine) = Machine::boot() else { return };
    let standby = machine.leads(&etcd, "");
    let since = Instant::now();
    machine.systemctl(&["stop", SERVICE]);
    is_followed_at_once(&machine, &standby, since);
    assert_eq!(machine.property("ActiveState"), "inactive");
    assert_eq!(machine.property("Result"), "success");
    assert!(machine.processes().is_empty());
    standby.stop();
}

/// As the manual says: `--isolate`, and where `local` is.
#[test]
fn the_unit_is_hardened_and_isolates() {
    let Some(machine) = Machine::boot() else { return };
    let arguments = ["security", "--offline=yes", "--threshold=30", "--no-pager", UNIT];
    let mut judged = Command::new("systemd-analyze");
    judged.args(arguments);
    end(judged).expect(0);
    let manual = concat!(env!("CARGO_MANIFEST_DIR"), "/../../OPERATING.md");
    let manual = fs::read_to_string(manual).unwrap();
    let drop_in = manual.split("```").find_map(|block| block.strip_prefix("ini\n"));
    let command = "echo \"it is $$ and $(readlink /proc/self)\"; exec sleep 1000";
    let variables = format!("INCUMBENT_STORE=local\nINCUMBENT_COMMAND=/bin/sh -c '{command}'\n");
    machine.start(&variables, drop_in.unwrap());
    let output = machine.path("/output");
    let told = eventually("it works", || {
        let told = fs::read_to_string(&output).ok()?;
        told.contains("it is 2 and ").then_some(told)
    });
    assert!(told.contains("it is 2 and 3\n"), "{told}");
    assert!(told.contains("/var/lib/incumbent/.local/state/incumbent/local.db"), "{told}");
    machine.systemctl(&["stop", SERVICE]);
}
