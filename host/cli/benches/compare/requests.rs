//! What etcd is asked, as it counts that itself.

use std::collections::BTreeMap;

/// A kind of work whose requests are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Work {
    Won,
    TakenOver,
    Pair,
    Queue,
    AtRest,
}

impl Work {
    pub const ALL: [Self; 5] = [Self::Won, Self::TakenOver, Self::Pair, Self::Queue, Self::AtRest];

    pub fn name(self) -> &'static str {
        match self {
            Self::Won => "an election won, one of very many on one lease",
            Self::TakenOver => "an election taken over, when the leader of very many closes",
            Self::Pair => "a handover between two, the successor's joining included",
            Self::Queue => "a handover in a queue",
            Self::AtRest => "a lease of 1,000 elections at rest, for one lease time",
        }
    }
}

/// How many requests, by kind.
#[derive(Clone, Debug, Default)]
pub struct Requests {
    /// Messages by method. A stream counts with each of its messages: keep-alives, and watches
    /// that are opened and closed.
    pub methods: BTreeMap<String, f64>,
    /// How many of them were written to the log of the members.
    pub writes: f64,
}

impl Requests {
    /// All so far, from the metrics of each member.
    pub fn read(members: &[String]) -> Self {
        let mut requests = Self::default();
        for line in members.iter().flat_map(|metrics| metrics.lines()) {
            if let Some((method, count)) = received(line) {
                *requests.methods.entry(method.into()).or_default() += count;
            }
            // Each member has the whole log.
            if let Some(count) = line.strip_prefix("etcd_server_proposals_committed_total ") {
                requests.writes = requests.writes.max(count.parse().unwrap_or_default());
            }
        }
        requests
    }

    /// What has come since then.
    pub fn since(mut self, before: &Self) -> Self {
        for (method, count) in &mut self.methods {
            *count -= before.methods.get(method).unwrap_or(&0.0);
        }
        self.writes -= before.writes;
        self
    }

    pub fn add(&mut self, more: &Self) {
        for (method, count) in &more.methods {
            *self.methods.entry(method.clone()).or_default() += count;
        }
        self.writes += more.writes;
    }

    /// The share of one work of so many.
    pub fn each(&self, works: f64) -> Self {
        let share = |(method, count): (&String, &f64)| (method.clone(), count / works);
        Self { methods: self.methods.iter().map(share).collect(), writes: self.writes / works }
    }

    pub fn total(&self) -> f64 {
        self.methods.values().sum()
    }

    /// Those that are answered without the log.
    pub fn reads(&self) -> f64 {
        (self.total() - self.watches() - self.keep_alives() - self.writes).max(0.0)
    }

    /// Watches that are opened and closed.
    pub fn watches(&self) -> f64 {
        self.of("Watch")
    }

    pub fn keep_alives(&self) -> f64 {
        self.of("LeaseKeepAlive")
    }

    fn of(&self, method: &str) -> f64 {
        self.methods.get(method).copied().unwrap_or_default()
    }
}

/// A method, and how many messages of it a member has received.
fn received(line: &str) -> Option<(&str, f64)> {
    let (labels, count) = line.strip_prefix("grpc_server_msg_received_total{")?.split_once("} ")?;
    let (_, method) = labels.split_once("grpc_method=\"")?;
    let (method, _) = method.split_once('"')?;
    Some((method, count.parse().ok()?))
}
