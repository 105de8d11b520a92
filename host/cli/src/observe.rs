//! `incumbent observe`: prints the leader, and each change.

use futures_util::StreamExt;
use incumbent::Event;

use super::args::{Common, Named};
use super::event::{Reporter, missed};
use super::exit::{End, Status};
use super::output::Output;
use super::session::{identity, observed};
use super::signals::Signals;

pub async fn observe(common: &Common, named: &Named) -> Result<Status, End> {
    let mut signals = Signals::listen()?;
    let (_session, election) = tokio::select! {
        observed = observed(common, named) => observed?,
        _ = signals.next() => return Ok(Status::Done),
    };
    let identity = identity(common);
    let output = Output::to_stdout(missed(common.output, &named.election, &identity))?;
    let mut reporter =
        Reporter::new(&named.election, &identity, vec![(common.output, output.clone())]);
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
    reporter.flush().await;
    end
}
