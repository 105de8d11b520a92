//! An application's connection to its elections.

use std::sync::Arc;
use std::thread;

use futures_util::Stream;
use futures_util::stream::{self, StreamExt};
use tokio::sync::oneshot;

use crate::clock::nanoseconds;
use crate::connect::connect;
use crate::driver::{self, Handle, Parts, Request};
use crate::election::Election;
use crate::elector::Component;
use crate::error::Error;
use crate::observer::received;
use crate::options::Options;
use crate::store::Store;
use crate::store::url::StoreUrl;
use crate::term::Deadlines;
use crate::types::{Config, Failure};

/// One identity and one lease, for up to 10,000 elections. A cheap clone.
///
/// What an election costs hardly grows with the number of the others on its lease: on etcd a
/// claim takes 1 to 2 ms beside 10,000 of them, and a renewal less. A lost lease ends all of them
/// at once.
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
        Self::start(parts(store, component, options))
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
        Self::start(parts(Arc::new(store), component, options))
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
        if self.handle.send(Request::Close(done)) {
            // Without its driver it is closed as well.
            let _ = closed.await;
        }
        Ok(())
    }

    /// Troubles that a person should know of, from now on, while the session carries on. A
    /// candidate tells its own among its events as well. The stream ends with the session.
    pub fn troubles(&self) -> impl Stream<Item = Failure> + Send + Unpin + 'static + use<> {
        match self.handle.troubles() {
            Some(troubles) => received(troubles),
            None => stream::empty().boxed(),
        }
    }

    pub(crate) fn start(parts: Parts) -> Result<Self, Error> {
        Ok(Self { handle: driver::start(parts)? })
    }
}

pub(crate) fn parts(store: Arc<dyn Store>, component: Component, options: Options) -> Parts {
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
        test_hook: None,
    }
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
