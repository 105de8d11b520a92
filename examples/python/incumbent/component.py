"""The elector, which decides: the component, run by wasmtime."""

import hashlib
import os
import time
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from wasmtime import Config, Engine, Store
from wasmtime.component import (
    Component,
    FuncType,
    Linker,
    ListType,
    OptionType,
    Record,
    RecordType,
    ResourceAny,
    ResultType,
    TupleType,
    VariantType,
)

INTERFACE = "incumbent:election/elector@0.1.0"
#: Many times what a step takes: no component holds the event loop up for long.
FUEL = 500_000_000
FOLDER = Path(__file__).resolve().parent.parent

# wasmtime-py asks for the parts of a type again with every value of it; they never change.
for kind, *parts in (
    (FuncType, "params", "result"), (ListType, "element"), (OptionType, "payload"), (RecordType, "fields"),
    (ResultType, "ok", "err"), (TupleType, "elements"), (VariantType, "cases"),
):
    for part in parts:
        setattr(kind, part, kept := cached_property(getattr(kind, part).fget))
        kept.__set_name__(kind, part)


def now() -> int:
    """The clock of all marks, in nanoseconds: it goes on while the machine is suspended."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def record(**fields: Any) -> Any:
    """A record as wasmtime takes it: `give_up` is the field `give-up` of the WIT."""
    made = Record()
    vars(made).update({name.replace("_", "-"): value for name, value in fields.items()})
    return made


class Elector:
    """One elector: `open` and `handle` of wit/elector.wit."""

    def __init__(self, config: Any, mark: int) -> None:
        engine, component = _component()
        self._store = Store(engine)
        self._store.set_fuel(FUEL)
        instance = Linker(engine).instantiate(self._store, component)
        interface = instance.get_export_index(self._store, INTERFACE)
        names = ("[static]elector.open", "[method]elector.handle")
        indices = [instance.get_export_index(self._store, name, interface) for name in names]
        functions = [instance.get_func(self._store, index) for index in indices if index]
        if len(functions) != 2 or not functions[0] or not functions[1]:
            raise ValueError(f"the component does not export {INTERFACE}: INCUMBENT_COMPONENT names another one")
        open_elector, self._handle = functions[0], functions[1]
        kept = self._handle.type(self._store)
        self._handle.type = lambda store: kept  # type: ignore[method-assign]
        self._elector = open_elector(self._store, config, mark)
        # Both cases of this result arrive bare, and one of the error's as None.
        if not isinstance(self._elector, ResourceAny):
            raise ValueError(self._elector or "the margin leaves no time to lead: choose a longer ttl")

    @cached_property
    def kinds(self) -> tuple[Any, Any]:
        """The types of the events and of a step."""
        function = self._handle.type(self._store)
        (_, _), (_, _), (_, events) = function.params
        return events, function.result

    def handle(self, mark: int, events: list[Any], fuel: int = FUEL) -> Any:
        """The step that follows. Raises WasmtimeError where it traps: it has lost its memory then."""
        self._store.set_fuel(fuel)
        return self._handle(self._store, self._elector, mark, events)


@cache
def component_hash() -> str:
    """The SHA-256 of the component, in hex."""
    return hashlib.sha256(_path().read_bytes()).hexdigest()


@cache
def _component() -> tuple[Engine, Component]:
    """Compiled once a process, in a tenth of a second."""
    config = Config()
    config.consume_fuel = True
    engine = Engine(config)
    return engine, Component.from_file(engine, str(_path()))


def _path() -> Path:
    named = os.environ.get("INCUMBENT_COMPONENT")
    places = [Path(named)] if named else [FOLDER / "incumbent.wasm", FOLDER.parents[1] / "target/incumbent.wasm"]
    for path in filter(Path.is_file, places):
        return path
    raise FileNotFoundError(
        f"the component is not at {' nor at '.join(map(str, places))}: "
        "`just component` makes it, and INCUMBENT_COMPONENT names it"
    )
