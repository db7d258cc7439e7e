"""Copies of what many components read: each reads its own, and registers hold what they held."""

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
  reg clear;
  initial clear = 0;
  always @(posedge clk) clear <= r;
PARTS
endmodule
"""


@pytest.fixture(scope="module")
def copied() -> dict[str, Any]:
    """The netlist of four components that share an enable and a reset."""
    parts, at = [], 0
    for name, width in WIDTHS.items():
        bits = f"[{at + width - 1}:{at}]"
        parts.append(f"  part #({width}) {name} (clk, enable, clear, d{bits}, q{bits});")
        at += width
    text = DESIGN.replace("TOTAL", str(TOTAL)).replace("PARTS", "\n".join(parts))
    found = synthesise(text, "copied")
    assert found.netlist is not None
    return dict(json.loads(found.netlist.read_text())["modules"]["copied"])


def read(module: dict[str, Any], name: str, pin: str) -> set[int | str]:
    """The nets that registers of a component read with a pin."""
    return {
        cell["connections"][pin][0]
        for path, cell in module["cells"].items()
        if cell["type"] == "TRELLIS_FF" and path.startswith(f"{name}.") and ".copy_" not in path
    }


@pytest.mark.parametrize("pin", ["CE", "LSR"])
def test_every_large_component_has_its_own(copied: dict[str, Any], pin: str) -> None:
    nets = {name: read(copied, name, pin) for name in WIDTHS}
    assert all(len(found) == 1 for found in nets.values())
    assert len(set.union(*nets.values())) == 3
    assert nets["few"] == nets["first"], "the largest one keeps what there is"
    copies = [path for path in copied["cells"] if ".copy_" in path]
    assert sorted(path.split(".")[0] for path in copies) == ["second"] * 2 + ["third"] * 2


def test_copied_registers_hold_what_they_held(copied: dict[str, Any]) -> None:
    cells = {name: cell for name, cell in copied["cells"].items() if cell["type"] != "$scopeinfo"}
    rng, state, expected, clears = random.Random(2), held(cells, {}), 0, 0
    for _ in range(40):
        given = {name: rng.getrandbits(1) for name in "abc"}
        given |= {"r": rng.random() < 0.2, "d": rng.getrandbits(TOTAL)}
        levels: Levels = {
            bit: int(value) >> i & 1
            for name, value in given.items()
            for i, bit in enumerate(copied["ports"][name]["bits"])
        }
        values = outputs(cells, {**levels, **state})
        shown = sum(values[bit] << i for i, bit in enumerate(copied["ports"]["q"]["bits"]))
        assert shown == (1 << TOTAL) - 1 - expected
        state = clocked(cells, values)
        if clears:
            expected = 0
        elif given["a"] and (given["b"] or not given["c"]):
            expected = int(given["d"])
        clears = int(given["r"])


def test_nothing_is_copied_twice(copied: dict[str, Any]) -> None:
    again = copy.deepcopy(copied)
    assert spread(again) == 0
    assert again == copied
