//! An application's connection to its elections.

use std::sync::Arc;
use std::thread;

use futures_util::Stream;
use futures_util::stream::{self, StreamExt};
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use crate::clock::nanoseconds;
use crate::connect::connect;
use crate::drain;
use crate::driver::{CAPACITY, Parts, Pool};
use crate::election::Election;
use crate::elector::Component;
use crate::error::Error;
use crate::limit::Limit;
use crate::observer::received;
use crate::options::Options;
#[cfg(feature = "record")]
use crate::recording::Recorder;
use crate::store::Store;
use crate::store::url::StoreUrl;
use crate::term::Deadlines;
use crate::types::{Config, Failure, Mark};

/// One identity, for as many elections as you like. A cheap clone.
///
/// The first 9,000 elections share one lease. For more, the session takes another lease by
/// itself, and so on: 100,000 elections take 12 leases, each renewed by one request. What an
/// election costs hardly grows with the number of the others on its lease: on etcd a claim takes
/// 1 to 2 ms beside 10,000 of them, and a renewal less. A lost lease ends the terms on it at
/// once; for elections that must not end with others, see
/// [`with_own_lease`](Self::with_own_lease).
///
/// [`close`](Self::close) it at the end. When the last clone, and everything
/// made from it, is dropped instead, the same happens in the background, as long
/// as the runtime goes on. A runtime that ends before costs the next leader one
/// lease time.
///
/// ```
/// use incumbent::{Options, Session};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), incumbent::Error> {
/// let options = Options { identity: "worker-1".into(), ..Options::default() };
/// let session = Session::connect("memory:", options).await?; // or "etcd://127.0.0.1:2379"
///
/// let leadership = session.election("my-service").campaign().await?;
/// println!("leading in epoch {}", leadership.epoch());
/// leadership.fence().put("/data/result", "42").await.expect("the term stands");
/// leadership.resign().await?;
///
/// session.close().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Session {
    pool: Pool,
}

impl Session {
    /// Connects to a store by its [URL](StoreUrl): an etcd
    /// (`etcd://HOST:PORT[,HOST:PORT…][/PREFIX]`, `etcds://` for TLS), a file of this
    /// machine's (`local`, `sqlite:PATH`), or memory (`memory:`). Takes no lease before
    /// there is a candidate. Needs tokio's runtime, and lives on it. Cancel safe.
    ///
    /// # Errors
    ///
    /// [`Error::Url`] for a bad URL, [`Error::Connect`] if no etcd answers or
    /// it refuses, [`Error::Sqlite`] if the file cannot be a store, [`Error::Component`] for
    /// times that do not go together, or for a component that is no elector;
    /// [`Error::Configuration`] if the library was built without the store, or the compiler of
    /// the elector broke; [`Error::Thread`] if no thread could be started to compile it.
    pub async fn connect(url: &str, options: Options) -> Result<Self, Error> {
        let url: StoreUrl = url.parse()?;
        let connected = connect(&url, &options);
        let (store, component) = tokio::try_join!(connected, compiled(&options))?;
        Self::start(parts(store, component, options)?)
    }

    /// Elects on any store. Otherwise as [`connect`](Self::connect).
    ///
    /// # Errors
    ///
    /// [`Error::Component`] for times that do not go together, or for a component that is no
    /// elector; [`Error::Thread`] if no thread could be started to compile it;
    /// [`Error::Configuration`] if its compiler broke.
    pub async fn open(store: impl Store, options: Options) -> Result<Self, Error> {
        let component = compiled(&options).await?;
        Self::start(parts(Arc::new(store), component, options)?)
    }

    /// A session of its own, with the same store, identity and settings, whose elections share
    /// no lease with those of this one. An operator's revocation, or renewals that fail, end all
    /// terms on a lease at once: give a lease of its own to work that must not stop together with
    /// other work. Each lease costs the store one renewal every third of its time.
    ///
    /// It is closed by itself, and is another candidate where both take part in an election.
    ///
    /// # Errors
    ///
    /// [`Error::Closed`] if this session is closed, [`Error::Component`] if no elector could be
    /// started.
    pub fn with_own_lease(&self) -> Result<Self, Error> {
        Ok(Self { pool: self.pool.another()? })
    }

    /// An election by its name: 1 to 1,024 bytes, without control characters.
    /// Does nothing yet; the name is checked when it is used.
    pub fn election(&self, name: impl Into<String>) -> Election {
        Election::new(self.pool.clone(), name.into())
    }

    /// Hands over all terms in order, and takes part in nothing until
    /// [`undo_drain`](Self::undo_drain): what an instance does before its machine is taken away. Each term ends
    /// once somebody else is in line, as with an operator's
    /// [transfer](crate::admin::Admin::transfer): its holder hears
    /// [`Event::HandOver`](crate::Event::HandOver), unless the driver resigns for it. In a
    /// [race](crate::Contest::Race) nobody is seen in line, and the terms end at once. No more
    /// than `at_once` terms are being given up at a time; 0 counts as 1, and a session with several
    /// leases gives up at least one for each. A term with nobody in line behind it stands, until
    /// somebody comes or the drain is undone.
    ///
    /// Candidates without a term leave the line, and go on as candidates: they claim their places
    /// again when the drain is undone. Those that join meanwhile wait for that as well.
    ///
    /// ```
    /// # use incumbent::{Options, Session};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), incumbent::Error> {
    /// let store = "memory:drained";
    /// let session = Session::connect(store, Options::default()).await?;
    /// let leadership = session.election("my-service").campaign().await?;
    /// let other = Session::connect(store, Options::default()).await?;
    /// let next = other.election("my-service").join();
    ///
    /// session.drain(16);
    /// leadership.lost().await; // once the other one is in line
    /// # drop(next);
    /// # session.close().await?;
    /// # other.close().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn drain(&self, at_once: u32) {
        self.pool.drain(Some(at_once));
    }

    /// Takes part again after [`drain`](Self::drain).
    pub fn undo_drain(&self) {
        self.pool.drain(None);
    }

    /// Whether it is drained: it leads nothing, or gives up what it leads.
    pub fn is_drained(&self) -> bool {
        self.pool.is_drained()
    }

    /// Leads no more than that where others are in line too, as one of many that share the same
    /// elections. What is beyond it is handed over in order, as by [`drain`](Self::drain). A candidate
    /// that comes first, and whose session leads as many terms as it may at all, lets others lead
    /// first. If nobody else is in line, it leads all the same: no election stays without a leader
    /// for a limit. In a [race](crate::Contest::Race) nobody is in line, and the limit does not
    /// count.
    ///
    /// Sessions that start one after the other end with equal parts, and stay still then:
    ///
    /// ```
    /// # use incumbent::{Limit, Options, Session};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), incumbent::Error> {
    /// let session = Session::connect("memory:shards", Options::default()).await?;
    /// session.limit(Limit::fair().or_at_most(500));
    /// let shards: Vec<_> = (0..10).map(|shard| session.election(format!("shard-{shard}")).join()).collect();
    /// # drop(shards);
    /// # session.close().await
    /// # }
    /// ```
    pub fn limit(&self, limit: Limit) {
        self.pool.limit(Some(limit));
    }

    /// Leads whatever comes.
    pub fn unlimited(&self) {
        self.pool.limit(None);
    }

    /// How many terms it holds right now. Cancel safe.
    ///
    /// # Errors
    ///
    /// [`Error::Closed`] if the session is closed.
    pub async fn terms(&self) -> Result<usize, Error> {
        self.pool.terms().await
    }

    /// Drains, and undoes that, when an operator wants it of this identity
    /// ([`admin::drain`](crate::admin::drain), `incumbent drain --id`), until the session closes.
    /// Costs one watch. On etcd the user needs the right to read and write
    /// `incumbent-wishes/IDENTITY/drain`. Cancel safe: then no more is heard.
    pub async fn heed_drains(&self) {
        let handle = self.pool.first();
        let Some((store, within)) = handle.store() else { return };
        // The connection of the watch is the session's, and ends with it.
        let mut heeding = JoinSet::new();
        heeding.spawn_on(drain::heed(self.pool.clone(), store, within), &handle.runtime);
        tokio::select! {
            () = handle.closing() => {}
            _ = heeding.join_next() => {}
        }
    }

    /// Leaves all elections and gives the lease back. Terms that are held are
    /// over at once, and waited for: until they are dropped, or to their
    /// deadlines. Cancel safe: it goes on without the future.
    ///
    /// # Errors
    ///
    /// None yet. What could not be released is logged, and gone after one lease
    /// time.
    pub async fn close(&self) -> Result<(), Error> {
        self.pool.close().await;
        Ok(())
    }

    /// Troubles that a person should know of, from now on, while the session carries on. A
    /// candidate tells its own among its events as well. The stream ends with the session.
    pub fn troubles(&self) -> impl Stream<Item = Failure> + Send + Unpin + 'static + use<> {
        match self.pool.first().troubles() {
            Some(troubles) => received(troubles),
            None => stream::empty().boxed(),
        }
    }

    /// When the store answered this session last, to whatever it was asked: a mark of the
    /// session's clock. None if it has not answered yet. While there is a candidate, the store is
    /// asked at least every third of the lease time.
    pub fn store_answered(&self) -> Option<Mark> {
        self.pool.store_answered()
    }

    /// Waits until the session's drivers have come round: proof that the runtime polls them, and
    /// that nothing holds them up. Costs the store nothing. Cancel safe.
    ///
    /// # Errors
    ///
    /// [`Error::Closed`] if the session is closed.
    pub async fn ping(&self) -> Result<(), Error> {
        self.pool.ping().await
    }

    pub(crate) fn start(parts: Parts) -> Result<Self, Error> {
        Ok(Self { pool: Pool::start(parts)? })
    }
}

pub(crate) fn parts(
    store: Arc<dyn Store>,
    component: Component,
    options: Options,
) -> Result<Parts, Error> {
    let identity = if options.identity.is_empty() { host_and_process() } else { options.identity };
    #[cfg(not(feature = "record"))]
    let recorder = None;
    #[cfg(feature = "record")]
    let recorder = match options.recording {
        Some(recording) => {
            let (identity, clock) = (identity.clone(), Arc::clone(&options.clock));
            Some(Recorder::start(recording, identity, options.component, clock)?)
        }
        None => None,
    };
    Ok(Parts {
        store,
        deadlines: Deadlines::new(Arc::clone(&options.clock), recorder.clone()),
        clock: options.clock,
        component,
        identity,
        config: Config {
            lease_ttl: nanoseconds(options.ttl),
            safety_margin: nanoseconds(options.margin),
            request_timeout: nanoseconds(options.request_timeout),
            seed: (0, 0),
        },
        capacity: CAPACITY,
        started: Arc::default(),
        recorder,
        test_hooks: None,
    })
}

/// Compiles off the runtime's threads: it takes a while, once in a process.
pub(crate) async fn compiled(options: &Options) -> Result<Component, Error> {
    let bytes = options.component.clone();
    if bytes.is_none()
        && let Some(loaded) = Component::loaded()
    {
        return Ok(loaded);
    }
    let (tell, compiled) = oneshot::channel();
    let compile = move || {
        // The caller may have gone.
        let _ = tell.send(match bytes {
            Some(bytes) => Component::from_bytes(&bytes),
            None => Component::embedded(),
        });
    };
    // Not `spawn_blocking`, which panics where there can be no thread.
    let compiling = thread::Builder::new().name("incumbent-compiler".into()).spawn(compile);
    compiling.map_err(Error::Thread)?;
    match compiled.await {
        Ok(compiled) => Ok(compiled?),
        Err(_) => Err(Error::Configuration(
            "the elector was not compiled, because its compiler panicked: report this, with what \
             the panic printed on standard error"
                .into(),
        )),
    }
}

fn host_and_process() -> String {
    #[cfg(unix)]
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    #[cfg(not(unix))]
    let host = std::env::var("COMPUTERNAME").unwrap_or_else(|_| "host".into());
    format!("{host}-{}", std::process::id())
}

#[cfg(test)]
mod tests;
