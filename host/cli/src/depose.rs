//! `incumbent depose`: an operator removes the leader.

use super::args::{Common, Depose, Form};
use super::event::ParticipantObject;
use super::exit::{End, Status};
use super::output::print;
use super::session::{admin, store};
use super::text::{json, shown_bytes};

pub async fn depose(common: &Common, depose: &Depose) -> Result<Status, End> {
    let store = store(common).await?;
    let target = &depose.target;
    let admin = admin(common, &store, &target.election);
    let Some(leader) = admin.depose(target.epoch).await? else {
        return Err(match target.epoch {
            None => End::new(Status::NotFound, format!("nobody leads {}", target.election)),
            Some(epoch) => match admin.leader().await? {
                None => End::new(Status::NotFound, format!("nobody leads {}", target.election)),
                Some(leader) => End::new(
                    Status::Fenced,
                    format!(
                        "epoch {epoch} does not lead {}, epoch {} does: nobody was deposed",
                        target.election, leader.epoch
                    ),
                ),
            },
        });
    };
    print(match common.output {
        Form::People => format!(
            "deposed {}, epoch {} ({})",
            shown_bytes(&leader.value),
            leader.epoch,
            shown_bytes(&leader.key)
        ),
        Form::Json => json(&ParticipantObject::from(&leader)),
    })
}
