"""Moves look-up tables into the carry cells of ECP5 that they feed.

A carry cell (`CCU2C`, two bits of a chain) has a four-input LUT for each bit. Yosys uses two of the inputs,
for the operands, and leaves a multiplexer or gate in front of an adder as a separate LUT. This pass works on
the netlist from Yosys and absorbs such a LUT if that of the carry cell can compute both.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import permutations, product
from typing import Any

from hw.synthesis.nets import Bit, Cells, Readers, readers_of

_PINS = "ABCD"


@dataclass(frozen=True)
class Table:
    """A four-input LUT: bit i of `contents` is the output if the pins spell i, with A as lowest bit."""

    contents: int
    pins: tuple[Bit, ...]

    @property
    def inputs(self) -> tuple[int, ...]:
        """The nets that it reads, each once."""
        return tuple(dict.fromkeys(bit for bit in self.pins if isinstance(bit, int)))

    def index(self, values: Mapping[int, int]) -> int:
        """The number that the pins spell for values of the nets; an undefined constant counts as 0."""
        levels = [values[bit] if isinstance(bit, int) else int(bit == "1") for bit in self.pins]
        return sum(level << i for i, level in enumerate(levels))

    def output(self, values: Mapping[int, int]) -> int:
        """The output for these values of the nets."""
        return self.contents >> self.index(values) & 1

    def carry(self, values: Mapping[int, int]) -> int:
        """The carry that a carry cell with this table passes on if its output is 0; depends on A and B."""
        return self.contents >> (self.index(values) & 3) & 1


def merge(module: dict[str, Any]) -> int:
    """Merges LUTs into carry cells in an ECP5 netlist; returns the number of LUTs saved.

    A LUT is merged if each of its readers is a carry cell that can absorb it. `module` is one module of
    Yosys' JSON; it is changed in place.
    """
    cells: Cells = module["cells"]
    readers = readers_of(module)
    drivers = {name: cell["connections"]["Z"][0] for name, cell in cells.items() if cell["type"] == "LUT4"}
    merged = 0
    # Absorbing one LUT may free inputs for another that was already visited, so repeat.
    while found := [name for name, bit in list(drivers.items()) if _take(cells, name, bit, drivers, readers)]:
        merged += len(found)
    return merged


def _take(
    cells: Cells,
    name: str,
    bit: int,
    drivers: dict[str, int],
    readers: Readers,
) -> bool:
    """Merges the LUT `name`, which drives `bit`, into its readers, if all of them can absorb it."""
    table = _table(cells[name], "")
    new: dict[tuple[str, str], Table] = {}
    for reader, pin in readers.get(bit, [("", "")]):
        if not reader or cells[reader]["type"] != "CCU2C" or pin[0] not in _PINS:
            return False
        half = pin[1]
        if (reader, half) in new:
            continue
        merged = None
        if cells[reader]["parameters"][f"INJECT1_{half}"] == "NO":
            merged = _merged(_table(cells[reader], half), bit, table)
        if merged is None:
            return False
        new[reader, half] = merged
    for (reader, half), merged in new.items():
        cell = cells[reader]
        cell["parameters"][f"INIT{half}"] = f"{merged.contents:016b}"
        for pin, source in zip(_PINS, merged.pins, strict=True):
            old = cell["connections"][pin + half][0]
            readers[old].remove((reader, pin + half))
            readers.setdefault(source, []).append((reader, pin + half))
            cell["connections"][pin + half] = [source]
    for pin in _PINS:
        readers[cells[name]["connections"][pin][0]].remove((name, pin))
    del cells[name], drivers[name]
    return True


def _table(cell: Mapping[str, Any], half: str) -> Table:
    """The table of a `LUT4`, or of one bit ("0", "1") of a carry cell."""
    pins = tuple(cell["connections"][pin + half][0] for pin in _PINS)
    return Table(int(cell["parameters"][f"INIT{half}"], 2), pins)


def _merged(bit: Table, net: int, table: Table) -> Table | None:
    """A carry bit that computes `bit` behind `table`, which drives `net`; None if there is none."""
    inputs = tuple(dict.fromkeys((*(i for i in bit.inputs if i != net), *table.inputs)))
    if len(inputs) > len(_PINS):
        return None
    cases = []
    for levels in product((0, 1), repeat=len(inputs)):
        values = dict(zip(inputs, levels, strict=True))
        inner = {**values, net: table.output(values)}
        cases.append((values, bit.output(inner), bit.carry(inner)))
    return next(filter(None, (_arranged(pins, cases) for pins in _arrangements(inputs))), None)


def _arrangements(inputs: tuple[int, ...]) -> Iterator[tuple[Bit, ...]]:
    """Assignments of nets to the four pins that differ in A and B, on which the carry depends."""
    padded: tuple[Bit, ...] = (*inputs, *("1" for _ in range(len(_PINS) - len(inputs))))
    for pins in permutations(padded):
        if pins[2:] == tuple(sorted(pins[2:], key=str)):
            yield pins


def _arranged(pins: tuple[Bit, ...], cases: list[tuple[dict[int, int], int, int]]) -> Table | None:
    """The table with these pins and the outputs of the cases, and their carry wherever the output is 0."""
    contents = known = 0

    def demand(index: int, level: int) -> bool:
        nonlocal contents, known
        if known >> index & 1:
            return contents >> index & 1 == level
        known |= 1 << index
        contents |= level << index
        return True

    blank = Table(0, pins)
    for values, output, carry in cases:
        index = blank.index(values)
        if not demand(index, output) or (not output and not demand(index & 3, carry)):
            return None
    return Table(contents, pins)
