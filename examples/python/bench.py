"""Hands an election over for each line that it reads, and prints how many milliseconds each took:
from the resignation to the successor's election, when that has been in line for 300 ms.
`just bench handover` runs it in turns with the hosts in Rust and Node.js.

    yes '' | head -60 | .venv/bin/python bench.py etcd://127.0.0.1:2379
"""

import asyncio
import sys
import time

from incumbent import Leadership, Session, connect

IN_LINE = 0.3


async def main(url: str = "etcd://127.0.0.1:2379") -> None:
    successor, other = await connect(url), await connect(url)
    leadership = await other.campaign("handover-python")
    while await asyncio.to_thread(sys.stdin.readline):
        campaign = asyncio.create_task(elected(successor))
        await asyncio.sleep(IN_LINE)
        began = time.perf_counter()
        await leadership.resign()
        leadership, at = await campaign
        print(f"{(at - began) * 1_000:.3f}", flush=True)
        successor, other = other, successor
    await leadership.resign()
    await asyncio.gather(successor.close(), other.close())


async def elected(session: Session) -> tuple[Leadership, float]:
    return await session.campaign("handover-python"), time.perf_counter()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
