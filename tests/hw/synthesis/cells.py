"""The function of ECP5 cells, as the models of the vendor's library define them (FPGA-TN-02050, 02205)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from hw.synthesis.multipliers import REGISTERED

Cells = dict[str, dict[str, Any]]
Levels = dict[int | str, int]


def is_clocked(cell: Mapping[str, Any]) -> bool:
    """Whether the outputs of a cell change with the clock alone."""
    return cell["type"] == "TRELLIS_FF" or REGISTERED in cell["parameters"]


def held(cells: Cells, state: Levels) -> Levels:
    """What registers hold: 0 before the first clock."""
    clocked = [cell for cell in cells.values() if is_clocked(cell)]
    return {
        bit: state.get(bit, 0)
        for cell in clocked
        for pin, bits in cell["connections"].items()
        if cell["port_directions"][pin] == "output"
        for bit in bits
    }


def clocked(cells: Cells, values: Levels) -> Levels:
    """What registers hold after a clock, given the levels of all nets before it."""
    after = held(cells, values)
    for cell in (cell for cell in cells.values() if is_clocked(cell)):

        def pin(name: str, cell: Mapping[str, Any] = cell) -> int:
            return values[cell["connections"].get(name, ["0"])[0]]

        if cell["type"] == "TRELLIS_FF":
            parameters = cell["parameters"]
            assert "INV" not in parameters.values()
            if parameters.get("LSRMUX") == "LSR" and pin("LSR"):
                after[cell["connections"]["Q"][0]] = int(parameters["REGSET"] == "SET")
            elif parameters.get("CEMUX", "").strip() == "1" or pin("CE"):  # Yosys marks texts of digits
                after[cell["connections"]["Q"][0]] = pin("DI")
        elif pin("CE0"):
            for i, level in enumerate(_product(cell, pin)):
                for bit in cell["connections"].get(f"P{i}", []):
                    after[bit] = level
    return after


def outputs(cells: Cells, values: Levels) -> Levels:
    """Levels of all nets of a netlist, given those of its inputs and of what registers hold."""
    values = {**values, "0": 0, "1": 1, "x": 0}
    rest = [cell for cell in cells.values() if not is_clocked(cell)]
    while rest:
        ready = [cell for cell in rest if all(bit in values for bit in read_by(cell))]
        assert ready, "a loop, or a cell without an input"
        rest = [cell for cell in rest if cell not in ready]
        for cell in ready:
            values.update(_evaluate(cell, values))
    return values


def read_by(cell: Mapping[str, Any]) -> list[int | str]:
    """The nets that a cell reads."""
    return [
        bit
        for pin, bits in cell["connections"].items()
        if cell["port_directions"][pin] == "input"
        for bit in bits
    ]


def _evaluate(cell: Mapping[str, Any], values: Mapping[int | str, int]) -> Levels:
    """Outputs of a cell, as the models of the vendor's library define them (FPGA-TN-02050, PFU)."""

    def pin(name: str) -> int:
        return values[cell["connections"][name][0]]

    def look_up(suffix: str, pins: str) -> int:
        index = sum(pin(letter + suffix) << i for i, letter in enumerate(pins))
        return int(cell["parameters"][f"INIT{suffix}"], 2) >> index & 1

    found = {}
    if cell["type"] == "LUT4":
        found["Z"] = look_up("", "ABCD")
    elif cell["type"] == "PFUMX":
        found["Z"] = pin("ALUT" if pin("C0") else "BLUT")
    elif cell["type"] == "L6MUX21":
        found["Z"] = pin("D1" if pin("SD") else "D0")
    elif cell["type"] == "CCU2C":
        carry = pin("CIN")
        for half in "01":
            level, passed = look_up(half, "ABCD"), look_up(half, "AB")
            if cell["parameters"][f"INJECT1_{half}"] == "YES":
                found[f"S{half}"], carry = level, level
            else:
                found[f"S{half}"], carry = level ^ carry, (carry if level else passed)
        found["COUT"] = carry
    elif cell["type"] == "MULT18X18D":
        found |= {f"P{i}": level for i, level in enumerate(_product(cell, pin))}
    return {bit: found[pin] for pin in found for bit in cell["connections"].get(pin, [])}


def _product(cell: Mapping[str, Any], pin: Callable[[str], int]) -> list[int]:
    """Bits of a product of 18 x 18 bits, each operand signed as its pin says."""

    def operand(name: str) -> int:
        value = sum(pin(f"{name}{i}") << i for i in range(18))
        return value - (1 << 18) * (value >> 17 & pin(f"SIGNED{name}"))

    product = operand("A") * operand("B")
    return [product >> i & 1 for i in range(36)]
