//! Stores, clocks and worlds of these tests.

use super::*;

pub fn options() -> Options {
    Options { ttl: TTL, ..Options::default() }
}

pub fn one_thread() -> Runtime {
    Builder::new_current_thread().enable_all().build().expect("starts")
}

/// A leadership on this store, and its end.
pub async fn leading(store: Plain) -> (Candidate, Leadership, End) {
    let session = Session::open(store, options()).expect_soon("opens").await;
    let mut candidate = session.election("jobs").join();
    let leadership = candidate.elected().expect_soon("leads").await;
    let end = End::of(&leadership, BootClock);
    (candidate, leadership, end)
}

/// Once everything works again, the term is over as it was when nothing did.
pub async fn is_over(candidate: &mut Candidate, leadership: &Leadership, valid_until: Mark) {
    assert!(!leadership.is_valid());
    assert_eq!(leadership.remaining(), Duration::ZERO);
    assert_eq!(soon("the term is lost", leadership.lost()).await, Reason::Expired);
    let told = demoted(&mut candidate.events()).await;
    assert_eq!(told, (leadership.epoch(), Reason::Expired));
    assert_eq!(leadership.valid_until(), valid_until);
    assert!(!leadership.is_valid());
}

pub async fn demoted(events: &mut (impl StreamExt<Item = Event> + Unpin)) -> (Epoch, Reason) {
    loop {
        if let Event::Demoted { epoch, reason } = events.next().expect_soon("goes on").await {
            return (epoch, reason);
        }
    }
}

/// When a term ended, by its own thread, and why.
pub struct End(pub Receiver<(Mark, Reason)>);

impl End {
    pub fn of(leadership: &Leadership, clock: impl Clock) -> Self {
        let (told, end) = mpsc::channel();
        leadership.on_end(move |reason| {
            // Whoever waited may have failed.
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

/// A session on a clock of its own, with an elector that says what it is to say.
pub struct World {
    pub session: Session,
    /// Kept, for a term ends with its candidate.
    pub _candidate: Candidate,
    pub events: Box<dyn Stream<Item = Event> + Send + Unpin>,
    pub leadership: Leadership,
    pub end: End,
}

impl World {
    pub async fn open(clock: &(impl Clock + Clone), steps: &[Step]) -> Self {
        let component = Some(hostile::elector(steps).into());
        let options = Options { component, clock: Arc::new(clock.clone()), ..options() };
        let session = Session::open(Plain::answering(), options).expect_soon("opens").await;
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

    pub async fn event(&mut self, is_it: impl Fn(&Event) -> bool) {
        while !is_it(&self.events.next().expect_soon("goes on").await) {}
    }

    /// The whole story: one end, for one reason, and no life after it.
    pub async fn stays_over(mut self, reason: Reason) {
        let leadership = &self.leadership;
        assert_eq!(soon("the term is lost", leadership.lost()).await, reason);
        assert_eq!(demoted(&mut self.events).await, (Epoch::from(1), reason));
        assert!(!leadership.is_valid());
        assert_eq!(leadership.valid_until(), 10 * SECOND);
        for _ in 0..20 {
            yield_now().await;
        }
        while let Some(Some(event)) = self.events.next().now_or_never() {
            let after = matches!(event, Event::Extended(_) | Event::Demoted { .. });
            assert!(!after, "{event:?}");
        }
        assert!(!self.leadership.is_valid());
    }
}

/// An elector that leads, in an epoch above this one, once it has its lease, which is
/// granted for longer.
pub fn steps(before: u64, valid_until: Mark) -> Vec<Step> {
    let grant = Operation::Grant(Grant { lease: 7, ttl: 20 * SECOND });
    let call = Call { id: 1, give_up: before + SECOND, operation: grant };
    let term = Term { epoch: before.cast_signed() + 1, ..TERM };
    let elected = Notice::Elected(types::Leadership { term, ..leadership(valid_until) });
    vec![Step { commands: vec![Command::Call(call)], deadline: None }, notice(elected)]
}

/// It leads until 10 s, and is extended to 15 s.
pub fn extended() -> Vec<Step> {
    let mut steps = steps(0, 10 * SECOND);
    steps.push(notice(Notice::Extended(Extension { lease: 7, valid_until: 15 * SECOND })));
    steps
}

pub const TERM: Term = Term { election: 1, epoch: 1 };

pub fn leadership(valid_until: Mark) -> types::Leadership {
    types::Leadership { term: TERM, key: b"jobs/7".into(), lease: 7, valid_until }
}

pub fn notice(notice: Notice) -> Step {
    Step { commands: vec![Command::Notify(notice)], deadline: None }
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

/// What is logged on this thread.
#[derive(Clone, Default)]
pub struct Logs(pub Arc<Mutex<Vec<u8>>>);

impl Logs {
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock()).into_owned()
    }
}

impl io::Write for Logs {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        self.0.lock().extend_from_slice(text);
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A store with one candidate, which leads whenever it wants to.
#[derive(Clone, Debug)]
pub struct Plain {
    pub revision: Arc<AtomicI64>,
    pub own: Arc<Mutex<Vec<Entry>>>,
    pub renewal: Renewal,
}

#[derive(Clone, Debug)]
pub enum Renewal {
    Answers,
    Never,
    /// Blocks the thread that polls until this is closed, and then answers.
    Blocks(Arc<Mutex<Receiver<()>>>),
}

impl Plain {
    pub fn answering() -> Self {
        Self::renewing(Renewal::Answers)
    }

    pub fn renewing(renewal: Renewal) -> Self {
        Self { revision: Arc::default(), own: Arc::default(), renewal }
    }

    pub fn answer(&self, operation: Operation) -> Response {
        let mut own = self.own.lock();
        match operation {
            Operation::Grant(grant) => Response::Granted(grant.ttl),
            Operation::KeepAlive(_) => Response::Renewed(SECOND),
            Operation::Revoke(_) => Response::Revoked,
            Operation::Claim(claim) => {
                let at = self.revision.fetch_add(1, Ordering::SeqCst) + 1;
                let (key, value, lease) = (claim.key, claim.value, claim.lease);
                let entry = Entry { key, value, lease, created: at, modified: at };
                *own = vec![entry.clone()];
                Response::Claimed(Claimed { entry, at })
            }
            Operation::Read(selections) => {
                let at = self.revision.load(Ordering::SeqCst);
                let is_own = |selection: &types::Selection| {
                    own.iter().any(|entry| entry.key == selection.key)
                };
                let found = selections
                    .iter()
                    .map(|selection| if is_own(selection) { own.clone() } else { Vec::new() })
                    .collect();
                Response::Snapshot(Snapshot { at, found })
            }
            Operation::Guarded(_) => {
                Response::Applied(self.revision.fetch_add(1, Ordering::SeqCst) + 1)
            }
        }
    }
}

impl Store for Plain {
    fn call(&self, operation: Operation, _: Duration) -> BoxFuture<'static, Answer> {
        let store = self.clone();
        async move {
            match (&operation, &store.renewal) {
                (Operation::KeepAlive(_), Renewal::Never) => pending().await,
                (Operation::KeepAlive(_), Renewal::Blocks(released)) => {
                    let _ = released.lock().recv_timeout(LIMIT);
                }
                _ => {}
            }
            Ok(store.answer(operation))
        }
        .boxed()
    }

    fn watches(&self) -> Box<dyn Watches> {
        Box::new(Started(Vec::new()))
    }
}

/// Watches that see nothing.
#[derive(Debug)]
pub struct Started(pub Vec<Watched>);

impl Watches for Started {
    fn open(&mut self, watch: Watch) {
        self.0.push(Watched { id: watch.id, change: Change::Started(0) });
    }

    fn close(&mut self, id: RequestId) {
        self.0.retain(|watched| watched.id != id);
    }

    fn poll_next(&mut self, _: &mut Context<'_>) -> Poll<Watched> {
        self.0.pop().map_or(Poll::Pending, Poll::Ready)
    }
}
