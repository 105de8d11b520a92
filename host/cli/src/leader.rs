//! `incumbent leader`: prints the leader, once.

use serde_json::Value;

use super::args::{Common, Form, Named};
use super::event::participant;
use super::exit::{End, Status};
use super::output::print;
use super::session::{answered, observed};
use super::text::{field, json, leader_line};

pub async fn leader(common: &Common, named: &Named) -> Result<Status, End> {
    let (_session, election) = observed(common, named, None).await?;
    let Some(leader) = answered(common, election.leader()).await? else {
        return Err(End::quiet(Status::NotFound));
    };
    print(match common.output {
        Form::People => leader_line(&named.election, Some(&leader)),
        Form::Json => json(&Value::from_iter([
            field("election", named.election.as_str()),
            field("leader", participant(&leader)),
        ])),
    })
}
