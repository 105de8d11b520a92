//! The demonstration in the terminal: the journal, drawn again and again, and the keys.

use std::io;
use std::time::Duration;

use crossterm::event::{Event, EventStream, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use futures_util::StreamExt;
use ratatui::DefaultTerminal;
use tokio::time::{MissedTickBehavior, interval};

use crate::controller::{Controller, now};
use crate::end::End;
use crate::record::{Action, Candidate};
use crate::screen::{self, View};

/// How many candidates there are at first.
const AT_FIRST: usize = 3;

/// How often the journal is drawn.
const FRAME: Duration = Duration::from_millis(100);

const WELCOME: &str = "Of these processes one leads, for as long as it renews its lease. Each \
    term has an epoch, a number that only rises, and the store refuses what a leader writes \
    in an epoch that is over. Try to get two leaders, or a late write through!";

const FIRST_STEPS: &str = "For instance: p pauses the leader; wait until another leads; w gives \
    the sleeper a write of its dead term; r wakes it.";

/// Until the user has seen enough. The terminal is as it was after that, and after a
/// panic; the caller closes the controller.
pub async fn show(controller: &mut Controller) -> Result<(), End> {
    let mut screen = Screen(ratatui::try_init().map_err(no_terminal)?);
    let mut keys = EventStream::new();
    let mut view = View { title: controller.place(), chosen: None };
    controller.journal.remark(now(), WELCOME);
    controller.journal.remark(now(), FIRST_STEPS);
    for _ in 0..AT_FIRST {
        controller.add()?;
    }
    let mut frames = interval(FRAME);
    frames.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = controller.next() => continue,
            pressed = keys.next() => match pressed.transpose().map_err(no_terminal)? {
                Some(Event::Key(key)) if is_quit(key) => return Ok(()),
                Some(Event::Key(key)) if key.kind != KeyEventKind::Release => {
                    press(controller, &mut view, key).await?;
                }
                Some(_) => {}
                None => return Ok(()),
            },
            _ = frames.tick() => {}
        }
        let journal = &controller.journal;
        let drawn = screen.0.draw(|frame| screen::draw(frame, journal, &view, now()));
        drawn.map_err(no_terminal)?;
    }
}

fn is_quit(key: KeyEvent) -> bool {
    let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
    key.code == KeyCode::Char('q') || (is_control && key.code == KeyCode::Char('c'))
}

#[allow(clippy::wildcard_enum_match_arm, reason = "all other keys mean nothing")]
async fn press(controller: &mut Controller, view: &mut View, key: KeyEvent) -> Result<(), End> {
    let record = &controller.journal.record;
    let all = record.candidates.len();
    let target = view.target(record, now());
    // The chosen one, or else the first for which it makes sense.
    let first = |makes_sense: fn(&Candidate) -> bool| {
        let chosen = view.chosen.filter(|who| record.get(*who).is_some_and(makes_sense));
        chosen.or_else(|| record.candidates.iter().position(makes_sense)).unwrap_or(target)
    };
    match key.code {
        KeyCode::Char('k') => controller.act(target, Action::Kill).await,
        KeyCode::Char('s') => controller.act(target, Action::Stop).await,
        KeyCode::Char('p') => controller.act(target, Action::Pause).await,
        KeyCode::Char('r') => {
            controller.act(first(Candidate::is_paused), Action::Resume).await;
        }
        KeyCode::Char('w') => {
            let who = first(|candidate| candidate.has_past_term(now()));
            controller.act(who, Action::WriteLate).await;
        }
        KeyCode::Char('a') => controller.add()?,
        KeyCode::Up => view.chosen = Some(target.saturating_sub(1)),
        KeyCode::Down => view.chosen = Some((target + 1).min(all.saturating_sub(1))),
        KeyCode::Char(digit @ '1'..='9') => {
            let who = usize::from(digit as u8 - b'1');
            view.chosen = Some(who).filter(|who| *who < all).or(view.chosen);
        }
        KeyCode::Esc => view.chosen = None,
        _ => {}
    }
    Ok(())
}

/// The terminal, until it is dropped. A panic gives it back before it is told.
#[derive(Debug)]
struct Screen(DefaultTerminal);

impl Drop for Screen {
    fn drop(&mut self) {
        // Fails where the terminal is gone.
        let _ = ratatui::try_restore();
    }
}

fn no_terminal(error: io::Error) -> End {
    End::bad_input(format!(
        "the terminal cannot be used ({error}): `just demo --script` tells a story as plain text"
    ))
}
