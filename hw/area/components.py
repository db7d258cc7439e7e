"""The RTL of a part alone, for the synthesis that the model is fitted on."""

from __future__ import annotations

from collections.abc import Callable

from amaranth.lib.wiring import Component

from hw.config import MachineConfig
from hw.emit import converted

#: Name of the top module of a part.
TOP = "part"


def component(config: MachineConfig, kind: str, index: int = 0) -> Component:
    """The component of a machine that a part stands for."""
    from hw.rtl.core.channels import Channels
    from hw.rtl.core.host import Host
    from hw.rtl.core.issue import Issue
    from hw.rtl.core.sequencer import ProgramMemory, Sequencer
    from hw.rtl.gemm import Gemm
    from hw.rtl.memory.accumulator import Accumulator
    from hw.rtl.memory.buffer import BankedBuffer
    from hw.rtl.memory.loader import Loader
    from hw.rtl.memory.storer import Storer

    derived, has_grid = config.derived, config.cgra is not None
    if kind in ("load_a", "load_b", "load_c"):
        return Loader(config, kind)
    if kind in ("grid_control", "grid_ports", "pe"):
        return _grid_component(config, kind, index)
    makers: dict[str, Callable[[], Component]] = {
        "sequencer": lambda: Sequencer(config),
        "program": lambda: ProgramMemory(config.imem_words),
        "issue": lambda: Issue(config),
        "channels": lambda: Channels(config),
        "host": lambda: Host(config),
        "gemm": lambda: Gemm(config),
        "accumulator": lambda: Accumulator(config),
        "store": lambda: Storer(config),
        "buffer_a": lambda: BankedBuffer(derived.buffer_a),
        "buffer_b": lambda: BankedBuffer(derived.buffer_b),
        "scratchpad": lambda: BankedBuffer(derived.scratch, words=has_grid),
        "output_buffer": lambda: BankedBuffer(derived.out, words=True),
    }
    return makers[kind]()


def _grid_component(config: MachineConfig, kind: str, index: int) -> Component:
    from hw.rtl.cgra.control import Control
    from hw.rtl.cgra.pe import ProcessingElement
    from hw.rtl.cgra.ports import Ports

    fabric = config.cgra
    assert fabric is not None, f"{kind} needs a grid"
    if kind == "pe":
        return ProcessingElement(config, fabric, index)
    return Control(config, fabric) if kind == "grid_control" else Ports(config, len(config.store_pes))


def verilog(config: MachineConfig, kind: str, index: int = 0) -> str:
    """Verilog of a part alone, top module `part`."""
    return converted(component(config, kind, index), TOP)
