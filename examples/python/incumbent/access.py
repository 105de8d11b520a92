"""How to reach etcd: its URL, our certificates, our user, and the prefix of all keys."""

import ipaddress
import os
import re
import ssl
from dataclasses import dataclass
from pathlib import Path

from grpc import ChannelCredentials, ssl_channel_credentials

#: Where etcd listens unless it is told otherwise.
PORT = 2379
#: Where the authorities of a Linux system are: Debian, Fedora, SUSE, Alpine.
AUTHORITIES = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/ca-bundle.pem",
               "/etc/ssl/cert.pem")
File = str | os.PathLike[str]


class CredentialsError(ValueError):
    """The credentials cannot be used."""


@dataclass(frozen=True, kw_only=True)
class Credentials:
    """The certificates, as PEM files, and the user that etcd lets in."""

    #: The authorities that signed etcd's certificate: the system's unless given.
    ca: File | None = None
    #: Our own certificate; goes with `key`.
    cert: File | None = None
    #: The key of our own certificate.
    key: File | None = None
    #: The user to log in as; goes with `password_file`.
    user: str | None = None
    #: A file whose first line is the user's password; it is read at each login.
    password_file: File | None = None


class Access:
    """The parts of a connection that all members share. It holds secrets: no error and no log may show them."""

    def __init__(self, url: str, credentials: Credentials) -> None:
        scheme, self.members, prefix = parse(url)
        #: Without the prefix, for messages.
        self.url = f"{scheme}://{','.join(self.members)}"
        #: All keys begin with it: empty, or a text that ends in a slash.
        self.prefix = prefix.encode()
        for name, given in vars(credentials).items():
            kinds = (str,) if name == "user" else (str, os.PathLike)
            if given is not None and not isinstance(given, kinds):
                raise TypeError(f"{name} is {given!r}, and has to be a str" + ("" if name == "user" else " or a path"))
        files = credentials.ca, credentials.cert, credentials.key
        if scheme == "etcd" and any(file is not None for file in files):
            raise CredentialsError(
                "certificates (`ca`, `cert`, `key`) are of use with TLS only: write etcds:// in place of etcd:// "
                "in the URL, or leave them out"
            )
        if (credentials.cert is None) != (credentials.key is None):
            raise CredentialsError("a certificate goes with its key: give both `cert` and `key`, or neither")
        if (credentials.user is None) != (credentials.password_file is None):
            raise CredentialsError("a user goes with a password: give both `user` and `password_file`, or neither")
        self.user, self._password_file = credentials.user, credentials.password_file
        #: For Python's own TLS, which finds out why a member refuses us.
        self.context: ssl.SSLContext | None = None
        self.has_certificate = credentials.cert is not None
        #: For gRPC's connections.
        self.tls: ChannelCredentials | None = None
        if scheme == "etcds":
            self.context, self.tls = _tls(*files)

    def password(self) -> str:
        """The user's password, as the file has it now."""
        file = os.fspath(self._password_file or "")
        content = _read("`password_file`", file)
        try:
            line = content.decode().partition("\n")[0].removesuffix("\r")
        except UnicodeDecodeError:
            raise CredentialsError(f"the `password_file` {file} cannot be used: it is no text (UTF-8)") from None
        if not line:
            raise CredentialsError(
                f"the `password_file` {file} cannot be used: its first line is empty: write the password there"
            )
        return line

    def wire(self, key: bytes) -> bytes:
        """A key as etcd has it."""
        return self.prefix + key

    def own(self, key: bytes) -> bytes:
        """A key of etcd's without the prefix."""
        return key.removeprefix(self.prefix)


def parse(url: str) -> tuple[str, list[str], str]:
    """The scheme, the members and the prefix of a URL."""
    if not isinstance(url, str):
        raise TypeError(f"the URL is {url!r}, and has to be a str")
    if "@" in url:
        # The part that may hold a password is not shown.
        raise ValueError(
            f"the URL …@{url.rpartition('@')[2]} holds a user or a password: give them apart from it, by `user` and "
            "`password_file`"
        )
    parts = re.fullmatch(r"(etcds?)://([^/]*)(?:/([^\s\x00-\x1f\x7f?#]*))?", url)
    scheme, hosts, path = parts.groups("") if parts else ("", "", "")
    members = [_member(host) for host in hosts.split(",")]
    if not all(members):
        raise ValueError(f"{url!r} is not etcd://HOST:PORT[,HOST:PORT…][/PREFIX], or etcds://… for TLS")
    prefix = path.rstrip("/")
    return scheme, members, prefix and f"{prefix}/"


def _member(text: str) -> str:
    """`HOST:PORT`, or nothing where it is none."""
    parts = re.fullmatch(r"(\[([0-9a-fA-F:.]+)\]|[A-Za-z0-9_.-]+)(?::([0-9]{1,5}))?", text)
    if not parts or not 0 < int(parts[3] or PORT) < 65536:
        return ""
    try:
        ipaddress.IPv6Address(parts[2] or "::")
    except ValueError:
        return ""
    return f"{parts[1]}:{parts[3] or PORT}"


def _tls(ca: File | None, cert: File | None, key: File | None) -> tuple[ssl.SSLContext, ChannelCredentials]:
    system = ssl.get_default_verify_paths().cafile, *AUTHORITIES
    roots = ca or next((file for file in system if file and os.path.exists(file)), None)
    if roots is None:
        raise CredentialsError(
            "this machine knows no certificate authorities: give the CA that signed etcd's certificate as `ca`"
        )
    authorities = _pem("CA certificate `ca`", roots, "CERTIFICATE")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.set_alpn_protocols(["h2"])
    try:
        context.load_verify_locations(cadata=authorities.decode("latin-1"))
    except ssl.SSLError as error:
        raise CredentialsError(f"the CA certificate `ca` {os.fspath(roots)} cannot be used: {error.reason}") from error
    if cert is None or key is None:
        return context, ssl_channel_credentials(authorities)
    pair = _pem("private key `key`", key, "PRIVATE KEY"), _pem("certificate `cert`", cert, "CERTIFICATE")
    try:
        # Otherwise OpenSSL would ask for a passphrase on the terminal.
        context.load_cert_chain(cert, key, password=lambda: "")
    except ssl.SSLError as error:
        raise CredentialsError(
            f"the certificate `cert` {os.fspath(cert)} and the private key `key` {os.fspath(key)} cannot be used "
            f"({error.reason}): give a certificate and its own key, without a passphrase"
        ) from error
    return context, ssl_channel_credentials(authorities, *pair)


def _pem(what: str, file: File, kind: str) -> bytes:
    """The content of a file that holds at least one object of this kind."""
    content = _read(what, file)
    if not re.search(rb"^-----BEGIN .*%s-----\s*$" % kind.encode(), content, re.MULTILINE):
        raise CredentialsError(f"the {what} {os.fspath(file)} cannot be used: it holds no {kind} in PEM form")
    return content


def _read(what: str, file: File) -> bytes:
    try:
        return Path(file).read_bytes()
    except OSError as error:
        raise CredentialsError(f"the {what} {os.fspath(file)} cannot be read: {error.strerror}") from error
