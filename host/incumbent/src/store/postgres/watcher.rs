//! The task that serves the watches, and has leases ended that are over.
//!
//! It listens on a connection of its own, and looks by itself from time to time: a notification can be
//! lost with the connection, and does not pass a pooler that gives each transaction another one.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::sync::mpsc::{self, UnboundedReceiver};
use tokio::time::{Instant, timeout};
use tokio_postgres::Client;
use tokio_postgres::types::{ToSql, Type};

use super::Shared;
use super::connection::read;
use super::failure::Trouble;
use super::request::Recent;
use super::schema::in_schema;
use super::writer::WriterRequest;
use crate::store::following::{Following, WatchRequest};

/// How often to look where notifications arrive, and where they do not.
const LOOK: Duration = Duration::from_millis(500);
const LOOK_UNNOTIFIED: Duration = Duration::from_millis(100);
/// How long a notification may take.
const NOTIFICATION: Duration = Duration::from_secs(2);
/// How long to wait for an answer.
const ANSWER: Duration = Duration::from_secs(5);
/// How long to wait before leases that are over are asked for again.
const SWEEP: Duration = Duration::from_millis(50);

const RECENT: &str = "SELECT incumbent.recent($1, $2, $3)";

pub(super) struct Watcher {
    shared: Arc<Shared>,
    requests: UnboundedReceiver<WatchRequest>,
    writer: mpsc::WeakUnboundedSender<WriterRequest>,
    following: Following,
    listening: Option<Listening>,
    /// Whether notifications arrive, as far as it is known.
    is_notified: Option<bool>,
}

/// A connection that listens.
struct Listening {
    client: Client,
    notified: UnboundedReceiver<()>,
    since: Instant,
}

impl Watcher {
    pub(super) fn new(
        shared: Arc<Shared>,
        requests: UnboundedReceiver<WatchRequest>,
        writer: mpsc::WeakUnboundedSender<WriterRequest>,
    ) -> Self {
        let following = Following::default();
        Self { shared, requests, writer, following, listening: None, is_notified: None }
    }

    /// Until the store and all its watches are dropped.
    pub(super) async fn run(mut self) {
        loop {
            if let Err(error) = self.look().await {
                tracing::debug!(%error, "the database cannot be read for its watches");
                self.listening = None;
            }
            let now = self.shared.here().mark;
            let over = self.shared.sightings.lock().next();
            let look = if self.is_notified == Some(true) { LOOK } else { LOOK_UNNOTIFIED };
            let at_most = match over {
                Some(over) if over <= now => {
                    let Some(writer) = self.writer.upgrade() else { return };
                    let _ = writer.send(WriterRequest::Sweep);
                    SWEEP
                }
                Some(over) => Duration::from_nanos(over - now).min(look),
                None => look,
            };
            if timeout(at_most, self.wait()).await == Ok(false) {
                return;
            }
        }
    }

    /// Waits for something to do. False when there is nobody left.
    async fn wait(&mut self) -> bool {
        let notified = async {
            match &mut self.listening {
                Some(listening) => listening.notified.recv().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            request = self.requests.recv() => {
                let Some(request) = request else { return false };
                self.following.take(request);
                while let Ok(request) = self.requests.try_recv() {
                    self.following.take(request);
                }
            }
            heard = notified => match heard {
                Some(()) => self.is_notified = Some(true),
                None => self.listening = None,
            },
        }
        true
    }

    async fn listen(&mut self) -> Result<(), Trouble> {
        let schema = self.shared.access.url.schema();
        let (notify, notified) = mpsc::unbounded_channel();
        let client = self.shared.access.connect(Some(notify)).await?;
        client.batch_execute(&format!("LISTEN {schema}")).await?;
        self.listening = Some(Listening { client, notified, since: Instant::now() });
        self.is_notified = None;
        // From another connection: a pooler would let one of our own pass.
        if let Some(writer) = self.writer.upgrade() {
            let _ = writer.send(WriterRequest::Notify);
        }
        Ok(())
    }

    async fn look(&mut self) -> Result<(), Trouble> {
        if self.listening.is_none() {
            self.listen().await?;
        }
        let Some(Listening { client, notified, since }) = &mut self.listening else {
            return Ok(());
        };
        while notified.try_recv().is_ok() {
            self.is_notified = Some(true);
        }
        if self.is_notified.is_none() && since.elapsed() > NOTIFICATION {
            self.is_notified = Some(false);
            tracing::warn!(
                "the database's notifications do not arrive, as behind a pooler that gives each \
                 transaction another connection: handovers take up to 0.1 s longer"
            );
            client.batch_execute("UNLISTEN *").await?;
        }
        let schema = self.shared.access.url.schema();
        let wanted = self.following.wanted().map_or(i64::MAX, |first| first - 1);
        let (heard, doubted) = self.shared.sightings.lock().question();
        let after: [(&(dyn ToSql + Sync), Type); 3] =
            [(&wanted, Type::INT8), (&heard, Type::INT8), (&doubted, Type::INT8_ARRAY)];
        let asked = timeout(ANSWER, read(client, &in_schema(RECENT, schema), &after)).await;
        let Ok(told) = asked else {
            self.listening = None;
            return Ok(());
        };
        self.take(&told?, &doubted);
        Ok(())
    }

    fn take(&mut self, told: &Value, doubted: &[i64]) {
        match Recent::read(told) {
            Ok(recent) => {
                self.shared.sightings.lock().take(&recent, doubted, &self.shared.here());
                if !self.following.is_told(recent.revision) {
                    self.following.hear(recent.revision, recent.compacted, &recent.changes);
                }
            }
            Err(failure) => self.following.end(&failure),
        }
    }
}
