"""Duplicates LUTs and registers with high fan-out: each component that reads one gets its own copy.

nextpnr routes a net from one place to all its readers, however far apart they are. In a large design, a net
with thousands of readers, such as an enable or a reset, takes most of a cycle. With a copy of its LUT or
register in each component, the last part of the route is short. This pass works on the netlist from Yosys.
"""

from __future__ import annotations

import copy
from collections import Counter
from typing import Any

from hw.synthesis.nets import SCOPE, Cells, component, readers_of

#: Cells that read a net, and with which pin.
Pins = list[tuple[str, str]]
#: Minimum number of readers of a net for copies, and of readers in a component for a copy of its own.
_MANY, _SOME = 100, 4
#: Maximum number of cells of a component that is kept together; the parts of a larger one count as
#: components.
_WHOLE = 4000
#: Cells that can be copied, and their output pin.
_OUTPUT = {"LUT4": "Z", "TRELLIS_FF": "Q"}
#: Pins that only an adjacent LUT can drive.
_BESIDE = ("ALUT", "BLUT")


def spread(module: dict[str, Any], whole: int = _WHOLE) -> int:
    """Copies LUTs and registers with many readers in an ECP5 netlist; returns the number of copies.

    Components are split into their parts if they have more than `whole` cells. `module` is one module of
    Yosys' JSON; it is changed in place.
    """
    cells: Cells = module["cells"]
    readers = readers_of(module)
    places = _places(cells, whole)
    last = max(bit for net in module["netnames"].values() for bit in net["bits"] if isinstance(bit, int))
    made = 0
    for name, cell in list(cells.items()):
        # Two copies of an asynchronously set register might not leave that state in the same cycle.
        output = _OUTPUT.get(cell["type"])
        if output is None or cell["parameters"].get("SRMODE") == "ASYNC":
            continue
        (bit,) = cell["connections"][output]
        for place, pins in _groups(readers.get(bit, []), places).items():
            made += 1
            new = f"{place}.{name.rsplit('.', 1)[-1]}_copy{last + made}".lstrip(".")
            cells[new] = copy.deepcopy(cell)
            cells[new]["connections"][output] = [last + made]
            module["netnames"][f"{new}_{output}"] = {"hide_name": 1, "bits": [last + made], "attributes": {}}
            for reader, pin in pins:
                connections = cells[reader]["connections"]
                connections[pin] = [last + made if b == bit else b for b in connections[pin]]
    return made


def _places(cells: Cells, whole: int) -> dict[str, str]:
    """The component of each cell: the largest one around it with at most `whole` cells, or without parts."""
    paths = frozenset(name for name, cell in cells.items() if cell["type"] == SCOPE)
    own = {name: component(name, paths) for name in cells}
    sizes: Counter[str] = Counter()
    around: dict[str, list[str]] = {}
    for path, number in Counter(own.values()).items():
        ends = [i for i, letter in enumerate(path) if letter == "."]
        around[path] = list(dict.fromkeys(["", *(path[:i] for i in ends if path[:i] in paths), path]))
        sizes.update(dict.fromkeys(around[path], number))
    found = {path: next((a for a in outer if sizes[a] <= whole), path) for path, outer in around.items()}
    return {name: found[path] for name, path in own.items()}


def _groups(pins: Pins, places: dict[str, str]) -> dict[str, Pins]:
    """The readers of a net by the component that gets a copy; that with most readers keeps the original."""
    if len(pins) < _MANY:
        return {}
    found: dict[str, Pins] = {}
    for reader, pin in pins:
        if reader and pin not in _BESIDE:
            found.setdefault(places[reader], []).append((reader, pin))
    large = sorted((g for g in found if len(found[g]) >= _SOME), key=lambda g: len(found[g]))
    return {group: found[group] for group in large[:-1]}
