"""Recovers the data-flow graph of a configuration from its mux selects alone.

Each operand of each operation is traced backwards, register by register, to the operation that computed the
value. The decoder uses nothing but the configuration.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from hw.fabric.bitstream import Configuration, Entry
from hw.fabric.layout import OPERAND_FIELDS, layout
from hw.fabric.operations import BY_NUMBER, PEOperation

RegisterKind = Literal["link", "result", "register"]


@dataclass(frozen=True)
class DecodedOperand:
    """What an operand mux delivers: a number, or the value of an operation.

    `value` is the number, if the mux selects one. `source` is the number of the operation that computed the
    value, `distance` iterations earlier. If no operation ever writes the register, both are None and `why`
    says so. `lanes` is the number of lanes that arrive: at most that of every PE on the way.
    """

    value: int | None = None
    source: int | None = None
    distance: int = 0
    why: str = ""
    lanes: int = 1


@dataclass(frozen=True)
class Executed:
    """An operation that a PE executes, its step within its iteration, and its configuration."""

    pe: int
    step: int
    operation: PEOperation
    entry: Entry
    operands: Mapping[str, DecodedOperand]

    @property
    def initial(self) -> int:
        """The operands (A, B, C, P: bits 0 to 3) that start as `init`; none if `first` is 0."""
        return self.entry["initial"] if self.entry["first"] else 0


@dataclass(frozen=True)
class Decoded:
    """The operations of a configuration in ascending order of PE and context, and the invalid ones.

    `idle` explains, by PE and context, why an entry has no operation that its PE can execute.
    """

    configuration: Configuration
    operations: tuple[Executed, ...]
    idle: Mapping[tuple[int, int], str]


def decode(configuration: Configuration) -> Decoded:
    """Decodes the operations of a configuration and the sources of their operands."""
    fabric = configuration.fabric
    found: dict[tuple[int, int], PEOperation] = {}
    idle: dict[tuple[int, int], str] = {}
    for (pe, context), entry in sorted(configuration.entries.items()):
        number = entry["op"]
        operation = BY_NUMBER.get(number)
        if operation is None:
            if number:
                idle[pe, context] = f"there is no operation {number}"
        elif not fabric.kinds[pe].executes(operation):
            idle[pe, context] = f"{operation.name} needs a unit {operation.unit}"
        else:
            found[pe, context] = operation
    follow = _Follow(configuration, found)
    executed = []
    for (pe, context), operation in found.items():
        entry = configuration.entry(pe, context)
        step = entry["stage"] * configuration.ii + context
        names = (*OPERAND_FIELDS[: operation.operands], "p")
        operands = {name: follow.operand(pe, step, name) for name in names}
        executed.append(Executed(pe, step, operation, entry, operands))
    return Decoded(configuration, tuple(executed), idle)


@dataclass(frozen=True)
class _At:
    """A register in a step."""

    kind: RegisterKind
    pe: int
    number: int
    step: int


class _Follow:
    """Traces values backwards. Steps count from the start of the iteration that reads the value."""

    def __init__(self, configuration: Configuration, operations: Mapping[tuple[int, int], PEOperation]):
        self.configuration = configuration
        self.operations = operations
        self.number = {place: i for i, place in enumerate(operations)}

    def operand(self, pe: int, step: int, name: str) -> DecodedOperand:
        """The value of a PE's mux in a step."""
        kinds = self.configuration.fabric.kinds
        found, lanes = self._chosen(pe, step, name), kinds[pe].lanes
        seen: set[tuple[RegisterKind, int, int, int]] = set()
        while isinstance(found, _At):
            state = found.kind, found.pe, found.number, found.step % self.configuration.ii
            if state in seen:
                return DecodedOperand(why=f"no operation writes {self._named(found)}")
            seen.add(state)
            lanes = min(lanes, kinds[found.pe].lanes)
            found = self._before(found)
        assert found is not None, "operand muxes keep nothing"
        return found if found.source is None else replace(found, lanes=lanes)

    def _named(self, at: _At) -> str:
        fabric = self.configuration.fabric
        row, col = fabric.at(at.pe)
        if at.kind == "link":
            target = fabric.at(fabric.links[at.number].target)
            return f"the link from PE ({row},{col}) to PE ({target[0]},{target[1]})"
        which = f"register {at.number}" if at.kind == "register" else "the result register"
        return f"{which} of PE ({row},{col})"

    def _before(self, at: _At) -> _At | DecodedOperand:
        """Where a register's value in a step was one step earlier, or which operation computed it."""
        fabric = self.configuration.fabric
        step = at.step - 1
        entry = self.configuration.entry(at.pe, step % self.configuration.ii)
        if at.kind == "link":
            name = f"out{fabric.outgoing[at.pe].index(at.number)}"
        elif at.kind == "result":
            name = "result"
        else:
            name = "write"
            if self._register(at.pe, entry["write_at"]) != at.number:
                return _At(at.kind, at.pe, at.number, step)
        found = self._chosen(at.pe, step, name)
        return _At(at.kind, at.pe, at.number, step) if found is None else found

    def _register(self, pe: int, number: int) -> int:
        return number if number < self.configuration.fabric.kinds[pe].registers else 0

    def _chosen(self, pe: int, step: int, name: str) -> _At | DecodedOperand | None:
        """The source that a mux selects in a step; None if its register keeps its value."""
        fabric = self.configuration.fabric
        entry = self.configuration.entry(pe, step % self.configuration.ii)
        sources = layout(fabric, pe).sources[name]
        source = sources[entry[name] if entry[name] < len(sources) else 0]
        match source:
            case "keep" | "none":
                return None
            case "zero":
                return DecodedOperand(value=0)
            case "always":
                return DecodedOperand(value=1)
            case "const":
                return DecodedOperand(value=entry.const)
            case "result":
                return _At("result", pe, 0, step)
            case "register":
                return _At("register", pe, self._register(pe, entry["read_at"]), step)
        if source.startswith("y"):
            latency = int(source.removeprefix("y") or 1)
            return self._made(pe, step - latency + 1, latency)
        link = fabric.incoming[pe][int(source.removeprefix("in"))]
        return _At("link", fabric.links[link].source, link, step)

    def _made(self, pe: int, step: int, latency: int) -> DecodedOperand:
        """The value of the operation that a PE starts in a step, if it has that latency."""
        ii = self.configuration.ii
        place = pe, step % ii
        operation = self.operations.get(place)
        if operation is None or self.configuration.fabric.latency(operation) != latency:
            row, col = self.configuration.fabric.at(pe)
            return DecodedOperand(
                why=f"PE ({row},{col}) starts no operation of latency {latency} in context {place[1]}"
            )
        own = self.configuration.entry(*place)["stage"] * ii + place[1]
        return DecodedOperand(source=self.number[place], distance=(own - step) // ii)
