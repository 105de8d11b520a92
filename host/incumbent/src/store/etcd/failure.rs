//! What etcd's and etcd-client's errors mean. Only this file reads their texts: etcd has one
//! code for many errors, which differ in their words.

use std::borrow::Borrow;
use std::error::Error as _;
use std::io;

use etcd_client::Error;
use tokio_rustls::rustls;
use tonic::Code;

use crate::types::Failure;

/// What a refusal is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refusal {
    Timeout,
    TryAgain,
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
const REFUSALS: &[(&[Code], &str, Refusal)] = {
    use Code::*;
    use Refusal::*;
    &[
        (&[DeadlineExceeded],                "",                                 Timeout),
        (&[Unavailable],                     "request timed out",                Timeout),
        (&[Cancelled, Aborted, Unavailable], "",                                 TryAgain),
        (&[ResourceExhausted, Unknown],      "too many requests",                TryAgain),
        (&[InvalidArgument, Unknown],        "revision of auth store is old",    LoginOutdated),
        // 3.4 and 3.5 say this of writes.
        (&[InvalidArgument, Unknown],        "revision in header is old",        LoginOutdated),
        (&[InvalidArgument],                 "authentication failed",            LoginRefused),
        (&[InvalidArgument],                 "user name is empty",               LoginRefused),
        (&[InvalidArgument],                 "user name not",                    LoginRefused),
        (&[Unauthenticated],                 "invalid auth token",               LoginRefused),
        (&[Unauthenticated],                 "",                                 LoginRefused),
        (&[PermissionDenied],                "permission denied",                Forbidden),
        (&[PermissionDenied],                "",                                 Forbidden),
        (&[OutOfRange],                      "too large lease TTL",              Invalid),
        (&[ResourceExhausted],               "larger than max",                  Invalid),
        (&[InvalidArgument],                 "",                                 Invalid),
        // Said by etcd-client, of an answer that it did not take in.
        (&[OutOfRange],                      "decoded message length too large", AnswerTooLarge),
    ]
};

impl Refusal {
    fn of(code: Code, text: &str) -> Option<Self> {
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
        Error::GRpcStatus(status) => said(status.code(), status.message()),
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

fn said(code: Code, text: &str) -> Failure {
    match Refusal::of(code, text) {
        Some(Refusal::Timeout) => Failure::Timeout,
        Some(Refusal::TryAgain | Refusal::LoginOutdated) => Failure::Unavailable,
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
    is_status(error, Code::NotFound, "lease not found")
}

/// Whether a lease of this id exists already.
pub(super) fn is_lease_present(error: &Error) -> bool {
    is_status(error, Code::FailedPrecondition, "lease already exists")
}

/// Whether a revision cannot be read: etcd has forgotten it, or a member does not have it yet.
pub(super) fn is_revision_unreadable(error: &Error) -> bool {
    ["required revision has been compacted", "required revision is a future revision"]
        .iter()
        .any(|text| is_status(error, Code::OutOfRange, text))
}

/// Whether etcd has refused a request before it did anything. That it has no space left it may
/// also say when the request is done.
pub(super) fn is_refused(error: &Error) -> bool {
    let is_checked_first = status(error).is_some_and(|(code, text)| {
        let codes = [Code::InvalidArgument, Code::PermissionDenied, Code::Unauthenticated];
        codes.contains(&code) && text.starts_with("etcdserver: ")
    });
    is_checked_first && !is_login_outdated(error)
        || is_lease_missing(error)
        || is_request_too_large(error)
}

/// Whether a transaction has more operations than this etcd takes.
pub(super) fn is_too_many_operations(error: &Error) -> bool {
    is_status(error, Code::InvalidArgument, "too many operations")
}

/// Whether a request has more bytes than this etcd takes.
pub(super) fn is_request_too_large(error: &Error) -> bool {
    is_status(error, Code::InvalidArgument, "request is too large")
        || is_status(error, Code::ResourceExhausted, "received message larger than max")
}

/// Whether a user was named to an etcd without users.
pub(super) fn is_without_users(error: &Error) -> bool {
    is_status(error, Code::FailedPrecondition, "authentication is not enabled")
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
    is_status(error, Code::PermissionDenied, "permission denied")
}

/// Whether the answer came from another service than etcd: it does not know the call, or it
/// speaks HTTP/2 but no gRPC.
pub(super) fn is_from_another_service(error: &Error) -> bool {
    let Error::GRpcStatus(status) = error else {
        return false;
    };
    is_status(error, Code::Unimplemented, "")
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
fn is_status(error: &Error, code: Code, part: &str) -> bool {
    status(error).is_some_and(|(found, text)| found == code && text.contains(part))
}

/// The code and the text of an error that etcd itself sent.
fn status(error: &Error) -> Option<(Code, &str)> {
    let Error::GRpcStatus(status) = error else { return None };
    status.source().is_none().then(|| (status.code(), status.message()))
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
            (Code::Unknown, "etcdserver: too many requests", unavailable),
            (Code::ResourceExhausted, "etcdserver: too many requests", unavailable),
            (Code::Unavailable, "etcdserver: no leader", unavailable),
            (Code::Unavailable, "etcdserver: leader changed", unavailable),
            (Code::Unavailable, "etcdserver: request timed out", timeout),
            (Code::DeadlineExceeded, "context deadline exceeded", timeout),
            (Code::InvalidArgument, "etcdserver: request is too large", invalid),
            (Code::ResourceExhausted, "grpc: received message larger than max (9 vs. 8)", invalid),
            (Code::OutOfRange, "etcdserver: too large lease TTL", invalid),
            (Code::OutOfRange, "something else", other),
            (Code::ResourceExhausted, "etcdserver: mvcc: database space exceeded", other),
            (Code::PermissionDenied, "etcdserver: permission denied", denied),
            (Code::Unauthenticated, "etcdserver: invalid auth token", denied),
            (Code::InvalidArgument, "etcdserver: user name is empty", denied),
            (Code::InvalidArgument, "etcdserver: authentication failed, invalid user ID or password", denied),
            (Code::InvalidArgument, "etcdserver: revision of auth store is old", unavailable),
            (Code::Unknown, "auth: revision in header is old", unavailable),
            (Code::Ok, "?", other),
        ] {
            assert_eq!(said(code, text), meaning(text), "{code:?} {text}");
        }
        let large = said(Code::OutOfRange, "Error, decoded message length too large");
        let Failure::Other(sentence) = large else { panic!("{large:?}") };
        assert!(sentence.contains("ask for less"), "{sentence}");
    }

    fn error(code: Code, text: &str) -> Error {
        Error::GRpcStatus(Status::new(code, text))
    }

    #[test]
    #[rustfmt::skip]
    fn each_question_is_answered_by_code_and_text_together() {
        type Question = fn(&Error) -> bool;
        let questions: [(Question, Code, &str); 9] = [
            (is_lease_missing, Code::NotFound, "etcdserver: requested lease not found"),
            (is_lease_present, Code::FailedPrecondition, "etcdserver: lease already exists"),
            (is_revision_unreadable, Code::OutOfRange, "etcdserver: mvcc: required revision has been compacted"),
            (is_revision_unreadable, Code::OutOfRange, "etcdserver: mvcc: required revision is a future revision"),
            (is_without_users, Code::FailedPrecondition, "etcdserver: authentication is not enabled"),
            (is_login_refused, Code::InvalidArgument, "etcdserver: authentication failed"),
            (is_login_refused, Code::InvalidArgument, "etcdserver: user name is empty"),
            (is_login_refused, Code::InvalidArgument, "etcdserver: user name not found"),
            (is_key_forbidden, Code::PermissionDenied, "etcdserver: permission denied"),
        ];
        for (is_so, code, text) in questions {
            assert!(is_so(&error(code, text)), "{text}");
            assert!(!is_so(&error(code, "something else")), "another text than {text}");
            assert!(!is_so(&error(Code::Unknown, text)), "another code than that of {text}");
        }
        assert!(is_lease_missing(&Error::LeaseKeepAliveError("lease not found".into())));
        assert!(!is_lease_missing(&Error::LeaseKeepAliveError("create watch failed".into())));
        assert!(is_login_refused(&error(Code::Unauthenticated, "invalid auth token")));
        for text in ["revision of auth store is old", "auth: revision in header is old"] {
            assert!(is_login_outdated(&error(Code::InvalidArgument, text)), "{text}");
        }
        assert!(!is_login_outdated(&error(Code::InvalidArgument, "user name is empty")));
    }

    #[test]
    fn what_knows_no_call_of_etcds_is_no_etcd() {
        assert!(is_from_another_service(&error(Code::Unimplemented, "unknown service")));
        let without = error(Code::Unknown, "grpc-status header missing, mapped from HTTP 404");
        assert!(is_from_another_service(&without));
        assert!(!is_from_another_service(&error(Code::Unavailable, "no leader")));
        assert!(!is_from_another_service(&Error::EndpointsNotManaged));
    }

    #[test]
    fn a_chain_has_what_says_something() {
        assert_eq!(chain(&error(Code::Unavailable, "no leader")), "no leader");
        assert_eq!(chain(&error(Code::Unavailable, "transport error")), "");
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
