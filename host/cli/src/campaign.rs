//! `incumbent campaign`: takes part, and prints what happens.

use std::future::Future;
use std::time::Duration;

use futures_util::StreamExt;
use incumbent::{BootClock, Candidate, Election, Epoch, Event, Leadership};

use super::args::{Campaign, Common};
use super::event::{Reporter, missed};
use super::exit::{End, Status};
use super::output::Output;
use super::session::{self, Cleanup, identity};
use super::signals::Signals;

pub async fn campaign(common: &Common, campaign: &Campaign) -> Result<Status, End> {
    let mut signals = Signals::listen()?;
    let session = tokio::select! {
        session = session::candidate_session(common, &campaign.candidate) => session?,
        _ = signals.next() => return Ok(Status::Done),
    };
    let election = session::election(&session, common, &campaign.candidate, &campaign.election);

    let identity = identity(common);
    let output = Output::to_stdout(missed(common.output, &campaign.election, &identity))?;
    let mut candidate = election.join();
    let mut reporter =
        Reporter::new(&campaign.election, &identity, vec![(common.output, output.clone())]);
    let mut events = candidate.events();
    let (joined, place) = tokio::sync::watch::channel(None);
    let reporting = tokio::spawn(async move {
        while let Some(event) = events.next().await {
            if let Event::Joined { key, epoch } = &event {
                joined.send_replace(Some((key.clone(), *epoch)));
            }
            reporter.report(&event, &BootClock);
        }
    });

    let mut leadership = None;
    let end = tokio::select! {
        end = lead_on(&mut candidate, &mut leadership, campaign.wait.is_some().then(|| {
            give_up(campaign.wait, &election, place, common.command_timeout)
        })) => end,
        _ = signals.next() => Ok(Status::Done),
        closed = output.closed() => closed,
    };
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
    given_up: Option<impl Future<Output = End>>,
) -> Result<Status, End> {
    let first = match given_up {
        Some(given_up) => tokio::select! {
            elected = candidate.elected() => elected?,
            end = given_up => return Err(end),
        },
        None => candidate.elected().await?,
    };
    let mut leadership = first;
    loop {
        // In `held` it outlives this future: it is not resigned before we leave.
        held.insert(leadership).lost().await;
        *held = None;
        leadership = candidate.elected().await?;
    }
}

/// Ends when it is time to give up.
async fn give_up(
    wait: Option<Duration>,
    election: &Election,
    mut place: tokio::sync::watch::Receiver<Option<(Vec<u8>, Epoch)>>,
    one_try: Duration,
) -> End {
    let wait = wait.unwrap_or_default();
    if !wait.is_zero() {
        tokio::time::sleep(wait).await;
        return End::new(
            Status::NotFound,
            format!("not elected within --wait {}: gave up", humantime::format_duration(wait)),
        );
    }
    let taken = async {
        let Ok(place) = place.wait_for(Option::is_some).await.map(|place| place.clone()) else {
            // The candidacy has ended: its last event says why.
            return std::future::pending().await;
        };
        match election.leader().await {
            Ok(Some(leader))
                if Some((&leader.key, leader.epoch))
                    != place.as_ref().map(|(key, epoch)| (key, *epoch)) => {}
            // No candidate is in front of us: we are about to lead.
            Ok(_) | Err(_) => std::future::pending().await,
        }
    };
    // If the store does not answer, we are not elected either.
    let _ = tokio::time::timeout(one_try, taken).await;
    End::new(Status::NotFound, "somebody else leads: gave up, as --wait 0 says")
}
