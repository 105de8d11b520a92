//! Which requests are refused.
//!
//! A page of another site must not reach the endpoint through the browser of somebody who may. So
//! the endpoint answers no request of another origin, and none for a host name that is not its
//! own: a name that its owner points at our address (DNS rebinding).

use std::collections::BTreeSet;
use std::fs::OpenOptions;
use std::io::{BufRead as _, BufReader, Read as _};
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Request, State};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::Response;
use rustix::fs::OFlags;
use subtle::ConstantTimeEq as _;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use super::said;
use super::socket::Bound;
use crate::args::Http;
use crate::checks::check_secret;
use crate::exit::{End, bad_input};

/// How many bytes a token may have.
const LONGEST_TOKEN: u64 = 4096;

/// How long its file may take to be read, and by how many requests at once.
const READ: Duration = Duration::from_secs(2);
const AT_ONCE: usize = 16;

/// Before the token, in any case.
const BEARER: &[u8] = b"Bearer ";

/// So that a pipe in place of the file does not wait for its writer.
const NONBLOCK: i32 = OFlags::NONBLOCK.bits().cast_signed();

/// What a request is compared with.
#[derive(Debug)]
pub struct Admission {
    /// In lower case. None on a unix socket, which no browser reaches.
    hosts: Option<BTreeSet<String>>,
    token: Token,
    /// The token is read by few requests at a time.
    reading: Arc<Semaphore>,
}

/// What a change needs.
#[derive(Debug)]
enum Token {
    /// The permissions of the unix socket decide who may ask for a change.
    NotNeeded,
    InFile(PathBuf),
    NotGiven,
}

/// Checks the flags of the endpoint.
pub fn check(http: &Http) -> Result<(), End> {
    let (Some(_), Some(file)) = (&http.listen, &http.http_token_file) else {
        return Ok(());
    };
    check_secret("--http-token-file", file, "token")?;
    let is_sent =
        |token: &str| !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic());
    if first_line(file).is_some_and(|token| is_sent(&token)) {
        return Ok(());
    }
    Err(bad_input(format!(
        "--http-token-file {}: a token is one line of visible ASCII characters without blanks, of \
         at most {LONGEST_TOKEN} bytes: make another one, for example with openssl rand -hex 32",
        file.display()
    )))
}

/// The token, read anew. None if the file has none.
fn first_line(file: &Path) -> Option<String> {
    let file = OpenOptions::new().read(true).custom_flags(NONBLOCK).open(file).ok()?;
    if !file.metadata().ok()?.is_file() {
        return None;
    }
    let mut line = String::new();
    BufReader::new(file.take(LONGEST_TOKEN + 2)).read_line(&mut line).ok()?;
    let token = line.strip_suffix('\n').unwrap_or(&line);
    let token = token.strip_suffix('\r').unwrap_or(token);
    (token.len() as u64 <= LONGEST_TOKEN).then(|| token.to_owned())
}

impl Admission {
    pub fn new(http: &Http, bound: &Bound) -> Self {
        let token = match (&http.http_token_file, &bound.host) {
            (Some(file), _) => Token::InFile(file.clone()),
            (None, None) => Token::NotNeeded,
            (None, Some(_)) => Token::NotGiven,
        };
        let hosts = bound.host.clone().map(|host| {
            let node = rustix::system::uname().nodename().to_string_lossy().into_owned();
            let given = http.http_hosts.iter().cloned();
            let names = given.chain([host, node, "localhost".into()]);
            names.map(|name| name.to_lowercase()).collect()
        });
        Self { hosts, token, reading: Arc::new(Semaphore::new(AT_ONCE)) }
    }

    /// The refusal of a request that came by a name that is not ours, or from another site.
    fn refusal(&self, headers: &HeaderMap) -> Option<Response> {
        let hosts = self.hosts.as_ref()?;
        // HTTP/1.0, which health checks use, needs none.
        let host = headers.get(header::HOST).map(HeaderValue::to_str);
        let authority = match &host {
            Some(Ok(host)) => host.parse::<Authority>().ok(),
            Some(Err(_)) => None,
            None => return headers.get(header::ORIGIN).map(|_| of_another_site()),
        };
        let Some(authority) = authority else {
            return Some(said(
                StatusCode::BAD_REQUEST,
                "the host that the request is for is no host",
            ));
        };
        let name = authority.host().to_lowercase();
        let bare = name.trim_start_matches('[').trim_end_matches(']').trim_end_matches('.');
        if bare.parse::<IpAddr>().is_err() && !hosts.contains(bare) {
            return Some(said(
                StatusCode::MISDIRECTED_REQUEST,
                &format!(
                    "the request is for the host {name:?}, which is not known as this one's: ask by \
                     an IP address, or start incumbent with --http-host {bare}"
                ),
            ));
        }
        let own = |origin: &str| {
            let site = origin.split_once("://").map(|(_, site)| site);
            site == Some(authority.as_str())
        };
        // Browsers say of images and the like where they are, and name no origin.
        let is_own_part = headers.get("sec-fetch-site").is_none_or(|site| {
            let is_visit = headers.get("sec-fetch-mode").is_some_and(|mode| mode == "navigate");
            is_visit || site == "same-origin" || site == "none"
        });
        let origin = headers.get(header::ORIGIN).map(HeaderValue::to_str);
        let is_own = origin.is_none_or(|origin| origin.is_ok_and(own));
        (!is_own || !is_own_part).then(of_another_site)
    }

    /// The refusal of a change that was asked for without the token.
    async fn refusal_of_change(&self, headers: &HeaderMap) -> Option<Response> {
        let file = match &self.token {
            Token::NotNeeded => return None,
            Token::InFile(file) => file,
            Token::NotGiven => {
                return Some(said(
                    StatusCode::FORBIDDEN,
                    "nothing can be changed over TCP without a token: start incumbent with \
                     --http-token-file FILE, or with --listen unix:PATH",
                ));
            }
        };
        // It may have been replaced. A file system that hangs holds up one thread, and no other
        // request than those that need the token.
        let unreadable = || {
            said(
                StatusCode::INTERNAL_SERVER_ERROR,
                "the file of --http-token-file cannot be read: put it back, with the token as its \
                 first line",
            )
        };
        let Ok(reading) = Arc::clone(&self.reading).try_acquire_owned() else {
            return Some(said(StatusCode::SERVICE_UNAVAILABLE, "busy: try again"));
        };
        let file = file.clone();
        let read = spawn_blocking(move || {
            let token = first_line(&file);
            drop(reading);
            token
        });
        let Ok(Ok(Some(token))) = timeout(READ, read).await else {
            return Some(unreadable());
        };
        let given = headers.get(header::AUTHORIZATION).map(HeaderValue::as_bytes);
        let given = given.and_then(|given| given.split_at_checked(BEARER.len()));
        let given = given.filter(|(scheme, _)| scheme.eq_ignore_ascii_case(BEARER));
        let given = given.map(|(_, given)| given).unwrap_or_default();
        if !token.is_empty() && bool::from(given.ct_eq(token.as_bytes())) {
            return None;
        }
        let mut refusal = said(
            StatusCode::UNAUTHORIZED,
            "this needs the token of --http-token-file: send it as Authorization: Bearer TOKEN",
        );
        let bearer = HeaderValue::from_static("Bearer");
        refusal.headers_mut().insert(header::WWW_AUTHENTICATE, bearer);
        Some(refusal)
    }
}

fn of_another_site() -> Response {
    said(StatusCode::FORBIDDEN, "the request comes from a page of another site, which may not ask")
}

/// Refuses requests for other hosts, and of other origins.
pub async fn check_source(
    State(admission): State<Arc<Admission>>,
    request: Request,
    next: Next,
) -> Response {
    match admission.refusal(request.headers()) {
        Some(refusal) => refusal,
        None => next.run(request).await,
    }
}

/// Refuses changes without the token.
pub async fn check_token(
    State(admission): State<Arc<Admission>>,
    request: Request,
    next: Next,
) -> Response {
    match admission.refusal_of_change(request.headers()).await {
        Some(refusal) => refusal,
        None => next.run(request).await,
    }
}

/// Has no cache keep an answer, and no browser take it for something else.
pub async fn harden(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    for (name, value) in [
        (header::CACHE_CONTROL, "no-store"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::X_FRAME_OPTIONS, "DENY"),
        (header::REFERRER_POLICY, "no-referrer"),
    ] {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}
