"""The GEMM array: blocks of multiply-accumulate, zero points, drain overlapped with the next block."""

from __future__ import annotations

import itertools

from amaranth.hdl import Cat, Module, Mux, Signal, Value, signed
from amaranth.lib import data
from amaranth.lib.wiring import Component, In, Out, connect, flipped

from hw import isa
from hw.bits import log2, rotate_right
from hw.config import BufferShape, MachineConfig
from hw.interfaces import INNER_BITS, PC_BITS, WARP_BITS, EngineControl, ErrorReport
from hw.memory.accumulator import DrainPort
from hw.memory.buffer import BankedRead

#: How a step is to be read: zero points and signedness of both operands.
Style = data.StructLayout({"zero_a": 8, "zero_b": 8, "signed_a": 1, "signed_b": 1})


def result_layout(config: MachineConfig) -> data.StructLayout:
    """Where a finished block goes: word, pitch, rows, whether to add, and whose it is."""
    return data.StructLayout(
        {
            "address": INNER_BITS,
            "pitch": isa.BUFFER_BITS,
            "rows": log2(config.rows) + 1,
            "add": 1,
            "last": 1,
            "warp": WARP_BITS,
            "pc": PC_BITS,
        }
    )


class GemmControl(Component):
    """Cuts operations into blocks and steps, and says what each step is.

    **Timing.** Takes an operation in cycle s, reads its first columns in s + 1 at the earliest. Blocks of
    one operation start `max(k, rows)` cycles apart; an operation's first drain starts at least
    `rows + gemm_turn` cycles after its predecessor's last one.
    """

    def __init__(self, config: MachineConfig):
        self._config = config
        super().__init__(
            {
                "control": Out(EngineControl("gemm")),
                "read": Out(1),
                "column_a": Out(INNER_BITS),
                "column_b": Out(INNER_BITS),
                "style": Out(Style),
                "first": Out(1),
                "last": Out(1),
                "result": Out(result_layout(config)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        c = self._config
        op = self.control.operation.payload
        d = Signal(op.shape())
        active = Signal()
        size = isa.SIZE_BITS
        k_done = Signal(size)
        rows_left, cols_left = Signal(size), Signal(size)
        a, b, b_first = Signal(INNER_BITS), Signal(INNER_BITS), Signal(INNER_BITS)
        row, word = Signal(INNER_BITS), Signal(INNER_BITS)  # accumulator: block row, block
        timer = Signal(size + 1)  # cycles until the drain can take the next block

        rows = Signal(log2(c.rows) + 1)
        last_row, last_col = Signal(), Signal()
        m.d.comb += [
            last_row.eq(rows_left <= c.rows),
            last_col.eq(cols_left <= c.cols),
            rows.eq(Mux(last_row, rows_left, c.rows)),
        ]
        fits_a = (a + d.k) <= c.derived.buffer_a.columns
        fits_b = (b + d.k) <= c.derived.buffer_b.columns
        starting, begin, outside = Signal(), Signal(), Signal()
        m.d.comb += [
            starting.eq(active & (k_done == 0) & (timer <= d.k) & ~self.control.stop),
            outside.eq(starting & ~(fits_a & fits_b)),
            begin.eq(starting & ~outside),
            self.read.eq(begin | (active & (k_done != 0) & ~self.control.stop)),
            self.first.eq(k_done == 0),
            self.last.eq(self.read & (k_done == d.k - 1)),
            self.column_a.eq(a + k_done),
            self.column_b.eq(b + k_done),
            self.style.zero_a.eq(d.gemm_zero_a),
            self.style.zero_b.eq(d.gemm_zero_b),
            self.style.signed_a.eq(d.gemm_signed[0]),
            self.style.signed_b.eq(d.gemm_signed[1]),
            self.result.address.eq(word),
            self.result.pitch.eq(d.gemm_c_pitch),
            self.result.rows.eq(rows),
            self.result.add.eq(d.variant[0]),
            self.result.last.eq(last_row & last_col),
            self.result.warp.eq(d.warp),
            self.result.pc.eq(d.pc),
        ]
        with m.If(begin):
            turn = Mux(last_row & last_col, isa.TIMING.gemm_turn, 0)
            m.d.sync += timer.eq(d.k + rows + turn - 1)
        with m.Elif(timer != 0):
            m.d.sync += timer.eq(timer - 1)
        with m.If(self.read):
            m.d.sync += k_done.eq(k_done + 1)
        with m.If(self.last):
            m.d.sync += k_done.eq(0)
            with m.If(last_col):
                next_row = row + (d.gemm_c_pitch << log2(c.rows))
                m.d.sync += [
                    a.eq(a + d.gemm_a_pitch),
                    rows_left.eq(rows_left - c.rows),
                    b.eq(b_first),
                    cols_left.eq(d.gemm_n),
                    row.eq(next_row),
                    word.eq(next_row),
                ]
            with m.Else():
                m.d.sync += [
                    b.eq(b + d.gemm_b_pitch),
                    cols_left.eq(cols_left - c.cols),
                    word.eq(word + 1),
                ]

        finished, take, bad = Signal(), Signal(), Signal()
        m.d.comb += [
            finished.eq(self.last & last_row & last_col),
            take.eq(self.control.operation.valid & (~active | finished) & ~self.control.stop),
            bad.eq(take & ((op.k == 0) | (op.gemm_m == 0) | (op.gemm_n == 0))),
            self.control.operation.ready.eq(take),
            self.control.busy.eq(self.read),
            self.control.progress.eq(self.read),
            self.control.quiet.eq(1),
        ]
        with m.If(take):
            m.d.sync += [
                active.eq(~bad),
                d.eq(op),
                a.eq(op.a),
                b.eq(op.b),
                b_first.eq(op.b),
                row.eq(op.c),
                word.eq(op.c),
                rows_left.eq(op.gemm_m),
                cols_left.eq(op.gemm_n),
            ]
        with m.Elif(finished):
            m.d.sync += active.eq(0)

        report = self.control.error_report
        with m.If(bad):
            m.d.comb += [report.cause.eq(isa.Cause.OPERAND), report.warp.eq(op.warp), report.pc.eq(op.pc)]
        with m.Else():
            m.d.comb += [report.cause.eq(isa.Cause.BUFFER_RANGE), report.warp.eq(d.warp), report.pc.eq(d.pc)]
        m.d.comb += self.control.error.eq(bad | outside)
        return m


class GemmArray(Component):
    """rows x cols multiply-accumulate units and the rows that drain from them, as one module.

    A step is broadcast: unit (r, c) multiplies lane r of the column of A by lane c of the column of B.

    **Timing.** Columns are requested in cycle f, selected in f + 1, zero points are subtracted in f + 2,
    multiplied in f + 3, accumulated in f + 4. A block whose last step was requested in f drains its row r in
    cycle f + 6 + r, that is `gemm_drain + r` after the cycle that follows its last request.
    """

    def __init__(self, config: MachineConfig):
        self._config = config
        super().__init__(
            {
                "read": In(1),
                "column_a": In(INNER_BITS),
                "column_b": In(INNER_BITS),
                "style": In(Style),
                "first": In(1),
                "last": In(1),
                "result": In(result_layout(config)),
                "buffer_a": Out(BankedRead(config.derived.buffer_a)),
                "buffer_b": Out(BankedRead(config.derived.buffer_b)),
                "drain": Out(DrainPort(config)),
                "complete": Out(1),
                "complete_warp": Out(WARP_BITS),
                "error": Out(1),
                "error_report": Out(ErrorReport),
                "stop": In(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        c = self._config
        lanes_a = self._fetch(m, "a", self.buffer_a, self.column_a, c.derived.buffer_a)
        lanes_b = self._fetch(m, "b", self.buffer_b, self.column_b, c.derived.buffer_b)

        # What each step is travels beside its data, one register per pipeline stage.
        depth = isa.TIMING.gemm_drain - 1
        valid, first, last = Signal(depth), Signal(depth), Signal(depth)
        m.d.sync += [
            valid.eq(Cat(self.read, valid)),
            first.eq(Cat(self.first, first)),
            last.eq(Cat(self.last, last)),
        ]
        styles = [Signal(Style, name=f"style{i}") for i in range(2)]
        results = [Signal(result_layout(c), name=f"result{i}") for i in range(depth)]
        m.d.sync += [styles[0].eq(self.style), styles[1].eq(styles[0]), results[0].eq(self.result)]
        m.d.sync += [later.eq(earlier) for earlier, later in itertools.pairwise(results)]

        style = styles[1]
        with m.If(valid[1]):
            ops_a = self._subtract(m, "a", lanes_a, style.zero_a, style.signed_a)
            ops_b = self._subtract(m, "b", lanes_b, style.zero_b, style.signed_b)
        captured = Signal()
        m.d.sync += captured.eq(last[3])
        units = [(r, k) for r in range(c.rows) for k in range(c.cols)]
        product = {u: Signal(signed(18), name=f"product{u[0]}_{u[1]}") for u in units}
        total = {u: Signal(32, name=f"total{u[0]}_{u[1]}") for u in units}
        shadow = {u: Signal(32, name=f"shadow{u[0]}_{u[1]}") for u in units}
        draining = Signal()
        with m.If(valid[2]):
            m.d.sync += [product[r, k].eq(ops_a[r] * ops_b[k]) for r, k in units]
        with m.If(valid[3]):
            with m.If(first[3]):
                m.d.sync += [total[u].eq(product[u]) for u in units]
            with m.Else():
                m.d.sync += [total[u].eq(total[u] + product[u]) for u in units]
        with m.If(captured):
            m.d.sync += [shadow[u].eq(total[u]) for u in units]
        with m.Elif(draining):
            m.d.sync += [shadow[r, k].eq(shadow[r + 1, k]) for r, k in units if r + 1 < c.rows]
        self._drain(m, captured, draining, results[3], Cat(*(shadow[0, k] for k in range(c.cols))))
        return m

    def _fetch(self, m: Module, name: str, port: Value, column: Value, shape: BufferShape) -> Value:
        """Read a column and bring its lane 0 to the front: the lanes, two cycles after the request."""
        bits = log2(shape.banks)
        turn = Signal(bits, name=f"turn_{name}")
        lanes = Signal(8 * shape.lanes, name=f"lanes_{name}")
        selected = Signal(name=f"selected_{name}")
        inner = column[: log2(shape.lanes)]
        address = Cat(inner, column[bits:])[: len(port.address)]
        m.d.comb += [port.enable.eq(self.read), port.address.eq(address)]
        m.d.sync += [turn.eq(column[:bits]), selected.eq(self.read)]
        with m.If(selected):
            m.d.sync += lanes.eq(rotate_right(m, port.data, turn))
        return lanes

    @staticmethod
    def _subtract(m: Module, name: str, lanes: Value, zero: Value, is_signed: Value) -> list[Signal]:
        """Element minus zero point, both read as int8 or uint8: nine bits, signed."""
        out = []
        zero9 = Cat(zero, zero[7] & is_signed).as_signed()
        for i in range(len(lanes) // 8):
            lane = lanes.word_select(i, 8)
            operand = Signal(signed(9), name=f"operand_{name}{i}")
            m.d.sync += operand.eq(Cat(lane, lane[7] & is_signed).as_signed() - zero9)
            out.append(operand)
        return out

    def _drain(self, m: Module, captured: Value, draining: Signal, block: Value, row: Value) -> None:
        """Rows of the captured block into the accumulator; completion three cycles after the last."""
        words = self._config.derived.acc_words
        target, now = Signal(block.shape()), Signal(block.shape())
        m.d.sync += target.eq(block)
        left, address = Signal(len(block.rows)), Signal(INNER_BITS)
        fresh = Signal()
        m.d.comb += draining.eq(left != 0)
        with m.If(draining):
            m.d.sync += [left.eq(left - 1), address.eq(address + now.pitch)]
        with m.If(captured):
            m.d.sync += [now.eq(target), left.eq(target.rows), address.eq(target.address)]
        inside, wrong, bad = Signal(), Signal(), Signal()
        m.d.comb += [
            inside.eq(address < words),
            wrong.eq(draining & ~inside),
            self.drain.valid.eq(draining & inside & ~bad & ~self.stop),
            self.drain.address.eq(address),
            self.drain.add.eq(now.add),
            self.drain.data.eq(row),
            self.error.eq(wrong & ~bad),
            self.error_report.cause.eq(isa.Cause.BUFFER_RANGE),
            self.error_report.warp.eq(now.warp),
            self.error_report.pc.eq(now.pc),
            fresh.eq(draining & (left == 1) & now.last & ~wrong & ~bad & ~self.stop),
        ]
        with m.If(wrong):
            m.d.sync += bad.eq(1)
        flags = Signal(isa.TIMING.acc_write)
        warps = [Signal(WARP_BITS, name=f"warp{i}") for i in range(isa.TIMING.acc_write)]
        m.d.sync += [flags.eq(Cat(fresh, flags)), warps[0].eq(now.warp)]
        m.d.sync += [later.eq(earlier) for earlier, later in itertools.pairwise(warps)]
        m.d.comb += [self.complete.eq(flags[-1]), self.complete_warp.eq(warps[-1])]


class Gemm(Component):
    """The GEMM engine: control and array.

    **Timing.** docs/machine.md, "GEMM array".
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
        m.submodules.control = control = GemmControl(self._config)
        m.submodules.array = array = GemmArray(self._config)
        connect(m, array.buffer_a, flipped(self.buffer_a))
        connect(m, array.buffer_b, flipped(self.buffer_b))
        connect(m, array.drain, flipped(self.drain))
        connect(m, flipped(self.control.operation), control.control.operation)
        for name in ("read", "column_a", "column_b", "style", "first", "last", "result"):
            m.d.comb += getattr(array, name).eq(getattr(control, name))
        inner = control.control
        m.d.comb += [
            inner.stop.eq(self.control.stop),
            array.stop.eq(self.control.stop),
            self.control.complete.eq(array.complete),
            self.control.complete_warp.eq(array.complete_warp),
            self.control.error.eq((inner.error | array.error) & ~self.control.stop),
            self.control.error_report.eq(Mux(array.error, array.error_report, inner.error_report)),
            self.control.quiet.eq(1),
            self.control.progress.eq(inner.progress),
            self.control.busy.eq(inner.busy),
        ]
        return m
