//! `just demo --script`: a fixed story as plain text, told as it happens.
//!
//! Each step waits until it can be told. A step that does not come, or that breaks a promise, ends
//! the story with status 1.

use std::io::{self, Write};
use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use crate::controller::{Controller, now};
use crate::end::{End, NOT_SO, STORE, say};
use crate::journal::{Journal, Kind};
use crate::record::{Action, Candidate, Record};
use crate::verdict::Verdict;

/// How long things go on undisturbed between two actions.
const UNDISTURBED: Duration = Duration::from_millis(1000);

/// What is wrong, as a sentence.
type Told<T> = Result<T, String>;

/// The story, from its beginning to its end. The caller closes the controller in any case.
pub async fn play(controller: &mut Controller) -> Result<(), End> {
    story(controller).await.map_err(|fault| not_so(&fault))
}

/// What is new in the journal.
pub fn tell(journal: &mut Journal) {
    let start = journal.record.start;
    for note in journal.untold() {
        let hundredths = note.at.saturating_sub(start) / 10_000_000;
        let at = format!("{}.{:02}", hundredths / 100, hundredths % 100);
        line(&format!("{at:>6} s  {}", note.what));
        if let Some(why) = &note.why {
            line(&format!("{:>8}  {why}.", ""));
        }
    }
}

/// What came of it, once all have ended. `counter` is what the store says then.
pub fn conclude(record: &Record, counter: Option<u64>) -> Result<(), End> {
    let Some(counter) = counter else {
        return Err(End::new(
            STORE,
            "the store did not say what the counter is at the end, so nobody knows whether all \
             was as told",
        ));
    };
    let verdict = Verdict::of(record, counter);
    if let Some((last, others)) = verdict.faults.split_last() {
        others.iter().for_each(|fault| say(&format!("not so: {fault}")));
        return Err(not_so(last));
    }
    line("\nWhat was observed is as promised:");
    verdict.held.iter().for_each(|held| line(&format!("  - {held}")));
    Ok(())
}

fn not_so(fault: &str) -> End {
    End::new(NOT_SO, format!("not so: {fault}"))
}

async fn story(controller: &mut Controller) -> Told<()> {
    line("Three processes take part in one election. The leader counts a number up in the store.");
    line(&format!("({})", controller.place()));

    chapter(controller, "Three join, and one leads");
    for who in 0..3 {
        start(controller, who, "a candidate gets in line").await?;
    }
    let first = wait(controller, "somebody leads", leader).await?;
    work(controller, first).await?;

    chapter(controller, "The leader is stopped in order");
    controller.act(first, Action::Stop).await;
    let second = next_leader(controller, first).await?;
    ended(controller, first).await?;
    work(controller, second).await?;
    start(controller, first, "it gets back in line").await?;

    chapter(controller, "The leader is killed");
    controller.act(second, Action::Kill).await;
    let third = next_leader(controller, second).await?;
    ended(controller, second).await?;
    work(controller, third).await?;
    start(controller, second, "it gets back in line").await?;

    chapter(controller, "The leader is paused, and sleeps through its lease");
    controller.act(third, Action::Pause).await;
    let fourth = next_leader(controller, third).await?;
    work(controller, fourth).await?;
    // The paused candidate finds this when it wakes up, like a write that was on its way.
    controller.act(third, Action::WriteLate).await;
    controller.act(third, Action::Resume).await;
    refused(controller, third).await?;
    rejoined(controller, third).await?;
    work(controller, fourth).await?;

    chapter(controller, "All go home");
    Ok(())
}

fn chapter(controller: &mut Controller, title: &str) {
    tell(&mut controller.journal);
    line(&format!("\n{title}"));
}

/// Waits until this is in the record.
async fn wait<T>(
    controller: &mut Controller,
    what: &str,
    mut there: impl FnMut(&Record) -> Option<T>,
) -> Told<T> {
    let longest = controller.ttl * 3 + Duration::from_secs(10);
    let until = Instant::now() + longest;
    loop {
        tell(&mut controller.journal);
        let Journal { record, notes, .. } = &controller.journal;
        if let Some(wrong) = notes.iter().find(|note| note.kind == Kind::Wrong) {
            return Err(wrong.what.clone());
        }
        if let Some(gone) = record.candidates.iter().find(|candidate| candidate.has_failed()) {
            return Err(format!("{} runs until it is stopped, or killed", gone.name));
        }
        if let Some(found) = there(record) {
            return Ok(found);
        }
        if timeout_at(until, controller.next()).await.is_err() {
            let longest = humantime::format_duration(longest);
            return Err(format!("{what}: not within {longest}"));
        }
    }
}

/// Starts a candidate, for the first time or again, and waits until it is in line.
async fn start(controller: &mut Controller, who: usize, what: &str) -> Told<()> {
    controller.add().map_err(|end| end.sentence.unwrap_or_default())?;
    let is_joined = |record: &Record| {
        let life = record.get(who)?.life()?;
        life.joined.filter(|_| life.end().is_none()).map(|_| ())
    };
    wait(controller, what, is_joined).await
}

/// Lets the leader work for a while, undisturbed.
async fn work(controller: &mut Controller, who: usize) -> Told<()> {
    let epoch = |record: &Record| Some(record.get(who)?.term()?.epoch);
    let written = |record: &Record| {
        let candidate = record.get(who)?;
        let epoch = candidate.term()?.epoch;
        let accepted = candidate.writes.iter().filter(|write| write.is_accepted());
        Some(accepted.filter(|write| write.epoch == epoch).count()).filter(|count| *count > 0)
    };
    let led = epoch(&controller.journal.record);
    let until = Instant::now() + UNDISTURBED;
    while timeout_at(until, controller.next()).await.is_ok() {}
    let count = wait(controller, "the leader writes", written).await?;
    let record = &controller.journal.record;
    let name = record.get(who).map_or("", |candidate| &candidate.name);
    if epoch(record) != led || leader(record) != Some(who) {
        return Err(format!("{name} leads on, undisturbed"));
    }
    line(&format!("{:>8}  {name} has made {count} writes in this term", ""));
    Ok(())
}

/// Somebody else, with a higher epoch.
async fn next_leader(controller: &mut Controller, former: usize) -> Told<usize> {
    let last = |record: &Record| Some(record.get(former)?.terms.last()?.epoch);
    let before = last(&controller.journal.record).unwrap_or_default();
    let another = |record: &Record| leader(record).filter(|who| *who != former);
    let next = wait(controller, "another one leads", another).await?;
    let epoch = controller.journal.record.get(next).and_then(Candidate::term).map(|it| it.epoch);
    if epoch.is_none_or(|epoch| epoch <= before) {
        return Err(format!("the next epoch is above {before}, but it is {epoch:?}"));
    }
    Ok(next)
}

async fn ended(controller: &mut Controller, who: usize) -> Told<()> {
    let is_gone = |record: &Record| record.get(who)?.is_gone().then_some(());
    wait(controller, "its process ends", is_gone).await
}

/// The late write was refused by the store.
async fn refused(controller: &mut Controller, who: usize) -> Told<()> {
    let is_refused = |record: &Record| {
        let mut writes = record.get(who)?.writes.iter().rev();
        let late = writes.find(|write| write.is_late)?;
        late.outcome.as_ref().map(|_| late.is_refused())
    };
    let is_refused = wait(controller, "the late write is answered", is_refused).await?;
    if is_refused { Ok(()) } else { Err("the store refuses the late write".into()) }
}

/// It stands in line, as the store has it, with a new epoch behind the leader's.
async fn rejoined(controller: &mut Controller, who: usize) -> Told<()> {
    let is_behind = |record: &Record| {
        let candidate = record.get(who)?;
        let past = candidate.term()?.epoch;
        let mut behind = record.queue.iter().skip(1);
        behind.find(|place| place.name == candidate.name && place.epoch > past).map(|_| ())
    };
    wait(controller, "it gets back in line, behind the leader", is_behind).await
}

/// Who leads, by its own account and as the store has it.
fn leader(record: &Record) -> Option<usize> {
    let (who, candidate, term) = record.leading(now())?;
    let stored = record.queue.first()?;
    (stored.name == candidate.name && stored.epoch == term.epoch).then_some(who)
}

/// Fails if nobody reads; the story goes on, because its status counts.
fn line(text: &str) {
    let mut stdout = io::stdout().lock();
    let _ = writeln!(stdout, "{text}").and_then(|()| stdout.flush());
}
