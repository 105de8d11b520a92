//! `incumbent campaign`: takes part, and prints what happens.

use std::future::Future;
use std::time::Duration;

use futures_util::{Stream, StreamExt};
use incumbent::{Candidate, Election, Event, Leadership};

use super::args::{Campaign, Common};
use super::drain::heed;
use super::event::{Reporter, missed};
use super::exit::{End, Status};
use super::http::Endpoint;
use super::instance::{InstanceView, Role};
use super::output::Output;
use super::session::{self, Cleanup, identity, view};
use super::signals::{DrainSignals, Signals};
use super::systemd::Notifier;

pub async fn campaign(common: &Common, campaign: &Campaign) -> Result<Status, End> {
    let mut signals = Signals::listen()?;
    let drains = DrainSignals::listen()?;
    let view = view(common, "campaign", &campaign.election, campaign.candidate.lease.ttl);
    let _endpoint = Endpoint::start(&campaign.http, &view)?;
    let _notifier = Notifier::start(&view)?;
    let session = tokio::select! {
        session = session::candidate_session(common, &campaign.candidate, &campaign.record) => session?,
        _ = signals.next() => return Ok(Status::Done),
    };
    let election = session::election(&session, common, &campaign.candidate, &campaign.election);

    let _heeding = heed(drains, &session);
    let output = Output::to_stdout(missed(common.output, &campaign.election, &identity(common)))?;
    view.connected(&session, &election, Role::Joining);
    let mut candidate = election.join();
    let reporter = Reporter::new(&view, vec![(common.output, output.clone())]);
    let reporting = tokio::spawn(reporter.report_all(candidate.events()));

    let mut leadership = None;
    let events = candidate.events();
    let given_up = give_up(campaign.wait, &election, events, common.command_timeout);
    let end = tokio::select! {
        end = lead_on(&mut candidate, &mut leadership, &view, given_up) => end,
        _ = signals.next() => Ok(Status::Done),
        closed = output.closed() => closed,
    };
    view.ends();
    let status = end.as_ref().map_or_else(|end| end.status, |status| *status);
    let cleanup = Cleanup {
        session: &session,
        candidate: Some((candidate, leadership)),
        reporting: Some(reporting),
        timeout: common.command_timeout,
    };
    let status = cleanup.finish(&mut signals, status).await;
    output.flush().await;
    end.map(|_| status)
}

/// Leads term after term. Ends when the candidacy does, or with `given_up` before
/// the first term.
async fn lead_on(
    candidate: &mut Candidate,
    held: &mut Option<Leadership>,
    view: &InstanceView,
    given_up: impl Future<Output = End>,
) -> Result<Status, End> {
    let mut leadership = tokio::select! {
        elected = candidate.elected() => elected?,
        end = given_up => return Err(end),
    };
    loop {
        // In `held` it outlives this future: it is not resigned before we leave.
        let term = held.insert(leadership);
        view.work_begins(term.fence());
        tokio::select! {
            _ = term.lost() => {}
            () = view.resignation(term) => {}
        }
        view.work_has_ended();
        *held = None;
        leadership = candidate.elected().await?;
    }
}

/// Ends when it is time to give up, if it ever is.
async fn give_up(
    wait: Option<Duration>,
    election: &Election,
    mut events: impl Stream<Item = Event> + Unpin,
    one_try: Duration,
) -> End {
    let Some(wait) = wait else {
        return std::future::pending().await;
    };
    if !wait.is_zero() {
        tokio::time::sleep(wait).await;
        return End::new(
            Status::NotFound,
            format!("not elected within --wait {}: gave up", humantime::format_duration(wait)),
        );
    }
    let taken = async {
        let (key, epoch) = loop {
            match events.next().await {
                Some(Event::Joined { key, epoch }) => break (key, epoch),
                Some(_) => {}
                // The candidacy has ended: its last event says why.
                None => return std::future::pending().await,
            }
        };
        match election.leader().await {
            Ok(Some(leader)) if leader.key != key || leader.epoch != epoch => {}
            // No candidate is in front of us: we are about to lead.
            Ok(_) | Err(_) => std::future::pending().await,
        }
    };
    match tokio::time::timeout(one_try, taken).await {
        Ok(()) => End::new(Status::NotFound, "somebody else leads: gave up, as --wait 0 says"),
        Err(_) => End::new(
            Status::NotFound,
            format!(
                "not elected, and the store did not say within --command-timeout {} that \
                 somebody else leads: gave up, as --wait 0 says",
                humantime::format_duration(one_try)
            ),
        ),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures_util::stream;
    use incumbent::{Options, Session};

    use super::give_up;
    use crate::exit::Status;

    #[tokio::test]
    async fn a_store_that_does_not_answer_is_not_taken_for_another_leader() {
        let session = Session::connect("memory:", Options::default()).await.unwrap();
        let election = session.election("job");
        let one_try = Duration::from_millis(10);
        let silent = stream::pending();
        let end = give_up(Some(Duration::ZERO), &election, silent, one_try).await;
        assert_eq!(end.status, Status::NotFound);
        let said = format!("{end:?}");
        assert!(said.contains("--command-timeout 10ms"), "{said}");
    }
}
