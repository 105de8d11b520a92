"""How a session gets in: TLS, users, and the prefix of its keys."""

import asyncio
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from certificates import Certificates
from conftest import soon, until
from etcd import TIMEOUT, VERSIONS, Etcd, free_port
from wasmtime.component import Variant

from incumbent import Refused, Unreachable, Withdrawn, connect
from incumbent.access import Credentials
from incumbent.component import record
from incumbent.store import Etcd as Store

SECRETS = "mine", "of no use"


async def refused(url: str, sentence: str, kind: type[Exception] = Unreachable, /, **credentials: Any) -> None:
    """Fails unless there is no session, for a reason that fits."""
    with pytest.raises(kind, match=sentence) as told:
        await soon(connect(url, **credentials))
    whole = "".join(traceback.format_exception(told.value, limit=0))
    assert not any(secret in whole for secret in SECRETS), whole


def made(path: Path, content: str) -> Path:
    path.write_text(content)
    return path


async def test_credentials_that_cannot_be_used_are_refused_in_a_sentence(tmp_path: Path) -> None:
    none, empty = tmp_path / "none", made(tmp_path / "empty", "")
    broken = made(tmp_path / "broken", "-----BEGIN CERTIFICATE-----\nof no use\n-----END CERTIFICATE-----\n")
    key = made(tmp_path / "key", "-----BEGIN PRIVATE KEY-----\nof no use\n-----END PRIVATE KEY-----\n")
    cases: list[tuple[str, dict[str, Any], str]] = [
        ("etcd", {"ca": none}, r"^certificates \(`ca`, `cert`, `key`\) are of use with TLS only: write etcds://"),
        ("etcds", {"cert": none}, "^a certificate goes with its key: give both"),
        ("etcds", {"ca": none}, "^the CA certificate `ca` .*none cannot be read: No such file"),
        ("etcds", {"ca": empty}, "^the CA certificate `ca` .*empty cannot be used: it holds no CERTIFICATE"),
        ("etcds", {"ca": broken}, "^the CA certificate `ca` .*broken cannot be used: "),
        ("etcds", {"cert": broken, "key": empty}, "^the private key `key` .*empty cannot be used: it holds no PRIVATE"),
        ("etcds", {"cert": broken, "key": key}, r"broken and the private key `key` .*key cannot be used \(.*\): give"),
        ("etcd", {"user": "me"}, "^a user goes with a password: give both `user` and `password_file`"),
        ("etcd", {"password_file": none}, "^a user goes with a password"),
        ("etcd", {"user": "me", "password_file": none}, "^the `password_file` .*none cannot be read: No such file"),
        ("etcd", {"user": "me", "password_file": empty}, "empty cannot be used: its first line is empty: write"),
    ]
    for scheme, credentials, sentence in cases:
        await refused(f"{scheme}://localhost:1", sentence, ValueError, **credentials)
    await refused("etcds://localhost:1", "^ca is 5, and has to be a str or a path", TypeError, ca=5)
    await refused("etcd://localhost:1", "^user is 5, and has to be a str$", TypeError, user=5, password_file=none)


@pytest.fixture(params=VERSIONS)
def secure(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Etcd, Certificates]]:
    certificates = Certificates(tmp_path / "certificates")
    running = Etcd(request.param, tmp_path, certificates=certificates)
    yield running, certificates
    running.kill()


async def test_an_election_with_tls_and_what_a_refusal_says(
    secure: tuple[Etcd, Certificates], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    etcd, certificates = secure
    ours: dict[str, Any] = {"ca": certificates.ca, **certificates.client}
    # The first member does not answer.
    several = etcd.url.replace("//", f"//localhost:{free_port()},")
    async with await connect(etcd.url, **ours) as one, await connect(several, **ours) as two:
        async with await soon(one.campaign("my-service")) as leadership:
            waits = asyncio.create_task(two.campaign("my-service"))
            modified = await leadership.put("result", "done", 0)
        async with await soon(waits) as after:
            assert after.epoch > leadership.epoch and await two.get("result") == (b"done", modified)
    assert "done" in etcd.ctl("get", "result")

    others = Certificates(tmp_path / "others")
    theirs: dict[str, Any] = {**others.client}
    client: dict[str, Any] = {**certificates.client}
    await refused(
        etcd.url,
        r"^localhost:\d+ refuses the connection: its certificate is signed by nobody that we trust: "
        "give the CA that signed it as `ca`$",
        **{**ours, "ca": others.ca},
    )
    await refused(
        etcd.url.replace("localhost", "127.0.0.1"),
        r"its certificate is not for 127\.0\.0\.1: name it in the URL as it is there$",
        **ours,
    )
    await refused(etcd.url, "it wants a certificate of ours: give one", ca=certificates.ca)
    await refused(
        etcd.url, "it does not take our certificate: give one that its CA has signed", ca=certificates.ca, **theirs
    )
    await refused(etcd.url.replace("etcds", "etcd"), "it speaks TLS: write etcds:// in place of etcd://$")

    # Without a CA, the system's authorities count.
    monkeypatch.setenv("SSL_CERT_FILE", str(others.ca))
    await refused(etcd.url, "signed by nobody that we trust", **client)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificates.ca))
    await (await soon(connect(etcd.url, **client))).close()
    certificates.expire()
    await refused(etcd.url, "its certificate has expired: renew it", **ours)


@pytest.fixture
def with_users(tmp_path: Path) -> Iterator[list[Etcd]]:
    key = made(tmp_path / "token.key", "of no use outside of this test")
    more = "--auth-token", f"jwt,priv-key={key},sign-method=HS256,ttl=2s", "--bcrypt-cost", "4"
    for version in VERSIONS:
        (tmp_path / version).mkdir()
    all_versions = [Etcd(version, tmp_path / version, more=more) for version in VERSIONS]
    yield all_versions
    for etcd in all_versions:
        etcd.kill()


async def test_logins_that_expire_or_end_with_a_change_of_users_cost_nothing(
    with_users: list[Etcd], tmp_path: Path
) -> None:
    # Side by side, because they wait for logins to expire.
    await asyncio.gather(*(logins_end(etcd, tmp_path) for etcd in with_users))


async def logins_end(etcd: Etcd, tmp_path: Path) -> None:
    url = f"{etcd.url}/team"
    file = made(tmp_path / f"password of {etcd.port}", "mine\nnot read\n")
    login: dict[str, Any] = {"user": "me", "password_file": file}
    await (await connect(etcd.url, **login)).close()  # A user does no harm yet.
    etcd.enable_users("me:mine", "team/")
    async with await connect(url, **login) as one, await connect(url, **login) as two:
        allowed, elsewhere = Store(url, Credentials(**login)), Store(etcd.url, Credentials(**login))
        await allowed.prove(TIMEOUT)
        await elsewhere.prove(TIMEOUT)
        leadership = await soon(one.campaign("my-service"))
        await leadership.put("data", "1", 0)
        await asyncio.sleep(2.1)
        await watches(allowed, "started")
        # A forbidden key ends a watch all the same.
        await watches(elsewhere, "ended")
        waits = asyncio.create_task(two.campaign("my-service"))
        modified = await leadership.put("data", "2")
        await until(lambda: len(etcd.as_root("get", "--prefix", "--keys-only", "team/my-service/").split()) == 2)
        # Logins from before a change of the users are too old.
        etcd.as_root("role", "add", "another")
        assert await leadership.put("data", "3", modified) > modified
        etcd.as_root("role", "add", "and-another")
        assert (await two.get("data"))[0] == b"3"
        await leadership.resign()
        await (await soon(waits)).resign()


async def watches(store: Store, wanted: str) -> None:
    told: list[Variant] = []

    async def tell(change: Variant) -> None:
        told.append(change)

    watching = asyncio.create_task(store.watch(record(id=1, key=b"w", prefix=False, since=None), tell))
    await until(lambda: told)
    watching.cancel()
    await store.close()
    assert told[0].tag == wanted, told[0].payload


async def test_a_user_has_the_rights_that_etcd_gives_and_a_password_that_may_change(
    with_users: list[Etcd], tmp_path: Path
) -> None:
    for etcd in with_users:
        await rights_and_passwords(etcd, made(tmp_path / "password", "mine"), made(tmp_path / "wrong", "wrong"))


async def rights_and_passwords(etcd: Etcd, file: Path, wrong: Path) -> None:
    etcd.enable_users("me:mine", "team/")
    login: dict[str, Any] = {"user": "me", "password_file": file}
    await refused(etcd.url, "refuses the connection: it wants a user: give `user` and `password_file`$")
    await refused(
        etcd.url,
        r"refuses the connection: .*authentication failed.*: check `user` and `password_file`$",
        user="me",
        password_file=wrong,
    )
    async with await connect(etcd.url, **login) as session:
        # Also to read on behind the last key, which is a page of nothing.
        store = Store(etcd.url, Credentials(**login))
        bounds = {"from": b"z", "created_before": None, "limit": 0, "keys_only": False}
        page = record(key=b"team/", prefix=True, order="by-key", **bounds)
        outcome: Any = await store.call(Variant("read", [page]), TIMEOUT)
        assert outcome.tag == "ok" and outcome.payload.payload.found == [[]]
        await store.close()
        with pytest.raises(Unreachable, match="^b'other' cannot be read at .*: etcdserver: permission denied$"):
            await session.get("other")
        with pytest.raises(Withdrawn, match="permission denied"):
            await soon(session.campaign("my-service"))
        await (await soon(session.campaign("team/my-service"))).resign()

        file.write_text("newer than mine")
        etcd.as_root("user", "delete", "me")
        etcd.as_root("user", "add", "me:newer than mine")
        etcd.as_root("user", "grant-role", "me", "of-the-prefix")
        assert await session.get("team/nothing") == (None, 0)
        file.unlink()
        etcd.as_root("role", "add", "another")
        with pytest.raises(Unreachable, match="the `password_file` .*password cannot be read: No such file"):
            await session.get("team/nothing")
        waits = asyncio.create_task(session.campaign("team/my-service"))
        await asyncio.sleep(0.1)
        file.write_text("newer than mine")
        await (await soon(waits)).resign()


async def test_below_a_prefix_there_are_the_same_elections_as_for_others(etcd: Etcd) -> None:
    await refused(etcd.url.replace("etcd", "etcds"), "it does not speak TLS: write etcd:// in place of etcds://$")

    def keys(prefix: str = "") -> list[str]:
        return etcd.ctl("get", "--prefix", "--keys-only", prefix).split()

    async with await connect(f"{etcd.url}/team/a//") as session:
        leadership = await soon(session.campaign("my-service", value="me"))
        name = leadership.key.decode()
        assert name.startswith("my-service/"), "the user does not see the prefix"
        assert keys() == [f"team/a/{name}"]
        modified = await leadership.put("data", "1", 0)
        assert etcd.ctl("get", "--print-value-only", "team/a/data").strip() == "1"
        assert await session.get("data") == (b"1", modified)
        with pytest.raises(Refused, match="the key to write is empty"):
            await leadership.put("", "no key")
        await leadership.delete("data")

        elect = await asyncio.create_subprocess_exec(
            etcd.programs / "etcdctl", "--endpoints", f"127.0.0.1:{etcd.port}", "elect", "team/a/my-service", "other",
            env={"ETCDCTL_API": "3"}, stdout=asyncio.subprocess.PIPE,
        )
        await until(lambda: len(keys("team/a/my-service/")) == 2)
        await leadership.resign()
        assert elect.stdout and (await soon(elect.stdout.readline())).startswith(b"team/a/my-service/")
        waits = asyncio.create_task(session.campaign("my-service"))
        await until(lambda: len(keys("team/a/my-service/")) == 2)
        elect.terminate()
        # It is told when the other one leaves.
        assert (await soon(waits)).epoch > leadership.epoch
        race = await soon(session.campaign("my-race", "race"))
        assert race.key == b"my-race" and "team/a/my-race" in keys()
        await race.resign()
        await waits.result().resign()
    assert keys() == [], "nothing is left"
    await soon(elect.wait())


async def test_members_have_names_of_their_own(etcd: Etcd) -> None:
    names = f"etcd://localhost:{free_port()},localhost:{etcd.port},127.0.0.1:{etcd.port}"
    async with await connect(names, ttl=2) as session:
        async with await soon(session.campaign("my-service")) as leadership:
            etcd.restart()
            valid_until = leadership.valid_until
            await until(lambda: leadership.valid_until > valid_until)
            await leadership.put("data", "1")
    etcd.kill()
    await refused(names, "^no etcd answers at localhost:.* within 5 s: is one running there")
