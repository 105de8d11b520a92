//! Records of a story, for tests.

use super::picture::Picture;
use super::report::{Outcome, Report};

pub const SECOND: u64 = 1_000_000_000;

/// Ada leads from 1 s on and is paused at 2 s; its deadline is at 4 s. Ben leads from
/// 5 s on, until 7 s unless renewed. Each writes twice; at 6 s ada wakes up, and its
/// late write is refused.
pub fn story() -> Picture {
    let mut picture = Picture::new(0);
    let (ada, ben) = (picture.started("ada", 1, 0), picture.started("ben", 2, 0));
    for (who, epoch) in [(ada, 10), (ben, 20)] {
        picture.reported(who, Report::Joined { at: SECOND / 2, epoch }, SECOND / 2);
    }
    elected(&mut picture, ada, SECOND, 10, 4 * SECOND);
    wrote(&mut picture, ada, 10, 1, 11);
    wrote(&mut picture, ada, 10, 2, 12);
    picture.paused(ada, 2 * SECOND);
    elected(&mut picture, ben, 5 * SECOND, 20, 7 * SECOND);
    wrote(&mut picture, ben, 20, 3, 21);
    wrote(&mut picture, ben, 20, 4, 22);
    picture.resumed(ada, 6 * SECOND);
    asked(&mut picture, ada, 10, 3, true);
    answered(&mut picture, ada, 10, 3, Outcome::Refused);
    picture
}

pub fn elected(picture: &mut Picture, who: usize, at: u64, epoch: i64, valid_until: u64) {
    picture.reported(who, Report::Elected { at, epoch, valid_until }, at);
}

pub fn wrote(picture: &mut Picture, who: usize, epoch: i64, value: u64, revision: i64) {
    asked(picture, who, epoch, value, false);
    answered(picture, who, epoch, value, Outcome::Accepted { revision });
}

/// At the time that the picture has come to.
pub fn asked(picture: &mut Picture, who: usize, epoch: i64, value: u64, is_late: bool) {
    let at = now(picture);
    picture.reported(who, Report::Writing { at, epoch, value, is_late }, at);
}

pub fn answered(picture: &mut Picture, who: usize, epoch: i64, value: u64, outcome: Outcome) {
    let at = now(picture);
    picture.reported(who, Report::Written { at, epoch, value, outcome }, at);
}

fn now(picture: &Picture) -> u64 {
    picture.notes.last().map_or(0, |note| note.at)
}
