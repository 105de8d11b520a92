//! Elections among real processes, on a real store, under faults: the programs `soak` and
//! `counter`.
//!
//! A run goes by phases: one to three [faults](faults::Fault) come and go, and when all
//! are healed, somebody has to lead within the promised bound. For false alarms, one long phase
//! has nothing but lost and late packets: no leader may lose its term. Every process logs
//! what happens, by the machine's one clock; the [judgement](terms) reads only the logs.
//!
//! | file | what is there |
//! | --- | --- |
//! | `faults` | what goes wrong, drawn from a seed |
//! | `run` | servers and hosts, and how each fault is made and healed |
//! | `servers` | a cluster of etcd, or a PostgreSQL and its standby |
//! | `hosts` | the hosts, as processes, each with its own links to all members |
//! | `host` | what a host does: it campaigns, counts and logs |
//! | `advisory` | a host that goes by an advisory lock, to compare |
//! | `log` | the logs |
//! | `terms` | what the logs show |
//! | `recordings` | what the hosts' electors did, held to the model that is proved |

pub mod advisory;
pub mod faults;
pub mod host;
pub mod hosts;
pub mod log;
pub mod recordings;
pub mod run;
pub mod servers;
pub mod terms;
