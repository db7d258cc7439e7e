"""Programs that simulate the tops with buses, built when the cache does not hold them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cosim.build import Main, executables

HARNESS = Path(__file__).parent / "harness"
#: The program around a simulation that cocotb controls.
COCOTB = Main(HARNESS / "cocotb.cpp", vpi=True)


@dataclass(frozen=True)
class SimulationProgram:
    """An executable; `seconds` is the time that making it took now."""

    path: Path
    seconds: float


def program(
    text: str, harness: Path, parameters: Sequence[str] = (), main: Main = COCOTB
) -> SimulationProgram:
    """The executable of Verilog `text` in the SystemVerilog of a folder, whose top is `harness`.

    `parameters` are options of Verilator, `main` is the C++ around it. Raises `InputError` for missing tools,
    `RuntimeError` with the end of the log when one fails.
    """
    made = executables(text, harness, {"program": main}, ["--x-initial", "unique", *parameters])
    return SimulationProgram(made.directory / "program", made.seconds)
