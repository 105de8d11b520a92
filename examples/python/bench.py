"""How long the next leader takes: from `resign` of one session to `elected` of the other.

`.venv/bin/python bench.py [--store etcd://127.0.0.1:2379] [--rounds 200]`
"""

import argparse
import asyncio
import statistics
import time

from wasmtime.component import Variant

from incumbent import Leadership, Session, connect

#: How long a successor has been in line when its predecessor resigns, in seconds.
IN_LINE = 0.3


async def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--store", default="etcd://127.0.0.1:2379")
    arguments.add_argument("--rounds", type=int, default=50)
    chosen = arguments.parse_args()
    joined = asyncio.Event()

    def note(notice: Variant) -> None:
        if notice.tag == "joined":
            joined.set()

    sessions = [await connect(chosen.store, identity, on_notice=note) for identity in ("bench-1", "bench-2")]
    leadership = await sessions[0].campaign("bench")
    took = []
    for successor in range(1, chosen.rounds + 1):
        joined.clear()
        leadership, milliseconds = await hand_over(leadership, sessions[successor % 2], joined)
        took.append(milliseconds)
    await leadership.resign()
    for session in sessions:
        await session.close()
    took.sort()
    print(f"resign to elected, {len(took)} rounds: median {statistics.median(took):.2f} ms, "
          f"p99 {took[len(took) * 99 // 100]:.2f} ms")


async def hand_over(leadership: Leadership, successor: Session, joined: asyncio.Event) -> tuple[Leadership, float]:
    """The leader resigns when the successor has been in line for a while."""

    async def campaign() -> tuple[Leadership, float]:
        return await successor.campaign("bench"), time.perf_counter()

    campaigning = asyncio.create_task(campaign())
    await joined.wait()
    await asyncio.sleep(IN_LINE)
    began = time.perf_counter()
    await leadership.resign()
    next_leadership, elected = await campaigning
    return next_leadership, (elected - began) * 1_000


if __name__ == "__main__":
    asyncio.run(main())
