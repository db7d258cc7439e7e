"""Who reads each net of a netlist of Yosys."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

#: A net by its number; a constant is text.
Bit = int | str
Cells = dict[str, dict[str, Any]]
#: Cells and pins that read each net; a port of the module is the cell "".
Readers = dict[Bit, list[tuple[str, str]]]


def readers_of(module: Mapping[str, Any]) -> Readers:
    """Cells and pins that read each net of a module of Yosys' JSON, and its ports."""
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
