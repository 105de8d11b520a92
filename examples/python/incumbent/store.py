"""etcd: the operations and watches of wit/types.wit, as requests, and what their answers mean."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

from aetcd import rpc
from grpc import StatusCode
from wasmtime.component import Variant

from .access import Access, Credentials, CredentialsError
from .component import record
from .diagnosis import objection
from .errors import Unreachable, sentence

SECOND = 1_000_000_000
Metadata = tuple[tuple[str, str], ...]
#: A member that has no leader says so, and does not keep us waiting.
LEADER: Metadata = (("hasleader", "true"),)
#: Which keys come first. By key is as etcd has them: it stops at the limit.
SORTED = {"oldest-first": ("CREATE", "ASCEND"), "newest-first": ("CREATE", "DESCEND"), "by-key": ("KEY", "NONE")}
#: How long etcd may take to answer that a watch is on.
OPENING = 5.0
#: How long etcd may take to answer a login.
LOGIN = 5.0
#: How often a request is sent: etcd's users may change, and end a login, once more meanwhile.
LOGINS = 3
#: What etcd says of a login that is older than the last change of its users.
OLD_LOGIN = ("revision of auth store is old", "revision in header is old")
#: What etcd says where no user, or an unknown one, was named.
UNKNOWN_USER = ("authentication failed", "user name is empty", "user name not")
#: etcd's words when it refuses a login. It has not carried out the request then.
REFUSED_LOGIN = (*OLD_LOGIN, "invalid auth token", "user name is empty", "user name not")
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

    def __init__(self, url: str, credentials: Credentials = Credentials()) -> None:
        self._access, self._closing = Access(url, credentials), set[asyncio.Task[None]]()
        #: The first of them is asked.
        self._members = list(self._access.members)
        self._logging_in = asyncio.Lock()
        self._connect()

    def _connect(self) -> None:
        # By one name each: TLS checks the certificate against it.
        if self._access.tls:
            self._channel = rpc.secure_channel(self._members[0], self._access.tls, options=OPTIONS)
        else:
            self._channel = rpc.insecure_channel(self._members[0], options=OPTIONS)
        self._kv, self._leases = rpc.KVStub(self._channel), rpc.LeaseStub(self._channel)
        self._watches, self._auth = rpc.WatchStub(self._channel), rpc.AuthStub(self._channel)
        #: The metadata of each request: LEADER itself until there is a login.
        self._metadata = LEADER

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

    async def _log_in(self, refused: Metadata = LEADER) -> None:
        """Logs in unless there is a login, other than the one that etcd has refused."""
        if self._access.user is None or self._metadata is not refused and self._metadata is not LEADER:
            return
        async with self._logging_in:
            if self._metadata is not refused and self._metadata is not LEADER:
                return
            channel, token = self._channel, ""
            password = await asyncio.to_thread(self._access.password)
            request = rpc.AuthenticateRequest(name=self._access.user, password=password)
            try:
                token = (await self._auth.Authenticate(request, timeout=LOGIN)).token
            except rpc.AioRpcError as error:
                # As etcdctl does: a user does no harm where etcd has none.
                if "authentication is not enabled" not in (error.details() or ""):
                    raise
            if channel is self._channel:
                self._metadata = tuple([*LEADER, *([("token", token)] if token else [])])

    async def _with_login(self, ask: Callable[[float], Awaitable[Any]], within: float) -> Any:
        """Asks, and asks again if etcd refuses the login: it has not carried out the request then."""
        if self._access.user is None:
            return await ask(within)
        ends, refused = (clock := asyncio.get_running_loop().time)() + within, LEADER
        for left in reversed(range(LOGINS)):
            async with asyncio.timeout_at(ends):
                await self._log_in(refused)
            refused = self._metadata
            try:
                return await ask(max(ends - clock(), 0.0))
            except rpc.AioRpcError as error:
                if not _refuses_login(error):
                    raise
                if left == 0:
                    raise asyncio.InvalidStateError("etcd refuses logins that it has just made") from error

    async def prove(self, within: float) -> None:
        """Raises Unreachable unless an etcd answers and accepts us."""
        # Reads nothing, at a key that every user of this store may read if any key at all.
        request = rpc.RangeRequest(key=self._access.prefix or b"\0", count_only=True)

        async def ask(left: float) -> Any:
            return await self._kv.Range(request, timeout=left, metadata=self._metadata)

        telling: Unreachable | None = None
        for left in reversed(range(len(self._members))):
            member, channel = self._members[0], self._channel
            try:
                await self._with_login(ask, within / len(self._members))
                return
            except rpc.AioRpcError as error:
                if error.code() is StatusCode.PERMISSION_DENIED:
                    return  # This key is forbidden, but etcd answers and knows us.
                cause, details = error, error.details()
                refusal = await self._refusal(member, failure(error.code(), details or ""))
            except (TimeoutError, asyncio.InvalidStateError) as error:
                cause, details, refusal = error, sentence(Variant("timeout")), None
            # A member that refuses tells more than one that does not answer.
            telling = telling or refusal
            if left == 0:
                raise telling or Unreachable(
                    f"no etcd answers at {','.join(self._access.members)} within {within:g} s: "
                    f"is one running there? ({details})"
                ) from cause
            self._move_on(channel)

    async def _refusal(self, member: str, answer: Variant) -> Unreachable | None:
        """Explains why a member refuses us; None if it does not answer."""
        why: str | None = None
        if answer.tag == "denied" and "user name is empty" in sentence(answer):
            why = "it wants a user: give `user` and `password_file`"
        elif answer.tag == "denied":
            why = f"{sentence(answer)}: check `user` and `password_file`"
        elif answer.tag == "unavailable":
            why = await objection(member, self._access)
        return Unreachable(f"{member} refuses the connection: {why}") if why else None

    async def get(self, key: bytes, within: float) -> tuple[bytes | None, int]:
        """A key's value and the revision of its last change, as of now. Raises Unreachable."""
        bounds = {"from": None, "created_before": None, "limit": 1, "keys_only": False}
        selection = record(key=key, prefix=False, order="oldest-first", **bounds)
        for left in reversed(range(len(self._members))):
            outcome: Any = await self.call(Variant("read", [selection]), within / len(self._members))
            if outcome.tag == "ok":
                found = outcome.payload.payload.found[0]
                return (found[0].value, found[0].modified) if found else (None, 0)
            # A read may be asked again.
            if left == 0 or outcome.payload.tag not in ("timeout", "unavailable"):
                break
        raise Unreachable(f"{key!r} cannot be read at {self._access.url}: {sentence(outcome.payload)}")

    async def call(self, operation: Variant, within: float, give_up: float = float("inf")) -> Variant:
        """Asks once, and gives the `outcome` of a reply: etcd's answer, or why there is none.

        After `give_up` another member is asked whatever comes next.
        """
        method, channel = getattr(self, "_" + operation.tag.replace("-", "_")), self._channel

        async def ask(left: float) -> Any:
            return await method(operation.payload, left)

        late = asyncio.get_running_loop().call_later(min(within, give_up), self._move_on, channel)
        try:
            # A renewal needs no login, which may take long: etcd renews anybody's lease.
            answer = ask(within) if operation.tag == "keep-alive" else self._with_login(ask, within)
            return Variant("ok", await answer)
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
        except TimeoutError:
            self._move_on(channel)
            return Variant("err", Variant("timeout"))
        except CredentialsError as error:
            # Nothing was sent. The elector tries again, and the file may be back then.
            return Variant("err", Variant("other", str(error)))
        except asyncio.CancelledError:
            if _is_cancelled():
                raise
            return Variant("err", Variant("unavailable"))  # The channel is closed.
        finally:
            late.cancel()

    async def _grant(self, grant: Any, within: float) -> Variant:
        seconds = max(1, -(-grant.ttl // SECOND))
        request = rpc.LeaseGrantRequest(ID=grant.lease, TTL=seconds)
        answer = await self._leases.LeaseGrant(request, timeout=within, metadata=self._metadata)
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
        await self._leases.LeaseRevoke(rpc.LeaseRevokeRequest(ID=lease), timeout=within, metadata=self._metadata)
        return Variant("revoked")

    async def _claim(self, claim: Any, within: float) -> Variant:
        key = self._access.wire(claim.key)
        put = rpc.PutRequest(key=key, value=claim.value, lease=claim.lease)
        answer = await self._txn(
            within,
            compare=[_compare(key, "CREATE", create_revision=0)],
            success=[rpc.RequestOp(request_put=put)],
            failure=[rpc.RequestOp(request_range=rpc.RangeRequest(key=key))],
        )
        at = answer.header.revision
        if answer.succeeded:
            entry = record(key=claim.key, value=claim.value, lease=claim.lease, created=at, modified=at)
            return Variant("claimed", record(entry=entry, at=at))
        return Variant("taken", record(entry=self._entry(answer.responses[0].response_range.kvs[0]), at=at))

    async def _read(self, selections: list[Any], within: float) -> Variant:
        """All at one revision, and in no transaction, which the first range tells.

        etcd 3.5.0 to 3.5.6 panic when a transaction that reads is given up while it is served (etcd#14110).
        """
        # Nothing at all is read at a revision, too.
        ranges = [self._range(selection) for selection in selections]
        ranges = ranges or [rpc.RangeRequest(key=self._access.prefix or b"\0", count_only=True)]
        ends = (clock := asyncio.get_running_loop().time)() + within

        async def ask(request: Any) -> Any:
            return await self._kv.Range(request, timeout=max(ends - clock(), 0.0), metadata=self._metadata)

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
            found = [[self._entry(kv) for kv in answer.kvs] for answer in answers]
            return Variant("snapshot", record(at=at, found=found[: len(selections)]))

    async def _guarded(self, guarded: Any, within: float) -> Variant:
        guard = guarded.guard
        key = self._access.wire(guard.key)
        guards = [_compare(key, "CREATE", create_revision=guard.epoch)]
        if guard.lease is not None:
            guards.append(_compare(key, "LEASE", lease=guard.lease))
        # One transaction in the other tells a guard that does not hold from an expectation.
        inner = rpc.TxnRequest(
            compare=[_compare(self._access.wire(e.key), "MOD", mod_revision=e.modified) for e in guarded.expect],
            success=[self._change(key, mutation) for mutation in guarded.mutations],
        )
        answer = await self._txn(within, compare=guards, success=[rpc.RequestOp(request_txn=inner)])
        if not answer.succeeded:
            return Variant("stale")
        done = answer.responses[0].response_txn.succeeded
        return Variant("applied", answer.header.revision) if done else Variant("conflict")

    async def _txn(self, within: float, **request: Any) -> Any:
        return await self._kv.Txn(rpc.TxnRequest(**request), timeout=within, metadata=self._metadata)

    async def watch(self, request: Any, tell: Callable[[Variant], Awaitable[None]]) -> None:
        """Tells each change once, over any number of streams, until it is cancelled or has told `ended`."""
        told = None if request.since is None else request.since - 1
        is_on, pause, may_be_login = False, 0.05, self._access.user is not None
        key = self._access.wire(request.key)
        while True:
            # From now is 0: etcd serves a past revision only every 100 ms.
            create = rpc.WatchCreateRequest(key=key, start_revision=0 if told is None else max(1, told + 1))
            create.range_end = _end(key) if request.prefix else b""
            channel, stream = self._channel, None
            try:
                async with asyncio.timeout(OPENING):
                    await self._log_in()
                channel, metadata = self._channel, self._metadata
                stream = self._watches.Watch(metadata=metadata)
                await stream.write(rpc.WatchRequest(create_request=create))
                # `wait_for` would lose a cancellation that comes with the answer.
                async with asyncio.timeout(OPENING):
                    answer = await stream.read()
                while answer:
                    if answer.canceled:
                        refusal = _cancellation(answer)
                        # etcd 3.4 does not tell a login that has expired from a key that is not allowed.
                        if refusal.tag == "denied" and may_be_login:
                            may_be_login = False
                            await self._log_in(metadata)
                            break
                        # A watch that was on may be on again.
                        if refusal.tag != "other" or answer.created:
                            return await tell(Variant("ended", refusal))
                        break
                    may_be_login = self._access.user is not None
                    if answer.created and not is_on:
                        is_on, told = True, answer.header.revision if told is None else told
                        await tell(Variant("started", told))
                    pause, seen = 0.05, told
                    for kv in (event.kv for event in answer.events if event.kv.mod_revision > seen):
                        told = kv.mod_revision
                        gone = record(key=self._access.own(kv.key), at=told)
                        await tell(Variant("put", self._entry(kv)) if kv.version else Variant("deleted", gone))
                    answer = await stream.read()
            except rpc.AioRpcError as error:
                if (refusal := failure(error.code(), error.details() or "")).tag in ("denied", "invalid"):
                    return await tell(Variant("ended", refusal))
                self._move_on(channel)
            except CredentialsError as error:
                return await tell(Variant("ended", Variant("other", str(error))))
            except (TimeoutError, asyncio.InvalidStateError):
                pass  # It broke, or nothing came of it.
            except asyncio.CancelledError:
                if _is_cancelled():
                    raise  # Else the channel is closed.
            finally:
                if stream:
                    stream.cancel()
            await asyncio.sleep(pause * random.uniform(0.5, 1))
            pause = min(2 * pause, 1.0)


    def _range(self, selection: Any) -> Any:
        key, before = self._access.wire(selection.key), getattr(selection, "created-before")
        first = max(key, self._access.wire(getattr(selection, "from") or b""))
        end = _end(key) if selection.prefix else b""
        # A single key has no page behind it, and few users may read a range that ends before it begins:
        # ask for one key, as it was before the first revision.
        if first != key if not selection.prefix else end != b"\0" and first >= end:
            first, end, before = key, b"", 0
        target, order = SORTED[selection.order]
        return rpc.RangeRequest(
            key=first or b"\0",  # etcd has no key without a name.
            range_end=end,
            sort_target=target,
            sort_order=order,
            limit=selection.limit,
            keys_only=getattr(selection, "keys-only"),
            # 0 would mean no bound.
            max_create_revision=0 if before is None else (before - 1 if before > 1 else -1),
        )

    def _entry(self, kv: Any) -> Any:
        key = self._access.own(kv.key)
        return record(key=key, value=kv.value, lease=kv.lease, created=kv.create_revision, modified=kv.mod_revision)

    def _change(self, leader_key: bytes, mutation: Variant) -> Any:
        change: Any = mutation.payload
        if mutation.tag == "delete":
            return rpc.RequestOp(request_delete_range=rpc.DeleteRangeRequest(key=self._access.wire(change)))
        if mutation.tag == "proclaim":
            return rpc.RequestOp(request_put=rpc.PutRequest(key=leader_key, value=change, ignore_lease=True))
        return rpc.RequestOp(request_put=rpc.PutRequest(key=self._access.wire(change.key), value=change.value))


def _refuses_login(error: rpc.AioRpcError) -> bool:
    return error.code() is StatusCode.UNAUTHENTICATED or _has(error.details() or "", *REFUSED_LOGIN)


def _is_cancelled() -> bool:
    """Whether it was this task that was cancelled, and not just what it waits for."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


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


def _end(prefix: bytes) -> bytes:
    """The first key after all that begin with `prefix`."""
    whole = prefix.rstrip(b"\xff")
    return whole[:-1] + bytes([whole[-1] + 1]) if whole else b"\0"
