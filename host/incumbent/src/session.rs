//! An application's connection to its elections.

use std::fmt;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use futures_util::Stream;
use futures_util::stream::{self, StreamExt};
use tokio::sync::oneshot;

use crate::clock::{BootClock, Clock, nanoseconds};
use crate::component::Component;
use crate::deadlines::Deadlines;
use crate::driver::{self, Handle, Parts, Wish};
#[cfg(feature = "testing")]
use crate::driver::{Director, Rehearsal};
use crate::election::Election;
use crate::error::Error;
use crate::observer::received;
use crate::store;
use crate::store::Store;
#[cfg(feature = "etcd")]
use crate::store::etcd::Credentials;
use crate::store::url::StoreUrl;
use crate::types::{Config, Failure};

/// One identity and one lease, for up to 10,000 elections. A cheap clone.
///
/// What one costs hardly grows with the others on its lease: on etcd a claim takes 1 to 2 ms
/// beside 10,000 of them, and a renewal less. Whoever loses the lease loses all of them at once.
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
    handle: Handle,
}

/// How a session is set up.
///
/// ```
/// use std::time::Duration;
/// use incumbent::Options;
///
/// let options = Options { ttl: Duration::from_secs(5), ..Options::default() };
/// ```
#[derive(Clone)]
pub struct Options {
    /// Who this is, for people: what others read of a candidate unless it says
    /// something else. `HOST-PID` if empty. It need not be unique.
    pub identity: String,
    /// How long a lease lives that nobody renews, 10 s by default. A crashed
    /// leader is followed after that, and etcd takes whole seconds and no less
    /// than one and a half of its election time-outs.
    pub ttl: Duration,
    /// Taken off every deadline, for clocks that run at different rates. At least
    /// 1% of the lease time is taken off, which is the default.
    pub margin: Duration,
    /// How long to wait for an answer of the store, 5 s by default.
    pub request_timeout: Duration,
    /// How long to wait for a connection at the start, 5 s by default.
    pub dial_timeout: Duration,
    /// What etcd is shown to be let in.
    #[cfg(feature = "etcd")]
    pub credentials: Credentials,
    /// Another elector instead of the library's own: see
    /// [`Component::from_bytes`].
    pub component: Option<Arc<[u8]>>,
    /// The clock that deadlines are counted by: [`BootClock`] by default.
    pub clock: Arc<dyn Clock>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            identity: String::new(),
            ttl: Duration::from_secs(10),
            margin: Duration::ZERO,
            request_timeout: Duration::from_secs(5),
            dial_timeout: Duration::from_secs(5),
            #[cfg(feature = "etcd")]
            credentials: Credentials::default(),
            component: None,
            clock: Arc::new(BootClock),
        }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut options = f.debug_struct("Options");
        options
            .field("identity", &self.identity)
            .field("ttl", &self.ttl)
            .field("margin", &self.margin)
            .field("request_timeout", &self.request_timeout)
            .field("dial_timeout", &self.dial_timeout);
        #[cfg(feature = "etcd")]
        options.field("credentials", &self.credentials);
        options
            .field("component", &self.component.as_ref().map(|bytes| bytes.len()))
            .field("clock", &self.clock)
            .finish()
    }
}

impl Session {
    /// Connects to a store by its [URL](StoreUrl): an etcd
    /// (`etcd://HOST:PORT[,HOST:PORT…][/PREFIX]`, `etcds://` for TLS), a file of this
    /// machine's (`local`, `sqlite:PATH`), or memory (`memory:`). Takes no lease before
    /// there is a candidate. Wants tokio's runtime, and lives on it. Cancel safe.
    ///
    /// # Errors
    ///
    /// [`Error::Configuration`] for a bad URL, [`Error::Connect`] if no etcd answers or
    /// it refuses, [`Error::Sqlite`] if the file cannot serve, [`Error::Component`] for
    /// bad times.
    pub async fn connect(url: &str, options: Options) -> Result<Self, Error> {
        let url: StoreUrl =
            url.parse().map_err(|error| Error::Configuration(format!("{error}")))?;
        let connected = store::connect(&url, &options);
        let (store, component) = tokio::try_join!(connected, compiled(&options))?;
        Self::start(store, component, options)
    }

    /// Elects on any store. Otherwise as [`connect`](Self::connect).
    ///
    /// # Errors
    ///
    /// [`Error::Component`] for bad times, or for a bad component.
    pub async fn open(store: impl Store, options: Options) -> Result<Self, Error> {
        let component = compiled(&options).await?;
        Self::start(Arc::new(store), component, options)
    }

    /// An election by its name: 1 to 1,024 bytes, without control characters.
    /// Does nothing yet; the name is checked when it is used.
    pub fn election(&self, name: impl Into<String>) -> Election {
        Election::new(self.handle.clone(), name.into())
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
        let (done, closed) = oneshot::channel();
        if self.handle.send(Wish::Close(done)) {
            // Without its driver it is closed as well.
            let _ = closed.await;
        }
        Ok(())
    }

    /// What a person should know of, from now on, while the session carries on.
    /// Candidates tell their own as well. Ends with the session.
    pub fn troubles(&self) -> impl Stream<Item = Failure> + Send + Unpin + 'static + use<> {
        match self.handle.troubles() {
            Some(troubles) => received(troubles),
            None => stream::empty().boxed(),
        }
    }

    /// One that a test directs, and whose chances are those of a seed.
    #[cfg(feature = "testing")]
    pub(crate) async fn directed(
        store: impl Store,
        options: Options,
        seed: u64,
    ) -> Result<(Self, Director), Error> {
        let component = compiled(&options).await?;
        let mut parts = parts(Arc::new(store), component, options);
        parts.config.seed = (seed, seed);
        let (rehearsal, director) = Rehearsal::new(Arc::clone(&parts.deadlines));
        parts.rehearsal = rehearsal;
        Ok((Self { handle: driver::start(parts)? }, director))
    }

    fn start(store: Arc<dyn Store>, component: Component, options: Options) -> Result<Self, Error> {
        Ok(Self { handle: driver::start(parts(store, component, options))? })
    }
}

fn parts(store: Arc<dyn Store>, component: Component, options: Options) -> Parts {
    let identity = if options.identity.is_empty() { host_and_process() } else { options.identity };
    Parts {
        store,
        deadlines: Deadlines::new(Arc::clone(&options.clock)),
        clock: options.clock,
        component,
        identity,
        config: Config {
            lease_ttl: nanoseconds(options.ttl),
            safety_margin: nanoseconds(options.margin),
            request_timeout: nanoseconds(options.request_timeout),
            seed: (0, 0),
        },
        #[cfg(feature = "testing")]
        rehearsal: Rehearsal::default(),
    }
}

/// Off the runtime's threads: it takes a while, once in a process.
async fn compiled(options: &Options) -> Result<Component, Error> {
    let bytes = options.component.clone();
    if bytes.is_none()
        && let Some(loaded) = Component::loaded()
    {
        return Ok(loaded);
    }
    let (tell, compiled) = oneshot::channel();
    let compile = move || {
        // Who asked may not wait any more.
        let _ = tell.send(match bytes {
            Some(bytes) => Component::from_bytes(&bytes),
            None => Component::embedded(),
        });
    };
    // Not `spawn_blocking`, which panics where there can be no thread.
    let compiling = thread::Builder::new().name("incumbent-compiler".into()).spawn(compile);
    compiling.map_err(|error| {
        Error::Configuration(format!("the elector is not compiled, for want of a thread: {error}"))
    })?;
    match compiled.await {
        Ok(compiled) => Ok(compiled?),
        Err(_) => {
            Err(Error::Configuration("the elector was not compiled: its compiler broke".into()))
        }
    }
}

fn host_and_process() -> String {
    #[cfg(unix)]
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    #[cfg(not(unix))]
    let host = std::env::var("COMPUTERNAME").unwrap_or_else(|_| "host".into());
    format!("{host}-{}", std::process::id())
}
