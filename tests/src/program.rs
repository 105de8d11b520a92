//! The program under test: started, read, signalled, and ended by its handle.

#![expect(missing_docs, reason = "their names say what a test does with the program")]

pub mod work;

use std::env;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Output, Stdio};
use std::sync::Arc;
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::etcd::Etcd;
use crate::wait::LIMIT;

/// The program, without a variable of ours.
pub fn incumbent<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) -> Command {
    without_variables(Command::new(path()), arguments)
}

/// Where cargo has put the program `incumbent`, in a test of it.
#[track_caller]
pub fn path() -> PathBuf {
    path_of("incumbent")
}

/// Where cargo has put the program that this test is of. Panics where cargo has built no
/// such program for the test.
#[track_caller]
pub fn path_of(program: &str) -> PathBuf {
    let path = env::var_os(format!("CARGO_BIN_EXE_{program}"));
    path.expect("cargo runs a test of the program").into()
}

/// A command without a variable of ours.
pub fn without_variables<S: AsRef<OsStr>>(
    mut command: Command,
    arguments: impl IntoIterator<Item = S>,
) -> Command {
    for (name, _) in env::vars_os() {
        if name.to_string_lossy().starts_with("INCUMBENT_") {
            command.env_remove(name);
        }
    }
    command.args(arguments).stdin(Stdio::null());
    command
}

/// A file that its owner alone may read.
pub fn write_secret(path: &Path, text: &str) {
    let mut file = File::options();
    let file = file.write(true).create(true).truncate(true).mode(0o600).open(path);
    file.unwrap().write_all(text.as_bytes()).unwrap();
}

/// The program on this etcd.
pub fn on<S: AsRef<OsStr>>(etcd: &Etcd, arguments: impl IntoIterator<Item = S>) -> Command {
    let mut command = incumbent(arguments);
    command.env("INCUMBENT_STORE", etcd.url());
    command
}

/// The command, started by another one.
pub fn started_by(starter: &[&str], command: &Command) -> Command {
    let mut whole = Command::new(starter[0]);
    whole.args(&starter[1..]).arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => whole.env(name, value),
            None => whole.env_remove(name),
        };
    }
    whole.stdin(Stdio::null());
    whole
}

/// The command, started by a shell that has done this.
pub fn limited(deed: &str, command: &Command) -> Command {
    started_by(&["bash", "-c", &format!("{deed} && exec \"$0\" \"$@\"")], command)
}

/// Starts the example of this name, on this etcd. Panics where cargo has not built it.
pub fn example(etcd: &Etcd, name: &str, arguments: &[&str]) -> Running {
    // Cargo builds the examples of a package with its tests, in `examples` beside `deps`.
    let test = env::current_exe().expect("a test");
    let built = test.ancestors().nth(2).expect("two directories");
    let mut example = Command::new(built.join("examples").join(name));
    example.args(arguments).env("INCUMBENT_STORE", etcd.url());
    Running::start(example)
}

/// Runs it to its end: its status, and what it has printed.
pub fn end(mut command: Command) -> End {
    let Output { status, stdout, stderr } = command.output().expect("the program runs");
    End {
        status: status_of(status),
        stdout: String::from_utf8_lossy(&stdout).into_owned(),
        stderr: String::from_utf8_lossy(&stderr).into_owned(),
    }
}

#[derive(Debug)]
pub struct End {
    pub status: i32,
    pub stdout: String,
    pub stderr: String,
}

impl End {
    #[track_caller]
    pub fn expect(self, status: i32) -> Self {
        assert_eq!(self.status, status, "{self:?}");
        assert!(!self.stderr.contains("panicked"), "{self:?}");
        self
    }

    /// It says all of this on standard error, in one sentence.
    #[track_caller]
    pub fn says(self, parts: &[&str]) -> Self {
        assert!(self.stderr.starts_with("incumbent: "), "{self:?}");
        assert_eq!(self.stderr.lines().count(), 1, "{self:?}");
        for part in parts {
            assert!(self.stderr.contains(part), "no {part:?} in {self:?}");
        }
        self
    }

    /// It says all of this in one sentence, and prints nothing else.
    #[track_caller]
    pub fn only_says(self, parts: &[&str]) -> Self {
        assert_eq!(self.stdout, "", "{self:?}");
        self.says(parts)
    }

    /// The only line of standard output.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|_| panic!("{self:?}"))
    }
}

/// As a shell says it.
pub fn status_of(status: ExitStatus) -> i32 {
    use std::os::unix::process::ExitStatusExt;
    status.code().unwrap_or_else(|| 128 + status.signal().unwrap())
}

/// The program while it runs. Killed at the end of the test.
#[derive(Debug)]
pub struct Running {
    child: Child,
    pub stdout: Lines,
    pub stderr: Lines,
}

impl Running {
    pub fn start(mut command: Command) -> Self {
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program starts");
        let stdout = Lines::of(child.stdout.take().unwrap());
        let stderr = Lines::of(child.stderr.take().unwrap());
        Self { child, stdout, stderr }
    }

    /// `incumbent campaign … -o json` with a lease of two seconds.
    pub fn campaign(etcd: &Etcd, election: &str, more: &[&str]) -> Self {
        let arguments = [&["campaign", election, "--ttl", "2s", "-o", "json"], more].concat();
        Self::start(on(etcd, arguments))
    }

    pub fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).unwrap()
    }

    pub fn stdin(&mut self) -> ChildStdin {
        self.child.stdin.take().expect("a pipe")
    }

    pub fn signal(&self, signal: Signal) {
        kill(self.pid(), signal);
    }

    /// Its status, if it has ended.
    pub fn try_status(&mut self) -> Option<i32> {
        self.child.try_wait().unwrap().map(status_of)
    }

    /// Waits for its end by itself.
    #[track_caller]
    pub fn wait(&mut self) -> i32 {
        let status = eventually("the program ends", || self.child.try_wait().unwrap());
        status_of(status)
    }

    /// Asks it to end, and holds it to an orderly end.
    #[track_caller]
    pub fn stop(mut self) {
        self.signal(Signal::TERM);
        assert_eq!(self.wait(), 0, "{:?}", self.stderr);
    }

    /// Interrupts it, and holds it to an orderly end.
    #[track_caller]
    pub fn interrupt(mut self) {
        self.signal(Signal::INT);
        assert_eq!(self.wait(), 0, "{:?}", self.stderr);
    }

    /// The first line that it prints with this beginning, after the one asked for before.
    #[track_caller]
    pub fn prints(&self, beginning: &str) -> String {
        self.stdout.find(beginning, |line| line.starts_with(beginning).then(|| line.to_owned()))
    }

    /// The program, once it has printed this event.
    #[track_caller]
    pub fn once(self, event: &str) -> Self {
        self.event(event);
        self
    }

    /// The first event of this name that it prints, which nobody has asked for
    /// before.
    #[track_caller]
    pub fn event(&self, name: &str) -> Value {
        self.stdout.event(name)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The lines that come out of a pipe.
#[derive(Clone, Debug, Default)]
pub struct Lines(Arc<(Mutex<State>, Condvar)>);

#[derive(Debug, Default)]
struct State {
    lines: Vec<String>,
    /// How many of them have been asked for.
    taken: usize,
    closed: bool,
}

impl Lines {
    pub fn of(pipe: impl Read + Send + 'static) -> Self {
        let lines = Self::default();
        let target = lines.clone();
        thread::spawn(move || {
            let mut pipe = BufReader::new(pipe);
            let mut line = Vec::new();
            // A terminal that has been closed ends with an error.
            while pipe.read_until(b'\n', &mut line).unwrap_or(0) > 0 {
                let text = String::from_utf8_lossy(&line).trim_end().to_owned();
                // Of a test that fails, it is shown.
                println!("{text}");
                target.0.0.lock().lines.push(text);
                target.0.1.notify_all();
                line.clear();
            }
            target.0.0.lock().closed = true;
            target.0.1.notify_all();
        });
        lines
    }

    /// The first line that is like this, after the one asked for before.
    #[track_caller]
    pub fn find<T>(&self, like: &str, pick: impl Fn(&str) -> Option<T>) -> T {
        let since = Instant::now();
        let mut state = self.0.0.lock();
        loop {
            while state.taken < state.lines.len() {
                state.taken += 1;
                if let Some(found) = pick(&state.lines[state.taken - 1]) {
                    return found;
                }
            }
            assert!(!state.closed, "no {like} any more in {:#?}", state.lines);
            assert!(since.elapsed() < LIMIT, "no {like} in {:#?}", state.lines);
            let tick = Duration::from_millis(100);
            self.0.1.wait_for(&mut state, tick);
        }
    }

    /// How many there are by now.
    pub fn line_count(&self) -> usize {
        self.0.0.lock().lines.len()
    }

    #[track_caller]
    pub fn line_with(&self, part: &str) -> String {
        self.find(part, |line| line.contains(part).then(|| line.to_owned()))
    }

    #[track_caller]
    pub fn event(&self, name: &str) -> Value {
        self.find(name, |line| {
            let event: Value = serde_json::from_str(line).ok()?;
            (event["event"] == name).then_some(event)
        })
    }

    /// How many events of this name there are by now, and who has asked for them.
    pub fn count(&self, name: &str) -> usize {
        let beginning = format!("{{\"event\":\"{name}\"");
        self.0.0.lock().lines.iter().filter(|line| line.starts_with(&beginning)).count()
    }

    /// All there is, once the pipe is closed.
    pub fn all(&self) -> Vec<String> {
        let mut state = self.0.0.lock();
        while !state.closed {
            let waited = self.0.1.wait_for(&mut state, LIMIT);
            assert!(!waited.timed_out(), "the pipe is not closed after {:#?}", state.lines);
        }
        state.lines.clone()
    }
}

/// A second command beside the program, killed at the end of the test.
#[derive(Debug)]
pub struct Terminal {
    running: Running,
    keyboard: ChildStdin,
}

impl Terminal {
    /// Runs a shell's line on a terminal of its own.
    pub fn start(etcd: &Etcd, line: &str) -> Self {
        let mut command = Command::new("script");
        command
            .args(["--quiet", "--return", "--flush", "--command", line, "/dev/null"])
            .env("INCUMBENT_STORE", etcd.url())
            .env("SHELL", "/bin/sh")
            .stdin(Stdio::piped());
        let mut running = Running::start(command);
        let keyboard = running.stdin();
        Self { running, keyboard }
    }

    /// A shell with job control, where the program runs this work.
    #[track_caller]
    pub fn shell(etcd: &Etcd, line: &str) -> Self {
        let mut terminal = Self::start(etcd, "bash --norc --noprofile -i");
        terminal.type_in("set -o notify; PS1=; echo shell is ready\n");
        terminal.line_with("shell is ready");
        terminal.type_in(&format!("{line}\n"));
        terminal
    }

    /// Types this in, and waits for a line with the answer.
    #[track_caller]
    pub fn answers(&mut self, keys: &str, part: &str) {
        self.type_in(keys);
        self.line_with(part);
    }

    /// Interrupts the program, holds it to an orderly end, and leaves the shell.
    #[track_caller]
    pub fn interrupt(mut self) {
        self.answers("\x03", "withdrawn");
        self.answers("echo status is $?\n", "status is 0");
        self.type_in("exit\n");
        self.wait();
    }

    /// Of what holds the terminal.
    pub fn pid(&self) -> i32 {
        self.running.pid()
    }

    pub fn type_in(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).unwrap();
        self.keyboard.flush().unwrap();
    }

    #[track_caller]
    pub fn line_with(&self, part: &str) -> String {
        self.running.stdout.line_with(part)
    }

    #[track_caller]
    pub fn wait(&mut self) -> i32 {
        self.running.wait()
    }
}

/// Waits until there is something.
#[track_caller]
pub fn eventually<T>(what: &str, mut there: impl FnMut() -> Option<T>) -> T {
    let since = Instant::now();
    loop {
        if let Some(found) = there() {
            return found;
        }
        assert!(since.elapsed() < LIMIT, "it takes too long: {what}");
        sleep(Duration::from_millis(5));
    }
}

#[track_caller]
pub fn until(what: &str, mut holds: impl FnMut() -> bool) {
    eventually(what, || holds().then_some(()));
}

pub fn kill(pid: i32, signal: Signal) {
    kill_process(Pid::from_raw(pid).unwrap(), signal).expect("the process is there");
}

/// The parent and the state of a process, if there is one.
pub fn process(pid: i32) -> Option<(i32, char)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, rest) = stat.rsplit_once(") ")?;
    let mut fields = rest.split_whitespace();
    let state = fields.next()?.chars().next()?;
    Some((fields.next()?.parse().ok()?, state))
}

#[track_caller]
pub fn parent(pid: i32) -> i32 {
    process(pid).expect("the process is there").0
}

/// The guard of `incumbent run` while its command runs.
#[track_caller]
pub fn guard_of(supervisor: i32) -> i32 {
    let (guard, _) = *children(supervisor).first().expect("a guard");
    guard
}

/// Whether a process works, or could.
pub fn is_alive(pid: i32) -> bool {
    process(pid).is_some_and(|(_, state)| state != 'Z' && state != 'X')
}

/// The children of a process, and their states.
pub fn children(parent: i32) -> Vec<(i32, char)> {
    fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter_map(|pid| Some((pid, process(pid)?)))
        .filter(|(_, (its_parent, _))| *its_parent == parent)
        .map(|(pid, (_, state))| (pid, state))
        .collect()
}

/// A process id that a command has written into a file.
#[track_caller]
pub fn pid_in(path: &Path) -> i32 {
    eventually("a process id is written", || {
        let text = fs::read_to_string(path).ok()?;
        text.strip_suffix('\n')?.trim().parse().ok()
    })
}
