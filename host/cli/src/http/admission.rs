//! Which requests are refused.
//!
//! A page of another site must not reach the endpoint through the browser of somebody who may. So
//! the endpoint answers no request of another origin, and none for a host name that is not its
//! own: a name that its owner points at our address (DNS rebinding).

use std::collections::BTreeSet;
use std::io::BufRead as _;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::Response;
use subtle::ConstantTimeEq as _;

use super::said;
use super::socket::Bound;
use crate::args::Http;
use crate::checks::check_secret;
use crate::exit::{End, bad_input};

/// What a request is compared with.
#[derive(Debug)]
pub struct Admission {
    /// In lower case. None on a unix socket, which no browser reaches.
    hosts: Option<BTreeSet<String>>,
    /// The file of the token that a change needs; none if no change is possible.
    token: Token,
}

#[derive(Debug)]
enum Token {
    /// Whoever may write to the unix socket may ask for a change.
    NotNeeded,
    InFile(PathBuf),
    NotGiven,
}

/// Checks the flags of the endpoint.
pub fn check(http: &Http) -> Result<(), End> {
    let is_unused = http.listen.is_none();
    let given = [
        ("--http-token-file", http.http_token_file.is_some()),
        ("--http-host", !http.http_hosts.is_empty()),
    ];
    if let (true, Some((flag, _))) = (is_unused, given.iter().find(|(_, is_given)| *is_given)) {
        return Err(bad_input(format!("{flag} is for the HTTP endpoint: add --listen HOST:PORT")));
    }
    match &http.http_token_file {
        Some(file) => check_secret("--http-token-file", file, "token"),
        None => Ok(()),
    }
}

impl Admission {
    pub fn new(http: &Http, bound: &Bound) -> Self {
        let token = match (bound, &http.http_token_file) {
            (_, Some(file)) => Token::InFile(file.clone()),
            (Bound::Unix { .. }, None) => Token::NotNeeded,
            (Bound::Tcp { .. }, None) => Token::NotGiven,
        };
        let hosts = match bound {
            Bound::Unix { .. } => None,
            Bound::Tcp { host, .. } => {
                let node = rustix::system::uname().nodename().to_string_lossy().into_owned();
                let given = http.http_hosts.iter().cloned();
                let names = given.chain([host.clone(), node, "localhost".into()]);
                Some(names.map(|name| name.to_lowercase()).collect())
            }
        };
        Self { hosts, token }
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
        let name = authority.as_ref().map(|authority| authority.host().to_lowercase());
        let name = name.unwrap_or_default();
        let bare = name.trim_start_matches('[').trim_end_matches(']');
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
            site.is_some_and(|site| authority.as_ref().is_some_and(|own| own.as_str() == site))
        };
        let origin = headers.get(header::ORIGIN)?;
        let is_own = origin.to_str().is_ok_and(own);
        (!is_own).then(of_another_site)
    }

    /// The refusal of a change that was asked for without the token.
    fn refusal_of_change(&self, headers: &HeaderMap) -> Option<Response> {
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
        // It may have been replaced.
        let text = std::fs::read(file).unwrap_or_default();
        let Some(Ok(token)) = text.lines().next().filter(|_| !text.is_empty()) else {
            return Some(said(
                StatusCode::INTERNAL_SERVER_ERROR,
                "the file of --http-token-file cannot be read: put it back, with the token as its \
                 first line",
            ));
        };
        let given = headers.get(header::AUTHORIZATION).map(HeaderValue::as_bytes);
        let given = given.and_then(|given| given.strip_prefix(b"Bearer ")).unwrap_or_default();
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
    match admission.refusal_of_change(request.headers()) {
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
