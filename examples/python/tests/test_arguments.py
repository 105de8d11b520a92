"""What an application can get wrong: it is told in a sentence, and nobody else suffers."""

import asyncio
from typing import Any

import pytest
from conftest import candidates, until, soon
from etcd import Etcd

from incumbent import connect
from incumbent.access import parse

MISTAKES: dict[str, Any] = {
    "a value that is a number": lambda s, t: t.put("key", 5),
    "no key": lambda s, t: t.put(None, "value"),
    "no key to delete": lambda s, t: t.delete(None),
    "a list for a key": lambda s, t: s.get([107]),
    "a revision as text": lambda s, t: t.put("key", "value", modified="5"),
    "a revision that is no whole number": lambda s, t: t.delete("key", modified=1.5),
    "a revision beyond all": lambda s, t: t.put("key", "value", modified=2**63),
    "a revision below all": lambda s, t: t.put("key", "value", modified=-1),
    "a name that is none": lambda s, t: s.campaign(None),
    "a name of bytes": lambda s, t: s.campaign(b"my-service"),
    "a name without UTF-8": lambda s, t: s.campaign("\ud800"),
    "a contest that is none": lambda s, t: s.campaign("other", "rase"),
    "a candidate's value that is a number": lambda s, t: s.campaign("other", value=5),
}


async def test_a_mistake_is_told_and_harms_nobody_else(etcd: Etcd) -> None:
    async with await connect(etcd.url) as session, await connect(etcd.url) as other:
        async with await soon(session.campaign("my-service")) as leadership:
            waits = asyncio.create_task(other.campaign("my-service"))
            await until(lambda: len(candidates(etcd)) == 2)
            for told, mistake in MISTAKES.items():
                for candidate in (session, other):
                    with pytest.raises((TypeError, ValueError)):
                        await soon(mistake(candidate, leadership))
                        pytest.fail(f"{told} was taken")
                    assert await soon(leadership.put("result", told)) and leadership.is_valid(), told
            assert not waits.done()
        async with await soon(waits):
            pass


async def test_a_drain_gives_up_one_term_at_a_time_at_least(etcd: Etcd) -> None:
    async with await connect(etcd.url) as session:
        for wrong in ("2", 1.5, None, 0, -1, 2**32):
            with pytest.raises((TypeError, ValueError)):
                session.drain(wrong)  # type: ignore[arg-type]


async def test_keys_and_values_are_text_or_bytes_of_any_kind(etcd: Etcd) -> None:
    async with await connect(etcd.url) as session:
        async with await soon(session.campaign("my-service", value=bytearray(b"me"))) as leadership:
            assert etcd.ctl("get", "my-service/", "--prefix", "--print-value-only").strip() == "me"
            modified = 0
            for value in ("value", b"value", bytearray(b"value"), memoryview(b"value")):
                modified = await leadership.put(bytearray(b"key"), value, modified)
                assert await session.get(memoryview(b"key")) == (b"value", modified)


async def test_what_is_wrong_is_said_before_there_is_a_session(etcd: Etcd) -> None:
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"ttl": "10"}, "ttl is '10', and has to be a number of seconds"),
        ({"ttl": float("nan")}, "ttl is nan, and has to be a number of seconds from 0 to 1e9"),
        ({"margin": -1}, "margin is -1, and has to be a number of seconds from 0 to 1e9"),
        ({"margin": 20}, "the margin leaves no time to lead: choose a longer ttl"),
        ({"within": None}, "within is None, and has to be a number of seconds"),
        ({"identity": 5}, "identity is 5, and has to be a str"),
        ({"url": None}, "the URL is None, and has to be a str"),
    ]
    for options, sentence in wrong:
        with pytest.raises((TypeError, ValueError)) as told:
            await connect(**{"url": etcd.url, **options})
        assert str(told.value) == sentence


@pytest.mark.parametrize(
    ("url", "parts"),
    [
        ("etcd://127.0.0.1", ("etcd", ["127.0.0.1:2379"], "")),
        ("etcd://a.example:1", ("etcd", ["a.example:1"], "")),
        ("etcd://[::1]", ("etcd", ["[::1]:2379"], "")),
        ("etcds://127.0.0.1,a.example:1,[::2]:2", ("etcds", ["127.0.0.1:2379", "a.example:1", "[::2]:2"], "")),
        ("etcd://a:1/", ("etcd", ["a:1"], "")),
        ("etcd://a:1/prefix", ("etcd", ["a:1"], "prefix/")),
        ("etcd://a:1/b/c//", ("etcd", ["a:1"], "b/c/")),
        ("etcd://a:1//b", ("etcd", ["a:1"], "/b/")),
    ],
)
def test_what_a_url_says(url: str, parts: tuple[str, list[str], str]) -> None:
    assert parse(url) == parts


@pytest.mark.parametrize(
    "url",
    ["", "127.0.0.1:2379", "http://127.0.0.1:2379", "etcd://", "etcd://a:1/a b", "etcd://a:1/a?b", "etcd://a:99999",
     "etcd://a:0", "etcd://a:x", "etcd://a:1,", "etcd://::1", "etcd://[a]", "etcd://a%", "etcds://"],
)
async def test_a_url_that_is_none_of_ours_is_named(url: str) -> None:
    with pytest.raises(ValueError, match="is not etcd://HOST:PORT"):
        await connect(url)


@pytest.mark.parametrize("url", ["etcd://user:secret@127.0.0.1:2379", "http://user:secret@127.0.0.1", "user:se@cret@h"])
async def test_a_password_is_not_shown(url: str) -> None:
    with pytest.raises(ValueError, match="holds a user or a password: give them apart") as told:
        await connect(url)
    assert "secret" not in str(told.value) and "user:" not in str(told.value)
