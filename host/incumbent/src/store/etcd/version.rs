//! Whether a member's version may be sent a transaction that only reads.
//!
//! Such a transaction is far cheaper than one that might write, which goes through the log of the
//! cluster and onto its disks. But some versions panic when its caller gives it up while it is
//! served (etcd#14110, etcd#14891), and callers go away, or are killed, at any moment.

use std::sync::Arc;
use std::time::Duration;

use etcd_client::Client;
use parking_lot::Mutex;
use tokio::time::Instant;

/// How long a version is believed: a connection mends itself, and then the member may be another
/// program. None is stopped, replaced and ready again in this time.
const BELIEVED: Duration = Duration::from_secs(1);

/// What the member of a connection has said of its version.
#[derive(Clone, Default)]
pub(super) struct Version(Arc<Mutex<Option<Said>>>);

struct Said {
    asked: Instant,
    /// False until the answer is here.
    reads: bool,
}

impl Version {
    /// Whether the member may be sent a transaction that only reads. If its version is not known,
    /// it is asked, and the answer is no meanwhile.
    pub(super) fn reads_in_transactions(&self, client: &Client) -> bool {
        let mut said = self.0.lock();
        if let Some(Said { asked, reads }) = *said
            && asked.elapsed() < BELIEVED
        {
            return reads;
        }
        let asked = Instant::now();
        *said = Some(Said { asked, reads: false });
        tokio::spawn(self.clone().ask(client.clone(), asked));
        false
    }

    async fn ask(self, client: Client, since: Instant) {
        let Ok(status) = client.maintenance_client().status().await else { return };
        if let Some(said) = &mut *self.0.lock()
            && said.asked == since
        {
            said.reads = survives(status.version());
        }
    }
}

/// Whether a version goes on when a transaction that only reads is given up.
fn survives(version: &str) -> bool {
    let mut numbers = version.split(['.', '-']).map(str::parse::<u32>);
    let mut next = || numbers.next().and_then(Result::ok);
    match (next(), next(), next()) {
        (Some(3), Some(4), Some(patch)) => patch >= 23,
        (Some(3), Some(5), Some(patch)) => patch >= 7,
        (Some(major), Some(minor), Some(_)) => (major, minor) > (3, 5),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::survives;

    #[test]
    fn only_versions_without_the_panic_are_sent_transactions_that_only_read() {
        for version in ["3.4.23", "3.4.42", "3.5.7", "3.5.16", "3.6.0", "3.6.0-rc.1", "4.0.0"] {
            assert!(survives(version), "{version}");
        }
        for version in ["3.3.99", "3.4.22", "3.5.0", "3.5.6", "3.5", "3.5.x", "", "latest"] {
            assert!(!survives(version), "{version}");
        }
    }
}
