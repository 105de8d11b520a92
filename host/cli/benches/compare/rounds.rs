//! What is measured on one etcd, in turns: first the one peer, then the other.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::Result;
use incumbent_tests::cluster::Cluster;
use incumbent_tests::etcd::{Etcd, SYNCED, Version};

use crate::elections::{self, SERIES, Shift};
use crate::handovers;
use crate::peers::{Peer, Programs, Side};
use crate::requests::{Requests, Work};
use crate::store::Store;
use crate::supervisors::{self, Supervised};

/// Above it, elections are won and taken over only once, and only on etcd 3.5.
pub const MANY: usize = 10_000;

/// How many members the cluster has on which quiet handovers are measured as well.
const MEMBERS: usize = 3;

/// How much is measured.
#[derive(Clone, Copy)]
pub struct Extent {
    /// Handovers of each kind.
    pub handovers: usize,
    /// How often each number of elections is won and taken over.
    pub repeats: usize,
    /// The most elections in one process.
    pub elections: usize,
    /// Sessions in one queue.
    pub sessions: usize,
    /// How often `etcdctl lock` and `incumbent run` are started, stopped and killed.
    pub supervisors: usize,
}

/// What was measured of one peer.
#[derive(Default)]
pub struct Measured {
    pub shifts: Vec<Shift>,
    /// When each election was led again after its leading process had been killed.
    pub killed: Vec<Vec<Duration>>,
    /// When each election was led again after its term had been dropped.
    pub dropped: Vec<Vec<Duration>>,
    pub quiet: Vec<Duration>,
    pub fresh: Vec<Duration>,
    pub churn: Vec<Duration>,
    /// Quiet handovers on [`MEMBERS`] members.
    pub on_three: Vec<Duration>,
    pub herd: Vec<Duration>,
    /// Resident memory for each session of a queue, in bytes.
    pub session: f64,
    pub supervised: Supervised,
    /// What etcd was asked, for so much of each work.
    requests: BTreeMap<Work, (Requests, f64)>,
}

impl Measured {
    /// Counts what etcd was asked since then, for so much work.
    pub fn count(&mut self, work: Work, store: &Store<'_>, before: &Requests, works: f64) {
        let (requests, all) = self.requests.entry(work).or_default();
        requests.add(&store.requests().since(before));
        *all += works;
    }

    /// The most elections that were taken over within their time.
    pub fn most(&self) -> Option<&Shift> {
        self.shifts.iter().rfind(|shift| !shift.taken_over.is_empty())
    }

    /// What etcd is asked for one such work.
    pub fn asked(&self, work: Work) -> Requests {
        let counted = self.requests.get(&work);
        let most = self.most();
        let requests = match work {
            Work::Won => most.map(|shift| shift.won_with.clone()),
            Work::TakenOver => most.map(|shift| shift.taken_over_with.clone()),
            Work::Pair | Work::Queue | Work::AtRest => {
                counted.map(|(requests, works)| requests.each(*works))
            }
        };
        requests.unwrap_or_default()
    }
}

/// What was measured on one etcd.
pub struct OnEtcd {
    pub version: Version,
    pub go: Measured,
    pub ours: Measured,
    /// A handover's least, with etcd-client alone.
    pub floor: Vec<Duration>,
}

impl OnEtcd {
    pub fn of(&mut self, side: Side) -> &mut Measured {
        match side {
            Side::Go => &mut self.go,
            Side::Ours => &mut self.ours,
        }
    }

    /// Both peers, in the order of [`Side::ALL`].
    pub fn both(&self) -> [(Side, &Measured); 2] {
        [(Side::Go, &self.go), (Side::Ours, &self.ours)]
    }
}

/// The peers, and the etcd that they are on.
pub struct Bench<'a> {
    programs: &'a Programs,
    url: String,
    pub extent: Extent,
    version: Version,
    since: Instant,
}

impl Bench<'_> {
    pub fn start(&self, side: Side, ttl: Duration) -> Result<Peer> {
        self.programs.start(side, &self.url, ttl)
    }

    /// Says what is measured now: all of it takes minutes.
    pub fn progress(&self, what: &str) {
        eprintln!("etcd {}, {:3.0} s: {what}", self.version, self.since.elapsed().as_secs_f64());
    }
}

/// Everything, on etcds of this version and on a cluster of them.
pub async fn measure(programs: &Programs, version: Version, extent: Extent) -> Result<OnEtcd> {
    let mut measured =
        OnEtcd { version, go: Measured::default(), ours: Measured::default(), floor: Vec::new() };
    on_one_etcd(programs, extent, &mut measured).await?;
    on_three(programs, extent, &mut measured).await?;
    let beyond = SERIES.into_iter().filter(|count| (MANY + 1..=extent.elections).contains(count));
    for count in beyond.filter(|_| version == Version::V3_5) {
        for side in Side::ALL {
            alone(programs, extent, &mut measured, (count, side)).await?;
        }
    }
    Ok(measured)
}

/// Everything but the largest numbers of elections.
async fn on_one_etcd(programs: &Programs, extent: Extent, measured: &mut OnEtcd) -> Result<()> {
    let version = measured.version;
    let etcd = Etcd::start_with(version, SYNCED);
    let bench = Bench { programs, url: etcd.url(), extent, version, since: Instant::now() };
    let mut store = Store::connect(&etcd).await?;
    bench.progress("handovers");
    handovers::between_two(&bench, &etcd, &mut store, measured).await?;
    handovers::in_a_queue(&bench, &mut store, measured).await?;
    bench.progress("programs");
    for round in 0..extent.supervisors {
        for side in Side::ALL {
            let supervised = &mut measured.of(side).supervised;
            supervisors::round(side, &etcd, &mut store, supervised, round).await?;
        }
    }
    bench.progress("processes that are killed");
    for repeat in 0..extent.repeats {
        for side in Side::ALL {
            let peer = measured.of(side);
            elections::killed(&bench, side, &mut store, peer, repeat).await?;
        }
    }
    bench.progress("terms that are dropped");
    for repeat in 0..extent.repeats {
        for side in Side::ALL {
            let peer = measured.of(side);
            elections::dropped(&bench, side, &mut store, peer, repeat).await?;
        }
    }
    for count in SERIES.into_iter().filter(|count| *count <= extent.elections.min(MANY)) {
        bench.progress(&format!("{count} elections"));
        for repeat in 0..extent.repeats {
            for side in Side::ALL {
                let peer = measured.of(side);
                elections::shift(&bench, side, &mut store, peer, (count, repeat)).await?;
            }
        }
    }
    Ok(())
}

/// Handovers on a cluster.
async fn on_three(programs: &Programs, extent: Extent, measured: &mut OnEtcd) -> Result<()> {
    let version = measured.version;
    let cluster = Cluster::start_with(version, MEMBERS, SYNCED).await;
    for first in 0..MEMBERS {
        let url = cluster.url_from(first);
        let bench = Bench { programs, url, extent, version, since: Instant::now() };
        bench.progress("handovers on three members");
        handovers::on_a_cluster(&bench, &cluster, first, measured).await?;
    }
    Ok(())
}

/// So many elections that etcd can still be busy with them when their processes have ended: each
/// peer has an etcd of its own.
async fn alone(
    programs: &Programs,
    extent: Extent,
    measured: &mut OnEtcd,
    (count, side): (usize, Side),
) -> Result<()> {
    let version = measured.version;
    let etcd = Etcd::start_with(version, SYNCED);
    let bench = Bench { programs, url: etcd.url(), extent, version, since: Instant::now() };
    bench.progress(&format!("{count} elections of {side:?}"));
    let mut store = Store::connect(&etcd).await?;
    elections::shift(&bench, side, &mut store, measured.of(side), (count, 0)).await
}
