//! The picture on a terminal of any size.

use std::time::Duration;

use incumbent::Mark;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style, Stylize};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Borders, Paragraph};

use super::notes::{self, Note};
use super::picture::{Blow, Candidate, Picture, State, Term};
use super::timeline::{Happening, Kind, points, stretches};
use super::verdict::Verdict;

/// What the timeline shows, at least.
const SPAN: Mark = 30_000_000_000;

/// Below this, only who leads is shown.
const SMALLEST: (u16, u16) = (50, 15);

/// From here on, there is room for process numbers.
const WIDE: u16 = 95;

const HELP: &[(&str, &str)] = &[
    ("k", "kill"),
    ("s", "stop"),
    ("p", "pause"),
    ("r", "resume"),
    ("a", "add"),
    ("w", "write late"),
    ("↑↓", "choose"),
    ("q", "quit"),
];

/// What the user has chosen to see.
#[derive(Clone, Debug)]
pub struct View {
    title: String,
    /// Whom the keys are for; the leader if none is chosen.
    pub chosen: Option<usize>,
}

impl View {
    /// `title` says where it is played.
    pub fn new(title: impl Into<String>) -> Self {
        Self { title: title.into(), chosen: None }
    }

    /// Whom the keys are for.
    pub fn target(&self, picture: &Picture, now: Mark) -> Option<usize> {
        let last = || {
            let terms = picture.terms();
            let (candidate, _) = terms.last()?;
            picture.candidates.iter().position(|one| one.name == candidate.name)
        };
        self.chosen.or_else(|| picture.leading(now)).or_else(last).or(Some(0))
    }
}

pub fn draw(frame: &mut Frame<'_>, picture: &Picture, view: &View, now: Mark) {
    let area = frame.area();
    if area.width < SMALLEST.0 || area.height < SMALLEST.1 {
        let lines = vec![
            headline(picture, now),
            Line::from(format!("make the window larger than {} by {}", SMALLEST.0, SMALLEST.1)),
            help(),
        ];
        return frame.render_widget(Paragraph::new(lines), area);
    }
    // Candidates and timeline share what the rest leaves.
    let all = picture.candidates.len();
    let room = usize::from(area.height.saturating_sub(4 + 1 + 2 + 2 + 4)) / 2;
    let shown = all.min(room.max(1));
    let target = view.target(picture, now).unwrap_or(0);
    let first = (target + 1).saturating_sub(shown).min(all - shown);
    let rows: Vec<(usize, &Candidate)> =
        picture.candidates.iter().enumerate().skip(first).take(shown).collect();
    let height = u16::try_from(rows.len()).unwrap_or(u16::MAX);

    let [title, leader, candidates, timeline, notes, check, keys] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(3),
        Constraint::Length(height + 1),
        Constraint::Length(height + 2),
        Constraint::Min(3),
        Constraint::Length(1),
        Constraint::Length(1),
    ])
    .areas(area);
    let name = Line::from(vec![
        " incumbent demo ".bold().reversed(),
        " ".into(),
        view.title.as_str().dim(),
    ]);
    frame.render_widget(name, title);
    draw_leader(frame, leader, picture, now);
    draw_candidates(frame, candidates, picture, &rows, target, now);
    draw_timeline(frame, timeline, &rows, picture.start, now);
    draw_notes(frame, notes, picture);
    frame.render_widget(checked(picture), check);
    frame.render_widget(help(), keys);
}

/// A line across, with what comes below.
fn heading<'a>(title: impl Into<Line<'a>>) -> Block<'a> {
    Block::new().borders(Borders::TOP).border_style(Style::new().dim()).title(title)
}

fn draw_leader(frame: &mut Frame<'_>, area: Rect, picture: &Picture, now: Mark) {
    let lease = match picture.leading(now).and_then(|who| picture.get(who)?.term()) {
        Some(term) => {
            let width = usize::from(area.width.saturating_sub(34)).clamp(4, 40);
            let mut spans = vec![Span::from(" lease ")];
            spans.extend(bar(term, now, width));
            spans.push(format!(" {} left unless renewed", seconds_left(term, now)).into());
            Line::from(spans)
        }
        None => Line::from(format!(" {}", vacancy(picture, now))).dim(),
    };
    let mut writes = vec![
        format!(" {} accepted, ", counted(picture.accepted(), "write")).into(),
        refusals(picture.refused()),
    ];
    if let Some(counter) = picture.counter {
        writes.push(format!("; the counter in the store, when last read: {counter}").dim());
    }
    let writes = Line::from(writes);
    frame.render_widget(Paragraph::new(vec![headline(picture, now), lease, writes]), area);
}

fn headline(picture: &Picture, now: Mark) -> Line<'static> {
    let leader = picture.leading(now).and_then(|who| picture.get(who));
    match leader.and_then(|leader| Some((leader, leader.term()?))) {
        Some((leader, term)) => {
            let how = if leader.is_asleep() { ", but sleeps" } else { "" };
            Line::from(vec![
                format!(" {} leads in epoch {}", leader.name, term.epoch).green().bold(),
                format!(", for {}{how}", seconds(now.saturating_sub(term.from))).into(),
            ])
        }
        None => Line::from(" nobody leads".yellow().bold()),
    }
}

/// Why nobody leads.
fn vacancy(picture: &Picture, now: Mark) -> String {
    let terms = picture.terms();
    let Some((former, term)) = terms.last() else { return "the first one is on its way".into() };
    if !picture.candidates.iter().any(Candidate::is_alive) {
        return "nobody is there: a brings somebody in".into();
    }
    if let Some(Blow::Stop(_)) = term.blow {
        return "the next one is on its way".into();
    }
    let left = term.end().saturating_sub(now);
    if left > 0 {
        format!("{}'s lease keeps the others out, for {} more", former.name, seconds(left))
    } else {
        format!(
            "{}'s own deadline passed {} ago; the store is about to end its lease",
            former.name,
            seconds(now.saturating_sub(term.end()))
        )
    }
}

fn draw_candidates(
    frame: &mut Frame<'_>,
    area: Rect,
    picture: &Picture,
    rows: &[(usize, &Candidate)],
    target: usize,
    now: Mark,
) {
    let hidden = picture.candidates.len() - rows.len();
    let more = if hidden > 0 { format!(", {hidden} more: ↑↓") } else { String::new() };
    let title = format!(" candidates (keys are for ▸, the leader unless you choose{more}) ");
    let lines: Vec<Line<'_>> = rows
        .iter()
        .map(|(who, candidate)| {
            row(picture, *who, candidate, *who == target, area.width >= WIDE, now)
        })
        .collect();
    frame.render_widget(Paragraph::new(lines).block(heading(title)), area);
}

fn row<'a>(
    picture: &Picture,
    who: usize,
    candidate: &'a Candidate,
    is_target: bool,
    is_wide: bool,
    now: Mark,
) -> Line<'a> {
    let state = candidate.state(now);
    let cursor = if is_target { "▸" } else { " " };
    let place = picture.line.iter().position(|place| place.name == candidate.name);
    let doing = match (state, place) {
        (State::Waiting, Some(place)) if place > 0 => format!("{} in line", ordinal(place + 1)),
        _ => notes::doing(state).to_owned(),
    };
    let mut spans = vec![
        format!("{cursor}{} ", who + 1).into(),
        Span::styled(format!("{:<5}", candidate.name), Modifier::BOLD),
        Span::styled(format!("{doing:<11}"), style(state)),
    ];
    match candidate.term().filter(|term| term.is_on(now) && candidate.is_alive()) {
        Some(term) => {
            spans.push(format!("epoch {:<7}", term.epoch).into());
            spans.extend(bar(term, now, 10));
            spans.push(format!(" {:<6}", seconds_left(term, now)).into());
        }
        None => spans.push(" ".repeat(30).into()),
    }
    spans.push(format!("{:>10}, ", counted(candidate.accepted(), "write")).into());
    spans.push(refusals(candidate.refused()));
    if candidate.is_alive() && is_wide {
        spans.push(format!("  process {}", candidate.pid).dim());
    }
    Line::from(spans)
}

fn refusals(refused: usize) -> Span<'static> {
    let text = format!("{refused} refused");
    if refused > 0 { text.magenta().bold() } else { text.into() }
}

/// What is left of a lease.
fn bar(term: &Term, now: Mark, width: usize) -> [Span<'static>; 2] {
    let length = nanoseconds(term.length).max(1);
    let left = u128::from(term.end().saturating_sub(now).min(length));
    let cells = usize::try_from(left * width as u128 / u128::from(length)).unwrap_or(width);
    let color = if cells * 3 > width { Color::Green } else { Color::Yellow };
    [
        Span::styled("█".repeat(cells), color),
        Span::styled("░".repeat(width.saturating_sub(cells)), Modifier::DIM),
    ]
}

fn draw_timeline(
    frame: &mut Frame<'_>,
    area: Rect,
    rows: &[(usize, &Candidate)],
    start: Mark,
    now: Mark,
) {
    let legend = " terms   █ leads  ▒ its lease runs out  ─ waits  z paused  ✗ killed  ! refused ";
    let width = usize::from(area.width.saturating_sub(7)).max(1);
    let scale = Scale::new(width, start, now);
    let mut lines: Vec<Line<'_>> = rows
        .iter()
        .map(|(_, candidate)| {
            let mut spans = vec![Span::styled(format!("  {:<5}", candidate.name), Modifier::BOLD)];
            spans.extend(cells(candidate, &scale, now));
            Line::from(spans)
        })
        .collect();
    let left = scale.first.saturating_mul(scale.cell).saturating_sub(start);
    let (from, to) = (seconds(left), "now");
    let between = " ".repeat(width.saturating_sub(from.len() + to.len()));
    lines.push(Line::from(format!("       {from}{between}{to}")).dim());
    frame.render_widget(Paragraph::new(lines).block(heading(legend)), area);
}

/// Cells begin at multiples of their length, so that what is drawn stands still until
/// all of it moves.
struct Scale {
    cell: Mark,
    /// The number of the first one that is shown.
    first: Mark,
    width: usize,
}

impl Scale {
    fn new(width: usize, start: Mark, now: Mark) -> Self {
        let columns = u64::try_from(width).unwrap_or(1).max(1);
        let cell = (SPAN / columns).max(1);
        // From the left at first, and then along.
        let first = (now / cell + 1).saturating_sub(columns).max(start / cell);
        Self { cell, first, width }
    }

    fn column(&self, at: Mark) -> Option<usize> {
        let column = usize::try_from((at / self.cell).checked_sub(self.first)?).ok()?;
        (column < self.width).then_some(column)
    }
}

fn cells(candidate: &Candidate, scale: &Scale, now: Mark) -> Vec<Span<'static>> {
    let mut cells: Vec<(char, Style)> = vec![(' ', Style::new()); scale.width];
    for stretch in stretches(candidate, now) {
        let from = scale.column(stretch.from.max(scale.first.saturating_mul(scale.cell)));
        let to = scale.column(stretch.to);
        let (Some(from), Some(to)) = (from, to) else { continue };
        let look = match stretch.kind {
            Kind::Waiting => ('─', Style::new().dim()),
            Kind::Asleep => ('z', Style::new().yellow()),
            Kind::Leading(_) => ('█', Style::new().green()),
            Kind::Lapsing => ('▒', Style::new().green()),
        };
        for cell in cells.iter_mut().take(to + 1).skip(from) {
            *cell = look;
        }
        if let Kind::Leading(epoch) = stretch.kind {
            let label = epoch.to_string();
            if label.len() < to - from {
                let style = Style::new().green().reversed().bold();
                for (cell, digit) in cells.iter_mut().skip(from + 1).zip(label.chars()) {
                    *cell = (digit, style);
                }
            }
        }
    }
    for point in points(candidate) {
        let Some(cell) = scale.column(point.at).and_then(|column| cells.get_mut(column)) else {
            continue;
        };
        *cell = match point.kind {
            Happening::Stopped => ('|', Style::new()),
            Happening::Killed => ('✗', Style::new().red().bold()),
            Happening::Refused => ('!', Style::new().magenta().bold()),
        };
    }
    cells.into_iter().map(|(cell, style)| Span::styled(cell.to_string(), style)).collect()
}

/// The newest, as many as there is room for, in the order in which they happened.
fn draw_notes(frame: &mut Frame<'_>, area: Rect, picture: &Picture) {
    let block = heading(" what happened, and why that was safe ");
    let room = usize::from(block.inner(area).height);
    let mut lines: Vec<Line<'_>> = Vec::new();
    for note in picture.notes.iter().rev() {
        let mut told = told(note, picture.start, usize::from(area.width));
        // Newest last, and the oldest line goes first.
        told.extend(lines);
        lines = told;
        if lines.len() >= room {
            break;
        }
    }
    let lines: Vec<Line<'_>> = lines.split_off(lines.len().saturating_sub(room));
    frame.render_widget(Paragraph::new(lines).block(block), area);
}

fn told(note: &Note, start: Mark, width: usize) -> Vec<Line<'static>> {
    let style = match note.kind {
        notes::Kind::Elected => Style::new().green(),
        notes::Kind::Deed => Style::new().yellow(),
        notes::Kind::Refused => Style::new().magenta().bold(),
        notes::Kind::News | notes::Kind::Remark => Style::new(),
        notes::Kind::Wrong => Style::new().red().bold().reversed(),
    };
    let at = format!("{:>8} ", seconds(note.at.saturating_sub(start)));
    let room = width.saturating_sub(at.len() + 1);
    let mut lines = Vec::new();
    for (nth, part) in wrapped(&note.what, room).into_iter().enumerate() {
        let margin = if nth == 0 { at.clone() } else { " ".repeat(at.len()) };
        lines.push(Line::from(vec![margin.dim(), Span::styled(part, style)]));
    }
    for part in note.why.iter().flat_map(|why| wrapped(why, room)) {
        lines.push(Line::from(format!("{}{part}", " ".repeat(at.len()))));
    }
    lines
}

fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            Some(_) | None => lines.push(word.to_owned()),
        }
    }
    lines
}

fn checked(picture: &Picture) -> Line<'static> {
    let verdict = Verdict::so_far(picture);
    match verdict.faults.first() {
        Some(fault) => Line::from(format!(" NOT AS PROMISED: {fault} ").red().bold().reversed()),
        None => Line::from(vec![
            " as promised so far:".green().bold(),
            format!(
                " {}, never two at once, and epochs only rise",
                counted(picture.terms().len(), "term")
            )
            .into(),
        ]),
    }
}

fn help() -> Line<'static> {
    let mut spans = Vec::new();
    for (key, does) in HELP {
        spans.push(" ".into());
        spans.push(Span::styled(*key, Modifier::REVERSED));
        spans.push(format!(" {does} ").into());
    }
    Line::from(spans)
}

fn style(state: State) -> Style {
    match state {
        State::Leading => Style::new().green().bold(),
        State::Asleep => Style::new().yellow().bold(),
        State::Killed => Style::new().red(),
        State::Starting | State::Waiting | State::Stopping | State::Stopped => Style::new(),
    }
}

fn counted(number: usize, what: &str) -> String {
    if number == 1 { format!("1 {what}") } else { format!("{number} {what}s") }
}

fn ordinal(place: usize) -> String {
    match place {
        2 => "2nd".into(),
        3 => "3rd".into(),
        place => format!("{place}th"),
    }
}

fn seconds_left(term: &Term, now: Mark) -> String {
    seconds(term.end().saturating_sub(now))
}

/// To a tenth.
fn seconds(nanoseconds: u64) -> String {
    let tenths = nanoseconds / 100_000_000;
    format!("{}.{} s", tenths / 10, tenths % 10)
}

fn nanoseconds(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::super::report::Outcome;
    use super::super::sample::{SECOND, answered, asked, elected, story};
    use super::*;

    /// What a terminal of this size shows, line by line.
    fn shown(picture: &Picture, now: Mark, width: u16, height: u16) -> Vec<String> {
        let view = View::new("election demo-1 on etcd://127.0.0.1:2379");
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(frame, picture, &view, now)).unwrap();
        let buffer = terminal.backend().buffer();
        let row = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>();
        (0..height).map(|y| row(y).trim_end().to_owned()).collect()
    }

    #[track_caller]
    fn has(lines: &[String], part: &str) {
        assert!(lines.iter().any(|line| line.contains(part)), "{part} in {lines:#?}");
    }

    #[test]
    fn eighty_by_twenty_four_shows_it_all() {
        let lines = shown(&story(), 6 * SECOND + SECOND / 2, 80, 24);
        assert_eq!(lines[0], " incumbent demo  election demo-1 on etcd://127.0.0.1:2379");
        assert_eq!(lines[1], " ben leads in epoch 20, for 1.5 s");
        assert_eq!(
            lines[2],
            format!(" lease {}{} 0.5 s left unless renewed", "█".repeat(10), "░".repeat(30))
        );
        assert_eq!(lines[3], " 4 writes accepted, 1 refused");
        assert_eq!(
            lines[5],
            " 1 ada  waiting                                    2 writes, 1 refused"
        );
        assert_eq!(
            lines[6],
            "▸2 ben  LEADS      epoch 20     ██░░░░░░░░ 0.5 s   2 writes, 0 refused"
        );
        assert_eq!(lines[8], "  ada  ──██▒▒▒▒▒▒zzzz!─");
        assert_eq!(lines[9], "  ben  ────────────█20█");
        has(&lines, "6.0 s The store refuses ada's write in epoch 10");
        has(&lines, "That is gone, and ben");
        assert_eq!(
            lines[22],
            " as promised so far: 2 terms, never two at once, and epochs only rise"
        );
        assert_eq!(
            lines[23],
            " k kill  s stop  p pause  r resume  a add  w write late  ↑↓ choose  q quit"
        );
    }

    #[test]
    fn a_gap_is_explained() {
        let mut picture = story();
        picture.killed(1, 6 * SECOND + SECOND / 2);
        let lines = shown(&picture, 6 * SECOND + SECOND / 2, 80, 24);
        assert_eq!(lines[1], " nobody leads");
        assert_eq!(lines[2], " ben's lease keeps the others out, for 0.5 s more");
        has(&lines, "▸2 ben  killed");
        let lines = shown(&picture, 8 * SECOND, 80, 24);
        assert_eq!(
            lines[2],
            " ben's own deadline passed 1.0 s ago; the store is about to end its lease"
        );
        has(&lines, "✗▒▒");
    }

    #[test]
    fn what_must_never_be_cannot_be_overlooked() {
        let mut picture = story();
        elected(&mut picture, 0, 6 * SECOND, 30, 8 * SECOND);
        let lines = shown(&picture, 6 * SECOND, 100, 24);
        has(&lines, "NOT AS PROMISED: two at once: ada led from epoch 30 on while ben still led");
        has(&lines, "TWO AT ONCE");
        let mut picture = story();
        asked(&mut picture, 0, 10, 9, true);
        answered(&mut picture, 0, 10, 9, Outcome::Accepted { revision: 99 });
        let lines = shown(&picture, 6 * SECOND, 80, 24);
        has(&lines, "NOT AS PROMISED: the store took ada's write in epoch 10");
    }

    #[test]
    fn nine_candidates_have_room() {
        let mut picture = story();
        for name in ["cleo", "dora", "emil", "fay", "gus", "hana", "ivo"] {
            picture.started(name, 9, SECOND);
        }
        let lines = shown(&picture, 6 * SECOND, 80, 24);
        has(&lines, "▸2 ben");
        has(&lines, "4 more: ↑↓");
        has(&lines, "what happened");
        has(&lines, "q quit");
        let lines = shown(&picture, 6 * SECOND, 80, 40);
        has(&lines, " 9 ivo");
        has(&lines, "  ivo ");
    }

    #[test]
    fn no_size_is_too_small() {
        let mut many = story();
        for nth in 0..7 {
            many.started(&format!("c{nth}"), 9, SECOND);
        }
        for picture in [Picture::new(0), story(), many] {
            for width in [1, 2, 7, 20, 49, 50, 60, 80, 200] {
                for height in [1, 2, 3, 14, 15, 16, 18, 24, 60] {
                    for now in [0, SECOND, 6 * SECOND, 100 * SECOND] {
                        shown(&picture, now, width, height);
                    }
                }
            }
        }
        has(&shown(&story(), 6 * SECOND, 40, 5), "ben leads in epoch 20");
    }

    #[test]
    fn the_timeline_moves_along() {
        let lines = shown(&story(), 34 * SECOND, 80, 24);
        assert!(lines[8].starts_with("  ada  zzz"), "{}", lines[8]);
        has(&lines, "       4.1 s ");
    }
}
