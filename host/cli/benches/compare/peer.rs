//! Our peer: a process that campaigns, resigns and closes as it reads on its input, and answers
//! each line with the marks of what happened, in nanoseconds of `CLOCK_BOOTTIME`. `peer.go` is the
//! same on etcd's own client.
//!
//! | line | does | answers |
//! | --- | --- | --- |
//! | `campaign NAME COUNT` | campaigns in so many elections, on one session | when it began |
//! | `queue NAME COUNT` | campaigns in one election with so many sessions | when it began |
//! | `elected COUNT` | waits until it has won so many more | when it won each |
//! | `resign` | resigns what it leads | when it began |
//! | `close` | closes the session of `campaign` | when it began |
//! | `drop` | drops what it leads, one after the other, and closes the session; in Go, closes it | when it began |
//! | `carry NAME COUNT PERIOD TIME` | for a time, hands so many elections over between two sessions, each once a period | how long each handover took |
//!
//! The peer in Go has no `carry`, because the plan for capacity is for ours.

use std::process::exit;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use incumbent::{BootClock, Clock as _, Election, Leadership, Mark, Options, Session};
use tokio::io::{AsyncBufReadExt as _, BufReader, stdin};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval_at};
use tokio::try_join;

pub async fn run(url: String, ttl: Duration) -> Result<()> {
    let (won, terms) = unbounded_channel();
    let session = connect(&url, ttl).await?;
    let mut peer = Peer { url, ttl, session, queued: Vec::new(), won, terms, led: Vec::new() };
    println!("ready");
    let mut lines = BufReader::new(stdin()).lines();
    while let Some(line) = lines.next_line().await? {
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["campaign", name, count] => println!("{}", peer.campaign(name, count.parse()?)),
            ["queue", name, count] => println!("{}", peer.queue(name, count.parse()?).await?),
            ["elected", count] => println!("{}", peer.elected(count.parse()?).await?.join(" ")),
            ["resign"] => println!("{}", peer.resign().await?),
            ["close"] => println!("{}", peer.close().await?),
            ["drop"] => println!("{}", peer.drop_terms().await?),
            ["carry", name, count, period, time] => {
                let [period, time] = [period.parse()?, time.parse()?].map(Duration::from_nanos);
                let times = peer.carry(name, count.parse()?, period, time).await?;
                println!("{}", times.join(" "));
            }
            _ => bail!("no such command: {line}"),
        }
    }
    Ok(())
}

/// A term that was won.
type Term = (Mark, Leadership);

struct Peer {
    url: String,
    ttl: Duration,
    session: Session,
    /// Those of `queue`. A session gives its lease back when it is dropped.
    queued: Vec<Session>,
    won: UnboundedSender<Term>,
    terms: UnboundedReceiver<Term>,
    led: Vec<Leadership>,
}

impl Peer {
    /// A task for each election, on one session.
    fn campaign(&self, name: &str, count: usize) -> Mark {
        let began = BootClock.now();
        for number in 0..count {
            tokio::spawn(lead(
                self.session.clone(),
                format!("{name}-{number:06}"),
                self.won.clone(),
            ));
        }
        began
    }

    /// A session and a task for each candidate of one election.
    async fn queue(&mut self, name: &str, count: usize) -> Result<Mark> {
        let began = BootClock.now();
        let mut connecting = JoinSet::new();
        for _ in 0..count {
            let (url, ttl) = (self.url.clone(), self.ttl);
            let (name, won) = (format!("{name}-000000"), self.won.clone());
            connecting.spawn(async move {
                let session = connect(&url, ttl).await?;
                tokio::spawn(lead(session.clone(), name, won));
                anyhow::Ok(session)
            });
        }
        let sessions = connecting.join_all().await.into_iter();
        self.queued = sessions.collect::<Result<_>>()?;
        Ok(began)
    }

    async fn elected(&mut self, count: usize) -> Result<Vec<String>> {
        let mut marks = Vec::new();
        for _ in 0..count {
            let (elected, leadership) = self.terms.recv().await.context("we hold a sender")?;
            marks.push(elected.to_string());
            self.led.push(leadership);
        }
        Ok(marks)
    }

    async fn resign(&mut self) -> Result<Mark> {
        let began = BootClock.now();
        for leadership in self.led.drain(..) {
            leadership.resign().await?;
        }
        Ok(began)
    }

    async fn close(&mut self) -> Result<Mark> {
        let began = BootClock.now();
        let session = self.session.clone();
        let closing = tokio::spawn(async move { session.close().await });
        for leadership in self.led.drain(..) {
            leadership.lost().await;
        }
        closing.await??;
        Ok(began)
    }

    async fn drop_terms(&mut self) -> Result<Mark> {
        let began = BootClock.now();
        self.led.clear();
        self.session.close().await?;
        Ok(began)
    }

    /// Between two sessions, which share a connection.
    async fn carry(
        &self,
        name: &str,
        count: usize,
        period: Duration,
        time: Duration,
    ) -> Result<Vec<String>> {
        let other = connect(&self.url, self.ttl).await?;
        let mut carrying = JoinSet::new();
        for number in 0..count {
            let sessions = [self.session.clone(), other.clone()];
            let elections = sessions.map(|session| session.election(format!("{name}-{number:06}")));
            // One after the other, not all at once.
            let since = Instant::now() + period * number as u32 / count as u32;
            carrying.spawn(hand_over(elections, since, period, time));
        }
        let times = carrying.join_all().await.into_iter().collect::<Result<Vec<_>>>()?;
        Ok(times.concat().iter().map(|time| time.as_nanos().to_string()).collect())
    }
}

/// Hands an election over once a period, or as soon as it can if that is later.
async fn hand_over(
    elections: [Election; 2],
    since: Instant,
    period: Duration,
    time: Duration,
) -> Result<Vec<Duration>> {
    let mut leader = elections[0].join();
    let mut leadership = leader.elected().await?;
    let mut beat = interval_at(since, period);
    beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut times = Vec::new();
    // The beat keeps whole milliseconds.
    while beat.tick().await + period / 2 < since + time {
        let mut successor = elections[(times.len() + 1) % 2].join();
        successor.joined().await?;
        let began = Instant::now();
        let resigned = async move {
            drop(leadership);
            anyhow::Ok(())
        };
        let elected = async {
            let leadership = successor.elected().await?;
            times.push(began.elapsed());
            anyhow::Ok(leadership)
        };
        let left = async { Ok(leader.leave().await?) };
        ((), (), leadership) = try_join!(left, resigned, elected)?;
        leader = successor;
    }
    Ok(times)
}

#[expect(clippy::exit, reason = "the benchmark learns of the failure by the end of this peer")]
async fn lead(session: Session, name: String, won: UnboundedSender<Term>) {
    match session.election(&name).campaign().await {
        // At its end, the peer no longer listens.
        Ok(leadership) => drop(won.send((BootClock.now(), leadership))),
        Err(error) => {
            eprintln!("{name}: {error}");
            exit(1);
        }
    }
}

async fn connect(url: &str, ttl: Duration) -> Result<Session> {
    Ok(Session::connect(url, Options { ttl, ..Options::default() }).await?)
}
