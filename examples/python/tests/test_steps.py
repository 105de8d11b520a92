"""The stories of tests/transcripts, as data: here, too, the elector takes each of its steps to the bit."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from etcd import ROOT
from wasmtime.component import (
    S64,
    U8,
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

STEPS = ROOT / "tests/transcripts/steps"


def test_all_stories_are_here() -> None:
    count = re.search(r"(\d+) files", (STEPS.parent / "README.md").read_text())
    assert count and len(list(STEPS.glob("*.jsonl"))) == int(count[1])


@pytest.mark.parametrize("story", sorted(STEPS.glob("*.jsonl")), ids=lambda path: path.stem)
def test_the_elector_takes_the_same_steps(story: Path) -> None:
    head, *lines = map(json.loads, story.read_text().splitlines())
    assert (head["format"], head["package"], head["name"]) == (1, "incumbent:election@0.1.0", story.stem)
    elector = None
    for number, line in enumerate(lines, 2):
        if "open" in line:
            elector = opened(line)
        else:
            assert elector, "nothing opens an elector"
            handle = elector._handle.type(elector._store)
            (_, _), (_, _), (_, events) = handle.params
            step = elector.handle(int(line["now"]), decode(events, line["events"]))
            assert encode(handle.result, step) == line["step"], f"{story.name}:{number}"


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


def encode(kind: Any, value: Any) -> Any:
    """What wasmtime-py gives for a value of this type, as JSON."""
    match kind:
        case U64() | S64():
            return str(value)
        case ListType():
            return value.hex() if is_bytes(kind) else [encode(kind.element, item) for item in value]
        case RecordType():
            return {name: encode(part, getattr(value, name)) for name, part in kind.fields}
        case TupleType():
            return [encode(part, item) for part, item in zip(kind.elements, value, strict=True)]
        case OptionType():
            return None if value is None else encode(kind.payload, value)
        case VariantType() | ResultType():
            payload = dict(cases(kind))[value.tag]
            return {"tag": value.tag, "val": encode(payload, value.payload)} if payload else {"tag": value.tag}
    return value


def is_bytes(kind: ListType) -> bool:
    return isinstance(kind.element, U8)


def cases(kind: VariantType | ResultType) -> list[tuple[str, Any]]:
    return kind.cases if isinstance(kind, VariantType) else [("ok", kind.ok), ("err", kind.err)]
