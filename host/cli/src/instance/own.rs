//! Which candidate is this instance.

use incumbent::{Epoch, Participant};

/// Our candidate. In a race all candidates have the same key, so the epoch counts as well.
#[derive(Clone, Debug, Default)]
pub struct Own {
    pub key: Vec<u8>,
    pub epoch: Epoch,
}

impl Own {
    pub fn is(&self, participant: &Participant) -> bool {
        self.key == participant.key && self.epoch == participant.epoch
    }
}
