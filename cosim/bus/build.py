"""Builds the simulators of the bus tops if the cache does not have them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from cosim.build import Build, Main, executables

HARNESS = Path(__file__).parent / "harness"
#: The program around a simulation that cocotb controls.
COCOTB = Main(HARNESS / "cocotb.cpp", vpi=True)


def program(
    text: str, harness: Path, parameters: Sequence[str] = (), main: Main = COCOTB, seconds: float = 0.0
) -> Build:
    """The executable `program` of Verilog `text` in the SystemVerilog of a folder, whose top is `harness`.

    `parameters` are options of Verilator, `main` is the C++ around it, `seconds` what making the text took.
    Raises `InputError` for missing tools, `RuntimeError` with the end of the log when one fails.
    """
    options = ["--x-initial", "unique", *parameters]
    return executables(text, harness, {"program": main}, options, seconds=seconds)
