//! `incumbent doctor`: tells before an election begins whether its store, and the way to it, can be
//! trusted with it. It is a candidate of no election, and leaves nothing in the store.
//!
//! | module | holds |
//! | --- | --- |
//! | `members` | what each member of an etcd says of itself, and whether they belong together |
//! | `file` | the place of a store in a file |
//! | `trial` | the operations that an election needs: in a scratch election, or without effect |
//! | `round_trips` | how long they take |
//! | `clock` | how fast the store's clock runs, by that of this machine |
//! | `lease` | the time-outs that follow from a lease time, and which one to choose |

mod clock;
mod file;
mod lease;
mod members;
mod round_trips;
mod trial;

use std::time::Duration;

use incumbent::{EtcdStore, EtcdUrl, Store, StoreUrl};
use serde_json::{Value, json};

use self::clock::Rate;
use self::lease::Least;
use self::round_trips::RoundTrips;
use self::trial::Trial;
use super::args::{Common, Doctor, Form};
use super::checks::{check_lease, credentials};
use super::exit::{End, Status, bad_input};
use super::output::print;
use super::session::{not_connected, store};
use super::text::{Field, field, json, shown};

const LEAST_ON_ETCD: Least = Least(
    Duration::from_secs(5),
    "a leader goes on for two thirds of its lease without an answer, and etcd may take 3 s to elect \
     a leader of its own",
);
const LEAST_IN_A_FILE: Least = Least(
    Duration::from_secs(2),
    "a leader goes on for two thirds of its lease without an answer, and a busy machine may give it \
     no time for a second",
);

const LEAST_IN_A_DATABASE: Least = Least(
    Duration::from_secs(5),
    "a leader goes on for two thirds of its lease without an answer, and a database may take seconds \
     for a restart or a checkpoint",
);

pub async fn doctor(common: &Common, doctor: &Doctor) -> Result<Status, End> {
    check_lease(&doctor.lease)?;
    if let StoreUrl::Memory(_) = common.store() {
        return Err(bad_input(
            "--store memory: is in this process, and ends with it: give --store local, or an etcd, \
             to have it examined",
        ));
    }
    let mut report = Report { form: common.output, warnings: 0, faults: 0, status: Status::Done };
    // `main` has checked it for every command.
    let system = "the system lets the program open the files and start the threads that it needs";
    report.tell(Finding::fine("system", system))?;
    if let StoreUrl::Etcd(url) = common.store() {
        etcd(&mut report, common, doctor, &url).await?;
    } else {
        one_store(&mut report, common, doctor).await?;
    }
    report.end()
}

async fn etcd(
    report: &mut Report,
    common: &Common,
    doctor: &Doctor,
    url: &EtcdUrl,
) -> Result<(), End> {
    let credentials = match credentials(common) {
        Ok(credentials) => credentials,
        Err(end) => return report.tell(Finding::end("member", &end)),
    };
    let found = match EtcdStore::inspect(url, &credentials, common.dial_timeout).await {
        Ok(found) => found,
        Err(error) => {
            return report.tell(Finding::end("member", &not_connected(common, error.into())));
        }
    };
    let serving = members::serving(&found);
    for finding in members::findings(common, found) {
        report.tell(finding)?;
    }
    let mut stores = Vec::new();
    for address in serving {
        match EtcdStore::connect(&alone(url, &address)?, &credentials, common.dial_timeout).await {
            Ok(store) => stores.push((address, store)),
            Err(error) => {
                report.tell(Finding::end("member", &not_connected(common, error.into())))?
            }
        }
    }
    let Some((_, first)) = stores.first() else {
        if report.faults == 0 {
            let text = "no member that --store names serves clients: name one that does";
            report.tell(Finding::fault("member", Status::Store, text))?;
        }
        return Ok(());
    };
    let Some(trial) = try_out(report, common, doctor, first).await? else { return Ok(()) };
    let mut all = RoundTrips::default();
    for (address, store) in &stores {
        match round_trips::measure(store, &trial, common.command_timeout).await {
            Ok(measured) => {
                report.tell(measured.finding(address))?;
                all.add(&measured);
            }
            Err(failure) => report.tell(round_trips::failed(&common.store(), address, &failure))?,
        }
    }
    report.tell_each(trial.end(first, common.command_timeout).await)?;
    if report.faults > 0 {
        return Ok(());
    }
    let rate = Rate::of(first, all.typical(), common.command_timeout).await;
    report.tell(clock::finding(rate, &doctor.lease))?;
    let granted = lease::granted(first, &doctor.lease, common.command_timeout).await;
    report.tell(lease::finding(
        &common.store(),
        granted,
        &doctor.lease,
        all.worst(),
        &LEAST_ON_ETCD,
    ))
}

/// A file, or a database.
async fn one_store(report: &mut Report, common: &Common, doctor: &Doctor) -> Result<(), End> {
    let (check, whose, clock, least) = if let StoreUrl::Postgres(_) = common.store() {
        (
            "database",
            "the database",
            "each candidate counts time by its own clock, and never by the database's",
            &LEAST_IN_A_DATABASE,
        )
    } else {
        ("file", "the file", "the store counts time by the clock of this machine", &LEAST_IN_A_FILE)
    };
    let store = match store(common).await {
        Ok(store) => store,
        Err(end) => return report.tell(Finding::end(check, &end)),
    };
    if let StoreUrl::Postgres(url) = common.store() {
        let text = format!("the store is the schema {} of {url}, which takes writes", url.schema());
        report.tell(Finding::fine(check, text))?;
    }
    for finding in file::findings(&common.store()) {
        report.tell(finding)?;
    }
    let Some(trial) = try_out(report, common, doctor, &store).await? else { return Ok(()) };
    let measured = round_trips::measure(&store, &trial, common.command_timeout).await;
    report.tell_each(trial.end(&store, common.command_timeout).await)?;
    let measured = match measured {
        Ok(measured) => measured,
        Err(failure) => {
            return report.tell(round_trips::failed(&common.store(), whose, &failure));
        }
    };
    report.tell(measured.finding(whose))?;
    report.tell(Finding::fine("clock", clock))?;
    let granted = lease::granted(&store, &doctor.lease, common.command_timeout).await;
    report.tell(lease::finding(&common.store(), granted, &doctor.lease, measured.worst(), least))
}

/// Tries what an election needs. None if it cannot be done.
async fn try_out(
    report: &mut Report,
    common: &Common,
    doctor: &Doctor,
    store: &dyn Store,
) -> Result<Option<Trial>, End> {
    let (trial, finding) = Trial::start(store, common, doctor.election.as_deref()).await;
    report.tell(finding)?;
    Ok(trial)
}

/// The same store, with this member alone.
fn alone(url: &EtcdUrl, address: &str) -> Result<EtcdUrl, End> {
    let scheme = if url.tls() { "etcds" } else { "etcd" };
    let url = format!("{scheme}://{address}/{}", url.prefix());
    url.parse().map_err(|error: incumbent::StoreUrlError| bad_input(error.to_string()))
}

/// What to do about a store that answers late, or wrongly.
fn where_to_look(store: &StoreUrl) -> &'static str {
    if let StoreUrl::Etcd(_) | StoreUrl::Postgres(_) = store {
        "look into its log, and at its disk and the network to it"
    } else {
        "see whether another program has the file locked, and how its disk is"
    }
}

/// The answer to one question.
#[derive(Debug)]
struct Finding {
    /// The question, for programs.
    check: &'static str,
    grade: Grade,
    text: String,
    fields: Vec<Field>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Grade {
    Fine,
    Warning,
    /// And the status that the program ends with.
    Fault(Status),
}

impl Finding {
    fn new(check: &'static str, grade: Grade, text: impl Into<String>) -> Self {
        Self { check, grade, text: text.into(), fields: Vec::new() }
    }

    fn fine(check: &'static str, text: impl Into<String>) -> Self {
        Self::new(check, Grade::Fine, text)
    }

    fn warning(check: &'static str, text: impl Into<String>) -> Self {
        Self::new(check, Grade::Warning, text)
    }

    fn fault(check: &'static str, status: Status, text: impl Into<String>) -> Self {
        Self::new(check, Grade::Fault(status), text)
    }

    /// What other commands would end with.
    fn end(check: &'static str, end: &End) -> Self {
        Self::fault(check, end.status, end.sentence())
    }

    /// With a field for programs.
    fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.fields.push(field(name, value));
        self
    }
}

/// Prints each finding when it is there, and remembers the worst.
#[derive(Debug)]
struct Report {
    form: Form,
    warnings: u32,
    faults: u32,
    status: Status,
}

impl Report {
    fn tell(&mut self, finding: Finding) -> Result<(), End> {
        let name = match finding.grade {
            Grade::Fine => "ok",
            Grade::Warning => {
                self.warnings += 1;
                "warning"
            }
            Grade::Fault(status) => {
                self.faults += 1;
                // The first one counts: the others may follow from it.
                if self.status == Status::Done {
                    self.status = status;
                }
                "fault"
            }
        };
        print(match self.form {
            Form::People => format!("{name}: {}", shown(&finding.text)),
            Form::Json => {
                let first = [
                    field("check", finding.check),
                    field("result", name),
                    field("text", finding.text.as_str()),
                ];
                json(&Value::from_iter(first.into_iter().chain(finding.fields)))
            }
        })?;
        Ok(())
    }

    fn tell_each(&mut self, findings: impl IntoIterator<Item = Finding>) -> Result<(), End> {
        findings.into_iter().try_for_each(|finding| self.tell(finding))
    }

    fn end(self) -> Result<Status, End> {
        let count =
            |many: u32, what: &str| format!("{many} {what}{}", if many == 1 { "" } else { "s" });
        let (faults, warnings) = (count(self.faults, "fault"), count(self.warnings, "warning"));
        let text = format!("{faults}, {warnings}");
        print(match self.form {
            Form::Json => json(&json!({
                "check": "all", "faults": self.faults, "warnings": self.warnings,
            })),
            Form::People if self.faults > 0 => {
                format!("{text}: mend the faults, and run this again")
            }
            Form::People => text,
        })?;
        Ok(self.status)
    }
}

/// Milliseconds, for people and programs.
fn milliseconds(span: Duration) -> f64 {
    (span.as_secs_f64() * 1e5).round() / 100.0
}
