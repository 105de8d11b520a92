"""What the tests work with: a real etcd of both versions, a way to it that can be cut, patience."""

import asyncio
import contextlib
import inspect
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).resolve().parent.parent
ROOT = FOLDER.parents[1]
sys.path.insert(0, str(FOLDER))

#: How long a test waits for what has to come, in seconds: the machine may be busy.
PATIENCE = 30.0


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Runs tests that are coroutines, each on an event loop of its own."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    wanted = pyfuncitem._fixtureinfo.argnames
    test = pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in wanted})
    asyncio.run(asyncio.wait_for(test, 4 * PATIENCE))
    return True


async def until(holds: Callable[[], Any]) -> Any:
    """Waits until it holds."""
    async with asyncio.timeout(PATIENCE):
        while not (held := holds()):
            await asyncio.sleep(0.01)
        return held


async def within_patience(wanted: Any) -> Any:
    return await asyncio.wait_for(wanted, PATIENCE)


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


class Etcd:
    """An etcd of one member, with its data in a folder of the test's."""

    def __init__(self, version: str, folder: Path) -> None:
        named = os.environ.get("INCUMBENT_ETCD_" + version.replace(".", "_"))
        self.programs = Path(named) if named else ROOT / f".tools/etcd-{version}"
        self.folder, self.port = folder, free_port()
        self.url = f"etcd://127.0.0.1:{self.port}"
        self.start()

    def start(self) -> None:
        client = f"http://127.0.0.1:{self.port}"
        with open(self.folder / "log", "ab") as log:
            self.process = subprocess.Popen(
                [self.programs / "etcd", "--data-dir", self.folder / "data", "--log-level", "error",
                 "--listen-client-urls", client, "--advertise-client-urls", client,
                 "--listen-peer-urls", "http://127.0.0.1:0"],
                stdout=log, stderr=log,
            )
        deadline = time.monotonic() + PATIENCE
        while not self._is_healthy(client):
            assert self.process.poll() is None, (self.folder / "log").read_text()
            assert time.monotonic() < deadline, "etcd is not healthy"
            time.sleep(0.02)

    def _is_healthy(self, client: str) -> bool:
        with contextlib.suppress(OSError):
            with urllib.request.urlopen(f"{client}/health", timeout=1) as answer:
                return b"true" in answer.read()
        return False

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def restart(self) -> None:
        self.kill()
        self.start()

    def pause(self) -> None:
        pause(self.process)

    def resume(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def ctl(self, *arguments: str) -> str:
        command = [str(self.programs / "etcdctl"), "--endpoints", f"127.0.0.1:{self.port}", *arguments]
        environment = {**os.environ, "ETCDCTL_API": "3"}
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
        return done.stdout


def pause(process: subprocess.Popen[Any]) -> None:
    """Stops a process in its tracks, and waits until it stands still."""
    process.send_signal(signal.SIGSTOP)
    deadline = time.monotonic() + PATIENCE
    while any(
        (task / "stat").read_text().rpartition(")")[2].split()[0] != "T"
        for task in Path(f"/proc/{process.pid}/task").iterdir()
    ):
        assert time.monotonic() < deadline, "it does not stop"
        time.sleep(0.001)


@pytest.fixture(params=["3.4", "3.5"])
def etcd(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Etcd]:
    running = Etcd(request.param, tmp_path)
    yield running
    running.kill()


class Relay:
    """A way to etcd that can be cut, and refuse."""

    def __init__(self, port: int) -> None:
        self._to, self._writers, self.accepts = port, set[asyncio.StreamWriter](), True

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
                writer.write(data)
                await writer.drain()
        writer.transport.abort()
