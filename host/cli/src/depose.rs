//! `incumbent depose`: an operator removes the leader.

use super::args::{Common, Depose, Form};
use super::event::participant;
use super::exit::{End, Status};
use super::output::print;
use super::session::{admin, store};
use super::text::{json, shown_bytes};

pub async fn depose(common: &Common, depose: &Depose) -> Result<Status, End> {
    let store = store(common).await?;
    let target = &depose.target;
    let admin = admin(common, &store, &target.election);
    let Some(leader) = admin.depose(target.epoch).await? else {
        let election = &target.election;
        if let Some(epoch) = target.epoch
            && let Some(leader) = admin.leader().await?
        {
            let sentence = format!(
                "epoch {epoch} does not lead {election}, epoch {} does: nobody was deposed",
                leader.epoch
            );
            return Err(End::new(Status::Fenced, sentence));
        }
        return Err(End::new(Status::NotFound, format!("nobody leads {election}")));
    };
    print(match common.output {
        Form::People => format!(
            "deposed {}, epoch {} ({})",
            shown_bytes(&leader.value),
            leader.epoch,
            shown_bytes(&leader.key)
        ),
        Form::Json => json(&participant(&leader)),
    })
}
