"""Certificates of a test's own, made by openssl."""

import subprocess
from pathlib import Path


class Certificates:
    """A CA, and what it has signed for an etcd on `localhost` and for a client of it."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._folder, self.ca = folder, folder / "ca.pem"
        self._make("ca")
        self._make("server", "-addext", "subjectAltName=DNS:localhost")
        self._make("client", "-addext", "extendedKeyUsage=clientAuth")
        self.server = {"cert": folder / "server.pem", "key": folder / "server.key"}
        self.client = {"cert": folder / "client.pem", "key": folder / "client.key"}

    def expire(self) -> None:
        """Puts a certificate that has expired in the place of etcd's, which etcd reads for each connection."""
        for command in (
            ["req", "-new", "-key", "server.key", "-subj", "/CN=server", "-addext", "subjectAltName=DNS:localhost",
             "-out", "old.csr"],
            ["x509", "-req", "-in", "old.csr", "-copy_extensions", "copy", "-CA", "ca.pem", "-CAkey", "ca.key",
             "-days", "-1", "-out", "server.pem"],
        ):
            subprocess.run(["openssl", *command], cwd=self._folder, check=True, capture_output=True)

    def _make(self, name: str, *more: str) -> None:
        command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                   "-days", "2", "-subj", f"/CN={name}", "-out", f"{name}.pem", "-keyout", f"{name}.key", *more]
        if name != "ca":
            command += ["-CA", "ca.pem", "-CAkey", "ca.key", "-addext", "basicConstraints=critical,CA:FALSE"]
        subprocess.run(command, cwd=self._folder, check=True, capture_output=True)
