//! The journal on a terminal of any size.

use incumbent::Mark;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style, Stylize};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Borders, Paragraph};

use crate::journal::{self, Journal, Note};
use crate::record::{Action, Candidate, Record, Term};
use crate::timeline::{Kind, timeline};
use crate::verdict::Verdict;

/// What the timeline shows, at least.
const SPAN: Mark = 30_000_000_000;

/// Below this, only the leader is shown.
const SMALLEST: (u16, u16) = (50, 15);

/// From here on, there is space for process numbers.
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
    /// Where it takes place.
    pub title: String,
    /// The candidate that the keys are for; the leader if none is chosen.
    pub chosen: Option<usize>,
}

impl View {
    /// The candidate that the keys are for.
    pub fn target(&self, record: &Record, now: Mark) -> usize {
        let leader = || record.leading(now).map(|(who, ..)| who);
        let last = || record.terms().last().and_then(|(former, _)| record.named(&former.name));
        self.chosen.or_else(leader).or_else(last).unwrap_or(0)
    }
}

pub fn draw(frame: &mut Frame<'_>, journal: &Journal, view: &View, now: Mark) {
    let area = frame.area();
    let record = &journal.record;
    if area.width < SMALLEST.0 || area.height < SMALLEST.1 {
        let larger = format!("make the window larger than {} by {}", SMALLEST.0, SMALLEST.1);
        let lines = vec![headline(record, now), larger.into(), help()];
        return frame.render_widget(Paragraph::new(lines), area);
    }
    // Candidates and timeline share what the rest leaves.
    let all = record.candidates.len();
    let space = usize::from(area.height.saturating_sub(4 + 1 + 2 + 2 + 4)) / 2;
    let shown = all.min(space.max(1));
    let target = view.target(record, now);
    let first = (target + 1).saturating_sub(shown).min(all - shown);
    let rows: Vec<(usize, &Candidate)> =
        record.candidates.iter().enumerate().skip(first).take(shown).collect();
    let height = u16::try_from(rows.len()).unwrap_or(u16::MAX);

    let [title, leader, candidates, terms, notes, check, keys] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(3),
        Constraint::Length(height + 1),
        Constraint::Length(height + 2),
        Constraint::Min(3),
        Constraint::Length(1),
        Constraint::Length(1),
    ])
    .areas(area);
    let name = " incumbent demo ".bold().reversed();
    frame.render_widget(Line::from(vec![name, " ".into(), view.title.as_str().dim()]), title);
    frame.render_widget(summary(record, leader.width, now), leader);

    let hidden = all - shown;
    let more = if hidden > 0 { format!(", {hidden} more: ↑↓") } else { String::new() };
    let heading = format!(" candidates (keys are for ▸, the leader unless you choose{more}) ");
    let is_wide = area.width >= WIDE;
    let lines = rows.iter().map(|(who, candidate)| {
        let cursor = format!("{}{} ", if *who == target { "▸" } else { " " }, who + 1).into();
        row(record, candidate, cursor, is_wide, now)
    });
    frame.render_widget(below(heading, lines.collect()), candidates);

    let legend = " terms   █ leads  ▒ its lease runs out  ─ waits  z paused  ✗ killed  ! refused ";
    let scale = Scale::new(terms.width, record.start, now);
    let lanes = rows.iter().map(|(_, candidate)| lane(candidate, &scale, now));
    let lines = lanes.chain([axis(&scale, record.start)]).collect();
    frame.render_widget(below(legend, lines), terms);

    draw_notes(frame, notes, journal);
    frame.render_widget(checked(record), check);
    frame.render_widget(help(), keys);
}

/// Below a line across, with a title.
fn below<'a>(title: impl Into<Line<'a>>, lines: Vec<Line<'a>>) -> Paragraph<'a> {
    let border = Block::new().borders(Borders::TOP).border_style(Style::new().dim());
    Paragraph::new(lines).block(border.title(title))
}

/// Who leads, for how long, and how much was written.
fn summary(record: &Record, width: u16, now: Mark) -> Paragraph<'static> {
    let lease = match record.leading(now) {
        Some((.., term)) => {
            let width = usize::from(width.saturating_sub(34)).clamp(4, 40);
            let [left, gone] = bar(term, now, width);
            let time = format!(" {} left unless renewed", left_of(term, now));
            Line::from(vec![" lease ".into(), left, gone, time.into()])
        }
        None => Line::from(format!(" {}", vacancy(record, now))).dim(),
    };
    let accepted = format!(" {} accepted, ", counted(record.accepted(), "write"));
    let mut writes = vec![accepted.into(), refusals(record.refused())];
    if let Some(counter) = record.counter {
        writes.push(format!("; the counter in the store, when last read: {counter}").dim());
    }
    Paragraph::new(vec![headline(record, now), lease, writes.into()])
}

fn headline(record: &Record, now: Mark) -> Line<'static> {
    let Some((_, leader, term)) = record.leading(now) else {
        return Line::from(" nobody leads".yellow().bold());
    };
    let how = if leader.is_paused() { ", but sleeps" } else { "" };
    Line::from(vec![
        format!(" {} leads in epoch {}", leader.name, term.epoch).green().bold(),
        format!(", for {}{how}", seconds(now.saturating_sub(term.from))).into(),
    ])
}

/// Why nobody leads.
fn vacancy(record: &Record, now: Mark) -> String {
    let terms = record.terms();
    let Some((former, term)) = terms.last() else { return "the first one is on its way".into() };
    if !record.candidates.iter().any(Candidate::is_alive) {
        return "nobody is there: a brings somebody in".into();
    }
    if let Some((Action::Stop, _)) = term.ended_by {
        return "the next one is on its way".into();
    }
    let whose = &former.name;
    if term.is_on(now) {
        return format!("{whose}'s lease keeps the others out, for {} more", left_of(term, now));
    }
    let ago = seconds(now.saturating_sub(term.end()));
    format!("{whose}'s own deadline passed {ago} ago; the store is about to end its lease")
}

fn row<'a>(
    record: &Record,
    candidate: &'a Candidate,
    cursor: Span<'a>,
    is_wide: bool,
    now: Mark,
) -> Line<'a> {
    let (doing, style) = doing(record, candidate, now);
    let mut spans = vec![
        cursor,
        format!("{:<5}", candidate.name).bold(),
        Span::styled(format!("{doing:<11}"), style),
    ];
    match candidate.leads(now).filter(|_| candidate.is_alive()) {
        Some(term) => {
            spans.push(format!("epoch {:<7}", term.epoch).into());
            spans.extend(bar(term, now, 10));
            spans.push(format!(" {:<6}", left_of(term, now)).into());
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

/// What a candidate is doing, in a word or two.
fn doing(record: &Record, candidate: &Candidate, now: Mark) -> (String, Style) {
    let Some(life) = candidate.life() else { return Default::default() };
    let place = record.queue.iter().position(|place| place.name == candidate.name);
    let (doing, style) = if life.killed.is_some() {
        ("killed", Style::new().red())
    } else if life.ended.is_some() {
        ("gone", Style::new())
    } else if candidate.is_paused() {
        ("paused", Style::new().yellow().bold())
    } else if life.asked.is_some() {
        ("stopping", Style::new())
    } else if candidate.leads(now).is_some() {
        ("LEADS", Style::new().green().bold())
    } else if life.joined.is_none() {
        ("starting", Style::new())
    } else {
        match place.map_or(1, |place| place + 1) {
            1 => ("waiting", Style::new()),
            2 => ("2nd in line", Style::new()),
            3 => ("3rd in line", Style::new()),
            place => return (format!("{place}th in line"), Style::new()),
        }
    };
    (doing.into(), style)
}

fn refusals(refused: usize) -> Span<'static> {
    let text = format!("{refused} refused");
    if refused > 0 { text.magenta().bold() } else { text.into() }
}

/// What is left of a lease.
fn bar(term: &Term, now: Mark, width: usize) -> [Span<'static>; 2] {
    let length = term.length.max(1);
    let left = u128::from(term.end().saturating_sub(now).min(length));
    let cells = usize::try_from(left * width as u128 / u128::from(length)).unwrap_or(width);
    let color = if cells * 3 > width { Color::Green } else { Color::Yellow };
    ["█".repeat(cells).fg(color), "░".repeat(width.saturating_sub(cells)).dim()]
}

/// Cells begin at multiples of their length, so that the picture stands still until all of it
/// moves.
struct Scale {
    cell: Mark,
    /// The number of the first one that is shown.
    first: Mark,
    width: usize,
}

impl Scale {
    /// Without the names, which are on the left.
    fn new(width: u16, start: Mark, now: Mark) -> Self {
        let width = width.saturating_sub(7).max(1);
        let cell = (SPAN / u64::from(width)).max(1);
        // From the left at first, and then along.
        let first = (now / cell + 1).saturating_sub(width.into()).max(start / cell);
        Self { cell, first, width: width.into() }
    }

    fn column(&self, at: Mark) -> Option<usize> {
        let column = usize::try_from((at / self.cell).checked_sub(self.first)?).ok()?;
        (column < self.width).then_some(column)
    }
}

fn lane(candidate: &Candidate, scale: &Scale, now: Mark) -> Line<'static> {
    let mut cells = vec![Span::from(" "); scale.width];
    for (from, to, kind) in timeline(candidate, now) {
        let cell = match kind {
            Kind::Waiting => "─".dim(),
            Kind::Paused => "z".yellow(),
            Kind::Leading(_) => "█".green(),
            Kind::Expiring => "▒".green(),
            Kind::Stopped => "|".into(),
            Kind::Killed => "✗".red().bold(),
            Kind::Refused => "!".magenta().bold(),
        };
        // An interval that began before the first cell is drawn from there.
        let seen = if from < to { from.max(scale.first.saturating_mul(scale.cell)) } else { from };
        let (Some(first), Some(last)) = (scale.column(seen), scale.column(to)) else { continue };
        let cells = cells.get_mut(first..=last).unwrap_or_default();
        cells.fill(cell);
        if let Kind::Leading(epoch) = kind {
            let label = epoch.to_string();
            if label.len() + 1 < cells.len() {
                for (cell, digit) in cells.iter_mut().skip(1).zip(label.chars()) {
                    *cell = digit.to_string().green().reversed().bold();
                }
            }
        }
    }
    cells.insert(0, format!("  {:<5}", candidate.name).bold());
    Line::from(cells)
}

fn axis(scale: &Scale, start: Mark) -> Line<'static> {
    let from = seconds(scale.first.saturating_mul(scale.cell).saturating_sub(start));
    let between = scale.width.saturating_sub(from.len());
    Line::from(format!("       {from}{:>between$}", "now")).dim()
}

/// The newest, as many as there is space for, in the order in which they happened.
fn draw_notes(frame: &mut Frame<'_>, area: Rect, journal: &Journal) {
    let space = usize::from(area.height.saturating_sub(1));
    let mut lines: Vec<Line<'_>> = Vec::new();
    for note in journal.notes.iter().rev().take(space) {
        let told = told(note, journal.record.start, usize::from(area.width));
        lines.splice(0..0, told);
    }
    let lines = lines.split_off(lines.len().saturating_sub(space));
    frame.render_widget(below(" what happened, and why that was safe ", lines), area);
}

fn told(note: &Note, start: Mark, width: usize) -> Vec<Line<'static>> {
    let style = match note.kind {
        journal::Kind::Elected => Style::new().green(),
        journal::Kind::Done => Style::new().yellow(),
        journal::Kind::Refused => Style::new().magenta().bold(),
        journal::Kind::News | journal::Kind::Remark => Style::new(),
        journal::Kind::Wrong => Style::new().red().bold().reversed(),
    };
    let mut at = format!("{:>8} ", seconds(note.at.saturating_sub(start)));
    let (margin, space) = (" ".repeat(at.len()), width.saturating_sub(at.len() + 1));
    let mut lines = Vec::new();
    for part in wrapped(&note.what, space) {
        let margin = std::mem::replace(&mut at, margin.clone());
        lines.push(Line::from(vec![margin.dim(), Span::styled(part, style)]));
    }
    for part in note.why.iter().flat_map(|why| wrapped(why, space)) {
        lines.push(Line::from(format!("{margin}{part}")));
    }
    lines
}

/// Written by hand, because ratatui wraps without telling into how many lines.
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

fn checked(record: &Record) -> Line<'static> {
    let verdict = Verdict::so_far(record);
    if let Some(fault) = verdict.faults.first() {
        return Line::from(format!(" NOT AS PROMISED: {fault} ").red().bold().reversed());
    }
    let terms = counted(record.terms().len(), "term");
    let held = format!(" {terms}, never two at once, and epochs only rise");
    Line::from(vec![" as promised so far:".green().bold(), held.into()])
}

fn help() -> Line<'static> {
    let spans = HELP.iter().flat_map(|(key, does)| {
        [" ".into(), Span::styled(*key, Modifier::REVERSED), format!(" {does} ").into()]
    });
    Line::from_iter(spans)
}

fn counted(number: usize, what: &str) -> String {
    if number == 1 { format!("1 {what}") } else { format!("{number} {what}s") }
}

fn left_of(term: &Term, now: Mark) -> String {
    seconds(term.end().saturating_sub(now))
}

/// To a tenth.
fn seconds(nanoseconds: u64) -> String {
    let tenths = nanoseconds / 100_000_000;
    format!("{}.{} s", tenths / 10, tenths % 10)
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::*;
    use crate::record::Action;
    use crate::report::Outcome;
    use crate::sample::{SECOND, answered, asked, elected, story};

    /// What a terminal of this size shows, line by line.
    fn shown(journal: &Journal, now: Mark, width: u16, height: u16) -> Vec<String> {
        let view = View { title: "election demo-1 on etcd://127.0.0.1:2379".into(), chosen: None };
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(frame, journal, &view, now)).unwrap();
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
        let mut journal = story();
        journal.done(1, Action::Kill, 6 * SECOND + SECOND / 2);
        let lines = shown(&journal, 6 * SECOND + SECOND / 2, 80, 24);
        assert_eq!(lines[1], " nobody leads");
        assert_eq!(lines[2], " ben's lease keeps the others out, for 0.5 s more");
        has(&lines, "▸2 ben  killed");
        let lines = shown(&journal, 8 * SECOND, 80, 24);
        assert_eq!(
            lines[2],
            " ben's own deadline passed 1.0 s ago; the store is about to end its lease"
        );
        has(&lines, "✗▒▒");
    }

    #[test]
    fn what_must_never_be_cannot_be_overlooked() {
        let mut journal = story();
        elected(&mut journal, 0, 6 * SECOND, 30, 8 * SECOND);
        let lines = shown(&journal, 6 * SECOND, 100, 24);
        has(&lines, "NOT AS PROMISED: two at once: ada led from epoch 30 on while ben still led");
        has(&lines, "TWO AT ONCE");
        let mut journal = story();
        asked(&mut journal, 0, 10, 9, true);
        answered(&mut journal, 0, 10, 9, Outcome::Accepted { revision: 99 });
        let lines = shown(&journal, 6 * SECOND, 80, 24);
        has(&lines, "NOT AS PROMISED: the store took ada's write in epoch 10");
    }

    #[test]
    fn nine_candidates_have_room() {
        let mut journal = story();
        for name in ["cleo", "dora", "emil", "fay", "gus", "hana", "ivo"] {
            journal.record.started(name, 9, SECOND);
        }
        let lines = shown(&journal, 6 * SECOND, 80, 24);
        has(&lines, "▸2 ben");
        has(&lines, "4 more: ↑↓");
        has(&lines, "what happened");
        has(&lines, "q quit");
        let lines = shown(&journal, 6 * SECOND, 80, 40);
        has(&lines, " 9 ivo");
        has(&lines, "  ivo ");
    }

    #[test]
    fn no_size_is_too_small() {
        let mut many = story();
        for nth in 0..7 {
            many.record.started(&format!("c{nth}"), 9, SECOND);
        }
        for journal in [Journal::new(0), story(), many] {
            for width in [1, 2, 7, 20, 49, 50, 60, 80, 200] {
                for height in [1, 2, 3, 14, 15, 16, 18, 24, 60] {
                    for now in [0, SECOND, 6 * SECOND, 100 * SECOND] {
                        shown(&journal, now, width, height);
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
