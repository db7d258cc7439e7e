"""The array's control: splits operations into blocks and blocks into steps."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib.wiring import Component, In, Out

from hw import isa
from hw.config import BufferShape, MachineConfig
from hw.rtl.bits import at_most, log2, place, place_bits
from hw.rtl.gemm.drain import result_layout
from hw.rtl.gemm.operands import Style
from hw.rtl.interfaces import EngineControl, operation, report_of


class Columns(Component):
    """The column that a step reads from one buffer, and whether the whole block lies inside that buffer.

    The next block starts `pitch` columns further on if `advances` is 1. Otherwise it starts at the same
    column, or, if the buffer `rewinds`, at that of the operation's first block.

    **Timing.** `move` and `step` change the outputs in the next cycle.
    """

    def __init__(self, shape: BufferShape, *, rewinds: bool):
        self._shape, self._rewinds = shape, rewinds
        super().__init__(
            {
                "take": In(1),  # the next block is the first of an operation, with these
                "first": In(isa.BUFFER_BITS),
                "pitch": In(isa.BUFFER_BITS),
                "depth": In(isa.SIZE_BITS),
                "step": In(1),
                "move": In(1),  # to the next block
                "advances": In(1),
                "column": Out(log2(shape.columns)),
                "inside": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        size = self._shape.columns
        pitch = Signal(place_bits(size))
        first = Signal.like(self.column)  # first and last column of the current block
        last = Signal(place_bits(size))
        start = Signal.like(first)  # the same for the operation's first block
        end = Signal.like(last)
        m.d.comb += self.inside.eq(~last[-1])
        with m.If(self.step):
            m.d.sync += self.column.eq(self.column + 1)
        again = (start, end) if self._rewinds else (first, last)
        next_first = Signal.like(first)
        taken_last = self._last(m, size)
        m.d.comb += next_first.eq(
            Mux(self.take, self.first, Mux(self.advances, first + pitch, again[0])),
        )
        with m.If(self.move):
            m.d.sync += [
                first.eq(next_first),
                self.column.eq(next_first),
                last.eq(Mux(self.advances, place(last + pitch, size), again[1])),
            ]
        with m.If(self.move & self.take):
            m.d.sync += [
                pitch.eq(place(self.pitch, size)),
                start.eq(self.first),
                *[register.eq(taken_last) for register in (last, end)],
            ]
        return m

    def _last(self, m: Module, size: int) -> Value:
        """`first + depth - 1` as a place (`hw.rtl.bits`) in `size` columns, for a depth of at least 1."""
        bits = log2(size)
        low, steps = self.first[:bits], Cat(self.depth[: bits + 1], 0)
        # The -1 reduces each full adder to an XNOR and an OR, which leaves one carry chain.
        halves = Signal(bits + 2)
        carries = Signal(bits + 2)
        last = Signal(bits + 2)
        m.d.comb += [
            halves.eq(~(low ^ steps)),
            carries.eq((low | steps) << 1),
            last.eq(halves + carries),
        ]
        beyond = last[bits:].any() | self.first[bits:].any() | self.depth[bits + 1 :].any()
        return Cat(last[:bits], beyond)


class Blocks(Component):
    """The current block of an operation: its rows, and where its result goes.

    **Timing.** `move` changes the outputs in the next cycle.
    """

    def __init__(self, config: MachineConfig):
        self._config = config
        words = place_bits(config.derived.acc_words)
        super().__init__(
            {
                "take": In(1),  # the next block is the first of an operation
                "operation": In(operation("gemm")),
                "move": In(1),  # to the next block
                "last_row": Out(1),
                "last_col": Out(1),
                "rows": Out(log2(config.rows) + 1),
                "word": Out(words),
                "pitch": Out(words),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        c, op, words = self._config, self.operation, self._config.derived.acc_words
        rows_left = Signal(isa.SIZE_BITS)
        cols_left = Signal(isa.SIZE_BITS)
        cols = Signal(isa.SIZE_BITS)
        narrow = Signal()  # all columns are in one block
        row = Signal(place_bits(words))  # the word of the block row's first block
        next_row = Signal.like(row)
        next_rows = Signal.like(rows_left)
        last_row = Signal()
        next_word = Signal.like(row)
        next_cols = Signal.like(cols)
        last_col = Signal()
        with m.If(self.take):
            m.d.comb += [
                next_rows.eq(op.gemm_m),
                last_row.eq(at_most(op.gemm_m, c.rows)),
                next_row.eq(place(op.c, words)),
                next_cols.eq(op.gemm_n),
                last_col.eq(at_most(op.gemm_n, c.cols)),
                next_word.eq(next_row),
            ]
        with m.Else():
            m.d.comb += [
                next_rows.eq(rows_left - c.rows),
                last_row.eq(at_most(rows_left, 2 * c.rows)),
                next_row.eq(place(row + (self.pitch << log2(c.rows)), words)),
                next_cols.eq(Mux(self.last_col, cols, cols_left - c.cols)),
                last_col.eq(Mux(self.last_col, narrow, at_most(cols_left, 2 * c.cols))),
                next_word.eq(Mux(self.last_col, next_row, place(self.word + 1, words))),
            ]
        with m.If(self.move):
            m.d.sync += [cols_left.eq(next_cols), self.last_col.eq(last_col), self.word.eq(next_word)]
        with m.If(self.move & (self.take | self.last_col)):
            m.d.sync += [
                rows_left.eq(next_rows),
                self.last_row.eq(last_row),
                self.rows.eq(Mux(last_row, next_rows, c.rows)),
                row.eq(next_row),
            ]
        with m.If(self.move & self.take):
            m.d.sync += [
                cols.eq(op.gemm_n),
                narrow.eq(last_col),
                self.pitch.eq(place(op.gemm_c_pitch, words)),
            ]
        return m


class Pace(Component):
    """Decides when a block may start: it must not drain before the last row of the previous block has.

    **Timing.** `take` and `finish` change `ready` in the next cycle.
    """

    def __init__(self, config: MachineConfig):
        self._config = config
        super().__init__(
            {
                "take": In(1),
                "depth": In(isa.SIZE_BITS),
                "finish": In(1),  # the step is the last of a block of `rows` rows
                "rows": In(log2(config.rows) + 1),
                "turn": In(1),  # ... which is the last of its operation
                "ready": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        turn = isa.TIMING.gemm_turn
        # Cycles until the drain can take a block, minus one.
        owed = Signal(range(self._config.rows + turn + 1))
        bits = len(owed)
        depth = Signal(bits)
        deep = Signal()  # at least as many steps as any block can owe
        taken, taken_deep = self.depth[:bits], self.depth[bits:].any()
        m.d.sync += [owed.eq(Mux(owed == 0, 0, owed - 1)), self.ready.eq(deep | (owed <= depth))]
        with m.If(self.finish):
            m.d.sync += [
                owed.eq(Mux(self.turn, self.rows + (turn - 1), self.rows - 1)),
                self.ready.eq(deep | (self.rows <= depth)),
            ]
        with m.If(self.take):
            m.d.sync += [
                depth.eq(taken),
                deep.eq(taken_deep),
                self.ready.eq(taken_deep | Mux(self.finish, self.rows + turn <= taken, owed <= taken)),
            ]
        return m


class Steps(Component):
    """Counts the steps of a block, at most 2^`bits`.

    **Timing.** `step` and `move` change `final` in the next cycle.
    """

    def __init__(self, bits: int):
        self._bits = bits
        super().__init__(
            {
                "take": In(1),  # the next block is the first of an operation
                "depth": In(isa.SIZE_BITS),
                "step": In(1),
                "move": In(1),  # to the next block
                "final": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        left = Signal(self._bits)  # steps after the current one
        after = Signal(self._bits)  # steps after the first one of a block
        one = Signal()
        with m.If(self.step):
            m.d.sync += [left.eq(left - 1), self.final.eq(left == 1)]
        with m.If(self.move):
            m.d.sync += [
                left.eq(Mux(self.take, self.depth - 1, after)),
                self.final.eq(Mux(self.take, self.depth == 1, one)),
            ]
        with m.If(self.move & self.take):
            m.d.sync += [after.eq(self.depth - 1), one.eq(self.depth == 1)]
        return m


class Control(Component):
    """Splits operations into blocks and steps, and drives the read and drain controls of each step.

    **Timing.** Takes an operation in cycle s and reads its first columns in s + 1 at the earliest. Blocks of
    one operation start `max(k, rows)` cycles apart. The first drain of an operation starts at least `rows +
    gemm_turn` cycles after the last drain of the previous one (`rows` of that block) has started.
    """

    def __init__(self, config: MachineConfig):
        self._config = config
        super().__init__(
            {
                "control": Out(EngineControl("gemm")),
                "read": Out(1),
                "column_a": Out(log2(config.derived.buffer_a.columns)),
                "column_b": Out(log2(config.derived.buffer_b.columns)),
                "style_a": Out(Style),
                "style_b": Out(Style),
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
        fresh = Signal()  # the block's first columns have not been read yet
        refused = Signal()  # the operation has a size of 0
        a_shape, b_shape = c.derived.buffer_a, c.derived.buffer_b
        m.submodules.a = a = Columns(a_shape, rewinds=False)
        m.submodules.b = b = Columns(b_shape, rewinds=True)
        m.submodules.blocks = blocks = Blocks(c)
        m.submodules.pace = pace = Pace(c)
        # A block with more steps than a buffer has columns never starts.
        m.submodules.steps = steps = Steps(log2(min(a_shape.columns, b_shape.columns)))

        starting = Signal()
        possible = Signal()
        # A step happens, and is the last of its block, unless the machine stops; `stop` is a late input.
        goes, ends = Signal(), Signal()
        # The next block is known before it starts. If none follows, its values are don't-care.
        first = Signal()
        move = Signal()
        take = Signal()
        empty = Signal()
        # An operation taken in the cycle of a stop does not begin.
        halted = Signal(init=1)
        m.d.sync += halted.eq(self.control.stop)
        cause = Mux(refused, isa.Cause.OPERAND, isa.Cause.BUFFER_RANGE)
        m.d.comb += [
            starting.eq(active & fresh & pace.ready & ~self.control.stop),
            possible.eq(a.inside & b.inside & ~refused),
            goes.eq(active & (~fresh | (pace.ready & possible))),
            ends.eq(goes & steps.final),
            self.read.eq(goes & ~self.control.stop),
            self.last.eq(ends & ~self.control.stop),
            first.eq(~active | (blocks.last_row & blocks.last_col)),
            move.eq(~active | ends),
            take.eq(self.control.operation.valid & move & first & ~halted),
            empty.eq((op.k == 0) | (op.gemm_m == 0) | (op.gemm_n == 0)),
            self.control.operation.ready.eq(take),
            self.control.busy.eq(self.read),
            self.control.progress.eq(self.read),
            self.control.quiet.eq(1),
            self.control.error.eq(starting & ~possible),
            *report_of(self.control.error_report, cause, d),
        ]
        with m.If(goes):
            m.d.sync += fresh.eq(steps.final)
        with m.If(move & first):
            m.d.sync += [active.eq(take), fresh.eq(1), refused.eq(empty), d.eq(op)]

        m.d.comb += [
            *[part.take.eq(first) for part in (a, b, blocks, steps)],
            *[part.move.eq(move) for part in (a, b, blocks, steps)],
            pace.take.eq(move & first),
            pace.finish.eq(ends),
            *[part.step.eq(goes) for part in (a, b, steps)],
            *[part.depth.eq(op.k) for part in (a, b, pace, steps)],
            a.first.eq(op.a),
            a.pitch.eq(op.gemm_a_pitch),
            a.advances.eq(blocks.last_col),
            b.first.eq(op.b),
            b.pitch.eq(op.gemm_b_pitch),
            b.advances.eq(~blocks.last_col),
            blocks.operation.eq(op),
            pace.rows.eq(blocks.rows),
            pace.turn.eq(blocks.last_row & blocks.last_col),
        ]
        m.d.comb += [
            self.column_a.eq(a.column),
            self.column_b.eq(b.column),
            self.style_a.zero.eq(d.gemm_zero_a),
            self.style_a.signed.eq(d.gemm_signed[0]),
            self.style_b.zero.eq(d.gemm_zero_b),
            self.style_b.signed.eq(d.gemm_signed[1]),
            self.result.address.eq(blocks.word),
            self.result.pitch.eq(blocks.pitch),
            self.result.rows.eq(blocks.rows),
            self.result.add.eq(d.variant[0]),
            self.result.last.eq(blocks.last_row & blocks.last_col),
            self.result.warp.eq(d.warp),
            self.result.pc.eq(d.pc),
        ]
        return m
