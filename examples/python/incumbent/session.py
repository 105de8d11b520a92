"""What an application holds: a session, and the leadership of one term."""

import asyncio
from collections.abc import Callable
from typing import Any, Literal, Self

from aetcd import rpc
from wasmtime.component import Variant

from .component import now, record
from .driver import Candidacy, Driver
from .store import SECOND, Etcd


class Unreachable(Exception):
    """etcd did not answer."""


class WriteError(Exception):
    """A guarded write was refused: nothing was changed."""


class Stale(WriteError):
    """The term is over: nothing was changed. Whoever leads now is not disturbed."""


class Conflict(WriteError):
    """Somebody changed the key since the revision that was expected: nothing was changed."""


class Unknown(Exception):
    """No answer: the write may have happened, or happen yet, while the term's key is there."""


class Leadership:
    """One term. Use it as a context manager, or call `resign` once its work has stopped."""

    def __init__(self, driver: Driver, candidacy: Candidacy) -> None:
        self._driver, self._candidacy = driver, candidacy
        self._term = candidacy.elected.result().term
        self.key: bytes = candidacy.elected.result().key
        #: The fencing token: it rises with each leader of the election.
        self.epoch: int = self._term.epoch

    @property
    def valid_until(self) -> int:
        """The deadline, as extended so far, in nanoseconds of CLOCK_BOOTTIME."""
        return self._candidacy.valid_until

    def is_valid(self) -> bool:
        """Whether the term stands at this moment, by the clock; from any thread."""
        return now() < self._candidacy.valid_until and not self._candidacy.lost.done()

    async def endangered(self) -> None:
        """Waits until renewals fail and less than half of the time is left: get ready to stop."""
        await self._candidacy.endangered.wait()

    async def lost(self) -> str:
        """Waits for the end of the term: resigned, expired, lease-lost, deposed, fenced, or a sentence."""
        return await asyncio.shield(self._candidacy.lost)

    async def put(self, key: str | bytes, value: str | bytes, expect: int | None = None) -> int:
        """Writes only while this term stands, and gives the revision of the change.

        `expect` is the revision of the key's last change, 0 for none. Raises Stale, Conflict,
        WriteError, and Unknown. Not cancel safe: what was asked for may happen.
        """
        expectations = [] if expect is None else [record(key=_bytes(key), modified=expect)]
        put = Variant("put", record(key=_bytes(key), value=_bytes(value)))
        outcome: Any = await self._driver.write(self._term, expectations, [put])
        if outcome.tag == "applied":
            return int(outcome.payload)
        if outcome.tag == "failed":
            raise WriteError(f"{outcome.payload.tag}: {outcome.payload.payload or 'etcd says no more'}")
        raise {"stale": Stale, "conflict": Conflict}.get(outcome.tag, Unknown)(f"epoch {self.epoch}: {key!r}")

    async def resign(self) -> str:
        """Says that the work has stopped, gives the office back, and says why the term ended.

        To be called after `lost` too. Returns when nothing of the term is left in etcd.
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
    """A connection to etcd, a lease, and the elections held on it."""

    def __init__(self, store: Etcd, driver: Driver, identity: str) -> None:
        self._store, self._driver, self.identity = store, driver, identity
        self._loop = asyncio.create_task(driver.run())

    async def campaign(self, name: str, contest: Literal["queue", "race"] = "queue") -> Leadership:
        """Joins, and waits its turn. When it is cancelled, it leaves the queue."""
        if contest not in ("queue", "race"):
            raise ValueError(f"{contest!r} is no contest: queue or race")
        for candidacy in list(self._driver.candidacies.values()):
            if candidacy.leaves and candidacy.wish.name == name:
                await asyncio.shield(candidacy.over)
        candidacy = self._driver.campaign(name, contest, self.identity.encode())
        try:
            await candidacy.elected
        except asyncio.CancelledError:
            self._driver.leave(candidacy)
            raise
        return Leadership(self._driver, candidacy)

    async def get(self, key: str | bytes, within: float = 5.0) -> tuple[bytes | None, int]:
        """A key's value, None if there is none, and the revision of its last change."""
        try:
            return await self._store.get(_bytes(key), within)
        except rpc.AioRpcError as error:
            raise Unreachable(f"etcd does not answer: {error.details()}") from error

    async def close(self) -> None:
        """Leaves everything, and gives the lease back. Resign first: terms are waited for."""
        try:
            self._driver.close()
            await asyncio.wait([self._driver.closed, self._loop], return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._loop.cancel()
            await self._store.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


async def connect(
    url: str = "etcd://127.0.0.1:2379",
    identity: str = "",
    ttl: float = 10.0,
    within: float = 5.0,
    on_notice: Callable[[Variant], object] = lambda notice: None,
) -> Session:
    """Opens a session on the etcd at `url`. Times are in seconds.

    `identity` is what others read of our candidates; `ttl` is how long the others wait if we die.
    `on_notice` is told all that the elector says, as `notice` of wit/types.wit. Raises Unreachable.
    """
    store = Etcd(url)
    try:
        await store.prove(within)
        times = {"lease_ttl": ttl, "safety_margin": 0.0, "request_timeout": 5.0}
        driver = Driver(store, {name: round(time * SECOND) for name, time in times.items()}, on_notice)
    except BaseException as error:
        await store.close()
        if isinstance(error, rpc.AioRpcError):
            raise Unreachable(
                f"no etcd answers at {store.members} within {within:g} s: is one running there? ({error.details()})"
            ) from error
        raise
    return Session(store, driver, identity)


def _bytes(text: str | bytes) -> bytes:
    return text.encode() if isinstance(text, str) else text
