//! The stories as a picture: a lane for each candidate. Rectangles, lines and texts, in the manner
//! of the demonstration's, without scripts and fonts.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use super::merge::Merged;
use super::story::{Kind, TermEnd, rfc3339};
use crate::text::shown_bytes;

const WIDTH: i128 = 960;
const LEFT: i128 = 180;
const RIGHT: i128 = 48;
const TOP: i128 = 64;
const LANE: i128 = 44;
/// How many lanes are drawn, each of which looks at all spans of its instance.
const LANES: usize = 200;
/// Into how many parts the time is divided, at most.
const MARKS: i128 = 8;

const STYLE: &str = "\
    text{font:13px system-ui,-apple-system,'Segoe UI',sans-serif;fill:#1f2328}\
    .card{fill:#fff;stroke:#d0d7de}.title{font-size:16px;font-weight:600}\
    .soft{fill:#59636e;font-size:12px}.grid{stroke:#eaeef2}.waiting{fill:#d5dbe1}\
    .paused{fill:#d4a72c}.leading{fill:#1a7f37}.endangered{fill:#bc4c00}\
    .on{fill:#fff;font-weight:600}.bad{stroke:#cf222e;stroke-width:3}\
    @media(prefers-color-scheme:dark){text{fill:#e6edf3}.card{fill:#0d1117;stroke:#3d444d}\
    .soft{fill:#9198a1}.grid{stroke:#21262d}.waiting{fill:#3d444d}.paused{fill:#bb8009}\
    .leading{fill:#238636}.endangered{fill:#db6d28}.on{fill:#fff}.bad{stroke:#ff7b72}}";

/// Draws all of it.
pub fn draw(merged: &Merged<'_>) -> String {
    let stories = merged.stories.iter().enumerate();
    let lanes: BTreeSet<(usize, &str)> = stories
        .clone()
        .flat_map(|(instance, story)| {
            story.spans.iter().map(move |span| (instance, span.election.as_str()))
        })
        .collect();
    let times = stories.filter_map(|(instance, story)| {
        Some((merged.time(instance, story.first?), merged.time(instance, story.last)))
    });
    let (mut from, mut to) = (i128::MAX, i128::MIN);
    for (first, last) in times {
        (from, to) = (from.min(first), to.max(last));
    }
    let from = from.min(to);
    let count = i128::try_from(lanes.len().min(LANES)).unwrap_or_default();
    let bottom = TOP + LANE * count;
    let mut drawing = Drawing { text: String::new(), from, to: to.max(from + 1), bottom };
    drawing.frame();
    for ((instance, election), nth) in lanes.into_iter().take(LANES).zip(0..) {
        drawing.lane(merged, (instance, election), TOP + LANE * nth);
    }
    drawing.legend();
    drawing.text + "</svg>\n"
}

struct Drawing {
    text: String,
    from: i128,
    to: i128,
    bottom: i128,
}

impl Drawing {
    fn x(&self, time: i128) -> i128 {
        let since = time.clamp(self.from, self.to) - self.from;
        LEFT + since * (WIDTH - LEFT - RIGHT) / (self.to - self.from)
    }

    fn frame(&mut self) {
        let height = self.bottom + 64;
        // Writing to a string never fails, here and below.
        let _ = write!(
            self.text,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" \
             viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"Who led, and when\">\n<style>{STYLE}</style>\n\
             <rect class=\"card\" x=\".5\" y=\".5\" width=\"{}\" height=\"{}\" rx=\"8\"/>\n",
            WIDTH - 1,
            height - 1
        );
        let (from, to) = (rfc3339(self.from), rfc3339(self.to));
        self.text(20, 30, "title", "start", &format!("{from} to {to}"));
        for part in 0..=MARKS {
            let time = self.from + (self.to - self.from) * part / MARKS;
            let (x, time) = (self.x(time), rfc3339(time));
            self.line("grid", (x, TOP - 8), (x, self.bottom));
            let time = time.get(11..21).unwrap_or(&time);
            self.text(x, self.bottom + 16, "soft", "middle", time);
        }
    }

    fn lane(&mut self, merged: &Merged<'_>, (instance, election): (usize, &str), y: i128) {
        let Some(story) = merged.stories.get(instance) else { return };
        let cut: String = story.identity().chars().take(22).collect();
        self.text(20, y + 16, "on-lane", "start", &cut);
        let cut: String = shown_bytes(election.as_bytes()).chars().take(24).collect();
        self.text(20, y + 32, "soft", "start", &cut);
        let order = [Kind::Waiting, Kind::Leading, Kind::Endangered, Kind::Paused];
        for kind in order {
            let spans = story.spans.iter().filter(|span| span.election == election);
            for span in spans.filter(|span| span.kind == kind) {
                let x = self.x(merged.time(instance, span.from));
                let width = (self.x(merged.time(instance, span.to)) - x).max(2);
                match kind {
                    Kind::Waiting => self.bar("waiting", (x, y + 14), (width, 6)),
                    Kind::Leading => self.bar("leading", (x, y + 4), (width, 26)),
                    Kind::Endangered => self.bar("endangered", (x, y + 24), (width, 6)),
                    Kind::Paused => self.bar("paused", (x, y + 8), (width, 8)),
                }
                if let Some(epoch) = span.epoch
                    && width > 60
                {
                    self.text(x + width / 2, y + 20, "on", "middle", &format!("epoch {epoch}"));
                }
            }
        }
        let terms = story.terms.iter().filter(|term| term.election == election);
        for _ in terms.filter(|term| term.end == TermEnd::Unknown) {
            let x = self.x(merged.time(instance, story.last));
            self.line("bad", (x - 5, y + 12), (x + 5, y + 22));
            self.line("bad", (x - 5, y + 22), (x + 5, y + 12));
        }
    }

    fn legend(&mut self) {
        let (mut x, y) = (LEFT, self.bottom + 42);
        for (class, label) in [
            ("leading", "leads"),
            ("endangered", "renewals fail"),
            ("waiting", "waits in line, or observes"),
            ("paused", "stood still"),
        ] {
            self.bar(class, (x, y - 10), (14, 12));
            self.text(x + 20, y, "soft", "start", label);
            x += 50 + 7 * i128::try_from(label.len()).unwrap_or_default();
        }
    }

    fn bar(&mut self, class: &str, (x, y): (i128, i128), (width, height): (i128, i128)) {
        let _ = writeln!(
            self.text,
            "<rect class=\"{class}\" x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" \
             rx=\"2\"/>"
        );
    }

    fn line(&mut self, class: &str, (x1, y1): (i128, i128), (x2, y2): (i128, i128)) {
        let _ = writeln!(
            self.text,
            "<line class=\"{class}\" x1=\"{x1}\" y1=\"{y1}\" x2=\"{x2}\" y2=\"{y2}\"/>"
        );
    }

    fn text(&mut self, x: i128, y: i128, class: &str, anchor: &str, words: &str) {
        let words = words.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
        let _ = writeln!(
            self.text,
            "<text class=\"{class}\" x=\"{x}\" y=\"{y}\" text-anchor=\"{anchor}\">{words}</text>"
        );
    }
}
