"""The array: rows of multiply-accumulate units, each row one cycle behind the row above."""

from __future__ import annotations

from functools import reduce
from operator import or_

from amaranth.hdl import Cat, Module, Mux, Signal, Value, signed
from amaranth.lib.wiring import Component, In, Out

from hw.config import MachineConfig
from hw.rtl.gemm.widths import OPERAND_BITS, PRODUCT_BITS, block_bits


class MacUnit(Component):
    """One multiply-accumulate unit: multiplies two operands per step and sums the products of a block.

    **Timing.** The operands of a step are valid in cycle t, with `step`; their product is added in t + 1,
    with `add`, and with `end` if it is the last of a block. With `show` in t + 1, the sum is in `shown` in t
    + 2. Otherwise `shown` is 0, so that rows can be merged with an OR.
    """

    def __init__(self, config: MachineConfig):
        bits = block_bits(config)
        super().__init__(
            {
                "a": In(signed(OPERAND_BITS)),
                "b": In(signed(OPERAND_BITS)),
                "step": In(1),
                "add": In(1),
                "end": In(1),
                "show": In(1),
                "next_b": Out(signed(OPERAND_BITS)),
                "shown": Out(signed(bits)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        product = Signal(signed(PRODUCT_BITS), reset_less=True)
        total = Signal(len(self.shown), reset_less=True)
        shown = Signal(len(self.shown), reset_less=True)
        next_b = Signal(signed(OPERAND_BITS), reset_less=True)
        m.d.comb += [self.shown.eq(shown), self.next_b.eq(next_b)]
        with m.If(self.step):
            m.d.sync += [product.eq(self.a * self.b), next_b.eq(self.b)]
        with m.If(self.add):
            m.d.sync += total.eq(Mux(self.end, 0, total + product))
        # The sum after the last step is the result; `total` restarts at 0, so no step needs a multiplexer.
        # The operands are swapped here: a simulator then adds only if the sum is shown, and synthesis shares
        # the adder.
        m.d.sync += shown.eq(Mux(self.show, product + total, 0))
        return m


class Row(Component):
    """A row of units: all share one operand of A, each has its own of B, which it passes to the next row.

    **Timing.** Operands of B and control signals of cycle t reach the next row in t + 1. A block whose last
    step comes in t is shown in t + 2 if `shows` came with it.
    """

    def __init__(self, config: MachineConfig):
        self._config = config
        operands = signed(OPERAND_BITS)
        super().__init__(
            {
                "a": In(operands),
                "b": In(operands).array(config.cols),
                "step": In(1),
                "last": In(1),
                "shows": In(1),
                "next_b": Out(operands).array(config.cols),
                "next_step": Out(1),
                "next_last": Out(1),
                "next_shows": Out(1),
                "showing": Out(1),
                "shown": Out(signed(block_bits(config))).array(config.cols),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        add = Signal(init=1)  # reset ends a block, so that totals need no reset
        end = Signal(init=1)
        m.d.sync += [
            self.next_step.eq(self.step),
            self.next_last.eq(self.last),
            self.next_shows.eq(self.shows),
            self.showing.eq(self.next_shows),
            add.eq(self.step),
            end.eq(self.last),
        ]
        for i in range(self._config.cols):
            m.submodules[f"unit{i}"] = unit = MacUnit(self._config)
            m.d.comb += [
                unit.a.eq(self.a),
                unit.b.eq(self.b[i]),
                unit.step.eq(self.step),
                unit.add.eq(add),
                unit.end.eq(end),
                unit.show.eq(self.next_shows),
                self.next_b[i].eq(unit.next_b),
                self.shown[i].eq(unit.shown),
            ]
        return m


class Array(Component):
    """Rows of multiply-accumulate units. Unit (r, c) multiplies lane r of A by lane c of B.

    Operands of B move down from row to row, and those of A are delayed by as many cycles: row r is r cycles
    behind row 0. So no operand drives more units than one row has, and the rows of a block finish one after
    another, in the order in which they drain.

    **Timing.** The operands of a step are valid in cycle t, with `step`, and with `last` if it is the last of
    a block. Row r of the block is in `row` in t + 3 + r, unless row 0 of the next block is there by then.
    """

    def __init__(self, config: MachineConfig):
        self._config = config
        super().__init__(
            {
                "a": In(signed(OPERAND_BITS)).array(config.rows),
                "b": In(signed(OPERAND_BITS)).array(config.cols),
                "step": In(1),
                "last": In(1),
                "row": Out(signed(block_bits(config))).array(config.cols),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        c = self._config
        rows = [Row(c) for _ in range(c.rows)]
        m.d.comb += [
            rows[0].a.eq(self.a[0]),
            *[rows[0].b[i].eq(self.b[i]) for i in range(c.cols)],
            rows[0].step.eq(self.step),
            rows[0].last.eq(self.last),
            rows[0].shows.eq(self.last),
        ]
        # Operands of A, delayed on their way to lower rows.
        waiting: list[Value] = [self.a[r] for r in range(1, c.rows)]
        for r, row in enumerate(rows):
            m.submodules[f"row{r}"] = row
            if r == 0:
                continue
            above = rows[r - 1]
            later = [
                Signal(signed(OPERAND_BITS), name=f"a{n}_{r}", reset_less=True) for n in range(r, c.rows)
            ]
            with m.If(above.step):
                m.d.sync += [after.eq(before) for before, after in zip(waiting, later, strict=True)]
            m.d.comb += [
                row.a.eq(later[0]),
                *[row.b[i].eq(above.next_b[i]) for i in range(c.cols)],
                row.step.eq(above.next_step),
                row.last.eq(above.next_last),
                # Once the next block ends, the rows below are not part of this block.
                row.shows.eq(above.next_shows & ~self.last),
            ]
            waiting = later[1:]
        merged = [Signal.like(row, name=f"merged{i}", reset_less=True) for i, row in enumerate(self.row)]
        m.d.comb += [port.eq(row) for port, row in zip(self.row, merged, strict=True)]
        with m.If(Cat(row.showing for row in rows).any()):
            m.d.sync += [merged[i].eq(reduce(or_, (row.shown[i] for row in rows))) for i in range(c.cols)]
        return m
