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

use std::io;
use std::process::exit;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use incumbent::{BootClock, Clock as _, Leadership, Mark, Options, Session};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinSet;

pub async fn run(url: &str, ttl: Duration) -> Result<()> {
    let (won, terms) = unbounded_channel();
    let session = connect(url, ttl).await?;
    let mut peer = Peer { url: url.into(), ttl, session, won, terms, led: Vec::new() };
    println!("ready");
    for line in io::stdin().lines() {
        let line = line?;
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["campaign", name, count] => println!("{}", peer.campaign(name, count.parse()?)),
            ["queue", name, count] => println!("{}", peer.queue(name, count.parse()?).await?),
            ["elected", count] => println!("{}", peer.elected(count.parse()?).await?.join(" ")),
            ["resign"] => println!("{}", peer.resign().await?),
            ["close"] => println!("{}", peer.close().await?),
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
                format!("{name}-{number:05}"),
                self.won.clone(),
            ));
        }
        began
    }

    /// A session and a task for each candidate of one election.
    async fn queue(&self, name: &str, count: usize) -> Result<Mark> {
        let began = BootClock.now();
        let mut connecting = JoinSet::new();
        for _ in 0..count {
            let (url, ttl) = (self.url.clone(), self.ttl);
            let (name, won) = (format!("{name}-00000"), self.won.clone());
            connecting.spawn(async move {
                let session = connect(&url, ttl).await?;
                tokio::spawn(lead(session, name, won));
                anyhow::Ok(())
            });
        }
        connecting.join_all().await.into_iter().collect::<Result<()>>()?;
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
}

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
