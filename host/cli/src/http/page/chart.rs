//! The pictures of the page: where their rectangles and lines are. The template draws them.

use std::cmp::Reverse;
use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use incumbent::Mark;

use super::{clock, span};
use crate::instance::history::{Kind, Lane, Renewal, Seen, Span};
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
    /// Left of that, nothing is known, or not all is drawn.
    pub blank: u64,
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

/// What is drawn.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    pub seen: &'a Seen,
    /// The name of this instance.
    pub own: &'a str,
    /// When it began to look.
    pub began: Mark,
    /// Until when the store has told of others.
    pub known: Mark,
    pub now: Mark,
    pub window: Duration,
}

/// Draws what was seen in the time before `now`.
pub fn timeline(view: View<'_>) -> Timeline {
    let View { seen, own, now, .. } = view;
    let window = u64::try_from(view.window.as_nanos()).unwrap_or(Mark::MAX);
    let from = now.saturating_sub(window);
    let x = |mark: Mark| {
        let x =
            u128::from(mark.saturating_sub(from)) * u128::from(WIDTH) / u128::from(window.max(1));
        u64::try_from(x).unwrap_or(WIDTH).min(WIDTH)
    };
    let is_visible = |span: &&Span| span.to.is_none_or(|to| to >= from);
    let mut visible: Vec<&Span> = seen.spans.iter().filter(is_visible).collect();
    // What goes on is drawn in any case, and then what ended last.
    visible.sort_by_key(|span| Reverse(span.to.unwrap_or(Mark::MAX)));
    let lanes = lanes(&visible, seen.leader.as_ref().map(|leader| &leader.lane));
    let mut bars: Vec<Bar> = Vec::new();
    // What is too short to be seen is drawn once.
    let mut drawn = BTreeSet::new();
    let mut blank = x(view.began.max(seen.forgotten));
    for span in visible {
        let Some(nth) = lanes.iter().position(|lane| **lane == span.lane) else { continue };
        let y = TOP + LANE * nth as u64;
        let (class, top, height, _) = look(span.kind);
        let end = span.to.unwrap_or(if span.lane == Lane::Own { now } else { view.known });
        let (x, width) = (x(span.from), (x(end) - x(span.from).min(x(end))).max(2));
        if width == 2 && !drawn.insert((class, nth, x / 2)) {
            continue;
        }
        if bars.len() == BARS {
            blank = blank.max(x + width);
            break;
        }
        let epoch = match span.kind {
            Kind::Leads(epoch) | Kind::Endangered(epoch) => format!("epoch {epoch}"),
            Kind::Waits | Kind::Paused => String::new(),
        };
        let title = title(span, view, &epoch);
        let label = if epoch.len() as u64 * 9 < width { epoch } else { String::new() };
        bars.push(Bar { class, x, y: y + top, width, height, label, title });
    }
    // Later ones lie upon earlier ones.
    bars.sort_by_key(|bar| bar.x);
    let named = (0..).zip(&lanes);
    let lanes = named.map(|(nth, lane)| Name { y: TOP + LANE * nth + 12, name: name(lane, own) });
    let lanes: Vec<Name> = lanes.collect();
    let height = TOP + LANE * lanes.len().max(1) as u64 + 20;
    let times = [0, 1, 2, 3].map(|part| {
        let at = from + window / 4 * part;
        (WIDTH / 4 * part, clock(now.saturating_sub(at)))
    });
    Timeline { height, lanes, bars, blank, times: times.into() }
}

/// Our own first, then the leader's, and then those that did something last.
fn lanes<'a>(spans: &[&'a Span], leader: Option<&'a Lane>) -> Vec<&'a Lane> {
    let is_there = |lane: &&Lane| spans.iter().any(|span| span.lane == **lane);
    let mut lanes: Vec<&Lane> = [Some(&Lane::Own), leader].into_iter().flatten().collect();
    lanes.dedup();
    lanes.retain(is_there);
    for span in spans {
        if lanes.len() < LANES && !lanes.contains(&&span.lane) {
            lanes.push(&span.lane);
        }
    }
    lanes
}

fn name(lane: &Lane, own: &str) -> String {
    match lane {
        Lane::Own => format!("{} (this instance)", cut(&shown_bytes(own.as_bytes()))),
        Lane::Other(name) => cut(name),
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

fn title(one: &Span, view: View<'_>, epoch: &str) -> String {
    let View { own, now, known, .. } = view;
    let (.., what) = look(one.kind);
    let of = if epoch.is_empty() { String::new() } else { format!(" in {epoch}") };
    let ago = |mark: Mark| clock(now.saturating_sub(mark));
    let (end, until) = match one.to {
        Some(to) => (to, format!("until {}", ago(to))),
        None if one.lane != Lane::Own && known < now => {
            (known, "and still did when the store answered last".into())
        }
        None => (now, "and still does".into()),
    };
    let lasted = span(end.saturating_sub(one.from));
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
        let mut seen = Seen::default();
        seen.spans = spans.into();
        let (now, known, window) = (100 * SECOND, 90 * SECOND, Duration::from_secs(80));
        timeline(View { seen: &seen, own: "me", began: 30 * SECOND, known, now, window })
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
        assert_eq!(bars, [(0, 400), (400, 300), (790, 10)], "the store is silent since 90 s");
        assert!(drawn.bars[1].title.contains("still did when the store answered last"));
        let names: Vec<_> = drawn.lanes.iter().map(|lane| &*lane.name).collect();
        assert_eq!(names, ["two", "one"], "two goes on");
        assert_eq!(drawn.blank, 100, "it began to look at 30 s");
    }

    #[test]
    fn the_leader_and_what_goes_on_are_always_drawn() {
        let many =
            |nth: Mark| waits(&format!("{}", nth % 20), 30 + nth / 300, Some(30 + nth / 300));
        let mut spans: Vec<_> = (0..20_000).map(many).collect();
        spans.insert(0, waits("leader", 1, None));
        let leader = spans[0].lane.clone();
        spans.insert(0, Span { lane: Lane::Own, ..waits("", 1, None) });
        let drawn = drawn(spans.clone());
        assert_eq!((drawn.lanes.len(), drawn.bars.len()), (LANES, BARS));
        assert_eq!(
            (&*drawn.lanes[0].name, &*drawn.lanes[1].name),
            ("me (this instance)", "leader")
        );
        assert_eq!(drawn.bars.iter().filter(|bar| bar.width > 2).count(), 2);
        assert!(drawn.blank > 100 && drawn.bars[2].x <= drawn.blank, "the rest is not drawn");
        let leaders = lanes(&spans.iter().rev().collect::<Vec<_>>(), Some(&leader));
        assert_eq!(leaders[1], &leader);
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
