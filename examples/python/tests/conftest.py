"""What the tests work with: a real etcd of both versions, a way to it that can be cut, waits."""

import asyncio
import contextlib
import inspect
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from etcd import FOLDER, TIMEOUT, VERSIONS, Etcd

sys.path.insert(0, str(FOLDER))


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Runs tests that are coroutines, each on an event loop of its own."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    wanted = pyfuncitem._fixtureinfo.argnames
    test = pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in wanted})
    asyncio.run(asyncio.wait_for(test, 4 * TIMEOUT))
    return True


async def until(holds: Callable[[], Any]) -> Any:
    """Waits until it holds."""
    async with asyncio.timeout(TIMEOUT):
        while not (held := holds()):
            await asyncio.sleep(0.01)
        return held


async def soon(wanted: Any) -> Any:
    """What it comes to, which must not take longer than the time-out."""
    return await asyncio.wait_for(wanted, TIMEOUT)


@pytest.fixture(params=VERSIONS)
def etcd(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Etcd]:
    running = Etcd(request.param, tmp_path)
    yield running
    running.kill()


class Relay:
    """A way to etcd that can be cut, and refuse, and stall."""

    def __init__(self, port: int) -> None:
        self._to, self._writers, self.accepts = port, set[asyncio.StreamWriter](), True
        self.stalls = False

    @classmethod
    @contextlib.asynccontextmanager
    async def to(cls, etcd: Etcd) -> AsyncIterator["Relay"]:
        relay = cls(etcd.port)
        server = await asyncio.start_server(relay._carry, "127.0.0.1", 0)
        relay.url = f"etcd://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        yield relay
        server.close()
        relay.cut()

    url: str

    def cut(self) -> None:
        """Breaks every connection there is."""
        for writer in self._writers:
            writer.transport.abort()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not self.accepts:
            return writer.transport.abort()
        try:
            to_reader, to_writer = await asyncio.open_connection("127.0.0.1", self._to)
        except OSError:
            return writer.transport.abort()
        pair = {writer, to_writer}
        self._writers |= pair
        await asyncio.gather(self._copy(reader, to_writer), self._copy(to_reader, writer))
        self._writers -= pair

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                while self.stalls:
                    await asyncio.sleep(0.01)
                writer.write(data)
                await writer.drain()
        writer.transport.abort()


def candidates(etcd: Etcd) -> list[str]:
    """The keys of the election `my-service`."""
    return etcd.ctl("get", "my-service/", "--prefix", "--keys-only").split()
