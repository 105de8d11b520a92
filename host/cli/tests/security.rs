//! What the program says where etcd does not let it in, what it does when its
//! credentials are replaced, and that it keeps its secrets.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "tests"
)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use incumbent_tests::certificates::{Authority, Certificates, Signed, Validity};
use incumbent_tests::etcd::{Etcd, Version};
use incumbent_tests::program::{Running, children, end, eventually, incumbent, write_secret};
use tempfile::TempDir;

incumbent_tests::on_each_version!(
    each_fault_of_tls_has_its_sentence,
    each_fault_of_a_login_has_its_sentence,
    certificates_are_replaced_while_it_leads,
    a_password_is_replaced_while_it_leads,
    who_is_denied_is_withdrawn_with_the_reason,
    no_secret_is_told,
);

const PASSWORD: &str = "pA55w0rd-of-ann";

fn each_fault_of_tls_has_its_sentence(version: Version) {
    let world = World::start(version);
    let refused = |why: &str, mine: &Mine, says: &[&str]| {
        sentence(why, 4, mine.on(&world.etcd.url(), &["leader", "office"]), says);
    };
    let mine = world.mine();
    end(mine.on(&world.etcd.url(), &["leader", "office"])).expect(1);

    let stranger = Authority::new("stranger");
    refused("another CA", &mine.with_ca(&stranger), &["nobody that we trust", "--cacert"]);
    refused("no CA", &mine.without("ca"), &["--cacert"]);
    refused("no certificate", &mine.without("cert"), &["wants a certificate", "--cert", "--key"]);
    let expired = world.authority.client(Validity::Past);
    refused("an old one", &mine.with(&expired), &["our certificate", "--cert", "expired"]);
    let theirs = stranger.client(Validity::Now);
    refused("a stranger's", &mine.with(&theirs), &["does not take our certificate", "--cert"]);
    let plain = format!("etcd://{}", world.etcd.address());
    let says = &["it speaks TLS", "etcds://"];
    sentence("no TLS", 4, incumbent(["--store", &plain, "leader", "office"]), says);

    // etcd reads its own certificate with each connection.
    world.serve(&world.authority.server(Validity::Now, false));
    refused("another host", &mine, &["is not for 127.0.0.1", "etcd.example", "--store"]);
    world.serve(&world.authority.server(Validity::Past, true));
    refused("etcd's is old", &mine, &["its certificate has expired", "clock"]);
    world.serve(&world.authority.server(Validity::Now, true));
    end(mine.on(&world.etcd.url(), &["leader", "office"])).expect(1);

    let open = Etcd::start(version);
    let store = format!("etcds://{}", open.address());
    sentence("TLS", 4, mine.on(&store, &["leader", "office"]), &["does not speak TLS", "etcd://"]);

    // What cannot be used is bad input, whatever there is at the other end.
    for (why, part, text, says) in [
        ("half a certificate", &mine.cert, half(&expired.certificate), &["--cert"][..]),
        ("half a key", &mine.key, half(&expired.key), &["--key"]),
        ("the key of another", &mine.key, theirs.key.clone(), &["--key"]),
        ("half a CA", &mine.ca, half(&stranger.pem()), &["--cacert"]),
    ] {
        let path = part.as_ref().unwrap();
        let good = fs::read_to_string(path).unwrap();
        fs::write(path, text).unwrap();
        sentence(why, 2, mine.on(&store, &["leader", "office"]), says);
        fs::write(path, good).unwrap();
    }
}

fn each_fault_of_a_login_has_its_sentence(etcd: Etcd) {
    etcd.enable_users("of-root", "ann", PASSWORD, "office");
    let directory = TempDir::new().unwrap();
    let file = directory.path().join("password");
    let as_user = |name: &str, password: &str| {
        write_secret(&file, password);
        let mut command = incumbent(["--store", &etcd.url(), "leader", "office"]);
        command.args(["--user", name, "--password-file"]).arg(&file);
        command
    };
    end(as_user("ann", PASSWORD)).expect(1);
    let says = &["authentication failed", "--user", "--password-file"];
    sentence("a wrong password", 4, as_user("ann", "guessed"), says);
    sentence("nobody", 4, as_user("bob", PASSWORD), says);
    let without = incumbent(["--store", &etcd.url(), "leader", "office"]);
    sentence("no user", 4, without, &["wants a user", "--user", "--password-file"]);
}

fn certificates_are_replaced_while_it_leads(version: Version) {
    let world = World::start(version);
    let mine = world.mine();
    let (cert, key) = (mine.cert.clone().unwrap(), mine.key.clone().unwrap());
    let candidate = world.campaign(&mine, &["-v"]);
    let epoch = candidate.event("elected")["epoch"].clone();
    let good = world.authority.client(Validity::Now);
    let stranger = Authority::new("stranger").client(Validity::Now);

    fs::write(&cert, half(&good.certificate)).unwrap();
    let warning = candidate.stderr.line_with("cannot be used");
    assert!(warning.contains("WARN") && warning.contains("--cert"), "{warning}");
    stranger.write(&cert, &key);
    let warning = candidate.stderr.line_with("the new credentials are refused");
    assert!(warning.contains("WARN") && warning.contains("does not take our"), "{warning}");
    assert_eq!(candidate.event("extended")["epoch"], epoch);
    good.write(&cert, &key);
    candidate.stderr.line_with("connected with the new credentials");
    assert_eq!(candidate.event("extended")["epoch"], epoch);
    world.is_undisturbed(candidate);
}

fn a_password_is_replaced_while_it_leads(etcd: Etcd) {
    etcd.enable_users("of-root", "ann", PASSWORD, "office");
    let directory = TempDir::new().unwrap();
    let file = directory.path().join("password");
    fs::write(&file, PASSWORD).unwrap();
    let mut command = incumbent(["--store", &etcd.url(), "campaign", "office", "--ttl", "5s"]);
    command.args(["-o", "json", "-v", "--user", "ann", "--password-file"]).arg(&file);
    let candidate = Running::start(command);
    let epoch = candidate.event("elected")["epoch"].clone();

    fs::write(&file, "another").unwrap();
    let warning = candidate.stderr.line_with("the new credentials are refused");
    assert!(warning.contains("--password-file"), "{warning}");
    let change = |arguments: &[&str]| {
        etcd.etcdctl(&[&["--user", "root:of-root", "user"], arguments].concat());
    };
    change(&["delete", "ann"]);
    change(&["add", "ann:another"]);
    change(&["grant-role", "ann", "of-the-prefix"]);
    candidate.stderr.line_with("connected with the new credentials");
    assert_eq!(candidate.event("extended")["epoch"], epoch);
    is_undisturbed(candidate);
    assert_eq!(etcd.etcdctl(&["--user", "root:of-root", "get", "--prefix", "office"]), "");
}

fn who_is_denied_is_withdrawn_with_the_reason(etcd: Etcd) {
    etcd.enable_users("of-root", "ann", PASSWORD, "office");
    let directory = TempDir::new().unwrap();
    let file = directory.path().join("password");
    write_secret(&file, PASSWORD);
    let mut command = incumbent(["--store", &etcd.url(), "campaign", "theirs", "--ttl", "2s"]);
    command.args(["-o", "json", "--user", "ann", "--password-file"]).arg(&file);
    let denied = end(command).expect(4);
    assert!(denied.stdout.contains("withdrawn"), "{denied:?}");
    assert!(denied.stderr.contains("permission denied"), "{denied:?}");
    assert_eq!(denied.stderr.lines().count(), 1, "{denied:?}");
}

/// With a password and a private key, all that can be seen of the program is
/// searched for both, in each of the forms that a log may give them.
fn no_secret_is_told(version: Version) {
    let world = World::start(version);
    world.etcd.enable_users("of-root", "ann", PASSWORD, "office");
    let mine = world.mine();
    let file = mine.directory.path().join("password");
    fs::write(&file, PASSWORD).unwrap();
    let login = |mut command: Command| {
        command.env("INCUMBENT_USER", "ann").env("INCUMBENT_PASSWORD_FILE", &file);
        command.env("RUST_LOG", "trace").env("RUST_BACKTRACE", "1");
        command
    };
    let run = ["run", "office", "--ttl", "2s", "-vvv", "--", "sh", "-c", "exec sleep 100"];
    let running = Running::start(login(mine.on(&world.etcd.url(), &run)));
    running.stderr.line_with("elected");
    let child = eventually("the command runs", || Some(children(running.pid()).first()?.0));
    let mut seen = String::new();
    for pid in [running.pid(), child] {
        for name in ["cmdline", "environ", "comm", "status"] {
            let text = fs::read(format!("/proc/{pid}/{name}")).unwrap();
            seen += &String::from_utf8_lossy(&text);
        }
    }
    assert!(seen.contains("INCUMBENT_PASSWORD_FILE"), "{seen}");

    // Through what is logged when credentials are replaced, and refused.
    let secret = fs::read_to_string(mine.key.as_ref().unwrap()).unwrap();
    let (cert, key) = (mine.cert.as_ref().unwrap(), mine.key.as_ref().unwrap());
    let next = world.authority.client(Validity::Now);
    next.write(cert, key);
    running.stderr.line_with("connected with the new credentials");
    fs::write(&file, format!("{PASSWORD}-next")).unwrap();
    running.stderr.line_with("the new credentials are refused");
    fs::write(key, half(&next.key)).unwrap();
    running.stderr.line_with("cannot be used");
    let (stdout, stderr) = (running.stdout.clone(), running.stderr.clone());
    running.stop();
    let log = stderr.all().join("\n");
    // It was all of it: others' logs as well, that is.
    for part in ["TRACE", "incumbent::store", "h2::", "tower::"] {
        assert!(log.contains(part), "no {part} in the log");
    }
    seen += &log;
    seen += &stdout.all().join("\n");

    next.write(cert, key);
    fs::write(&file, PASSWORD).unwrap();
    for arguments in
        [&["--help"][..], &["run", "--help"], &["campaign", "--help"], &["leader", "office"]]
    {
        let end = end(login(mine.on(&world.etcd.url(), arguments)));
        seen += &(end.stdout + &end.stderr);
    }
    fs::write(&file, format!("{PASSWORD}-wrong")).unwrap();
    let refused = end(login(mine.on(&world.etcd.url(), &["leader", "office", "-vvv"]))).expect(4);
    seen += &refused.stderr;

    assert!(!seen.contains(PASSWORD));
    for key in [&secret, &next.key] {
        for line in key.lines().filter(|line| !line.starts_with("-----")) {
            assert!(!seen.contains(line), "{line}");
        }
    }
    assert!(!seen.contains("PRIVATE KEY"));
    // As a list of bytes, which is how `Debug` shows them.
    let bytes = |text: &str| {
        let bytes: Vec<_> = text.bytes().take(12).map(|byte| byte.to_string()).collect();
        bytes.join(", ")
    };
    assert!(!seen.contains(&bytes(PASSWORD)));
    let body = secret.lines().nth(1).unwrap();
    assert!(!seen.contains(&bytes(body)));
    assert!(!seen.contains(&bytes(&secret)));
}

/// An etcd with TLS that wants certificates, and who signs them.
struct World {
    authority: Authority,
    _directory: TempDir,
    etcds: Certificates,
    etcd: Etcd,
}

impl World {
    fn start(version: Version) -> Self {
        let authority = Authority::new("ours");
        let directory = TempDir::new().unwrap();
        let etcds = authority.certificates(directory.path());
        let etcd = Etcd::start_tls(version, &etcds);
        Self { authority, _directory: directory, etcds, etcd }
    }

    /// What a client has, as files of its own.
    fn mine(&self) -> Mine {
        Mine::of(&self.authority.pem(), &self.authority.client(Validity::Now))
    }

    /// Has etcd show this certificate.
    fn serve(&self, signed: &Signed) {
        signed.write(&self.etcds.server_cert, &self.etcds.server_key);
    }

    fn campaign(&self, mine: &Mine, more: &[&str]) -> Running {
        let arguments = [&["campaign", "office", "--ttl", "5s", "-o", "json"], more].concat();
        Running::start(mine.on(&self.etcd.url(), &arguments))
    }

    fn is_undisturbed(&self, candidate: Running) {
        is_undisturbed(candidate);
        assert_eq!(self.etcd.etcdctl(&["get", "--prefix", "office"]), "");
    }
}

/// Ends it, and holds it to one term.
#[track_caller]
fn is_undisturbed(candidate: Running) {
    let stdout = candidate.stdout.clone();
    candidate.stop();
    let lines = stdout.all();
    let count = |event: &str| lines.iter().filter(|line| line.contains(event)).count();
    assert_eq!((count("\"elected\""), count("\"endangered\"")), (1, 0), "{lines:#?}");
    assert_eq!((count("\"demoted\""), count("\"resigned\"")), (1, 1), "{lines:#?}");
}

/// The files that a client names.
struct Mine {
    directory: TempDir,
    ca: Option<PathBuf>,
    cert: Option<PathBuf>,
    key: Option<PathBuf>,
}

impl Mine {
    fn of(ca: &str, client: &Signed) -> Self {
        let directory = TempDir::new().unwrap();
        let file = |name: &str| Some(directory.path().join(name));
        let (ca_file, cert, key) = (file("ca.pem"), file("client.pem"), file("client.key"));
        fs::write(ca_file.as_ref().unwrap(), ca).unwrap();
        client.write(cert.as_ref().unwrap(), key.as_ref().unwrap());
        Self { directory, ca: ca_file, cert, key }
    }

    fn read(path: Option<&PathBuf>) -> String {
        fs::read_to_string(path.unwrap()).unwrap()
    }

    fn signed(&self) -> Signed {
        Signed { certificate: Self::read(self.cert.as_ref()), key: Self::read(self.key.as_ref()) }
    }

    fn with_ca(&self, authority: &Authority) -> Self {
        Self::of(&authority.pem(), &self.signed())
    }

    fn with(&self, client: &Signed) -> Self {
        Self::of(&Self::read(self.ca.as_ref()), client)
    }

    fn without(&self, what: &str) -> Self {
        let mut less = Self::of(&Self::read(self.ca.as_ref()), &self.signed());
        match what {
            "ca" => less.ca = None,
            _ => (less.cert, less.key) = (None, None),
        }
        less
    }

    fn on(&self, store: &str, arguments: &[&str]) -> Command {
        let mut command = incumbent(arguments);
        command.env("INCUMBENT_STORE", store);
        let mut name = |variable: &str, path: Option<&Path>| {
            if let Some(path) = path {
                command.env(variable, path);
            }
        };
        name("INCUMBENT_CACERT", self.ca.as_deref());
        name("INCUMBENT_CERT", self.cert.as_deref());
        name("INCUMBENT_KEY", self.key.as_deref());
        command
    }
}

/// As a file is while it is being written.
fn half(text: &str) -> String {
    text.chars().take(text.len() / 2).collect()
}

#[track_caller]
fn sentence(why: &str, status: i32, command: Command, says: &[&str]) {
    let end = end(command).expect(status);
    assert_eq!((end.stdout.as_str(), end.stderr.lines().count()), ("", 1), "{why}: {end:?}");
    assert!(end.stderr.starts_with("incumbent: "), "{why}: {end:?}");
    for part in says {
        assert!(end.stderr.contains(part), "{why}: no {part:?} in {end:?}");
    }
    println!("{why}: {}", end.stderr);
}
