"""Leaders count a number in etcd up together: nothing is counted twice, or by somebody deposed.

`.venv/bin/python counter.py --process worker-1 --logs . --ttl 10 [--store etcd://127.0.0.1:2379]`

Each reads the number, and writes it one higher: guarded by its term, and only if nobody has
written it since. What it sees is a JSON object a line in LOGS/PROCESS.jsonl, and what its elector did is
recorded in LOGS/recordings. SIGTERM ends it.
"""

import argparse
import asyncio
import json
import random
import signal
import sys
from collections.abc import Awaitable
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any, TextIO, TypeVar

from wasmtime.component import Variant

from incumbent import Conflict, Leadership, Recording, Refused, Session, Stale, Unknown, Unreachable, connect
from incumbent.component import now
from incumbent.errors import sentence

T = TypeVar("T")

#: Between two increments, in seconds.
PAUSE = 0.025
#: How long etcd may be away at the start, and at the end, in seconds.
CONNECT_TIMEOUT, CLOSE_TIMEOUT = 60.0, 5.0

increments = count()


class Log:
    """Each line is with the kernel when it is written: the death of the process does not take it away."""

    def __init__(self, file: TextIO, process: str) -> None:
        self._file, self._process = file, process

    def write(self, event: str, mark: int | None = None, **fields: Any) -> None:
        line = {"process": self._process, "mark": now() if mark is None else mark, "event": event, **fields}
        self._file.write(json.dumps(line) + "\n")
        self._file.flush()


class Counter:
    def __init__(self, chosen: argparse.Namespace, log: Log, is_over: asyncio.Event) -> None:
        self.chosen, self.log, self.key = chosen, log, f"counter-of-{chosen.election}"
        self.rng = None if chosen.seed is None else random.Random(chosen.seed)
        #: The latest one.
        self.leadership: Leadership | None = None
        #: SIGTERM came.
        self.is_over = is_over

    async def run(self) -> None:
        session = await self.unless_over(asyncio.wait_for(self.connect(), CONNECT_TIMEOUT))
        if not session:
            return
        while not self.is_over.is_set():
            campaign = session.campaign(self.chosen.election, self.chosen.contest)
            if leadership := await self.unless_over(campaign):
                await self.lead(session, leadership)
        with suppress(TimeoutError):  # It is left to its lease then.
            await asyncio.wait_for(session.close(), CLOSE_TIMEOUT)

    async def connect(self) -> Session:
        while True:
            try:
                record = Recording(self.chosen.logs / "recordings", values=True)
                chosen = self.chosen.store, self.chosen.process, self.chosen.ttl
                return await connect(*chosen, on_notice=self.note, record=record)
            except Unreachable as error:
                # What was cut off will be healed.
                print(f"not yet: {error}", file=sys.stderr)
                await asyncio.sleep(PAUSE)

    def note(self, notice: Variant) -> None:
        what: Any = notice.payload
        if notice.tag == "extended":
            valid_until = getattr(what, "valid-until")
            if (led := self.leadership) and led.valid_until == valid_until and led.is_valid():
                self.log.write("extended", election=self.chosen.election, epoch=led.epoch, valid_until=valid_until)
        elif notice.tag == "trouble":
            self.log.write("trouble", text=sentence(what.failure))

    async def lead(self, session: Session, leadership: Leadership) -> None:
        """One term, which ends as this host pleases, or is lost."""
        self.leadership = leadership
        term: dict[str, Any] = {"election": self.chosen.election, "epoch": leadership.epoch}
        self.log.write("elected", valid_until=leadership.valid_until, **term)
        stops = asyncio.Event()
        works = asyncio.create_task(self.count(session, leadership, stops))
        lost = asyncio.create_task(leadership.lost())
        pleases = asyncio.create_task(self.unless_over(asyncio.sleep(self.reign())))
        await asyncio.wait({lost, pleases}, return_when=asyncio.FIRST_COMPLETED)
        pleases.cancel()
        reason = lost.result() if lost.done() else None
        if reason:
            self.log.write("demoted", valid_until=leadership.valid_until, reason=reason, **term)
        stops.set()
        await works
        if not reason:
            # It may have been lost while the work stopped.
            reason = "resigned" if leadership.is_valid() else await leadership.lost()
            self.log.write("demoted", valid_until=leadership.valid_until, reason=reason, **term)
        lost.cancel()
        await self.unless_over(leadership.resign())

    def reign(self) -> float:
        """How long to lead: mostly short, and sometimes until something goes wrong."""
        if not self.rng:
            return float("inf")
        return self.rng.choice([self.rng.uniform(0.1, 1), self.rng.uniform(1, 5), 15])

    async def count(self, session: Session, leadership: Leadership, stops: asyncio.Event) -> None:
        """Counts until it has to stop, and once after that: what is counted then is refused."""
        is_last = False
        while not is_last:
            is_last = stops.is_set()
            increment = next(increments)
            # Read before the answer: who leads at a later time led then.
            mark = now()
            leads = leadership.is_valid()
            self.log.write("invoke", mark, election=self.chosen.election, increment=increment,
                           epoch=leadership.epoch, leads=leads)
            outcome = await self.increment(session, leadership, increment)
            self.log.write("return", increment=increment, outcome=outcome)
            await asyncio.sleep(0 if is_last else PAUSE)

    async def increment(self, session: Session, leadership: Leadership, increment: int) -> str:
        try:
            text, modified = await session.get(self.key)
            value = int(text or 0)
            self.log.write("read", increment=increment, value=value)
            await leadership.put(self.key, str(value + 1), modified=modified)
        except (Unreachable, Stale, Conflict, Refused):
            return "nothing"
        except Unknown:
            return "unknown"
        return "applied"

    async def unless_over(self, wanted: Awaitable[T]) -> T | None:
        """What it comes to, or nothing once SIGTERM has come."""
        over, wait = asyncio.ensure_future(self.is_over.wait()), asyncio.ensure_future(wanted)
        try:
            await asyncio.wait({over, wait}, return_when=asyncio.FIRST_COMPLETED)
            return wait.result() if wait.done() else None
        finally:
            over.cancel()
            wait.cancel()


async def run(chosen: argparse.Namespace) -> None:
    is_over = asyncio.Event()
    # Before the log begins: once there is a log, SIGTERM is handled.
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, is_over.set)
    with open(chosen.logs / f"{chosen.process}.jsonl", "x", encoding="utf-8") as file:
        await Counter(chosen, Log(file, chosen.process), is_over).run()


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--store", default="etcd://127.0.0.1:2379", help="the etcd")
    arguments.add_argument("--process", required=True, help="who this is")
    arguments.add_argument("--logs", required=True, type=Path, help="the directory of the logs")
    arguments.add_argument("--election", default="my-service")
    arguments.add_argument("--contest", default="queue", choices=["queue", "race"])
    arguments.add_argument("--ttl", required=True, type=float, help="how long a lease lives, in seconds")
    arguments.add_argument("--seed", type=int, help="when to let others have their turn is drawn from it")
    chosen = arguments.parse_args()
    try:
        asyncio.run(run(chosen))
    except TimeoutError:
        sys.exit(f"no etcd was reached at {chosen.store} for {CONNECT_TIMEOUT:g} s")
    except (OSError, ValueError) as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
