//! A service behind a load balancer that routes to the leader by `/leader`: how long no instance is
//! routable when the leader hands over, is killed or is paused, and whether one that does not lead
//! ever answers as leader.
//!
//! On three members of etcd, with HAProxy and `examples/load-balancer/haproxy.cfg`. Each instance
//! asks its own endpoint before it answers, and answers with its epoch: an answer with an older epoch
//! than an answer that was there before its request began is one of a former leader.
//!
//! `just bench routed [FAULTS]`

use std::env;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use incumbent_tests::cluster::Cluster;
use incumbent_tests::etcd::Version;
use incumbent_tests::program::children;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

const INSTANCES: usize = 3;
const CLIENTS: usize = 4;
const TTL: Duration = Duration::from_secs(3);
/// Longer than the lease lives.
const PAUSE: Duration = Duration::from_secs(5);
const LIMIT: Duration = Duration::from_secs(60);
const HAPROXY: &str = include_str!("../../../examples/load-balancer/haproxy.cfg");

fn main() -> Result<()> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    if let [serve, port, endpoint] = &*arguments
        && serve == "serve"
    {
        return Err(service(port.parse()?, endpoint)?);
    }
    if Command::new("haproxy").arg("-v").output().is_err() {
        println!("haproxy is not here (Debian's package haproxy): nothing was measured");
        return Ok(());
    }
    // Cargo adds `--bench`.
    let faults = arguments.iter().find_map(|argument| argument.parse().ok()).unwrap_or(50);
    let runtime = tokio::runtime::Runtime::new()?;
    let _inside = runtime.enter();
    let cluster = runtime.block_on(Cluster::start(Version::V3_5, 3));
    measure(&cluster, faults)
}

/// The service of an instance: answers with its epoch, if it leads.
fn service(port: u16, endpoint: &str) -> Result<anyhow::Error> {
    let epoch = env::var("INCUMBENT_EPOCH")?;
    for request in TcpListener::bind(("127.0.0.1", port))?.incoming() {
        let (mut request, epoch, endpoint) = (request?, epoch.clone(), endpoint.to_owned());
        thread::spawn(move || -> Result<()> {
            head_of(&request)?;
            let leads = asked(&endpoint, "/leader").is_ok_and(|(status, _)| status == 200);
            let (status, body) = if leads { ("200 OK", &*epoch) } else { ("503 Not Leader", "") };
            let length = body.len();
            Ok(write!(request, "HTTP/1.0 {status}\r\nContent-Length: {length}\r\n\r\n{body}")?)
        });
    }
    bail!("the service has ended")
}

fn head_of(stream: &TcpStream) -> Result<()> {
    let mut lines = BufReader::new(stream).lines();
    while !lines.next().context("a request without an end")??.is_empty() {}
    Ok(())
}

/// The status and the body of an answer.
fn asked(address: &str, path: &str) -> Result<(u16, String)> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(1)))?;
    write!(stream, "GET {path} HTTP/1.0\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").context("half an answer")?;
    let status = head.split(' ').nth(1).context("no status")?;
    Ok((status.parse()?, body.to_owned()))
}

/// `incumbent run`, and its addresses.
struct Instance {
    id: &'static str,
    service: u16,
    endpoint: String,
    store: String,
    process: Child,
}

impl Instance {
    fn start(id: &'static str, service: u16, endpoint: &str, store: &str) -> Result<Self> {
        let process = Command::new(env!("CARGO_BIN_EXE_incumbent"))
            .args(["run", "my-service", "--id", id, "--store", store, "--listen", endpoint])
            .args(["--ttl", &format!("{}s", TTL.as_secs()), "--"])
            .arg(env::current_exe()?)
            .args(["serve", &service.to_string(), endpoint])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        let (endpoint, store) = (endpoint.to_owned(), store.to_owned());
        Ok(Self { id, service, endpoint, store, process })
    }

    fn again(&mut self) -> Result<()> {
        self.process.wait()?;
        *self = Self::start(self.id, self.service, &self.endpoint, &self.store)?;
        Ok(())
    }

    /// The program, its guard and the service.
    fn tree(&self) -> Vec<i32> {
        let mut tree = vec![self.process.id().cast_signed()];
        let mut next = 0;
        while let Some(&pid) = tree.get(next) {
            tree.extend(children(pid).into_iter().map(|(child, _)| child));
            next += 1;
        }
        tree
    }

    fn leads(&self) -> bool {
        asked(&self.endpoint, "/leader").is_ok_and(|(status, _)| status == 200)
    }

    fn signal(&self, signal: Signal) {
        kill(self.process.id().cast_signed(), signal);
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// To a process that may have ended meanwhile.
fn kill(pid: i32, signal: Signal) {
    if let Some(pid) = Pid::from_raw(pid) {
        let _ = kill_process(pid, signal);
    }
}

/// HAProxy, which ends with this value.
struct Balancer(Child);

impl Drop for Balancer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A request that a client made of the balancer.
#[derive(Clone, Copy)]
struct Request {
    begun: Instant,
    ended: Instant,
    /// The epoch of the leader that answered; none if no leader did.
    epoch: Option<u64>,
}

fn measure(cluster: &Cluster, faults: usize) -> Result<()> {
    let free = || Ok::<_, anyhow::Error>(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port());
    let mut configuration = HAPROXY.to_owned();
    let mut instances = Vec::new();
    for id in ["a", "b", "c"].into_iter().take(INSTANCES) {
        let (service, endpoint) = (free()?, free()?);
        let there = format!("{id}.example:9000 port 8080");
        ensure!(configuration.contains(&there), "haproxy.cfg names other servers");
        configuration =
            configuration.replace(&there, &format!("127.0.0.1:{service} port {endpoint}"));
        let endpoint = format!("127.0.0.1:{endpoint}");
        instances.push(Instance::start(id, service, &endpoint, &cluster.url())?);
    }
    let balancer = format!("127.0.0.1:{}", free()?);
    let directory = TempDir::new()?;
    let file = directory.path().join("haproxy.cfg");
    fs::write(&file, configuration.replace("127.0.0.1:8000", &balancer))?;
    let mut haproxy = Command::new("haproxy");
    let _balancer = Balancer(haproxy.arg("-db").arg("-q").arg("-f").arg(&file).spawn()?);
    wait_until(|| asked(&balancer, "/").is_ok_and(|(status, _)| status == 200))?;

    let requests = Arc::new(Mutex::new(Vec::new()));
    let over = Arc::new(AtomicBool::new(false));
    let clients: Vec<_> = (0..CLIENTS)
        .map(|_| {
            let (balancer, requests, over) =
                (balancer.clone(), Arc::clone(&requests), Arc::clone(&over));
            thread::spawn(move || client(&balancer, &requests, &over))
        })
        .collect();
    wait_until(|| newest(&requests).is_some())?;
    let mut gaps: [Vec<Duration>; 3] = Default::default();
    for fault in 0..faults {
        // All are in line again.
        wait_until(|| {
            instances
                .iter()
                .all(|one| asked(&one.endpoint, "/readyz").is_ok_and(|(status, _)| status == 200))
        })?;
        wait_until(|| instances.iter().any(Instance::leads))?;
        let leader = instances.iter_mut().find(|one| one.leads()).context("nobody leads")?;
        let before = newest(&requests).context("no leader has answered")?;
        let kind = fault % 3;
        match kind {
            0 => {
                leader.signal(Signal::TERM);
                leader.again()?;
            }
            1 => {
                leader.signal(Signal::KILL);
                leader.again()?;
            }
            _ => {
                let tree = leader.tree();
                tree.iter().for_each(|&pid| kill(pid, Signal::STOP));
                thread::sleep(PAUSE);
                tree.iter().for_each(|&pid| kill(pid, Signal::CONT));
            }
        }
        wait_until(|| newest(&requests) > Some(before))?;
        let requests = lock(&requests);
        let last =
            requests.iter().filter(|one| one.epoch == Some(before)).map(|one| one.ended).max();
        let next =
            requests.iter().filter(|one| one.epoch > Some(before)).map(|one| one.ended).min();
        let (last, next) = (last.context("no last answer")?, next.context("no next answer")?);
        if let Some(gaps) = gaps.get_mut(kind) {
            gaps.push(next.saturating_duration_since(last));
        }
    }
    over.store(true, Ordering::Relaxed);
    for client in clients {
        client.join().ok().context("a client has failed")?;
    }
    report(&lock(&requests), &mut gaps)
}

fn client(balancer: &str, requests: &Mutex<Vec<Request>>, over: &AtomicBool) {
    while !over.load(Ordering::Relaxed) {
        let begun = Instant::now();
        let answer = asked(balancer, "/");
        let epoch = answer.ok().filter(|(status, _)| *status == 200);
        let epoch = epoch.and_then(|(_, body)| body.parse().ok());
        lock(requests).push(Request { begun, ended: Instant::now(), epoch });
        thread::sleep(Duration::from_millis(5));
    }
}

fn report(requests: &[Request], gaps: &mut [Vec<Duration>; 3]) -> Result<()> {
    let mut answered: Vec<_> = requests.iter().filter(|one| one.epoch.is_some()).collect();
    answered.sort_by_key(|one| one.ended);
    // The newest epoch that had answered by the end of each.
    let newest: Vec<_> = answered
        .iter()
        .scan(None, |newest, one| {
            *newest = one.epoch.max(*newest);
            Some(*newest)
        })
        .collect();
    let is_former = |one: &&&Request| {
        let before = answered.partition_point(|other| other.ended < one.begun);
        before.checked_sub(1).and_then(|last| *newest.get(last)?) > one.epoch
    };
    let former = answered.iter().filter(is_former).count();
    println!(
        "{} requests: {} answered by a leader, {} by nobody, {former} by a former leader",
        requests.len(),
        answered.len(),
        requests.len() - answered.len()
    );
    for (kind, gaps) in ["handed over", "killed", "paused"].into_iter().zip(gaps) {
        gaps.sort_unstable();
        if let (Some(median), Some(worst)) = (gaps.get(gaps.len() / 2), gaps.last()) {
            println!(
                "{kind} {} times: no answer for {median:.2?} (median), {worst:.2?} (worst); the lease is {TTL:?}",
                gaps.len()
            );
        }
    }
    ensure!(former == 0, "a former leader has answered");
    Ok(())
}

/// The newest epoch that has answered.
fn newest(requests: &Mutex<Vec<Request>>) -> Option<u64> {
    lock(requests).iter().filter_map(|one| one.epoch).max()
}

fn lock(requests: &Mutex<Vec<Request>>) -> std::sync::MutexGuard<'_, Vec<Request>> {
    requests.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn wait_until(mut holds: impl FnMut() -> bool) -> Result<()> {
    let since = Instant::now();
    while !holds() {
        ensure!(since.elapsed() < LIMIT, "it takes too long");
        thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}
