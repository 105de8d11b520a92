//! Elections among real processes, on a real cluster, while what can go wrong does: the
//! programs `soak`, `counter` and `terms`.
//!
//! A run goes by phases: one to three [faults](faults::Fault) come and go, and when all
//! are healed, somebody has to lead within the bound of law 10. Everybody writes down
//! what happens, by the machine's one clock; the [judgement](terms) reads only that.
//!
//! | file | what is there |
//! | --- | --- |
//! | `faults` | what goes wrong, drawn from a seed |
//! | `run` | the cluster, the hosts, and the hands of the faults |
//! | `hosts` | the hosts, as processes, each with its own links to all members |
//! | `host` | what a host does: it campaigns, counts and writes down |
//! | `log` | what is written down |
//! | `terms` | what the logs show |
//! | `false_alarms` | elections on a lossy network, where nothing else is wrong |

pub mod false_alarms;
pub mod faults;
pub mod host;
pub mod hosts;
pub mod log;
pub mod run;
pub mod terms;
