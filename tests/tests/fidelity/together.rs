//! What is asked at once, and so goes together: etcd's history and every answer are what the
//! model comes to one operation at a time.

use std::collections::BTreeSet;

use futures_util::future::join_all;

use super::*;

on_each_version!(what_is_asked_at_once);

/// How often many operations are asked at once, unless `INCUMBENT_FIDELITY_ROUNDS` says.
const ROUNDS: u64 = 150;
/// How many at once, at most: far more than are under way by themselves.
const AT_ONCE: usize = 80;
/// What each round ends with, by the operator.
const END: &[u8] = b"the end";
/// Prefixes of one another, places in queues, and enough others that much goes together.
const MANY: [&[u8]; 20] = [
    b"a",
    b"a/",
    b"a/b",
    b"a0",
    b"a\xff",
    b"\xff\xff",
    b"b",
    b"c",
    b"d",
    b"e",
    b"f",
    b"g",
    b"h",
    b"q",
    b"q/1",
    b"q/2",
    b"q/3",
    b"r/1",
    b"r/2",
    b"r/3",
];

/// The history of etcd, by a watch, gives each revision what it changed; the answers give each
/// operation its revision. Whatever order etcd chose, three things have to hold:
///
/// - What one revision changes is what the operations change that name this revision, done by
///   the model one after the other. None of them changes what another one changes or compares,
///   and no two of them claim places in one queue.
/// - An answer that names a revision, and changed nothing, is the model's at that revision.
/// - An answer that names none is the model's at one of the revisions of the round.
async fn what_is_asked_at_once(version: Version) {
    let mut random = AtRandom::new("INCUMBENT_FIDELITY_SEED", &MANY, &LEASES, &TTLS);
    let rounds = number("INCUMBENT_FIDELITY_ROUNDS").unwrap_or(ROUNDS);
    println!("{version:?}: INCUMBENT_FIDELITY_ROUNDS={rounds}");
    let mut both = Both::start(version).await;
    both.watch(b"", true, None).await;
    let (mut shared, mut sharing) = (0, 0);
    for _ in 0..rounds {
        // Others come and go: keys without a lease, and leases that are gone.
        for _ in 0..6 {
            random.entries = both.model.keys_from(b"").cloned().collect();
            random.revision = both.model.revision();
            match random.rng.u8(..6) {
                0 => both.ask(Operation::Revoke(random.lease())).await,
                1..4 => both.ask(grant(random.lease(), TTLS[0])).await,
                4 => both.put(random.of(&MANY), b"an operator's", 0).await,
                _ => both.delete(random.of(&MANY)).await,
            }
        }
        both.settle().await;
        random.entries = both.model.keys_from(b"").cloned().collect();
        random.revision = both.model.revision();
        let many = random.rng.usize(2..AT_ONCE);
        let asked: Vec<Operation> =
            std::iter::repeat_with(|| goes_together(&mut random)).flatten().take(many).collect();
        for together in both.ask_at_once(asked).await {
            shared += usize::from(together > 1);
            sharing += together.saturating_sub(1);
        }
    }
    println!("{version:?}: {:?}; {shared} revisions are shared, by {sharing} more", both.answered);
    let seldom = |answer: &&str| both.answered.get(*answer).is_none_or(|times| *times < 3);
    let seldom: Vec<_> = ANSWERED_AT_ONCE.split(' ').filter(seldom).collect();
    assert!(seldom.is_empty() || rounds < ROUNDS, "hardly tried: {seldom:?}");
    assert!(sharing > 100 || rounds < ROUNDS, "hardly anything went together");
}

const ANSWERED_AT_ONCE: &str = "\
    Response::Expired Response::Claimed Response::Taken Response::Snapshot Response::Applied \
    Response::Stale Response::Conflict Failure::Invalid";

/// An operation of the kinds that go together, if chance makes one.
fn goes_together(random: &mut AtRandom) -> Option<Operation> {
    let mut operation = random.operation();
    match &mut operation {
        // Of many keys, etcd sorts those of one revision in no order.
        Operation::Read(selections) => {
            selections.iter_mut().for_each(|selection| selection.order = Order::ByKey);
        }
        // Mostly, a place in a queue is that of its lease.
        Operation::Claim(Claim { key, lease, .. }) => {
            if let [_, b'/', digit @ b'1'..=b'3'] = key[..]
                && !random.one_in(4)
            {
                *lease = i64::from(digit - b'0');
            }
        }
        Operation::Guarded(_) => {}
        Operation::Grant(_) | Operation::KeepAlive(_) | Operation::Revoke(_) => return None,
    }
    Some(operation)
}

/// An operation, and what etcd answered.
type Asked = (Operation, Answer);

impl Both {
    /// Asks etcd all of them at once, and has the model follow. How many operations each revision
    /// did.
    async fn ask_at_once(&mut self, operations: Vec<Operation>) -> Vec<usize> {
        let calls = operations.iter().map(|operation| self.store.call(operation.clone(), LIMIT));
        let answers = soon("all are answered", join_all(calls)).await;
        for answer in &answers {
            self.count(&format!("{answer:?}"));
        }
        let mut left: Vec<Asked> = operations.into_iter().zip(answers).collect();
        let changes = self.changes().await;
        let last = changes.last_key_value().map_or(0, |(at, _)| at - 1);
        let mut together = Vec::new();
        // What names no revision may have happened at any.
        let mut may_be = Vec::new();
        left.retain(|asked| {
            let names_one = named(&asked.1).is_some();
            if !names_one {
                may_be.push(asked.clone());
            }
            names_one
        });
        loop {
            let at = self.model.revision();
            let mut same = self.model.clone();
            for (operation, answer) in left.extract_if(.., |asked| named(&asked.1) == Some(at)) {
                assert_eq!(same.perform(self.now(), &operation), answer, "{at}: {operation:?}");
                assert_eq!(same.revision(), at, "{operation:?} changes something, unseen");
            }
            may_be.retain(|(operation, answer)| {
                if same.revision() != at {
                    same = self.model.clone();
                }
                same.perform(self.now(), operation) != *answer
            });
            if at == last {
                break;
            }
            let done = self.follow(&mut left, &changes[&(at + 1)]);
            together.push(done);
        }
        assert_eq!(left, [], "revisions that are not there");
        assert_eq!(may_be, [], "at no revision up to {last}");
        self.model.put(END.into(), Vec::new(), 0).expect("there is space");
        together
    }

    /// Has the model make the next revision, as these changes show it, by the operations that name
    /// it. How many did something; the others stay.
    fn follow(&mut self, left: &mut Vec<Asked>, changes: &[Change]) -> usize {
        let at = self.model.revision() + 1;
        let mut candidates: Vec<usize> =
            (0..left.len()).filter(|asked| named(&left[*asked].1) == Some(at)).collect();
        // A put did something. A deletion may have come right after another one of the same key,
        // and found nothing: any of them may have been first.
        candidates.sort_by_key(|asked| only_deletes(&left[*asked].0));
        let found = candidates.iter().find_map(|first| {
            let others = candidates.iter().filter(|other| *other != first);
            let found = self.chain(left, [first].into_iter().chain(others), changes)?;
            self.explains_the_others(left, &candidates, &found).then_some(found)
        });
        let Some((after, done)) = found else {
            let asked: Vec<_> = candidates.iter().map(|asked| &left[*asked]).collect();
            panic!("revision {at} changes {changes:?}, which is not what was asked: {asked:?}");
        };
        self.model = after;
        let done: BTreeSet<usize> = done.into_iter().collect();
        let mut index = 0..;
        left.retain(|_| !done.contains(&index.next().expect("an index")));
        done.len()
    }

    /// The model after those of the operations that change something, may go together and are
    /// answered as etcd has answered them, in this order and one revision; and which these are.
    /// None if the changes are others.
    fn chain<'a>(
        &self,
        asked: &[Asked],
        order: impl Iterator<Item = &'a usize>,
        changes: &[Change],
    ) -> Option<(Contents, Vec<usize>)> {
        let (mut after, mut done) = (self.model.clone(), Vec::<usize>::new());
        for one in order {
            if done.iter().any(|other| !may_share(&asked[*one].0, &asked[*other].0)) {
                continue;
            }
            let parts = done.iter().chain([one]).map(|part| &asked[*part].0);
            let mut tried = self.model.clone();
            let outcomes = tried.perform_together(self.now(), parts);
            let changed_more = tried.changes() > after.changes();
            if changed_more && outcomes.last() == Some(&asked[*one].1) {
                after = tried;
                done.push(*one);
            }
        }
        let made = after.changes_after(self.model.changes()).iter();
        let mut made: Vec<Change> = made.map(|(_, change)| change.clone()).collect();
        made.sort_by_key(place);
        (made == changes).then_some((after, done))
    }

    /// Whether the candidates that did nothing are answered as they would be after the others: of
    /// two deletions of a key, only one may come first, if the other one compares.
    fn explains_the_others(
        &self,
        asked: &[Asked],
        candidates: &[usize],
        (after, done): &(Contents, Vec<usize>),
    ) -> bool {
        candidates.iter().filter(|other| !done.contains(other)).all(|other| {
            let (operation, answer) = &asked[*other];
            let mut same = after.clone();
            same.perform(self.now(), operation) == *answer && same.revision() == after.revision()
        })
    }

    /// What the watch of everything has told of each new revision. The last one is the operator's
    /// own, so that nothing is outstanding.
    async fn changes(&mut self) -> BTreeMap<i64, Vec<Change>> {
        let end = self.operator.put(END, b"", None).expect_soon("etcd answers").await;
        let end = end.header().expect("a header").revision();
        let told = |both: &Self| both.watched[&EVERYTHING].told.last().map(|it| place(it).0);
        while told(self) != Some(end) {
            self.listen().await;
        }
        let told = &self.watched[&EVERYTHING].told;
        assert!(told.is_sorted_by_key(|change| place(change).0), "{told:?}");
        let mut changes: BTreeMap<i64, Vec<Change>> = BTreeMap::new();
        for change in told {
            changes.entry(place(change).0).or_default().push(change.clone());
        }
        changes.values_mut().for_each(|changes| changes.sort_by_key(place));
        changes
    }
}

/// The revision that an answer names: the one that the operation made, or found.
fn named(answer: &Answer) -> Option<i64> {
    match answer {
        Ok(Response::Claimed(claimed) | Response::Taken(claimed)) => Some(claimed.at),
        Ok(Response::Snapshot(snapshot)) => Some(snapshot.at),
        Ok(Response::Applied(at)) => Some(*at),
        _ => None,
    }
}

/// Whether none of the two changes what the other one changes or compares, and they do not claim
/// places in one queue.
fn may_share(one: &Operation, other: &Operation) -> bool {
    let crosses = |one: &Operation, other: &Operation| {
        let ((changed, _), (also_changed, compared)) = (keys(one), keys(other));
        changed.iter().any(|key| also_changed.contains(key) || compared.contains(key))
    };
    let in_one_queue = queue(one).is_some() && queue(one) == queue(other);
    !crosses(one, other) && !crosses(other, one) && !in_one_queue
}

fn only_deletes(operation: &Operation) -> bool {
    match operation {
        Operation::Guarded(Guarded { mutations, .. }) => {
            mutations.iter().all(|mutation| matches!(mutation, Mutation::Delete(_)))
        }
        _ => false,
    }
}

/// The queue in which a claim takes a place: the place ends in the claim's lease.
fn queue(operation: &Operation) -> Option<&[u8]> {
    let Operation::Claim(Claim { key, lease, .. }) = operation else { return None };
    key.strip_suffix(format!("/{lease:x}").as_bytes())
}

/// The keys that an operation changes, and those that it compares.
fn keys(operation: &Operation) -> (Vec<&[u8]>, Vec<&[u8]>) {
    match operation {
        Operation::Claim(claim) => (vec![&claim.key], vec![&claim.key]),
        Operation::Guarded(Guarded { guard, expect, mutations }) => {
            let changed = mutations.iter().map(|mutation| match mutation {
                Mutation::Put(Put { key, .. }) | Mutation::Delete(key) => &**key,
                Mutation::Proclaim(_) => &*guard.key,
            });
            let compared = expect.iter().map(|expect| &*expect.key).chain([&*guard.key]);
            (changed.collect(), compared.collect())
        }
        _ => Default::default(),
    }
}
