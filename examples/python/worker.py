"""Campaigns, and works while it leads: start it twice, and stop the first.

    .venv/bin/python worker.py [ELECTION] [IDENTITY]

The store is INCUMBENT_STORE, or etcd://127.0.0.1:2379.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Coroutine
from itertools import count

from incumbent import ElectionError, Leadership, connect


async def main(name: str = "my-service", identity: str | None = None) -> None:
    # As Ctrl-C: this is cancelled, resigns, and gives its lease back.
    if task := asyncio.current_task():
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    url = os.environ.get("INCUMBENT_STORE", "etcd://127.0.0.1:2379")
    async with await connect(url, identity) as session:
        me = f"{session.identity} (process {os.getpid()})"
        while True:
            print(f"{me} waits to lead {name}")
            async with await session.campaign(name) as leadership:
                print(f"{me} leads {name} in epoch {leadership.epoch}")
                try:
                    await unless_lost(leadership, work(name, leadership))
                except ElectionError as error:
                    print(f"the work stopped: {error}")
            print(f"{me} leads no more: {await leadership.lost()}")


async def work(name: str, leadership: Leadership) -> None:
    """Counts, in a key that only the leader of this very term can write."""
    for step in count(1):
        line = f"step {step} of epoch {leadership.epoch}"
        await leadership.put(f"{name}-progress", line)
        print(line)
        await asyncio.sleep(1)


async def unless_lost(leadership: Leadership, work: Coroutine[None, None, None]) -> None:
    """Does the work, and cancels it when the term is over: it has stopped when this returns."""
    works, lost = asyncio.create_task(work), asyncio.create_task(leadership.lost())
    try:
        await asyncio.wait({works, lost}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        works.cancel()
        lost.cancel()
        await asyncio.wait({works})
    if not works.cancelled():
        works.result()


if __name__ == "__main__":
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    try:
        asyncio.run(main(*sys.argv[1:]))
    except (KeyboardInterrupt, asyncio.CancelledError):
        pass
    except (ElectionError, OSError, ValueError) as error:
        sys.exit(str(error))
