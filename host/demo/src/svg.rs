//! The record as a picture: the candidates' lives beside each other. Rectangles, lines and texts
//! with colours for light and dark; for these, a crate would be no shorter.

use std::fmt::Write;

use incumbent::Mark;

use crate::journal::ms;
use crate::record::{Action, Candidate, Record};
use crate::timeline::{Kind, timeline};

const WIDTH: u64 = 960;
const LEFT: u64 = 76;
const RIGHT: u64 = 24;
/// Where the candidates begin, below the title and the captions.
const TOP: u64 = 144;
/// Captions stand below each other, because one action may come soon after another.
const CAPTIONS: u64 = 78;
const CAPTION: u64 = 18;
const LANE: u64 = 50;
const BAR: u64 = 26;
const SECOND: Mark = 1_000_000_000;

const STYLE: &str = "\
    text{font:13px system-ui,-apple-system,'Segoe UI',sans-serif;fill:#1f2328}\
    .card{fill:#fff;stroke:#d0d7de}.title{font-size:16px;font-weight:600}\
    .soft{fill:#59636e;font-size:12px}.name,.caption{font-weight:600}.caption{font-size:12px}.grid{stroke:#eaeef2}\
    .action{stroke:#8c959f;stroke-dasharray:3 3}.waiting{fill:#d5dbe1}.paused{fill:#d4a72c}\
    .leading{fill:#1a7f37}.expiring{fill:#aceebb}.on{fill:#fff;font-weight:600}\
    .bad{stroke:#cf222e;stroke-width:3}.badtext{fill:#cf222e;font-weight:600}\
    @media(prefers-color-scheme:dark){text{fill:#e6edf3}.card{fill:#0d1117;stroke:#3d444d}\
    .soft{fill:#9198a1}.grid{stroke:#21262d}.action{stroke:#656c76}.waiting{fill:#3d444d}\
    .paused{fill:#bb8009}.leading{fill:#238636}.expiring{fill:#1b4a2b}.on{fill:#fff}\
    .bad{stroke:#ff7b72}.badtext{fill:#ff7b72}}";

/// All that happened until `end`.
pub fn draw(record: &Record, end: Mark) -> String {
    let lanes = u64::try_from(record.candidates.len()).unwrap_or(u64::MAX);
    let end = end.max(record.start + SECOND);
    let mut drawing =
        Drawing { text: String::new(), start: record.start, end, bottom: TOP + LANE * lanes };
    drawing.frame(record);
    drawing.axis();
    drawing.handovers(record);
    for (candidate, nth) in record.candidates.iter().zip(0..) {
        drawing.candidate(candidate, TOP + LANE * nth);
    }
    drawing.legend();
    drawing.text + "</svg>\n"
}

struct Drawing {
    text: String,
    start: Mark,
    end: Mark,
    /// Where the candidates end.
    bottom: u64,
}

impl Drawing {
    fn x(&self, at: Mark) -> u64 {
        let since = at.clamp(self.start, self.end) - self.start;
        LEFT + since.saturating_mul(WIDTH - LEFT - RIGHT) / (self.end - self.start)
    }

    fn frame(&mut self, record: &Record) {
        let height = self.bottom + 64;
        // Writing to a string never fails, here and below.
        let _ = write!(
            self.text,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" \
             viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"Terms of leadership, \
             never two at once\">\n<style>{STYLE}</style>\n\
             <rect class=\"card\" x=\".5\" y=\".5\" width=\"{}\" height=\"{}\" rx=\"8\"/>\n",
            WIDTH - 1,
            height - 1
        );
        self.text(LEFT, 32, "title", "start", "One election, never two leaders");
        let sentence = format!(
            "just demo --script: epochs {}; {} writes accepted, {} refused",
            record.epochs(),
            record.accepted(),
            record.refused()
        );
        self.text(LEFT, 52, "soft", "start", &sentence);
    }

    fn axis(&mut self) {
        let length = (self.end - self.start) / SECOND;
        let step = (length / 12).max(1);
        for second in (0..=length).step_by(usize::try_from(step).unwrap_or(usize::MAX)) {
            let x = self.x(self.start + second * SECOND);
            self.line("grid", (x, TOP - 8), (x, self.bottom));
            self.text(x, self.bottom + 16, "soft", "middle", &format!("{second} s"));
        }
    }

    /// What ended each term, and how soon another began.
    fn handovers(&mut self, record: &Record) {
        let terms = record.terms();
        let pairs = terms.iter().zip(terms.iter().skip(1));
        for (((former, before), (next, after)), row) in pairs.zip([0, 1, 2].into_iter().cycle()) {
            let Some((action, at)) = before.ended_by else { continue };
            let (x, y) = (self.x(at), CAPTIONS + CAPTION * row);
            self.line("action", (x, y - 10), (x, self.bottom));
            let done = match action {
                Action::Stop => "stopped",
                Action::Kill => "killed",
                Action::Pause | Action::Resume | Action::WriteLate => "paused",
            };
            let late = ms(at, after.from);
            let caption = format!("{} is {done}: {} leads {late} later", former.name, next.name);
            self.beside(x, 6, y, "caption", &caption);
        }
    }

    fn candidate(&mut self, candidate: &Candidate, y: u64) {
        self.text(20, y + 22, "name", "start", &candidate.name);
        for (from, to, kind) in timeline(candidate, self.end) {
            let (x, width) = (self.x(from), (self.x(to) - self.x(from)).max(2));
            match kind {
                Kind::Waiting => self.bar("waiting", x, y + 14, width, 6),
                Kind::Paused => self.bar("paused", x, y + 12, width, 10),
                Kind::Leading(epoch) => {
                    self.bar("leading", x, y + 4, width, BAR);
                    let labels = [format!("epoch {epoch}"), epoch.to_string()];
                    if let Some(label) = labels.iter().find(|label| length(label) * 8 + 4 <= width)
                    {
                        self.text(x + width / 2, y + 18, "on", "middle", label);
                    }
                }
                Kind::Expiring => self.bar("expiring", x, y + 4, width, BAR),
                Kind::Stopped => {}
                Kind::Killed => self.cross(x, y + 17),
                Kind::Refused => {
                    self.cross(x, y + 17);
                    self.beside(x, 10, y + 9, "badtext", "write refused");
                }
            }
        }
    }

    fn legend(&mut self) {
        let (mut x, y) = (LEFT, self.bottom + 42);
        for (class, label) in [
            ("leading", "leads"),
            ("expiring", "dead or paused, its lease runs out"),
            ("waiting", "waits in line"),
            ("paused", "paused"),
        ] {
            self.bar(class, x, y - 10, 14, 12);
            self.text(x + 20, y, "soft", "start", label);
            x += 50 + 6 * length(label);
        }
        self.cross(x + 6, y - 4);
        self.text(x + 20, y, "soft", "start", "killed, or a write refused");
    }

    fn cross(&mut self, x: u64, y: u64) {
        self.line("bad", (x - 5, y - 5), (x + 5, y + 5));
        self.line("bad", (x - 5, y + 5), (x + 5, y - 5));
    }

    fn bar(&mut self, class: &str, x: u64, y: u64, width: u64, height: u64) {
        let _ = writeln!(
            self.text,
            "<rect class=\"{class}\" x=\"{x}\" y=\"{y}\" width=\"{width}\" \
             height=\"{height}\" rx=\"2\"/>"
        );
    }

    fn line(&mut self, class: &str, (x1, y1): (u64, u64), (x2, y2): (u64, u64)) {
        let _ = writeln!(
            self.text,
            "<line class=\"{class}\" x1=\"{x1}\" y1=\"{y1}\" x2=\"{x2}\" y2=\"{y2}\"/>"
        );
    }

    /// On the side of `x` where there is room.
    fn beside(&mut self, x: u64, gap: u64, y: u64, class: &str, words: &str) {
        if x + gap + 7 * length(words) < WIDTH {
            self.text(x + gap, y, class, "start", words);
        } else {
            self.text(x - gap, y, class, "end", words);
        }
    }

    fn text(&mut self, x: u64, y: u64, class: &str, anchor: &str, words: &str) {
        let words = words.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
        let _ = writeln!(
            self.text,
            "<text class=\"{class}\" x=\"{x}\" y=\"{y}\" text-anchor=\"{anchor}\">\
             {words}</text>"
        );
    }
}

fn length(words: &str) -> u64 {
    u64::try_from(words.len()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{SECOND, story};

    #[test]
    fn all_of_the_story_is_in_it() {
        let drawing = draw(&story().record, 8 * SECOND);
        for part in [
            "epochs 10 &lt; 20; 4 writes accepted, 1 refused",
            ">ada</text>",
            ">ben</text>",
            ">ada is paused: ben leads 3,000 ms later</text>",
            ">epoch 10</text>",
            ">epoch 20</text>",
            ">write refused</text>",
            "class=\"expiring\"",
            "class=\"paused\"",
            "prefers-color-scheme:dark",
        ] {
            assert!(drawing.contains(part), "{part}: {drawing}");
        }
        // No font, script or picture from elsewhere.
        assert_eq!(drawing.matches("http").count(), 1, "{drawing}");
    }

    #[test]
    fn every_tag_is_closed_and_every_text_escaped() {
        let mut record = story().record;
        record.started("<&>\"", 4, 0);
        let drawing = draw(&record, 8 * SECOND);
        assert!(drawing.contains(">&lt;&amp;&gt;\"</text>"), "{drawing}");
        let mut open: Vec<&str> = Vec::new();
        for part in drawing.split('<').skip(1) {
            let (tag, text) = part.split_once('>').expect("a tag ends");
            assert!(!text.contains('>'), "{part}");
            let name = tag.split([' ', '/']).find(|name| !name.is_empty()).unwrap();
            if tag.starts_with('/') {
                assert_eq!(open.pop(), Some(name));
            } else if !tag.ends_with('/') {
                open.push(name);
            }
            assert_eq!(tag.matches('"').count() % 2, 0, "{tag}");
        }
        assert_eq!(open, Vec::<&str>::new());
    }

    #[test]
    fn a_picture_of_nothing_is_one_as_well() {
        assert!(draw(&Record { start: 5, ..Record::default() }, 0).ends_with("</svg>\n"));
    }
}
