//! The connection to the store, and the cleanup at its end.

use std::future::Future;
use std::path::Path;
use std::pin::pin;
use std::process;
use std::sync::Arc;
use std::time::Duration;

use incumbent::admin::Admin;
use incumbent::{
    Candidate, ConnectError, Election, Error, Leadership, Options, Session, SharedWith, Store,
    StoreUrl,
};
use tokio::task::JoinHandle;

use super::args::{self, Common, Named, Record};
use super::checks::{check_candidate, credentials, recording, value_of};
use super::exit::{End, Status, say};
use super::instance::{Description, InstanceView};
use super::signals::Signals;
use super::text::word;

/// The name of this instance, for people.
pub fn identity(common: &Common) -> String {
    common.id.clone().unwrap_or_else(|| {
        let host = rustix::system::uname();
        let host = host.nodename().to_string_lossy();
        format!("{host}-{}", process::id())
    })
}

/// What the HTTP endpoint can tell of this instance. The store may be silent for `silence`.
pub fn view(
    common: &Common,
    command: &'static str,
    election: &str,
    silence: Duration,
) -> InstanceView {
    InstanceView::new(Description {
        command,
        election: election.to_owned(),
        id: identity(common),
        contest: common.contest.name(),
        store: common.store().to_string(),
        silence,
    })
}

/// The store alone, for commands that need no elector.
pub async fn store(common: &Common) -> Result<Arc<dyn Store>, End> {
    let options = options(common)?;
    incumbent::connect(&common.store(), &options)
        .await
        .map_err(|error| not_connected(common, error))
}

/// An election, for a command that needs no session.
pub fn admin<'a>(common: &Common, store: &'a dyn Store, election: &'a str) -> Admin<'a> {
    Admin::new(store, election).contest(common.contest.on_store()).timeout(common.command_timeout)
}

/// An operator's role may not reach what it has to write. It has to be allowed `also`.
pub fn denied(common: &Common, text: &str, also: &str) -> End {
    let store = common.store();
    if let StoreUrl::Postgres(url) = &store {
        return End::new(
            Status::Store,
            format!(
                "{text}: have the GRANT statements run that `incumbent sql --role ROLE` prints for the \
                 schema {}",
                url.schema()
            ),
        );
    }
    let prefix = if let StoreUrl::Etcd(url) = &store { url.prefix() } else { "" };
    let wishes = word(&format!("{prefix}incumbent-wishes/"));
    End::new(
        Status::Store,
        format!(
            "etcd denies it ({text}): give the operator's role the right to {also}write its wish: \
             `etcdctl role grant-permission ROLE --prefix=true readwrite {wishes}`"
        ),
    )
}

/// An election to look at, and its session, which has no lease.
pub async fn observed(
    common: &Common,
    named: &Named,
    record: Option<&Record>,
) -> Result<(Session, Election), End> {
    let options = Options { recording: record.and_then(recording), ..options(common)? };
    let session = connect(common, options).await?;
    let election = session.election(named.election.as_str()).contest(common.contest.on_store());
    Ok((session, election))
}

/// A session for one candidate.
pub async fn candidate_session(
    common: &Common,
    candidate: &args::Candidate,
    record: &Record,
) -> Result<Session, End> {
    check_candidate(common, candidate)?;
    let options = Options {
        ttl: candidate.lease.ttl,
        margin: candidate.lease.margin.unwrap_or_default(),
        recording: recording(record),
        ..options(common)?
    };
    connect(common, options).await
}

/// The election that a candidate takes part in.
pub fn election(
    session: &Session,
    common: &Common,
    candidate: &args::Candidate,
    name: &str,
) -> Election {
    let election = session
        .election(name)
        .contest(common.contest.on_store())
        .value(value_of(candidate, &identity(common)))
        .priority(candidate.priority);
    if candidate.preempt { election.preempt_after(candidate.preemption.min_term) } else { election }
}

/// Waits for one answer of the store, no longer than --command-timeout.
pub async fn answered<T>(
    common: &Common,
    asked: impl Future<Output = Result<T, Error>>,
) -> Result<T, End> {
    match tokio::time::timeout(common.command_timeout, asked).await {
        Ok(answer) => Ok(answer?),
        Err(_) => Err(End::new(
            Status::Store,
            format!(
                "the store did not answer within --command-timeout {}",
                humantime::format_duration(common.command_timeout)
            ),
        )),
    }
}

/// What there is to give back at the end.
#[derive(Debug)]
pub struct Cleanup<'a> {
    pub session: &'a Session,
    /// Their work must have stopped.
    pub candidate: Option<(Candidate, Option<Leadership>)>,
    /// Tells of the last events.
    pub reporting: Option<JoinHandle<()>>,
    pub timeout: Duration,
}

impl Cleanup<'_> {
    /// Gives everything back: the leadership, the place in the queue, the lease. Returns when
    /// the last events have been told.
    ///
    /// Does not wait for ever for a store that does not answer: the rest goes with the lease.
    /// A signal meanwhile ends it at once.
    pub async fn finish(self, signals: &mut Signals, status: Status) -> Status {
        let leaving = async {
            if let Some((candidate, leadership)) = self.candidate {
                leave(candidate, leadership).await;
            }
            self.session.close().await?;
            if let Some(reporting) = self.reporting {
                // Fails if it panicked, which has been said.
                let _ = reporting.await;
            }
            Ok::<(), Error>(())
        };
        tokio::select! {
            left = tokio::time::timeout(self.timeout, leaving) => {
                if !matches!(left, Ok(Ok(()))) {
                    say("the store did not confirm the end: what is left goes with the lease");
                }
                status
            }
            asked = signals.next() => asked.status(),
        }
    }
}

/// Leaves first: otherwise the candidate would get back in line when the term ends.
pub async fn leave(candidate: Candidate, leadership: Option<Leadership>) {
    let mut leaving = pin!(candidate.leave());
    let mut leadership = leadership;
    // Its failure is an event.
    let _ = std::future::poll_fn(|context| {
        let left = leaving.as_mut().poll(context);
        drop(leadership.take());
        left
    })
    .await;
}

/// The options of a session without a lease.
fn options(common: &Common) -> Result<Options, End> {
    Ok(Options {
        identity: identity(common),
        request_timeout: common.command_timeout,
        dial_timeout: common.dial_timeout,
        credentials: credentials(common)?,
        ..Options::default()
    })
}

async fn connect(common: &Common, options: Options) -> Result<Session, End> {
    let store = common.store();
    let session = Session::connect(&store.with_password(), options).await;
    let session = session.map_err(|error| not_connected(common, error))?;
    if let Some(reach) = reach(&store) {
        say(&reach);
    }
    Ok(session)
}

/// Says so if an election does not reach beyond this machine.
fn reach(store: &StoreUrl) -> Option<String> {
    match store {
        StoreUrl::Local | StoreUrl::Sqlite(_) => {
            let file = store.path().ok()??;
            let mut reach =
                format!("this election is for this machine only: it is in {}", file.display());
            if let Some(others) = who_may_lock(&file) {
                reach += &format!("; {others}");
            }
            Some(reach)
        }
        StoreUrl::Memory(_) => Some("this election is for this process only".into()),
        StoreUrl::Etcd(_) | StoreUrl::Postgres(_) => None,
        _ => None,
    }
}

/// Says so if other users may lock a store's file.
pub fn who_may_lock(file: &Path) -> Option<String> {
    let others = SharedWith::of(file)?;
    Some(format!(
        "{others} may lock it, which ends every leadership: unless you share it on purpose, take \
         their permissions on the file and its directory away"
    ))
}

/// Users who have named no store may have no etcd: they are offered one that needs none.
pub fn not_connected(common: &Common, error: Error) -> End {
    if common.store.is_none()
        && let Error::Connect(
            nobody @ (ConnectError::Unreachable { .. } | ConnectError::NotAnEtcd { .. }),
        ) = &error
    {
        let offer = "For an election on this machine only, without etcd: --store local";
        return End::new(Status::Store, format!("{nobody} {offer}"));
    }
    error.into()
}
