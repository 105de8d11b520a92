"""Recordings: they tell no value, replay to the bit, keep to their limit, and disturb no election."""

import asyncio
import fcntl
import json
import logging
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from conftest import candidates, soon, until
from etcd import Etcd
from test_steps import replay

from incumbent import Recording, connect
from incumbent.component import FUEL

LEAST = 64 << 10
SECRET = "a secret of this candidate"


async def recorded(etcd: Etcd, recording: Recording) -> str:
    """What is recorded of a session that leads, hands over, and closes."""
    async with await connect(etcd.url, "one", record=recording) as one, await connect(etcd.url, "two") as two:
        async with await soon(one.campaign("my-service", value=SECRET, priority=1)) as leadership:
            waits = asyncio.create_task(two.campaign("my-service", value="short"))
            await until(lambda: len(candidates(etcd)) == 2)
            await leadership.put("result", SECRET)
        async with await soon(waits) as later:
            await later.put("result", "short")
    return "".join(path.read_text() for path in files(Path(recording.dir)))


def files(dir: Path) -> list[Path]:
    return sorted(dir.iterdir())


async def test_a_recording_replays_to_the_bit_and_holds_no_value(etcd: Etcd, tmp_path: Path) -> None:
    text = await recorded(etcd, Recording(tmp_path / "made/here"))
    assert replay(text) > 5
    for value in (SECRET, "short"):
        assert value not in text and value.encode().hex() not in text
    assert b"incumbent-wishes/my-service/".hex() in text, "it has made a wish"
    head, clock, *_, last = map(json.loads, text.splitlines())
    assert (head["identity"], head["segment"], len(head["component"])) == ("one", 0, 64)
    assert clock["host"]["tag"] == "clock" and clock["host"]["val"].endswith("Z")
    assert last["host"] == {"tag": "closed"}


async def test_values_are_written_if_asked_for_and_only_the_owner_can_read_them(etcd: Etcd, tmp_path: Path) -> None:
    text = await recorded(etcd, Recording(tmp_path / "here", values=True))
    assert replay(text) > 5
    assert SECRET.encode().hex() in text and '"~' not in text
    (path,) = files(tmp_path / "here")
    assert path.stat().st_mode & 0o777 == 0o600


async def test_the_oldest_files_go_and_those_of_earlier_starts_first(etcd: Etcd, tmp_path: Path) -> None:
    dir = tmp_path / "here"
    dir.mkdir()
    earlier, foreign, other = dir / "20000101T000000000Z-1-0-000000.jsonl", dir / "notes.jsonl", dir / "2-1-0-1.jsonl"
    for path in (earlier, foreign, other):
        path.write_text("x" * 1000)
    with other.open() as written:
        fcntl.flock(written, fcntl.LOCK_EX)
        async with await connect(etcd.url, record=Recording(dir, limit=LEAST)) as session:
            async with await soon(session.campaign("my-service")) as leadership:
                (first,) = set(files(dir)) - {earlier, foreign, other}
                while first.exists():
                    await leadership.put("result", SECRET)
    assert not earlier.exists() and foreign.exists() and other.exists()
    own = sorted(set(files(dir)) - {foreign, other})
    assert 10 <= len(own) <= 17 and sum(path.stat().st_size for path in own) <= LEAST
    for path in own:
        assert path.stat().st_size <= LEAST / 16
        head, clock, *_ = map(json.loads, path.read_text().splitlines())
        assert head["format"] == 1 and clock["host"]["tag"] == "clock"
    elections = json.loads(own[0].read_text().splitlines()[2])["host"]
    known = {"election": 1, "name": "my-service", "key": leadership.key.hex()}
    assert elections == {"tag": "elections", "val": [known]}


async def test_a_file_is_locked_while_it_is_written(etcd: Etcd, tmp_path: Path) -> None:
    async with await connect(etcd.url, record=Recording(tmp_path / "here")):
        (path,) = files(tmp_path / "here")
        with path.open() as reader, pytest.raises(BlockingIOError):
            fcntl.flock(reader, fcntl.LOCK_SH | fcntl.LOCK_NB)
    with path.open() as reader:
        fcntl.flock(reader, fcntl.LOCK_SH | fcntl.LOCK_NB)


async def test_a_removed_directory_ends_the_recording_with_one_warning_and_no_election(
    etcd: Etcd, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "incumbent")
    async with await connect(etcd.url, record=Recording(tmp_path / "here", limit=LEAST)) as session:
        async with await soon(session.campaign("my-service")) as leadership:
            shutil.rmtree(tmp_path / "here")
            while not caplog.records:
                await leadership.put("result", SECRET)
            for _ in range(100):
                await leadership.put("result", SECRET)
            assert leadership.is_valid()
    (warning,) = caplog.messages
    assert warning.startswith(f"the recording in {tmp_path / 'here'} has ended, and the election goes on: it cannot")


async def test_an_elector_that_breaks_is_recorded_and_the_next_one(etcd: Etcd, tmp_path: Path) -> None:
    async with await connect(etcd.url, record=Recording(tmp_path / "here")) as session:
        await (await soon(session.campaign("first"))).resign()
        session._driver.fuel = 100
        waits = asyncio.create_task(session.campaign("my-service"))
        await until(lambda: session._driver._elector is None)
        session._driver.fuel = FUEL
        await (await soon(waits)).resign()
    (path,) = files(tmp_path / "here")
    lines = path.read_text().splitlines(keepends=True)
    steps = list(map(json.loads, lines))
    broken = next(at for at, line in enumerate(steps) if "events" in line and line["step"] is None)
    assert steps[broken]["events"][0]["tag"] == "campaign"
    assert steps[broken + 1]["host"]["tag"] == "broke" and "open" in steps[broken + 2]
    assert replay("".join(lines[:broken] + lines[broken + 1 :])) > 5


async def test_a_recording_that_cannot_be_is_refused_in_a_sentence(etcd: Etcd, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match=r"^nothing can be recorded in \S+ \(Not a directory\): give a directory that"):
        await connect(etcd.url, record=Recording(tmp_path / "file" / "below"))
    wrong: Any
    for wrong in ({"dir": None}, {"dir": tmp_path, "limit": "64"}, {"dir": tmp_path, "limit": 5}):
        with pytest.raises((TypeError, ValueError), match="(dir|limit) is .*, and has to be"):
            Recording(**wrong)
    wrong = os.fspath(tmp_path)
    with pytest.raises(TypeError, match="^record is .*, and has to be a Recording$"):
        await connect(etcd.url, record=wrong)
