"""The simulators by name, behind one interface."""

from __future__ import annotations

from cosim.build import build
from cosim.job import Simulator
from hw.config import MachineConfig
from hw.errors import InputError

BACKENDS = ("verilator", "cpp", "amaranth")


def simulator(config: MachineConfig, name: str, waves: str | None = None) -> Simulator:
    """A simulator of a machine, built or taken from the cache.

    `waves` is a file for waves, .vcd or .fst (`amaranth`: .vcd only). Raises `InputError` for an unknown
    name, a wave file of another kind, and missing tools.
    """
    if name == "verilator":
        from cosim.verilator import VerilatorSimulator  # needs cocotb, which the others do not

        return VerilatorSimulator(config, build(config, waves=waves), waves)
    if name == "cpp":
        from cosim.cpp import CppSimulator

        return CppSimulator(config, build(config, waves=waves), waves)
    if name == "amaranth":
        from cosim.amaranth_sim import AmaranthSimulator  # needs Amaranth, which takes time to import

        return AmaranthSimulator(config, waves)
    raise InputError(f"--sim must be one of {', '.join(BACKENDS)}, not {name!r}")
