//! Where recordings are read from.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read as _};
use std::path::{Path, PathBuf};

use incumbent::recording::{Head, Line};

use crate::exit::{End, bad_input, say};

/// With its line feed.
const LONGEST_LINE: u64 = Line::LONGEST as u64 + 1;

/// The files of one recording, the oldest first.
#[derive(Debug)]
pub struct Source {
    pub head: Head,
    pub files: Vec<(u32, PathBuf)>,
}

/// The recordings that these directories and files hold.
pub fn find(paths: &[PathBuf]) -> Result<Vec<Source>, End> {
    let mut found: BTreeMap<(PathBuf, String), Source> = BTreeMap::new();
    for path in paths {
        let found_there = fs::metadata(path).map_err(|error| unreadable(path, &error))?;
        let files = if found_there.is_dir() { files(path)? } else { vec![path.clone()] };
        if !found_there.is_dir() && !found_there.is_file() {
            return Err(bad_input(format!(
                "{} is no file: give a recording, or the directory of --record",
                path.display()
            )));
        }
        for file in files {
            let mut lines = Lines::open(&file)?;
            let Some((_, first)) = lines.next()? else {
                say(&format!("{} is empty, and left out", file.display()));
                continue;
            };
            let Line::Head(head) = first else {
                return Err(no_recording(&file, 1, "it does not begin with the format"));
            };
            // A transcript is a recording of its own.
            let own = if head.recording.is_empty() { file.clone() } else { PathBuf::new() };
            let source = found.entry((own, head.recording.clone()));
            let segment = head.segment;
            let files = &mut source.or_insert_with(|| Source { head, files: Vec::new() }).files;
            // A copy tells nothing new.
            if !files.iter().any(|(known, _)| *known == segment) {
                files.push((segment, file));
            }
        }
    }
    if found.is_empty() {
        let names: Vec<_> = paths.iter().map(|path| path.display().to_string()).collect();
        return Err(bad_input(format!(
            "there is no recording in {}: give the directory of --record",
            names.join(", ")
        )));
    }
    let mut sources: Vec<_> = found.into_values().collect();
    sources.iter_mut().for_each(|source| source.files.sort());
    Ok(sources)
}

fn files(dir: &Path) -> Result<Vec<PathBuf>, End> {
    let unreadable = |error| unreadable(dir, &error);
    let mut files = Vec::new();
    for entry in fs::read_dir(dir).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        if path.extension().is_some_and(|extension| extension == "jsonl") && path.is_file() {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// The lines of a file.
pub struct Lines {
    path: PathBuf,
    reader: BufReader<File>,
    number: usize,
}

impl Lines {
    pub fn open(path: &Path) -> Result<Self, End> {
        let file = File::open(path).map_err(|error| unreadable(path, &error))?;
        Ok(Self { path: path.into(), reader: BufReader::new(file), number: 0 })
    }

    /// The next line, and its number. A last line that a crash has torn is left out.
    pub fn next(&mut self) -> Result<Option<(usize, Line)>, End> {
        let mut line = Vec::new();
        let mut bounded = self.reader.by_ref().take(LONGEST_LINE);
        bounded.read_until(b'\n', &mut line).map_err(|error| unreadable(&self.path, &error))?;
        self.number += 1;
        if line.is_empty() {
            return Ok(None);
        }
        let text = str::from_utf8(&line).map_err(|error| error.to_string());
        match text.and_then(Line::read) {
            Ok(line) => Ok(Some((self.number, line))),
            Err(_) if !line.ends_with(b"\n") && (line.len() as u64) < LONGEST_LINE => {
                say(&format!("the last line of {} is torn, and left out", self.path.display()));
                Ok(None)
            }
            Err(error) => Err(no_recording(&self.path, self.number, &error)),
        }
    }
}

fn unreadable(path: &Path, error: &io::Error) -> End {
    bad_input(format!("{} cannot be read ({error}): give a recording", path.display()))
}

fn no_recording(path: &Path, line: usize, error: &str) -> End {
    bad_input(format!(
        "{} is no recording that this program reads: line {line}: {error}",
        path.display()
    ))
}
