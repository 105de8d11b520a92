//! Very many elections in one process: won, and taken over by another process when the first one
//! closes or is killed.

use std::time::Duration;

use anyhow::Result;
use incumbent::{BootClock, Clock as _};
use tokio::time::sleep;

use crate::figures::{median, percentile};
use crate::peers::{LONG, Side};
use crate::requests::{Requests, Work};
use crate::rounds::{Bench, Measured};
use crate::store::Store;

/// In one process.
pub const SERIES: [usize; 5] = [10, 100, 1_000, 10_000, 100_000];
/// How many a process leads that is killed.
pub const KILLED: usize = 1_000;
/// The lease of such a process: the shortest that etcd grants.
pub const SHORT: Duration = Duration::from_secs(2);
/// How many lease times the requests of a process at rest are counted for.
const LEASE_TIMES: u32 = 3;

/// What one number of elections took, once.
pub struct Shift {
    pub count: usize,
    /// Until all were won by one process.
    pub won: Duration,
    /// Resident memory of that process then, in bytes.
    pub resident: f64,
    /// When each was led again after that process had closed.
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
    let name = &format!("shift-{count}-{repeat}-{side:?}");
    let (mut leader, mut successor) = (bench.start(side, LONG)?, bench.start(side, LONG)?);
    let data = store.data()?;
    let before = store.requests();
    let began = leader.campaign(name, count)?;
    let won = leader.elected(count, began)?.into_iter().max().unwrap_or_default();
    store.at_rest().await;
    let won_with = store.requests().since(&before).each(count as f64);
    let resident = leader.resident()?;
    successor.campaign(name, count)?;
    store.in_line(name, 2 * count).await?;
    store.at_rest().await;
    let data = (store.data()? - data) / (2 * count) as f64;
    let before = store.requests();
    let began = leader.close()?;
    let taken_over = successor.elected(count, began)?;
    store.at_rest().await;
    let taken_over_with = store.requests().since(&before).each(count as f64);
    successor.close()?;
    let shift = Shift { count, won, resident, taken_over, won_with, taken_over_with, data };
    measured.shifts.push(shift);
    Ok(())
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
    let (mut leader, mut successor) = (bench.start(side, SHORT)?, bench.start(side, SHORT)?);
    let began = leader.campaign(&name, count)?;
    leader.elected(count, began)?;
    successor.campaign(&name, count)?;
    store.in_line(&name, 2 * count).await?;
    store.at_rest().await;
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

impl Measured {
    /// The numbers of elections that were measured.
    pub fn counts(&self) -> Vec<usize> {
        let mut counts: Vec<_> = self.shifts.iter().map(|shift| shift.count).collect();
        counts.dedup();
        counts
    }

    /// In seconds.
    pub fn won(&self, count: usize) -> f64 {
        self.median(count, |shift| shift.won.as_secs_f64())
    }

    /// Until so many percent were led again, in seconds.
    pub fn taken_over(&self, count: usize, percent: usize) -> f64 {
        self.median(count, |shift| percentile(&shift.taken_over, percent) / 1e3)
    }

    /// Of the times at which the elections of a killed process were led again, in seconds.
    pub fn killed(&self, of: impl Fn(&[Duration]) -> f64) -> f64 {
        median(&self.killed.iter().map(|times| of(times) / 1e3).collect::<Vec<_>>())
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
