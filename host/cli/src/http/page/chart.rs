//! The pictures of the page: where their rectangles and lines are. The template draws them.

use std::collections::VecDeque;
use std::time::Duration;

use incumbent::Mark;

use super::{clock, span};
use crate::instance::history::{Kind, Lane, Renewal, Span};
use crate::text::shown_bytes;

/// In units of the picture, which is as wide as the page.
pub const WIDTH: u64 = 800;
const LANE: u64 = 46;
const TOP: u64 = 8;

/// How many lanes and bars are drawn at most: those that were seen last.
const LANES: usize = 8;
const BARS: usize = 300;

/// How many characters of a name are shown above its lane.
const NAME: usize = 60;

/// The time, from left to right, and a lane for each candidate.
#[derive(Debug)]
pub struct Timeline {
    pub height: u64,
    pub lanes: Vec<Name>,
    pub bars: Vec<Bar>,
    /// Where the time is named, and how.
    pub times: Vec<(u64, String)>,
}

#[derive(Debug)]
pub struct Name {
    pub y: u64,
    pub name: String,
}

#[derive(Debug)]
pub struct Bar {
    pub class: &'static str,
    pub x: u64,
    pub y: u64,
    pub width: u64,
    pub height: u64,
    /// In the bar, if there is room.
    pub label: String,
    /// For a pointer that rests on it.
    pub title: String,
}

/// Draws what was seen in the time before `now`.
pub fn timeline(spans: &VecDeque<Span>, own: &str, now: Mark, window: Duration) -> Timeline {
    let window = u64::try_from(window.as_nanos()).unwrap_or(Mark::MAX);
    let from = now.saturating_sub(window);
    let x = |mark: Mark| {
        let x =
            u128::from(mark.saturating_sub(from)) * u128::from(WIDTH) / u128::from(window.max(1));
        u64::try_from(x).unwrap_or(WIDTH).min(WIDTH)
    };
    let visible: Vec<&Span> =
        spans.iter().filter(|span| span.to.is_none_or(|to| to >= from)).collect();
    let lanes = lanes(&visible);
    let mut bars: Vec<Bar> = Vec::new();
    for span in visible.iter().rev() {
        let Some(nth) = (0..).zip(&lanes).find(|(_, lane)| ***lane == span.lane) else { continue };
        let y = TOP + LANE * nth.0;
        let (class, top, height, what) = look(span.kind);
        let (x, end) = (x(span.from), x(span.to.unwrap_or(now)));
        let width = (end - x).max(2);
        let epoch = match span.kind {
            Kind::Leads(epoch) | Kind::Endangered(epoch) => format!("epoch {epoch}"),
            Kind::Waits | Kind::Paused => String::new(),
        };
        let label = if epoch.len() as u64 * 9 < width { epoch.clone() } else { String::new() };
        let bar = Bar {
            class,
            x,
            y: y + top,
            width,
            height,
            label,
            title: title(span, own, what, &epoch, now),
        };
        // What is too short to be seen is drawn once.
        let is_hidden = |one: &Bar| {
            (one.class, one.x, one.y) == (bar.class, bar.x, bar.y) && one.width >= bar.width
        };
        if bars.len() < BARS && !bars.last().is_some_and(is_hidden) {
            bars.push(bar);
        }
    }
    // Later ones lie upon earlier ones.
    bars.reverse();
    let names = (0..)
        .zip(&lanes)
        .map(|(nth, lane)| Name { y: TOP + LANE * nth + 12, name: name(lane, own) });
    let lanes: Vec<Name> = names.collect();
    let height = TOP + LANE * lanes.len().max(1) as u64 + 20;
    let times = [0, 1, 2, 3].map(|part| {
        let at = from + window / 4 * part;
        (WIDTH / 4 * part, clock(now.saturating_sub(at)))
    });
    Timeline { height, lanes, bars, times: times.into() }
}

/// Our own first, and then those that began something last.
fn lanes<'a>(spans: &[&'a Span]) -> Vec<&'a Lane> {
    let mut lanes: Vec<&Lane> = Vec::new();
    for span in spans.iter().rev() {
        if !lanes.contains(&&span.lane) {
            lanes.push(&span.lane);
        }
    }
    lanes.sort_by_key(|lane| **lane != Lane::Own);
    lanes.truncate(LANES);
    lanes
}

pub fn name(lane: &Lane, own: &str) -> String {
    match lane {
        Lane::Own => format!("{} (this instance)", cut(&shown_bytes(own.as_bytes()))),
        Lane::Other(value) => cut(&shown_bytes(value)),
    }
}

fn cut(name: &str) -> String {
    match name.char_indices().nth(NAME) {
        Some((end, _)) => format!("{}…", name.get(..end).unwrap_or_default()),
        None => name.to_owned(),
    }
}

fn look(kind: Kind) -> (&'static str, u64, u64, &'static str) {
    match kind {
        Kind::Waits => ("waits", 24, 6, "waits"),
        Kind::Leads(_) => ("leads", 17, 20, "leads"),
        Kind::Endangered(_) => ("endangered", 17, 20, "leads, and renewals fail,"),
        Kind::Paused => ("paused", 15, 24, "did not run"),
    }
}

fn title(one: &Span, own: &str, what: &str, epoch: &str, now: Mark) -> String {
    let of = if epoch.is_empty() { String::new() } else { format!(" in {epoch}") };
    let ago = |mark: Mark| clock(now.saturating_sub(mark));
    let lasted = span(one.to.unwrap_or(now).saturating_sub(one.from));
    let until = one.to.map_or_else(|| "and still does".into(), |to| format!("until {}", ago(to)));
    let because = one.reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
    format!(
        "{} {what}{of} from {} {until} ({lasted}){because}",
        name(&one.lane, own),
        ago(one.from)
    )
}

/// A line through what was left of the term at each renewal.
#[derive(Debug)]
pub struct Sparkline {
    /// `x,y x,y …`
    pub points: String,
    pub last: (u64, u64),
    pub sentence: String,
}

pub const SPARKLINE: (u64, u64) = (480, 60);

pub fn sparkline(renewals: &VecDeque<Renewal>) -> Option<Sparkline> {
    let (width, height) = SPARKLINE;
    let most = renewals.iter().map(|renewal| renewal.of).max()?.max(1);
    let steps = (renewals.len() as u64 - 1).max(1);
    let at = |(nth, renewal): (u64, &Renewal)| {
        let room = height - 8;
        let above = u128::from(renewal.left.min(most)) * u128::from(room) / u128::from(most);
        (4 + (width - 8) * nth / steps, 4 + room - u64::try_from(above).unwrap_or(room))
    };
    let points: Vec<(u64, u64)> = (0..).zip(renewals).map(at).collect();
    let least = renewals.iter().map(|renewal| renewal.left).min()?;
    let latest = renewals.back()?;
    let (last, of) = (span(latest.left), span(latest.of));
    let sentence = match renewals.len() {
        1 => format!("At the renewal, {last} of {of} were left."),
        many => {
            let least = span(least);
            format!(
                "At {many} renewals, at least {least} of {of} were left; at the last one {last}."
            )
        }
    };
    Some(Sparkline {
        last: *points.last()?,
        points: points.iter().map(|(x, y)| format!("{x},{y}")).collect::<Vec<_>>().join(" "),
        sentence,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Mark = 1_000_000_000;

    fn waits(lane: &str, from: Mark, to: Option<Mark>) -> Span {
        let lane = Lane::Other(lane.into());
        Span {
            lane,
            kind: Kind::Waits,
            from: from * SECOND,
            to: to.map(|to| to * SECOND),
            reason: None,
        }
    }

    fn drawn(spans: Vec<Span>) -> Timeline {
        timeline(&spans.into(), "me", 100 * SECOND, Duration::from_secs(80))
    }

    #[test]
    fn a_bar_is_where_its_time_is() {
        let drawn = drawn(vec![
            waits("gone", 0, Some(19)),
            waits("one", 0, Some(60)),
            waits("two", 60, None),
            waits("one", 99, Some(100)),
        ]);
        let bars: Vec<_> = drawn.bars.iter().map(|bar| (bar.x, bar.width)).collect();
        assert_eq!(bars, [(0, 400), (400, 400), (790, 10)]);
        let names: Vec<_> = drawn.lanes.iter().map(|lane| &*lane.name).collect();
        assert_eq!(names, ["one", "two"], "one began something last");
    }

    #[test]
    fn what_cannot_be_seen_is_not_drawn() {
        let many = |nth: Mark| waits(&format!("{}", nth % 20), nth / 200, Some(nth / 200));
        let drawn = drawn((0..20_000).map(many).collect());
        assert_eq!((drawn.lanes.len(), drawn.bars.len()), (LANES, BARS));
        assert!(drawn.bars.iter().all(|bar| bar.x > 0 && bar.width == 2));
    }

    #[test]
    fn a_renewal_is_as_high_as_what_was_left() {
        let renewal = |left| Renewal { left: left * SECOND, of: 10 * SECOND };
        assert!(sparkline(&VecDeque::new()).is_none());
        let one = sparkline(&[renewal(7)].into()).unwrap();
        assert_eq!(one.sentence, "At the renewal, 7.0 s of 10 s were left.");
        let line = sparkline(&[renewal(10), renewal(0), renewal(5)].into()).unwrap();
        assert_eq!((&*line.points, line.last), ("4,4 240,56 476,30", (476, 30)));
        assert!(line.sentence.contains("at least 0.0 s of 10 s"), "{}", line.sentence);
    }
}
