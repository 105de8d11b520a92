//! `incumbent candidates`: prints the queue.

use super::args::{Common, Form, Named};
use super::event::participant;
use super::exit::{End, Status};
use super::output::print;
use super::session::{answered, observed};
use super::text::{json, shown_bytes};

pub async fn candidates(common: &Common, named: &Named) -> Result<Status, End> {
    let (_session, election) = observed(common, named, None).await?;
    let candidates = answered(common, election.candidates()).await?;
    if candidates.is_empty() {
        return Err(End::quiet(Status::NotFound));
    }
    let lines: Vec<String> = candidates
        .iter()
        .zip(1_u32..)
        .map(|(candidate, place)| match common.output {
            Form::People => format!(
                "{place}  {}  epoch {}  ({})",
                shown_bytes(&candidate.value),
                candidate.epoch,
                shown_bytes(&candidate.key)
            ),
            Form::Json => json(&participant(candidate)),
        })
        .collect();
    print(lines.join("\n"))
}
