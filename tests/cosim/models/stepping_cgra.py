"""The CGRA step by step: the effect of a configuration's launches on registers and memories (docs/cgra.md).

Nothing here is fast: it defines the meaning of a configuration, written from the page, and the model's code
is compared with it. There are no cycles; a step takes as long as its accesses need, which changes no value.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, Protocol

from cosim.models.functional.cgra import patched
from hw.errors import InputError
from hw.fabric.bitstream import ELEMENT_BYTES, ArrayEntry, Configuration, Entry
from hw.fabric.fabric import Fabric
from hw.fabric.layout import Layout, layout
from hw.fabric.operations import BY_NUMBER, PEOperation
from hw.semantics import MASK, wrap

#: The number of the space of arrays that may be written, and the last.
OUTPUT = 2


class Spaces(Protocol):
    """The three spaces, seen as arrays; elements are signed numbers of 32 bits."""

    def size(self, space: int) -> int:
        """Bytes of a space."""
        ...

    def load(self, array: ArrayEntry, index: int) -> int:
        """An element, extended to 32 bits."""
        ...

    def store(self, array: ArrayEntry, index: int, value: int) -> None:
        """Set an element to the lowest bits of a value."""
        ...


@dataclass(frozen=True)
class CgraAccess:
    """One access of memory in a step; `value` is what is stored (0 for loads)."""

    pe: int
    stores: bool
    array: int
    index: int
    value: int = 0


class LaunchError(NamedTuple):
    """Why a launch ended early: the cause by name, the step, and the PE or array."""

    cause: Literal["operand", "grid_range"]
    step: int
    where: int


@dataclass
class _Registers:
    """What a PE holds from step to step; `started` is the value of an operation of latency 2.

    Of latency 4, it is first `begun`, then `almost` and then `ended`.
    """

    result: int
    started: int
    file: list[int]
    links: list[int]
    begun: int = 0
    almost: int = 0
    ended: int = 0


class _Reach(NamedTuple):
    """What a PE does in a step: the values of its operation, and its access of memory, if any."""

    y: int = 0
    started: int = 0
    access: CgraAccess | None = None
    error: bool = False


@dataclass
class CgraState:
    """A CGRA with its registers, tables and configuration; registers start as 0."""

    fabric: Fabric
    configuration: Configuration | None = None
    registers: list[_Registers] = field(init=False)
    tables: list[list[int]] = field(init=False)

    def __post_init__(self) -> None:
        kinds, outgoing = self.fabric.kinds, self.fabric.outgoing
        self.registers = [
            _Registers(0, 0, [0] * kind.registers, [0] * len(links))
            for kind, links in zip(kinds, outgoing, strict=True)
        ]
        self.tables = [[] for _ in kinds]
        self._layouts = [layout(self.fabric, pe) for pe in range(self.fabric.size)]

    def load(self, configuration: Configuration) -> None:
        """Take a configuration; only the words that it gives to a PE can be read from its table."""
        self.configuration = configuration
        self.tables = [
            [wrap(word) for word in configuration.tables.get(pe, ())] for pe in range(self.fabric.size)
        ]

    def launch(
        self,
        iterations: int,
        scalars: Sequence[int],
        memory: Spaces,
        observe: Callable[[int, Sequence[CgraAccess]], None] | None = None,
    ) -> LaunchError | None:
        """Run iterations of the configuration; `scalars` are live0, live1, cgra_0 to cgra_11.

        `observe` is called after every step with its number and its accesses in ascending order of PE. Raises
        `InputError` without a configuration.
        """
        if self.configuration is None:
            raise InputError("a launch of the grid that keeps its configuration must come after another one")
        configuration = patched(self.configuration, scalars)
        for number, array in enumerate(configuration.arrays):
            if not _fits(array, memory):
                return LaunchError("operand", 0, number)
        if self.fabric.pipelined:
            for own in self.registers:
                own.started = own.begun = own.almost = own.ended = 0
        steps = (iterations - 1) * configuration.ii + configuration.depth if iterations else 0
        for t in range(steps):
            reached = [self._execute(configuration, pe, t, iterations) for pe in range(self.fabric.size)]
            for pe, found in enumerate(reached):
                if found.error:
                    return LaunchError("grid_range", t, pe)
            accesses = [found.access for found in reached if found.access is not None]
            started = [found.started for found in reached]
            # Loads see what was there before the step.
            for access in accesses:
                if not access.stores:
                    started[access.pe] = memory.load(configuration.arrays[access.array], access.index)
            for access in accesses:
                if access.stores:
                    memory.store(configuration.arrays[access.array], access.index, access.value)
            self._clock(configuration, t, [found.y for found in reached], started)
            if observe:
                observe(t, accesses)
        return None

    # One step

    def _execute(self, configuration: Configuration, pe: int, t: int, iterations: int) -> _Reach:
        """What the operation of a PE does in step t."""
        entry = configuration.entries.get((pe, t % configuration.ii))
        operation = None if entry is None else BY_NUMBER.get(entry.fields.get("op", 0))
        if entry is None or operation is None or not self.fabric.kinds[pe].executes(operation):
            return _Reach()
        get = entry.fields.get
        iteration = t // configuration.ii - get("stage", 0)
        operands = []
        for bit, name in enumerate(("a", "b", "c", "p")):
            given = get("initial", 0) >> bit & 1 and iteration < get("first", 0)
            operands.append(wrap(entry.init) if given else self._source(pe, entry, name))
        *data, predicate = operands
        if (predicate != 0) == bool(get("negate", 0)):
            return _Reach()
        active = 0 <= iteration < iterations
        match operation.name:
            case "load" | "store":
                return self._access(configuration, pe, entry, operation, data) if active else _Reach()
            case "table":
                return self._table(pe, entry, data[0]) if active else _Reach()
            case "const":
                value = wrap(entry.const)
            case "opaque" | "opaque_memory":
                value = 0
            case _:
                assert operation.meaning is not None
                value = operation.meaning(*data[: operation.operands])
        return _Reach(y=value) if operation.latency == 1 else _Reach(started=value)

    def _access(
        self, configuration: Configuration, pe: int, entry: Entry, operation: PEOperation, data: Sequence[int]
    ) -> _Reach:
        number, index = entry.fields.get("array", 0), data[0] & MASK
        stores = operation.name == "store"
        if number >= len(configuration.arrays):
            return _Reach(error=True)
        array = configuration.arrays[number]
        if index >= array.length or (stores and array.space != OUTPUT):
            return _Reach(error=True)
        return _Reach(access=CgraAccess(pe, stores, number, index, data[1] if stores else 0))

    def _table(self, pe: int, entry: Entry, index: int) -> _Reach:
        first, count = entry.const & 0xFFFF, (entry.const & MASK) >> 16
        words = self.tables[pe]
        if index & MASK >= min(count, len(words) - first):
            return _Reach(error=True)
        return _Reach(started=words[first + index])

    def _source(self, pe: int, entry: Entry, name: str, y: int = 0) -> int:
        """What a mux of a PE gives."""
        sources = self._layouts[pe].sources[name]
        number = entry.fields.get(name, 0)
        source = sources[number if number < len(sources) else 0]
        own = self.registers[pe]
        match source:
            case "zero":
                return 0
            case "always":
                return 1
            case "const":
                return wrap(entry.const)
            case "result":
                return own.result
            case "register":
                return own.file[_within(entry.fields.get("read_at", 0), own.file)]
            case "y":
                return y
            case "y2":
                return own.started
            case "y4":
                return own.ended
        link = self.fabric.links[self.fabric.incoming[pe][int(source.removeprefix("in"))]]
        # The place of a link among those that leave its source.
        targets = [self.fabric.links[i].target for i in self.fabric.outgoing[link.source]]
        return self.registers[link.source].links[targets.index(link.target)]

    def _clock(self, configuration: Configuration, t: int, y: Sequence[int], started: Sequence[int]) -> None:
        """All registers take their next values at once."""
        following = []
        for pe, own in enumerate(self.registers):
            entry = configuration.entry(pe, t % configuration.ii)
            sources = self._layouts[pe]

            def chosen(name: str, kept: int, pe: int = pe, entry: Entry = entry, of: Layout = sources) -> int:
                return kept if _idle(of, entry, name) else self._source(pe, entry, name, y[pe])

            file = list(own.file)
            if file:
                at = _within(entry.fields.get("write_at", 0), file)
                file[at] = chosen("write", file[at])
            links = [chosen(f"out{i}", kept) for i, kept in enumerate(own.links)]
            late = (y[pe], file, links, started[pe], own.begun, own.almost)
            made = late if self.fabric.pipelined else (started[pe], file, links)
            following.append(_Registers(chosen("result", own.result), *made))
        self.registers = following


def _idle(of: Layout, entry: Entry, name: str) -> bool:
    """Whether a register keeps its value: the first source, or a number beyond the last."""
    return not 0 < entry.fields.get(name, 0) < len(of.sources[name])


def _within(number: int, file: Sequence[int]) -> int:
    return number if number < len(file) else 0


def _fits(array: ArrayEntry, memory: Spaces) -> bool:
    """Whether all elements of an array lie in its space."""
    if array.element >= len(ELEMENT_BYTES) or array.space > OUTPUT:
        return False
    size = ELEMENT_BYTES[array.element]
    return array.base % size == 0 and array.base + array.length * size <= memory.size(array.space)
