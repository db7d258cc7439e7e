"""Analyses a Yosys netlist: the readers of each net, and the instance that each cell belongs to."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

#: A net by its number; a constant is text.
Bit = int | str
Cells = dict[str, dict[str, Any]]
#: Cells and pins that read each net; a port of the module is the cell "".
Readers = dict[Bit, list[tuple[str, str]]]
# Yosys names a cell after the nearest signal of the source, with the path of its instance in front
# (`warp0.multiply.sum_LUT4_Z`). It keeps the path of every flattened instance as a cell of this type. Logic
# between two instances counts for the instance of the signal after which it is named, so totals are exact but
# borders are not.
SCOPE = "$scopeinfo"


def readers_of(module: Mapping[str, Any]) -> Readers:
    """Cells and pins that read each net of a module of Yosys' JSON, and the module's ports."""
    readers: Readers = {}
    for name, cell in module["cells"].items():
        for pin, bits in cell["connections"].items():
            if cell.get("port_directions", {}).get(pin) != "output":
                for bit in bits:
                    readers.setdefault(bit, []).append((name, pin))
    for name, port in module["ports"].items():
        for bit in port["bits"]:
            readers.setdefault(bit, []).append(("", name))
    return readers


def component(name: str, paths: Collection[str]) -> str:
    """The longest instance path with which a cell or net name begins, "" for the top."""
    end = len(name)
    while (end := name.rfind(".", 0, end)) > 0:
        if name[:end] in paths:
            return name[:end]
    return ""
