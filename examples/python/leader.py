"""Candidates of one election, which lead in turns: whoever leads writes a key, guarded by its term.

`.venv/bin/python leader.py worker-1 worker-2 [--store etcd://127.0.0.1:2379] [--turns 3]`
"""

import argparse
import asyncio
import sys
from collections.abc import Coroutine

from incumbent import ElectionError, Leadership, connect

#: How long each leads, in seconds.
TURN = 2.0


async def candidate(store: str, identity: str, turns: int) -> None:
    async with await connect(store, identity) as session:
        for _ in range(turns):
            async with await session.campaign("example") as leadership:
                print(f"{identity} leads in epoch {leadership.epoch}", flush=True)
                await unless_lost(leadership, works(leadership, identity))
            print(f"{identity} stopped: {await leadership.lost()}", flush=True)


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


async def works(leadership: Leadership, identity: str) -> None:
    """What only the leader may do: each write is refused once the term is over."""
    revision = await leadership.put("example-result", identity)
    print(f"{identity} wrote at revision {revision}", flush=True)
    await asyncio.sleep(TURN)


async def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("identities", nargs="+", metavar="IDENTITY")
    arguments.add_argument("--store", default="etcd://127.0.0.1:2379")
    arguments.add_argument("--turns", type=int, default=3)
    chosen = arguments.parse_args()
    await asyncio.gather(*(candidate(chosen.store, identity, chosen.turns) for identity in chosen.identities))


if __name__ == "__main__":
    try:
        asyncio.run(main())
    except KeyboardInterrupt:
        pass
    except (ElectionError, OSError, ValueError) as error:
        sys.exit(str(error))
