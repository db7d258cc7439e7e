"""Moves output registers of multipliers into the ECP5 multiplier cells.

A multiplier (`MULT18X18D`) has output registers of its own. Yosys leaves them unused and puts those of the
design into the fabric, at the end of long wires. This pass works on the netlist from Yosys.
"""

from __future__ import annotations

from typing import Any

from hw.synthesis.nets import Cells, Readers, readers_of

#: Requirements on a register: clocked by the rising edge, enabled by a net, initially 0. Whether nextpnr ties
#: the enable of a multiplier to 1 was not tried.
_KIND = {"CLKMUX": "CLK", "CEMUX": "CE", "REGSET": "RESET"}
#: The parameter that turns on the output registers; then their clock, enable and reset.
REGISTERED = "REG_OUTPUT_CLK"
_REGISTERED = {REGISTERED: "CLK0", "REG_OUTPUT_CE": "CE0", "REG_OUTPUT_RST": "RST0"}


def absorb(module: dict[str, Any]) -> int:
    """Moves registers into multipliers in an ECP5 netlist; returns the number of registers saved.

    They are moved if registers with a common clock and enable are the only readers of a product. `module` is
    one module of Yosys' JSON; it is changed in place.
    """
    cells: Cells = module["cells"]
    readers = readers_of(module)
    absorbed = 0
    for multiplier in [cell for cell in cells.values() if cell["type"] == "MULT18X18D"]:
        found = _registers(multiplier, cells, readers)
        if found:
            _move(multiplier, cells, found)
            absorbed += len(found)
    return absorbed


def _registers(multiplier: dict[str, Any], cells: Cells, readers: Readers) -> dict[str, str]:
    """The register of each output that is read, by pin; empty unless all of them can move."""
    if REGISTERED in multiplier["parameters"]:
        return {}
    found: dict[str, str] = {}
    controls = set()
    for pin, (bit, *_) in multiplier["connections"].items():
        if multiplier["port_directions"][pin] != "output" or bit not in readers:
            continue
        (name, port), *others = readers[bit]
        if others or not name or port != "DI" or cells[name]["type"] != "TRELLIS_FF":
            return {}
        register = cells[name]
        pins = register["connections"]
        if any(register["parameters"].get(key) != value for key, value in _KIND.items()):
            return {}
        never_reset = pins.get("LSR", ["0"])[0] == "0" and register["parameters"].get("LSRMUX") != "INV"
        if not never_reset or not isinstance(pins["CE"][0], int):
            return {}
        controls.add((pins["CLK"][0], pins["CE"][0]))
        found[pin] = name
    return found if len(controls) == 1 else {}


def _move(multiplier: dict[str, Any], cells: Cells, found: dict[str, str]) -> None:
    """Moves these registers, given by output pin, into a multiplier."""
    for pin, name in found.items():
        register = cells.pop(name)["connections"]
        multiplier["connections"][pin] = register["Q"]
    multiplier["parameters"] |= _REGISTERED
    multiplier["connections"] |= {"CLK0": register["CLK"], "CE0": register["CE"], "RST0": ["0"]}
    multiplier["port_directions"] |= dict.fromkeys(("CLK0", "CE0", "RST0"), "input")
