//! A transfer: an operator wants a certain candidate to lead next.
//!
//! The operator's program writes a wish, which `wit/README.md` describes, under a lease of its own.
//! First, the candidates in front of the target get back in line behind it, while the leader
//! leads on. Once they have made room, the leader sees that for itself, or the wish says `now`, and it
//! stops its work and resigns. A candidate that does not know wishes, such as one of another client,
//! stays where it is, and leads next. The target writes its value once more as soon as it leads.
//!
//! Nobody waits for a wish, and all of it ends with its lease. A candidate takes a wish when its
//! watch tells of it, so it is written again for watches that were broken.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::time::{Duration, Instant};

use futures_util::future::join;
use tokio::time::{sleep, sleep_until, timeout};

use super::Admin;
use super::short_lived::{any_lease, claim};
use crate::event::Participant;
use crate::store::read::misanswered;
use crate::store::{LeaseLeft, Watches};
use crate::types::{
    Change, Contest, Entry, Epoch, Expectation, Failure, Guard, Guarded, Mutation, Operation,
    Response, Watch, Watched,
};

/// How long candidates in front of the target may take to get out of its way, from the last one on
/// that did, before their leases are looked at.
const ROOM: Duration = Duration::from_secs(1);
/// How long a leader may take to go by itself, before the wish says that it should go now: what is
/// written meanwhile would be in its way.
const BY_ITSELF: Duration = Duration::from_millis(50);
/// A client renews its lease after a third of its time, and etcd tells whole seconds.
const LATE: Duration = Duration::from_millis(1_500);
/// How long the target may take to show that it leads, once the last leader's key is gone.
const SHOWN: Duration = Duration::from_secs(2);
/// How often the wish is written again.
const AGAIN: Duration = Duration::from_secs(1);
/// How long a candidate that makes room is away from the line at most, and some more.
const AWAY: Duration = Duration::from_millis(300);
/// How often it is looked whether a target that left its place is in line again.
const LOOK: Duration = Duration::from_millis(50);
/// The longest wait.
const LONGEST: Duration = Duration::from_secs(86_400);

/// That a certain candidate should lead next.
#[derive(Clone, Debug)]
#[must_use = "Admin::transfer makes it happen"]
pub struct Transfer {
    to: Vec<u8>,
    from: Option<Epoch>,
    wait: Duration,
}

impl Transfer {
    /// To the first candidate in line with this value: its identity unless it says otherwise.
    pub fn to(value: impl Into<Vec<u8>>) -> Self {
        Self { to: value.into(), from: None, wait: Duration::from_secs(10) }
    }

    /// Only if this epoch leads.
    pub fn from(self, epoch: Epoch) -> Self {
        Self { from: Some(epoch), ..self }
    }

    /// How long it may take altogether: 10 s unless set, and a day at most.
    pub fn wait(self, wait: Duration) -> Self {
        Self { wait: wait.min(LONGEST), ..self }
    }
}

/// What became of a transfer.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Transferred {
    /// The target leads, and has said so itself.
    Done {
        /// The target.
        leader: Participant,
        /// From the end of the last leader's key until the target's word: nobody led for no
        /// longer than that.
        leaderless: Duration,
    },
    /// The target led already.
    Leads(Participant),
    /// No candidate in line has this value.
    NotInLine,
    /// The target was in line, and is gone.
    Gone,
    /// The target's key is in front, and it has not said that it leads: it may be a candidate of
    /// another client, or stand still.
    Silent(Participant),
    /// The leader is gone, and this candidate leads: it was in front of the target. It is a candidate
    /// of another client, which makes no room, or the leader went before it could.
    Overtaken(Participant),
    /// Another epoch than the wanted one leads; or nobody.
    Changed(Option<Participant>),
    /// The leader was asked, and has not given up its term within the time. It may belong to another
    /// client, or still stop its work.
    NotHandedOver(Participant),
    /// The leader was not asked: this candidate stands in front of the target, has not made room
    /// within the time, and would have led. It stands still, or is dead and its lease is not.
    Blocked(Participant),
    /// Another transfer of this election is under way.
    UnderWay,
}

/// What a transfer waits for, and what it has seen of that.
struct Progress {
    leader: Entry,
    target: Entry,
    /// The candidates between the two, by key.
    in_front: BTreeMap<Vec<u8>, Entry>,
    began: Instant,
    /// When the last one of them, or the leader, went.
    moved: Instant,
    /// When it was last asked whether they live.
    asked: Instant,
    /// When the leader's key went.
    vacated: Option<Instant>,
}

/// A wish in the store.
struct Wish {
    guard: Guard,
    is_urgent: bool,
    written: Instant,
}

impl Admin<'_> {
    /// Has a certain candidate in line lead next, and tells what became of that. The leader stops
    /// its work before it resigns.
    ///
    /// Not cancel safe: a dropped future leaves the wish to its lease, which is gone after 5 s, and
    /// the handover may happen.
    ///
    /// # Errors
    ///
    /// What the store says instead of an answer. The handover may happen all the same.
    pub async fn transfer(self, transfer: Transfer) -> Result<Transferred, Failure> {
        if self.contest == Contest::Race {
            let sentence =
                "a race has no line in which a candidate could be next: depose its leader";
            return Err(Failure::Invalid(sentence.into()));
        }
        let deadline = Instant::now() + transfer.wait;
        // The target may be about to get back in line, for candidates with a higher priority.
        let mut back_by = Instant::now() + AWAY;
        let mut was_in_line = false;
        loop {
            let transferred = self.attempt(&transfer, deadline).await?;
            let now = Instant::now();
            let is_absent = transferred == Transferred::NotInLine;
            if transferred == Transferred::Gone && now < deadline {
                (was_in_line, back_by) = (true, now + ROOM);
            } else if is_absent && now < deadline.min(back_by) {
                sleep(LOOK).await;
            } else if is_absent && was_in_line {
                return Ok(Transferred::Gone);
            } else if was_in_line && let Transferred::Changed(Some(leader)) = transferred {
                return Ok(Transferred::Overtaken(leader));
            } else {
                return Ok(transferred);
            }
        }
    }

    async fn attempt(self, transfer: &Transfer, deadline: Instant) -> Result<Transferred, Failure> {
        let mut watches = self.store.watches();
        let prefix = format!("{}/", self.election).into_bytes();
        watches.open(Watch { id: 1, key: prefix, prefix: true, since: None });
        let (started, line) = join(started(&mut *watches, self.timeout), self.line()).await;
        let (started, (mut line, at)) = (started?, line?);
        if at < started {
            (line, _) = self.line().await?;
        }
        let mut candidates = line.into_iter();
        let Some(leader) = candidates.next() else { return Ok(Transferred::Changed(None)) };
        if transfer.from.is_some_and(|from| i64::from(from) != leader.created) {
            return Ok(Transferred::Changed(Some(leader.into())));
        }
        if leader.value == transfer.to {
            return Ok(Transferred::Leads(leader.into()));
        }
        let mut in_front = BTreeMap::new();
        let target = loop {
            let Some(candidate) = candidates.next() else { return Ok(Transferred::NotInLine) };
            if candidate.value == transfer.to {
                break candidate;
            }
            in_front.insert(candidate.key.clone(), candidate);
        };
        let now = Instant::now();
        let (began, moved, asked) = (now, now, now);
        let progress = Progress { leader, target, in_front, began, moved, asked, vacated: None };
        let lease = any_lease()?;
        let transferred =
            self.pursue(lease, progress, &mut *watches, deadline, transfer.wait).await;
        // Otherwise it ends by itself.
        let _ = self.store.call(Operation::Revoke(lease), self.timeout).await;
        transferred
    }

    async fn pursue(
        self,
        lease: i64,
        mut progress: Progress,
        watches: &mut dyn Watches,
        deadline: Instant,
        wait: Duration,
    ) -> Result<Transferred, Failure> {
        let Some(mut wish) = self.wish(lease, &progress).await? else {
            return Ok(Transferred::UnderWay);
        };
        loop {
            let now = Instant::now();
            if let Some(vacated) = progress.vacated {
                if now >= deadline.min(vacated + SHOWN) {
                    return self.without_a_word(&progress).await;
                }
            } else if now >= deadline {
                let blocks = progress.in_front.into_values().min_by_key(|entry| entry.created);
                return Ok(match blocks.filter(|_| !wish.is_urgent) {
                    Some(blocks) => Transferred::Blocked(blocks.into()),
                    None => Transferred::NotHandedOver(progress.leader.into()),
                });
            }
            let was_urgent = wish.is_urgent;
            wish.is_urgent = was_urgent || self.has_room(&mut progress, now, wait).await;
            if (wish.is_urgent && !was_urgent || now >= wish.written + AGAIN)
                && !self.repeat(&mut wish, &mut progress).await?
            {
                return Ok(Transferred::Gone);
            }
            let wake = progress.wake(&wish).min(deadline);
            let watched = tokio::select! {
                biased;
                watched = poll_fn(|context| watches.poll_next(context)) => watched,
                () = sleep_until(wake.into()) => continue,
            };
            let was_vacated = progress.vacated.is_some();
            if let Some(transferred) = progress.take(watched.change)? {
                return Ok(transferred);
            }
            if !was_vacated
                && progress.vacated.is_some()
                && let Some(leader) = self.leader().await?
                && i64::from(leader.epoch) != progress.target.created
            {
                return self.overtaken(&progress, leader).await;
            }
        }
    }

    /// Whether the leader has to be told to resign: nobody stands in front of the target who would
    /// move, and nobody who is dead, and would hold the election up until its lease runs out.
    async fn has_room(self, progress: &mut Progress, now: Instant, wait: Duration) -> bool {
        if progress.is_open() {
            return now >= progress.moved + BY_ITSELF;
        }
        if now < progress.moved.max(progress.asked) + ROOM {
            return false;
        }
        progress.asked = now;
        let mut all_live = true;
        for entry in progress.in_front.values() {
            let left = self.store.lease_left(entry.lease, self.timeout).await;
            let Ok(Some(LeaseLeft { left, granted })) = left else { continue };
            // Rounded up, as far as the lease has not run out.
            let since = granted.saturating_sub(left);
            if left.is_zero() || since > granted / 3 + LATE {
                return false;
            }
            // One that was renewed since then lives, and does not know wishes.
            all_live &= since < progress.began.elapsed();
        }
        all_live || now >= progress.moved + wait / 2
    }

    /// The leader's key is gone, and the target has not said that it leads.
    async fn without_a_word(self, progress: &Progress) -> Result<Transferred, Failure> {
        Ok(match self.leader().await? {
            Some(leader) if i64::from(leader.epoch) == progress.target.created => {
                Transferred::Silent(leader)
            }
            Some(leader) => return self.overtaken(progress, leader).await,
            None => Transferred::Gone,
        })
    }

    /// Another candidate leads: the target stands behind it, or has left its place.
    async fn overtaken(
        self,
        progress: &Progress,
        leader: Participant,
    ) -> Result<Transferred, Failure> {
        let target = &progress.target;
        let found = super::read::get(self.store, target.key.clone(), self.timeout).await?;
        Ok(match found.filter(|found| found.created == target.created) {
            Some(_) => Transferred::Overtaken(leader),
            None => Transferred::Gone,
        })
    }

    /// Writes the wish for the first time. None if there is another one.
    async fn wish(self, lease: i64, progress: &Progress) -> Result<Option<Wish>, Failure> {
        let is_urgent = progress.in_front.is_empty();
        let key = format!("incumbent-wishes/{}/transfer", self.election).into_bytes();
        let value = wished(progress.leader.created, progress.target.created, is_urgent);
        let guard = claim(self.store, self.timeout, lease, key, value).await?;
        Ok(guard.map(|guard| Wish { guard, is_urgent, written: Instant::now() }))
    }

    /// Writes the wish again. False if the target is gone.
    async fn repeat(self, wish: &mut Wish, progress: &mut Progress) -> Result<bool, Failure> {
        let target = &mut progress.target;
        loop {
            wish.written = Instant::now();
            // The leader does not stop its work for a candidate that has gone.
            let expected = Expectation { key: target.key.clone(), modified: target.modified };
            let write = Operation::Guarded(Guarded {
                guard: wish.guard.clone(),
                expect: vec![expected],
                mutations: vec![Mutation::Proclaim(wished(
                    progress.leader.created,
                    target.created,
                    wish.is_urgent,
                ))],
            });
            let renewal = wish.guard.lease.map(Operation::KeepAlive);
            let renew = async {
                if let Some(renewal) = renewal {
                    // If it fails, the next write is refused.
                    let _ = self.store.call(renewal, self.timeout).await;
                }
            };
            let (written, ()) = join(self.store.call(write, self.timeout), renew).await;
            match written? {
                Response::Applied(_) => return Ok(true),
                // Its lease has run out.
                Response::Stale => return Err(Failure::Timeout),
                Response::Conflict => {}
                Response::Granted(_)
                | Response::Exists
                | Response::Renewed(_)
                | Response::Expired
                | Response::Revoked
                | Response::Claimed(_)
                | Response::Taken(_)
                | Response::Snapshot(_) => return Err(misanswered("guarded")),
            }
            // It may have another value.
            let found = super::read::get(self.store, target.key.clone(), self.timeout).await?;
            match found.filter(|found| found.created == target.created) {
                Some(found) => target.modified = found.modified,
                None => return Ok(false),
            }
        }
    }
}

impl Progress {
    /// Whether nobody is left whom the leader has to wait for, or it has gone.
    fn is_open(&self) -> bool {
        self.in_front.is_empty() || self.vacated.is_some()
    }

    /// When to look again.
    fn wake(&self, wish: &Wish) -> Instant {
        let (again, shows) = (wish.written + AGAIN, self.vacated.map(|vacated| vacated + SHOWN));
        let room =
            if self.is_open() { self.moved + BY_ITSELF } else { self.moved.max(self.asked) + ROOM };
        let urgent = (!wish.is_urgent).then_some(room);
        [shows, urgent].into_iter().flatten().fold(again, Instant::min)
    }

    /// Takes what the watch tells: perhaps it is the end.
    fn take(&mut self, change: Change) -> Result<Option<Transferred>, Failure> {
        match change {
            Change::Started(_) => {}
            Change::Put(entry) => {
                let is_target =
                    entry.key == self.target.key && entry.created == self.target.created;
                if is_target && let Some(vacated) = self.vacated {
                    let leaderless = vacated.elapsed();
                    return Ok(Some(Transferred::Done { leader: entry.into(), leaderless }));
                }
            }
            Change::Deleted(deletion) => {
                let goes = |key: &[u8], created| key == deletion.key && created < deletion.at;
                if goes(&self.target.key, self.target.created) {
                    return Ok(Some(Transferred::Gone));
                }
                if self.vacated.is_none() && goes(&self.leader.key, self.leader.created) {
                    self.moved = Instant::now();
                    self.vacated = Some(self.moved);
                }
                if self.in_front.get(&deletion.key).is_some_and(|it| it.created < deletion.at) {
                    self.in_front.remove(&deletion.key);
                    self.moved = Instant::now();
                }
            }
            Change::Ended(failure) => return Err(failure),
        }
        Ok(None)
    }
}

/// The value of a wish that one candidate leads after another, by the revisions of their keys.
fn wished(leader: i64, target: i64, is_urgent: bool) -> Vec<u8> {
    let now = if is_urgent { " now" } else { "" };
    format!("{leader} {target}{now}").into_bytes()
}

/// Waits until the watch is on, and returns its revision.
async fn started(watches: &mut dyn Watches, within: Duration) -> Result<i64, Failure> {
    let next = poll_fn(|context| watches.poll_next(context));
    match timeout(within, next).await {
        Ok(Watched { change: Change::Started(at), .. }) => Ok(at),
        Ok(Watched { change: Change::Ended(failure), .. }) => Err(failure),
        Ok(_) => Err(misanswered("watch")),
        Err(_) => Err(Failure::Timeout),
    }
}
