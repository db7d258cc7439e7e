"""Copies of what many components of a design read: each component gets its own.

nextpnr leads a net from one place to all its readers, however far apart they are. On a design of some size a
net with thousands of readers, an enable or a reset, so takes most of a cycle. With a copy of its table or
register in each component the last piece of the way is short. This pass works on Yosys' netlist.
"""

from __future__ import annotations

import copy
from typing import Any

from hw.synthesis.nets import Cells, readers_of
from hw.synthesis.resources import SCOPE, component

#: Cells that read a net, and with which pin.
Pins = list[tuple[str, str]]
#: From how many readers on a net is worth copies, and from how many on a component is worth its own.
_MANY, _SOME = 100, 4
#: Cells that can be copied, and their output.
_OUTPUT = {"LUT4": "Z", "TRELLIS_FF": "Q"}
#: Pins that only a table beside them can drive.
_BESIDE = ("ALUT", "BLUT")
#: How deep components are told apart: a PE or a row of the array, and not its parts.
_DEPTH = 2


def spread(module: dict[str, Any]) -> int:
    """Copy tables and registers with many readers in a netlist of ECP5; the number of copies.

    `module` is one module of Yosys' JSON; it is changed in place.
    """
    cells: Cells = module["cells"]
    readers = readers_of(module)
    paths = frozenset(name for name, cell in cells.items() if cell["type"] == SCOPE)
    last = max(bit for net in module["netnames"].values() for bit in net["bits"] if isinstance(bit, int))
    made = 0
    for name, cell in list(cells.items()):
        output = _OUTPUT.get(cell["type"])
        if output is None:
            continue
        (bit,) = cell["connections"][output]
        for group, pins in _groups(readers.get(bit, []), paths).items():
            made += 1
            new = f"{group}.copy_{name.replace('.', '_')}"
            cells[new] = copy.deepcopy(cell)
            cells[new]["connections"][output] = [last + made]
            module["netnames"][f"{new}_{output}"] = {"hide_name": 1, "bits": [last + made], "attributes": {}}
            for reader, pin in pins:
                connections = cells[reader]["connections"]
                connections[pin] = [last + made if b == bit else b for b in connections[pin]]
    return made


def _groups(pins: Pins, paths: frozenset[str]) -> dict[str, Pins]:
    """The readers of a net by the component that gets a copy; that with most of them keeps what there is."""
    if len(pins) < _MANY:
        return {}
    found: dict[str, Pins] = {}
    for reader, pin in pins:
        group = ".".join(component(reader, paths).split(".")[:_DEPTH])
        if group and pin not in _BESIDE:
            found.setdefault(group, []).append((reader, pin))
    large = sorted((g for g in found if len(found[g]) >= _SOME), key=lambda g: len(found[g]))
    return {group: found[group] for group in large[:-1]}
