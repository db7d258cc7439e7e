"""Synthesis of small designs: cells by instance, the cache, and what happens when it fails."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hw.errors import InputError
from hw.synthesis import Resources, synthesise, yosys
from hw.synthesis.tools import ToolError
from tests.hw.synthesis.designs import SMALL, results


def test_cells_are_those_of_the_design_and_belong_to_its_instances() -> None:
    told: list[str] = []
    found = synthesise(SMALL, "small", progress=told.append)
    assert found.resources.dsps == found.components["multiply"].dsps == 1
    assert found.resources.brams == found.components["memory"].brams == 1
    # Operands and product; the cell of a multiplier has no registers of its own here.
    assert found.components["multiply"].ffs == 2 * 17 + 34
    assert found.components[""].ffs == 8
    assert found.resources == sum(found.components.values(), Resources())
    assert found.resources.latches == 0
    assert found.netlist is not None
    assert "small" in json.loads(found.netlist.read_text())["modules"]
    assert told[0].startswith("synthesis 1/7")
    assert told[-1] == "synthesis 7/7: writing the netlist"


def test_what_was_made_before_is_found_without_running_the_tool(monkeypatch: pytest.MonkeyPatch) -> None:
    first = synthesise(SMALL, "small")

    def never(*_arguments: object) -> float:
        raise AssertionError("the tool ran")

    monkeypatch.setattr(yosys, "run", never)
    assert synthesise(SMALL, "small") == first
    with pytest.raises(AssertionError, match="the tool ran"):
        synthesise(SMALL + "\n", "small")


@pytest.mark.slow
def test_the_netlist_is_made_when_it_is_first_asked_for(empty_cache: Path) -> None:
    without = synthesise(SMALL, "small", netlist=False)
    assert without.netlist is None
    assert not list(empty_cache.rglob("*netlist.json"))
    whole = synthesise(SMALL, "small")
    assert whole.netlist is not None
    assert whole.netlist.is_file()
    assert whole.resources == without.resources


SHALLOW = """
module shallow(input clk, input write, input [1:0] to, from, input [3:0] data, output [3:0] word);
  (* ram_style = "distributed" *) reg [3:0] words [3:0];
  always @(posedge clk) if (write) words[to] <= data;
  assign word = words[from];
endmodule
"""


@pytest.mark.slow
def test_address_bits_that_nothing_uses_take_another_bits_value() -> None:
    found = synthesise(SHALLOW, "shallow")
    assert found.cells["TRELLIS_DPR16X4"] == 1
    assert found.netlist is not None
    cells = json.loads(found.netlist.read_text())["modules"]["shallow"]["cells"].values()
    (memory,) = (cell for cell in cells if cell["type"] == "TRELLIS_DPR16X4")
    for port in ("RAD", "WAD"):
        bits = memory["connections"][port]
        assert bits[2:] == [bits[0]] * 2 != [bits[1]] * 2
        assert all(isinstance(bit, int) for bit in bits), "none is constant"


@pytest.mark.slow
def test_xilinx_takes_one_multiplier_and_one_block_ram() -> None:
    found = synthesise(SMALL, "small", "xilinx", netlist=False)
    assert (found.resources.dsps, found.resources.brams, found.resources.latches) == (1, 1, 0)
    assert found.components["memory"].brams == 1
    assert found.resources.ffs >= 8


@pytest.mark.parametrize(
    ("verilog", "top", "text"),
    [
        ("module small(; endmodule", "small", "syntax error"),
        (SMALL, "smell", "smell"),
        ("module small(input a, input g, output reg q); always @* if (g) q = a; endmodule", "small", "atch"),
    ],
    ids=["syntax", "top", "latch"],
)
def test_what_yosys_refuses_is_told_in_its_words(
    empty_cache: Path, verilog: str, top: str, text: str
) -> None:
    with pytest.raises(ToolError, match=text):
        synthesise(verilog, top)
    assert not results(empty_cache), "nothing is left"


@pytest.mark.slow
def test_an_interrupt_ends_the_tool_and_leaves_nothing(empty_cache: Path) -> None:
    def interrupt(text: str) -> None:
        if "2/7" in text:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        synthesise(SMALL, "small", progress=interrupt)
    assert not results(empty_cache)


@pytest.mark.parametrize(
    ("family", "top", "text"),
    [
        ("ice40", "small", "the family must be one of ecp5, xilinx, not 'ice40'"),
        ("ecp5", "small; shell", "the top must be the name of a module"),
    ],
)
def test_bad_arguments_are_refused(family: str, top: str, text: str) -> None:
    with pytest.raises(InputError, match=text):
        synthesise(SMALL, top, family)
