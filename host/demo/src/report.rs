//! What candidates report, each in a line of JSON. All of them write into one pipe, so that
//! it holds their reports in the order in which they happened: a candidate that leads because
//! another one has stopped says so after that one.
//!
//! Marks are those of the boot clock, which all processes of a machine share.

use std::io::{self, BufRead as _, BufReader, PipeWriter, Write, pipe};
use std::thread;

use incumbent::Mark;
use serde::{Deserialize, Serialize};

/// One thing that a candidate did, or learnt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Report {
    /// In line; the epoch is what its term will have.
    Joined { at: Mark, epoch: i64 },
    /// Leads from now on, until `valid_until` unless extended.
    Elected { at: Mark, epoch: i64, valid_until: Mark },
    /// A renewal was acknowledged.
    Extended { at: Mark, epoch: i64, valid_until: Mark },
    /// The work of the term has stopped: nothing is asked for in it any more.
    Stopped { at: Mark, epoch: i64 },
    /// It has learnt that the term is over, and why.
    Demoted { at: Mark, epoch: i64, reason: String },
    /// About to write. If no outcome follows, the write may have been made or not.
    Writing { at: Mark, epoch: i64, value: u64, is_late: bool },
    /// What the store said to it.
    Written { at: Mark, epoch: i64, value: u64, outcome: Outcome },
    /// Was to write late, and has no term that is over.
    NothingToWriteLate { at: Mark },
    /// Something a person should know.
    Trouble(String),
    /// Its process has ended. The demonstration reports this itself, after the last report.
    Ended,
}

/// What became of a write.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// Made, at this revision of the store.
    Accepted { revision: i64 },
    /// Refused by its guard: nothing was changed.
    Refused,
    /// Anything else: it may have been made.
    Unclear { why: String },
}

/// Reports as the candidate of this name.
///
/// A report is shorter than what a pipe takes in one piece (4096 bytes on Linux): it is never mixed
/// with another one, and a killed candidate never leaves half of one.
pub fn write(pipe: &mut impl Write, name: &str, report: &Report) -> io::Result<()> {
    let line = serde_json::to_string(&(name, report))?;
    pipe.write_all(format!("{line}\n").as_bytes())?;
    pipe.flush()
}

/// Makes the pipe, and starts a thread that passes on all reports. It always reads, so that no
/// candidate has to wait.
pub fn listen(mut tell: impl FnMut(String, Report) + Send + 'static) -> io::Result<PipeWriter> {
    let (reader, writer) = pipe()?;
    let read = move || {
        for line in BufReader::new(reader).split(b'\n').map_while(Result::ok) {
            if let Ok((name, report)) = serde_json::from_slice(&line) {
                tell(name, report);
            }
        }
    };
    thread::Builder::new().spawn(read)?;
    Ok(writer)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn what_is_told_is_understood() {
        let (at, epoch, value, valid_until) = (u64::MAX, i64::MAX, 7, 12);
        let written = |outcome| Report::Written { at, epoch, value, outcome };
        let (told, heard) = channel();
        let mut pipe = listen(move |name, report| told.send((name, report)).unwrap()).unwrap();
        for report in [
            Report::Joined { at, epoch },
            Report::Elected { at, epoch, valid_until },
            Report::Extended { at, epoch, valid_until },
            Report::Stopped { at, epoch },
            Report::Demoted { at, epoch, reason: "a \"reason\"\n".into() },
            Report::Writing { at, epoch, value, is_late: true },
            written(Outcome::Accepted { revision: 9 }),
            written(Outcome::Refused),
            written(Outcome::Unclear { why: "no answer".into() }),
            Report::NothingToWriteLate { at },
            Report::Trouble("of some kind".into()),
            Report::Ended,
        ] {
            for nonsense in ["", "{}", "[]", "incumbent: something", r#"["ada",{"Joined":{}}]"#] {
                writeln!(pipe, "{nonsense}").unwrap();
            }
            write(&mut pipe, "ada", &report).unwrap();
            assert_eq!(heard.recv().unwrap(), ("ada".into(), report));
        }
    }

    #[test]
    fn what_was_written_before_is_told_before() {
        let (told, heard) = channel();
        let mut first = listen(move |name, report| told.send((name, report)).unwrap()).unwrap();
        let mut second = first.try_clone().unwrap();
        for at in 0..1000 {
            write(&mut second, "second", &Report::NothingToWriteLate { at }).unwrap();
            write(&mut first, "first", &Report::NothingToWriteLate { at }).unwrap();
        }
        write(&mut second, "second", &Report::Ended).unwrap();
        drop((first, second));
        for at in 0..1000 {
            for name in ["second", "first"] {
                let report = Report::NothingToWriteLate { at };
                assert_eq!(heard.recv().unwrap(), (name.into(), report));
            }
        }
        assert_eq!(heard.recv().unwrap(), ("second".into(), Report::Ended));
        heard.recv().unwrap_err();
    }
}
