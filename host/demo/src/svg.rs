//! The picture as a file: the candidates' lives beside each other, as they were. Texts,
//! rectangles and lines, and colours for light and dark.

use std::fmt::Write;

use incumbent::Mark;

use super::notes::ms;
use super::picture::{Blow, Candidate, Picture, Term};
use super::timeline::{Happening, Kind, points, stretches};

const WIDTH: u64 = 960;
const LEFT: u64 = 76;
const RIGHT: u64 = 24;
/// Where the candidates begin, below the title and the captions.
const TOP: u64 = 144;
/// Captions stand below each other, for deeds may come soon after each other.
const CAPTIONS: u64 = 78;
const CAPTION: u64 = 18;
const LANE: u64 = 50;
const BAR: u64 = 26;
const SECOND: Mark = 1_000_000_000;

const STYLE: &str = "\
    text{font:13px system-ui,-apple-system,'Segoe UI',sans-serif;fill:#1f2328}\
    .card{fill:#fff;stroke:#d0d7de}.title{font-size:16px;font-weight:600}\
    .soft{fill:#59636e;font-size:12px}.name,.caption{font-weight:600}.caption{font-size:12px}.grid{stroke:#eaeef2}\
    .deed{stroke:#8c959f;stroke-dasharray:3 3}.waiting{fill:#d5dbe1}.asleep{fill:#d4a72c}\
    .leading{fill:#1a7f37}.lapsing{fill:#aceebb}.on{fill:#fff;font-weight:600}\
    .bad{stroke:#cf222e;stroke-width:3}.badtext{fill:#cf222e;font-weight:600}\
    @media(prefers-color-scheme:dark){text{fill:#e6edf3}.card{fill:#0d1117;stroke:#3d444d}\
    .soft{fill:#9198a1}.grid{stroke:#21262d}.deed{stroke:#656c76}.waiting{fill:#3d444d}\
    .asleep{fill:#bb8009}.leading{fill:#238636}.lapsing{fill:#1b4a2b}.on{fill:#fff}\
    .bad{stroke:#ff7b72}.badtext{fill:#ff7b72}}";

/// All that happened until `end`.
pub fn draw(picture: &Picture, end: Mark) -> String {
    let mut drawing = Drawing::new(picture.start, end);
    drawing.frame(picture);
    drawing.axis(picture.candidates.len());
    drawing.handovers(picture);
    for (candidate, nth) in picture.candidates.iter().zip(0..) {
        drawing.candidate(candidate, TOP + LANE * nth);
    }
    drawing.legend(TOP + LANE * lanes(picture) + 42);
    drawing.finish()
}

fn lanes(picture: &Picture) -> u64 {
    u64::try_from(picture.candidates.len()).unwrap_or(u64::MAX)
}

struct Drawing {
    text: String,
    start: Mark,
    end: Mark,
}

impl Drawing {
    fn new(start: Mark, end: Mark) -> Self {
        Self { text: String::new(), start, end: end.max(start + SECOND) }
    }

    fn x(&self, at: Mark) -> u64 {
        let since = at.clamp(self.start, self.end) - self.start;
        LEFT + since.saturating_mul(WIDTH - LEFT - RIGHT) / (self.end - self.start)
    }

    fn frame(&mut self, picture: &Picture) {
        let height = TOP + LANE * lanes(picture) + 64;
        // Writing to a string never fails, here and below.
        let _ = write!(
            self.text,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" \
             viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"Terms of leadership, \
             never two at once\">\n<style>{STYLE}</style>\n"
        );
        let (width, height) = (WIDTH - 1, height - 1);
        let _ = writeln!(
            self.text,
            "<rect class=\"card\" x=\".5\" y=\".5\" width=\"{width}\" height=\"{height}\" rx=\"8\"/>"
        );
        let epochs: Vec<String> =
            picture.terms().iter().map(|(_, term)| term.epoch.to_string()).collect();
        self.words(LEFT, 32, "title", "One office, never two leaders");
        let sentence = format!(
            "incumbent demo --script: epochs {}; {} writes accepted, {} refused",
            epochs.join(" < "),
            picture.accepted(),
            picture.refused()
        );
        self.words(LEFT, 52, "soft", &sentence);
    }

    fn axis(&mut self, candidates: usize) {
        let bottom = TOP + LANE * u64::try_from(candidates).unwrap_or(u64::MAX);
        let length = (self.end - self.start) / SECOND;
        let step = (length / 12).max(1);
        for second in (0..=length).step_by(usize::try_from(step).unwrap_or(usize::MAX)) {
            let x = self.x(self.start + second * SECOND);
            self.upright("grid", x, TOP - 8, bottom);
            self.centred(x, bottom + 16, "soft", &format!("{second} s"));
        }
    }

    /// What ended each term, and how soon another began.
    fn handovers(&mut self, picture: &Picture) {
        let terms = picture.terms();
        for (nth, pair) in terms.windows(2).enumerate() {
            let [(former, before), (next, after)] = pair else { continue };
            let Some((at, deed)) = deed(before) else { continue };
            let x = self.x(at);
            let y = CAPTIONS + CAPTION * u64::try_from(nth % 3).unwrap_or_default();
            self.upright("deed", x, y - 10, TOP + LANE * lanes(picture));
            let late = ms(at, after.from);
            let caption = format!("{} {deed}: {} leads {late} later", former.name, next.name);
            if x + 7 * length(&caption) < WIDTH {
                self.words(x + 6, y, "caption", &caption);
            } else {
                self.before(x - 6, y, "caption", &caption);
            }
        }
    }

    fn candidate(&mut self, candidate: &Candidate, y: u64) {
        self.words(20, y + 22, "name", &candidate.name);
        for stretch in stretches(candidate, self.end) {
            let (from, to) = (self.x(stretch.from), self.x(stretch.to));
            let (class, y, height) = match stretch.kind {
                Kind::Waiting => ("waiting", y + 14, 6),
                Kind::Asleep => ("asleep", y + 12, 10),
                Kind::Leading(_) => ("leading", y + 4, BAR),
                Kind::Lapsing => ("lapsing", y + 4, BAR),
            };
            let width = (to - from).max(2);
            let _ = writeln!(
                self.text,
                "<rect class=\"{class}\" x=\"{from}\" y=\"{y}\" width=\"{width}\" \
                 height=\"{height}\" rx=\"2\"/>"
            );
            if let Kind::Leading(epoch) = stretch.kind {
                let long = format!("epoch {epoch}");
                let fits = [long, epoch.to_string()]
                    .into_iter()
                    .find(|text| length(text) * 8 + 4 <= width);
                if let Some(label) = fits {
                    self.centred(from + width / 2, y + 18, "on", &label);
                }
            }
        }
        for point in points(candidate) {
            let (x, y) = (self.x(point.at), y + 17);
            match point.kind {
                Happening::Stopped => {}
                Happening::Killed => self.cross(x, y),
                Happening::Refused => {
                    self.cross(x, y);
                    // Beside the cross, on the side where there is room.
                    if x + 110 < WIDTH {
                        self.words(x + 10, y - 8, "badtext", "write refused");
                    } else {
                        self.before(x - 10, y - 8, "badtext", "write refused");
                    }
                }
            }
        }
    }

    fn legend(&mut self, y: u64) {
        let mut x = LEFT;
        for (class, label) in [
            ("leading", "leads"),
            ("lapsing", "dead or asleep, its lease runs out"),
            ("waiting", "waits in line"),
            ("asleep", "paused"),
        ] {
            let top = y - 10;
            let _ = writeln!(
                self.text,
                "<rect class=\"{class}\" x=\"{x}\" y=\"{top}\" width=\"14\" height=\"12\" rx=\"2\"/>"
            );
            self.words(x + 20, y, "soft", label);
            x += 50 + 6 * length(label);
        }
        self.cross(x + 6, y - 4);
        self.words(x + 20, y, "soft", "killed, or a write refused");
    }

    fn cross(&mut self, x: u64, y: u64) {
        let (left, right, top, bottom) = (x - 5, x + 5, y - 5, y + 5);
        let _ = writeln!(
            self.text,
            "<line class=\"bad\" x1=\"{left}\" y1=\"{top}\" x2=\"{right}\" y2=\"{bottom}\"/>\
             <line class=\"bad\" x1=\"{left}\" y1=\"{bottom}\" x2=\"{right}\" y2=\"{top}\"/>"
        );
    }

    fn upright(&mut self, class: &str, x: u64, top: u64, bottom: u64) {
        let _ = writeln!(
            self.text,
            "<line class=\"{class}\" x1=\"{x}\" y1=\"{top}\" x2=\"{x}\" y2=\"{bottom}\"/>"
        );
    }

    fn words(&mut self, x: u64, y: u64, class: &str, words: &str) {
        let words = escaped(words);
        let _ = writeln!(self.text, "<text class=\"{class}\" x=\"{x}\" y=\"{y}\">{words}</text>");
    }

    /// Ends at `x`.
    fn before(&mut self, x: u64, y: u64, class: &str, words: &str) {
        self.anchored(x, y, class, "end", words);
    }

    fn centred(&mut self, x: u64, y: u64, class: &str, words: &str) {
        self.anchored(x, y, class, "middle", words);
    }

    fn anchored(&mut self, x: u64, y: u64, class: &str, anchor: &str, words: &str) {
        let words = escaped(words);
        let _ = writeln!(
            self.text,
            "<text class=\"{class}\" x=\"{x}\" y=\"{y}\" text-anchor=\"{anchor}\">{words}</text>"
        );
    }

    fn finish(mut self) -> String {
        self.text.push_str("</svg>\n");
        self.text
    }
}

fn deed(term: &Term) -> Option<(Mark, &'static str)> {
    match term.blow? {
        Blow::Stop(at) => Some((at, "is stopped")),
        Blow::Kill(at) => Some((at, "is killed")),
        Blow::Pause(at) => Some((at, "is paused")),
    }
}

fn length(words: &str) -> u64 {
    u64::try_from(words.len()).unwrap_or_default()
}

fn escaped(words: &str) -> String {
    words.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::super::sample::{SECOND, story};
    use super::*;

    #[test]
    fn all_of_the_story_is_in_it() {
        let drawing = draw(&story(), 8 * SECOND);
        for part in [
            "epochs 10 &lt; 20; 4 writes accepted, 1 refused",
            ">ada</text>",
            ">ben</text>",
            ">ada is paused: ben leads 3,000 ms later</text>",
            ">epoch 10</text>",
            ">epoch 20</text>",
            ">write refused</text>",
            "class=\"lapsing\"",
            "class=\"asleep\"",
            "prefers-color-scheme:dark",
        ] {
            assert!(drawing.contains(part), "{part}: {drawing}");
        }
        // No font, script or picture from elsewhere.
        assert_eq!(drawing.matches("http").count(), 1, "{drawing}");
    }

    #[test]
    fn every_tag_is_closed_and_every_text_escaped() {
        let mut picture = story();
        picture.started("<&>\"", 4, 0);
        let drawing = draw(&picture, 8 * SECOND);
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
        assert!(draw(&Picture::new(5), 0).ends_with("</svg>\n"));
    }
}
