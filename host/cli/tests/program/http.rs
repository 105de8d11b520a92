//! The HTTP endpoint, asked with curl, on a real etcd.

use std::io::{self, Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::time::Instant;

use nix::sys::ptrace;
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;

use super::*;

incumbent_tests::on_each_version!(
    each_instance_tells_its_own_part,
    a_resignation_ends_when_the_next_one_leads
);

incumbent_tests::on_an_etcd!(
    the_manual_tells_each_route,
    prometheus_takes_the_metrics,
    a_leader_is_told_no_longer_than_it_leads,
    an_instance_that_hangs_is_not_alive,
    events_are_resumed_where_a_reader_stopped,
    requests_of_other_sites_and_without_the_token_are_refused,
    the_work_stops_before_its_leadership_is_given_back,
    idle_clients_and_slow_readers_delay_nothing,
    clients_leave_files_for_the_work,
    a_silent_store_delays_no_answer,
    in_a_race_others_have_their_turn,
    many_questions_ask_the_store_once,
    a_socket_that_was_left_is_replaced,
);

/// What curl says of one request: the status, and the body.
pub struct Answer {
    pub status: u16,
    pub body: String,
}

impl Answer {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body)
            .unwrap_or_else(|_| panic!("{}: {}", self.status, self.body))
    }
}

/// An endpoint under test.
pub struct Endpoint {
    arguments: Vec<String>,
    pub url: String,
}

impl Endpoint {
    /// On a unix socket.
    pub fn on(socket: &Path) -> Self {
        let socket = socket.to_str().unwrap().to_owned();
        Self { arguments: vec!["--unix-socket".into(), socket], url: "http://localhost".into() }
    }

    /// On the TCP port that the program says it has.
    pub fn of(running: &Running) -> Self {
        let line = running.stderr.line_with("the HTTP endpoint listens on ");
        let (_, address) = line.rsplit_once(' ').unwrap();
        Self { arguments: Vec::new(), url: format!("http://{address}") }
    }

    fn address(&self) -> &str {
        self.url.strip_prefix("http://").unwrap()
    }

    fn curl(&self, path: &str, more: &[&str]) -> Command {
        let mut curl = Command::new("curl");
        curl.args(["--silent", "--show-error", "--no-buffer", "--noproxy", "*"]);
        curl.args(["--max-time", "60"]).args(&self.arguments).args(more);
        curl.arg(format!("{}{path}", self.url));
        curl
    }

    pub fn asked(&self, path: &str, more: &[&str]) -> Answer {
        let more = [&["--write-out", "\n%{http_code}"], more].concat();
        let ended = end(self.curl(path, &more)).expect(0);
        let (body, status) = ended.stdout.rsplit_once('\n').unwrap();
        Answer { status: status.parse().unwrap(), body: body.into() }
    }

    pub fn status(&self, path: &str) -> u16 {
        self.asked(path, &[]).status
    }
}

/// The event of an election, once the endpoint tells of it as well.
fn elected(running: &Running, endpoint: &Endpoint) -> Value {
    let elected = running.event("elected");
    until("it is told to lead", || endpoint.status("/leader") == 200);
    elected
}

fn candidate(etcd: &Etcd, more: &[&str]) -> (Running, Endpoint) {
    let more = [&["--listen", "127.0.0.1:0"], more].concat();
    let running = Running::campaign(etcd, "my-service", &more);
    let endpoint = Endpoint::of(&running);
    (running, endpoint)
}

fn each_instance_tells_its_own_part(etcd: Etcd) {
    let (first, leader) = candidate(&etcd, &["--id", "one"]);
    let epoch = elected(&first, &leader)["epoch"].clone();
    let (second, standby) = candidate(&etcd, &["--id", "two", "--value", "<b>\u{202e}\u{1b}"]);
    second.event("joined");
    let observer = on(&etcd, ["observe", "my-service", "--listen", "127.0.0.1:0"]);
    let observer = Running::start(observer);
    let watcher = Endpoint::of(&observer);
    observer.stdout.line_with("one leads");

    for (endpoint, leads) in [(&leader, 200), (&standby, 503), (&watcher, 503)] {
        for path in ["/leader", "/primary"] {
            assert_eq!(endpoint.status(path), leads);
            assert_eq!(endpoint.asked(path, &["--head"]).status, leads);
            assert_eq!(endpoint.asked(path, &["--request", "OPTIONS"]).status, leads);
        }
        assert_eq!(endpoint.status("/livez"), 200);
        assert_eq!(endpoint.status("/readyz"), 200);
        let told = endpoint.asked("/status", &[]).json();
        assert_eq!(told["leader"]["value"], "one", "{told}");
        assert_eq!(told["leader"]["epoch"], epoch);
        assert_eq!(told["candidates_total"], 2);
        assert!(told["seen"]["age_ms"].as_u64().unwrap() < 1_000, "{told}");
        assert!(told["store"]["last_answer_age_ms"].as_u64().unwrap() < 10_000, "{told}");
        assert!(endpoint.asked("/nowhere", &[]).body.contains("/status"));
        // A client that stays would keep a place.
        assert!(endpoint.asked("/livez", &["--include"]).body.contains("connection: close"));
        assert_eq!(endpoint.asked("/leader", &["--request", "DELETE"]).status, 405);
    }
    let told = leader.asked("/status", &[]).json();
    assert_eq!((&told["role"], &told["term"]["epoch"]), (&"leading".into(), &epoch));
    assert!(told["term"]["remaining_ms"].as_u64().unwrap() <= 1_980);
    assert_eq!((&told["position"], &told["changes"][1]["event"]), (&0.into(), &"elected".into()));
    let told = standby.asked("/status", &[]);
    assert!(!told.body.contains(['\u{202e}', '\u{1b}']), "{}", told.body);
    let told = told.json();
    assert_eq!((&told["role"], &told["position"]), (&"waiting".into(), &1.into()));
    assert_eq!(told["candidates"][1]["value"], "<b>\u{202e}\u{1b}");
    assert_eq!(watcher.asked("/status", &[]).json()["role"], "observing");

    first.stop();
    elected(&second, &standby);
    second.stop();
    observer.stop();
}

/// Each command of the manual, word for word but for the port.
fn the_manual_tells_each_route(etcd: Etcd) {
    let manual =
        fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../OPERATING.md")).unwrap();
    let (_, section) = manual.split_once("\n## Over HTTP\n").unwrap();
    let (section, _) = section.split_once("\n## ").unwrap();
    let commands =
        section.lines().filter_map(|line| line.strip_prefix("| `curl ")?.split_once("` | "));
    let directory = TempDir::new().unwrap();
    let token = directory.path().join("token");
    write_secret(&token, "secret-token\n");
    let (candidate, endpoint) = candidate(&etcd, &["--http-token-file", token.to_str().unwrap()]);
    elected(&candidate, &endpoint);
    let mut asked = 0;
    for (arguments, _) in commands {
        let command = format!("curl --silent --show-error {arguments}");
        let command = command.replace("127.0.0.1:8080", endpoint.address());
        let mut shell = Command::new("sh");
        shell.args(["-c", &command]).current_dir(directory.path());
        let running = Running::start(shell);
        let expected = match arguments.rsplit_once('/').unwrap().1 {
            "leader" | "livez" | "readyz" => "HTTP/1.1 200 OK",
            "" => " leads my-service</h1>",
            "status" => "\"role\":\"leading\"",
            "metrics" => "incumbent_is_leader{election=\"my-service\"} 1",
            "events" => "data: {\"event\":\"elected\"",
            "resign" => "{\"resigned\":",
            "transfer?to=worker-2\"" => "\"result\":\"not-in-line\"",
            "drain" => "{\"drained\":",
            other => panic!("{other} is not a route"),
        };
        running.stdout.line_with(expected);
        asked += 1;
    }
    assert_eq!(asked, 11);
    candidate.stop();
}

fn a_resignation_ends_when_the_next_one_leads(etcd: Etcd) {
    let directory = TempDir::new().unwrap();
    let socket = directory.path().join("socket");
    let listen = format!("unix:{}", socket.display());
    let first = Running::campaign(&etcd, "my-service", &["--listen", &listen]);
    let endpoint = Endpoint::on(&socket);
    let epoch = elected(&first, &endpoint)["epoch"].as_i64().unwrap();
    let (second, standby) = candidate(&etcd, &["--id", "two"]);
    second.event("joined");
    let resigned = endpoint.asked("/resign", &["--request", "POST"]).json();
    let elected = elected(&second, &standby);
    assert_eq!(
        (&resigned["resigned"], &resigned["leader"]["value"]),
        (&epoch.into(), &"two".into())
    );
    assert_eq!(resigned["leader"]["epoch"], elected["epoch"]);
    assert_eq!(first.event("demoted")["reason"], "resigned");
    first.event("joined");
    // A term is resigned once, and only by its leader.
    let refused = endpoint.asked("/resign", &["--request", "POST"]);
    assert_eq!(refused.status, 409, "{}", refused.body);
    second.stop();
    let later = self::elected(&first, &endpoint)["epoch"].as_i64().unwrap();
    assert!(later > epoch);
    // To a certain one.
    let third = Running::campaign(&etcd, "my-service", &["--id", "three"]).once("joined");
    let transfer =
        |query: &str| endpoint.asked(&format!("/transfer{query}"), &["--request", "POST"]);
    for (query, part) in [
        ("", "name the candidate"),
        ("?to=", "to: it is empty"),
        ("?to=three&from=x", "from: x is not an epoch"),
        ("?to=three&wait=0s", "wait: "),
    ] {
        let refused = transfer(query);
        assert!(refused.status == 400 && refused.body.contains(part), "{}", refused.body);
    }
    let stale = transfer(&format!("?to=three&from={epoch}"));
    assert_eq!((stale.status, &stale.json()["result"]), (409, &"changed".into()));
    let done = transfer(&format!("?to=three&from={later}")).json();
    assert_eq!((&done["result"], &done["leader"]["value"]), (&"done".into(), &"three".into()));
    third.stop();
    let later = self::elected(&first, &endpoint)["epoch"].as_i64().unwrap();
    for (path, status) in
        [("epoch=x", 400), (&format!("epoch={epoch}"), 409), (&format!("epoch={later}"), 200)]
    {
        let asked = endpoint.asked(&format!("/resign?{path}"), &["--request", "POST"]);
        assert_eq!(asked.status, status, "{path}: {}", asked.body);
    }
    first.stop();
    assert!(!socket.exists(), "it is removed at the end");
}

fn a_leader_is_told_no_longer_than_it_leads(etcd: Etcd) {
    let (candidate, endpoint) = candidate(&etcd, &["--ready-when", "leader"]);
    let epoch = elected(&candidate, &endpoint)["epoch"].clone();
    assert_eq!(endpoint.status("/readyz"), 200);
    assert_eq!(endpoint.asked("/status", &[]).json()["leader"]["epoch"], epoch);
    let (second, standby) = self::candidate(&etcd, &["--id", "two"]);
    second.event("joined");
    assert_eq!(standby.status("/readyz"), 200);
    etcd.pause();
    let told = eventually("nobody is told to lead", || {
        let told = endpoint.asked("/status", &[]).json();
        (endpoint.status("/leader") == 503).then_some(told)
    });
    candidate.event("demoted");
    assert!(told["term"].is_null() || told["term"]["remaining_ms"].as_u64().unwrap() < 2_000);
    // It is another one's turn to lead, and a restart would not help.
    assert_eq!((endpoint.status("/readyz"), endpoint.status("/livez")), (503, 200));
    until("the standby is not ready", || standby.status("/readyz") == 503);
    let why = standby.asked("/readyz", &[]).body;
    assert!(why.contains("the store last answered") || why.contains("not in line"), "{why}");
    // What is said of the store says how old it is.
    let told = endpoint.asked("/status", &[]).json();
    assert!(told["store"]["last_answer_age_ms"].as_u64().unwrap() > 1_000, "{told}");
    let seen = told["seen"]["age_ms"].as_u64().unwrap();
    assert!(seen > 1_000, "{told}");
    etcd.resume();
    until("one leads again", || [&endpoint, &standby].iter().any(|it| it.status("/leader") == 200));
    until("both are in line", || standby.status("/readyz") == 200);
    candidate.stop();
    second.stop();
}

fn an_instance_that_hangs_is_not_alive(etcd: Etcd) {
    let (candidate, endpoint) = candidate(&etcd, &[]);
    elected(&candidate, &endpoint);
    // Its main thread alone, where the driver is.
    let driver = Pid::from_raw(candidate.pid());
    ptrace::seize(driver, ptrace::Options::empty()).unwrap();
    ptrace::interrupt(driver).unwrap();
    waitpid(driver, Some(WaitPidFlag::__WALL)).unwrap();
    let told = endpoint.asked("/livez", &[]);
    assert_eq!(told.status, 503);
    assert!(told.body.contains("driver"), "{}", told.body);
    until("it does not lead", || endpoint.status("/leader") == 503);
    until("it is not ready", || endpoint.status("/readyz") == 503);
    ptrace::detach(driver, None).unwrap();
    candidate.event("demoted");
    elected(&candidate, &endpoint);
    assert_eq!(endpoint.status("/livez"), 200);
    candidate.stop();
}

fn events_are_resumed_where_a_reader_stopped(etcd: Etcd) {
    let (candidate, endpoint) = candidate(&etcd, &[]);
    elected(&candidate, &endpoint);
    let reader = Running::start(endpoint.curl("/events", &[]));
    let event = |reader: &Running, name: &str| {
        let id = reader.stdout.line_with("id: ");
        let data = reader.stdout.line_with("data: ");
        let event: Value = serde_json::from_str(data.strip_prefix("data: ").unwrap()).unwrap();
        assert_eq!(event["event"], name);
        id.strip_prefix("id: ").unwrap().to_owned()
    };
    event(&reader, "joined");
    let last = event(&reader, "elected");
    drop(reader);
    end(on(&etcd, ["depose", "my-service"])).expect(0);
    let header = format!("Last-Event-ID: {last}");
    let reader = Running::start(endpoint.curl("/events", &["--header", &header]));
    event(&reader, "demoted");
    // Of an earlier start: all there is.
    let header = "Last-Event-ID: 1-1";
    let reader = Running::start(endpoint.curl("/events", &["--header", header]));
    event(&reader, "joined");
    candidate.stop();
}

fn requests_of_other_sites_and_without_the_token_are_refused(etcd: Etcd) {
    let directory = TempDir::new().unwrap();
    let token = directory.path().join("token");
    write_secret(&token, "secret-token\n");
    let file = token.to_str().unwrap();
    let more = ["--http-token-file", file, "--http-host", "my-service.example"];
    let (candidate, endpoint) = candidate(&etcd, &more);
    elected(&candidate, &endpoint);
    let own = format!("Origin: {}", endpoint.url);
    for (header, status) in [
        ("Host: evil.example", 421),
        ("Host: my-service.example:8080", 200),
        ("Host: LOCALHOST", 200),
        ("Host: [::1]:80", 200),
        ("Host: a b", 400),
        ("Host: localhost.", 200),
        ("Sec-Fetch-Site: cross-site", 403),
        ("Sec-Fetch-Site: same-origin", 200),
        ("Origin: http://evil.example", 403),
        ("Origin: null", 403),
        (&own, 200),
    ] {
        let asked = endpoint.asked("/leader", &["--header", header]);
        assert_eq!(asked.status, status, "{header}: {}", asked.body);
    }
    // Health checks of HTTP/1.0 name no host.
    assert_eq!(endpoint.asked("/leader", &["--http1.0", "--header", "Host:"]).status, 200);

    let resign =
        |header: &str| endpoint.asked("/resign", &["--request", "POST", "--header", header]);
    for header in [
        "X: y",
        "Authorization: Bearer wrong",
        "Authorization: Bearer",
        "Authorization: secret-token",
    ] {
        let refused = resign(header);
        assert_eq!(refused.status, 401, "{header}: {}", refused.body);
    }
    assert_eq!(endpoint.status("/leader"), 200, "nothing was changed");
    assert_eq!(
        endpoint
            .asked(
                "/leader",
                &["-H", "Sec-Fetch-Site: cross-site", "-H", "Sec-Fetch-Mode: navigate"]
            )
            .status,
        200
    );
    // The token is read again.
    write_secret(&token, "another\n");
    assert_eq!(resign("Authorization: Bearer secret-token").status, 401);
    write_secret(&token, "\n");
    assert_eq!(resign("Authorization: Bearer").status, 401, "no token is none");
    write_secret(&token, "another\n");
    // Nobody else is there: it is its own successor.
    assert_eq!(resign("authorization: bearer another").status, 200);
    fs::remove_file(&token).unwrap();
    assert_eq!(resign("Authorization: Bearer ").status, 500);
    mkfifoat(CWD, &token, Mode::RWXU).unwrap();
    assert_eq!(resign("Authorization: Bearer another").status, 500);
    assert!(!endpoint.asked("/status", &[]).body.contains("another"));
    candidate.stop();

    let blank = directory.path().join("blank");
    write_secret(&blank, "two words\n");
    let arguments = ["campaign", "my-service", "--listen", "127.0.0.1:0", "--http-token-file"];
    let mut command = on(&etcd, arguments);
    command.arg(&blank);
    end(command).expect(2).only_says(&["--http-token-file", "without blanks", "openssl rand"]);

    let (candidate, endpoint) = self::candidate(&etcd, &[]);
    elected(&candidate, &endpoint);
    let refused = endpoint.asked("/resign", &["--request", "POST"]);
    assert_eq!(refused.status, 403);
    assert!(refused.body.contains("--http-token-file"), "{}", refused.body);
    candidate.stop();
}

/// The value of one series.
fn series(metrics: &str, name: &str) -> f64 {
    let value = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    value.unwrap_or_else(|| panic!("no {name} in {metrics}")).parse().unwrap()
}

const MONITORING: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/monitoring");

/// A program of Prometheus' own, which setup.sh has put into `.tools`.
fn of_prometheus(program: &str, arguments: &[&str]) -> Command {
    let kept = concat!(env!("CARGO_MANIFEST_DIR"), "/../../.tools/prometheus");
    let mut command = Command::new(format!("{kept}/{program}"));
    command.args(arguments).current_dir(MONITORING);
    command
}

/// `alerts_test.yml` has a case in which it fires, and one in which it does not, for each alert.
#[test]
fn the_alerts_fire_when_they_should() {
    let tested = end(of_prometheus("promtool", &["test", "rules", "alerts_test.yml"])).expect(0);
    println!("{}", tested.stdout);
    let rules = fs::read_to_string(format!("{MONITORING}/alerts.yml")).unwrap();
    let tests = fs::read_to_string(format!("{MONITORING}/alerts_test.yml")).unwrap();
    let manual = fs::read_to_string(format!("{MONITORING}/../../OPERATING.md")).unwrap();
    let alerts: Vec<_> =
        rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect();
    assert_eq!(alerts.len(), 9);
    for alert in alerts {
        assert_eq!(tests.matches(&format!("alertname: {alert}")).count(), 2, "{alert}");
        assert!(manual.contains(&format!("| `{alert}` | ")), "{alert}");
    }
}

/// Prometheus scrapes this endpoint, and takes the alert rules.
fn scraped(endpoint: &Endpoint) {
    let directory = TempDir::new().unwrap();
    let configuration = directory.path().join("prometheus.yml");
    let targets = format!("targets: [{:?}]", endpoint.address());
    let text = format!(
        "global: {{scrape_interval: 100ms, evaluation_interval: 100ms}}\n\
         rule_files: [\"{MONITORING}/alerts.yml\"]\n\
         scrape_configs: [{{job_name: incumbent, static_configs: [{{{targets}}}]}}]\n"
    );
    fs::write(&configuration, text).unwrap();
    let configuration = format!("--config.file={}", configuration.display());
    let data = format!("--storage.tsdb.path={}", directory.path().join("data").display());
    let listen = "--web.listen-address=127.0.0.1:0";
    let prometheus = Running::start(of_prometheus("prometheus", &[&configuration, &data, listen]));
    let line = prometheus.stderr.line_with("msg=\"Listening on\"");
    let url = format!("http://{}", line.rsplit_once("address=").unwrap().1);
    let api = Endpoint { arguments: Vec::new(), url };
    let told = |path: &str| api.asked(path, &[]).json()["data"].take();
    until("Prometheus answers", || api.status("/-/ready") == 200);
    until("Prometheus has scraped", || {
        told("/api/v1/query?query=incumbent_is_leader")["result"][0]["value"][1] == "1"
    });
    until("all rules are evaluated", || {
        let rules = told("/api/v1/rules")["groups"][0]["rules"].take();
        let rules = rules.as_array().unwrap();
        rules.len() == 9 && rules.iter().all(|rule| rule["health"] == "ok")
    });
    prometheus.stop();
}

fn prometheus_takes_the_metrics(etcd: Etcd) {
    let (candidate, endpoint) = candidate(&etcd, &[]);
    elected(&candidate, &endpoint);
    end(on(&etcd, ["depose", "my-service"])).expect(0);
    candidate.event("demoted");
    let epoch = elected(&candidate, &endpoint)["epoch"].as_f64().unwrap();
    candidate.event("extended");
    let metrics = endpoint.asked("/metrics", &[]).body;
    let of = |name: &str| series(&metrics, name);
    assert_eq!(of("incumbent_is_leader{election=\"my-service\"}"), 1.0);
    assert_eq!(of("leader_election_master_status{name=\"my-service\"}"), 1.0);
    assert_eq!(of("leader_election_slowpath_total{name=\"my-service\"}"), 0.0);
    assert_eq!(of("incumbent_epoch{election=\"my-service\"}"), epoch);
    assert_eq!(of("incumbent_transitions_total{reason=\"elected\"}"), 2.0);
    assert_eq!(of("incumbent_transitions_total{reason=\"deposed\"}"), 1.0);
    assert_eq!(of("incumbent_queue_position{election=\"my-service\"}"), 0.0);
    assert_eq!(of("incumbent_elector_replacements_total"), 0.0);
    assert_eq!(of("incumbent_guard_kills_total"), 0.0);
    assert_eq!(of("incumbent_fence_rejections_total"), 0.0);
    assert!(of("incumbent_renewals_total{result=\"ok\"}") >= 1.0);
    let claims = "incumbent_store_requests_total{operation=\"claim\",result=\"ok\"}";
    assert_eq!(of(claims), 2.0);
    let remaining = of("incumbent_term_remaining_seconds{election=\"my-service\"}");
    assert!(remaining > 0.0 && remaining < 2.0, "{remaining}");
    let leaderless = of("incumbent_leaderless_seconds_total{election=\"my-service\"}");
    assert!(leaderless > 0.0 && leaderless < 2.0, "{leaderless}");
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs_f64();
    let answered = of("incumbent_store_last_answer_timestamp_seconds");
    assert!((0.0..2.0).contains(&(now - answered)), "{answered} {now}");

    // Without a word, and so without a fault.
    let mut check = of_prometheus("promtool", &["check", "metrics"]);
    check.stdin(Stdio::piped());
    let mut check = Running::start(check);
    check.stdin().write_all(metrics.as_bytes()).unwrap();
    assert_eq!(check.wait(), 0);
    assert_eq!([check.stdout.all(), check.stderr.all()].concat(), Vec::<String>::new());

    scraped(&endpoint);
    for file in ["dashboard.json", "alerts.yml"] {
        let text = fs::read_to_string(format!("{MONITORING}/{file}")).unwrap();
        let words = text.split(|one: char| !one.is_ascii_lowercase() && one != '_');
        let names: Vec<_> = words.filter(|word| word.starts_with("incumbent_")).collect();
        assert!(names.len() >= 9);
        for name in names {
            let help = format!("# HELP {} ", name.trim_end_matches("_bucket"));
            assert!(metrics.contains(&help), "{file}: no {name} in {metrics}");
        }
    }

    etcd.pause();
    until("it does not lead", || endpoint.status("/leader") == 503);
    let metrics = endpoint.asked("/metrics", &[]).body;
    assert_eq!(series(&metrics, "incumbent_is_leader{election=\"my-service\"}"), 0.0);
    assert_eq!(series(&metrics, "incumbent_transitions_total{reason=\"expired\"}"), 1.0);
    assert_eq!(series(&metrics, "leader_election_slowpath_total{name=\"my-service\"}"), 1.0);
    until("the renewal is counted", || {
        endpoint
            .asked("/metrics", &[])
            .body
            .contains("incumbent_renewals_total{result=\"failed\"} ")
    });
    etcd.resume();
    candidate.event("demoted");
    elected(&candidate, &endpoint);
    candidate.stop();
}

fn the_work_stops_before_its_leadership_is_given_back(etcd: Etcd) {
    let work = Work::new(
        "trap 'until [ -e told ]; do sleep 0.01; done; date +%s.%N > stopped; exit' TERM; \
         echo $$ > child; while :; do sleep 0.01; done",
    );
    let socket = work.path("socket");
    let listen = format!("unix:{}", socket.display());
    let (running, child) = work.start(&etcd, &["--ttl", "8s", "--listen", &listen]);
    let endpoint = Endpoint::on(&socket);
    until("it is told to lead", || endpoint.status("/leader") == 200);
    let (second, _) = candidate(&etcd, &["--id", "two"]);
    second.event("joined");
    let resigning = Running::start(endpoint.curl("/resign", &["--request", "POST"]));
    // Nothing more is routed to work that stops, though it still leads.
    until("it is told not to lead", || endpoint.status("/leader") == 503);
    let told = endpoint.asked("/status", &[]).json();
    assert_eq!((&told["role"], &told["position"]), (&"stopping".into(), &0.into()), "{told}");
    assert_eq!((endpoint.status("/readyz"), endpoint.status("/livez")), (200, 200));
    fs::write(work.path("told"), "").unwrap();
    let resigned: Value = serde_json::from_str(&resigning.stdout.line_with("resigned")).unwrap();
    assert_eq!(resigned["leader"]["value"], "two", "{resigned}");
    assert!(!is_alive(child));
    let stopped = fs::read_to_string(work.path("stopped")).unwrap();
    let elected = incumbent_tests::program::work::time(&second.event("elected"));
    let elected = elected.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs_f64();
    assert!(stopped.trim().parse::<f64>().unwrap() <= elected + 0.001, "{stopped} {elected}");
    second.stop();
    until("it works again", || work.pid("child") != child);
    running.stop();
}

fn in_a_race_others_have_their_turn(etcd: Etcd) {
    let work = Work::new("echo $$ > child; exec sleep 1000");
    let listen = format!("unix:{}", work.path("socket").display());
    let (first, child) = work.start(&etcd, &["--contest", "race", "--listen", &listen]);
    let second = Running::campaign(&etcd, "my-service", &["--contest", "race", "--id", "two"]);
    second.event("leader");
    let endpoint = Endpoint::on(&work.path("socket"));
    let resigned = endpoint.asked("/resign", &["--request", "POST"]).json();
    assert_eq!(resigned["leader"]["value"], "two", "{resigned}");
    second.event("elected");
    second.stop();
    until("it works again", || work.pid("child") != child);
    first.stop();
}

fn idle_clients_and_slow_readers_delay_nothing(etcd: Etcd) {
    let (candidate, endpoint) = candidate(&etcd, &[]);
    let epoch = elected(&candidate, &endpoint)["epoch"].clone();
    let connect = |text: &str| {
        let mut stream = TcpStream::connect(endpoint.address()).unwrap();
        stream.write_all(text.as_bytes()).unwrap();
        stream
    };
    let host = endpoint.address();
    // Readers that read nothing, a body without an end, heads without an end, and silence.
    let readers: Vec<_> = (0..100)
        .map(|_| connect(&format!("GET /events HTTP/1.1\r\nHost: {host}\r\n\r\n")))
        .collect();
    let _body = connect(&format!(
        "POST /resign HTTP/1.1\r\nHost: {host}\r\nContent-Length: 999999\r\n\r\nx"
    ));
    let idle: Vec<_> = (0..300)
        .map(|number| connect(if number % 2 == 0 { "" } else { "GET /leader HTTP/1.1\r\nA" }))
        .collect();
    for _ in 0..4 {
        assert_eq!(candidate.event("extended")["epoch"], epoch);
        assert_eq!((endpoint.status("/leader"), endpoint.status("/livez")), (200, 200));
    }
    // A crowd that takes all places and comes back does not keep a probe out.
    let crowd: Vec<_> = (0..1_000).map(|_| connect("")).collect();
    let began = Instant::now();
    assert_eq!(endpoint.status("/leader"), 200);
    assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
    // Idle ones lose their places; readers keep theirs.
    for mut stream in idle.into_iter().chain(crowd) {
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let ended = stream.read_to_end(&mut Vec::new()).map_err(|error| error.kind());
        assert_ne!(ended, Err(io::ErrorKind::WouldBlock), "the endpoint ends it");
    }
    let mut text = [0; 64];
    for mut stream in readers {
        assert!(stream.read(&mut text).unwrap() > 0);
    }
    assert_eq!(candidate.stdout.count("demoted"), 0);
    candidate.stop();
}

/// The second term starts its guard and its command while clients hold all that they may; or
/// the program says at its start that it needs more.
fn clients_leave_files_for_the_work(etcd: Etcd) {
    for files in [48, 64, 80, 128] {
        let work = Work::new("echo $$ > child; sleep 1000");
        let command = work.command(&etcd, &["--listen", "127.0.0.1:0"]);
        let mut running = Running::start(limited(&format!("ulimit -n {files}"), &command));
        let endpoint = Endpoint::of(&running);
        let started = eventually("it works, or does not start", || match running.try_status() {
            None => work.path("child").exists().then_some(None),
            status => Some(status),
        });
        if started == Some(2) {
            running.stderr.line_with("ulimit -n");
            assert!(files < 80, "{files}");
            continue;
        }
        let child = work.pid("child");
        let clients: Vec<_> =
            (0..200).map(|_| TcpStream::connect(endpoint.address()).unwrap()).collect();
        end(on(&etcd, ["depose", "my-service"])).expect(0);
        until("it works again", || work.pid("child") != child);
        until("it is told to lead", || endpoint.status("/leader") == 200);
        drop(clients);
        running.stop();
    }
}

/// Two in a row, and the answer to the second one does not wait for the first.
fn a_silent_store_delays_no_answer(etcd: Etcd) {
    let (candidate, endpoint) = candidate(&etcd, &[]);
    elected(&candidate, &endpoint);
    assert_eq!(endpoint.asked("/status", &[]).json()["candidates_total"], 1);
    etcd.pause();
    until("it is silent for a while", || {
        endpoint.asked("/status", &[]).json()["seen"]["age_ms"].as_u64().unwrap() > 2_000
    });
    let began = Instant::now();
    let asking: Vec<_> = (0..20).map(|_| Running::start(endpoint.curl("/status", &[]))).collect();
    asking.iter().for_each(|asking| drop(asking.stdout.line_with("\"seen\"")));
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    etcd.resume();
    candidate.stop();
}

fn many_questions_ask_the_store_once(etcd: Etcd) {
    let (candidate, endpoint) = candidate(&etcd, &[]);
    elected(&candidate, &endpoint);
    let reads = "incumbent_store_requests_total{operation=\"read\",result=\"ok\"}";
    let reads = || series(&endpoint.asked("/metrics", &[]).body, reads);
    let (before, began) = (reads(), Instant::now());
    let urls = format!("{}/status?[1-1000]", endpoint.url);
    let mut many = Command::new("curl");
    many.args(["--silent", "--fail", "--noproxy", "*", &urls]);
    end(many).expect(0);
    let (asked, seconds) = (reads() - before, began.elapsed().as_secs_f64());
    println!("{asked} reads in {seconds} s");
    assert!(asked <= seconds + 2.0, "{asked} reads in {seconds} s");
    candidate.stop();
}

fn a_socket_that_was_left_is_replaced(etcd: Etcd) {
    let directory = TempDir::new().unwrap();
    let socket = directory.path().join("socket");
    let listen = format!("unix:{}", socket.display());
    let arguments = ["campaign", "my-service", "--listen", &listen];
    let living = UnixListener::bind(&socket).unwrap();
    end(on(&etcd, arguments))
        .expect(2)
        .only_says(&["--listen unix:", "another process listens there"]);
    drop(living);
    let candidate = Running::start(on(&etcd, arguments));
    candidate.stdout.line_with("elected");
    until("it is told to lead", || Endpoint::on(&socket).status("/leader") == 200);
    assert_eq!(fs::metadata(&socket).unwrap().permissions().mode() & 0o777, 0o660);
    candidate.stop();
    fs::write(&socket, "a file").unwrap();
    end(on(&etcd, arguments)).expect(2).only_says(&["--listen unix:", "nothing is in its place"]);
}
