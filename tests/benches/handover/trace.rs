//! Where the time of a quiet handover goes, by what the library logs meanwhile.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use incumbent_tests::etcd::Etcd;
use incumbent_tests::floor::Floor;
use parking_lot::Mutex;
use tokio::time::sleep;
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::layer::{Context, SubscriberExt as _};
use tracing_subscriber::{Layer, Registry};

use super::{IN_LINE, hand_over, session};

/// What is said from now on.
#[derive(Clone, Default)]
pub struct Trace(Arc<Mutex<Vec<Said>>>);

/// One line of the log.
struct Said {
    at: Instant,
    message: String,
    id: Option<u64>,
    operation: Option<String>,
}

/// The steps of a handover, and when each was over.
const STEPS: [&str; 5] = [
    "from the resignation until the deletion is sent",
    "until the successor hears of it: etcd writes it to the disk",
    "until the successor's read is sent",
    "until it is answered",
    "until `campaign` returns",
];

impl Trace {
    /// Has this process log for it, as long as it lives.
    pub fn start() -> Result<Self> {
        let trace = Self::default();
        tracing::subscriber::set_global_default(Registry::default().with(trace.clone()))?;
        Ok(trace)
    }

    /// Hands an election over, and prints how long each step takes, beside the same with
    /// etcd-client alone.
    pub async fn print(&self, etcd: &Etcd, rounds: usize) -> Result<()> {
        let sessions = [session(etcd).await?, session(etcd).await?];
        let mut floor = Floor::connect(etcd).await?;
        let mut leader = sessions[0].election("trace").campaign().await?;
        let (mut ours, mut floors) = (Vec::new(), Vec::new());
        for round in 0..rounds {
            floor.prepare().await?;
            sleep(IN_LINE).await;
            floors.push(floor.hand_over().await?);
            let successor = sessions[(round + 1) % 2].election("trace");
            let (next, [began, elected]) = hand_over(leader, &successor, IN_LINE).await?;
            leader = next;
            ours.push(self.steps(began, elected).context("a handover is logged")?);
        }
        leader.resign().await?;
        println!("  the steps of a quiet handover, p50, incumbent and etcd-client alone");
        for (at, step) in STEPS.iter().enumerate() {
            let ours = median(ours.iter().map(|steps| steps[at]));
            let floor = match at {
                1 => format!("{:8.0} µs", median(floors.iter().map(|[event, _]| *event))),
                3 => format!("{:8.0} µs", median(floors.iter().map(|[_, read]| *read))),
                _ => String::new(),
            };
            println!("    {step:60} {ours:6.0} µs {floor}");
        }
        Ok(())
    }

    /// How long each step of the handover between these moments took.
    fn steps(&self, began: Instant, elected: Instant) -> Option<[Duration; STEPS.len()]> {
        let said = std::mem::take(&mut *self.0.lock());
        let mut said = said.iter().skip_while(|said| said.at < began);
        let is_call = |said: &Said, operation| {
            said.message == "call" && said.operation.as_deref() == Some(operation)
        };
        let deletion = said.find(|said| is_call(said, "guarded"))?.at;
        let seen = said.find(|said| said.message == "deletion seen")?.at;
        let read = said.find(|said| is_call(said, "read"))?;
        let answered = said.find(|said| said.message == "reply" && said.id == read.id)?.at;
        let ends = [deletion, seen, read.at, answered, elected];
        let mut since = began;
        Some(ends.map(|end| end - std::mem::replace(&mut since, end)))
    }
}

/// In microseconds.
fn median(times: impl Iterator<Item = Duration>) -> f64 {
    let mut times: Vec<_> = times.collect();
    times.sort_unstable();
    times[times.len() / 2].as_secs_f64() * 1e6
}

impl<S: Subscriber> Layer<S> for Trace {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut said =
            Said { at: Instant::now(), message: String::new(), id: None, operation: None };
        if event.metadata().target().starts_with("incumbent") {
            event.record(&mut said);
            self.0.lock().push(said);
        }
    }
}

impl Visit for Said {
    fn record_u64(&mut self, field: &Field, value: u64) {
        if field.name() == "id" {
            self.id = Some(value);
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "operation" {
            self.operation = Some(value.to_owned());
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if field.name() == "message" {
            self.message = format!("{value:?}");
        }
    }
}
