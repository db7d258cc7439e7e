"""The simulators by name, behind one interface."""

from __future__ import annotations

from cosim.build import build, verilog, wave_kind
from cosim.job import Simulator
from cosim.waves import Waves, chosen, scopes_of
from hw.config import MachineConfig
from hw.errors import InputError

BACKENDS = ("verilator", "cpp", "amaranth")


def simulator(config: MachineConfig, name: str, waves: Waves | None = None) -> Simulator:
    """A simulator of a machine, built or taken from the cache.

    `amaranth` writes .vcd alone, of all cycles and scopes. Raises `InputError` for an unknown name, waves
    that it cannot write, and missing tools.
    """
    if name in ("verilator", "cpp"):
        file = None if waves is None else str(waves.file)
        wave_kind(file)  # before Verilog is made
        scopes = (
            chosen(waves.scopes, scopes_of(verilog(config, gated=True)[0])) if waves and waves.scopes else []
        )
        asked = config, build(config, waves=file), waves, scopes
    if name == "verilator":
        from cosim.verilator import VerilatorSimulator  # needs cocotb, which the others do not

        return VerilatorSimulator(*asked)
    if name == "cpp":
        from cosim.cpp import CppSimulator

        return CppSimulator(*asked)
    if name == "amaranth":
        from cosim.amaranth_sim import AmaranthSimulator  # needs Amaranth, which takes time to import

        return AmaranthSimulator(config, waves)
    raise InputError(f"--sim must be one of {', '.join(BACKENDS)}, not {name!r}")
