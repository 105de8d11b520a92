//! What is known of etcd's versions: their faults, and whether one may be sent a transaction that
//! only reads.
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

/// A version: major, minor, patch.
type Number = (u32, u32, u32);

/// The versions from one on, up to another that has it no more.
type Affected = (Number, Number);

/// A transaction that only reads, and that its caller gives up, ends the member.
const PANICS: &[Affected] = &[((0, 0, 0), (3, 4, 23)), ((3, 5, 0), (3, 5, 7))];

/// What is known against versions, as the rest of a sentence about a member.
const FAULTS: &[(&[Affected], &str)] = &[
    (
        &[((0, 0, 0), (3, 4, 31)), ((3, 5, 0), (3, 5, 13))],
        "may revoke leases that were renewed elsewhere after it stood still (etcd#15247)",
    ),
    (PANICS, "crashes if a client gives up a transaction that only reads (etcd#14110, etcd#14891)"),
    (
        &[((3, 5, 0), (3, 5, 3))],
        "may hold other data than the other members after a crash (etcd#13766)",
    ),
    (
        &[((0, 0, 0), (3, 4, 42)), ((3, 5, 0), (3, 5, 28)), ((3, 6, 0), (3, 6, 9))],
        "does not check roles in nested transactions, so that a leader may write any key \
         (GHSA-rfx7-8w68-q57q)",
    ),
];

/// What is known against a version: nothing if it cannot be read.
pub(super) fn known_faults(version: &str) -> Vec<&'static str> {
    let Some(number) = number(version) else { return Vec::new() };
    let has = |affected: &[Affected]| is_affected(number, affected);
    FAULTS.iter().filter(|(affected, _)| has(affected)).map(|(_, fault)| *fault).collect()
}

/// Whether a version goes on when a transaction that only reads is given up.
fn survives(version: &str) -> bool {
    number(version).is_some_and(|number| !is_affected(number, PANICS))
}

fn is_affected(number: Number, affected: &[Affected]) -> bool {
    affected.iter().any(|(first, fixed)| (*first..*fixed).contains(&number))
}

fn number(version: &str) -> Option<Number> {
    let mut numbers = version.split(['.', '-']).map(str::parse::<u32>);
    let mut next = || numbers.next()?.ok();
    Some((next()?, next()?, next()?))
}

#[cfg(test)]
mod tests {
    use super::{known_faults, survives};

    #[test]
    fn only_versions_without_the_panic_are_sent_transactions_that_only_read() {
        for version in ["3.4.23", "3.4.42", "3.5.7", "3.5.16", "3.6.0", "3.6.0-rc.1", "4.0.0"] {
            assert!(survives(version), "{version}");
        }
        for version in ["3.3.99", "3.4.22", "3.5.0", "3.5.6", "3.5", "3.5.x", "", "latest"] {
            assert!(!survives(version), "{version}");
        }
    }

    #[test]
    fn each_version_has_the_faults_that_were_not_yet_corrected() {
        for (version, words) in [
            ("3.4.23", &["revoke", "role"][..]),
            ("3.4.41", &["role"]),
            ("3.5.1", &["revoke", "crashes", "other data", "role"]),
            ("3.5.12", &["revoke", "role"]),
            ("3.5.13", &["role"]),
            ("3.6.0", &["role"]),
            ("3.4.44", &[]),
            ("3.5.33", &[]),
            ("3.6.14", &[]),
            ("latest", &[]),
        ] {
            let faults = known_faults(version);
            assert_eq!(faults.len(), words.len(), "{version}: {faults:?}");
            for (fault, word) in faults.iter().zip(words) {
                assert!(fault.contains(word), "{version}: {fault}");
            }
        }
    }
}
