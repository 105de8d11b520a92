//! `incumbent demo`: candidates as processes of their own, to be watched, and to be
//! killed, paused and stopped.
//!
//! | room | what is in it |
//! | --- | --- |
//! | `candidate`, `counter` | one candidate, a process, and what it does while it leads |
//! | `report` | what it tells of itself |
//! | `lines` | what they say, line by line, in an order that can be relied on |
//! | `process`, `stage` | the processes, what is done to them, and what the store says |
//! | `picture`, `timeline` | what has been observed |
//! | `notes`, `verdict` | what that means, and whether it is as promised |
//! | `script`, `live`, `screen`, `svg` | as a story, in the terminal, and as a file |

mod candidate;
mod counter;
mod lines;
mod live;
mod notes;
mod picture;
mod process;
mod report;
#[cfg(test)]
mod sample;
mod screen;
mod script;
mod stage;
mod svg;
mod timeline;
mod verdict;

use std::fs::{self, OpenOptions};
use std::io::{self, IsTerminal};
use std::path::Path;

use incumbent::StoreUrl;

pub use self::candidate::candidate;
use self::script::Narrator;
use self::stage::{Stage, now};
use super::args::{Common, Contest, Demo};
use super::campaign::no_signals;
use super::exit::{End, Status, bad_input};
use super::signals::Signals;

pub async fn demo(common: &Common, demo: &Demo) -> Result<Status, End> {
    check(common, demo)?;
    let common = &Common { store: Some(store_of_all(common)?), ..common.clone() };
    let mut signals = Signals::listen().map_err(no_signals)?;
    let mut stage = tokio::select! {
        stage = Stage::open(common, demo) => stage?,
        _ = signals.next() => return Ok(Status::Done),
    };
    let mut narrator = Narrator::default();
    let played = tokio::select! {
        played = async {
            if demo.script {
                narrator.play(&mut stage, demo).await
            } else {
                live::show(&mut stage).await
            }
        } => played,
        // A story that was not told to its end is none; the picture has no end.
        asked = signals.next() => {
            if demo.script { Err(End::quiet(asked.status())) } else { Ok(()) }
        }
    };
    // Once more: at once. The candidates end with us.
    let counter = tokio::select! {
        counter = stage.close() => counter,
        asked = signals.next() => return Ok(asked.status()),
    };
    played?;
    if demo.script {
        narrator.tell(&stage.picture);
    }
    let status = script::conclude(&stage.picture, counter)?;
    // Only of what was so.
    if let Some(file) = &demo.svg {
        let drawing = svg::draw(&stage.picture, now());
        fs::write(file, drawing).map_err(|error| unwritable(file, &error))?;
    }
    Ok(status)
}

/// Whether the terminal is ours alone.
pub fn has_the_screen(demo: &Demo) -> bool {
    !demo.script
}

fn check(common: &Common, demo: &Demo) -> Result<(), End> {
    if common.contest == Contest::Race {
        return Err(bad_input("--contest race has no line to show: leave it out"));
    }
    if let Some(file) = &demo.svg {
        if !demo.script {
            return Err(bad_input("--svg draws the story that --script tells: add --script"));
        }
        // Said now, not after the story. What is there stays until there is a better one.
        let writable = OpenOptions::new().write(true).create(true).truncate(false).open(file);
        writable.map_err(|error| unwritable(file, &error))?;
    }
    let has_terminal = io::stdout().is_terminal() && io::stdin().is_terminal();
    if !demo.script && !has_terminal {
        return Err(bad_input(
            "the demonstration wants a terminal, and this is none: `incumbent demo --script` \
             tells a story as plain text",
        ));
    }
    Ok(())
}

/// The store that was named, or else that of this machine: nothing relies on whom a
/// demonstration elects.
fn store_of_all(common: &Common) -> Result<StoreUrl, End> {
    let store = common.store.clone().unwrap_or(StoreUrl::Local);
    if matches!(store, StoreUrl::Memory(_)) {
        return Err(bad_input(format!(
            "--store {store} is one process's own, and the candidates are three: leave it out"
        )));
    }
    Ok(store)
}

fn unwritable(file: &Path, error: &io::Error) -> End {
    bad_input(format!(
        "--svg {} cannot be written ({error}): give a file that we may write",
        file.display()
    ))
}
