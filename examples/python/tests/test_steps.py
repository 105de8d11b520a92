"""The stories of tests/transcripts, as data: here, too, the elector takes each of its steps to the bit."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from etcd import ROOT
from wasmtime.component import (
    S64,
    U64,
    ListType,
    OptionType,
    RecordType,
    ResultType,
    TupleType,
    Variant,
    VariantType,
)

from incumbent.component import Elector, record
from incumbent.recorder import cases, encode, is_bytes

STEPS = ROOT / "tests/transcripts/steps"


def test_all_stories_are_here() -> None:
    count = re.search(r"(\d+) files", (STEPS.parent / "README.md").read_text())
    assert count and len(list(STEPS.glob("*.jsonl"))) == int(count[1])


@pytest.mark.parametrize("story", sorted(STEPS.glob("*.jsonl")), ids=lambda path: path.stem)
def test_the_elector_takes_the_same_steps(story: Path) -> None:
    head = json.loads(story.read_text().partition("\n")[0])
    assert (head["format"], head["package"], head["name"]) == (1, "incumbent:election@0.1.0", story.stem)
    replay(story.read_text())


def replay(text: str) -> int:
    """Gives an elector what a transcript or a recording says, compares the steps, and counts them."""
    elector, same = None, 0
    for number, line in enumerate(map(json.loads, without_stand_ins(text).splitlines()), 1):
        if "open" in line:
            elector = opened(line)
        elif "events" in line:
            assert elector, "nothing opens an elector"
            events, kind = elector.kinds
            step = elector.handle(int(line["now"]), decode(events, line["events"]))
            assert encode(kind, step) == line["step"], f"line {number}"
            same += 1
        else:
            assert number == 1 or "host" in line or "recording" in line, f"line {number}"
    return same


def without_stand_ins(text: str) -> str:
    """A recording, with the bytes that its stand-ins stand for."""
    return re.sub(
        r'"~([0-9a-f]{16}):(\d+)"',
        lambda found: f'"{(found[1] * (int(found[2]) // 8 + 1))[:2 * int(found[2])]}"',
        text,
    )


def opened(line: Any) -> Elector | None:
    # Before there is an elector nobody can be asked for the type of its configuration.
    times = {name.replace("-", "_"): int(value) for name, value in line["open"].items() if name != "seed"}
    seed = tuple(map(int, line["open"]["seed"]))
    refusal = line.get("error")
    if not refusal:
        return Elector(record(seed=seed, **times), int(line["now"]))
    with pytest.raises(ValueError, match=refusal.get("val", "^the margin leaves no time to lead")):
        Elector(record(seed=seed, **times), int(line["now"]))
    return None


def decode(kind: Any, value: Any) -> Any:
    """JSON as wasmtime-py takes a value of this type."""
    match kind:
        case U64() | S64():
            return int(value)
        case ListType():
            return bytes.fromhex(value) if is_bytes(kind) else [decode(kind.element, item) for item in value]
        case RecordType():
            assert set(value) == {name for name, _ in kind.fields}
            return record(**{name: decode(part, value[name]) for name, part in kind.fields})
        case TupleType():
            return tuple(decode(part, item) for part, item in zip(kind.elements, value, strict=True))
        case OptionType():
            return None if value is None else decode(kind.payload, value)
        case VariantType() | ResultType():
            payload = dict(cases(kind))[value["tag"]]
            return Variant(value["tag"], decode(payload, value["val"]) if payload else None)
    return value
