"""The loop, step by step; and what becomes of an elector that breaks."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
from conftest import candidates, until, soon
from etcd import TIMEOUT, Etcd
from wasmtime.component import Variant

from incumbent import Closed, Withdrawn, connect
from incumbent.component import FUEL, now, record
from incumbent.driver import CALLS, JOINING, LONGEST_PAUSE, PROBATION, SHORTEST_PAUSE, Driver
from incumbent.store import SECOND
from incumbent.store import Etcd as Store


async def test_only_renewals_are_waited_for_when_they_are_given_up(etcd: Etcd) -> None:
    # Little is asked for; what counts is what etcd grants.
    async with not_running(etcd, lease_ttl=SECOND // 10) as driver:
        lease = 1_234
        grant = Variant("grant", record(lease=lease, ttl=60 * SECOND))
        driver._obey("call", record(id=0, give_up=now() + 30 * SECOND, operation=grant))
        await until(lambda: driver._events)
        driver._events.clear()
        etcd.pause()
        for number, operation in enumerate([Variant("keep-alive", lease), Variant("read", [])]):
            driver._obey("call", record(id=number, give_up=now() + SECOND // 5, operation=operation))
        [given_up] = await until(lambda: driver._events)
        assert given_up.payload == record(id=1, outcome=Variant("err", Variant("timeout")))
        etcd.resume()
        [_, late] = await until(lambda: len(driver._events) > 1 and driver._events)
        assert late.payload == record(id=0, outcome=Variant("ok", Variant("renewed", 60 * SECOND)))


async def test_of_many_calls_some_wait_and_renewals_do_not(
    etcd: Etcd, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with not_running(etcd) as driver:
        asked: list[Any] = []
        answers = asyncio.Semaphore(0)

        async def call(operation: Variant, within: float, give_up: float) -> Variant:
            asked.append(operation.payload)
            await answers.acquire()
            return Variant("ok", Variant("stale"))

        monkeypatch.setattr(driver.store, "call", call)
        far, soon = now() + 60 * SECOND, now() + SECOND // 50
        for number in range(CALLS + 2):
            # The last one is given up before it has its turn.
            give_up = far if number <= CALLS else soon
            driver._obey("call", record(id=number, give_up=give_up, operation=Variant("read", number)))
        driver._obey("call", record(id=CALLS + 2, give_up=far, operation=Variant("keep-alive", "renewal")))
        await until(lambda: len(asked) > CALLS and now() > soon)
        assert asked == [*range(CALLS), "renewal"]
        answers.release()
        await until(lambda: len(asked) > CALLS + 1)
        assert asked[-1] == CALLS
        answers.release()
        await until(lambda: len(driver._events) == 3)
        # What has waited too long is not sent.
        assert driver._events[-1].payload == record(id=CALLS + 1, outcome=Variant("err", Variant("timeout")))
        assert len(asked) == CALLS + 2


async def test_the_elector_is_told_256_events_at_once(etcd: Etcd, monkeypatch: pytest.MonkeyPatch) -> None:
    async with not_running(etcd) as driver:
        steps = []

        def handle(mark: int, events: list[Any], fuel: int) -> Any:
            steps.append(len(events))
            return record(commands=[], deadline=None)

        monkeypatch.setattr(driver._elector, "handle", handle)
        for _ in range(600):
            driver.tell("wake")
        while driver._events:
            driver._turn()
        assert steps == [256, 256, 88]


async def test_of_many_candidacies_some_wait_until_others_are_in_line(etcd: Etcd) -> None:
    async with not_running(etcd) as driver:
        first, second, *_ = [driver.campaign(f"{number}", "queue", b"") for number in range(JOINING)]
        held, later, last = (driver.campaign(name, "queue", b"") for name in ("held", "next", "last"))
        waits = driver.campaign("waits", "queue", b"")

        def told() -> list[str]:
            events: list[Any] = driver._events
            return [event.payload.name for event in events if event.tag == "campaign"]

        assert len(told()) == JOINING == len(driver._events)
        # It is over at once: the elector never hears of it.
        held.elected.cancel()
        driver.leave(held)
        assert held.over.done() and len(driver._events) == JOINING
        # Whatever is said of one candidacy, it makes room for one.
        for _ in range(2):
            driver._notify("joined", record(election=first.request.election, key=b"k", created=1))
        assert told()[JOINING:] == ["next"]
        for one in first, second:
            driver._notify("withdrawn", record(election=one.request.election, cause=None))
            assert isinstance(one.elected.exception(), Closed)
        assert told()[JOINING:] == ["next", "last"]
        # The next elector is told of all those that wait, in the same order.
        await driver._replace(ValueError("broken"))
        assert told()[-2:] == ["next", "last"] and len(told()) == JOINING
        assert not (later.over.done() or last.over.done() or waits.over.done())
        driver.close()
        driver._notify("joined", record(election=last.request.election, key=b"k", created=1))
        assert told()[-1] == "last"


async def test_changes_that_nobody_takes_wait_in_etcd(etcd: Etcd) -> None:
    for _ in range(30):
        etcd.ctl("put", "w/key", "value")
    async with not_running(etcd) as driver:
        driver._free = asyncio.Semaphore(10)
        driver._obey("watch", record(id=1, key=b"w/", prefix=True, since=1))
        taken = 0
        while taken < 31:
            await until(lambda: len(driver._events) == min(10, 31 - taken))
            await asyncio.sleep(0.1)
            assert len(driver._events) == min(10, 31 - taken)
            taken += len(driver._events)
            driver._turn()
        [watch] = driver._watches.values()
        driver._obey("unwatch", 1)
        await until(watch.done)


async def test_each_elector_draws_its_leases_anew(etcd: Etcd) -> None:
    leases = set()
    async with not_running(etcd) as driver:
        for _ in range(2):
            campaign = Variant("campaign", driver.campaign("my-service", "queue", b"").request)
            step = driver._open().handle(now(), [campaign])
            leases.add(step.commands[0].payload.operation.payload.lease)
    assert len(leases) == 2


async def test_a_renewal_extends_the_terms_on_its_lease_that_stand(etcd: Etcd) -> None:
    far = now() + 60 * SECOND
    async with not_running(etcd) as driver:

        def led(name: str, lease: int, valid_until: int = far) -> Any:
            candidacy = driver.campaign(name, "queue", b"")
            term = record(election=candidacy.request.election, epoch=1)
            driver._notify("elected", record(term=term, key=b"k", lease=lease, valid_until=valid_until))
            return candidacy

        led_by_us = [led("a", 7), led("b", 7), led("other", 8), led("late", 7, now() + SECOND // 50), led("lost", 7)]
        waits = driver.campaign("waits", "queue", b"")
        driver._end(led_by_us[4], "deposed")
        led_by_us[0].endangered.set()
        # With the event loop blocked, nothing has ended this one yet.
        time.sleep(0.03)
        assert not led_by_us[3].lost.done()
        driver._notify("extended", record(lease=7, valid_until=far + 1))
        assert [one.valid_until for one in led_by_us[:3]] == [far + 1, far + 1, far]
        assert not led_by_us[0].endangered.is_set() and waits.valid_until == 0
        # A term that is over is not revived.
        assert led_by_us[3].valid_until < now() and led_by_us[3].lost.result() == "expired"
        assert led_by_us[4].valid_until == far and led_by_us[4].lost.result() == "deposed"


async def test_an_elector_that_traps_is_reported_and_replaced(etcd: Etcd) -> None:
    async with await connect(etcd.url, "first", ttl=2) as first, await connect(etcd.url, "second", ttl=2) as second:
        leadership = await soon(first.campaign("my-service"))
        waits = asyncio.create_task(second.campaign("my-service"))
        await until(lambda: len(candidates(etcd)) == 2)
        drivers = [session._driver for session in (first, second)]
        broken = [driver._elector for driver in drivers]
        await until(lambda: sum(len(driver._watches) for driver in drivers) > 2)
        outstanding = [task for driver in drivers for task in driver._watches.values()]
        for driver in drivers:
            driver.fuel = 100
        # The leader is told, and each waiter gets its turn once the old leases are over.
        assert "trap" in await soon(leadership.lost()) and not leadership.is_valid()
        await until(lambda: all(driver._elector is not old for driver, old in zip(drivers, broken, strict=True)))
        lost = now()
        for driver in drivers:
            driver.fuel = FUEL
        await until(lambda: all(task.done() for task in outstanding))
        await leadership.resign()
        async with await soon(waits) as later:
            assert later.epoch > leadership.epoch and now() > max(lost, leadership.valid_until)


async def test_an_error_of_any_kind_is_a_trap(etcd: Etcd, monkeypatch: pytest.MonkeyPatch) -> None:
    async with await connect(etcd.url, ttl=2) as session:
        driver = session._driver
        leadership = await soon(session.campaign("my-service"))
        waits = asyncio.create_task(session.campaign("other"))
        # None is no event; and the first elector in its place does not open.
        opens = iter([ValueError("no memory")])

        def open_elector() -> Any:
            for error in opens:
                raise error
            monkeypatch.undo()
            return driver._open()

        monkeypatch.setattr(driver, "_open", open_elector)
        driver.tell("campaign", None)
        assert "the elector broke" in await soon(leadership.lost())
        async with await soon(waits):
            await soon(leadership.resign())


async def test_what_a_replaced_elector_asked_for_is_not_told_its_successor(etcd: Etcd) -> None:
    async with not_running(etcd) as driver:
        # Both have asked for what bears the ids 1 and 2, and the first one's tasks are slow to end.
        for _ in range(2):
            driver._elector = driver._open()
            driver._obey("watch", record(id=1, key=b"w/", prefix=True, since=None))
            driver._obey("call", record(id=2, give_up=now() + 30 * SECOND, operation=Variant("read", [])))
        calls = list(driver._calls)
        await until(lambda: all(call.done() for call in calls) and len(driver._events) > 1)
        etcd.ctl("put", "w/key", "value")
        await until(lambda: len(driver._events) > 2)
        told: list[Any] = [event.payload for event in driver._events if event.tag == "watched"]
        assert len(driver._events) == 3 and [news.change.tag for news in told] == ["started", "put"]


async def test_the_pause_doubles_until_an_elector_has_proved_itself(
    etcd: Etcd, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses = []

    async def sleep(pause: float) -> None:
        pauses.append(pause)

    async with not_running(etcd) as driver:
        monkeypatch.setattr("incumbent.driver.asyncio.sleep", sleep)
        for _ in range(10):
            await driver._replace(ValueError("broken"))
        driver._opened -= PROBATION
        await driver._replace(ValueError("broken"))
        monkeypatch.undo()
    assert pauses[:3] == [SHORTEST_PAUSE, 2 * SHORTEST_PAUSE, 4 * SHORTEST_PAUSE]
    assert pauses[-2:] == [LONGEST_PAUSE, SHORTEST_PAUSE]


async def test_a_session_that_breaks_says_by_what(
    etcd: Etcd, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with await connect(etcd.url, "first") as first, await connect(etcd.url, "second") as second:
        async with await soon(first.campaign("my-service")):
            waits = asyncio.create_task(second.campaign("my-service"))
            await until(lambda: len(candidates(etcd)) == 2)
            error = RuntimeError("a fault of the driver's")
            monkeypatch.setattr(second._driver, "_replace", lambda _: (_ for _ in ()).throw(error))
            second._driver.tell("campaign", None)
            for campaign in (waits, second.campaign("other")):
                with pytest.raises(Closed) as told:
                    await soon(campaign)
                assert told.value.__cause__ is error
    assert "a fault of the driver's" in caplog.text


async def test_whoever_is_withdrawn_and_cancelled_at_once_is_cancelled(
    etcd: Etcd, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with await connect(etcd.url) as session:
        notify = session._driver._notify
        # A control character: it is refused.
        campaign = asyncio.create_task(session.campaign("\0"))

        def cancel_at_the_refusal(tag: str, notice: Any) -> None:
            notify(tag, notice)
            if tag == "withdrawn":
                campaign.cancel()

        monkeypatch.setattr(session._driver, "_notify", cancel_at_the_refusal)
        with pytest.raises(asyncio.CancelledError):
            await soon(campaign)
        with pytest.raises(Withdrawn):
            await soon(session.campaign("\0"))


@contextlib.asynccontextmanager
async def not_running(etcd: Etcd, lease_ttl: int = 10 * SECOND) -> AsyncIterator[Driver]:
    """A driver that takes a turn when it is told to."""
    store = Store(etcd.url)
    times = {"lease_ttl": lease_ttl, "safety_margin": 0, "request_timeout": SECOND}
    driver = Driver(store, times, lambda notice: None)
    try:
        yield driver
    finally:
        driver._drop("the test is over")
        await store.close()
