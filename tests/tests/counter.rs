//! Leaders on a real etcd count together, while the network, etcd and an operator do
//! their worst: every increment that was acknowledged was made once, and no other but
//! those whose outcome nobody knows.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use incumbent::admin::Admin;
use incumbent::{Credentials, EtcdStore, Fence, Options, Session};
use incumbent_simulation::history::History;
use incumbent_tests::counter::Counter;
use incumbent_tests::etcd::Etcd;
use incumbent_tests::on_each_version;
use incumbent_tests::relay::Relay;
use incumbent_tests::wait::{ExpectSoon, until};
use parking_lot::Mutex;
use tokio::time::{sleep, timeout};

const NAME: &str = "jobs";
const WORKERS: usize = 3;

/// How many faults there are, and how long each may last, in milliseconds.
const FAULTS: usize = 14;
const LONGEST: u64 = 1_600;

on_each_version! { no_increment_is_lost_and_none_is_a_deposed_leaders }

async fn no_increment_is_lost_and_none_is_a_deposed_leaders(etcd: Etcd) {
    let (began, history) = (Instant::now(), Mutex::default());
    let counting = Arc::new(Counting { began, history, over: AtomicBool::new(false) });
    let mut relays = Vec::new();
    let mut workers = Vec::new();
    for worker in 0..WORKERS {
        let relay = Relay::start(etcd.address()).await;
        let options = Options {
            identity: format!("worker-{worker}"),
            ttl: Duration::from_secs(2),
            ..Options::default()
        };
        // Connected before anything is disturbed.
        let session = Session::connect(&relay.url(), options).expect_soon("connects").await;
        let counter = Counter::connect(&relay.url(), NAME).expect_soon("connects").await;
        workers.push(tokio::spawn(work(worker, session, counter, Arc::clone(&counting))));
        relays.push(relay);
    }
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    disturb(&etcd, &relays, &mut fastrand::Rng::with_seed(seed)).await;

    // Those who were waiting come to lead, and count, when all is well again.
    let before = counting.applied();
    until("leaders count on", async || counting.applied() >= before + 20).await;
    counting.over.store(true, Ordering::Relaxed);
    for worker in workers {
        worker.expect_soon("a worker ends").await;
    }
    let counter = Counter::connect(&etcd.url(), NAME).expect_soon("connects").await;
    let last = counter.value().expect_soon("etcd answers").await;
    let history = counting.history.lock();
    println!("{} of {last} increments were acknowledged", history.applied());
    assert!(history.is_linearizable(0, last), "no order explains what was seen");
}

/// What all workers see, in one order.
struct Counting {
    began: Instant,
    history: Mutex<History>,
    over: AtomicBool,
}

impl Counting {
    fn applied(&self) -> usize {
        self.history.lock().applied()
    }

    /// Notes something, at the time when it is noted.
    fn note<T>(&self, note: impl FnOnce(&mut History, u64) -> T) -> T {
        let mut history = self.history.lock();
        let now = u64::try_from(self.began.elapsed().as_nanos()).expect("a test is short");
        note(&mut history, now)
    }
}

/// Campaigns, counts while it leads, and lets others have their turn.
async fn work(worker: usize, session: Session, counter: Counter, counting: Arc<Counting>) {
    let election = session.election(NAME);
    while !counting.over.load(Ordering::Relaxed) {
        let Ok(campaign) = timeout(Duration::from_secs(1), election.campaign()).await else {
            continue;
        };
        let leadership = campaign.expect("nothing ends a candidacy");
        let fence = leadership.fence();
        for _ in 0..40 {
            // On after the term is over, too: what is written then is to be refused.
            let is_over = !leadership.is_valid();
            increment(worker, &counter, &fence, &counting).await;
            sleep(Duration::from_millis(5)).await;
            if is_over {
                break;
            }
        }
        drop(leadership);
    }
    session.close().expect_soon("closes").await;
}

async fn increment(worker: usize, counter: &Counter, fence: &Fence, counting: &Counting) {
    let increment = counting.note(|history, now| history.begin(worker, 0, now));
    let seen = |value, _| counting.note(|history, now| history.read(increment, now, value));
    let outcome = counter.increment(fence, seen).await;
    counting.note(|history, now| history.end(increment, now, outcome));
}

/// Cuts, stalls, pauses, deposes.
async fn disturb(etcd: &Etcd, relays: &[Relay], rng: &mut fastrand::Rng) {
    let url = etcd.url().parse().expect("is a URL");
    let within = Duration::from_secs(5);
    let operator = EtcdStore::connect(&url, &Credentials::default(), within).await;
    let operator = operator.expect("connects");
    for _ in 0..FAULTS {
        let relay = &relays[rng.usize(..relays.len())];
        let lasts = Duration::from_millis(rng.u64(50..LONGEST));
        match rng.u8(..7) {
            0 => relay.cut(),
            1 => relay.refuse(),
            2 => relay.stall_requests(),
            3 => relay.stall_replies(),
            4 => etcd.pause(),
            5 => {
                // A leader may have gone meanwhile.
                let _ = Admin::new(&operator, NAME).timeout(within).depose(None).await;
            }
            _ => relays.iter().for_each(|relay| relay.stall_replies()),
        }
        sleep(lasts).await;
        etcd.resume();
        for relay in relays {
            relay.accept();
            relay.flow();
        }
        sleep(Duration::from_millis(rng.u64(50..400))).await;
    }
}
