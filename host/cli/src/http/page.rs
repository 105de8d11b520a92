//! `GET /`: the status page. It is made here, whole, for each request: its script does no more than
//! to ask for it again, and to let the bar run down.

mod chart;

use std::time::Duration;

use askama::Template;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{Html, IntoResponse as _, Response};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use incumbent::{BootClock, Clock as _, Mark, Participant};
use serde::Deserialize;

use self::chart::{Sparkline, Timeline, View, sparkline, timeline};
use super::said;
use crate::event::time_before;
use crate::instance::history::{self, Seen};
use crate::instance::own::Own;
use crate::instance::queue::{Demand, Reading};
use crate::instance::{InstanceView, Role};
use crate::text::{shown, shown_bytes};

/// How many candidates the page lists.
const LISTED: usize = 20;

/// The lengths of time that the timeline can show, in seconds, with their names.
const WINDOWS: [(u64, &str); 4] =
    [(60, "1 minute"), (900, "15 minutes"), (3_600, "1 hour"), (86_400, "1 day")];

/// The longest of them that is shown unless another one is asked for.
const USUAL: u64 = 3_600;

/// What a request may say.
#[derive(Debug, Deserialize)]
pub struct Parameters {
    /// How long a time the timeline shows, in seconds.
    window: Option<u64>,
}

#[derive(Template)]
#[template(path = "page.html")]
struct Page {
    nonce: String,
    election: String,
    id: String,
    command: &'static str,
    role: &'static str,
    headline: String,
    since: String,
    term: Option<TermLeft>,
    candidates: Vec<Row>,
    unlisted: usize,
    /// Of this instance, if it is not listed.
    place: Option<usize>,
    seen: String,
    store: String,
    store_answers: bool,
    last_answer: String,
    timeline: Timeline,
    windows: Vec<Window>,
    changes: Vec<Told>,
    sparkline: Option<Sparkline>,
    time: String,
    version: &'static str,
}

/// What is left of our term, in milliseconds, and what it had at its last renewal.
struct TermLeft {
    epoch: i64,
    left: u64,
    whole: u64,
    sentence: String,
}

/// A candidate.
struct Row {
    place: String,
    name: String,
    is_own: bool,
    epoch: i64,
    key: String,
}

/// A change.
struct Told {
    time: String,
    sentence: String,
}

/// A length of time that the timeline can show.
struct Window {
    seconds: u64,
    name: &'static str,
    is_shown: bool,
}

pub async fn page(
    State(view): State<InstanceView>,
    parameters: Result<Query<Parameters>, QueryRejection>,
) -> Response {
    let wanted = match parameters {
        Ok(Query(Parameters { window })) => window.unwrap_or_else(|| usual_window(&view)),
        Err(_) => 0,
    };
    if !WINDOWS.iter().any(|(window, _)| *window == wanted) {
        let sentence = "the window is 60, 900, 3600 or 86400 seconds: GET /?window=3600";
        return said(StatusCode::BAD_REQUEST, sentence);
    }
    let reading = view.candidates(Demand::OFTEN).await;
    let Some(nonce) = nonce() else {
        return said(StatusCode::SERVICE_UNAVAILABLE, "the system gives no random numbers");
    };
    let page = Page::new(&view, reading.as_deref(), wanted, nonce);
    let policy = format!(
        "default-src 'none'; style-src 'nonce-{0}'; script-src 'nonce-{0}'; connect-src 'self'; \
         img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
        page.nonce
    );
    match (page.render(), HeaderValue::try_from(policy)) {
        (Ok(text), Ok(policy)) => {
            ([(header::CONTENT_SECURITY_POLICY, policy)], Html(text)).into_response()
        }
        _ => said(StatusCode::INTERNAL_SERVER_ERROR, "the page cannot be made"),
    }
}

/// The shortest window with all of this instance's life, up to the longest usual one.
fn usual_window(view: &InstanceView) -> u64 {
    let age = BootClock.now().saturating_sub(view.shared().started) / 1_000_000_000;
    let windows = WINDOWS.iter().map(|(window, _)| *window);
    windows.into_iter().find(|window| *window >= age.min(USUAL)).unwrap_or(USUAL)
}

/// Tells the browser which script and style are this page's own.
fn nonce() -> Option<String> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).ok()?;
    Some(URL_SAFE_NO_PAD.encode(bytes))
}

impl Page {
    fn new(view: &InstanceView, reading: Option<&Reading>, window: u64, nonce: String) -> Self {
        let description = &view.shared().description;
        let seen = view.shared().history.seen();
        let now = BootClock.now();
        let election = shown_bytes(description.election.as_bytes());
        let (headline, since) = headline(view, &seen, &election, now);
        let last = view.last();
        let store_answers = view.store_answers();
        let silence = view.since_answer();
        let known = if store_answers { 0 } else { silence.map_or(now, nanoseconds) };
        let first = reading.map(|reading| &*reading.shown).unwrap_or_default();
        let candidates: Vec<Row> = first
            .iter()
            .take(LISTED)
            .enumerate()
            .map(|(place, one)| row(place, one, &last, store_answers))
            .collect();
        let unlisted = reading.map_or(0, |reading| reading.many) - candidates.len();
        Self {
            nonce,
            id: shown_bytes(description.id.as_bytes()),
            command: description.command,
            role: role(view),
            headline,
            since,
            term: term(view, &seen),
            candidates,
            unlisted,
            seen: reading.map_or_else(
                || "not yet".into(),
                |reading| format!("{} ago", span(nanoseconds(reading.age()))),
            ),
            place: reading.and_then(|reading| reading.position).filter(|place| *place >= LISTED),
            store: shown(&description.store),
            store_answers,
            last_answer: silence.map_or_else(
                || "never".into(),
                |silence| format!("{} ago", span(nanoseconds(silence))),
            ),
            timeline: timeline(View {
                seen: &seen,
                own: &description.id,
                began: view.shared().started,
                known: now.saturating_sub(known),
                now,
                window: Duration::from_secs(window),
            }),
            windows: WINDOWS
                .map(|(seconds, name)| Window { seconds, name, is_shown: seconds == window })
                .into(),
            changes: seen
                .changes
                .iter()
                .rev()
                .map(|change| Told {
                    time: clock(now.saturating_sub(change.at)),
                    sentence: shown(&change.sentence),
                })
                .collect(),
            sparkline: sparkline(&seen.renewals),
            time: time_before(Duration::ZERO),
            version: env!("CARGO_PKG_VERSION"),
            election,
        }
    }
}

/// Who leads, and since when. While the store does not answer, only our own term is certain, by the
/// clock.
fn headline(view: &InstanceView, seen: &Seen, election: &str, now: Mark) -> (String, String) {
    let is_certain = view.store_answers();
    let Some(leader) = &seen.leader else {
        let headline = match (seen.is_observed, is_certain) {
            (true, true) => format!("Nobody leads {election}"),
            (true, false) => format!("Nobody led {election} when the store answered last"),
            (false, _) => "Nothing is known of the leader yet".into(),
        };
        return (headline, String::new());
    };
    let (epoch, name) = (leader.epoch, &leader.name);
    let lasted = now.saturating_sub(leader.since);
    let begin = clock(lasted);
    if !is_certain && view.term().is_none_or(|own| own.epoch() != epoch) {
        let headline = format!("{name} led {election} when the store answered last");
        return (headline, format!("in epoch {epoch}; others may lead by now"));
    }
    let lasted =
        if leader.led_before { " or earlier".into() } else { format!(" ({})", span(lasted)) };
    (format!("{name} leads {election}"), format!("in epoch {epoch}, since {begin}{lasted}"))
}

fn role(view: &InstanceView) -> &'static str {
    match view.role() {
        _ if view.stopping_term().is_some() => "stops its work",
        Role::Leading => "leads",
        Role::Connecting => "looks for the store",
        Role::Observing => "observes",
        Role::Joining => "is not in line",
        Role::Waiting => "waits",
        Role::Withdrawn => "has left the election",
    }
}

fn term(view: &InstanceView, seen: &Seen) -> Option<TermLeft> {
    let term = view.term()?;
    let left = term.remaining();
    let milliseconds = |span: Duration| u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
    let whole = Duration::from_nanos(seen.term_length);
    Some(TermLeft {
        epoch: term.epoch().into(),
        left: milliseconds(left),
        whole: milliseconds(whole.max(left)),
        sentence: span(nanoseconds(left)),
    })
}

fn row(place: usize, candidate: &Participant, own: &Own, store_answers: bool) -> Row {
    let place = match (place, store_answers) {
        (0, true) => "leads".into(),
        (0, false) => "led".into(),
        _ => place.to_string(),
    };
    Row {
        place,
        name: history::name(candidate),
        is_own: own.is(candidate),
        epoch: candidate.epoch.into(),
        key: shown_bytes(&candidate.key),
    }
}

fn nanoseconds(span: Duration) -> Mark {
    u64::try_from(span.as_nanos()).unwrap_or(Mark::MAX)
}

/// The time of so many nanoseconds ago, with its date if that is long.
fn clock(ago: Mark) -> String {
    let time = time_before(Duration::from_nanos(ago));
    let Some((date, time)) = time.split_once('T') else { return time };
    let second = time.split('.').next().unwrap_or_default();
    let is_long_ago = ago > 12 * 3_600 * 1_000_000_000;
    if is_long_ago { format!("{date} {second} UTC") } else { format!("{second} UTC") }
}

/// A length of time, to what people care for.
fn span(nanoseconds: Mark) -> String {
    let seconds = nanoseconds / 1_000_000_000;
    match seconds {
        0..10 => format!("{:.1} s", Duration::from_nanos(nanoseconds).as_secs_f64()),
        10..120 => format!("{seconds} s"),
        120..7_200 => format!("{} min", seconds / 60),
        7_200..172_800 => format!("{} h", seconds / 3_600),
        _ => format!("{} days", seconds / 86_400),
    }
}
