"""Leads many elections on one session, until SIGTERM, which the next candidates wait for.

`.venv/bin/python many.py --process worker-1 --logs . --elections 1000 [--store etcd://127.0.0.1:2379]`

It prints a line once it leads all of them. Its terms are written down for the judge, as in counter.py.
"""

import argparse
import asyncio
import signal
from pathlib import Path
from typing import Any

from counter import Log
from wasmtime.component import Variant

from incumbent import Leadership, Session, connect
from incumbent.errors import sentence


class Many:
    def __init__(self, elections: int, log: Log) -> None:
        self.names = [f"many-{number:06}" for number in range(elections)]
        self.log, self.leading = log, 0
        #: SIGTERM came.
        self.is_over = asyncio.Event()

    async def run(self, store: str, process: str) -> None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, self.is_over.set)
        async with await connect(store, process, on_notice=self.note) as session:
            await asyncio.gather(*(self.lead(session, name) for name in self.names))

    def note(self, notice: Variant) -> None:
        what: Any = notice.payload
        if notice.tag == "trouble":
            self.log.write("trouble", text=sentence(what.failure))

    async def lead(self, session: Session, name: str) -> None:
        """One term, until SIGTERM or a loss."""
        leadership = await session.campaign(name)
        self.write("elected", name, leadership)
        self.leading += 1
        if self.leading == len(self.names):
            print("leads", flush=True)
        ends = [asyncio.create_task(leadership.lost()), asyncio.create_task(self.is_over.wait())]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        reason = "resigned" if leadership.is_valid() else await leadership.lost()
        self.write("demoted", name, leadership, reason=reason)
        await leadership.resign()
        for end in ends:
            end.cancel()

    def write(self, event: str, name: str, leadership: Leadership, **more: Any) -> None:
        self.log.write(event, election=name, epoch=leadership.epoch, valid_until=leadership.valid_until, **more)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--store", default="etcd://127.0.0.1:2379", help="the etcd")
    arguments.add_argument("--process", required=True, help="who this is")
    arguments.add_argument("--logs", required=True, type=Path, help="the directory of the logs")
    arguments.add_argument("--elections", required=True, type=int, help="how many")
    chosen = arguments.parse_args()
    with open(chosen.logs / f"{chosen.process}.jsonl", "x", encoding="utf-8") as file:
        asyncio.run(Many(chosen.elections, Log(file, chosen.process)).run(chosen.store, chosen.process))


if __name__ == "__main__":
    main()
