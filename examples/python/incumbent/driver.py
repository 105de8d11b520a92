"""The loop between elector, etcd and application: one task, which alone touches an election's state.

What happened goes to the elector, and what the elector says is done in the order it says it.
"""

import asyncio
import logging
import secrets
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from wasmtime.component import Variant

from .component import FUEL, Elector, now, record
from .errors import Closed, Withdrawn, sentence
from .recorder import Recorder
from .store import SECOND, Etcd

log = logging.getLogger("incumbent")
OVER = "the session has ended"

#: How many changes of watches may wait for the elector: etcd keeps the others.
WATCHED = 1024
#: How many writes may be under way; others wait for them.
WRITES = 256
#: How many candidacies may be on their way into line, and calls under way at etcd; others wait for
#: them. Thousands at once would delay one another until etcd's answers come too late for all of them.
JOINING = CALLS = 256
#: Operations on the lease. They do not wait, because every term depends on them.
OF_THE_LEASE = "grant", "keep-alive", "revoke"
#: How many events the elector is told in one step. The event loop has its turn in between.
EVENTS = 256
#: Timers know nothing of suspended time: once a second the clock is looked at, in seconds.
LONGEST_SLEEP = 1.0
#: Before a broken elector is replaced: the first pause and the longest, in seconds.
SHORTEST_PAUSE, LONGEST_PAUSE = 0.1, 30.0
#: After one that worked for so long the pause is the first one again, in nanoseconds.
PROBATION = 60 * SECOND


class Meter:
    """Is told everything that can be counted, and counts nothing: `metrics.py` has one that does."""

    def joined(self, election: str) -> None:
        """A candidate takes part."""

    def elected(self, election: str, epoch: int) -> None:
        """A term begins."""

    def ended(self, election: str, reason: str) -> None:
        """A term has ended."""

    def endangered(self, election: str) -> None:
        """Renewals of the lease of this leader fail."""

    def answered(self, operation: str, outcome: Variant, seconds: float) -> None:
        """etcd has answered a request of the elector, or has not."""

    def fenced(self) -> None:
        """A write was refused because its term was over."""

    def replaced(self) -> None:
        """An elector broke."""


class Candidacy:
    """One candidate's part in one election: it waits, leads for one term at most, and is over."""

    def __init__(self, request: Any) -> None:
        future = asyncio.get_running_loop().create_future
        self.request = request
        self.valid_until = 0
        #: A `leadership` of the WIT.
        self.elected: asyncio.Future[Any] = future()
        #: Why the term ended, as the WIT's `reason` names it.
        self.lost: asyncio.Future[str] = future()
        #: Nothing is left of it in etcd.
        self.over: asyncio.Future[None] = future()
        self.endangered = asyncio.Event()
        self.leaves = False


class Driver:
    """Holds the elector. Everything is called on the event loop."""

    def __init__(
        self,
        store: Etcd,
        config: dict[str, int],
        on_notice: Callable[[Variant], object],
        recorder: Recorder | None = None,
    ) -> None:
        self.store, self.on_notice, self.fuel, self.recorder = store, on_notice, FUEL, recorder
        self.meter = Meter()
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.closes = self.is_over = False
        #: What broke the loop itself, which it never should.
        self.broken: Exception | None = None
        self.candidacies: dict[int, Candidacy] = {}
        #: Those that are given up and not over yet, by the name of their election.
        self.leaving: dict[str, set[Candidacy]] = {}
        #: Those that the elector knows of, and that are not in line yet.
        self._joining: set[int] = set()
        #: Those that the elector is not told of yet, in their order.
        self._held: OrderedDict[int, Candidacy] = OrderedDict()
        #: How much it leads, and the same while it is drained: a `limit` of the WIT, or as much as comes.
        self._limit: Any = None
        self._drained: Any = None
        self._config, self._last = config, 0
        #: The lease's time as etcd granted it: it may be longer than what was asked for.
        self._ttl = config["lease_ttl"]
        self._writes: dict[int, asyncio.Future[Variant]] = {}
        self.may_write, self._may_call = asyncio.Semaphore(WRITES), asyncio.Semaphore(CALLS)
        self._pause, self._opened = SHORTEST_PAUSE, now()
        self._elector: Elector | None = self._open()
        self._deadline: int | None = None
        self._events: list[Variant] = []
        self._woken, self._free = asyncio.Event(), asyncio.Semaphore(WATCHED)
        self._calls: set[asyncio.Task[None]] = set()
        self._watches: dict[int, asyncio.Task[None]] = {}

    def _open(self) -> Elector:
        seed = (secrets.randbits(64), secrets.randbits(64))
        config, mark = record(seed=seed, **self._config), now()
        elector = Elector(config, mark)
        if self.recorder:
            self.recorder.opened(mark, config)
        return elector

    # What the application wants.

    def tell(self, tag: str, payload: Any = None) -> None:
        self._events.append(Variant(tag, payload))
        self._woken.set()

    def campaign(
        self, name: str, contest: str, value: bytes, priority: int = 0, preempt_after: int | None = None
    ) -> Candidacy:
        request = record(
            election=self._next(),
            name=name,
            contest=contest,
            value=value,
            rejoin=False,
            priority=priority,
            preempt_after=preempt_after,
        )
        candidacy = self.candidacies[request.election] = Candidacy(request)
        self._join(candidacy)
        return candidacy

    def _join(self, candidacy: Candidacy) -> None:
        """Has the elector told of it, at once or when another one is in line."""
        election = candidacy.request.election
        if len(self._joining) < JOINING:
            self._joining.add(election)
            self.tell("campaign", candidacy.request)
        else:
            self._held[election] = candidacy

    def _joined(self, election: int) -> None:
        """It is in line, or over: another one may join."""
        if election in self._joining:
            self._joining.discard(election)
            # A session that closes is over for those that wait as well.
            if self._held and not self.closes:
                self._join(self._held.popitem(last=False)[1])

    def leave(self, candidacy: Candidacy) -> None:
        """Also where it has just come to lead: nobody works for that term."""
        candidacy.leaves, elected = True, candidacy.elected
        election = candidacy.request.election
        if election in self._held:
            return self._withdraw(self.candidacies.pop(election), None)
        if election in self.candidacies:
            self.leaving.setdefault(candidacy.request.name, set()).add(candidacy)
        self.tell("leave", election)
        # It may have been withdrawn in the same moment.
        if elected.done() and not elected.cancelled() and not elected.exception():
            self.tell("yielded", elected.result().term)

    async def write(self, term: Any, expect: list[Any], mutations: list[Variant]) -> Any:
        """A `write-outcome` of the WIT."""
        async with self.may_write:
            if self.is_over:
                return Variant("stale")
            ticket = self._next()
            outcome = self._writes[ticket] = asyncio.get_running_loop().create_future()
            self.tell("write", record(term=term, ticket=ticket, expect=expect, mutations=mutations))
            return await outcome

    def close(self) -> None:
        self.closes = True
        self.tell("close")

    def drain(self, at_once: int | None) -> None:
        """Leads nothing, or takes part again."""
        self._drained = None if at_once is None else record(at_most=0, is_fair=False, at_once=at_once)
        self._tell_limit()

    def limit(self, at_most: int, is_fair: bool, at_once: int) -> None:
        self._limit = record(at_most=at_most, is_fair=is_fair, at_once=at_once)
        self._tell_limit()

    def unlimited(self) -> None:
        self._limit = None
        self._tell_limit()

    def _tell_limit(self) -> None:
        self.tell("limit", self._limit if self._drained is None else self._drained)

    def _next(self) -> int:
        self._last += 1
        return self._last

    # The loop.

    async def run(self) -> None:
        try:
            while not self.closed.done():
                await self._wait()
                try:
                    self._turn()
                except Exception as error:
                    # A trap, or a value that does not go through.
                    await self._replace(error)
                # Whatever the elector wants, others have their turn.
                await asyncio.sleep(0)
        except Exception as error:
            self.broken = error
            log.critical("%s, by an error of its own", OVER, exc_info=error)
        finally:
            self.closes = self.is_over = True
            self._drop(OVER)
            for candidacy in self.candidacies.values():
                self._withdraw(candidacy, None)
            self.candidacies.clear()

    async def _wait(self) -> None:
        """Waits for events, at most until the deadline."""
        while not self._events and (self._deadline is None or now() < self._deadline):
            left = LONGEST_SLEEP if self._deadline is None else (self._deadline - now()) / SECOND
            timer = asyncio.get_running_loop().call_later(min(left, LONGEST_SLEEP), self._woken.set)
            await self._woken.wait()
            self._woken.clear()
            timer.cancel()

    def _turn(self) -> None:
        if not self._elector:
            self._opened, self._elector = now(), self._open()
        events, self._events = self._events[:EVENTS], self._events[EVENTS:]
        for event in events:
            if event.tag == "watched":
                self._free.release()
        events, elector, step = events or [Variant("wake")], self._elector, None
        # Whatever this step asks for counts as sent at the mark that is read here.
        mark = now()
        try:
            step = elector.handle(mark, events, self.fuel)
            self._deadline = step.deadline
            for command in step.commands:
                self._obey(command.tag, command.payload)
        finally:
            if self.recorder:
                self.recorder.stepped(elector.kinds, mark, events, step)

    def _obey(self, tag: str, what: Any) -> None:
        if tag == "notify":
            self._notify(what.tag, what.payload)
            asyncio.get_running_loop().call_soon(self.on_notice, what)
        elif tag == "call":
            call = asyncio.create_task(self._call(self._elector, what))
            self._calls.add(call)
            call.add_done_callback(self._calls.discard)
        elif tag == "watch":
            self._watches[what.id] = asyncio.create_task(self._watch(self._elector, what))
        elif watch := self._watches.pop(what, None):
            watch.cancel()

    # An elector that was replaced is told nothing, and neither is its successor: its ids start over.

    async def _call(self, elector: Elector | None, call: Any) -> None:
        sent = now()
        if call.operation.tag in OF_THE_LEASE:
            outcome = await self._ask(call)
        else:
            async with self._may_call:
                # What has waited too long is not sent any more.
                is_late = now() >= getattr(call, "give-up")
                outcome = Variant("err", Variant("timeout")) if is_late else await self._ask(call)
        self.meter.answered(call.operation.tag, outcome, (now() - sent) / SECOND)
        if elector is self._elector:
            if outcome.tag == "ok" and outcome.payload.tag in ("granted", "renewed"):
                self._ttl = outcome.payload.payload
            self.tell("reply", record(id=call.id, outcome=outcome))

    async def _ask(self, call: Any) -> Any:
        within = give_up = max((getattr(call, "give-up") - now()) / SECOND, 0.0)
        if call.operation.tag == "keep-alive":
            # What comes late still counts, for as long as it can prove anything.
            within = max(within, self._ttl / SECOND)
        return await self.store.call(call.operation, within, give_up)

    async def _watch(self, elector: Elector | None, watch: Any) -> None:
        async def tell(change: Variant) -> None:
            await self._free.acquire()
            if elector is self._elector:
                self.tell("watched", record(id=watch.id, change=change))

        await self.store.watch(watch, tell)
        if elector is self._elector:
            self._watches.pop(watch.id, None)

    # What the elector says.

    def _notify(self, tag: str, notice: Any) -> None:
        if tag == "extended":
            for candidacy in self.candidacies.values():
                self._extend(candidacy, notice.lease, getattr(notice, "valid-until"))
        elif tag == "joined":
            self._joined(notice.election)
            self.meter.joined(self.candidacies[notice.election].request.name)
        elif tag in ("elected", "endangered"):
            candidacy = self.candidacies[notice.term.election]
            if tag == "endangered":
                candidacy.endangered.set()
                self.meter.endangered(candidacy.request.name)
                return
            self._joined(notice.term.election)
            candidacy.valid_until = getattr(notice, "valid-until")
            self.meter.elected(candidacy.request.name, notice.term.epoch)
            if candidacy.elected.cancelled():
                self.tell("yielded", notice.term)
            else:
                candidacy.elected.set_result(notice)
                self._keep_deadline(candidacy)
        elif tag == "hand-over":
            self.tell("resign", notice)
        elif tag == "demoted":
            reason = notice.reason.payload or notice.reason.tag
            self._end(self.candidacies[notice.term.election], reason)
        elif tag == "withdrawn":
            self._withdraw(self.candidacies.pop(notice.election), notice.cause)
        elif tag == "written" and not (write := self._writes.pop(notice.ticket)).done():
            write.set_result(notice.outcome)
        elif tag == "trouble":
            log.warning("%s", sentence(notice.failure))
        elif tag == "closed":
            self.closed.set_result(None)

    def _extend(self, candidacy: Candidacy, lease: int, valid_until: int) -> None:
        """Extends a term that stands on this lease, and never one whose deadline has passed."""
        elected = candidacy.elected
        if not elected.done() or elected.cancelled() or elected.result().lease != lease or candidacy.lost.done():
            return
        if now() >= candidacy.valid_until:
            self._expire(candidacy)
        else:
            candidacy.valid_until = valid_until
            candidacy.endangered.clear()

    def _keep_deadline(self, candidacy: Candidacy) -> None:
        """Ends the term at its deadline, whether or not the elector says so."""
        left = (candidacy.valid_until - now()) / SECOND
        if left <= 0:
            self._expire(candidacy)
        elif not candidacy.lost.done():
            asyncio.get_running_loop().call_later(min(left, LONGEST_SLEEP), self._keep_deadline, candidacy)

    def _expire(self, candidacy: Candidacy) -> None:
        if self.recorder and not candidacy.lost.done():
            self.recorder.expired(candidacy.request.name, candidacy.elected.result().term.epoch)
        self._end(candidacy, "expired")

    def _end(self, candidacy: Candidacy, reason: str) -> None:
        if not candidacy.lost.done():
            candidacy.lost.set_result(reason)
            if candidacy.valid_until:
                self.meter.ended(candidacy.request.name, reason)

    def _withdraw(self, candidacy: Candidacy, cause: Any) -> None:
        election, name = candidacy.request.election, candidacy.request.name
        if leaving := self.leaving.get(name):
            leaving.discard(candidacy)
            if not leaving:
                del self.leaving[name]
        self._held.pop(election, None)
        self._joined(election)
        candidacy.over.set_result(None)
        if not candidacy.elected.done():
            error = Withdrawn(sentence(cause)) if cause else Closed(OVER)
            error.__cause__ = self.broken
            candidacy.elected.set_exception(error)

    # When the elector breaks.

    def _drop(self, why: str) -> None:
        """Drops all that is outstanding, and ends every term, which nobody extends any more.

        The old lease runs out by itself: until then nobody else leads.
        """
        for task in (*self._calls, *self._watches.values()):
            task.cancel()
        self._events, self._watches, self._free = [], {}, asyncio.Semaphore(WATCHED)
        for write in self._writes.values():
            if not write.done():
                write.set_result(Variant("unknown"))
        self._writes.clear()
        for candidacy in self.candidacies.values():
            if candidacy.elected.done():
                self._end(candidacy, why)

    async def _replace(self, error: Exception) -> None:
        """Has another elector take up those who wait, after a pause that doubles."""
        last_line = (str(error) or repr(error)).splitlines()[-1].strip()
        why = f"the elector broke: {last_line}"
        log.error("%s; it is replaced", why, exc_info=error)
        self.meter.replaced()
        if self.recorder:
            self.recorder.broke(last_line)
        self._drop(why)
        self._elector, self._deadline = None, None
        self._joining.clear()
        self._held.clear()
        if self._drained is not None or self._limit is not None:
            self._tell_limit()
        for election, candidacy in list(self.candidacies.items()):
            if candidacy.elected.done() or candidacy.leaves:
                self._withdraw(self.candidacies.pop(election), None)
            else:
                self._join(candidacy)
        if self.closes:
            self.tell("close")
        if now() - self._opened > PROBATION:
            self._pause = SHORTEST_PAUSE
        await asyncio.sleep(self._pause)
        self._pause = min(2 * self._pause, LONGEST_PAUSE)
