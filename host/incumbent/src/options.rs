//! How a session is set up.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::clock::{BootClock, Clock};
#[cfg(feature = "record")]
use crate::recording::Recording;
#[cfg(any(feature = "etcd", feature = "postgres"))]
use crate::store::credentials::Credentials;

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
    /// A name for people: others read it as a candidate's value unless that is set. `HOST-PID`
    /// if empty. It need not be unique.
    pub identity: String,
    /// How long a lease lives without a renewal, 10 s by default. A crashed
    /// leader is followed after that. etcd takes whole seconds and no less
    /// than one and a half of its election time-outs.
    pub ttl: Duration,
    /// Taken off every deadline, for clocks that run at different rates. At least
    /// 1% of the lease time is taken off, which is the default.
    pub margin: Duration,
    /// How long to wait for an answer of the store, 5 s by default.
    pub request_timeout: Duration,
    /// How long to wait for a connection at the start, 5 s by default.
    pub dial_timeout: Duration,
    /// For etcd and PostgreSQL.
    #[cfg(any(feature = "etcd", feature = "postgres"))]
    pub credentials: Credentials,
    /// Another elector instead of the library's own: see
    /// [`Component::from_bytes`](crate::Component::from_bytes).
    pub component: Option<Arc<[u8]>>,
    /// The clock that deadlines are counted by: [`BootClock`] by default.
    pub clock: Arc<dyn Clock>,
    /// Writes all that the elector is told and says to files.
    #[cfg(feature = "record")]
    pub recording: Option<Recording>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            identity: String::new(),
            ttl: Duration::from_secs(10),
            margin: Duration::ZERO,
            request_timeout: Duration::from_secs(5),
            dial_timeout: Duration::from_secs(5),
            #[cfg(any(feature = "etcd", feature = "postgres"))]
            credentials: Credentials::default(),
            component: None,
            clock: Arc::new(BootClock),
            #[cfg(feature = "record")]
            recording: None,
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
        #[cfg(any(feature = "etcd", feature = "postgres"))]
        options.field("credentials", &self.credentials);
        #[cfg(feature = "record")]
        options.field("recording", &self.recording);
        options
            .field("component", &self.component.as_ref().map(|bytes| bytes.len()))
            .field("clock", &self.clock)
            .finish()
    }
}
