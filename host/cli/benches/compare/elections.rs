//! Very many elections in one process: won, and taken over by another process when the first one
//! closes, drops its terms, or is killed.

use std::io::{self, ErrorKind};
use std::time::{Duration, Instant};

use anyhow::Result;
use incumbent::{BootClock, Clock as _};
use tokio::time::{sleep, timeout_at};

use crate::figures::{median, percentile};
use crate::peers::{LONG, Peer, Side};
use crate::requests::{Requests, Work};
use crate::rounds::{Bench, Measured};
use crate::store::Store;

/// In one process.
pub const SERIES: [usize; 5] = [10, 100, 1_000, 10_000, 100_000];
/// Within it, a process has to win them, and another one to take them over.
pub const LIMIT: Duration = Duration::from_secs(90);
/// How many a process leads that is killed.
pub const KILLED: usize = 1_000;
/// How many a process leads that drops its terms one after the other, and then closes its session.
pub const DROPPED: usize = 5_000;
/// The lease of a process that is killed: the shortest that etcd grants.
pub const SHORT: Duration = Duration::from_secs(2);
/// How many lease times the requests of a process at rest are counted for.
const LEASE_TIMES: u32 = 3;

/// What one number of elections took, once. What has not come to its end within [`LIMIT`] took
/// infinitely long.
pub struct Shift {
    pub count: usize,
    /// Until all were won by one process, in seconds.
    pub won: f64,
    /// Resident memory of that process then, in bytes.
    pub resident: f64,
    /// When each was led again after that process had closed. Empty if that did not end.
    pub taken_over: Vec<Duration>,
    /// What etcd was asked for each of them.
    pub won_with: Requests,
    pub taken_over_with: Requests,
    /// What etcd's data grew by for each candidate of both processes, in bytes.
    pub data: f64,
}

/// One process wins the elections and closes, and another takes over.
pub async fn shift(
    bench: &Bench<'_>,
    side: Side,
    store: &mut Store<'_>,
    measured: &mut Measured,
    (count, repeat): (usize, usize),
) -> Result<()> {
    let mut shift = Shift {
        count,
        won: f64::INFINITY,
        resident: f64::INFINITY,
        taken_over: Vec::new(),
        won_with: Requests::default(),
        taken_over_with: Requests::default(),
        data: f64::INFINITY,
    };
    let deadline = Instant::now() + LIMIT;
    let peers = [bench.start(side, LONG)?, bench.start(side, LONG)?];
    let peers = peers.map(|peer| peer.answers_until(deadline));
    let name = format!("shift-{count}-{repeat}-{side:?}");
    let ended = timeout_at(deadline.into(), take_over(peers, store, &mut shift, &name)).await;
    match ended {
        Ok(Err(error)) if !is_timed_out(&error) => return Err(error),
        Ok(Ok(())) => {}
        Ok(Err(_)) | Err(_) => bench.progress(&format!("{side:?} took too long")),
    }
    measured.shifts.push(shift);
    Ok(())
}

fn is_timed_out(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == ErrorKind::TimedOut)
}

async fn take_over(
    [mut leader, mut successor]: [Peer; 2],
    store: &mut Store<'_>,
    shift: &mut Shift,
    name: &str,
) -> Result<()> {
    let count = shift.count;
    let data = store.data()?;
    let before = store.requests();
    let began = leader.campaign(name, count)?;
    let won = leader.elected(count, began)?.into_iter().max().unwrap_or_default();
    shift.won = won.as_secs_f64();
    store.at_rest().await;
    shift.won_with = store.requests().since(&before).each(count as f64);
    shift.resident = leader.resident()?;
    successor.campaign(name, count)?;
    store.in_line(name, 2 * count).await?;
    store.at_rest().await;
    shift.data = (store.data()? - data) / (2 * count) as f64;
    let before = store.requests();
    let began = leader.close()?;
    let taken_over = successor.elected(count, began)?;
    store.at_rest().await;
    shift.taken_over_with = store.requests().since(&before).each(count as f64);
    successor.close()?;
    shift.taken_over = taken_over;
    Ok(())
}

/// One process leads the elections, and another one waits in all of them.
async fn in_line(
    bench: &Bench<'_>,
    side: Side,
    store: &mut Store<'_>,
    (lease, name, count): (Duration, &str, usize),
) -> Result<[Peer; 2]> {
    let [mut leader, mut successor] = [bench.start(side, lease)?, bench.start(side, lease)?];
    let began = leader.campaign(name, count)?;
    leader.elected(count, began)?;
    successor.campaign(name, count)?;
    store.in_line(name, 2 * count).await?;
    store.at_rest().await;
    Ok([leader, successor])
}

/// One process is killed, and another takes over when its lease has run out.
pub async fn killed(
    bench: &Bench<'_>,
    side: Side,
    store: &mut Store<'_>,
    measured: &mut Measured,
    repeat: usize,
) -> Result<()> {
    let name = format!("killed-{repeat}-{side:?}");
    let count = KILLED.min(bench.extent.elections);
    let [leader, mut successor] = in_line(bench, side, store, (SHORT, &name, count)).await?;
    if repeat == 0 {
        let before = store.requests();
        sleep(SHORT * LEASE_TIMES).await;
        // Of both processes.
        measured.count(Work::AtRest, store, &before, f64::from(2 * LEASE_TIMES));
    }
    let began = BootClock.now();
    leader.kill()?;
    measured.killed.push(successor.elected(count, began)?);
    successor.close()?;
    Ok(())
}

/// One process drops its terms and closes its session, and another takes over.
pub async fn dropped(
    bench: &Bench<'_>,
    side: Side,
    store: &mut Store<'_>,
    measured: &mut Measured,
    repeat: usize,
) -> Result<()> {
    let name = format!("dropped-{repeat}-{side:?}");
    let count = DROPPED.min(bench.extent.elections);
    let [mut leader, mut successor] = in_line(bench, side, store, (LONG, &name, count)).await?;
    let began = leader.drop_terms()?;
    measured.dropped.push(successor.elected(count, began)?);
    successor.close()?;
    Ok(())
}

impl Measured {
    /// The numbers of elections that were measured.
    pub fn counts(&self) -> Vec<usize> {
        let mut counts: Vec<_> = self.shifts.iter().map(|shift| shift.count).collect();
        counts.dedup();
        counts
    }

    /// In seconds, infinite if they were not all won within [`LIMIT`].
    pub fn won(&self, count: usize) -> f64 {
        self.median(count, |shift| shift.won)
    }

    /// Until so many percent were led again, in seconds, infinite beyond [`LIMIT`].
    pub fn taken_over(&self, count: usize, percent: usize) -> f64 {
        self.median(count, |shift| match shift.taken_over[..] {
            [] => f64::INFINITY,
            [..] => percentile(&shift.taken_over, percent) / 1e3,
        })
    }

    /// Of the times at which the elections of a killed process were led again, in seconds.
    pub fn killed(&self, of: impl Fn(&[Duration]) -> f64) -> f64 {
        median(&self.killed.iter().map(|times| of(times) / 1e3).collect::<Vec<_>>())
    }

    /// Of the times at which elections were led again whose terms had been dropped, in seconds.
    pub fn dropped(&self, of: impl Fn(&[Duration]) -> f64) -> f64 {
        median(&self.dropped.iter().map(|times| of(times) / 1e3).collect::<Vec<_>>())
    }

    /// In bytes.
    pub fn resident(&self, count: usize) -> f64 {
        self.median(count, |shift| shift.resident)
    }

    /// What each election adds, from the fewest that were measured to so many, in bytes.
    pub fn memory_each(&self, count: usize) -> f64 {
        let least = self.counts().first().copied().unwrap_or_default();
        (self.resident(count) - self.resident(least)) / (count - least) as f64
    }

    /// etcd's data for each candidate, in bytes.
    pub fn data(&self, count: usize) -> f64 {
        self.median(count, |shift| shift.data)
    }

    fn median(&self, count: usize, of: impl Fn(&Shift) -> f64) -> f64 {
        let shifts = self.shifts.iter().filter(|shift| shift.count == count);
        median(&shifts.map(of).collect::<Vec<_>>())
    }
}
