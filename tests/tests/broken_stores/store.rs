//! A store in memory that breaks its word in one way.

use super::*;

/// A place in memory, broken or not.
pub struct BrokenPlace {
    clock: ManualClock,
    /// What is opened.
    store: Broken,
    stall: watch::Sender<bool>,
}

/// What a broken store has to remember.
#[derive(Debug, Default)]
pub struct Shared {
    /// How often something was asked or told that breaks now and then.
    pub times: AtomicU64,
    pub forgotten: Mutex<i64>,
    pub granted: Mutex<BTreeMap<i64, u64>>,
    /// What was claimed first, by key.
    pub claimed: Mutex<BTreeMap<Vec<u8>, Entry>>,
    pub read: Mutex<BTreeMap<String, Response>>,
    /// Calls that are not answered yet.
    pub under_way: AtomicU64,
    /// The last answer of a call that was not done.
    pub undone: Mutex<Option<Response>>,
    /// The last answer of a claim.
    pub won: Mutex<Option<Claimed>>,
}

impl Shared {
    pub fn is_time(&self) -> bool {
        self.times.fetch_add(1, Ordering::Relaxed) % SELDOM == SELDOM - 1
    }
}

impl BrokenPlace {
    pub fn new(how: Break) -> Self {
        let clock = ManualClock::default();
        let store = MemoryStore::new(Arc::new(clock.clone()));
        let (stall, stalled) = watch::channel(false);
        Self { clock, store: Broken { how, store, shared: Arc::default(), stalled }, stall }
    }
}

impl Place for BrokenPlace {
    async fn open(&self) -> Arc<dyn Store> {
        let mut opened = self.store.clone();
        if opened.how == HandlesAreStrangers {
            opened.store = MemoryStore::new(Arc::new(self.clock.clone()));
        }
        Arc::new(opened)
    }

    fn now(&self) -> Mark {
        self.clock.now()
    }

    async fn pass(&self, time: Duration) {
        self.clock.advance(time);
    }

    async fn compact(&self, revision: Revision) -> bool {
        *self.store.shared.forgotten.lock() = revision.into();
        self.store.store.compact(revision)
    }

    async fn stall(&self, stalled: bool) -> bool {
        self.stall.send_replace(stalled);
        true
    }

    fn timeout(&self) -> Duration {
        // One that keeps its word has all the time.
        if self.store.how == Nothing { Duration::from_secs(10) } else { PATIENCE }
    }
}

#[derive(Clone)]
pub struct Broken {
    pub how: Break,
    pub store: MemoryStore,
    pub shared: Arc<Shared>,
    pub stalled: watch::Receiver<bool>,
}

impl fmt::Debug for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.how)
    }
}

impl Store for Broken {
    fn call(&self, operation: Operation, within: Duration) -> BoxFuture<'static, Answer> {
        let mut this = self.clone();
        async move {
            let renewal = matches!(operation, Operation::KeepAlive(_));
            let flows = this.stalled.wait_for(|stalled| !stalled);
            if this.how == NeverGivesUp || renewal {
                flows.await.expect("a place outlives its stores");
            } else if tokio::time::timeout(within, flows).await.is_err() {
                return Err(Failure::Timeout);
            }
            let (goes_on, given_up) = oneshot::channel();
            if this.how == GivenUpIsTriedAgain {
                tokio::spawn(this.clone().try_again(operation.clone(), given_up));
                tokio::time::sleep(Duration::from_micros(300)).await;
            }
            let _ = goes_on.send(());
            this.act(operation).await
        }
        .boxed()
    }

    fn peek(&self, key: Vec<u8>, within: Duration) -> BoxFuture<'static, Answer<Option<Entry>>> {
        let invents = self.how == PeeksAreInvented;
        let peeked = self.store.peek(key, within);
        async move {
            let invented = |entry| Entry { value: b"invented".to_vec(), ..entry };
            Ok(peeked.await?.map(|entry| if invents { invented(entry) } else { entry }))
        }
        .boxed()
    }

    fn watches(&self) -> Box<dyn Watches> {
        Box::new(BrokenWatches {
            how: self.how,
            store: self.store.clone(),
            watches: self.store.watches(),
            shared: Arc::clone(&self.shared),
            next: VecDeque::new(),
            held_back: None,
        })
    }
}

impl Broken {
    /// Does a write whose caller has gone before it was done.
    async fn try_again(self, operation: Operation, given_up: oneshot::Receiver<()>) {
        let Operation::Guarded(guarded) = operation else { return };
        if given_up.await.is_ok() {
            return;
        }
        // After the caller has asked again: a retry before that is the first write.
        let before = self.store.revision();
        while self.store.revision() == before {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        guarded.mutations.into_iter().for_each(|mutation| operate(&self.store, mutation));
    }

    pub async fn ask(&self, operation: Operation) -> Answer {
        self.store.call(operation, Duration::MAX).await
    }

    pub async fn act(&self, operation: Operation) -> Answer {
        let operation = self.misunderstood(operation);
        if let Some(answer) = self.instead(&operation).await {
            return answer;
        }
        let answer = self.ask(operation.clone()).await;
        if matches!(
            self.how,
            OneFailsAnother
                | PartsAreMadeTwice
                | AnswersAreMixedUp
                | RevisionsAreOfTheBatch
                | BothWin
        ) {
            return Ok(self.beside_others(operation, answer?).await);
        }
        self.distorted(operation, answer).await
    }

    /// The answer, or another one if more calls are under way.
    async fn beside_others(&self, operation: Operation, answer: Response) -> Response {
        self.shared.under_way.fetch_add(1, Ordering::Relaxed);
        let is_undone = matches!(answer, Response::Stale | Response::Conflict | Response::Expired);
        if is_undone {
            *self.shared.undone.lock() = Some(answer.clone());
        }
        tokio::task::yield_now().await;
        if self.shared.under_way.fetch_sub(1, Ordering::Relaxed) < 2 {
            self.shared.undone.lock().take();
            return answer;
        }
        match (self.how, operation, answer) {
            (OneFailsAnother, _, answer) if !is_undone => {
                self.shared.undone.lock().take().unwrap_or(answer)
            }
            (PartsAreMadeTwice, Operation::Guarded(again), answer @ Response::Applied(_)) => {
                let _ = self.ask(Operation::Guarded(Guarded { expect: vec![], ..again })).await;
                answer
            }
            (AnswersAreMixedUp, _, Response::Claimed(claimed)) => {
                let last = self.shared.won.lock().replace(claimed.clone());
                Response::Claimed(last.unwrap_or(claimed))
            }
            (RevisionsAreOfTheBatch, _, Response::Applied(_)) => {
                Response::Applied(self.store.revision().into())
            }
            (BothWin, Operation::Claim(claim), Response::Taken(of))
                if of.entry.lease == claim.lease =>
            {
                Response::Claimed(of)
            }
            (_, _, answer) => answer,
        }
    }

    /// What is asked for, and something else than what the caller said.
    pub fn misunderstood(&self, mut operation: Operation) -> Operation {
        match &mut operation {
            Operation::Grant(grant) if self.how == ExpiresNever => {
                self.shared.granted.lock().insert(grant.lease, grant.ttl.max(SECOND));
                grant.ttl += 3_600 * SECOND;
            }
            Operation::Grant(grant) if self.how == GrantsLess => grant.ttl /= 2,
            Operation::Read(selections) => {
                for selection in selections {
                    match self.how {
                        OrderIsIgnored => selection.order = Order::OldestFirst,
                        LimitIsIgnored => selection.limit = 0,
                        CreationIsIgnored => selection.created_before = None,
                        FromIsIgnored => selection.from = None,
                        FromIsLeftOut => {
                            if let Some(from) = &mut selection.from {
                                from.push(0);
                            }
                        }
                        // As one that takes the range for what was asked.
                        FromWidens => {
                            let before = selection.from.take_if(|from| *from < selection.key);
                            selection.key = before.unwrap_or_else(|| selection.key.clone());
                        }
                        KeysComeByAge if selection.order == Order::ByKey => {
                            selection.order = Order::OldestFirst;
                        }
                        ValuesAreTold => selection.keys_only = false,
                        _ => {}
                    }
                }
            }
            Operation::Guarded(guarded) => match self.how {
                LeasesOfGuardsAreIgnored => guarded.guard.lease = None,
                ExpectationsAreIgnored => guarded.expect.clear(),
                ProclamationsLoseTheLease => {
                    for mutation in &mut guarded.mutations {
                        if let Mutation::Proclaim(value) = mutation {
                            let (key, value) = (guarded.guard.key.clone(), value.clone());
                            *mutation = Mutation::Put(Put { key, value });
                        }
                    }
                }
                _ => {}
            },
            _ => {}
        }
        operation
    }

    /// Something else than to do it.
    pub async fn instead(&self, operation: &Operation) -> Option<Answer> {
        match (self.how, operation) {
            (Panics, Operation::Revoke(_)) => panic!("by design"),
            (RenewsInWordsOnly, Operation::KeepAlive(lease)) => {
                let granted = self.shared.granted.lock();
                return granted.get(lease).map(|ttl| Ok(Response::Renewed(*ttl)));
            }
            (RevocationLeavesAKey | KeysGoOneByOne, Operation::Revoke(lease)) => {
                let mut keys = self.keys_of(*lease).await;
                if self.how == RevocationLeavesAKey {
                    if let Some(entry) = keys.pop() {
                        self.store.put(entry.key, entry.value);
                    }
                } else {
                    keys.iter().for_each(|entry| self.store.delete(&entry.key));
                }
            }
            (NewLeasesHaveOldKeys, Operation::Revoke(lease)) => {
                let keys = self.keys_of(*lease).await;
                let first = keys.first().map(|entry| (entry.key.clone(), entry.clone()));
                self.shared.claimed.lock().extend(first);
            }
            (WritesAreForgotten, Operation::Guarded(_)) if self.shared.is_time() => {
                return Some(Ok(Response::Applied(i64::from(self.store.revision()) + 1)));
            }
            (ReadsAreInParts, Operation::Read(selections)) => {
                let mut all = Snapshot { at: 0, found: vec![] };
                for selection in selections {
                    let Ok(Response::Snapshot(part)) =
                        self.ask(Operation::Read(vec![selection.clone()])).await
                    else {
                        panic!("a read is answered by a snapshot");
                    };
                    all.at = part.at;
                    all.found.extend(part.found);
                    tokio::task::yield_now().await;
                }
                return Some(Ok(Response::Snapshot(all)));
            }
            (MutationsAreOneByOne, Operation::Guarded(guarded)) if guarded.mutations.len() > 1 => {
                let mut answer = None;
                for mutation in &guarded.mutations {
                    let (guard, mutations) = (guarded.guard.clone(), vec![mutation.clone()]);
                    let one = Guarded { guard, expect: vec![], mutations };
                    answer = Some(self.ask(Operation::Guarded(one)).await);
                    tokio::task::yield_now().await;
                }
                return answer;
            }
            _ => {}
        }
        None
    }

    /// The answer, or another one.
    pub async fn distorted(&self, operation: Operation, answer: Answer) -> Answer {
        if self.how == InvalidIsApplied && matches!(answer, Err(Failure::Invalid(_))) {
            return Ok(Response::Applied(self.store.revision().into()));
        }
        Ok(match (self.how, operation, answer?) {
            (GrantsTwice, Operation::Grant(grant), Response::Exists) => {
                Response::Granted(grant.ttl)
            }
            (ExpiresEarly, _, Response::Granted(ttl)) => Response::Granted(2 * ttl),
            (ExpiresEarly, _, Response::Renewed(ttl)) => Response::Renewed(2 * ttl),
            (ExpiresNever, Operation::Grant(Grant { lease, .. }), Response::Granted(_)) => {
                Response::Granted(self.shared.granted.lock()[&lease])
            }
            (ExpiresNever, Operation::KeepAlive(lease), Response::Renewed(_)) => {
                Response::Renewed(self.shared.granted.lock()[&lease])
            }
            (RenewsInWordsOnly, Operation::Grant(grant), Response::Granted(ttl)) => {
                self.shared.granted.lock().insert(grant.lease, ttl);
                Response::Granted(ttl)
            }
            (NewLeasesHaveOldKeys, Operation::Grant(_), Response::Granted(ttl)) => {
                let old = self.shared.claimed.lock().pop_first();
                if let Some((key, entry)) = old {
                    self.store.put(key, entry.value);
                }
                Response::Granted(ttl)
            }
            (RenewsTheDead, Operation::KeepAlive(lease), Response::Expired) => {
                self.ask(grant(lease, SECOND)).await?;
                Response::Renewed(SECOND)
            }
            (ClaimsOverwrite, Operation::Claim(claim), Response::Taken(_)) => {
                self.store.delete(&claim.key);
                self.ask(Operation::Claim(claim)).await?
            }
            (ClaimsUnderTheDead, Operation::Claim(claim), Response::Expired) => {
                self.store.put(claim.key.clone(), claim.value.clone());
                let at = self.store.revision().into();
                let (key, value, lease) = (claim.key, claim.value, claim.lease);
                let entry = Entry { key, value, lease, created: at, modified: at };
                Response::Claimed(Claimed { entry, at })
            }
            (EpochsComeTwice | PutsKeepTheLease, _, Response::Claimed(mut of)) => {
                let mut claimed = self.shared.claimed.lock();
                let first = claimed.entry(of.entry.key.clone()).or_insert_with(|| of.entry.clone());
                if self.how == EpochsComeTwice {
                    of.entry.created = first.created;
                }
                Response::Claimed(of)
            }
            (PutsKeepTheLease, _, Response::Snapshot(mut snapshot)) => {
                let claimed = self.shared.claimed.lock();
                for entry in snapshot.found.iter_mut().flatten() {
                    entry.lease = claimed.get(&entry.key).map_or(0, |first| first.lease);
                }
                Response::Snapshot(snapshot)
            }
            (ReadsAreOld, operation, answer @ Response::Snapshot(_)) => {
                let mut read = self.shared.read.lock();
                let last = read.insert(format!("{operation:?}"), answer.clone());
                last.unwrap_or(answer)
            }
            (GuardsAreIgnored, Operation::Guarded(guarded), Response::Stale) => {
                for mutation in guarded.mutations {
                    operate(&self.store, mutation);
                }
                Response::Applied(self.store.revision().into())
            }
            (WritesAreDoubled, operation @ Operation::Guarded(_), answer) => {
                self.ask(operation).await?;
                answer
            }
            (_, _, answer) => answer,
        })
    }

    pub async fn keys_of(&self, lease: i64) -> Vec<Entry> {
        match self.ask(Operation::Read(vec![all("")])).await {
            Ok(Response::Snapshot(snapshot)) => {
                let entries = snapshot.found.concat().into_iter();
                entries.filter(|entry| entry.lease == lease).collect()
            }
            answer => panic!("{answer:?}"),
        }
    }
}

/// Does it as an operator would.
pub fn operate(store: &MemoryStore, mutation: Mutation) {
    match mutation {
        Mutation::Put(Put { key, value }) => store.put(key, value),
        Mutation::Delete(key) => store.delete(key),
        Mutation::Proclaim(_) => {}
    }
}

pub struct BrokenWatches {
    pub how: Break,
    pub store: MemoryStore,
    pub watches: Box<dyn Watches>,
    pub shared: Arc<Shared>,
    pub next: VecDeque<Watched>,
    pub held_back: Option<Watched>,
}

impl Watches for BrokenWatches {
    fn open(&mut self, mut watch: Watch) {
        let now = i64::from(self.store.revision());
        match self.how {
            BeginningsAreIgnored => watch.since = None,
            NowIsThePast => watch.since = watch.since.or(Some(now)),
            TheFutureIsNow => watch.since = watch.since.filter(|since| *since <= now),
            ForgottenIsSkipped => {
                let forgotten = *self.shared.forgotten.lock();
                watch.since = watch.since.map(|since| since.max(forgotten));
            }
            _ => {}
        }
        self.watches.open(watch);
    }

    fn close(&mut self, id: RequestId) {
        if self.how != ClosedWatchesTalk {
            self.watches.close(id);
        }
    }

    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Watched> {
        loop {
            if let Some(watched) = self.next.pop_front() {
                return Poll::Ready(watched);
            }
            match self.watches.poll_next(context) {
                Poll::Ready(watched) => self.tell(watched),
                Poll::Pending => return Poll::Pending,
            }
        }
    }
}

impl BrokenWatches {
    pub fn tell(&mut self, watched: Watched) {
        let is_change = matches!(watched.change, Change::Put(_) | Change::Deleted(_));
        let is_time = is_change && self.shared.is_time();
        match self.how {
            ChangesAreMissed if is_time => {}
            ChangesAreRepeated if is_time => self.next.extend([watched.clone(), watched]),
            ChangesAreSwapped if is_time => self.held_back = Some(watched),
            DeletionsAreUntold if matches!(watched.change, Change::Deleted(_)) => {}
            _ => {
                self.next.push_back(watched);
                self.next.extend(self.held_back.take());
            }
        }
    }
}
