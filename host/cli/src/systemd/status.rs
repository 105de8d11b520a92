//! What this instance does, as the one sentence that `systemctl status` shows.

use std::fmt;
use std::time::Duration;

use incumbent::{Fence, Mark, Participant};

use crate::instance::queue::{Demand, Reading};
use crate::instance::{InstanceView, Role};
use crate::text::{in_seconds, shown_bytes};

/// What this instance does.
#[derive(Clone, Debug)]
pub struct Status {
    what: String,
    time: Option<Time>,
}

/// What is left of its term.
#[derive(Clone, Copy, Debug)]
struct Time {
    until: Mark,
    left: Duration,
    /// A renewal is late.
    is_short: bool,
}

impl Status {
    /// Asks the store who is in front now and then, and whenever somebody else leads.
    pub async fn of(view: &InstanceView) -> Self {
        let lease_time = view.shared().description.silence;
        let with_time = |what, term: &Fence| {
            let left = term.remaining();
            let time = Time { until: term.valid_until(), left, is_short: left < lease_time / 2 };
            Self { what, time: Some(time) }
        };
        if let Some(term) = view.stopping_term() {
            return with_time(format!("stops its work of epoch {}", term.epoch()), &term);
        }
        if let Some(term) = view.term() {
            return with_time(format!("leads in epoch {}", term.epoch()), &term);
        }
        let what = match (view.not_taking_part(), view.role()) {
            (Some(why), _) => why,
            (None, Role::Leading) => "starts to lead".into(),
            (None, role) => {
                let reading = view.candidates(Demand::SELDOM).await;
                let leader = reading.as_ref().and_then(|reading| reading.shown.first());
                let leader = leader.map_or_else(|| "nobody leads".into(), leads);
                if role == Role::Observing { leader } else { waits(reading.as_deref(), &leader) }
            }
        };
        Self { what, time: None }
    }

    /// Whether people want to know it who know the other one. The time alone is no news as long as
    /// renewals come.
    pub fn is_news(&self, told: Option<&Self>) -> bool {
        let subject = |status: &Self| (status.what.clone(), status.time.map(|time| time.until));
        let is_short = self.time.is_some_and(|time| time.is_short);
        is_short || told.is_none_or(|told| subject(told) != subject(self))
    }
}

fn leads(leader: &Participant) -> String {
    format!("{} leads in epoch {}", shown_bytes(&leader.value), leader.epoch)
}

fn waits(reading: Option<&Reading>, leader: &str) -> String {
    match reading.and_then(|reading| reading.position) {
        Some(0) => "is first in line".into(),
        Some(1) => format!("waits, next in line; {leader}"),
        Some(many) => format!("waits, {many} in front; {leader}"),
        None => format!("waits; {leader}"),
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)?;
        match self.time {
            Some(time) => write!(f, ", {} left", in_seconds(time.left)),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_is_news_when_it_moves_or_when_a_renewal_is_late() {
        let leads = |until, is_short| Status {
            what: "leads in epoch 42".into(),
            time: Some(Time { until, left: Duration::from_millis(4_200), is_short }),
        };
        let told = leads(1, false);
        assert_eq!(told.to_string(), "leads in epoch 42, 4.2 s left");
        assert!(told.is_news(None) && !leads(1, false).is_news(Some(&told)));
        assert!(leads(2, false).is_news(Some(&told)), "renewed");
        assert!(leads(1, true).is_news(Some(&told)), "it counts down");
        let waits = Status { what: "waits".into(), time: None };
        assert!(waits.is_news(Some(&told)) && !waits.is_news(Some(&waits)));
    }
}
