//! `incumbent observe`: prints the leader, and each change.

use std::time::Duration;

use futures_util::StreamExt;
use incumbent::Event;

use super::args::{Common, Observe};
use super::event::{Reporter, missed};
use super::exit::{End, Status};
use super::http::Endpoint;
use super::instance::Role;
use super::output::Output;
use super::session::{identity, observed, view};
use super::signals::Signals;
use super::systemd::Notifier;

/// How long the store may be silent: an observer asks it every half minute.
const SILENCE: Duration = Duration::from_secs(45);

pub async fn observe(common: &Common, observe: &Observe) -> Result<Status, End> {
    let mut signals = Signals::listen()?;
    let name = &observe.named.election;
    let view = view(common, "observe", name, SILENCE);
    let _endpoint = Endpoint::start(&observe.http, &view)?;
    let _notifier = Notifier::start(&view)?;
    let (session, election) = tokio::select! {
        observed = observed(common, &observe.named, Some(&observe.record)) => observed?,
        _ = signals.next() => return Ok(Status::Done),
    };
    view.connected(&session, &election, Role::Observing);
    let output = Output::to_stdout(missed(common.output, name, &identity(common)))?;
    let mut reporter = Reporter::new(&view, vec![(common.output, output.clone())]);
    let mut leaders = election.observe();
    let end = loop {
        tokio::select! {
            sighted = leaders.next() => match sighted {
                Some(Ok(leader)) => reporter.report(&Event::Leader(leader)),
                Some(Err(error)) => break Err(error.into()),
                None => break Err(incumbent::Error::Closed.into()),
            },
            _ = signals.next() => break Ok(Status::Done),
            closed = output.closed() => break closed,
        }
    };
    view.ends();
    reporter.flush().await;
    // For the last lines of a recording.
    let _ = tokio::time::timeout(common.command_timeout, session.close()).await;
    end
}
