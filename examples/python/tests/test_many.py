"""One process leads a thousand elections on one lease, and hands them over to another session."""

import asyncio
import resource
import time

import pytest
from conftest import soon
from etcd import Etcd

from incumbent import connect

NAMES = [f"many-{number:05}" for number in range(1_000)]


async def test_a_thousand_elections(etcd: Etcd, capsys: pytest.CaptureFixture[str]) -> None:
    troubles: list[str] = []

    def on_notice(notice: object) -> None:
        if getattr(notice, "tag", "") == "trouble":
            troubles.append(str(notice))

    # So long that a machine with little time for us misses no renewal.
    first, second = [await connect(etcd.url, ttl=60, on_notice=on_notice) for _ in range(2)]
    async with first, second:
        began = time.perf_counter()
        led = await soon(asyncio.gather(*map(first.campaign, NAMES)))
        won = time.perf_counter()
        waits = asyncio.gather(*map(second.campaign, NAMES))
        await soon(asyncio.gather(*(leadership.resign() for leadership in led)))
        followed = await soon(waits)
        handed = time.perf_counter()
        with capsys.disabled():
            memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1_024
            print(f"won in {won - began:.1f} s, handed over in {handed - won:.1f} s, {memory:.0f} MiB")
        assert all(leadership.is_valid() for leadership in followed)
        assert all(later.epoch > earlier.epoch for earlier, later in zip(led, followed, strict=True))
        assert troubles == []
        await soon(asyncio.gather(*(leadership.resign() for leadership in followed)))
