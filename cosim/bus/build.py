"""Builds the simulators of the bus tops if the cache does not have them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from cosim.build import Build, Main, executables

HARNESS = Path(__file__).parent / "harness"
#: The main program of a simulation that cocotb controls.
COCOTB = Main(HARNESS / "cocotb.cpp", vpi=True)


def program(
    text: str, harness: Path, parameters: Sequence[str] = (), main: Main = COCOTB, seconds: float = 0.0
) -> Build:
    """Build the executable `program` from Verilog `text` and a folder of SystemVerilog with top `harness`.

    `parameters` are options of Verilator, `main` is the C++ main program, `seconds` the time spent generating
    the text. Raises `InputError` for missing tools, and `RuntimeError` with the end of the log if a tool
    fails.
    """
    options = ["--x-initial", "unique", *parameters]
    return executables(text, harness, {"program": main}, options, seconds=seconds)
