//! What each member of an etcd says of itself, and whether the members belong together.

use std::collections::{BTreeMap, BTreeSet};

use incumbent::{ConnectError, ListedMember, MemberStatus};

use super::super::args::Common;
use super::super::exit::Status;
use super::super::session::not_connected;
use super::Finding;

/// A member by the address that `--store` has, and what it said, or why it said nothing.
type Found = (String, Result<MemberStatus, ConnectError>);

/// The addresses of the members that can be asked. None of several clusters, because each answer
/// could be another's.
pub(super) fn serving(found: &[Found]) -> Vec<String> {
    let reached =
        found.iter().filter_map(|(address, status)| Some((address, status.as_ref().ok()?)));
    let clusters: BTreeSet<u64> = reached.clone().map(|(_, status)| status.cluster).collect();
    let is_one = clusters.len() <= 1;
    let serving = reached.filter(|(_, status)| is_one && serves(status));
    serving.map(|(address, _)| address.clone()).collect()
}

fn serves(status: &MemberStatus) -> bool {
    status.leader.is_some() && !status.is_learner
}

pub(super) fn findings(common: &Common, found: Vec<Found>) -> Vec<Finding> {
    let is_served = !serving(&found).is_empty();
    let mut findings = Vec::new();
    let mut reached: Vec<(String, MemberStatus)> = Vec::new();
    let mut unreached = BTreeSet::new();
    for (address, result) in found {
        match result {
            Ok(status) => {
                findings.push(member(&address, &status));
                reached.push((address, status));
            }
            Err(error) => {
                let is_away = matches!(error, ConnectError::Unreachable { .. });
                let mut finding = Finding::end("member", &not_connected(common, error.into()));
                if is_away && is_served {
                    finding = Finding::warning(
                        "member",
                        format!(
                            "{} The others serve meanwhile, but the election survives fewer failures",
                            finding.text
                        ),
                    );
                }
                findings.push(finding.with("address", address.as_str()));
                unreached.insert(address);
            }
        }
    }
    findings.extend(clusters(&reached));
    findings.extend(twice(&reached));
    findings.extend(alarms(&reached));
    findings.extend(versions(&reached));
    findings.extend(unnamed(&reached, &unreached));
    findings
}

fn member(address: &str, status: &MemberStatus) -> Finding {
    let MemberStatus { id, cluster, version, leader, is_learner, .. } = status;
    let it_is = format!("{address} is etcd {version}, member {id:x} of cluster {cluster:x}");
    let finding = if *is_learner {
        Finding::warning(
            "member",
            format!(
                "{it_is}, and a learner, which serves no clients: promote it (etcdctl member promote), \
             or leave it out of --store"
            ),
        )
    } else {
        match leader {
            None => Finding::fault(
                "member",
                Status::Store,
                format!(
                    "{it_is}, and knows no leader: start the other members, and check the network \
                 between them, because more than half of them have to reach each other"
                ),
            ),
            Some(leader) if leader == id => {
                Finding::fine("member", format!("{it_is}, and its leader"))
            }
            Some(leader) => Finding::fine("member", format!("{it_is}, and follows {leader:x}")),
        }
    };
    finding
        .with("address", address)
        .with("version", version.as_str())
        .with("member", format!("{id:x}"))
        .with("cluster", format!("{cluster:x}"))
        .with("leader", leader.map(|leader| format!("{leader:x}")))
        .with("learner", *is_learner)
}

fn clusters(reached: &[(String, MemberStatus)]) -> Option<Finding> {
    let addresses = |status: fn(&MemberStatus) -> u64| {
        let mut by: BTreeMap<u64, Vec<&str>> = BTreeMap::new();
        for (address, one) in reached {
            by.entry(status(one)).or_default().push(address);
        }
        by
    };
    let clusters = addresses(|status| status.cluster);
    let list = |(cluster, members): (&u64, &Vec<&str>)| {
        format!("{} of cluster {cluster:x}", members.join(", "))
    };
    let listed: Vec<_> = clusters.iter().map(list).collect();
    (clusters.len() > 1).then(|| {
        Finding::fault("cluster", Status::BadInput, format!(
            "--store names members of {} clusters, and each would elect a leader of its own ({}): \
             name the members of one",
            clusters.len(),
            listed.join("; "),
        ))
    })
}

fn twice(reached: &[(String, MemberStatus)]) -> Vec<Finding> {
    let mut first: BTreeMap<u64, &str> = BTreeMap::new();
    let mut findings = Vec::new();
    for (address, status) in reached {
        if let Some(first) = first.insert(status.id, address) {
            findings.push(Finding::warning(
                "cluster",
                format!(
                    "{first} and {address} are one member, {:x}: name each member once, by its own \
                 address",
                    status.id
                ),
            ));
        }
    }
    findings
}

/// Each alarm once: all members tell those of the cluster.
fn alarms(reached: &[(String, MemberStatus)]) -> Vec<Finding> {
    let errors = reached.iter().flat_map(|(_, status)| &status.errors);
    let errors: BTreeSet<&str> = errors.map(|error| error.trim()).collect();
    let finding = |error: &str| {
        // It was said of the member.
        if error.contains("no leader") {
            return None;
        }
        let mend = if error.contains("NOSPACE") {
            "etcd is full, and takes no new candidate: compact and defragment it, then run \
             `etcdctl alarm disarm`"
        } else if error.contains("CORRUPT") {
            "the data of its members differ: replace the member that is damaged, then run `etcdctl \
             alarm disarm`"
        } else {
            "look into etcd's log"
        };
        Some(Finding::fault("alarm", Status::Store, format!("etcd has an alarm ({error}): {mend}")))
    };
    errors.into_iter().filter_map(finding).collect()
}

/// One finding for each version.
fn versions(reached: &[(String, MemberStatus)]) -> Vec<Finding> {
    let statuses = reached.iter().map(|(_, status)| (status.version.as_str(), status));
    let versions: BTreeMap<&str, &MemberStatus> = statuses.collect();
    let finding = |(version, status): (&str, &MemberStatus)| {
        if status.known_faults.is_empty() {
            return Finding::fine(
                "version",
                format!("no fault of etcd {version} is known that concerns elections"),
            );
        }
        Finding::warning(
            "version",
            format!(
                "etcd {version} {}: update it to 3.5.33, 3.6.14 or later",
                status.known_faults.join("; it ")
            ),
        )
    };
    versions
        .into_iter()
        .map(|(version, status)| finding((version, status)).with("version", version))
        .collect()
}

/// Members of the cluster that `--store` does not name, as far as that can be told.
fn unnamed(reached: &[(String, MemberStatus)], unreached: &BTreeSet<String>) -> Vec<Finding> {
    let Some(members) = reached.iter().find_map(|(_, status)| status.members.as_ref()) else {
        let unknown = "etcd does not tell this user which members it has: compare --store with \
                       `etcdctl member list`";
        return if reached.is_empty() {
            Vec::new()
        } else {
            vec![Finding::warning("cluster", unknown)]
        };
    };
    let known: BTreeSet<u64> = reached.iter().map(|(_, status)| status.id).collect();
    let is_unnamed = |member: &&ListedMember| {
        let is_unreached = member.client_urls.iter().any(|url| {
            let address = url.split_once("://").map_or(url.as_str(), |(_, address)| address);
            unreached.contains(address.trim_end_matches('/'))
        });
        !member.is_learner && !known.contains(&member.id) && !is_unreached
    };
    let finding = |member: &ListedMember| {
        let text = if member.client_urls.is_empty() {
            format!(
                "the cluster has a member {:x} that was never started: start it, or remove it \
                 (etcdctl member remove), because it counts for the majority",
                member.id
            )
        } else {
            format!(
                "the cluster has a member {} at {}, which --store does not name by an address that \
                 answers: add it, to survive the failure of the others",
                member.name,
                member.client_urls.join(", ")
            )
        };
        Finding::warning("cluster", text).with("member", format!("{:x}", member.id))
    };
    members.iter().filter(is_unnamed).map(finding).collect()
}

#[cfg(test)]
mod tests {
    use super::super::Grade;
    use super::*;

    #[test]
    fn a_member_serves_if_it_is_no_learner_and_knows_a_leader() {
        for (leader, is_learner, grade, says) in [
            (Some(1), false, Grade::Fine, "and its leader"),
            (Some(2), false, Grade::Fine, "and follows 2"),
            (Some(2), true, Grade::Warning, "promote it"),
            (None, false, Grade::Fault(Status::Store), "start the other members"),
        ] {
            let mut status = MemberStatus::default();
            (status.id, status.leader, status.is_learner) = (1, leader, is_learner);
            let found = member("a:2379", &status);
            assert_eq!(found.grade, grade, "{found:?}");
            assert!(found.text.contains(says), "{found:?}");
            let serving = serving(&[("a:2379".into(), Ok(status))]);
            assert_eq!(serving.len(), usize::from(grade == Grade::Fine));
        }
    }
}
