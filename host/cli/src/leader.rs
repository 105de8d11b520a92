//! `incumbent leader`: prints the leader, once.

use serde::Serialize;

use super::args::{Common, Form, Named};
use super::event::{ParticipantObject, leader_line};
use super::exit::{End, Status};
use super::output::print;
use super::session::{answered, observer_session};
use super::text::json;

#[derive(Serialize)]
struct Answer<'a> {
    election: &'a str,
    leader: ParticipantObject<'a>,
}

pub async fn leader(common: &Common, named: &Named) -> Result<Status, End> {
    let session = observer_session(common).await?;
    let election = session.election(named.election.as_str()).contest(common.contest.on_store());
    let Some(leader) = answered(common, election.leader()).await? else {
        return Err(End::quiet(Status::NotFound));
    };
    print(match common.output {
        Form::People => leader_line(&named.election, Some(&leader)),
        Form::Json => {
            json(&Answer { election: &named.election, leader: ParticipantObject::from(&leader) })
        }
    })
}
