"""Selects a simulator by name; all share one interface."""

from __future__ import annotations

from cosim.build import build, verilog, wave_kind
from cosim.job import Simulator
from cosim.waves import Waves, chosen, scopes_of
from hw.config import MachineConfig
from hw.errors import InputError

BACKENDS = ("verilator", "cpp", "amaranth")


def simulator(config: MachineConfig, name: str, waves: Waves | None = None) -> Simulator:
    """Return a simulator of a machine, built now or taken from the cache.

    `amaranth` writes only .vcd files, of all cycles and scopes. Raises `InputError` for an unknown name, for
    waves that the simulator cannot write, and for missing tools.
    """
    if name in ("verilator", "cpp"):
        file = None if waves is None else str(waves.file)
        wave_kind(file)  # check before Verilog is generated
        scopes = (
            chosen(waves.scopes, scopes_of(verilog(config, gated=True)[0])) if waves and waves.scopes else []
        )
        asked = config, build(config, waves=file), waves, scopes
    if name == "verilator":
        from cosim.verilator import VerilatorSimulator  # needs cocotb, which the other simulators do not

        return VerilatorSimulator(*asked)
    if name == "cpp":
        from cosim.cpp import CppSimulator

        return CppSimulator(*asked)
    if name == "amaranth":
        from cosim.amaranth_sim import AmaranthSimulator  # importing Amaranth takes time

        return AmaranthSimulator(config, waves)
    raise InputError(f"--sim must be one of {', '.join(BACKENDS)}, not {name!r}")
