//! The tasks that do the operations, all that wait in one transaction. Renewals have a task and a
//! connection of their own: whatever the others wait for, a lease is renewed in time.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::{timeout, timeout_at};
use tokio_postgres::Client;
use tokio_postgres::types::{ToSql, Type};

use super::Shared;
use super::connection::{read, write};
use super::failure::{Trouble, failure};
use super::request::{renewal, request, response};
use super::schema::{connect, in_schema};
use crate::store::job::{Job, TOGETHER, TOGETHER_BYTES};
use crate::types::{Failure, Mark, Operation};

/// How long to wait for a sweep.
const SWEEP: Duration = Duration::from_secs(5);

/// How long the server may take to say that it has given up in time: the connection is kept then.
const GRACE: Duration = Duration::from_millis(100);

const PERFORM: &str = "SELECT incumbent.perform($1, $2, $3)";
const READ: &str = "SELECT incumbent.read($1)";
const RENEW: &str = "SELECT incumbent.renew($1, $2)";

/// A request to the task.
#[derive(Debug)]
pub(super) enum WriterRequest {
    Perform(Job),
    /// Leases may be over.
    Sweep,
    /// Notify all that listen.
    Notify,
}

/// What the calls of one batch have in common.
struct Call {
    me: Value,
    until: Instant,
}

impl Call {
    fn left(&self) -> Duration {
        self.until.saturating_duration_since(Instant::now())
    }
}

pub(super) struct Writer {
    shared: Arc<Shared>,
    requests: mpsc::UnboundedReceiver<WriterRequest>,
    client: Option<Client>,
}

impl Writer {
    pub(super) fn new(
        shared: Arc<Shared>,
        requests: mpsc::UnboundedReceiver<WriterRequest>,
        client: Option<Client>,
    ) -> Self {
        Self { shared, requests, client }
    }

    /// Until the store and all its watches are dropped.
    pub(super) async fn run(mut self) {
        // At once: later the server may have no connection left.
        let _ = timeout(SWEEP, self.client()).await;
        while let Some(first) = self.requests.recv().await {
            let (mut jobs, mut sweep, mut notify, mut bytes) = (Vec::new(), false, false, 0);
            let mut next = Some(first);
            while let Some(request) = next {
                match request {
                    WriterRequest::Perform(job) => {
                        bytes += job.bytes();
                        jobs.push(job);
                    }
                    WriterRequest::Sweep => sweep = true,
                    WriterRequest::Notify => notify = true,
                }
                let has_room = jobs.len() < TOGETHER && bytes < TOGETHER_BYTES;
                next = if has_room { self.requests.try_recv().ok() } else { None };
            }
            let now = Instant::now();
            for job in jobs.extract_if(.., |job| job.is_given_up(now)) {
                job.answer(Err(Failure::Timeout));
            }
            if !jobs.is_empty() || sweep {
                self.perform(jobs).await;
            }
            if notify {
                let statement = self.in_schema("NOTIFY incumbent");
                // Where it fails, nothing is heard, which is expected.
                let _ = timeout(SWEEP, async {
                    self.client().await?.batch_execute(&statement).await.map_err(Trouble::from)
                })
                .await;
            }
        }
    }

    async fn perform(&mut self, jobs: Vec<Job>) {
        let give_up = jobs.iter().map(|job| job.give_up.unwrap_or_else(|| Instant::now() + SWEEP));
        let until = give_up.max().unwrap_or_else(|| Instant::now() + SWEEP);
        // Renewals lock nothing that others wait for.
        let is_renewal = |job: &Job| matches!(job.operation, Operation::KeepAlive(_));
        let (renewals, others): (Vec<_>, Vec<_>) = jobs.into_iter().partition(is_renewal);
        for (jobs, are_renewals) in [(renewals, true), (others, false)] {
            if jobs.is_empty() && are_renewals {
                continue;
            }
            let here = self.shared.here();
            let mark = here.mark;
            // The clocks of this process, as the functions take them.
            let me = json!({"boot": here.boot, "mark": here.mark, "wall": here.wall});
            let call = Call { me, until };
            let told = timeout_at((until + GRACE).into(), async {
                if are_renewals {
                    self.renew(&jobs, &call).await
                } else {
                    let over = self.shared.sightings.lock().ask_to_end(mark);
                    self.perform_others(&jobs, &over, &call).await
                }
            });
            let told = match told.await {
                Ok(Ok(told)) => Ok(told),
                Ok(Err(trouble)) => {
                    tracing::debug!(error = %trouble, "the database fails");
                    if trouble.asks_for_another_connection() {
                        self.client = None;
                    }
                    Err(failure(&trouble))
                }
                Err(_) => {
                    // What was sent may still happen.
                    self.client = None;
                    Err(Failure::Timeout)
                }
            };
            match &told {
                Ok(told) => self.note_renewals(&jobs, told, mark),
                Err(_) => self.shared.sightings.lock().ask_again(),
            }
            answer(jobs, told);
        }
    }

    /// Their times to live.
    async fn renew(&mut self, jobs: &[Job], call: &Call) -> Result<Value, Trouble> {
        let leases: Vec<i64> = jobs
            .iter()
            .filter_map(|job| match job.operation {
                Operation::KeepAlive(lease) => Some(lease),
                Operation::Grant(_)
                | Operation::Revoke(_)
                | Operation::Claim(_)
                | Operation::Read(_)
                | Operation::Guarded(_) => None,
            })
            .collect();
        let told = self.call_renew(&leases, call).await?;
        if !told.is_null() {
            return Ok(told);
        }
        // Another server has become the primary.
        self.call_perform(&json!([]), &[], call).await?;
        self.call_renew(&leases, call).await
    }

    /// Their answers; also ends the leases that are over.
    async fn perform_others(
        &mut self,
        jobs: &[Job],
        over: &[(i64, i64)],
        call: &Call,
    ) -> Result<Value, Trouble> {
        let operations = jobs.iter().map(|job| request(&job.operation)).collect();
        let operations = Value::Array(operations);
        let reads = jobs.iter().all(|job| matches!(job.operation, Operation::Read(_)));
        if !over.is_empty() || !reads {
            return self.call_perform(&operations, over, call).await;
        }
        if jobs.is_empty() {
            return Ok(operations);
        }
        let statement = self.in_schema(READ);
        let client = self.client().await?;
        Ok(read(client, &statement, &[(&operations, Type::JSONB)]).await?)
    }

    async fn call_renew(&mut self, leases: &[i64], call: &Call) -> Result<Value, Trouble> {
        let statement = self.in_schema(RENEW);
        let client = self.client().await?;
        let parameters: [(&(dyn ToSql + Sync), Type); 2] =
            [(&leases, Type::INT8_ARRAY), (&call.me, Type::JSONB)];
        Ok(write(client, &statement, &parameters, call.left()).await?)
    }

    async fn call_perform(
        &mut self,
        operations: &Value,
        over: &[(i64, i64)],
        call: &Call,
    ) -> Result<Value, Trouble> {
        let (statement, over) = (self.in_schema(PERFORM), json!(over));
        let client = self.client().await?;
        let parameters: [(&(dyn ToSql + Sync), Type); 3] =
            [(operations, Type::JSONB), (&over, Type::JSONB), (&call.me, Type::JSONB)];
        Ok(write(client, &statement, &parameters, call.left()).await?)
    }

    fn in_schema(&self, statement: &str) -> String {
        in_schema(statement, self.shared.access.url.schema())
    }

    /// Its own leases are over when their time has passed since the call was made.
    fn note_renewals(&self, jobs: &[Job], told: &Value, mark: Mark) {
        let answers = told.as_array().map(Vec::as_slice).unwrap_or_default();
        let renewals =
            jobs.iter().zip(answers).filter_map(|(job, answer)| renewal(&job.operation, answer));
        let mut sightings = self.shared.sightings.lock();
        for (lease, ttl, number) in renewals {
            sightings.renewed(lease, number, mark.saturating_add(ttl));
        }
    }

    /// The connection, or a new one.
    async fn client(&mut self) -> Result<&Client, Trouble> {
        match self.client.take().filter(|client| !client.is_closed()) {
            Some(client) => Ok(self.client.insert(client)),
            None => {
                let client = connect(&self.shared.access).await?;
                Ok(self.client.insert(client))
            }
        }
    }
}

/// Answers each job with its part of what was told, or all of them with the failure.
fn answer(jobs: Vec<Job>, told: Result<Value, Failure>) {
    let told = match &told {
        Ok(told) => Ok(told.as_array().map(Vec::as_slice).unwrap_or_default()),
        Err(failure) => Err(failure),
    };
    for (number, job) in jobs.into_iter().enumerate() {
        let answer = match told {
            Ok(told) => response(&job.operation, told.get(number).unwrap_or(&Value::Null)),
            Err(failure) => Err(failure.clone()),
        };
        job.answer(answer);
    }
}
