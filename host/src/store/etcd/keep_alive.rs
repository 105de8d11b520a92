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
use tokio::time::timeout;

use super::connection::Connection;
use super::endpoints::{Contact, Endpoints};
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
    /// Lets the lease live on. Where no answer has come in half of `within`, another
    /// member is asked as well, so that a member that fails costs none of the
    /// attempts; the answers are still waited for after it.
    pub(super) async fn renew(
        &self,
        endpoints: &Endpoints,
        lease: LeaseId,
        within: Duration,
    ) -> Result<Response, Failure> {
        let asked = endpoints.ask_twice(within / 2, |contact| self.attempt(contact, lease));
        let answer = timeout(LATE.max(within), asked).await.unwrap_or(Err(Failure::Timeout));
        if answer == Ok(Response::Expired) {
            self.forget(lease);
        }
        answer
    }

    /// The lease is over: its stream is of no more use.
    pub(super) fn forget(&self, lease: LeaseId) {
        self.idle().remove(&lease);
    }

    async fn attempt(&self, contact: Contact, lease: LeaseId) -> Result<Response, Failure> {
        let idle = self.idle().remove(&lease);
        if let Some(mut stream) = idle.filter(|stream| stream.is_on(&contact)) {
            // A stream that broke while it was idle says nothing of etcd now, and
            // one whose login is too old is made anew with a fresh one.
            if let Ok(answer) = stream.renew().await {
                self.keep(lease, stream);
                return Ok(answer);
            }
        }
        let mut stream = match Stream::open(&contact, lease).await {
            Ok(Some(stream)) => stream,
            Ok(None) => return Ok(Response::Expired),
            Err(error) => return contact.judge(Err(error)).await,
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
    connection: Arc<Connection>,
    keeper: LeaseKeeper,
    answers: LeaseKeepAliveStream,
}

impl Stream {
    /// A new stream, unless the lease is gone. Opening one renews as well, but
    /// etcd-client keeps the time to live of that answer to itself.
    async fn open(contact: &Contact, lease: LeaseId) -> Result<Option<Self>, Error> {
        match contact.client.lease_client().keep_alive(lease).await {
            Ok((keeper, answers)) => {
                let connection = Arc::clone(&contact.connection);
                Ok(Some(Self { connection, keeper, answers }))
            }
            Err(error) if is_lease_missing(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn is_on(&self, contact: &Contact) -> bool {
        Arc::ptr_eq(&self.connection, &contact.connection)
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
