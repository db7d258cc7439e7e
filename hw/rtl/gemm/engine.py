"""The GEMM engine: control, operands of both sides, array, drain."""

from __future__ import annotations

import itertools

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib.wiring import Component, Out, connect, flipped

from hw import isa
from hw.config import MachineConfig
from hw.rtl.gemm.array import Array
from hw.rtl.gemm.control import Control
from hw.rtl.gemm.drain import Drain, result_layout
from hw.rtl.gemm.operands import Operands
from hw.rtl.interfaces import EngineControl
from hw.rtl.memory.accumulator import DrainPort
from hw.rtl.memory.buffer import BankedRead

#: Cycles from reading a column until its operands reach the first row.
FETCH = 3


class Gemm(Component):
    """The GEMM engine: multiplies tiles of the two input buffers and adds the result to the accumulator.

    **Timing.** docs/machine.md, "GEMM array". Columns are requested in cycle f. Row r of the array multiplies
    them in f + 3 + r and adds the products in f + 4 + r. If they are the last of a block, it drains in f + 6
    + r.
    """

    def __init__(self, config: MachineConfig):
        self._config = config
        super().__init__(
            {
                "control": Out(EngineControl("gemm")),
                "buffer_a": Out(BankedRead(config.derived.buffer_a)),
                "buffer_b": Out(BankedRead(config.derived.buffer_b)),
                "drain": Out(DrainPort(config)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        c = self._config
        m.submodules.control = control = Control(c)
        m.submodules.operands_a = operands_a = Operands(c.derived.buffer_a)
        m.submodules.operands_b = operands_b = Operands(c.derived.buffer_b)
        m.submodules.array = array = Array(c)
        m.submodules.drain = drain = Drain(c)
        connect(m, flipped(self.control.operation), control.control.operation)
        connect(m, operands_a.buffer, flipped(self.buffer_a))
        connect(m, operands_b.buffer, flipped(self.buffer_b))
        connect(m, drain.drain, flipped(self.drain))

        # The control signals of a step travel beside its operands, one register per cycle.
        depth = isa.TIMING.gemm_drain
        step = Signal(FETCH)
        last = Signal(depth)
        results = [Signal(result_layout(c), name=f"result{i}", reset_less=True) for i in range(depth)]
        m.d.sync += [step.eq(Cat(control.read, step)), last.eq(Cat(control.last, last))]
        m.d.sync += results[0].eq(control.result)
        m.d.sync += [later.eq(earlier) for earlier, later in itertools.pairwise(results)]
        m.d.comb += [
            operands_a.read.eq(control.read),
            operands_a.column.eq(control.column_a),
            operands_a.style.eq(control.style_a),
            operands_b.read.eq(control.read),
            operands_b.column.eq(control.column_b),
            operands_b.style.eq(control.style_b),
            *[array.a[r].eq(operands_a.lanes[r]) for r in range(c.rows)],
            *[array.b[i].eq(operands_b.lanes[i]) for i in range(c.cols)],
            array.step.eq(step[-1]),
            array.last.eq(last[FETCH - 1]),
            drain.start.eq(last[-1]),
            drain.result.eq(results[-1]),
            *[drain.row[i].eq(array.row[i]) for i in range(c.cols)],
        ]
        inner = control.control
        m.d.comb += [
            inner.stop.eq(self.control.stop),
            drain.stop.eq(self.control.stop),
            self.control.complete.eq(drain.complete),
            self.control.complete_warp.eq(drain.complete_warp),
            self.control.error.eq((inner.error | drain.error) & ~self.control.stop),
            self.control.error_report.eq(Mux(drain.error, drain.error_report, inner.error_report)),
            self.control.quiet.eq(1),
            self.control.progress.eq(inner.progress),
            self.control.busy.eq(inner.busy),
        ]
        return m
