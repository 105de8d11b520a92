"""How long the next leader takes: from a resignation to the successor's election, the successor
having been in line for 300 ms; on an etcd of its own, or the one that is named.

    .venv/bin/python bench.py [ROUNDS] [etcd://HOST:PORT]
"""

import asyncio
import sys
import tempfile
import time
from pathlib import Path

from wasmtime.component import Variant

from incumbent import Leadership, Session, connect

SETTLED = 0.3


async def measure(what: str, url: str, rounds: int) -> None:
    joined = asyncio.Event()

    def note(notice: Variant) -> None:
        if notice.tag == "joined":
            joined.set()

    sessions = [await connect(url, on_notice=note) for _ in range(2)]
    leadership = await sessions[0].campaign("handover")
    times = []
    for number in range(1, rounds + 1):
        joined.clear()
        successor = asyncio.create_task(campaign(sessions[number % 2]))
        await joined.wait()
        await asyncio.sleep(SETTLED)
        began = time.perf_counter()
        await leadership.resign()
        leadership, elected = await successor
        times.append((elected - began) * 1_000)
    await leadership.resign()
    for session in sessions:
        await session.close()
    times.sort()
    p50, p90, p99 = (times[(len(times) - 1) * percent // 100] for percent in (50, 90, 99))
    print(f"{what}, {rounds} rounds: resign to elected p50 {p50:.2f} ms, p90 {p90:.2f} ms, p99 {p99:.2f} ms")


async def campaign(session: Session) -> tuple[Leadership, float]:
    return await session.campaign("handover"), time.perf_counter()


def main(rounds: str = "60", url: str | None = None) -> None:
    if url:
        return asyncio.run(measure(url, url, int(rounds)))
    sys.path.insert(0, str(Path(__file__).resolve().parent / "tests"))
    from etcd import VERSIONS, Etcd

    for version in VERSIONS:
        with tempfile.TemporaryDirectory() as folder:
            etcd = Etcd(version, Path(folder))
            try:
                asyncio.run(measure(f"etcd {version}", etcd.url, int(rounds)))
            finally:
                etcd.kill()


if __name__ == "__main__":
    main(*sys.argv[1:])
