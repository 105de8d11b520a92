"""What an application holds: a session, and the leadership of one term."""

import asyncio
import os
import socket
from collections.abc import Callable
from typing import Literal, Self

from wasmtime.component import Variant

from .access import Credentials, File
from .component import now, record
from .driver import Candidacy, Driver
from .errors import Closed, Conflict, Refused, Stale, Unknown, sentence
from .recorder import Recorder, Recording
from .store import SECOND, Etcd

#: Text is written as UTF-8.
Data = str | bytes | bytearray | memoryview


class Leadership:
    """One term, and no later one. A context manager: its end is `resign`."""

    def __init__(self, driver: Driver, candidacy: Candidacy) -> None:
        self._driver, self._candidacy = driver, candidacy
        self._term = candidacy.elected.result().term
        #: The leader's key.
        self.key: bytes = candidacy.elected.result().key
        #: The fencing token: it rises from one term of an election to the next.
        self.epoch: int = self._term.epoch

    @property
    def valid_until(self) -> int:
        """The deadline, as extended so far, in nanoseconds of CLOCK_BOOTTIME."""
        return self._candidacy.valid_until

    def is_valid(self) -> bool:
        """Whether the term stands, by the clock at this moment; from any thread.

        Ask right before whatever only the leader may do: while the event loop is blocked, or
        the process paused, nothing tells of a loss.
        """
        return now() < self._candidacy.valid_until and not self._candidacy.lost.done()

    async def endangered(self) -> None:
        """Waits until renewals fail and less than half of the time is left: get ready to stop."""
        await self._candidacy.endangered.wait()

    async def lost(self) -> str:
        """Waits for the end, and says why: resigned, expired, lease-lost, deposed, fenced, or a sentence."""
        return await asyncio.shield(self._candidacy.lost)

    async def put(self, key: Data, value: Data, modified: int | None = None) -> int:
        """Writes a key while this term stands, never after it, and gives the revision.

        `modified` is the revision of the key's last change, 0 where there is to be none yet.
        Raises Stale, Conflict, Refused, Unknown. Not cancel safe: it may happen all the same.
        """
        key = _bytes("key", key)
        return await self._write(Variant("put", record(key=key, value=_bytes("value", value))), key, modified)

    async def delete(self, key: Data, modified: int | None = None) -> int:
        """Deletes a key, as `put` writes one."""
        key = _bytes("key", key)
        return await self._write(Variant("delete", key), key, modified)

    async def _write(self, mutation: Variant, key: bytes, modified: int | None) -> int:
        if modified is not None and not isinstance(modified, int):
            raise TypeError(f"modified is {modified!r}, and has to be a revision, an int")
        if modified is not None and not 0 <= modified < 2**63:
            raise ValueError(f"modified is {modified}, and has to be a revision, 0 to 2**63 - 1")
        expect = [] if modified is None else [record(key=key, modified=modified)]
        outcome = await self._driver.write(self._term, expect, [mutation])
        match outcome.tag:
            case "applied":
                return int(outcome.payload)
            case "stale":
                self._driver.meter.fenced()
                raise Stale(f"the term of epoch {self.epoch} is over: nothing was changed")
            case "conflict":
                raise Conflict(f"{key!r} was changed since revision {modified}: nothing was changed")
            case "failed":
                raise Refused(sentence(outcome.payload))
        raise Unknown("no answer: it may have happened, or happen yet")

    async def resign(self) -> str:
        """The work has stopped: gives the leadership back, and says why the term ended.

        Call it after a loss as well: there is no other candidacy of this name on the session
        before it. Returns when nothing is left in etcd, which takes a lease time at most.
        """
        if not self._candidacy.over.done():
            self._driver.tell("yielded", self._term)
        await asyncio.shield(self._candidacy.over)
        return self._candidacy.lost.result()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.resign()


class Session:
    """One identity and one lease, and any number of candidacies on it. Made by `connect`."""

    def __init__(self, store: Etcd, driver: Driver, identity: str) -> None:
        self._store, self._driver, self.identity = store, driver, identity
        self._loop = asyncio.create_task(driver.run())

    async def campaign(
        self,
        name: str,
        contest: Literal["queue", "race"] = "queue",
        value: Data | None = None,
        *,
        priority: int = 0,
        preempt_after: float | None = None,
    ) -> Leadership:
        """Stands for election, and waits to lead, as long as it takes. Leaves when it is cancelled.

        All candidates of a name have to agree on the contest. `value` is what others read of
        this candidate: the session's identity unless given. Those in line with a lower priority get
        behind this candidate, and below zero it leads only if nobody else is in line. A leader with a
        lower priority hands over to it, once, after so many seconds. Raises Withdrawn, Closed.
        """
        if contest not in ("queue", "race"):
            raise ValueError(f"{contest!r} is no contest: queue or race")
        if not isinstance(name, str):
            raise TypeError(f"the name of the election is {name!r}, and has to be a str")
        if not isinstance(priority, int):
            raise TypeError(f"priority is {priority!r}, and has to be a whole number")
        if not -(2**31) <= priority < 2**31:
            raise ValueError(f"priority is {priority}, and has to be a number of 32 bits")
        name.encode()  # What has no UTF-8 is refused here, and not in the driver.
        value = _bytes("value", self.identity if value is None else value)
        while leaving := self._driver.leaving.get(name):
            await asyncio.wait([earlier.over for earlier in leaving])
        if self._driver.closes:
            raise Closed("the session is closed") from self._driver.broken
        after = None if preempt_after is None else _nanoseconds("preempt_after", preempt_after)
        candidacy = self._driver.campaign(name, contest, value, priority, after)
        try:
            await candidacy.elected
        except asyncio.CancelledError:
            self._driver.leave(candidacy)
            raise
        return Leadership(self._driver, candidacy)

    def drain(self, at_once: int = 16) -> None:
        """Hands over all terms in order, and takes part in nothing until `undo_drain`.

        For a process whose machine is about to be taken away. Each term ends as soon as somebody
        else is in line (`resigned`), and in a race at once, `at_once` of them at a time. Candidates
        leave the line, and go on as candidates.
        """
        self._driver.drain(_count("at_once", at_once))

    def undo_drain(self) -> None:
        """Takes part again."""
        self._driver.drain(None)

    def limit(self, at_most: int | None = None, *, is_fair: bool = False, at_once: int = 32) -> None:
        """Leads no more than that where others are in line too; as much as comes if nothing is given.

        `at_most` so many terms, and with `is_fair` no more than its fair part, by who is in line.
        What is beyond that is handed over in order, `at_once` terms at a time. If nobody else is in
        line, it leads all the same.
        """
        at_once = _count("at_once", at_once)
        if at_most is None and not is_fair:
            self._driver.unlimited()
        else:
            most = 2**32 - 1 if at_most is None else _count("at_most", at_most)
            self._driver.limit(most, bool(is_fair), at_once)

    async def get(self, key: Data, within: float = 5.0) -> tuple[bytes | None, int]:
        """A key's value as it is now, and the revision of its last change: None and 0 without one."""
        return await self._store.get(_bytes("key", key), within)

    async def close(self) -> None:
        """Leaves everything, and gives the lease back. Waits for terms that were not resigned.

        Cancel it to leave at once: what is left in etcd is gone after a lease time.
        """
        try:
            self._driver.close()
            await asyncio.wait([self._loop])
        finally:
            self._loop.cancel()
            await asyncio.wait([self._loop])
            if self._driver.recorder:
                await self._driver.recorder.close()
            await self._store.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


async def connect(
    url: str = "etcd://127.0.0.1:2379",
    identity: str | None = None,
    ttl: float = 10.0,
    margin: float = 0.0,
    within: float = 5.0,
    on_notice: Callable[[Variant], object] = lambda notice: None,
    *,
    ca: File | None = None,
    cert: File | None = None,
    key: File | None = None,
    user: str | None = None,
    password_file: File | None = None,
    record: Recording | None = None,
) -> Session:
    """Connects to the etcd at `url`, and makes sure that it answers and accepts us. Times are in seconds.

    The URL is `etcd://HOST:PORT[,HOST:PORT…][/PREFIX]`, or `etcds://…` for TLS. With a prefix, all
    keys begin with `PREFIX/` in etcd, and here they do not.

    `identity` is what others read of this process, and `ttl` how long they wait if it dies.
    `margin` is taken off every deadline, for clocks that run at different rates; 1% of the
    lease time at least. `on_notice` hears what the elector says: a `notice` of wit/types.wit.

    `ca` names the authorities that signed etcd's certificate, the system's unless given; `cert` and
    `key` are our own certificate and its key: PEM files. `user` logs in with the first line of
    `password_file`, which is read at each login.

    `record` writes every step to files, which `incumbent replay` reads.

    Raises Unreachable; ValueError or TypeError where it is not what it has to be.
    """
    _nanoseconds("within", within)
    if not isinstance(identity, str | None):
        raise TypeError(f"identity is {identity!r}, and has to be a str")
    if not isinstance(record, Recording | None):
        raise TypeError(f"record is {record!r}, and has to be a Recording")
    identity = identity or f"{socket.gethostname()}-{os.getpid()}"
    config = {
        "lease_ttl": _nanoseconds("ttl", ttl),
        "safety_margin": _nanoseconds("margin", margin),
        "request_timeout": 5 * SECOND,
    }
    credentials = Credentials(ca=ca, cert=cert, key=key, user=user, password_file=password_file)
    store, recorder = Etcd(url, credentials), None
    try:
        await store.prove(within)
        if record:
            recorder = await asyncio.to_thread(Recorder, record, identity)
        driver = Driver(store, config, on_notice, recorder)
    except BaseException:
        if recorder:
            await recorder.close()
        await store.close()
        raise
    return Session(store, driver, identity)


def _nanoseconds(what: str, seconds: float) -> int:
    if not isinstance(seconds, int | float):
        raise TypeError(f"{what} is {seconds!r}, and has to be a number of seconds")
    if not 0 <= seconds <= 1e9:
        raise ValueError(f"{what} is {seconds}, and has to be a number of seconds from 0 to 1e9")
    return round(seconds * SECOND)


def _count(what: str, given: int) -> int:
    if not isinstance(given, int):
        raise TypeError(f"{what} is {given!r}, and has to be a whole number")
    if not 0 < given < 2**32:
        raise ValueError(f"{what} is {given}, and has to be 1 at least, and a number of 32 bits")
    return given


def _bytes(what: str, data: Data) -> bytes:
    """As the elector takes it; anything else is refused here, where only the caller suffers."""
    if isinstance(data, str):
        return data.encode()
    if isinstance(data, bytes | bytearray | memoryview):
        return bytes(data)
    raise TypeError(f"the {what} is {data!r}, and has to be str or bytes")
