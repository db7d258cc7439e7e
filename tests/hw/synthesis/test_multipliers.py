"""Registers in multipliers: netlists compute the same, and those that cannot move stay."""

from __future__ import annotations

import copy
import json
import random
from typing import Any

import pytest

from hw.synthesis import synthesise
from hw.synthesis.multipliers import REGISTERED, absorb
from tests.hw.synthesis.cells import Levels, clocked, held, outputs

#: Products whose registers can move: enabled ones, signed and not. The others are read before the register,
#: are reset, are always enabled, or have two enables. Of `twice`, with two registers, the first moves.
MOVED, STAY = ("plain", "signed_"), ("read", "reset", "free", "halves")
DESIGN = (
    """
module products(input clk, input [15:0] a, b, input [1:0] s,
                output reg [31:0] plain, reset, free, halves, twice,
                output reg signed [31:0] signed_, output reg [31:0] read, output [31:0] early);
  reg [31:0] once;
  assign early = (a + 3) * b;
  initial begin plain = 0; reset = 0; free = 0; twice = 0; once = 0; halves = 0; signed_ = 0; read = 0; end
  always @(posedge clk) begin
    if (s[0]) begin plain <= a * b; signed_ <= $signed(a) * $signed(b); read <= early; end
    if (s[0]) begin once <= (a + 5) * b; twice <= once; end
    if (s[1]) reset <= 0; else if (s[0]) reset <= (a + 1) * b;
    free <= a * (b + 1);
    if (s[0]) halves[15:0] <= (a * (b + 2)) & 16'hffff;
    if (s[1]) halves[31:16] <= (a * (b + 2)) >> 16;
  end
endmodule
""".replace("always,", "always_,")
    .replace("always <=", "always_ <=")
    .replace("always =", "always_ =")
)


@pytest.fixture(scope="module")
def products() -> dict[str, Any]:
    """The netlist of all products."""
    found = synthesise(DESIGN, "products")
    assert found.netlist is not None
    module = json.loads(found.netlist.read_text())["modules"]["products"]
    module["cells"] = {name: cell for name, cell in module["cells"].items() if cell["type"] != "$scopeinfo"}
    return dict(module)


def names(ports: dict[str, Any], bits: list[int | str]) -> set[str]:
    """The ports that some nets belong to."""
    return {name for name, port in ports.items() for bit in bits if bit in port["bits"]}


def test_only_registers_that_may_move_are_in_multipliers(products: dict[str, Any]) -> None:
    cells = products["cells"].values()
    moved = [cell for cell in cells if REGISTERED in cell["parameters"]]
    assert {
        name
        for cell in moved
        for pin, bits in cell["connections"].items()
        if cell["port_directions"][pin] == "output"
        for name in names(products["ports"], bits)
    } == set(MOVED)
    stayed = [cell["connections"]["Q"][0] for cell in cells if cell["type"] == "TRELLIS_FF"]
    assert names(products["ports"], stayed) == {*STAY, "twice"}


def test_products_come_in_the_cycle_in_which_they_came_before(products: dict[str, Any]) -> None:
    rng, state = random.Random(1), held(products["cells"], {})
    expected = dict.fromkeys(("plain", "signed_", "read", "reset", "free", "twice"), 0)
    once = 0
    for _ in range(60):
        given = {"a": rng.getrandbits(16), "b": rng.getrandbits(16), "s": rng.getrandbits(2)}
        levels: Levels = {
            bit: value >> i & 1
            for name, value in given.items()
            for i, bit in enumerate(products["ports"][name]["bits"])
        }
        values = outputs(products["cells"], {**levels, **state})
        for name, product in expected.items():
            bits = products["ports"][name]["bits"]
            assert sum(values[bit] << i for i, bit in enumerate(bits)) == product, name
        state = clocked(products["cells"], values)
        a, b, enabled, resets = given["a"], given["b"], given["s"] & 1, given["s"] >> 1
        expected |= {"free": a * (b + 1) & 0xFFFFFFFF}
        if enabled:
            signed = (a - (a >> 15 << 16)) * (b - (b >> 15 << 16))
            expected |= {"plain": a * b, "signed_": signed & 0xFFFFFFFF, "read": (a + 3) * b & 0xFFFFFFFF}
            expected |= {"reset": (a + 1) * b & 0xFFFFFFFF, "twice": once}
            once = (a + 5) * b & 0xFFFFFFFF
        if resets:
            expected |= {"reset": 0}


def test_registers_move_once(products: dict[str, Any]) -> None:
    """A second register behind a multiplier that has one stays: the product would come a cycle early."""
    bits = products["ports"]["twice"]["bits"]
    cells = products["cells"].values()
    assert sum(cell["type"] == "TRELLIS_FF" and cell["connections"]["Q"][0] in bits for cell in cells) == 32
    again = copy.deepcopy(products)
    assert absorb(again) == 0
    assert again == products
