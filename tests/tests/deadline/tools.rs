//! Stores, clocks and worlds of these tests.

use super::*;

pub fn options() -> Options {
    Options { ttl: TTL, ..Options::default() }
}

/// A session whose elector is this component, on a store that grants what it asks for.
pub async fn hostile_session(component: Vec<u8>, clock: impl Clock) -> Session {
    let options =
        Options { component: Some(component.into()), clock: Arc::new(clock), ..options() };
    Session::open(Generous::default(), options).expect_soon("opens").await
}

pub async fn demoted(events: &mut (impl StreamExt<Item = Event> + Unpin)) -> (Epoch, Reason) {
    loop {
        if let Event::Demoted { epoch, reason } = events.next().expect_soon("goes on").await {
            return (epoch, reason);
        }
    }
}

/// When a term ended, by its own thread, and why.
pub struct End(Receiver<(Mark, Reason)>);

impl End {
    pub fn of(leadership: &Leadership, clock: impl Clock) -> Self {
        let (told, end) = mpsc::channel();
        leadership.on_end(move |reason| {
            // The waiter may have failed.
            let _ = told.send((clock.now(), reason));
        });
        Self(end)
    }

    /// Blocks the thread until the term ends.
    pub fn comes(&self) -> (Mark, Reason) {
        self.0.recv_timeout(LIMIT).expect("the end is called")
    }

    /// The same, by its deadline.
    pub fn is_in_time(&self, valid_until: Mark) {
        let (at, reason) = self.comes();
        assert_eq!(reason, Reason::Expired);
        assert!(at >= valid_until, "{} ns too early", valid_until - at);
        assert!(at - valid_until < LATE, "{} ns too late", at - valid_until);
    }
}

/// A term on a store in memory, by the machine's clock.
pub struct Led {
    pub candidate: Candidate,
    pub leadership: Leadership,
    pub end: End,
    /// As it was at the start.
    pub valid_until: Mark,
}

impl Led {
    pub async fn on(renewal: Renewal) -> Self {
        let session = Session::open(Lasting::new(renewal), options()).expect_soon("opens").await;
        let mut candidate = session.election("jobs").join();
        let leadership = candidate.elected().expect_soon("leads").await;
        let end = End::of(&leadership, BootClock);
        let valid_until = leadership.valid_until();
        Self { candidate, leadership, end, valid_until }
    }

    /// Blocks the thread until the term ends, by its first deadline.
    pub fn ends_in_time(&self) {
        self.end.is_in_time(self.valid_until);
    }

    /// Once everything works again, the term is over as it was when nothing did.
    pub async fn stays_over(self) {
        let Self { candidate, leadership, valid_until, .. } = self;
        assert!(!leadership.is_valid());
        assert_eq!(leadership.remaining(), Duration::ZERO);
        assert_eq!(soon("the term is lost", leadership.lost()).await, Reason::Expired);
        let told = demoted(&mut candidate.events()).await;
        assert_eq!(told, (leadership.epoch(), Reason::Expired));
        assert_eq!(leadership.valid_until(), valid_until);
        assert!(!leadership.is_valid());
    }
}

/// A session on a clock of its own, with an elector that says these steps.
pub struct World {
    pub session: Session,
    /// Kept, because a term ends with its candidate.
    pub _candidate: Candidate,
    pub events: Box<dyn Stream<Item = Event> + Send + Unpin>,
    pub leadership: Leadership,
    pub end: End,
}

impl World {
    pub async fn open(clock: &(impl Clock + Clone), steps: &[Step]) -> Self {
        let session = hostile_session(hostile::elector(steps), clock.clone()).await;
        let mut candidate = session.election("jobs").join();
        let events = Box::new(candidate.events());
        let leadership = candidate.elected().expect_soon("leads").await;
        let end = End::of(&leadership, clock.clone());
        Self { session, _candidate: candidate, events, leadership, end }
    }

    /// Makes the elector say its next step.
    pub fn poke(&self) {
        drop(self.session.election("other").observe());
    }

    /// The whole story: one end, for one reason, and no life after it.
    pub async fn stays_over(mut self, reason: Reason) {
        let leadership = &self.leadership;
        assert_eq!(soon("the term is lost", leadership.lost()).await, reason);
        assert_eq!(demoted(&mut self.events).await, (Epoch::from(1), reason));
        assert!(!leadership.is_valid());
        assert_eq!(leadership.valid_until(), 10 * SECOND);
        yields().await;
        while let Some(Some(event)) = self.events.next().now_or_never() {
            let after = matches!(event, Event::Extended(_) | Event::Demoted { .. });
            assert!(!after, "{event:?}");
        }
        assert!(!self.leadership.is_valid());
    }
}

/// An elector leads, in an epoch above this one, once it has its lease, which is granted for
/// longer.
pub fn steps(before: u64, valid_until: Mark) -> Vec<Step> {
    let term = Term { epoch: before.cast_signed() + 1, ..TERM };
    vec![
        step([grant(20 * SECOND, before + SECOND)]),
        step([elects(term, hostile::LEASE, valid_until)]),
    ]
}

/// It leads until 10 s, and is extended to 15 s.
pub fn extended() -> Vec<Step> {
    let mut steps = steps(0, 10 * SECOND);
    steps.push(step([extends(15 * SECOND)]));
    steps
}

/// A clock that goes as it is told, also back.
#[derive(Clone, Debug, Default)]
pub struct TurnedBack(pub Arc<AtomicU64>);

impl Clock for TurnedBack {
    fn now(&self) -> Mark {
        self.0.load(Ordering::SeqCst)
    }

    fn sleep_until(&self, _: Mark) -> BoxFuture<'static, ()> {
        pending().boxed()
    }
}

/// A store in memory that renews leases for a second, and keeps them for longer than a test
/// takes: what it says of a lease is all that ends a term.
#[derive(Clone, Debug)]
pub struct Lasting {
    store: MemoryStore,
    renewal: Renewal,
}

#[derive(Clone, Debug)]
pub enum Renewal {
    Answers,
    Never,
    /// Blocks the thread that polls until this is closed, and then answers.
    Blocks(Arc<Mutex<Receiver<()>>>),
}

impl Lasting {
    pub fn new(renewal: Renewal) -> Self {
        Self { store: MemoryStore::default(), renewal }
    }
}

impl Store for Lasting {
    fn call(&self, operation: Operation, within: Duration) -> BoxFuture<'static, Answer> {
        let Self { store, renewal } = self.clone();
        async move {
            match operation {
                Operation::Grant(Grant { lease, ttl }) => {
                    let longer = Operation::Grant(Grant { lease, ttl: 3_600 * SECOND });
                    let granted = store.call(longer, within).await;
                    assert!(matches!(granted, Ok(Response::Granted(_))), "{granted:?}");
                    Ok(Response::Granted(ttl))
                }
                Operation::KeepAlive(_) => {
                    match renewal {
                        Renewal::Answers => {}
                        Renewal::Never => pending().await,
                        Renewal::Blocks(released) => {
                            let _ = released.lock().recv_timeout(LIMIT);
                        }
                    }
                    Ok(Response::Renewed(SECOND))
                }
                other => store.call(other, within).await,
            }
        }
        .boxed()
    }

    fn watches(&self) -> Box<dyn Watches> {
        self.store.watches()
    }
}
