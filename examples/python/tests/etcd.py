"""A real etcd of one member, for tests and measurements."""

import contextlib
import os
import signal
import socket
import subprocess
import time
import urllib.request
from pathlib import Path
from typing import Any

from certificates import Certificates

FOLDER = Path(__file__).resolve().parent.parent
ROOT = FOLDER.parents[1]
VERSIONS = "3.4", "3.5"

#: How long a test waits for what has to come, in seconds: the machine may be busy.
TIMEOUT = 30.0


class Etcd:
    """An etcd, or a member of one, with its data in a folder of the test's."""

    def __init__(
        self,
        version: str,
        folder: Path,
        members: str = "",
        peer: str = "http://127.0.0.1:0",
        certificates: Certificates | None = None,
        more: tuple[str, ...] = (),
    ) -> None:
        named = os.environ.get("INCUMBENT_ETCD_" + version.replace(".", "_"))
        self.programs = Path(named) if named else ROOT / f".tools/etcd-{version}"
        self.folder, self.port = folder, free_port()
        host = "localhost" if certificates else "127.0.0.1"
        self.url = f"{'etcds' if certificates else 'etcd'}://{host}:{self.port}"
        client = f"{'https' if certificates else 'http'}://127.0.0.1:{self.port}"
        self._health = f"{client}/health"
        self._ctl = [str(self.programs / "etcdctl"), "--endpoints", f"{host}:{self.port}"]
        self._command: list[str | Path] = [
            self.programs / "etcd", "--data-dir", folder / "data", "--log-level", "error",
            "--listen-client-urls", client, "--advertise-client-urls", client, "--listen-peer-urls", peer, *more,
        ]
        if certificates:
            # Without a certificate, and some tenths of a second later, its health is seen elsewhere.
            metrics = f"http://127.0.0.1:{free_port()}"
            self._health = f"{metrics}/health"
            self._command += ["--listen-metrics-urls", metrics]
            ca, (cert, key) = certificates.ca, certificates.server.values()
            self._command += ["--client-cert-auth", "--trusted-ca-file", ca, "--cert-file", cert, "--key-file", key]
            cert, key = certificates.client.values()
            self._ctl += ["--cacert", str(ca), "--cert", str(cert), "--key", str(key)]
        # A member alone elects itself after a time-out: a second, unless told otherwise.
        heartbeat = 50 if members else 10
        self._command += ["--heartbeat-interval", str(heartbeat), "--election-timeout", str(10 * heartbeat)]
        if members:
            self._command += ["--name", folder.name, "--initial-cluster", members,
                              "--initial-advertise-peer-urls", peer]
        self.start()
        if not members:
            self.wait_until_healthy()

    @classmethod
    def cluster(cls, version: str, folder: Path) -> list["Etcd"]:
        """Of two members: without either one, there is no leader."""
        peers = {name: f"http://127.0.0.1:{free_port()}" for name in ("one", "two")}
        members = ",".join(f"{name}={peer}" for name, peer in peers.items())
        for name in peers:
            (folder / name).mkdir()
        cluster = [cls(version, folder / name, members, peer) for name, peer in peers.items()]
        for member in cluster:
            member.wait_until_healthy()
        return cluster

    def start(self) -> None:
        with open(self.folder / "log", "ab") as log:
            self.process = subprocess.Popen(self._command, stdout=log, stderr=log)

    def wait_until_healthy(self) -> None:
        deadline = time.monotonic() + TIMEOUT
        while not self.is_healthy():
            assert self.process.poll() is None, (self.folder / "log").read_text()
            assert time.monotonic() < deadline, "etcd is not healthy"
            time.sleep(0.02)

    def is_healthy(self) -> bool:
        with contextlib.suppress(OSError):
            with urllib.request.urlopen(self._health, timeout=1) as answer:
                return b"true" in answer.read()
        return False

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def restart(self) -> None:
        self.kill()
        self.start()
        self.wait_until_healthy()

    def pause(self) -> None:
        pause(self.process)

    def resume(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def ctl(self, *arguments: str) -> str:
        environment = {**os.environ, "ETCDCTL_API": "3"}
        done = subprocess.run([*self._ctl, *arguments], env=environment, stdout=subprocess.PIPE, text=True, check=True)
        return done.stdout

    def enable_users(self, user: str, prefix: str) -> None:
        """Makes a user `root`, and one who may have only what begins with a prefix, and has everyone log in."""
        self.ctl("role", "add", "of-the-prefix")
        self.ctl("role", "grant-permission", "--prefix=true", "of-the-prefix", "readwrite", prefix)
        self.ctl("user", "add", user)
        self.ctl("user", "grant-role", user.partition(":")[0], "of-the-prefix")
        self.ctl("user", "add", "root:secret")
        self.ctl("user", "grant-role", "root", "root")
        self.ctl("auth", "enable")

    def as_root(self, *arguments: str) -> str:
        return self.ctl("--user", "root:secret", *arguments)


def pause(process: subprocess.Popen[Any]) -> None:
    """Stops a process in its tracks, and waits until it stands still."""
    process.send_signal(signal.SIGSTOP)
    deadline = time.monotonic() + TIMEOUT
    while any(
        (task / "stat").read_text().rpartition(")")[2].split()[0] != "T"
        for task in Path(f"/proc/{process.pid}/task").iterdir()
    ):
        assert time.monotonic() < deadline, "it does not stop"
        time.sleep(0.001)


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])
