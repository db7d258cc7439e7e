"""The CGRA's Verilog: no combinational loop, no latch, clean for Verilator's linter."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.grid_area import grid_verilog, loops_and_latches
from cosim.build import verilog
from tests.cosim.test_verilog import lint
from tests.hw.latches import latches
from tests.hw.rtl.cgra.cases import FABRICS, machine


def test_no_latch() -> None:
    """Verilator's linter, which looks for loops too, reads the machine in tests/cosim/test_verilog.py."""
    assert latches(grid_verilog("mesh2x2")) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mesh2x2", "torus3x2", "small3x3"])
def test_yosys_finds_no_loop_and_no_latch(name: str, tmp_path: Path) -> None:
    text = grid_verilog(name)
    assert latches(text) == []
    assert loops_and_latches(tmp_path, text) == ""


@pytest.mark.slow
def test_a_loop_would_be_found(tmp_path: Path) -> None:
    text = "module grid(input a, output b, c); assign b = c ^ a; assign c = ~b; endmodule\n"
    assert "loop" in loops_and_latches(tmp_path, text)
    text = "module grid(input a, e, output reg b); always @* if (e) b = a; endmodule\n"
    assert "selection is not empty" in loops_and_latches(tmp_path, text).lower()


@pytest.mark.slow
def test_a_machine_with_a_grid_passes_lint(tmp_path: Path) -> None:
    """PEs of several kinds, buffers of several word banks."""
    fabric, banks = FABRICS[0]
    text, _ = verilog(machine(fabric, banks))
    assert "trace_output_value" in text
    assert "%" not in lint(text, tmp_path)
    assert latches(text) == []
