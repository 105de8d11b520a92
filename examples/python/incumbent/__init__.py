"""Leader election on etcd: the Incumbent elector, a WebAssembly component, in Python."""

from .driver import Withdrawn
from .session import Conflict, Leadership, Session, Stale, Unknown, Unreachable, WriteError, connect

__all__ = [
    "Conflict",
    "Leadership",
    "Session",
    "Stale",
    "Unknown",
    "Unreachable",
    "Withdrawn",
    "WriteError",
    "connect",
]
