"""What can go wrong, as an application sees it."""

from wasmtime.component import Variant


class ElectionError(Exception):
    """Why something did not come about."""


class Unreachable(ElectionError):
    """No etcd answers, or it refuses us."""


class Withdrawn(ElectionError):
    """The candidacy is refused."""


class Closed(ElectionError):
    """The session is closed."""


class Stale(ElectionError):
    """The term is over: nothing was changed."""


class Conflict(ElectionError):
    """The key is not at the revision that was expected: nothing was changed."""


class Refused(ElectionError):
    """etcd refuses the write: nothing was changed."""


class Unknown(ElectionError):
    """No answer: it may have been written, and may be yet, as long as the term's key is there.

    Write that key again only with `modified`, or in another term.
    """


def sentence(failure: Variant) -> str:
    """A `failure` of the WIT, for a person."""
    texts = {"timeout": "etcd did not answer in time", "unavailable": "etcd was not reached, or is not ready"}
    return str(failure.payload or texts.get(failure.tag, failure.tag))
