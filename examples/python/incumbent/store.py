"""etcd: the operations and watches of wit/types.wit, as requests, and what their answers mean."""

import asyncio
import ipaddress
import random
import re
from collections.abc import Awaitable, Callable
from typing import Any

from aetcd import rpc
from grpc import StatusCode
from wasmtime.component import Variant

from .component import record

SECOND = 1_000_000_000
#: A member that has no leader says so, and does not keep us waiting.
LEADER = (("hasleader", "true"),)
#: Which keys come first. By key is as etcd has them: it stops at the limit.
SORTED = {"oldest-first": ("CREATE", "ASCEND"), "newest-first": ("CREATE", "DESCEND"), "by-key": ("KEY", "NONE")}
#: How long etcd may take to answer that a watch is on.
OPENING = 5.0
#: What etcd says of a login that is older than the last change of its users.
OLD_LOGIN = ("revision of auth store is old", "revision in header is old")
#: What etcd says where no user, or an unknown one, was named.
UNKNOWN_USER = ("authentication failed", "user name is empty", "user name not")
OPTIONS = [
    ("grpc.enable_http_proxy", 0),
    # The elector tries again, and has to know how often it asked.
    ("grpc.enable_retries", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    # Notices a link that died without a word. etcd hangs up on who asks every 5 s, or oftener.
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.http2.max_pings_without_data", 0),
    # Others may have put large values where candidates are.
    ("grpc.max_receive_message_length", -1),
    # Two sessions of one process have a connection each.
    ("grpc.use_local_subchannel_pool", 1),
]


class Etcd:
    """A connection to etcd, which gRPC mends. Decides nothing about elections."""

    def __init__(self, url: str) -> None:
        self._scheme, self._members = _members(url)
        self.members, self._closing = ",".join(self._members), set[asyncio.Task[None]]()
        self._connect()

    def _connect(self) -> None:
        self._channel = rpc.insecure_channel(self._scheme + ",".join(self._members), options=OPTIONS)
        self._kv, self._leases = rpc.KVStub(self._channel), rpc.LeaseStub(self._channel)
        self._watches, self._maintenance = rpc.WatchStub(self._channel), rpc.MaintenanceStub(self._channel)

    async def close(self) -> None:
        await asyncio.gather(self._channel.close(), *self._closing)

    def _move_on(self, channel: Any) -> None:
        """Leaves a member that does not answer, or cannot, for the next; gRPC would stay with it.

        What is under way there is given up.
        """
        if channel is self._channel and len(self._members) > 1:
            self._members.append(self._members.pop(0))
            self._connect()
            closing = asyncio.create_task(channel.close())
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)

    async def prove(self, within: float) -> None:
        """Raises `rpc.AioRpcError` unless an etcd answers. gRPC tries all of the members."""
        await self._maintenance.Status(rpc.StatusRequest(), timeout=within)

    async def get(self, key: bytes, within: float) -> tuple[bytes | None, int]:
        """A key's value and the revision of its last change, as of now."""
        while True:
            try:
                answer = await self._kv.Range(rpc.RangeRequest(key=key), timeout=within, metadata=LEADER)
                return (answer.kvs[0].value, answer.kvs[0].mod_revision) if answer.kvs else (None, 0)
            except asyncio.CancelledError:
                if _is_cancelled():
                    raise  # Else the channel is closed, and a read may be asked again.

    async def call(self, operation: Variant, within: float, give_up: float = float("inf")) -> Variant:
        """Asks once, and gives the `outcome` of a reply: etcd's answer, or why there is none.

        After `give_up` another member is asked whatever comes next.
        """
        ask, channel = getattr(self, "_" + operation.tag.replace("-", "_")), self._channel
        late = asyncio.get_running_loop().call_later(min(within, give_up), self._move_on, channel)
        try:
            return Variant("ok", await ask(operation.payload, within))
        except rpc.AioRpcError as error:
            text = error.details() or ""
            if error.code() is StatusCode.NOT_FOUND and "lease not found" in text:
                return Variant("ok", Variant("expired"))
            if error.code() is StatusCode.FAILED_PRECONDITION and "lease already exists" in text:
                return Variant("ok", Variant("exists"))
            refusal = failure(error.code(), text)
            if refusal.tag in ("timeout", "unavailable"):
                self._move_on(channel)
            return Variant("err", refusal)
        except asyncio.InvalidStateError:
            return Variant("err", Variant("unavailable"))
        except asyncio.CancelledError:
            if _is_cancelled():
                raise
            return Variant("err", Variant("unavailable"))  # The channel is closed.
        finally:
            late.cancel()

    async def _grant(self, grant: Any, within: float) -> Variant:
        seconds = max(1, -(-grant.ttl // SECOND))
        request = rpc.LeaseGrantRequest(ID=grant.lease, TTL=seconds)
        answer = await self._leases.LeaseGrant(request, timeout=within, metadata=LEADER)
        return Variant("granted", answer.TTL * SECOND)

    async def _keep_alive(self, lease: int, within: float) -> Variant:
        # etcd's answers bear no number: a stream for each attempt, so that none is taken for another's.
        stream = self._leases.LeaseKeepAlive(timeout=within, metadata=LEADER)
        try:
            await stream.write(rpc.LeaseKeepAliveRequest(ID=lease))
            answer = await stream.read()
        finally:
            stream.cancel()
        if not answer:
            raise asyncio.InvalidStateError("etcd ended the stream")
        return Variant("renewed", answer.TTL * SECOND) if answer.TTL > 0 else Variant("expired")

    async def _revoke(self, lease: int, within: float) -> Variant:
        await self._leases.LeaseRevoke(rpc.LeaseRevokeRequest(ID=lease), timeout=within, metadata=LEADER)
        return Variant("revoked")

    async def _claim(self, claim: Any, within: float) -> Variant:
        put = rpc.PutRequest(key=claim.key, value=claim.value, lease=claim.lease)
        answer = await self._txn(
            within,
            compare=[_compare(claim.key, "CREATE", create_revision=0)],
            success=[rpc.RequestOp(request_put=put)],
            failure=[rpc.RequestOp(request_range=rpc.RangeRequest(key=claim.key))],
        )
        at = answer.header.revision
        if answer.succeeded:
            entry = record(key=claim.key, value=claim.value, lease=claim.lease, created=at, modified=at)
            return Variant("claimed", record(entry=entry, at=at))
        return Variant("taken", record(entry=_entry(answer.responses[0].response_range.kvs[0]), at=at))

    async def _read(self, selections: list[Any], within: float) -> Variant:
        """All at one revision, and in no transaction, which the first range tells.

        etcd 3.5.0 to 3.5.4 panic when a transaction that reads is given up while it is served (etcd#14110).
        """
        # Nothing at all is read at a revision, too.
        ranges = [_range(selection) for selection in selections] or [rpc.RangeRequest(key=b"\0", count_only=True)]
        ends = (clock := asyncio.get_running_loop().time)() + within

        async def ask(request: Any) -> Any:
            return await self._kv.Range(request, timeout=max(ends - clock(), 0.0), metadata=LEADER)

        while True:
            first = await ask(ranges[0])
            at = first.header.revision
            for request in ranges[1:]:
                # Any member that has the revision has the same.
                request.revision, request.serializable = at, True
            try:
                answers = [first, *await asyncio.gather(*(ask(request) for request in ranges[1:]))]
            except rpc.AioRpcError as error:
                # It was compacted in between, or another member was asked.
                if "required revision" in (error.details() or ""):
                    continue
                raise
            found = [[_entry(kv) for kv in answer.kvs] for answer in answers]
            return Variant("snapshot", record(at=at, found=found[: len(selections)]))

    async def _guarded(self, guarded: Any, within: float) -> Variant:
        guard = guarded.guard
        guards = [_compare(guard.key, "CREATE", create_revision=guard.epoch)]
        if guard.lease is not None:
            guards.append(_compare(guard.key, "LEASE", lease=guard.lease))
        # One transaction in the other tells a guard that does not hold from an expectation.
        inner = rpc.TxnRequest(
            compare=[_compare(e.key, "MOD", mod_revision=e.modified) for e in guarded.expect],
            success=[_change(guard.key, mutation) for mutation in guarded.mutations],
        )
        answer = await self._txn(within, compare=guards, success=[rpc.RequestOp(request_txn=inner)])
        if not answer.succeeded:
            return Variant("stale")
        done = answer.responses[0].response_txn.succeeded
        return Variant("applied", answer.header.revision) if done else Variant("conflict")

    async def _txn(self, within: float, **request: Any) -> Any:
        return await self._kv.Txn(rpc.TxnRequest(**request), timeout=within, metadata=LEADER)

    async def watch(self, request: Any, tell: Callable[[Variant], Awaitable[None]]) -> None:
        """Tells each change once, over any number of streams, until it is cancelled or has told `ended`."""
        told = None if request.since is None else request.since - 1
        is_on, pause = False, 0.05
        while True:
            # From now is 0: etcd serves a past revision only every 100 ms.
            create = rpc.WatchCreateRequest(key=request.key, start_revision=0 if told is None else max(1, told + 1))
            create.range_end = _end(request.key) if request.prefix else b""
            stream = self._watches.Watch(metadata=LEADER)
            try:
                await stream.write(rpc.WatchRequest(create_request=create))
                # `wait_for` would lose a cancellation that comes with the answer.
                async with asyncio.timeout(OPENING):
                    answer = await stream.read()
                while answer:
                    if answer.canceled:
                        refusal = _cancellation(answer)
                        # A watch that was on may be on again.
                        if refusal.tag != "other" or answer.created:
                            return await tell(Variant("ended", refusal))
                        break
                    if answer.created and not is_on:
                        is_on, told = True, answer.header.revision if told is None else told
                        await tell(Variant("started", told))
                    pause, seen = 0.05, told
                    for kv in (event.kv for event in answer.events if event.kv.mod_revision > seen):
                        told = kv.mod_revision
                        gone = record(key=kv.key, at=told)
                        await tell(Variant("put", _entry(kv)) if kv.version else Variant("deleted", gone))
                    answer = await stream.read()
            except rpc.AioRpcError as error:
                if (refusal := failure(error.code(), error.details() or "")).tag in ("denied", "invalid"):
                    return await tell(Variant("ended", refusal))
            except (TimeoutError, asyncio.InvalidStateError):
                pass  # It broke, or nothing came of it.
            except asyncio.CancelledError:
                if _is_cancelled():
                    raise  # Else the channel is closed.
            finally:
                stream.cancel()
            await asyncio.sleep(pause * random.uniform(0.5, 1))
            pause = min(2 * pause, 1.0)


def _is_cancelled() -> bool:
    """Whether it was this task that was cancelled, and not just what it waits for."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _members(url: str) -> tuple[str, list[str]]:
    """The members that a URL names, and how gRPC calls their kind."""
    if not isinstance(url, str):
        raise TypeError(f"the URL is {url!r}, and has to be a str")
    if "@" in url:
        # It is not shown: there may be a password in it.
        raise ValueError("the URL of etcd has an @ in it: this host knows no users and passwords")
    members, families = [], set[str]()
    for member in url.removeprefix("etcd://").split(","):
        parts = re.fullmatch(r"(\[[0-9a-fA-F:.]+\]|[^][/:?#\s]+)(?::(\d{1,5}))?", member)
        if not url.startswith("etcd://") or not parts or not 0 < int(parts[2] or 2379) < 65536:
            raise ValueError(f"{url!r} is not etcd://HOST:PORT, or, with addresses, etcd://IP:PORT,IP:PORT")
        members.append(f"{parts[1]}:{parts[2] or 2379}")
        try:
            families.add(f"ipv{ipaddress.ip_address(parts[1].strip('[]')).version}:")
        except ValueError:
            families.add("")
    if len(members) == 1:
        return "", members
    if len(families) > 1 or "" in families:
        raise ValueError(f"{url!r} has several members, of which gRPC wants the IP addresses, all of one version")
    return families.pop(), members


def failure(code: StatusCode, text: str) -> Variant:
    """What an error means. etcd has one code for many things, and tells them apart in words."""
    match code:
        case StatusCode.DEADLINE_EXCEEDED:
            return Variant("timeout")
        case StatusCode.UNAVAILABLE if "request timed out" in text:
            return Variant("timeout")
        case StatusCode.CANCELLED | StatusCode.ABORTED | StatusCode.UNAVAILABLE:
            return Variant("unavailable")
        # The request met a change of etcd's users: it passes when it is sent again.
        case StatusCode.INVALID_ARGUMENT | StatusCode.UNKNOWN if _has(text, *OLD_LOGIN):
            return Variant("unavailable")
        case StatusCode.INVALID_ARGUMENT if _has(text, *UNKNOWN_USER):
            return Variant("denied", text)
        case StatusCode.PERMISSION_DENIED | StatusCode.UNAUTHENTICATED:
            return Variant("denied", text)
        case StatusCode.INVALID_ARGUMENT:
            return Variant("invalid", text)
        case StatusCode.OUT_OF_RANGE if "too large lease TTL" in text:
            return Variant("invalid", text)
        case StatusCode.RESOURCE_EXHAUSTED if "larger than max" in text:
            return Variant("invalid", text)
        case StatusCode.RESOURCE_EXHAUSTED | StatusCode.UNKNOWN if "too many requests" in text:
            return Variant("unavailable")
    return Variant("other", text)


def _has(text: str, *parts: str) -> bool:
    return any(part in text for part in parts)


def _cancellation(answer: Any) -> Variant:
    """Why etcd took a watch away."""
    if answer.compact_revision > 0:
        return Variant("compacted", answer.compact_revision)
    is_denial = any(text in answer.cancel_reason for text in ("permission denied", "auth", "user name"))
    return Variant("denied" if is_denial else "other", answer.cancel_reason or "etcd ended the watch")


def _compare(key: bytes, target: str, **is_equal_to: int) -> Any:
    return rpc.Compare(result="EQUAL", target=target, key=key, **is_equal_to)


def _range(selection: Any) -> Any:
    key, before = selection.key, getattr(selection, "created-before")
    first = max(key, getattr(selection, "from") or b"")
    if first != key and not selection.prefix:
        before = 0  # One key is not behind itself.
    target, order = SORTED[selection.order]
    return rpc.RangeRequest(
        key=first or b"\0",  # etcd has no key without a name.
        range_end=_end(key) if selection.prefix else b"",
        sort_target=target,
        sort_order=order,
        limit=selection.limit,
        keys_only=getattr(selection, "keys-only"),
        # 0 would mean no bound.
        max_create_revision=0 if before is None else (before - 1 if before > 1 else -1),
    )


def _end(prefix: bytes) -> bytes:
    """The first key after all that begin with `prefix`."""
    whole = prefix.rstrip(b"\xff")
    return whole[:-1] + bytes([whole[-1] + 1]) if whole else b"\0"


def _entry(kv: Any) -> Any:
    return record(key=kv.key, value=kv.value, lease=kv.lease, created=kv.create_revision, modified=kv.mod_revision)


def _change(leader_key: bytes, mutation: Variant) -> Any:
    change: Any = mutation.payload
    if mutation.tag == "delete":
        return rpc.RequestOp(request_delete_range=rpc.DeleteRangeRequest(key=change))
    if mutation.tag == "proclaim":
        return rpc.RequestOp(request_put=rpc.PutRequest(key=leader_key, value=change, ignore_lease=True))
    return rpc.RequestOp(request_put=rpc.PutRequest(key=change.key, value=change.value))
