"""Generates the Verilog of a machine."""

from __future__ import annotations

import contextlib
import gc
import os
import re
import signal
import threading
from collections.abc import Iterator
from types import FrameType
from typing import TYPE_CHECKING

from hw.config import MachineConfig
from hw.processes import ENDING, Ended

if TYPE_CHECKING:
    from amaranth.hdl import Elaboratable

TOP = "heald"

#: Lint rules that the generated Verilog breaks everywhere, and why that is harmless. Verilator's other checks
#: (latches, combinational loops, several drivers, undriven signals, ...) stay on.
LINT_OFF = {
    "WIDTH": "constants are written in their own width, selections by shifting are cut by the assignment",
    "CASEINCOMPLETE": "every case follows a default assignment",
    "CMPCONST": "comparisons of general parts may be constant in a particular machine",
    "UNUSEDSIGNAL": "fields of structures that one reader does not need",
    "DECLFILENAME": "all modules are in one file",
}

#: Initialisation of a memory with all zeros, which is removed: contents at power-up are not part of the
#: contract. Memories with constants keep theirs.
_ZEROS = re.compile(r"^ *initial begin\n(?: *\S+ ?\[\d+\] = \d+'(?:h0+|d0);\n)* *end\n", re.MULTILINE)
#: An escaped name with indices, and an index.
_ELEMENT, _INDEX = re.compile(r"\\\S*\[\S*(?=\s)"), re.compile(r"\[(\d+)\]")
#: A register declared with an initial value, and a one-statement block with an empty sensitivity.
_DECLARED = re.compile(r"^( *)reg ((?:\[\d+:\d+\] )?)(\S+) +?= (.*);$", re.MULTILINE)
_UNTRIGGERED = re.compile(r"^( *)always @\*\n +(\S.*;)$", re.MULTILINE)
_TRIGGER = re.compile(r"if \((\\\$auto\$verilog_backend\S+ )\) begin end")
_MODULE = re.compile(r"^module .*?^endmodule$", re.MULTILINE | re.DOTALL)


def verilog(config: MachineConfig, *, trace: bool = True, gated: bool = False) -> str:
    """Verilog text of the machine, top module `heald`; equal configurations give equal text.

    `trace` adds the ports `trace_*` for simulation, which take 1 % of a small machine. `gated` stops the
    clock of the CGRA while it is idle (`hw.rtl.machine.Machine`). Always uses the Yosys that comes with
    Amaranth, even if another is installed.
    """
    from hw.rtl.machine import Machine

    return of_machine(Machine(config, trace=trace, gated=gated), TOP, config)


def of_machine(top: Elaboratable, name: str, config: MachineConfig) -> str:
    """Verilog text of a top with a machine; its header names the machine and disables some lint rules."""
    return _header(config) + _ZEROS.sub("", converted(top, name))


def converted(top: Elaboratable, name: str) -> str:
    """Verilog text of a component, as a module with this name.

    Amaranth names the elements of an array `values[3]`, next to the signal `values`. Yosys uses the same
    names for bits of a signal when it maps them, confuses the two, and fails on some machines. So elements
    are renamed `values.3` here, like fields of structures.
    """
    from amaranth.back import verilog as backend

    os.environ.setdefault("AMARANTH_USE_YOSYS", "builtin")
    collecting = gc.isenabled()
    gc.disable()  # millions of small objects, none of them garbage: saves a third of the time
    try:
        with interrupts_kept():
            text: str = backend.convert(top, name=name, strip_internal_attrs=True, emit_src=False)
    finally:
        if collecting:
            gc.enable()
    text = _ELEMENT.sub(lambda found: _INDEX.sub(r".\1", found[0]), text)
    return _MODULE.sub(lambda found: _started(found[0]), text)


def _started(module: str) -> str:
    """A module with all combinational blocks evaluated at time 0, in SystemVerilog too.

    Yosys makes each block depend on a register that is declared with the value 0, which in SystemVerilog is
    not an event. If only parts of a signal are assigned under a condition, the blocks of the other parts lack
    that dependence.
    """
    trigger = _TRIGGER.search(module)
    if trigger is not None:
        name = trigger[1].replace("\\", r"\\")
        begun = rf"\1always @* begin\n\1  if ({name}) begin end\n\1  \2\n\1end"
        module = _UNTRIGGERED.sub(begun, module)
    return _DECLARED.sub(r"\1reg \2\3 ;\n\1initial \3 = \4;", module)


@contextlib.contextmanager
def interrupts_kept() -> Iterator[None]:
    """Raises `KeyboardInterrupt` at the end if one was lost inside.

    Python ignores an interrupt during a destructor, and every statement of Amaranth has one.
    """
    before = {number: signal.getsignal(number) for number in ENDING}
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    seen: list[int] = []

    def handler(number: int, frame: FrameType | None) -> None:
        seen.append(number)
        previous = before[signal.Signals(number)]
        assert callable(previous)
        previous(number, frame)

    heard = [number for number, previous in before.items() if callable(previous)]
    for number in heard:
        signal.signal(number, handler)
    try:
        yield
    finally:
        for number in heard:
            signal.signal(number, before[number])
    if seen:
        raise Ended(seen[0])


def _header(config: MachineConfig) -> str:
    lines = [f"// Heald machine, configuration {config.hash}. Generated; do not edit."]
    values = config.hardware()
    if (grid := config.cgra) is not None:
        values["cgra"] = f"{grid.rows} x {grid.cols} PEs, fabric {grid.hash:08x}"
    lines += [f"// {key} = {value}" for key, value in values.items()]
    lines += [f"// verilator lint_off {rule}" for rule in LINT_OFF]
    return "\n".join(lines) + "\n"
