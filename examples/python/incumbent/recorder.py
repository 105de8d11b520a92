"""Writes what the electors of a session are told and what they say to files, for `incumbent replay DIR`.

tests/transcripts/README.md has the form of the lines.
"""

import asyncio
import fcntl
import hashlib
import itertools
import json
import logging
import os
import queue
import re
import secrets
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from time import sleep
from typing import Any

from wasmtime.component import (
    S64,
    U8,
    U64,
    ListType,
    OptionType,
    RecordType,
    ResultType,
    TupleType,
    VariantType,
)

from .component import component_hash, now
from .store import SECOND

log = logging.getLogger("incumbent")

VERSION = "0.1.0 (Python)"
#: A recording is cut into so many segments, the oldest of which go.
SEGMENTS = 16
#: The least that a recording may take, in bytes.
LEAST = 64 << 10
#: How many events and commands may wait to be written.
WAITING = 1 << 16
#: How many bytes a line may have.
LONGEST = 16 << 20
#: What the keys of wishes begin with, and what their values are: numbers, and perhaps `now`.
WISHES = b"incumbent-wishes/"
WISH = re.compile(rb"(now|[+-]?\d{1,18})( (now|[+-]?\d{1,18}))*")
#: How often the wall clock is told, in nanoseconds.
CLOCK_EVERY = 10 * SECOND
#: How long lines are gathered for one write: what has just begun goes first.
GATHERING = 0.005
#: How long a session that closes waits for its last lines, in seconds.
LAST_LINES = 2.0


@dataclass(frozen=True)
class Recording:
    """Where and how a session is recorded."""

    #: The directory of the files, which is made if it is not there. Several processes may share one.
    dir: str | os.PathLike[str]
    #: How many bytes the files may take, with those of earlier starts in the same directory. The
    #: oldest files go first. 64 KiB at least.
    limit: int = 64 << 20
    #: Write the values of candidates and keys. Otherwise something else stands in their place, the
    #: same for the same value.
    values: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.dir, str | os.PathLike):
            raise TypeError(f"dir is {self.dir!r}, and has to be the path of a directory")
        if not isinstance(self.limit, int):
            raise TypeError(f"limit is {self.limit!r}, and has to be a number of bytes")
        if self.limit < LEAST:
            raise ValueError(f"limit is {self.limit}, and has to be a number of bytes, {LEAST} at least")


class Recorder:
    """Takes steps from the driver; a thread writes them. An error ends the recording, and nothing else."""

    _serials = itertools.count()

    def __init__(self, recording: Recording, identity: str) -> None:
        """Raises ValueError if the directory cannot be used."""
        self._dir, self._limit = Path(recording.dir), recording.limit
        self._hide = bytes.hex if recording.values else stand_ins()
        stem = f"{re.sub('[^0-9A-Z]', '', time())}-{os.getpid()}-{next(self._serials)}"
        self._head: dict[str, Any] = {
            "format": 1, "package": "incumbent:election@0.1.0", "name": "", "about": "", "identity": identity,
            "recording": stem, "segment": -1, "version": VERSION, "component": component_hash(),
        }
        #: The file that is being written, and how many bytes it has, with those in the buffer.
        self._file, self._bytes = -1, 0
        self._buffer, self._written = bytearray(), 0
        #: The other files, the oldest first.
        self._closed: deque[tuple[Path, int]] = deque()
        #: What the elector knows, for the beginning of a segment: names and keys, by the election.
        self._known: dict[int, dict[str, Any]] = {}
        self._clock_told = 0
        #: Lines that wait, each with its number of parts; all parts so far; and how many lines are left out.
        self._lines: queue.SimpleQueue[tuple[Callable[[], Any], int] | None] = queue.SimpleQueue()
        self._pushed = self._taken = self._missing = 0
        self._is_over = False
        try:
            self._dir.mkdir(parents=True, exist_ok=True)
            self._closed.extend(ended(self._dir))
            self._next()
            self._keep_to_limit()
        except OSError as error:
            self._end()
            raise ValueError(
                f"nothing can be recorded in {self._dir} ({error.strerror}): "
                "give a directory that we may write, or that we may make"
            ) from error
        self._thread = threading.Thread(target=self._write_all, name="incumbent-recorder", daemon=True)
        self._thread.start()

    # For the driver, on the event loop.

    def opened(self, mark: int, config: Any) -> None:
        """An elector is open, in place of the one before."""
        self._push(lambda: self._opened(mark, config), 1)

    def stepped(self, kinds: tuple[Any, Any], mark: int, events: list[Any], step: Any) -> None:
        """The elector has taken a step, None if it broke. `kinds` are the types of the events and the step."""
        self._push(lambda: self._stepped(kinds, mark, events, step), len(events) + (len(step.commands) if step else 0))

    def broke(self, why: str) -> None:
        """The elector is replaced."""
        line = host("broke", why)
        self._push(lambda: line, 1)

    def expired(self, name: str, epoch: int) -> None:
        """A term was ended at its deadline, before the elector did it."""
        line = host("expired", {"name": name, "epoch": str(epoch)})
        self._push(lambda: line, 1)

    async def close(self) -> None:
        """Writes what waits, for two seconds at most."""
        line = host("closed")
        self._push(lambda: line, 0)
        self._lines.put(None)
        await asyncio.to_thread(self._thread.join, LAST_LINES)

    def _push(self, line: Callable[[], Any], parts: int) -> None:
        if self._is_over:
            return
        if parts and self._pushed - self._taken > WAITING:
            self._missing += 1
            return
        if self._missing:
            missing, self._missing = self._missing, 0
            self._lines.put((lambda: host("gap", str(missing)), 0))
        self._pushed += parts
        self._lines.put((line, parts))

    # For the thread.

    def _write_all(self) -> None:
        try:
            while taken := self._lines.get():
                if not self._buffer:
                    sleep(GATHERING)
                line, parts = taken
                self._line(line())
                self._taken += parts
                if self._lines.empty():
                    self._flush()
            self._flush()
        except Exception as error:
            log.warning("the recording in %s has ended, and the election goes on: it cannot be written (%s)",
                        self._dir, error)
        self._end()

    def _opened(self, mark: int, config: Any) -> Any:
        self._known.clear()
        numbers = {name: list(map(str, n)) if isinstance(n, tuple) else str(n) for name, n in vars(config).items()}
        return {"open": numbers, "now": str(mark)}

    def _stepped(self, kinds: tuple[Any, Any], mark: int, events: list[Any], step: Any) -> Any:
        self._learn(events, step)
        told = encode(kinds[0], events, self._hide)
        return {"now": str(mark), "events": told, "step": step and encode(kinds[1], step, self._hide)}

    def _learn(self, events: list[Any], step: Any) -> None:
        for event in events:
            if event.tag == "campaign":
                election, name = event.payload.election, event.payload.name
                self._known[election] = {"election": election, "name": name, "key": ""}
        for command in step.commands if step else []:
            if command.tag != "notify":
                continue
            notice = command.payload
            if notice.tag == "withdrawn":
                self._known.pop(notice.payload.election, None)
            elif notice.tag == "joined" and notice.payload.election in self._known:
                self._known[notice.payload.election]["key"] = notice.payload.key.hex()

    def _line(self, line: Any) -> None:
        text = as_text(line)
        if len(text) > min(self._limit // 4, LONGEST):
            text = as_text(host("gap", "1"))
        if self._bytes + len(text) > self._limit // SEGMENTS:
            self._next()
        elif now() - self._clock_told > CLOCK_EVERY:
            self._tell_clock()
        self._add(text)
        self._keep_to_limit()

    def _next(self) -> None:
        """Begins the next segment, with what makes it readable without those before."""
        former, self._file = self._file, -1
        if former >= 0:
            self._flush(former)
            self._closed.append((self._path(), self._bytes))
        self._head["segment"] += 1
        self._file = os.open(self._path(), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o600)
        lock(self._file, fcntl.LOCK_EX)
        if former >= 0:
            os.close(former)
        self._bytes = self._written = 0
        self._add(as_text(self._head))
        self._tell_clock()
        left, elections = self._limit // SEGMENTS // 2, []
        for known in self._known.values():
            left -= 100 + len(known["name"].encode()) + len(known["key"])
            if left <= 0:
                break
            elections.append(known)
        if elections:
            self._add(as_text(host("elections", elections)))

    def _path(self) -> Path:
        return self._dir / f"{self._head['recording']}-{self._head['segment']:06}.jsonl"

    def _tell_clock(self) -> None:
        self._clock_told = now()
        self._add(as_text(host("clock", time())))

    def _add(self, text: bytes) -> None:
        self._buffer += text
        self._bytes += len(text)

    def _flush(self, file: int | None = None) -> None:
        while self._buffer:
            del self._buffer[:os.write(self._file if file is None else file, self._buffer)]
        self._written = self._bytes

    def _keep_to_limit(self) -> None:
        """Removes the oldest files, as long as there is too much."""
        while self._closed and self._bytes + sum(size for _, size in self._closed) > self._limit:
            self._closed.popleft()[0].unlink(missing_ok=True)

    def _end(self) -> None:
        self._is_over = True
        file, self._file = self._file, -1
        if file >= 0:
            try:
                # No line is torn. A file that cannot even be cut is read up to its last line.
                if self._written < self._bytes:
                    os.truncate(file, self._written)
            except OSError:
                pass
            finally:
                os.close(file)


def encode(
    kind: Any, value: Any, hide: Callable[[bytes], str] = bytes.hex, name: str = "", at: bytes = b""
) -> Any:
    """What wasmtime-py gives for a value of this type, as JSON. `hide` writes the bytes that are values."""
    match kind:
        case U64() | S64():
            return str(value)
        case ListType():
            if is_bytes(kind):
                # The component makes and reads wishes: without their values, no replay says the same.
                is_shown = at.startswith(WISHES) and WISH.fullmatch(value)
                return (hide if name in ("value", "proclaim") and not is_shown else bytes.hex)(value)
            return [encode(kind.element, item, hide, name, at) for item in value]
        case RecordType():
            at = getattr(getattr(value, "guard", value), "key", at)
            return {field: encode(part, getattr(value, field), hide, field, at) for field, part in kind.fields}
        case TupleType():
            return [encode(part, item, hide) for part, item in zip(kind.elements, value, strict=True)]
        case OptionType():
            return None if value is None else encode(kind.payload, value, hide, name, at)
        case VariantType() | ResultType():
            payload = dict(cases(kind))[value.tag]
            if not payload:
                return {"tag": value.tag}
            return {"tag": value.tag, "val": encode(payload, value.payload, hide, value.tag, at)}
    return value


def is_bytes(kind: ListType) -> bool:
    return isinstance(kind.element, U8)


def cases(kind: VariantType | ResultType) -> list[tuple[str, Any]]:
    return kind.cases if isinstance(kind, VariantType) else [("ok", kind.ok), ("err", kind.err)]


def stand_ins() -> Callable[[bytes], str]:
    """Makes stand-ins, which tell nothing without a key that is never written."""
    key = secrets.token_bytes(32)

    def stand_in(value: bytes) -> str:
        digest = hashlib.blake2b(value, digest_size=8, key=key)
        return f"~{digest.hexdigest()}:{max(len(value), 8)}" if value else ""

    return stand_in


def host(tag: str, *val: Any) -> Any:
    """What the host did, as a line."""
    return {"now": str(now()), "host": {"tag": tag, **({"val": val[0]} if val else {})}}


def as_text(line: Any) -> bytes:
    return json.dumps(line, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"


def time() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"


def lock(file: int, kind: int) -> bool:
    """Locks a file as being written, or finds that it is."""
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def ended(dir: Path) -> list[tuple[Path, int]]:
    """Our files of recordings that have ended, the oldest first: nobody holds a lock on their last file."""
    recordings: dict[str, list[Path]] = {}
    for path in sorted(dir.iterdir()):
        name = re.fullmatch(r"(\w+-\d+-\d+)-\d+\.jsonl", path.name)
        if name and path.is_file() and not path.is_symlink() and path.stat().st_uid == os.geteuid():
            recordings.setdefault(name[1], []).append(path)
    return [(path, path.stat().st_size) for files in recordings.values() if not is_written(files[-1]) for path in files]


def is_written(path: Path) -> bool:
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return True
    try:
        return not lock(file, fcntl.LOCK_SH)
    finally:
        os.close(file)
