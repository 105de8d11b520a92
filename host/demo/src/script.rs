//! `incumbent demo --script`: a fixed story as plain text, told as it happens.
//!
//! Each step waits for what it tells. What does not come, or is not as promised, is
//! said, and makes the end a failure.

use std::io::{self, Write};
use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use super::end::{End, NOT_SO, STORE, say};
use super::notes::{Kind, Note};
use super::picture::{Candidate, Picture, Write as Writing};
use super::stage::{Stage, now};
use super::verdict::Verdict;

/// How long things go on undisturbed between two deeds.
const PEACE: Duration = Duration::from_millis(1000);

/// What is wrong, as a sentence.
type Told<T> = Result<T, String>;

/// Tells what happens, once each.
#[derive(Debug, Default)]
pub struct Narrator {
    /// How many notes have been told.
    told: usize,
}

impl Narrator {
    /// The story, from its beginning to its end. The stage is to be closed in any case.
    pub async fn play(&mut self, stage: &mut Stage, ttl: Duration) -> Result<(), End> {
        let patience = ttl * 3 + Duration::from_secs(10);
        let mut script = Script { stage, patience, narrator: self };
        script.story().await.map_err(|fault| not_so(&fault))
    }

    /// What is new in the picture.
    pub fn tell(&mut self, picture: &Picture) {
        for note in picture.notes.iter().skip(self.told) {
            tell(note, picture.start);
        }
        self.told = picture.notes.len();
    }
}

/// What came of it, once all have ended. `counter` is what the store says then.
pub fn conclude(picture: &Picture, counter: Option<u64>) -> Result<(), End> {
    let Some(counter) = counter else {
        return Err(End::new(
            STORE,
            "the store did not say what the counter is at the end, so nobody knows whether all \
             was as told",
        ));
    };
    let verdict = Verdict::of(picture, counter);
    if verdict.faults.is_empty() {
        line("");
        line("What was observed is as promised:");
        verdict.held.iter().for_each(|held| line(&format!("  - {held}")));
        return Ok(());
    }
    let (last, others) = verdict.faults.split_last().unzip();
    for fault in others.into_iter().flatten() {
        say(&format!("not so: {fault}"));
    }
    Err(not_so(last.map_or("", String::as_str)))
}

fn not_so(fault: &str) -> End {
    End::new(NOT_SO, format!("not so: {fault}"))
}

struct Script<'a> {
    stage: &'a mut Stage,
    patience: Duration,
    narrator: &'a mut Narrator,
}

impl Script<'_> {
    async fn story(&mut self) -> Told<()> {
        line("Three processes want one office. Who leads counts a number up in the store.");
        line(&format!("({})", self.stage.place()));

        self.chapter("Three join, and one leads");
        for nth in 0..3 {
            self.add()?;
            self.wait("a candidate gets in line", |picture| {
                picture.get(nth)?.life()?.joined.map(|_| ())
            })
            .await?;
        }
        let first = self.wait("somebody leads", leader).await?;
        self.work(first).await?;

        self.chapter("The leader is stopped in order");
        self.stage.stop(first);
        let second = self.next_leader(first).await?;
        self.ended(first).await?;
        self.work(second).await?;
        self.back(first).await?;

        self.chapter("The leader is killed");
        self.stage.kill(second);
        let third = self.next_leader(second).await?;
        self.ended(second).await?;
        self.work(third).await?;
        self.back(second).await?;

        self.chapter("The leader is paused, and sleeps through its lease");
        self.stage.pause(third).await;
        let fourth = self.next_leader(third).await?;
        self.work(fourth).await?;
        // Found by the sleeper when it wakes, like one that was on its way.
        self.stage.write_late(third);
        self.stage.resume(third);
        self.refused(third).await?;
        self.rejoined(third).await?;
        self.work(fourth).await?;

        self.chapter("All go home");
        Ok(())
    }

    fn chapter(&mut self, title: &str) {
        self.tell();
        line("");
        line(title);
    }

    fn tell(&mut self) {
        self.narrator.tell(&self.stage.picture);
    }

    /// Waits until there is something in the picture.
    async fn wait<T>(
        &mut self,
        what: &str,
        mut there: impl FnMut(&Picture) -> Option<T>,
    ) -> Told<T> {
        let until = Instant::now() + self.patience;
        loop {
            self.tell();
            let picture = &self.stage.picture;
            if let Some(wrong) = picture.notes.iter().find(|note| note.kind == Kind::Wrong) {
                return Err(wrong.what.clone());
            }
            if let Some(gone) = picture.candidates.iter().find(|candidate| candidate.fell()) {
                return Err(format!("{} runs until it is stopped, or killed", gone.name));
            }
            if let Some(found) = there(picture) {
                return Ok(found);
            }
            if timeout_at(until, self.stage.next()).await.is_err() {
                let waited = humantime::format_duration(self.patience);
                return Err(format!("{what}: not within {waited}"));
            }
        }
    }

    /// Lets the leader work for a while, undisturbed.
    async fn work(&mut self, who: usize) -> Told<()> {
        let epoch = |picture: &Picture| Some(picture.get(who)?.term()?.epoch);
        let written = |picture: &Picture| {
            let candidate = picture.get(who)?;
            let term = candidate.term()?;
            let of_term = |write: &&Writing| write.epoch == term.epoch;
            Some(
                candidate.writes.iter().filter(of_term).filter(|write| write.is_accepted()).count(),
            )
        };
        let led = epoch(&self.stage.picture);
        let until = Instant::now() + PEACE;
        while timeout_at(until, self.stage.next()).await.is_ok() {}
        let count = self
            .wait("the leader writes", |picture| written(picture).filter(|count| *count > 0))
            .await?;
        let picture = &self.stage.picture;
        let name = picture.get(who).map_or("", |candidate| &candidate.name);
        if epoch(picture) != led || leader(picture) != Some(who) {
            return Err(format!("{name} leads on, undisturbed"));
        }
        line(&format!("{:>8}  {name} has made {count} writes in this term", ""));
        Ok(())
    }

    /// Somebody else, with a higher epoch.
    async fn next_leader(&mut self, former: usize) -> Told<usize> {
        let last = |picture: &Picture| Some(picture.get(former)?.terms.last()?.epoch);
        let before = last(&self.stage.picture).unwrap_or_default();
        let next = self
            .wait("another one leads", |picture| leader(picture).filter(|who| *who != former))
            .await?;
        let picture = &self.stage.picture;
        let epoch = picture.get(next).and_then(Candidate::term).map(|term| term.epoch);
        if epoch.is_none_or(|epoch| epoch <= before) {
            return Err(format!("the next epoch is above {before}, but it is {epoch:?}"));
        }
        Ok(next)
    }

    async fn ended(&mut self, who: usize) -> Told<()> {
        self.wait("its process ends", |picture| picture.get(who)?.is_gone().then_some(())).await
    }

    fn add(&mut self) -> Told<()> {
        self.stage.add().map_err(|end| {
            format!("the program starts itself ({})", end.sentence.unwrap_or_default())
        })
    }

    /// Starts again whom we have stopped or killed.
    async fn back(&mut self, who: usize) -> Told<()> {
        self.add()?;
        self.wait("it gets back in line", |picture| {
            let life = picture.get(who)?.life()?;
            life.end().is_none().then_some(())?;
            life.joined.map(|_| ())
        })
        .await
    }

    /// The late write was refused by the store.
    async fn refused(&mut self, who: usize) -> Told<()> {
        let is_refused = self
            .wait("the late write is answered", |picture| {
                let writes = &picture.get(who)?.writes;
                let late = writes.iter().rev().find(|write| write.is_late)?;
                late.outcome.as_ref().map(|_| late.is_refused())
            })
            .await?;
        if is_refused { Ok(()) } else { Err("the store refuses the late write".into()) }
    }

    /// It stands in line, as the store has it, with a new epoch behind the leader's.
    async fn rejoined(&mut self, who: usize) -> Told<()> {
        self.wait("it gets back in line, behind the leader", |picture| {
            let candidate = picture.get(who)?;
            let past = candidate.term()?.epoch;
            let places = picture.line.iter().position(|place| place.name == candidate.name)?;
            let place = picture.line.get(places)?;
            (places > 0 && place.epoch > past).then_some(())
        })
        .await
    }
}

/// Who leads, by its own account and as the store has it.
fn leader(picture: &Picture) -> Option<usize> {
    let who = picture.leading(now())?;
    let candidate = picture.get(who)?;
    let term = candidate.term()?;
    let seen = picture.leader.as_ref()?;
    (seen.name == candidate.name && seen.epoch == term.epoch).then_some(who)
}

fn tell(note: &Note, start: u64) {
    let at = seconds(note.at.saturating_sub(start));
    line(&format!("{at:>6} s  {}", note.what));
    if let Some(why) = &note.why {
        line(&format!("{:>8}  {why}.", ""));
    }
}

fn seconds(nanoseconds: u64) -> String {
    let hundredths = nanoseconds / 10_000_000;
    format!("{}.{:02}", hundredths / 100, hundredths % 100)
}

/// A reader that has gone away does not end the story: its status counts.
fn line(text: &str) {
    let mut stdout = io::stdout().lock();
    let _ = writeln!(stdout, "{text}").and_then(|()| stdout.flush());
}
