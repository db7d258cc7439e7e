"""Estimates the longest paths of an ECP5 netlist before placement, with equal delays for all nets.

This takes seconds where placement takes a quarter of an hour, and shows which component limits the clock and
by how much. It ignores distances, so placed designs are slower, most of all those that fill their device.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path as File
from typing import Any

from hw.synthesis.multipliers import REGISTERED
from hw.synthesis.nets import SCOPE, component
from hw.synthesis.resources import CLOCK_PINS

#: Delay of a net in nanoseconds: typical after routing, and the value that synthesis uses.
NET = 0.8
#: Delays in nanoseconds from the clock to an output, and from an input to an output, at speed grade 8.
_STARTS = {"TRELLIS_FF": 0.5, "DP16KD": 3.6}
_THROUGH = {"LUT4": 0.24, "PFUMX": 0.2, "L6MUX21": 0.2, "TRELLIS_DPR16X4": 0.24, "MULT18X18D": 3.5}
#: A multiplier with output registers: from the clock to an output, and setup of an input.
_FROM_PRODUCT, _TO_PRODUCT = 0.6, 2.6
#: A carry chain: into it, along one cell, out of it.
_INTO, _ALONG, _OUT = 0.45, 0.07, 0.44
#: Muxes are adjacent to the LUTs that they select from: these pins have no net delay.
_BESIDE = {"PFUMX": ("ALUT", "BLUT"), "L6MUX21": ("D0", "D1")}

Pins = Mapping[str, list[Any]]


@dataclass(frozen=True)
class Path:
    """A path between registers or block RAMs: its delay in nanoseconds, and the cells at its ends."""

    delay: float
    start: str
    end: str


@dataclass
class _Graph:
    """The timing graph: arrival of clocked bits, sources of the others, ends of paths with their setup."""

    starts: dict[int, tuple[float, str]] = field(default_factory=dict)
    sources: dict[int, list[tuple[int, float]]] = field(default_factory=dict)
    ends: list[tuple[int, str, float]] = field(default_factory=list)


def longest(netlist: File, top: str) -> dict[str, Path]:
    """The longest path by the top's instance in which it ends ("" for the top itself).

    `netlist` is the Yosys JSON for `top`, with ECP5 cells.
    """
    cells = json.loads(netlist.read_text(encoding="utf-8"))["modules"][top]["cells"]
    paths = frozenset(name for name, cell in cells.items() if cell["type"] == SCOPE)
    graph = _Graph()
    for name, cell in cells.items():
        _add(graph, name, cell)
    arrivals = _arrivals(graph)
    found: dict[str, Path] = {}
    for bit, cell, setup in graph.ends:
        arrival, start = arrivals[bit]
        delay = round(arrival + NET + setup, 2)
        part = component(cell, paths).partition(".")[0]
        if start and (part not in found or delay > found[part].delay):
            found[part] = Path(delay, start, cell)
    return found


def _add(graph: _Graph, name: str, cell: Mapping[str, Any]) -> None:
    """Adds a cell to the graph."""
    kind, directions, pins = cell["type"], cell["port_directions"], cell["connections"]
    inputs = {pin: bits for pin, bits in pins.items() if directions[pin] == "input" and pin not in CLOCK_PINS}
    outputs = {pin: bits for pin, bits in pins.items() if directions[pin] == "output"}
    if kind in _STARTS or REGISTERED in cell.get("parameters", {}):
        start, setup = (_STARTS[kind], 0.0) if kind in _STARTS else (_FROM_PRODUCT, _TO_PRODUCT)
        graph.starts |= dict.fromkeys(_bits(outputs.values()), (start, name))
        graph.ends += [(bit, name, setup) for bit in _bits(inputs.values())]
    elif kind == "CCU2C":
        for pin, (bit, *_) in outputs.items():
            graph.sources[bit] = list(_chain(inputs, pin))
    elif kind in _THROUGH:
        if kind == "TRELLIS_DPR16X4":
            graph.ends += [
                (bit, name, 0.0) for pin, bits in inputs.items() if pin != "RAD" for bit in _bits([bits])
            ]
            inputs = {"RAD": inputs["RAD"]}
        beside = _BESIDE.get(kind, ())
        arcs = [
            (bit, _THROUGH[kind] + (0 if pin in beside else NET))
            for pin, bits in inputs.items()
            for bit in _bits([bits])
        ]
        graph.sources |= dict.fromkeys(_bits(outputs.values()), arcs)


def _chain(inputs: Pins, output: str) -> Iterator[tuple[int, float]]:
    """The inputs on which an output of a carry cell (two bits of a chain) depends."""
    for pin, bits in inputs.items():
        if output == "S0" and pin.endswith("1"):
            continue
        for bit in _bits([bits]):
            if pin == "CIN":
                yield bit, _ALONG if output == "COUT" else _OUT
            else:
                yield bit, NET + _INTO


def _bits(pins: Iterable[list[Any]]) -> Iterator[int]:
    """The nets of some pins; constants are text."""
    return (bit for bits in pins for bit in bits if isinstance(bit, int))


def _arrivals(graph: _Graph) -> dict[int, tuple[float, str]]:
    """The arrival time of every bit in which a path ends, and the cell where its longest path starts.

    The cell is "" for bits that only depend on ports of the top.
    """
    found = dict(graph.starts)
    waiting = [bit for bit, *_ in graph.ends]
    while waiting:
        bit = waiting[-1]
        sources = graph.sources.get(bit, [])
        missing = [source for source, _ in sources if source not in found]
        if bit not in found and missing:
            waiting += missing
            continue
        waiting.pop()
        if bit not in found:
            ways = ((found[source][0] + delay, found[source][1]) for source, delay in sources)
            found[bit] = max(ways, default=(0.0, ""))
    return found
