//! What the program says where etcd does not let it in, what it does when its
//! credentials are replaced, and that it keeps its secrets.

use std::path::PathBuf;

use incumbent_tests::certificates::{Authority, Certificates, Signed, Validity};
use incumbent_tests::program::End;

use super::*;

incumbent_tests::on_each_version!(
    each_fault_of_tls_has_its_sentence,
    each_fault_of_a_login_has_its_sentence,
    certificates_are_replaced_while_it_leads,
    a_password_is_replaced_while_it_leads,
    who_is_denied_is_withdrawn_with_the_reason,
    a_role_may_cover_all_elections_below_a_prefix,
    no_secret_is_told,
);

const PASSWORD: &str = "pA55w0rd-of-ann";

const LEADER: &[&str] = &["leader", "my-service"];

fn each_fault_of_tls_has_its_sentence(version: Version) {
    let world = World::start(version);
    let url = world.etcd.url();
    let refused =
        |why: &str, mine: &Mine, says: &[&str]| sentence(why, 4, mine.on(&url, LEADER), says);
    let mine = world.mine();
    end(mine.on(&url, LEADER)).expect(1);

    let (ours, stranger) = (world.authority.pem(), Authority::new("stranger"));
    let another = Mine::of(&stranger.pem(), &world.authority.client(Validity::Now));
    refused("another CA", &another, &["nobody that we trust", "--cacert"]);
    let mut command = mine.on(&url, LEADER);
    command.env_remove("INCUMBENT_CACERT");
    sentence("no CA", 4, command, &["--cacert"]);
    sentence("no files", 4, on(&world.etcd, LEADER), &["--cacert"]);
    let mut command = mine.on(&url, LEADER);
    command.env_remove("INCUMBENT_CERT").env_remove("INCUMBENT_KEY");
    sentence("no certificate", 4, command, &["wants a certificate", "--cert", "--key"]);
    let expired = world.authority.client(Validity::Past);
    let says = &["our certificate", "--cert", "expired"];
    refused("an old one", &Mine::of(&ours, &expired), says);
    let theirs = stranger.client(Validity::Now);
    let says = &["does not take our certificate", "--cert"];
    refused("a stranger's", &Mine::of(&ours, &theirs), says);
    let plain = format!("etcd://{}", world.etcd.address());
    let says = &["it speaks TLS", "etcds://"];
    sentence("no TLS", 4, incumbent(["--store", &plain, "leader", "my-service"]), says);

    // etcd reads its own certificate with each connection.
    world.serve(&world.authority.server(Validity::Now, false));
    refused("another host", &mine, &["is not for 127.0.0.1", "etcd.example", "--store"]);
    world.serve(&world.authority.server(Validity::Past, true));
    refused("etcd's is old", &mine, &["its certificate has expired", "clock"]);
    world.serve(&world.authority.server(Validity::Now, true));
    end(mine.on(&url, LEADER)).expect(1);

    let open = Etcd::start(version);
    let store = format!("etcds://{}", open.address());
    sentence("TLS", 4, mine.on(&store, LEADER), &["does not speak TLS", "etcd://"]);

    // What cannot be used is bad input, whatever there is at the other end.
    for (why, part, text, says) in [
        ("half a certificate", &mine.cert, half(&expired.certificate), &["--cert"][..]),
        ("half a key", &mine.key, half(&expired.key), &["--key"]),
        ("the key of another", &mine.key, theirs.key.clone(), &["--key"]),
        ("half a CA", &mine.ca, half(&stranger.pem()), &["--cacert"]),
    ] {
        let good = fs::read_to_string(part).unwrap();
        fs::write(part, text).unwrap();
        sentence(why, 2, mine.on(&store, LEADER), says);
        fs::write(part, good).unwrap();
    }
}

fn each_fault_of_a_login_has_its_sentence(etcd: Etcd) {
    etcd.enable_users("ann", PASSWORD, "my-service");
    let (_directory, file) = password();
    let as_user = |name: &str, password: &str| {
        write_secret(&file, password);
        let mut command = on(&etcd, LEADER);
        command.args(["--user", name, "--password-file"]).arg(&file);
        command
    };
    end(as_user("ann", PASSWORD)).expect(1);
    let says = &["authentication failed", "--user", "--password-file"];
    let wrong = sentence("a wrong password", 4, as_user("ann", "guessed"), says);
    assert!(!wrong.stderr.contains("guessed"), "{wrong:?}");
    sentence("nobody", 4, as_user("bob", PASSWORD), says);
    sentence("no user", 4, on(&etcd, LEADER), &["wants a user", "--user", "--password-file"]);
}

fn certificates_are_replaced_while_it_leads(version: Version) {
    let world = World::start(version);
    let mine = world.mine();
    let arguments = ["campaign", "my-service", "--ttl", "5s", "-o", "json", "-v"];
    let candidate = Running::start(mine.on(&world.etcd.url(), &arguments));
    let epoch = candidate.event("elected")["epoch"].clone();
    let good = world.authority.client(Validity::Now);
    let stranger = Authority::new("stranger").client(Validity::Now);

    fs::write(&mine.cert, half(&good.certificate)).unwrap();
    let warning = candidate.stderr.line_with("cannot be used");
    assert!(warning.contains("WARN") && warning.contains("--cert"), "{warning}");
    stranger.write(&mine.cert, &mine.key);
    let warning = candidate.stderr.line_with("the new credentials are refused");
    assert!(warning.contains("WARN") && warning.contains("does not take our"), "{warning}");
    assert_eq!(candidate.event("extended")["epoch"], epoch);
    good.write(&mine.cert, &mine.key);
    candidate.stderr.line_with("connected with the new credentials");
    assert_eq!(candidate.event("extended")["epoch"], epoch);
    is_undisturbed(candidate);
    assert_eq!(world.etcd.etcdctl(&["get", "--prefix", "my-service"]), "");
}

fn a_password_is_replaced_while_it_leads(etcd: Etcd) {
    etcd.enable_users("ann", PASSWORD, "my-service");
    let (_directory, file) = password();
    let mut command = on(&etcd, ["campaign", "my-service", "--ttl", "5s", "-o", "json", "-v"]);
    command.args(["--user", "ann", "--password-file"]).arg(&file);
    let candidate = Running::start(command);
    let epoch = candidate.event("elected")["epoch"].clone();

    fs::write(&file, "another").unwrap();
    let warning = candidate.stderr.line_with("the new credentials are refused");
    assert!(warning.contains("--password-file"), "{warning}");
    etcd.renew_user("ann", "another");
    candidate.stderr.line_with("connected with the new credentials");
    assert_eq!(candidate.event("extended")["epoch"], epoch);
    is_undisturbed(candidate);
    assert_eq!(etcd.as_root(&["get", "--prefix", "my-service"]), "");
}

fn who_is_denied_is_withdrawn_with_the_reason(etcd: Etcd) {
    etcd.enable_users("ann", PASSWORD, "my-service");
    let (_directory, file) = password();
    for (arguments, prints) in [
        (&["campaign", "theirs", "--ttl", "2s", "-o", "json"][..], "withdrawn"),
        (&["leader", "theirs"], ""),
    ] {
        let mut command = on(&etcd, arguments);
        command.args(["--user", "ann", "--password-file"]).arg(&file);
        let denied = end(command).expect(4).says(&["permission denied"]);
        assert!(denied.stdout.contains(prints), "{denied:?}");
    }
}

fn a_role_may_cover_all_elections_below_a_prefix(etcd: Etcd) {
    etcd.enable_users("ann", PASSWORD, "mine/");
    let (_directory, file) = password();
    let mut command = on(&etcd, ["campaign", "mine/service", "--ttl", "2s", "-o", "json"]);
    command.args(["--user", "ann", "--password-file"]).arg(&file);
    Running::start(command).once("elected").stop();
}

/// With a password and a private key, all that can be seen of the program is
/// searched for both, in each of the forms that a log may give them.
fn no_secret_is_told(version: Version) {
    let world = World::start(version);
    world.etcd.enable_users("ann", PASSWORD, "my-service");
    let mine = world.mine();
    let file = mine.directory.path().join("password");
    fs::write(&file, PASSWORD).unwrap();
    let login = |mut command: Command| {
        command.env("INCUMBENT_USER", "ann").env("INCUMBENT_PASSWORD_FILE", &file);
        command.env("RUST_LOG", "trace").env("RUST_BACKTRACE", "1");
        command
    };
    let run = ["run", "my-service", "--ttl", "2s", "-vvv", "--", "sh", "-c", "exec sleep 100"];
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
    let secret = fs::read_to_string(&mine.key).unwrap();
    let Mine { cert, key, .. } = &mine;
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
    for arguments in [&["--help"][..], &["run", "--help"], &["campaign", "--help"], LEADER] {
        let end = end(login(mine.on(&world.etcd.url(), arguments)));
        seen += &(end.stdout + &end.stderr);
    }
    fs::write(&file, format!("{PASSWORD}-wrong")).unwrap();
    let refused =
        end(login(mine.on(&world.etcd.url(), &["leader", "my-service", "-vvv"]))).expect(4);
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
    etcds: Certificates,
    etcd: Etcd,
}

impl World {
    fn start(version: Version) -> Self {
        let authority = Authority::new("ours");
        let etcds = authority.certificates();
        let etcd = Etcd::start_tls(version, &etcds);
        Self { authority, etcds, etcd }
    }

    /// What a client has, as files of its own.
    fn mine(&self) -> Mine {
        Mine::of(&self.authority.pem(), &self.authority.client(Validity::Now))
    }

    /// Has etcd show this certificate.
    fn serve(&self, signed: &Signed) {
        signed.write(&self.etcds.server_cert, &self.etcds.server_key);
    }
}

/// A file with the password, and its directory.
fn password() -> (TempDir, PathBuf) {
    let directory = TempDir::new().unwrap();
    let file = directory.path().join("password");
    write_secret(&file, PASSWORD);
    (directory, file)
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
    ca: PathBuf,
    cert: PathBuf,
    key: PathBuf,
}

impl Mine {
    fn of(ca: &str, client: &Signed) -> Self {
        let directory = TempDir::new().unwrap();
        let names = ["ca.pem", "client.pem", "client.key"];
        let [ca_file, cert, key] = names.map(|name| directory.path().join(name));
        fs::write(&ca_file, ca).unwrap();
        client.write(&cert, &key);
        Self { directory, ca: ca_file, cert, key }
    }

    fn on(&self, store: &str, arguments: &[&str]) -> Command {
        let mut command = incumbent(arguments);
        command.env("INCUMBENT_STORE", store).env("INCUMBENT_CACERT", &self.ca);
        command.env("INCUMBENT_CERT", &self.cert).env("INCUMBENT_KEY", &self.key);
        command
    }
}

/// As a file is while it is being written.
fn half(text: &str) -> String {
    text.chars().take(text.len() / 2).collect()
}

#[track_caller]
fn sentence(why: &str, status: i32, command: Command, says: &[&str]) -> End {
    println!("{why}");
    end(command).expect(status).only_says(says)
}
