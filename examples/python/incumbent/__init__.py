"""Leader election on etcd: the Incumbent elector, a WebAssembly component, in Python."""

from .errors import Closed, Conflict, ElectionError, Refused, Stale, Unknown, Unreachable, Withdrawn
from .recorder import Recording
from .session import Leadership, Session, connect

__all__ = [
    "Closed",
    "Conflict",
    "ElectionError",
    "Leadership",
    "Recording",
    "Refused",
    "Session",
    "Stale",
    "Unknown",
    "Unreachable",
    "Withdrawn",
    "connect",
]
