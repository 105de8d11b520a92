//! Whatever an elector says, and whatever the store answers: the library does not panic,
//! comes to rest, tells the application of no leadership beyond what the store has
//! granted, of one term at a time, in rising epochs, and can be closed.

use std::collections::BTreeMap;
use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use arbitrary::Result;
use futures_util::future::{BoxFuture, pending, ready};
use futures_util::{FutureExt, Stream, StreamExt};
use incumbent::types::{self, *};
use incumbent::{
    Candidate, Clock, Epoch, Failure, Leadership, LeaseId, ManualClock, Mark, Options, Reason,
    Session, Store, TermInfo, Watches,
};
use parking_lot::Mutex;

use super::panics::Panics;
use crate::hostile;
use incumbent_simulation::properties::embedded::{
    self as anything, Bytes, Known, number, span, text,
};

type Events = Box<dyn Stream<Item = incumbent::Event> + Send + Unpin>;

/// How many moves the application makes at most.
const MOST: usize = 60;
/// How far the clock goes at once.
const FAR: u64 = 1 << 50;
/// The longest lease that the store grants.
const LONGEST: u64 = 60_000_000_000;
/// How long a closed session may take: longer than any lease here, and than the pauses
/// before a broken elector is replaced.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(300);

/// Runs a session with an elector that says what the bytes say. Panics if the library does
/// what it must not.
pub fn check(bytes: &[u8]) {
    let panics = Panics::new();
    let mut bytes = Bytes::new(bytes);
    let Ok(steps) = steps(&mut bytes) else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("starts");
    runtime.block_on(async {
        let mut world = World::open(&hostile::elector(&steps), &mut bytes).await;
        for _ in 0..MOST {
            if bytes.is_empty() || world.make(&mut bytes).is_err() {
                break;
            }
            world.look().await;
        }
        world.close().await;
    });
    panics.check();
}

// What the elector says.

fn steps(bytes: &mut Bytes<'_>) -> Result<Vec<Step>> {
    let many = bytes.int_in_range(1..=12)?;
    (0..many)
        .map(|_| {
            let many = match bytes.int_in_range(0..=31)? {
                31 => 200,
                few => few % 6,
            };
            let same = many > 6;
            let commands = if same {
                vec![command(bytes)?; many]
            } else {
                (0..many).map(|_| command(bytes)).collect::<Result<_>>()?
            };
            let deadline = if bytes.ratio(1, 3)? { Some(mark(bytes)?) } else { None };
            Ok(Step { commands, deadline })
        })
        .collect()
}

fn known() -> Known {
    Known { keys: vec![b"jobs".into(), b"jobs/1".into(), b"/data".into()], leases: vec![1, 2] }
}

fn command(bytes: &mut Bytes<'_>) -> Result<Command> {
    Ok(match bytes.int_in_range(0..=15)? {
        0..=4 => Command::Call(Call {
            id: request(bytes)?,
            give_up: mark(bytes)?,
            operation: operation(bytes)?,
        }),
        5 | 6 => Command::Watch(Watch {
            id: request(bytes)?,
            key: anything::key(bytes, &known())?,
            prefix: bytes.arbitrary()?,
            since: bytes.arbitrary()?,
        }),
        7 => Command::Unwatch(request(bytes)?),
        _ => Command::Notify(notice(bytes)?),
    })
}

fn request(bytes: &mut Bytes<'_>) -> Result<RequestId> {
    if bytes.ratio(15, 16)? { bytes.int_in_range(0..=20) } else { bytes.arbitrary() }
}

/// Mostly one that is soon.
fn mark(bytes: &mut Bytes<'_>) -> Result<Mark> {
    if bytes.ratio(3, 4)? { Ok(bytes.int_in_range(0..=40)? * 1_000_000_000) } else { span(bytes) }
}

fn operation(bytes: &mut Bytes<'_>) -> Result<Operation> {
    let lease = anything::lease(bytes, &known())?;
    Ok(match bytes.int_in_range(0..=7)? {
        0..=2 => Operation::Grant(Grant { lease, ttl: span(bytes)? }),
        3 | 4 => Operation::KeepAlive(lease),
        5 => Operation::Revoke(lease),
        6 => Operation::Claim(Claim {
            key: anything::key(bytes, &known())?,
            value: Vec::new(),
            lease,
        }),
        _ => Operation::Read(Vec::new()),
    })
}

fn term(bytes: &mut Bytes<'_>) -> Result<Term> {
    let election = if bytes.ratio(15, 16)? { bytes.int_in_range(0..=3)? } else { 1 << 20 };
    Ok(Term { election, epoch: number(bytes)? })
}

fn extension(bytes: &mut Bytes<'_>) -> Result<Extension> {
    Ok(Extension { lease: anything::lease(bytes, &known())?, valid_until: mark(bytes)? })
}

fn leadership(bytes: &mut Bytes<'_>) -> Result<types::Leadership> {
    Ok(types::Leadership {
        term: term(bytes)?,
        key: anything::key(bytes, &known())?,
        lease: anything::lease(bytes, &known())?,
        valid_until: mark(bytes)?,
    })
}

fn notice(bytes: &mut Bytes<'_>) -> Result<Notice> {
    let election = term(bytes)?.election;
    Ok(match bytes.int_in_range(0..=23)? {
        0 | 1 => Notice::Joined(Joined {
            election,
            key: anything::key(bytes, &known())?,
            created: number(bytes)?,
        }),
        2..=9 => Notice::Elected(leadership(bytes)?),
        10..=12 => Notice::Extended(extension(bytes)?),
        13 => Notice::Endangered(leadership(bytes)?),
        14..=16 => Notice::Demoted(Demotion { term: term(bytes)?, reason: Reason::Deposed }),
        17 => Notice::Leader(Sighting {
            election,
            leader: if bytes.arbitrary()? { Some(anything::entry(bytes, &known())?) } else { None },
        }),
        18 => Notice::Listed(Listing { election, candidates: anything::entries(bytes, &known())? }),
        19 => Notice::Written(Written {
            ticket: bytes.int_in_range(0..=4)?,
            outcome: WriteOutcome::Applied(number(bytes)?),
        }),
        20 => Notice::Withdrawn(Withdrawal {
            election,
            cause: if bytes.arbitrary()? { Some(anything::failure(bytes)?) } else { None },
        }),
        21 => Notice::Closed,
        22 => Notice::HandOver(term(bytes)?),
        _ => Notice::Trouble(Trouble {
            election: if bytes.arbitrary()? { Some(election) } else { None },
            failure: Failure::Other(text(bytes)?),
        }),
    })
}

// What the store answers.

#[derive(Clone, Debug)]
struct Absurd {
    clock: ManualClock,
    shared: Arc<Mutex<Shared>>,
}

#[derive(Debug, Default)]
struct Shared {
    /// What the next answers are read from.
    bytes: Vec<u8>,
    read: usize,
    /// How long the grants and renewals that were answered let each lease live, at most.
    allowed: BTreeMap<i64, Mark>,
}

impl Shared {
    /// Reads from the bytes, around and around.
    fn next<T>(&mut self, read: impl FnOnce(&mut Bytes<'_>) -> Result<T>) -> Option<T> {
        let start = self.read.checked_rem(self.bytes.len()).unwrap_or_default();
        let mut bytes = Bytes::new(&self.bytes[start..]);
        let before = bytes.len();
        let value = read(&mut bytes).ok();
        self.read += (before - bytes.len()).max(1);
        value
    }
}

impl Store for Absurd {
    fn call(&self, operation: Operation, within: Duration) -> BoxFuture<'static, Answer> {
        let mut shared = self.shared.lock();
        let (kinds, findings) = anything::fitting(&operation);
        let known = known();
        let answer = shared.next(|bytes| {
            let pending = bytes.ratio(1, 8)?;
            let outcome = anything::outcome(bytes, &known, kinds, findings)?;
            Ok((pending, outcome))
        });
        let Some((false, mut outcome)) = answer else {
            if let Operation::KeepAlive(_) = operation {
                return pending().boxed();
            }
            let within = u64::try_from(within.as_nanos()).unwrap_or(u64::MAX);
            let end = self.clock.now().saturating_add(within);
            return self.clock.sleep_until(end).map(|()| Err(Failure::Timeout)).boxed();
        };
        if let Ok(Response::Granted(ttl) | Response::Renewed(ttl)) = &mut outcome {
            *ttl = LONGEST.min(*ttl);
        }
        if let Operation::Grant(Grant { lease, .. }) | Operation::KeepAlive(lease) = operation
            && let Ok(Response::Granted(ttl) | Response::Renewed(ttl)) = outcome
        {
            let until = self.clock.now().saturating_add(ttl);
            let allowed = shared.allowed.entry(lease).or_default();
            *allowed = until.max(*allowed);
        }
        ready(outcome).boxed()
    }

    fn watches(&self) -> Box<dyn Watches> {
        Box::new(AbsurdWatches { store: self.clone(), news: VecDeque::new() })
    }
}

#[derive(Debug)]
struct AbsurdWatches {
    store: Absurd,
    news: VecDeque<Watched>,
}

impl Watches for AbsurdWatches {
    fn open(&mut self, watch: Watch) {
        let mut shared = self.store.shared.lock();
        let known = known();
        let changes = shared.next(|bytes| {
            let many = bytes.int_in_range(0..=3)?;
            (0..many).map(|_| anything::change(bytes, &known)).collect::<Result<Vec<_>>>()
        });
        let changes = changes.unwrap_or_default().into_iter();
        self.news.extend(changes.map(|change| Watched { id: watch.id, change }));
    }

    fn close(&mut self, id: RequestId) {
        self.news.retain(|watched| watched.id != id);
    }

    fn poll_next(&mut self, _: &mut Context<'_>) -> Poll<Watched> {
        self.news.pop_front().map_or(Poll::Pending, Poll::Ready)
    }
}

// What the application does, and what it must not be told.

struct World {
    clock: ManualClock,
    shared: Arc<Mutex<Shared>>,
    session: Session,
    parts: Vec<Part>,
    held: Vec<Leadership>,
    others: Vec<BoxFuture<'static, ()>>,
}

struct Part {
    candidate: Option<Candidate>,
    events: Events,
    leads: Option<Epoch>,
    last_epoch: Epoch,
}

impl World {
    async fn open(component: &[u8], bytes: &mut Bytes<'_>) -> World {
        let clock = ManualClock::default();
        let half = bytes.len() / 2;
        let answers = bytes.bytes(half).map(Vec::from).unwrap_or_default();
        let shared = Arc::new(Mutex::new(Shared { bytes: answers, ..Shared::default() }));
        let store = Absurd { clock: clock.clone(), shared: Arc::clone(&shared) };
        let options = Options {
            component: Some(component.into()),
            clock: Arc::new(clock.clone()),
            identity: "us".into(),
            ..Options::default()
        };
        let session = Session::open(store, options).await.expect("opens");
        World { clock, shared, session, parts: Vec::new(), held: Vec::new(), others: Vec::new() }
    }

    fn make(&mut self, bytes: &mut Bytes<'_>) -> Result<()> {
        let election = self.session.election("jobs");
        match bytes.int_in_range(0..=15)? {
            0..=2 if self.parts.len() < 4 => {
                let candidate = election.join();
                let events = Box::new(candidate.events().fuse());
                let candidate = Some(candidate);
                self.parts.push(Part {
                    candidate,
                    events,
                    leads: None,
                    last_epoch: Epoch::default(),
                });
            }
            3 => self.later(async move { drop(election.observe().collect::<Vec<_>>().await) }),
            4 => self.later(async move { drop(election.candidates().await) }),
            5 => {
                if let Some(part) = choose(bytes, &mut self.parts)? {
                    part.candidate = None;
                }
            }
            6..=8 => {
                if let Some(part) = choose(bytes, &mut self.parts)?
                    && let Some(candidate) = &mut part.candidate
                    && let Some(Ok(leadership)) = candidate.elected().now_or_never()
                {
                    self.held.push(leadership);
                }
            }
            9 => {
                if let Some(leadership) = choose(bytes, &mut self.held)? {
                    let fence = leadership.fence();
                    self.later(async move { drop(fence.put("/data", "v").await) });
                }
            }
            10 if !self.held.is_empty() => {
                let index = bytes.choose_index(self.held.len())?;
                drop(self.held.remove(index));
            }
            11 => self.clock.advance(Duration::from_nanos(span(bytes)?.min(FAR))),
            _ => self.clock.advance(Duration::from_millis(bytes.int_in_range(0..=5_000)?)),
        }
        Ok(())
    }

    fn later(&mut self, request: impl Future<Output = ()> + Send + 'static) {
        let mut request = request.boxed();
        if request.poll_unpin(&mut Context::from_waker(Waker::noop())).is_pending() {
            self.others.push(request);
        }
    }

    /// Lets the session work, and looks at what it tells.
    async fn look(&mut self) {
        for _ in 0..4 {
            tokio::task::yield_now().await;
        }
        let shared = self.shared.lock();
        let allowed =
            |lease: LeaseId| shared.allowed.get(&i64::from(lease)).copied().unwrap_or_default();
        for part in &mut self.parts {
            while let Some(Some(event)) = part.events.next().now_or_never() {
                part.hear(event, allowed);
            }
        }
        for leadership in &self.held {
            let allowed = allowed(leadership.lease());
            assert!(leadership.valid_until() <= allowed, "{leadership:?}: {allowed}");
            assert!(!leadership.is_valid() || self.clock.now() < allowed, "{leadership:?}");
        }
    }

    async fn close(mut self) {
        self.look().await;
        self.held.clear();
        let session = self.session.clone();
        let mut closing = Box::pin(async move { session.close().await });
        let end = self.clock.now().saturating_add(u64::try_from(CLOSE_TIMEOUT.as_nanos()).unwrap());
        loop {
            tokio::task::yield_now().await;
            if let Some(closed) = (&mut closing).now_or_never() {
                closed.expect("closes");
                break;
            }
            self.look().await;
            assert!(self.clock.now() < end, "it never closes");
            self.clock.advance(Duration::from_secs(5));
        }
    }
}

impl Part {
    fn hear(&mut self, event: incumbent::Event, allowed: impl Fn(LeaseId) -> Mark) {
        match event {
            incumbent::Event::Elected(TermInfo { epoch, lease, valid_until, .. }) => {
                assert_eq!(self.leads, None, "one term at a time");
                assert!(epoch > self.last_epoch, "epochs rise");
                assert!(valid_until <= allowed(lease), "{valid_until}: {}", allowed(lease));
                self.leads = Some(epoch);
                self.last_epoch = epoch;
            }
            incumbent::Event::Extended(TermInfo { epoch, lease, valid_until, .. }) => {
                assert_eq!(self.leads, Some(epoch), "what stands is extended");
                assert!(valid_until <= allowed(lease), "{valid_until}: {}", allowed(lease));
            }
            incumbent::Event::Demoted { epoch, .. } => {
                assert_eq!(self.leads.take(), Some(epoch), "what stood ends");
            }
            incumbent::Event::Withdrawn(_) => self.leads = None,
            _ => {}
        }
    }
}

fn choose<'a, T>(bytes: &mut Bytes<'_>, among: &'a mut [T]) -> Result<Option<&'a mut T>> {
    if among.is_empty() {
        return Ok(None);
    }
    let index = bytes.choose_index(among.len())?;
    Ok(among.get_mut(index))
}
