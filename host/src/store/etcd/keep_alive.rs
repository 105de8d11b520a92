//! Renewals, on streams of their own.
//!
//! etcd's answers to keep-alives carry no number, so there is never more than
//! one attempt on a stream: the answer that comes is that attempt's, however late
//! it is. An attempt that begins while another is overdue opens another stream.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use etcd_client::{Error, LeaseKeepAliveStream, LeaseKeeper};
use futures_util::future::{self, Either};
use tokio::time::{sleep, timeout};

use super::connection::Connection;
use super::endpoints::{Endpoint, Endpoints};
use super::failure::{failure, is_lease_missing};
use super::request::time_to_live;
use crate::types::{Failure, LeaseId, Response};

/// How long a late answer is waited for, where the connection lives on.
const LATE: Duration = Duration::from_secs(60);

/// The streams that no attempt is using: one for each lease at most.
#[derive(Default)]
pub(super) struct Renewals {
    idle: Mutex<BTreeMap<LeaseId, Stream>>,
}

impl Renewals {
    /// Lets the lease live on. After `within` another member is asked the next
    /// time, and this answer still waited for.
    pub(super) async fn renew(
        &self,
        endpoints: &Endpoints,
        lease: LeaseId,
        within: Duration,
    ) -> Result<Response, Failure> {
        let endpoint = endpoints.current();
        let attempt = timeout(LATE.max(within), self.attempt(&endpoint, lease));
        let answer = match future::select(Box::pin(attempt), Box::pin(sleep(within))).await {
            Either::Left((answer, _)) => answer,
            Either::Right(((), attempt)) => {
                endpoints.failed(&endpoint);
                attempt.await
            }
        };
        let answer = answer.unwrap_or(Err(Failure::Timeout));
        if matches!(answer, Err(Failure::Unavailable | Failure::Timeout)) {
            endpoints.failed(&endpoint);
        }
        if answer == Ok(Response::Expired) {
            self.forget(lease);
        }
        answer
    }

    /// The lease is over: its stream is of no more use.
    pub(super) fn forget(&self, lease: LeaseId) {
        self.idle().remove(&lease);
    }

    async fn attempt(&self, endpoint: &Arc<Endpoint>, lease: LeaseId) -> Result<Response, Failure> {
        // Where nothing else is asked of etcd, this is what looks at the credentials.
        let connection = endpoint.connection();
        if let Err(error) = endpoint.client().await {
            return Err(endpoint.judge(&connection, error).await);
        }
        let idle = self.idle().remove(&lease);
        if let Some(mut stream) = idle.filter(|stream| stream.is_current(endpoint)) {
            // A stream that broke while it was idle says nothing of etcd now, and
            // one whose login is too old is made anew with a fresh one.
            if let Ok(answer) = stream.renew().await {
                self.keep(lease, stream);
                return Ok(answer);
            }
        }
        let connection = endpoint.connection();
        let mut stream = match Stream::open(endpoint, &connection, lease).await {
            Ok(Some(stream)) => stream,
            Ok(None) => return Ok(Response::Expired),
            Err(error) => return Err(endpoint.judge(&connection, error).await),
        };
        let answer = stream.renew().await?;
        self.keep(lease, stream);
        Ok(answer)
    }

    fn keep(&self, lease: LeaseId, stream: Stream) {
        self.idle().insert(lease, stream);
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, BTreeMap<LeaseId, Stream>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Renewals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.idle().keys()).finish()
    }
}

/// A stream that renews one lease.
struct Stream {
    endpoint: Arc<Endpoint>,
    connection: Arc<Connection>,
    keeper: LeaseKeeper,
    answers: LeaseKeepAliveStream,
}

impl Stream {
    /// A new stream, unless the lease is gone. Opening one renews as well, but
    /// etcd-client keeps the time to live of that answer to itself.
    async fn open(
        endpoint: &Arc<Endpoint>,
        connection: &Arc<Connection>,
        lease: LeaseId,
    ) -> Result<Option<Self>, Error> {
        let client = endpoint.client().await?;
        match client.lease_client().keep_alive(lease).await {
            Ok((keeper, answers)) => {
                let (endpoint, connection) = (Arc::clone(endpoint), Arc::clone(connection));
                Ok(Some(Self { endpoint, connection, keeper, answers }))
            }
            Err(error) if is_lease_missing(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Whether it is on the connection that is used now.
    fn is_current(&self, endpoint: &Arc<Endpoint>) -> bool {
        Arc::ptr_eq(&self.endpoint, endpoint)
            && Arc::ptr_eq(&self.connection, &endpoint.connection())
    }

    async fn renew(&mut self) -> Result<Response, Failure> {
        self.keeper.keep_alive().await.map_err(failure)?;
        let answer = self.answers.message().await.map_err(failure)?;
        match answer {
            Some(answer) if answer.ttl() > 0 => Ok(Response::Renewed(time_to_live(answer.ttl()))),
            Some(_) => Ok(Response::Expired),
            None => Err(Failure::Unavailable),
        }
    }
}
