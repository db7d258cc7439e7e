"""The GEMM array: blocks of multiply-accumulate, zero points, drain overlapped with the next block."""

from __future__ import annotations

import itertools

from amaranth.hdl import Cat, Module, Mux, Signal, Value, signed
from amaranth.lib import data
from amaranth.lib.wiring import Component, In, Out, connect, flipped

from hw import isa
from hw.config import BufferShape, MachineConfig
from hw.rtl.bits import at_most, log2, one_of, place, place_bits, rotate_right
from hw.rtl.interfaces import PC_BITS, WARP_BITS, EngineControl, ErrorReport, report_of
from hw.rtl.memory.accumulator import DrainPort
from hw.rtl.memory.buffer import BankedRead

#: How a step is to be read: zero points and signedness of both operands.
Style = data.StructLayout({"zero_a": 8, "zero_b": 8, "signed_a": 1, "signed_b": 1})


def result_layout(config: MachineConfig) -> data.StructLayout:
    """Where a finished block goes: word, pitch, rows, whether to add, and whose it is."""
    return data.StructLayout(
        {
            "address": place_bits(config.derived.acc_words),
            "pitch": place_bits(config.derived.acc_words),
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
                "column_a": Out(log2(config.derived.buffer_a.columns)),
                "column_b": Out(log2(config.derived.buffer_b.columns)),
                "style": Out(Style),
                "last": Out(1),
                "result": Out(result_layout(config)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        c = self._config
        op = self.control.operation.payload
        d = Signal(op.shape())
        active, fresh = Signal(), Signal()  # fresh: the block's first columns are not read yet
        size = isa.SIZE_BITS
        k_left = Signal(size)
        rows_left, cols_left = Signal(size), Signal(size)
        # Block and present column in the buffers; block row and block in the accumulator.
        shapes = {"a": c.derived.buffer_a, "b": c.derived.buffer_b}
        base = {n: Signal(place_bits(s.columns), name=f"base_{n}") for n, s in shapes.items()}
        column = {n: Signal(log2(s.columns), name=f"column_{n}") for n, s in shapes.items()}
        b_first = Signal(place_bits(c.derived.buffer_b.columns))
        words = c.derived.acc_words
        row, word = Signal(place_bits(words)), Signal(place_bits(words))
        owed = Signal(range(c.rows + isa.TIMING.gemm_turn + 1))  # cycles until the drain can take a block

        rows = Signal(log2(c.rows) + 1)
        last_row, last_col = Signal(), Signal()
        m.d.comb += [
            last_row.eq(at_most(rows_left, c.rows)),
            last_col.eq(at_most(cols_left, c.cols)),
            rows.eq(Mux(last_row, rows_left, c.rows)),
        ]
        fits = Cat(at_most(base[n] + d.k, s.columns) for n, s in shapes.items()).all()
        drained = d.k[len(owed) :].any() | (owed <= d.k[: len(owed)])
        starting, begin, outside = Signal(), Signal(), Signal()
        m.d.comb += [
            starting.eq(active & fresh & drained & ~self.control.stop),
            outside.eq(starting & ~fits),
            begin.eq(starting & fits),
            self.read.eq(begin | (active & ~fresh & ~self.control.stop)),
            self.last.eq(self.read & (Mux(fresh, d.k, k_left) == 1)),
            self.column_a.eq(Mux(fresh, base["a"], column["a"])),
            self.column_b.eq(Mux(fresh, base["b"], column["b"])),
            self.style.zero_a.eq(d.gemm_zero_a),
            self.style.zero_b.eq(d.gemm_zero_b),
            self.style.signed_a.eq(d.gemm_signed[0]),
            self.style.signed_b.eq(d.gemm_signed[1]),
            self.result.address.eq(word),
            self.result.pitch.eq(place(d.gemm_c_pitch, words)),
            self.result.rows.eq(rows),
            self.result.add.eq(d.variant[0]),
            self.result.last.eq(last_row & last_col),
            self.result.warp.eq(d.warp),
            self.result.pc.eq(d.pc),
        ]
        with m.If(owed != 0):
            m.d.sync += owed.eq(owed - 1)
        with m.If(self.read):
            m.d.sync += [
                fresh.eq(0),
                k_left.eq(Mux(fresh, d.k, k_left) - 1),
                column["a"].eq(self.column_a + 1),
                column["b"].eq(self.column_b + 1),
            ]
        with m.If(self.last):
            m.d.sync += [fresh.eq(1), owed.eq(rows + Mux(last_row & last_col, isa.TIMING.gemm_turn, 0))]
            with m.If(last_col):
                next_row = Signal(place_bits(words))
                m.d.comb += next_row.eq(place(row + (d.gemm_c_pitch << log2(c.rows)), words))
                m.d.sync += [
                    base["a"].eq(place(base["a"] + d.gemm_a_pitch, shapes["a"].columns)),
                    rows_left.eq(rows_left - c.rows),
                    base["b"].eq(b_first),
                    cols_left.eq(d.gemm_n),
                    row.eq(next_row),
                    word.eq(next_row),
                ]
            with m.Else():
                m.d.sync += [
                    base["b"].eq(place(base["b"] + d.gemm_b_pitch, shapes["b"].columns)),
                    cols_left.eq(cols_left - c.cols),
                    word.eq(place(word + 1, words)),
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
                fresh.eq(1),
                d.eq(op),
                base["a"].eq(place(op.a, shapes["a"].columns)),
                base["b"].eq(place(op.b, shapes["b"].columns)),
                b_first.eq(place(op.b, shapes["b"].columns)),
                row.eq(place(op.c, words)),
                word.eq(place(op.c, words)),
                rows_left.eq(op.gemm_m),
                cols_left.eq(op.gemm_n),
            ]
        with m.Elif(finished):
            m.d.sync += active.eq(0)

        report = self.control.error_report
        with m.If(bad):
            m.d.comb += report_of(report, isa.Cause.OPERAND, op)
        with m.Else():
            m.d.comb += report_of(report, isa.Cause.BUFFER_RANGE, d)
        m.d.comb += self.control.error.eq(bad | outside)
        return m


class GemmArray(Component):
    """rows x cols multiply-accumulate units and the rows that drain from them, as one module.

    A step is broadcast: unit (r, c) multiplies lane r of the column of A by lane c of the column of B.

    **Timing.** Columns are requested in cycle f, selected in f + 1, zero points are subtracted in f + 2,
    multiplied in f + 3, accumulated in f + 4. A block whose last step was requested in f
    drains its row r in cycle f + 6 + r, that is `gemm_drain + r` after the cycle that follows its
    last request; the row is chosen in the cycle before.
    """

    def __init__(self, config: MachineConfig):
        self._config = config
        super().__init__(
            {
                "read": In(1),
                "column_a": In(log2(config.derived.buffer_a.columns)),
                "column_b": In(log2(config.derived.buffer_b.columns)),
                "style": In(Style),
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
        valid, last = Signal(depth), Signal(depth)
        m.d.sync += [valid.eq(Cat(self.read, valid)), last.eq(Cat(self.last, last))]
        styles = [Signal(Style, name=f"style{i}") for i in range(2)]
        results = [Signal(result_layout(c), name=f"result{i}") for i in range(depth)]
        m.d.sync += [styles[0].eq(self.style), styles[1].eq(styles[0]), results[0].eq(self.result)]
        m.d.sync += [later.eq(earlier) for earlier, later in itertools.pairwise(results)]

        style = styles[1]
        with m.If(valid[1]):
            ops_a = self._subtract(m, "a", lanes_a, style.zero_a, style.signed_a)
            ops_b = self._subtract(m, "b", lanes_b, style.zero_b, style.signed_b)
        units = [(r, k) for r in range(c.rows) for k in range(c.cols)]
        product = {u: Signal(signed(18), name=f"product{u[0]}_{u[1]}", reset_less=True) for u in units}
        total = {u: Signal(32, name=f"total{u[0]}_{u[1]}") for u in units}
        block = {u: Signal(32, name=f"block{u[0]}_{u[1]}", reset_less=True) for u in units}
        with m.If(valid[2]):
            m.d.sync += [product[r, k].eq(ops_a[r] * ops_b[k]) for r, k in units]
        # The last step's sum is the block; the total begins again at 0, so no step has to choose.
        ending = Signal()
        m.d.comb += ending.eq(last[3])
        sums = {u: Signal(32, name=f"sum{u[0]}_{u[1]}") for u in units}
        m.d.comb += [sums[u].eq(total[u] + product[u]) for u in units]
        with m.If(valid[3]):
            m.d.sync += [total[u].eq(sums[u]) for u in units]
        with m.If(ending):
            m.d.sync += [total[u].eq(0) for u in units]
            m.d.sync += [block[u].eq(sums[u]) for u in units]
        # Bit r: row r of the block goes out. Rows that the next block cuts off are not part of this one.
        select, row = Signal(c.rows), Signal(32 * c.cols, reset_less=True)
        m.d.sync += select.eq(Mux(ending, 1, select << 1))
        with m.If(select.any()):
            m.d.sync += row.eq(
                one_of(select, [Cat(block[r, k] for k in range(c.cols)) for r in range(c.rows)])
            )
        self._drain(m, select[0], results[3], row)
        return m

    def _fetch(self, m: Module, name: str, port: Value, column: Value, shape: BufferShape) -> Value:
        """Read a column and bring its lane 0 to the front: the lanes, two cycles after the request."""
        bits = log2(shape.banks)
        turn = Signal(bits, name=f"turn_{name}")
        lanes = Signal(8 * shape.lanes, name=f"lanes_{name}", reset_less=True)
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
            operand = Signal(signed(9), name=f"operand_{name}{i}", reset_less=True)
            m.d.sync += operand.eq(Cat(lane, lane[7] & is_signed).as_signed() - zero9)
            out.append(operand)
        return out

    def _drain(self, m: Module, captured: Value, block: Value, row: Value) -> None:
        """Rows of the captured block into the accumulator; completion three cycles after the last."""
        words = self._config.derived.acc_words
        target, now = Signal(block.shape()), Signal(block.shape())
        m.d.sync += target.eq(block)
        left, address = Signal(len(block.rows)), Signal(place_bits(words))
        draining, fresh = Signal(), Signal()
        m.d.comb += draining.eq(left != 0)
        with m.If(draining):
            m.d.sync += [left.eq(left - 1), address.eq(place(address + now.pitch, words))]
        with m.If(captured):
            m.d.sync += [now.eq(target), left.eq(target.rows), address.eq(target.address)]
        inside, wrong, bad = Signal(), Signal(), Signal()
        m.d.comb += [
            inside.eq(~address[-1]),
            wrong.eq(draining & ~inside),
            self.drain.valid.eq(draining & inside & ~bad),
            # A stop comes late, and readers must know early which bank is held.
            self.drain.write.eq(~self.stop),
            self.drain.address.eq(address),
            self.drain.add.eq(now.add),
            self.drain.data.eq(row),
            self.error.eq(wrong & ~bad),
            *report_of(self.error_report, isa.Cause.BUFFER_RANGE, now),
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
        for name in ("read", "column_a", "column_b", "style", "last", "result"):
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
