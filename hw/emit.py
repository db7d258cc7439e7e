"""Verilog of a machine."""

from __future__ import annotations

import gc
import os

from hw.config import MachineConfig

TOP = "jacquard"


def verilog(config: MachineConfig) -> str:
    """Verilog text of the machine, top module `jacquard`; equal configurations give equal text.

    Uses the Yosys that comes with Amaranth, whatever is installed besides.
    """
    from amaranth.back import verilog as backend

    from hw.machine import Machine

    os.environ.setdefault("AMARANTH_USE_YOSYS", "builtin")
    collecting = gc.isenabled()
    gc.disable()  # millions of small objects, none of them garbage: a third of the time
    try:
        text: str = backend.convert(Machine(config), name=TOP, strip_internal_attrs=True, emit_src=False)
    finally:
        if collecting:
            gc.enable()
    return text
