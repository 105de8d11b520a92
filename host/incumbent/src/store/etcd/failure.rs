//! What etcd's and etcd-client's errors mean. Only this file reads their texts: etcd has one
//! code for many errors, which differ in their words.

use std::borrow::Borrow;
use std::error::Error as _;
use std::io;

use etcd_client::Error;
use tokio_rustls::rustls;

use crate::types::Failure;

/// The codes of gRPC, for which etcd-client has no names.
mod code {
    pub(super) const CANCELLED: i32 = 1;
    pub(super) const UNKNOWN: i32 = 2;
    pub(super) const INVALID_ARGUMENT: i32 = 3;
    pub(super) const DEADLINE_EXCEEDED: i32 = 4;
    pub(super) const NOT_FOUND: i32 = 5;
    pub(super) const PERMISSION_DENIED: i32 = 7;
    pub(super) const RESOURCE_EXHAUSTED: i32 = 8;
    pub(super) const FAILED_PRECONDITION: i32 = 9;
    pub(super) const ABORTED: i32 = 10;
    pub(super) const OUT_OF_RANGE: i32 = 11;
    pub(super) const UNIMPLEMENTED: i32 = 12;
    pub(super) const UNAVAILABLE: i32 = 14;
    pub(super) const UNAUTHENTICATED: i32 = 16;
}

/// What a refusal is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refusal {
    Timeout,
    Unavailable,
    /// The login was made before a change of etcd's users. With a new one, the request passes.
    LoginOutdated,
    /// etcd does not know the user, or not any more.
    LoginRefused,
    Forbidden,
    Invalid,
    AnswerTooLarge,
}

/// What etcd, or etcd-client, means by a code and a part of a text. The first row that fits
/// counts; a refusal that no row fits is [`Failure::Other`].
#[rustfmt::skip]
const REFUSALS: &[(&[i32], &str, Refusal)] = {
    use code::*;
    use Refusal::*;
    &[
        (&[DEADLINE_EXCEEDED],               "",                                  Timeout),
        (&[UNAVAILABLE],                     "request timed out",                 Timeout),
        (&[CANCELLED, ABORTED, UNAVAILABLE], "",                                  Unavailable),
        (&[RESOURCE_EXHAUSTED, UNKNOWN],     "too many requests",                 Unavailable),
        (&[INVALID_ARGUMENT, UNKNOWN],       "revision of auth store is old",     LoginOutdated),
        // 3.4 and 3.5 say this of writes.
        (&[INVALID_ARGUMENT, UNKNOWN],       "revision in header is old",         LoginOutdated),
        (&[INVALID_ARGUMENT],                "authentication failed",             LoginRefused),
        (&[INVALID_ARGUMENT],                "user name is empty",                LoginRefused),
        (&[INVALID_ARGUMENT],                "user name not",                     LoginRefused),
        (&[UNAUTHENTICATED],                 "invalid auth token",                LoginRefused),
        (&[UNAUTHENTICATED],                 "",                                  LoginRefused),
        (&[PERMISSION_DENIED],               "permission denied",                 Forbidden),
        (&[PERMISSION_DENIED],               "",                                  Forbidden),
        (&[OUT_OF_RANGE],                    "too large lease TTL",               Invalid),
        (&[RESOURCE_EXHAUSTED],              "larger than max",                   Invalid),
        (&[INVALID_ARGUMENT],                "",                                  Invalid),
        // Said by etcd-client, of an answer that it did not take in.
        (&[OUT_OF_RANGE],                    "decoded message length too large",  AnswerTooLarge),
    ]
};

impl Refusal {
    fn of(code: i32, text: &str) -> Option<Self> {
        let row =
            REFUSALS.iter().find(|(codes, part, _)| codes.contains(&code) && text.contains(part));
        row.map(|(.., refusal)| *refusal)
    }

    /// Whether the user may not do what was asked for.
    fn is_denial(self) -> bool {
        matches!(self, Self::LoginOutdated | Self::LoginRefused | Self::Forbidden)
    }
}

/// What an error of any call means to the caller.
pub(super) fn failure(error: impl Borrow<Error>) -> Failure {
    match error.borrow() {
        // A status with a source was made on this side, from an error of the
        // connection.
        Error::GRpcStatus(status) if status.source().is_some() => Failure::Unavailable,
        Error::GRpcStatus(status) => said(status.code() as i32, status.message()),
        Error::IoError(_)
        | Error::TransportError(_)
        | Error::WatchError(_)
        | Error::LeaseKeepAliveError(_)
        | Error::EndpointError(_) => Failure::Unavailable,
        Error::InvalidArgs(text) => Failure::Invalid(text.clone()),
        Error::InvalidUri(error) => Failure::Invalid(error.to_string()),
        Error::InvalidMetadataValue(error) => Failure::Invalid(error.to_string()),
        Error::Utf8Error(error) => Failure::Other(error.to_string()),
        Error::ElectError(text) | Error::Internal(text) => Failure::Other(text.clone()),
        Error::EndpointsNotManaged => Failure::Other(error.borrow().to_string()),
    }
}

fn said(code: i32, text: &str) -> Failure {
    match Refusal::of(code, text) {
        Some(Refusal::Timeout) => Failure::Timeout,
        Some(Refusal::Unavailable | Refusal::LoginOutdated) => Failure::Unavailable,
        Some(Refusal::LoginRefused | Refusal::Forbidden) => Failure::Denied(text.into()),
        Some(Refusal::Invalid) => Failure::Invalid(text.into()),
        Some(Refusal::AnswerTooLarge) => Failure::Other(format!(
            "the store's answer is too large ({text}): ask for less, or for the keys alone"
        )),
        None => Failure::Other(text.into()),
    }
}

/// Why etcd took a watch away: it gives the text without the code.
pub(super) fn cancellation(reason: &str) -> Failure {
    let is_denied = REFUSALS
        .iter()
        .any(|(_, part, refusal)| refusal.is_denial() && !part.is_empty() && reason.contains(part));
    if is_denied {
        Failure::Denied(reason.into())
    } else {
        Failure::Other(format!("etcd ended the watch: {reason:?}"))
    }
}

/// Whether the lease that a call named is gone.
pub(super) fn is_lease_missing(error: &Error) -> bool {
    // etcd-client's error for a time to live of 0 in a stream's first answer.
    if let Error::LeaseKeepAliveError(text) = error {
        return text == "lease not found";
    }
    is_status(error, code::NOT_FOUND, "lease not found")
}

/// Whether a lease of this id exists already.
pub(super) fn is_lease_present(error: &Error) -> bool {
    is_status(error, code::FAILED_PRECONDITION, "lease already exists")
}

/// Whether a revision cannot be read: etcd has forgotten it, or a member does not have it yet.
pub(super) fn is_revision_unreadable(error: &Error) -> bool {
    ["required revision has been compacted", "required revision is a future revision"]
        .iter()
        .any(|text| is_status(error, code::OUT_OF_RANGE, text))
}

/// Whether a user was named to an etcd without users.
pub(super) fn is_without_users(error: &Error) -> bool {
    is_status(error, code::FAILED_PRECONDITION, "authentication is not enabled")
}

/// Whether the login was made before a change of etcd's users: with tokens that
/// carry what they were made for (jwt), etcd wants a new one.
pub(super) fn is_login_outdated(error: &Error) -> bool {
    refusal(error) == Some(Refusal::LoginOutdated)
}

/// Whether etcd does not know the user, or not any more.
pub(super) fn is_login_refused(error: &Error) -> bool {
    refusal(error) == Some(Refusal::LoginRefused)
}

/// Whether etcd knows the user, and forbids this key.
pub(super) fn is_key_forbidden(error: &Error) -> bool {
    is_status(error, code::PERMISSION_DENIED, "permission denied")
}

/// Whether the answer came from another service than etcd: it does not know the call, or it
/// speaks HTTP/2 but no gRPC.
pub(super) fn is_from_another_service(error: &Error) -> bool {
    let Error::GRpcStatus(status) = error else {
        return false;
    };
    is_status(error, code::UNIMPLEMENTED, "")
        || status.message().contains("grpc-status header missing")
}

/// What TLS found wrong with a connection, if the error comes from that.
pub(super) fn tls_objection(error: &Error) -> Option<&rustls::Error> {
    let mut next = if let Error::GRpcStatus(status) = error {
        status.source()
    } else if let Error::TransportError(error) = error {
        error.source()
    } else {
        None
    };
    while let Some(error) = next {
        // An error of I/O does not name the error inside it as its source.
        let inside = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        if let Some(objection) = inside.and_then(|inside| inside.downcast_ref()) {
            return Some(objection);
        }
        next = error.source();
    }
    None
}

/// An error and its causes, for a person, in one line.
pub(super) fn chain(error: &Error) -> String {
    let mut texts = Vec::new();
    let mut next: Option<&(dyn std::error::Error + 'static)> = None;
    if let Error::GRpcStatus(status) = error {
        texts.push(status.message().to_owned());
        next = status.source();
    } else if let Error::TransportError(error) = error {
        next = Some(error);
    } else {
        texts.push(error.to_string());
    }
    while let Some(error) = next {
        texts.push(error.to_string());
        next = error.source();
    }
    texts.dedup();
    texts.retain(|text| !text.is_empty() && text != "transport error");
    texts.join(": ")
}

/// What etcd itself refuses by this error.
fn refusal(error: &Error) -> Option<Refusal> {
    let (code, text) = status(error)?;
    Refusal::of(code, text)
}

/// Whether etcd itself says this.
fn is_status(error: &Error, code: i32, part: &str) -> bool {
    status(error).is_some_and(|(found, text)| found == code && text.contains(part))
}

/// The code and the text of an error that etcd itself sent.
fn status(error: &Error) -> Option<(i32, &str)> {
    let Error::GRpcStatus(status) = error else { return None };
    status.source().is_none().then(|| (status.code() as i32, status.message()))
}

#[cfg(test)]
mod tests {
    use tonic::Status;

    use super::*;

    #[test]
    #[rustfmt::skip]
    fn what_etcd_says_is_sorted() {
        type Meaning = fn(&str) -> Failure;
        let timeout: Meaning = |_| Failure::Timeout;
        let unavailable: Meaning = |_| Failure::Unavailable;
        let denied: Meaning = |text| Failure::Denied(text.into());
        let invalid: Meaning = |text| Failure::Invalid(text.into());
        let other: Meaning = |text| Failure::Other(text.into());
        for (code, text, meaning) in [
            (code::UNKNOWN, "etcdserver: too many requests", unavailable),
            (code::RESOURCE_EXHAUSTED, "etcdserver: too many requests", unavailable),
            (code::UNAVAILABLE, "etcdserver: no leader", unavailable),
            (code::UNAVAILABLE, "etcdserver: leader changed", unavailable),
            (code::UNAVAILABLE, "etcdserver: request timed out", timeout),
            (code::DEADLINE_EXCEEDED, "context deadline exceeded", timeout),
            (code::INVALID_ARGUMENT, "etcdserver: request is too large", invalid),
            (code::RESOURCE_EXHAUSTED, "grpc: received message larger than max (9 vs. 8)", invalid),
            (code::OUT_OF_RANGE, "etcdserver: too large lease TTL", invalid),
            (code::OUT_OF_RANGE, "something else", other),
            (code::RESOURCE_EXHAUSTED, "etcdserver: mvcc: database space exceeded", other),
            (code::PERMISSION_DENIED, "etcdserver: permission denied", denied),
            (code::UNAUTHENTICATED, "etcdserver: invalid auth token", denied),
            (code::INVALID_ARGUMENT, "etcdserver: user name is empty", denied),
            (code::INVALID_ARGUMENT, "etcdserver: authentication failed, invalid user ID or password", denied),
            (code::INVALID_ARGUMENT, "etcdserver: revision of auth store is old", unavailable),
            (code::UNKNOWN, "auth: revision in header is old", unavailable),
            (0, "?", other),
        ] {
            assert_eq!(said(code, text), meaning(text), "{code} {text}");
        }
        let large = said(code::OUT_OF_RANGE, "Error, decoded message length too large");
        let Failure::Other(sentence) = large else { panic!("{large:?}") };
        assert!(sentence.contains("ask for less"), "{sentence}");
    }

    fn error(code: i32, text: &str) -> Error {
        Error::GRpcStatus(Status::new(code.into(), text))
    }

    #[test]
    #[rustfmt::skip]
    fn each_question_is_answered_by_code_and_text_together() {
        type Question = fn(&Error) -> bool;
        let questions: [(Question, i32, &str); 9] = [
            (is_lease_missing, code::NOT_FOUND, "etcdserver: requested lease not found"),
            (is_lease_present, code::FAILED_PRECONDITION, "etcdserver: lease already exists"),
            (is_revision_unreadable, code::OUT_OF_RANGE, "etcdserver: mvcc: required revision has been compacted"),
            (is_revision_unreadable, code::OUT_OF_RANGE, "etcdserver: mvcc: required revision is a future revision"),
            (is_without_users, code::FAILED_PRECONDITION, "etcdserver: authentication is not enabled"),
            (is_login_refused, code::INVALID_ARGUMENT, "etcdserver: authentication failed"),
            (is_login_refused, code::INVALID_ARGUMENT, "etcdserver: user name is empty"),
            (is_login_refused, code::INVALID_ARGUMENT, "etcdserver: user name not found"),
            (is_key_forbidden, code::PERMISSION_DENIED, "etcdserver: permission denied"),
        ];
        for (is_so, code, text) in questions {
            assert!(is_so(&error(code, text)), "{text}");
            assert!(!is_so(&error(code, "something else")), "another text than {text}");
            assert!(!is_so(&error(code::UNKNOWN, text)), "another code than that of {text}");
        }
        assert!(is_lease_missing(&Error::LeaseKeepAliveError("lease not found".into())));
        assert!(!is_lease_missing(&Error::LeaseKeepAliveError("create watch failed".into())));
        assert!(is_login_refused(&error(code::UNAUTHENTICATED, "invalid auth token")));
        for text in ["revision of auth store is old", "auth: revision in header is old"] {
            assert!(is_login_outdated(&error(code::INVALID_ARGUMENT, text)), "{text}");
        }
        assert!(!is_login_outdated(&error(code::INVALID_ARGUMENT, "user name is empty")));
    }

    #[test]
    fn what_knows_no_call_of_etcds_is_no_etcd() {
        assert!(is_from_another_service(&error(code::UNIMPLEMENTED, "unknown service")));
        let without = error(code::UNKNOWN, "grpc-status header missing, mapped from HTTP 404");
        assert!(is_from_another_service(&without));
        assert!(!is_from_another_service(&error(code::UNAVAILABLE, "no leader")));
        assert!(!is_from_another_service(&Error::EndpointsNotManaged));
    }

    #[test]
    fn a_chain_has_what_says_something() {
        assert_eq!(chain(&error(code::UNAVAILABLE, "no leader")), "no leader");
        assert_eq!(chain(&error(code::UNAVAILABLE, "transport error")), "");
    }

    #[test]
    fn a_watch_that_etcd_takes_away_was_denied_or_may_be_on_again() {
        for denial in [
            "etcdserver: permission denied",
            "rpc error: code = Unauthenticated desc = etcdserver: invalid auth token",
            "etcdserver: user name is empty",
            "etcdserver: revision of auth store is old",
            "auth: revision in header is old",
            "etcdserver: user name not found",
            "etcdserver: authentication failed, invalid user ID or password",
        ] {
            assert_eq!(cancellation(denial), Failure::Denied(denial.into()));
        }
        assert!(matches!(cancellation("something else"), Failure::Other(_)));
    }
}
