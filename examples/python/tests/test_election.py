"""Elections on a real etcd."""

import asyncio
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from conftest import Relay, candidates, until, soon
from etcd import FOLDER, TIMEOUT, Etcd, pause
from wasmtime.component import Variant

from incumbent import Conflict, Leadership, Session, Stale, Unknown, Unreachable, Withdrawn, connect
from incumbent.component import FUEL, now


async def test_two_candidates_take_turns(etcd: Etcd) -> None:
    async with await connect(etcd.url, "first") as first, await connect(etcd.url, "second") as second:
        epochs = []
        leadership = await soon(first.campaign("my-service"))
        for successor in (second, first, second, first):
            waits = asyncio.create_task(successor.campaign("my-service"))
            await until(lambda: len(candidates(etcd)) == 2)
            assert not waits.done() and leadership.is_valid()
            assert await soon(leadership.resign()) == "resigned"
            assert not leadership.is_valid() and await leadership.lost() == "resigned"
            epochs.append(leadership.epoch)
            leadership = await soon(waits)
        assert epochs == sorted(set(epochs)) and leadership.epoch > epochs[-1]
        await leadership.resign()
    assert candidates(etcd) == [] and leases(etcd) == []


async def test_a_race_is_won_by_one_and_then_by_the_other(etcd: Etcd) -> None:
    async with await connect(etcd.url, "first") as first, await connect(etcd.url, "second") as second:
        async with await soon(first.campaign("race", "race")) as leadership:
            assert (await first.get("race"))[0] == b"first" and leadership.key == b"race"
            waits = asyncio.create_task(second.campaign("race", "race"))
            await asyncio.sleep(0.1)
            assert not waits.done()
        async with await soon(waits) as later:
            assert later.epoch > leadership.epoch


async def test_a_stale_write_is_refused(etcd: Etcd) -> None:
    async with await connect(etcd.url) as session:
        leadership = await soon(session.campaign("my-service"))
        revision = await leadership.put("result", "41")
        assert await session.get("result") == (b"41", revision)
        await leadership.put("result", "42", modified=revision)
        with pytest.raises(Conflict):
            await leadership.put("result", "43", modified=revision)
        etcd.ctl("del", leadership.key.decode())
        with pytest.raises(Stale):
            await leadership.put("result", "44")
        assert await soon(leadership.lost()) in ("fenced", "deposed") and not leadership.is_valid()
        assert await soon(leadership.resign()) == await leadership.lost()
        with pytest.raises(Stale):
            await leadership.put("result", "45")
        async with await soon(session.campaign("my-service")) as later:
            with pytest.raises(Stale):
                await leadership.put("result", "46")
            assert later.is_valid()
        assert (await session.get("result"))[0] == b"42"


async def test_a_candidate_that_stops_waiting_leaves_the_queue(etcd: Etcd) -> None:
    async with await connect(etcd.url, "first") as first, await connect(etcd.url, "second") as second:
        async with await soon(first.campaign("my-service")):
            for _ in range(2):
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(second.campaign("my-service"), 0.2)
            await until(lambda: len(candidates(etcd)) == 1)
            # Another one beside one that waits is refused.
            waits = asyncio.ensure_future(second.campaign("my-service"))
            await until(lambda: len(candidates(etcd)) == 2)
            with pytest.raises(Withdrawn, match="there is a candidacy for `my-service`"):
                await soon(second.campaign("my-service"))
            waits.cancel()
            # Beside one that leads it waits for the end of that one.
            after = asyncio.ensure_future(first.campaign("my-service"))
        async with await soon(after):
            pass


async def test_the_next_leads_when_the_lease_of_a_stopped_one_is_over(etcd: Etcd, tmp_path: Path) -> None:
    async with counters(etcd, tmp_path) as (first, second):
        await until(lambda: first.lines("invoke"))
        second.start()
        await until(lambda: len(candidates(etcd)) == 2)
        first.pause()
        [elected] = await until(lambda: second.lines("elected"))
        assert elected["mark"] > first.lines("elected", "extended")[-1]["valid_until"]
        await until(lambda: len(second.lines("return")) > 2)
        first.resume()
        # It finds out by its clock at once, and counts once more, which is refused.
        [demoted] = await until(lambda: first.lines("demoted"))
        assert demoted["reason"] in ("expired", "lease-lost")
        late = await until(lambda: [line for line in first.lines("invoke") if line["mark"] > elected["mark"]])
        assert not any(line["leads"] for line in late)
    increments = {line["increment"] for line in late}
    outcomes = [line["outcome"] for line in first.lines("return") if line["increment"] in increments]
    assert outcomes == ["nothing"] * len(late)


async def test_the_next_leads_when_the_lease_of_a_killed_one_is_over(etcd: Etcd, tmp_path: Path) -> None:
    async with counters(etcd, tmp_path) as (first, second):
        await until(lambda: first.lines("invoke"))
        second.start()
        await until(lambda: len(candidates(etcd)) == 2)
        first.kill()
        [elected] = await until(lambda: second.lines("elected"))
        assert elected["mark"] > first.lines("elected", "extended")[-1]["valid_until"]
        assert elected["epoch"] > first.lines("elected")[0]["epoch"]


@pytest.mark.parametrize("contest", ["queue", "race"])
async def test_sigterm_hands_over_and_nothing_is_counted_twice(etcd: Etcd, tmp_path: Path, contest: str) -> None:
    async with counters(etcd, tmp_path, "--seed", "8", "--contest", contest) as (first, second):
        second.start()
        # In a race, the same one may win again and again.
        await until(lambda: len(first.lines("elected") + second.lines("elected")) > 3)
        first.process.terminate()
        assert await asyncio.to_thread(first.process.wait, TIMEOUT) == 0
    assert {line["reason"] for host in (first, second) for line in host.lines("demoted")} == {"resigned"}
    applied = [line for host in (first, second) for line in host.lines("return") if line["outcome"] == "applied"]
    assert int(etcd.ctl("get", "counter-of-my-service", "--print-value-only")) == len(applied)


async def test_an_operator_has_another_candidate_lead(etcd: Etcd) -> None:
    async with await connect(etcd.url) as one, await connect(etcd.url) as two:
        leadership = await soon(one.campaign("my-service"))
        waiting = asyncio.ensure_future(two.campaign("my-service"))
        await until(lambda: len(candidates(etcd)) == 2)
        [key] = [key for key in candidates(etcd) if key != leadership.key.decode()]
        created = json.loads(etcd.ctl("get", "-w", "json", key))["kvs"][0]["create_revision"]

        lease = etcd.ctl("lease", "grant", "60").split()[1]

        def is_over() -> bool:
            # Its watch may not be on yet.
            wish = f"{leadership.epoch} {created} now"
            etcd.ctl("put", f"--lease={lease}", "incumbent-wishes/my-service/transfer", wish)
            return not leadership.is_valid()

        await until(is_over)
        assert await soon(leadership.lost()) == "resigned"
        await soon(leadership.resign())
        async with await soon(waiting) as next_one:
            assert next_one.epoch == created


async def test_a_drained_session_leads_no_more_until_that_is_undone(etcd: Etcd) -> None:
    async with await connect(etcd.url, ttl=2) as one, await connect(etcd.url) as two:
        leadership = await soon(one.campaign("my-service"))
        one.drain(1)
        waiting = asyncio.ensure_future(two.campaign("my-service"))
        assert await soon(leadership.lost()) == "resigned"
        await soon(leadership.resign())
        again = asyncio.ensure_future(one.campaign("my-service"))
        async with await soon(waiting):
            # Also after its elector has trapped.
            driver, old = one._driver, one._driver._elector
            driver.fuel = 100
            driver.tell("wake")
            await until(lambda: driver._elector is not old)
            driver.fuel = FUEL
            await until(lambda: driver._elector is not None)
        # Its elector has had time to claim a key.
        async with await soon(two.campaign("other")):
            assert candidates(etcd) == []
        one.undo_drain()
        async with await soon(again):
            pass


async def test_sessions_share_their_elections(etcd: Etcd) -> None:
    held: dict[str, set[str]] = {"one": set(), "two": set()}

    async def lead(session: Session, shard: str) -> None:
        while True:
            async with await session.campaign(shard) as leadership:
                held[session.identity].add(shard)
                try:
                    await leadership.lost()
                finally:
                    held[session.identity].discard(shard)

    def led() -> tuple[int, int]:
        return len(held["one"]), len(held["two"])

    async with await connect(etcd.url, "one") as one, await connect(etcd.url, "two") as two:
        one.limit(is_fair=True)
        two.limit(6, is_fair=True, at_once=2)
        tasks = [asyncio.create_task(lead(one, f"shard-{shard}")) for shard in range(8)]
        await until(lambda: led() == (8, 0))
        tasks += [asyncio.create_task(lead(two, f"shard-{shard}")) for shard in range(8)]
        await until(lambda: led() == (4, 4))
        one.limit()
        two.limit(1)
        await until(lambda: led() == (7, 1))
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


async def test_sigterm_lets_the_worker_of_the_readme_give_its_lease_back(etcd: Etcd) -> None:
    worker = subprocess.Popen([sys.executable, "worker.py", "my-service"], cwd=FOLDER,
                              env={**os.environ, "INCUMBENT_STORE": etcd.url})
    try:
        await until(lambda: etcd.ctl("get", "my-service-progress"))
        worker.terminate()
        assert await asyncio.to_thread(worker.wait, TIMEOUT) == 0
    finally:
        worker.kill()
        worker.wait()
    assert candidates(etcd) == [] and leases(etcd) == []


@pytest.mark.parametrize("elector_says_so", [True, False])
async def test_a_lost_renewal_endangers_and_then_ends_the_term_by_the_clock(
    etcd: Etcd, elector_says_so: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    notices: list[Variant] = []
    async with await connect(etcd.url, ttl=2, on_notice=notices.append) as session:
        if not elector_says_so:
            notify = session._driver._notify
            monkeypatch.setattr(
                session._driver, "_notify", lambda tag, notice: tag == "demoted" or notify(tag, notice)
            )
        leadership = await soon(session.campaign("my-service"))
        etcd.pause()
        await soon(leadership.endangered())
        assert leadership.is_valid()
        assert await soon(leadership.lost()) == "expired"
        assert now() >= leadership.valid_until and not leadership.is_valid()
        etcd.resume()
        await soon(leadership.resign())
        monkeypatch.undo()
        async with await soon(session.campaign("my-service")) as later:
            assert later.epoch > leadership.epoch
    said = [notice.tag for notice in notices if notice.tag in ("endangered", "demoted")]
    assert said[:2] == ["endangered", "demoted"]


async def test_after_a_blocked_event_loop_the_clock_is_right_at_once(etcd: Etcd) -> None:
    async with await connect(etcd.url, ttl=1) as session:
        leadership = await soon(session.campaign("my-service"))
        # What nobody should do: no renewal can go out meanwhile.
        time.sleep(max(leadership.valid_until - now(), 0) / 1e9)
        assert not leadership.is_valid()
        with pytest.raises(Stale):
            await leadership.put("result", "late")
        assert await soon(leadership.lost()) == "expired"
        assert await soon(leadership.resign()) == "expired"


@pytest.mark.parametrize("cancelled_first", [True, False])
async def test_a_term_that_nobody_takes_is_given_back(
    etcd: Etcd, cancelled_first: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A key that is left behind would outlast the time-out.
    async with await connect(etcd.url, ttl=600) as first, await connect(etcd.url, ttl=600) as second:
        notify = first._driver._notify
        campaign = asyncio.create_task(first.campaign("my-service"))

        def cancel_at_the_election(tag: str, notice: Any) -> None:
            if tag == "elected" and cancelled_first:
                campaign.cancel()
            notify(tag, notice)
            if tag == "elected":
                campaign.cancel()

        monkeypatch.setattr(first._driver, "_notify", cancel_at_the_election)
        with pytest.raises(asyncio.CancelledError):
            await campaign
        async with await soon(second.campaign("my-service")):
            pass


async def test_what_is_said_at_once_is_told_in_order(etcd: Etcd) -> None:
    async with await connect(etcd.url) as session:
        candidacy = session._driver.campaign("my-service", "queue", b"")
        session._driver.leave(candidacy)
        await soon(candidacy.over)


async def test_a_cut_connection_and_a_restarted_etcd_are_survived(etcd: Etcd) -> None:
    async with Relay.to(etcd) as relay:
        async with await connect(relay.url, ttl=6) as first, await connect(relay.url, ttl=6) as second:
            leadership = await soon(first.campaign("my-service"))
            for breaks, successor in ((relay.cut, second), (etcd.restart, first)):
                waits = asyncio.create_task(successor.campaign("my-service"))
                await until(lambda: len(candidates(etcd)) == 2)
                breaks()
                valid_until = leadership.valid_until
                await until(lambda: leadership.valid_until > valid_until)
                assert leadership.is_valid() and not waits.done()
                await soon(leadership.resign())
                leadership = await soon(waits)
            await leadership.resign()


async def test_a_member_that_stalls_is_left_for_another(etcd: Etcd) -> None:
    async with Relay.to(etcd) as relay:
        url = f"{relay.url},{etcd.url.removeprefix('etcd://')}"
        async with await connect(url, ttl=6) as first, await connect(url, ttl=6) as second:
            leadership = await soon(first.campaign("my-service"))
            waits = asyncio.create_task(second.campaign("my-service"))
            await until(lambda: len(candidates(etcd)) == 2)
            relay.stalls, valid_until = True, leadership.valid_until
            reads = asyncio.create_task(first.get("result", within=2 * TIMEOUT))
            await until(lambda: leadership.valid_until > valid_until)
            assert leadership.is_valid() and not leadership._candidacy.lost.done()
            assert await soon(reads) == (None, 0)
            await leadership.put("result", "in time")
            # A new session begins with the first one as well.
            async with await connect(url, within=2) as third:
                assert (await third.get("result"))[0] == b"in time"
            # Watches moved as well, of both.
            await until(lambda: all(session._store._members[0] in etcd.url for session in (first, second)))
            await until(lambda: not any(session._store._closing for session in (first, second)))
            watches = [*first._driver._watches.values(), *second._driver._watches.values()]
            assert watches and not any(watch.done() for watch in watches)
            assert await soon(leadership.resign()) == "resigned"
            async with await soon(waits):
                relay.stalls = False


async def test_an_etcd_that_is_not_there_is_named_in_one_sentence() -> None:
    sentence = r"^no etcd answers at 127.0.0.1:1 within 5 s: is one running there\? \(.*refused.*\)$"
    with pytest.raises(Unreachable, match=sentence):
        await connect("etcd://127.0.0.1:1")


async def test_the_example_of_the_readme_works(etcd: Etcd, monkeypatch: pytest.MonkeyPatch) -> None:
    [example] = re.findall(r"```python\n(.*?)\nasyncio.run", (FOLDER / "README.md").read_text(), re.DOTALL)
    turns, put = 0, Leadership.put

    async def put_without_an_answer(*arguments: Any) -> int:
        await put(*arguments)
        monkeypatch.undo()
        raise Unknown("no answer")

    async def work_on(value: bytes | None) -> str:
        nonlocal turns
        turns += 1
        if turns == 3:
            etcd.ctl("del", "my-service/", "--prefix")
        if turns == 4:
            monkeypatch.setattr(Leadership, "put", put_without_an_answer)
        if turns == 6:
            raise asyncio.CancelledError
        return str(int(value or 0) + 1)

    program: dict[str, Any] = {"work_on": work_on}
    exec(example.replace("etcd://127.0.0.1:2379", etcd.url), program)
    with pytest.raises(asyncio.CancelledError):
        await soon(program["main"]())
    # The third result was refused, the fourth came in another term, and the fifth in a third one.
    assert etcd.ctl("get", "progress", "--print-value-only").strip() == "4"
    assert etcd.ctl("get", "my-service/", "--prefix") == ""


def leases(etcd: Etcd) -> list[Any]:
    found: list[Any] = json.loads(etcd.ctl("lease", "list", "-w", "json")).get("leases", [])
    return found


class Host:
    """A process of counter.py."""

    def __init__(self, etcd: Etcd, name: str, folder: Path, more: tuple[str, ...]) -> None:
        self.log = folder / f"{name}.jsonl"
        self._command = [sys.executable, "counter.py", "--store", etcd.url, "--process", name,
                         "--logs", str(folder), "--ttl", "2", *more]

    def start(self) -> None:
        self.process = subprocess.Popen(self._command, cwd=FOLDER)

    def lines(self, *events: str) -> list[dict[str, Any]]:
        text = self.log.read_text() if self.log.exists() else ""
        lines = [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]
        return [line for line in lines if line["event"] in events]

    def pause(self) -> None:
        pause(self.process)

    def resume(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@contextlib.asynccontextmanager
async def counters(etcd: Etcd, folder: Path, *more: str) -> AsyncIterator[tuple[Host, Host]]:
    """Two hosts, of which the first one leads; the second is to be started."""
    hosts = Host(etcd, "first", folder, more), Host(etcd, "second", folder, more)
    hosts[0].start()
    try:
        yield hosts
    finally:
        for host in hosts:
            if hasattr(host, "process"):
                host.resume()
                host.process.terminate()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    await asyncio.to_thread(host.process.wait, TIMEOUT)
                host.kill()
