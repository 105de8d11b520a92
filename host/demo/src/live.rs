//! The demonstration in the terminal: the picture, drawn again and again, and the keys.

use std::io;
use std::time::Duration;

use crossterm::event::{Event, EventStream, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use futures_util::StreamExt;
use ratatui::DefaultTerminal;
use tokio::time::{MissedTickBehavior, interval};

use super::end::End;
use super::picture::Candidate;
use super::screen::{self, View};
use super::stage::{Stage, now};

/// How many candidates there are at first.
const AT_FIRST: usize = 3;

/// How often the picture is drawn.
const FRAME: Duration = Duration::from_millis(100);

/// Until the user has seen enough. The terminal is as it was after that, and after a
/// panic; the stage is to be closed.
pub async fn show(stage: &mut Stage) -> Result<(), End> {
    let mut terminal = Screen::enter().map_err(|error| no_terminal(&error))?;
    let mut keys = EventStream::new();
    let mut view = View::new(stage.place());
    stage.picture.remark(now(), WELCOME);
    stage.picture.remark(now(), FIRST_STEPS);
    for _ in 0..AT_FIRST {
        stage.add()?;
    }
    let mut frames = interval(FRAME);
    frames.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = stage.next() => continue,
            pressed = keys.next() => match pressed {
                Some(Ok(Event::Key(key))) if key.kind != KeyEventKind::Release => {
                    if is_quit(key) {
                        break;
                    }
                    press(stage, &mut view, key).await?;
                }
                Some(Ok(_)) => {}
                Some(Err(error)) => return Err(no_terminal(&error)),
                None => break,
            },
            _ = frames.tick() => {}
        }
        terminal
            .0
            .draw(|frame| screen::draw(frame, &stage.picture, &view, now()))
            .map_err(|error| no_terminal(&error))?;
    }
    Ok(())
}

const WELCOME: &str = "Of these processes one leads, for as long as it renews its lease. Each \
    term has an epoch, a number that only rises, and the store refuses what a leader writes \
    in an epoch that is over. Try to get two leaders, or a late write through!";

const FIRST_STEPS: &str = "For instance: p pauses the leader; wait until another leads; w gives \
    the sleeper a write of its dead term; r wakes it.";

fn is_quit(key: KeyEvent) -> bool {
    let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
    key.code == KeyCode::Char('q') || (is_control && key.code == KeyCode::Char('c'))
}

#[allow(clippy::wildcard_enum_match_arm, reason = "all other keys mean nothing")]
async fn press(stage: &mut Stage, view: &mut View, key: KeyEvent) -> Result<(), End> {
    let picture = &stage.picture;
    let all = picture.candidates.len();
    let target = view.target(picture, now());
    let chosen = view.chosen.and_then(|who| Some((who, picture.get(who)?)));
    // Without a choice, who is meant is who it makes sense for.
    let first = |makes_sense: &dyn Fn(&Candidate) -> bool| {
        chosen
            .filter(|(_, candidate)| makes_sense(candidate))
            .map(|(who, _)| who)
            .or_else(|| picture.candidates.iter().position(makes_sense))
            .or(target)
    };
    match key.code {
        KeyCode::Char('k') => target.into_iter().for_each(|who| stage.kill(who)),
        KeyCode::Char('s') => target.into_iter().for_each(|who| stage.stop(who)),
        KeyCode::Char('p') => {
            if let Some(who) = target {
                stage.pause(who).await;
            }
        }
        KeyCode::Char('r') => {
            let who = first(&|candidate| candidate.is_asleep());
            who.into_iter().for_each(|who| stage.resume(who));
        }
        KeyCode::Char('w') => {
            let who = first(&|candidate| candidate.has_past_term(now()));
            who.into_iter().for_each(|who| stage.write_late(who));
        }
        KeyCode::Char('a') => stage.add()?,
        KeyCode::Up => view.chosen = target.map(|who| who.saturating_sub(1)),
        KeyCode::Down => view.chosen = target.map(|who| (who + 1).min(all.saturating_sub(1))),
        KeyCode::Char(digit @ '1'..='9') => {
            let who = usize::try_from(digit.to_digit(10).unwrap_or(1)).unwrap_or(1) - 1;
            view.chosen = (who < all).then_some(who).or(view.chosen);
        }
        KeyCode::Esc => view.chosen = None,
        _ => {}
    }
    Ok(())
}

/// The terminal, until it is dropped. A panic gives it back before it is told.
#[derive(Debug)]
struct Screen(DefaultTerminal);

impl Screen {
    fn enter() -> io::Result<Self> {
        ratatui::try_init().map(Self)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // Fails where the terminal is gone.
        let _ = ratatui::try_restore();
    }
}

fn no_terminal(error: &io::Error) -> End {
    End::bad_input(format!(
        "the terminal cannot be used ({error}): `just demo --script` tells a story as plain text"
    ))
}
