"""The array: rows of multiply-accumulate units, each row a cycle behind the one above."""

from __future__ import annotations

from functools import reduce
from operator import or_

from amaranth.hdl import Module, Signal, Value, signed
from amaranth.lib import data
from amaranth.lib.wiring import Component, In, Out

from hw.config import MachineConfig
from hw.rtl.gemm.widths import OPERAND_BITS, PRODUCT_BITS, block_bits


class MacUnit(Component):
    """Multiplies two operands in each step and adds up the products of a block.

    **Timing.** Operands of a step are there in cycle t, with `step`; their product is added in t + 1, with
    `add`, and with `end` if it is the last of a block. With `show`, the sum is in `shown` in t + 2.
    Otherwise `shown` is 0, so that an OR merges rows.
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
                "shown": Out(signed(bits)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        product = Signal(signed(PRODUCT_BITS), reset_less=True)
        total = Signal.like(self.shown)
        following = Signal.like(self.shown)
        m.d.comb += following.eq(total + product)
        with m.If(self.step):
            m.d.sync += product.eq(self.a * self.b)
        with m.If(self.add):
            m.d.sync += total.eq(following)
        # The last step's sum is the block; the total begins again at 0, so no step has to choose.
        with m.If(self.end):
            m.d.sync += total.eq(0)
        m.d.sync += self.shown.eq(0)
        with m.If(self.show):
            m.d.sync += self.shown.eq(following)
        return m


class Row(Component):
    """A row of units: one operand of A for all, one of B for each; B and control go on to the next row.

    **Timing.** What comes in cycle t goes on in t + 1. A block whose last step comes in t is shown
    in t + 2 if `shows` came with it.
    """

    def __init__(self, config: MachineConfig):
        self._config = config
        operands = data.ArrayLayout(signed(OPERAND_BITS), config.cols)
        super().__init__(
            {
                "a": In(signed(OPERAND_BITS)),
                "b": In(operands),
                "step": In(1),
                "last": In(1),
                "shows": In(1),
                "next_b": Out(operands),
                "next_step": Out(1),
                "next_last": Out(1),
                "next_shows": Out(1),
                "shown": Out(data.ArrayLayout(signed(block_bits(config)), config.cols)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.d.sync += [
            self.next_step.eq(self.step),
            self.next_last.eq(self.last),
            self.next_shows.eq(self.shows),
        ]
        with m.If(self.step):
            m.d.sync += self.next_b.eq(self.b)
        for i in range(self._config.cols):
            m.submodules[f"unit{i}"] = unit = MacUnit(self._config)
            m.d.comb += [
                unit.a.eq(self.a),
                unit.b.eq(self.b[i]),
                unit.step.eq(self.step),
                unit.add.eq(self.next_step),
                unit.end.eq(self.next_last),
                unit.show.eq(self.next_shows),
                self.shown[i].eq(unit.shown),
            ]
        return m


class Array(Component):
    """Rows of multiply-accumulate units. Unit (r, c) multiplies lane r of A by lane c of B.

    Operands of B go down from row to row, those of A wait as long: row r is r cycles behind row 0. So no
    operand is led to more units than a row has, and the rows of a block end one after another, as they drain.

    **Timing.** Operands of a step are there in cycle t, with `step`, and with `last` if it is the last of a
    block. Row r of the block is in `row` in t + 3 + r, unless the next block's row 0 is by then.
    """

    def __init__(self, config: MachineConfig):
        self._config = config
        super().__init__(
            {
                "a": In(data.ArrayLayout(signed(OPERAND_BITS), config.rows)),
                "b": In(data.ArrayLayout(signed(OPERAND_BITS), config.cols)),
                "step": In(1),
                "last": In(1),
                "row": Out(data.ArrayLayout(signed(block_bits(config)), config.cols)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        c = self._config
        rows = [Row(c) for _ in range(c.rows)]
        m.d.comb += [
            rows[0].a.eq(self.a[0]),
            rows[0].b.eq(self.b),
            rows[0].step.eq(self.step),
            rows[0].last.eq(self.last),
            rows[0].shows.eq(self.last),
        ]
        # Operands of A on their way to lower rows.
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
                row.b.eq(above.next_b),
                row.step.eq(above.next_step),
                row.last.eq(above.next_last),
                # Rows that the next block cuts off are not part of this one.
                row.shows.eq(above.next_shows & ~self.last),
            ]
            waiting = later[1:]
        m.d.sync += Value.cast(self.row).eq(reduce(or_, (Value.cast(row.shown) for row in rows)))
        return m
