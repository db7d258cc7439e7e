"""Copies of widely read signals: each component reads its own, and registers hold the same values."""

from __future__ import annotations

import copy
import json
import random
from typing import Any

import pytest

from hw.synthesis import synthesise
from hw.synthesis.copies import spread
from tests.hw.synthesis.cells import Levels, clocked, held, outputs

#: Registers of each component. All together read the enable and the reset, `few` has too few for copies.
WIDTHS = {"first": 190, "second": 150, "third": 100, "few": 3}
TOTAL = sum(WIDTHS.values())
DESIGN = """
module part #(parameter W = 1) (input clk, enable, clear, input [W-1:0] d, output [W-1:0] q);
  reg [W-1:0] kept;
  initial kept = 0;
  assign q = ~kept;
  always @(posedge clk) if (clear) kept <= 0; else if (enable) kept <= d;
endmodule
module copied(input clk, a, b, c, r, input [TOTAL-1:0] d, output [TOTAL-1:0] q);
  wire enable = a & (b | ~c);
  reg clear, hold;
  initial begin clear = 0; hold = 1; end
  always @(posedge clk) begin clear <= r | (clear & ~hold); hold <= ~r; end
PARTS
endmodule
module wrapped(input clk, a, b, c, r, input [TOTAL-1:0] d, output [TOTAL-1:0] q);
  copied inner (clk, a, b, c, r, d, q);
endmodule
"""
#: Most cells of a component here: three have more than half as many, and all together more.
WHOLE = 400


def design() -> str:
    """Four components that share an enable and a reset, alone and one level deeper."""
    parts, at = [], 0
    for name, width in WIDTHS.items():
        bits = f"[{at + width - 1}:{at}]"
        parts.append(f"  part #({width}) {name} (clk, enable, clear, d{bits}, q{bits});")
        at += width
    return DESIGN.replace("TOTAL", str(TOTAL)).replace("PARTS", "\n".join(parts))


@pytest.fixture(scope="module", params=["copied", "wrapped"])
def copied(request: pytest.FixtureRequest) -> dict[str, Any]:
    """A netlist with copies, alone or one level deeper."""
    found = synthesise(design(), request.param)
    assert found.netlist is not None
    module = dict(json.loads(found.netlist.read_text())["modules"][request.param])
    assert not any("_copy" in path for path in module["cells"]), "so small a design lies in one place"
    assert spread(module, WHOLE) == 4
    return module


def read(module: dict[str, Any], name: str, pin: str) -> set[int | str]:
    """The nets that registers of a component read with a pin."""
    return {
        cell["connections"][pin][0]
        for path, cell in module["cells"].items()
        if cell["type"] == "TRELLIS_FF" and f"{name}." in path and "_copy" not in path
    }


@pytest.mark.parametrize("pin", ["CE", "LSR"])
def test_every_large_component_has_its_own(copied: dict[str, Any], pin: str) -> None:
    nets = {name: read(copied, name, pin) for name in WIDTHS}
    assert all(len(found) == 1 for found in nets.values())
    assert len(set.union(*nets.values())) == 3
    assert nets["few"] == nets["first"], "the largest one keeps what there is"
    copies = [path.split(".")[-2] for path in copied["cells"] if "_copy" in path]
    assert sorted(copies) == ["second"] * 2 + ["third"] * 2


def test_copied_registers_hold_what_they_held(copied: dict[str, Any]) -> None:
    cells = {name: cell for name, cell in copied["cells"].items() if cell["type"] != "$scopeinfo"}
    rng, state, expected, clear, hold = random.Random(2), held(cells, {}), 0, 0, 1
    for cell in cells.values():
        if cell["type"] == "TRELLIS_FF" and cell["parameters"]["REGSET"] == "SET":
            state[cell["connections"]["Q"][0]] = 1
    for _ in range(60):
        given = {name: rng.getrandbits(1) for name in "abc"}
        given |= {"r": int(rng.random() < 0.2), "d": rng.getrandbits(TOTAL)}
        levels: Levels = {
            bit: value >> i & 1
            for name, value in given.items()
            for i, bit in enumerate(copied["ports"][name]["bits"])
        }
        values = outputs(cells, {**levels, **state})
        shown = sum(values[bit] << i for i, bit in enumerate(copied["ports"]["q"]["bits"]))
        assert shown == (1 << TOTAL) - 1 - expected
        state = clocked(cells, values)
        if clear:
            expected = 0
        elif given["a"] and (given["b"] or not given["c"]):
            expected = given["d"]
        clear, hold = given["r"] | (clear & ~hold & 1), 1 - given["r"]


def test_nothing_is_copied_twice(copied: dict[str, Any]) -> None:
    again = copy.deepcopy(copied)
    assert spread(again, WHOLE) == 0
    assert again == copied


def wired(driver: dict[str, Any]) -> dict[str, Any]:
    """A cell whose output, net 1, is read by 80 and 60 registers, a neighbour, and a port."""
    readers = {
        f"{place}.r{i}": {
            "type": "TRELLIS_FF",
            "parameters": {},
            "connections": {"CE": [1], "Q": [1000 * n + i]},
        }
        for n, (place, number) in enumerate({"x": 80, "y": 60}.items(), 1)
        for i in range(number)
    }
    beside = {"type": "PFUMX", "parameters": {}, "connections": {"BLUT": [1]}}
    scopes = {place: {"type": "$scopeinfo", "parameters": {}, "connections": {}} for place in "xy"}
    cells = {"x.driver": driver, "y.beside": beside, **readers, **scopes}
    for cell in cells.values():
        outs = ("Z", "Q")
        cell["port_directions"] = {pin: "output" if pin in outs else "input" for pin in cell["connections"]}
    return {"cells": cells, "ports": {"shown": {"bits": [1]}}, "netnames": {"n": {"bits": [1, 2]}}}


def test_a_neighbour_and_a_port_keep_what_drives_them() -> None:
    module = wired({"type": "LUT4", "parameters": {}, "connections": {"A": [2], "Z": [1]}})
    assert spread(module, 100) == 1
    assert module["cells"]["y.beside"]["connections"]["BLUT"] == [1]
    assert module["ports"]["shown"]["bits"] == [1]
    nets = {path[0]: cell["connections"]["CE"] for path, cell in module["cells"].items() if ".r" in path}
    assert nets == {"x": [1], "y": [3]}


def test_a_register_that_is_set_without_the_clock_is_not_copied() -> None:
    register = {"type": "TRELLIS_FF", "connections": {"DI": [2], "Q": [1]}}
    assert spread(wired(register | {"parameters": {"SRMODE": "ASYNC"}}), 100) == 0
    assert spread(wired(register | {"parameters": {"SRMODE": "LSR_OVER_CE"}}), 100) == 1
