"""Finds out why a member refused us, by a second attempt, so that the error can say what to correct."""

import asyncio
import ssl

from .access import Access

#: How long the attempt may take, in seconds.
TIMEOUT = 1.0
# OpenSSL's numbers for faults of a certificate.
NOT_YET_VALID, EXPIRED = 9, 10
WRONG_HOST, WRONG_ADDRESS = 62, 64


async def objection(member: str, access: Access) -> str | None:
    """Names the fault in a member's TLS, in a sentence; None if TLS is not at fault."""
    name, _, port = member.rpartition(":")
    host = name.strip("[]")
    try:
        async with asyncio.timeout(TIMEOUT):
            await _shake_hands(host, int(port), access.context or _any_certificate())
    except ssl.SSLCertVerificationError as error:
        return _its_certificate(host, error.verify_code)
    except ssl.SSLError as error:
        if "ALERT" in (error.reason or ""):
            return _our_certificate(access, error.reason) if access.context else _speaks_tls()
        return "it does not speak TLS: write etcd:// in place of etcds://" if access.context else None
    except (ConnectionResetError, EOFError):
        return "it does not speak TLS: write etcd:// in place of etcds://" if access.context else None
    except OSError:
        return None  # It was not reached. (A time-out is an OSError, too.)
    return None if access.context else _speaks_tls()


async def _shake_hands(host: str, port: int, context: ssl.SSLContext) -> None:
    """Shakes hands, and waits for the first byte: in TLS 1.3, etcd rejects our certificate after our side is done."""
    reader, writer = await asyncio.open_connection(host, port, ssl=context, server_hostname=host)
    try:
        if not await reader.read(1):
            raise EOFError
    finally:
        writer.transport.abort()


def _any_certificate() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    return context


def _speaks_tls() -> str:
    return "it speaks TLS: write etcds:// in place of etcd://"


def _its_certificate(host: str, fault: int) -> str:
    if fault == EXPIRED:
        return "its certificate has expired: renew it, unless it is this machine's clock that is wrong"
    if fault == NOT_YET_VALID:
        return "its certificate is not valid yet: wait, unless it is this machine's clock that is wrong"
    if fault in (WRONG_HOST, WRONG_ADDRESS):
        return f"its certificate is not for {host}: name it in the URL as it is there"
    return "its certificate is signed by nobody that we trust: give the CA that signed it as `ca`"


def _our_certificate(access: Access, alert: str) -> str:
    if "EXPIRED" in alert:
        return "our certificate `cert` has expired: renew it"
    if access.has_certificate:
        return (
            "it does not take our certificate: give one that its CA has signed, for clients, as `cert` and `key`"
        )
    return "it wants a certificate of ours: give one that its CA has signed, as `cert` and `key`"
