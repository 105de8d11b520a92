"""Operations and watches on a real etcd, without an elector."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from conftest import Relay, until, soon
from etcd import TIMEOUT, VERSIONS
from etcd import Etcd as Server
from grpc import StatusCode
from wasmtime.component import Variant

from incumbent.component import record
from incumbent.store import Etcd, _end, failure

LEASE = 0x694D71DDACFDA227
SECOND = 1_000_000_000
GIVEN_UP = Variant("err", Variant("unavailable"))


@contextlib.asynccontextmanager
async def store_on(etcd: Server) -> AsyncIterator[Etcd]:
    store = Etcd(etcd.url)
    try:
        yield store
    finally:
        await store.close()


async def ask(store: Etcd, tag: str, payload: Any) -> Any:
    outcome: Any = await store.call(Variant(tag, payload), 5.0)
    return outcome.payload if outcome.tag == "ok" else outcome


async def test_what_each_operation_answers(etcd: Server) -> None:
    async with store_on(etcd) as store:
        grant = record(lease=LEASE, ttl=2_500_000_000)
        assert await ask(store, "grant", grant) == Variant("granted", 3 * SECOND)
        assert await ask(store, "grant", grant) == Variant("exists")
        assert await ask(store, "keep-alive", LEASE) == Variant("renewed", 3 * SECOND)
        claimed = await ask(store, "claim", record(key=b"a/1", value=b"mine", lease=LEASE))
        epoch = claimed.payload.at
        assert claimed.tag == "claimed" and claimed.payload.entry.created == epoch
        taken = await ask(store, "claim", record(key=b"a/1", value=b"other", lease=LEASE))
        assert taken.tag == "taken" and (taken.payload.entry.value, taken.payload.entry.lease) == (b"mine", LEASE)

        put = Variant("put", record(key=b"data", value=b"1"))
        for lease, guard_epoch, modified, answer in (
            (None, epoch + 1, 0, "stale"), (LEASE + 1, epoch, 0, "stale"), (LEASE, epoch, 1, "conflict"),
            (LEASE, epoch, 0, "applied"), (None, epoch, 0, "conflict"),
        ):
            guarded = record(
                guard=record(key=b"a/1", epoch=guard_epoch, lease=lease),
                expect=[record(key=b"data", modified=modified)],
                mutations=[put, Variant("proclaim", b"leader"), Variant("delete", b"absent")],
            )
            assert (await ask(store, "guarded", guarded)).tag == answer

        def select(key: bytes, before: int | None, order: str = "oldest-first", limit: int = 0) -> Any:
            rest = {"from": None, "keys_only": False}
            return record(key=key, prefix=True, created_before=before, order=order, limit=limit, **rest)

        await ask(store, "claim", record(key=b"a/2", value=b"", lease=LEASE))
        wanted = [select(b"a/", None), select(b"a/", epoch + 1), select(b"a/", epoch), select(b"a/", 1),
                  select(b"a/", None, "newest-first", 1), select(b"\xff", None)]
        snapshot = (await ask(store, "read", wanted)).payload
        found = [[entry.key for entry in entries] for entries in snapshot.found]
        assert found == [[b"a/1", b"a/2"], [b"a/1"], [], [], [b"a/2"], []]
        assert snapshot.found[0][0].value == b"leader" and snapshot.found[0][0].lease == LEASE
        assert (await ask(store, "read", [])).payload.found == []

        assert await ask(store, "revoke", LEASE) == Variant("revoked")
        for tag, payload in (("revoke", LEASE), ("keep-alive", LEASE),
                             ("claim", record(key=b"a/1", value=b"", lease=LEASE))):
            assert await ask(store, tag, payload) == Variant("expired")


async def test_reads_from_a_key_on_page_by_page_and_keys_alone(etcd: Server) -> None:
    for name in ("c", "a", "e", "b", "d"):
        etcd.ctl("put", f"page/{name}", name)
    etcd.ctl("put", "page0", "behind")
    async with store_on(etcd) as store:

        async def found(first: bytes | None, order: str = "by-key", limit: int = 0, key: bytes = b"page/") -> bytes:
            wanted = {"key": key, "prefix": key.endswith(b"/"), "from": first, "order": order, "limit": limit}
            asked = [record(**wanted, created_before=None, keys_only=only) for only in (False, True)]
            whole, keys = (await ask(store, "read", asked)).payload.found
            assert all(entry.key[-1:] == entry.value for entry in whole)
            bare = [(entry.key, b"", entry.created, entry.modified) for entry in whole]
            assert bare == [(entry.key, entry.value, entry.created, entry.modified) for entry in keys]
            return b"".join(entry.key[-1:] for entry in keys)

        assert await found(None) == await found(b"") == b"abcde"
        assert await found(None, limit=2) == b"ab" and await found(b"page/b\0", limit=2) == b"cd"
        assert await found(b"page/b", "oldest-first") == b"cebd"
        assert await found(b"page/b", "newest-first", 1) == b"d"
        for beyond in (b"page/e\0", b"page0", b"z"):
            assert await found(beyond) == b""
        assert await found(None, key=b"page/c") == await found(b"page/b", key=b"page/c") == b"c"
        assert await found(b"page/d", key=b"page/c") == b""


@pytest.mark.parametrize(
    ("code", "text", "meaning"),
    [
        (StatusCode.UNKNOWN, "etcdserver: too many requests", "unavailable"),
        (StatusCode.RESOURCE_EXHAUSTED, "etcdserver: too many requests", "unavailable"),
        (StatusCode.UNAVAILABLE, "etcdserver: no leader", "unavailable"),
        (StatusCode.UNAVAILABLE, "etcdserver: leader changed", "unavailable"),
        (StatusCode.CANCELLED, "", "unavailable"),
        (StatusCode.ABORTED, "", "unavailable"),
        (StatusCode.UNAVAILABLE, "etcdserver: request timed out", "timeout"),
        (StatusCode.DEADLINE_EXCEEDED, "context deadline exceeded", "timeout"),
        (StatusCode.INVALID_ARGUMENT, "etcdserver: request is too large", "invalid"),
        (StatusCode.RESOURCE_EXHAUSTED, "grpc: received message larger than max (9 vs. 8)", "invalid"),
        (StatusCode.OUT_OF_RANGE, "etcdserver: too large lease TTL", "invalid"),
        (StatusCode.OUT_OF_RANGE, "something else", "other"),
        (StatusCode.RESOURCE_EXHAUSTED, "etcdserver: mvcc: database space exceeded", "other"),
        (StatusCode.PERMISSION_DENIED, "etcdserver: permission denied", "denied"),
        (StatusCode.UNAUTHENTICATED, "etcdserver: invalid auth token", "denied"),
        (StatusCode.INVALID_ARGUMENT, "etcdserver: user name is empty", "denied"),
        (StatusCode.INVALID_ARGUMENT, "etcdserver: user name not found", "denied"),
        (StatusCode.INVALID_ARGUMENT, "etcdserver: authentication failed, invalid user ID or password", "denied"),
        (StatusCode.INVALID_ARGUMENT, "etcdserver: revision of auth store is old", "unavailable"),
        (StatusCode.UNKNOWN, "auth: revision in header is old", "unavailable"),
        (StatusCode.UNKNOWN, "?", "other"),
    ],
)
def test_what_etcds_errors_mean(code: StatusCode, text: str, meaning: str) -> None:
    told = text if meaning in ("denied", "invalid", "other") else None
    assert failure(code, text) == Variant(meaning, told)


async def test_why_there_is_no_answer(etcd: Server) -> None:
    async with store_on(etcd) as store:
        huge = record(key=b"k", value=bytes(3_000_000), lease=LEASE)
        outcome: Any = await ask(store, "claim", huge)
        assert outcome.tag == "err" and outcome.payload.tag == "invalid"
        etcd.pause()
        for tag, payload in (("read", []), ("keep-alive", LEASE)):
            assert await store.call(Variant(tag, payload), 0.2) == Variant("err", Variant("timeout"))
        etcd.resume()
        etcd.kill()
        for tag, payload in (("read", []), ("keep-alive", LEASE)):
            assert await store.call(Variant(tag, payload), 5.0) == Variant("err", Variant("unavailable"))


async def test_what_a_stalled_member_was_asked_is_given_up_when_it_is_left(etcd: Server) -> None:
    async with Relay.to(etcd) as relay:
        store = Etcd(f"{relay.url},{etcd.url.removeprefix('etcd://')}")
        assert await ask(store, "revoke", LEASE) == Variant("expired")
        relay.stalls = True
        other = asyncio.create_task(store.call(Variant("read", []), 2 * TIMEOUT))
        assert await soon(store.call(Variant("read", []), 2 * TIMEOUT, 0.1)) == GIVEN_UP
        assert await soon(other) == GIVEN_UP
        assert await ask(store, "revoke", LEASE) == Variant("expired")
        await store.close()
        relay.stalls = False


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_member_without_a_leader_does_not_keep_us_waiting(version: str, tmp_path: Path) -> None:
    member, other = Server.cluster(version, tmp_path)
    try:
        async with store_on(member) as store:
            other.kill()
            async with asyncio.timeout(TIMEOUT):
                for tag, payload in (("read", []), ("keep-alive", LEASE)):
                    # It takes a moment to notice, and answers otherwise before it has.
                    while await store.call(Variant(tag, payload), 1.0) != Variant("err", Variant("unavailable")):
                        pass
    finally:
        member.kill()
        other.kill()


async def test_a_watch_misses_nothing_over_restarts_and_tells_nothing_twice(etcd: Server) -> None:
    async with store_on(etcd) as store:
        etcd.ctl("put", "w/0", "before")
        told: list[Any] = []

        async def tell(change: Any) -> None:
            told.append(change)

        request = record(id=1, key=b"w/", prefix=True, since=None)
        watching = asyncio.create_task(store.watch(request, tell))
        await until(lambda: told)
        assert told[0].tag == "started"
        for number in range(1, 4):
            etcd.ctl("put", f"w/{number}", str(number))
            etcd.ctl("del", f"w/{number}")
            await until(lambda: len(told) == 1 + 2 * number)
            etcd.restart()
        watching.cancel()
        assert [change.tag for change in told[1:]] == ["put", "deleted"] * 3
        revisions = [change.payload.modified if change.tag == "put" else change.payload.at for change in told[1:]]
        assert revisions == list(range(told[0].payload + 1, told[0].payload + 7))

        # From a revision on; and from one that is no more.
        told.clear()
        watching = asyncio.create_task(store.watch(record(id=2, key=b"w/3", prefix=False, since=revisions[4]), tell))
        await until(lambda: len(told) == 3)
        assert told[0] == Variant("started", revisions[4] - 1) and [c.tag for c in told[1:]] == ["put", "deleted"]
        watching.cancel()
        etcd.ctl("compact", str(revisions[5]))
        told.clear()
        await soon(store.watch(record(id=3, key=b"w/", prefix=True, since=2), tell))
        assert told[-1] == Variant("ended", Variant("compacted", revisions[5]))


async def test_a_watch_that_is_cancelled_as_it_begins_ends(etcd: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    async with store_on(etcd) as store:
        watch = store._watches.Watch

        def cancelled_with_the_answer(**options: Any) -> Any:
            stream = watch(**options)
            read = stream.read

            async def read_and_cancel() -> Any:
                answer = await read()
                watching.cancel()
                return answer

            monkeypatch.setattr(stream, "read", read_and_cancel)
            return stream

        async def tell(change: Any) -> None:
            pass

        monkeypatch.setattr(store._watches, "Watch", cancelled_with_the_answer)
        watching = asyncio.create_task(store.watch(record(id=1, key=b"w", prefix=False, since=None), tell))
        with pytest.raises(asyncio.CancelledError):
            await soon(asyncio.shield(watching))


async def test_a_denial_ends_a_watch_and_is_told(etcd: Server) -> None:
    async with store_on(etcd) as store:
        etcd.ctl("user", "add", "root:secret")
        etcd.ctl("user", "grant-role", "root", "root")
        etcd.ctl("auth", "enable")
        outcome: Any = await ask(store, "read", [])
        assert outcome.tag == "err" and outcome.payload.tag == "denied"
        told: list[Any] = []

        async def tell(change: Any) -> None:
            told.append(change)

        await soon(store.watch(record(id=1, key=b"w", prefix=False, since=None), tell))
        assert [change.tag for change in told] == ["ended"] and told[0].payload.tag == "denied"


@pytest.mark.parametrize(
    ("prefix", "end"), [(b"a/", b"a0"), (b"a\xff", b"b"), (b"\xff\xff", b"\0"), (b"a\xfe", b"a\xff")]
)
def test_where_a_prefix_ends(prefix: bytes, end: bytes) -> None:
    assert _end(prefix) == end
