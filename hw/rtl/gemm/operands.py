"""Operands of a step: a buffer column with its lanes in order and zero points subtracted."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Signal, Value, signed
from amaranth.lib import data
from amaranth.lib.wiring import Component, In, Out

from hw.config import BufferShape
from hw.rtl.bits import log2, rotate_right
from hw.rtl.gemm.widths import ELEMENT_BITS, OPERAND_BITS
from hw.rtl.memory.buffer import BankedRead

#: How to interpret the elements of a buffer: zero point and signedness.
Style = data.StructLayout({"zero": ELEMENT_BITS, "signed": 1})


class Operands(Component):
    """Reads columns of a buffer and subtracts the zero point from each lane.

    Lane i of a column lies in bank `(i + column) mod banks`, so a column must be rotated. The larger half of
    the rotation comes after the memory, the smaller half before the subtraction.

    **Timing.** A column requested in cycle t is in `lanes` from t + 3 on, until the next one arrives. `style`
    must be valid with the request.
    """

    def __init__(self, shape: BufferShape):
        self._shape = shape
        super().__init__(
            {
                "read": In(1),
                "column": In(log2(shape.columns)),
                "style": In(Style),
                "buffer": Out(BankedRead(shape)),
                "lanes": Out(signed(OPERAND_BITS)).array(shape.lanes),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        shape = self._shape
        turns = log2(shape.banks)
        late = turns // 2  # stages of the rotation left for the second cycle
        inner = self.column[: log2(shape.lanes)]
        address = Cat(inner, self.column[turns:])[: len(self.buffer.address)]
        m.d.comb += [self.buffer.enable.eq(self.read), self.buffer.address.eq(address)]

        arrived = Signal()
        rotated = Signal()
        turn = Signal(turns)
        rest = Signal(late)
        m.d.sync += [turn.eq(self.column[:turns]), arrived.eq(self.read), rotated.eq(arrived)]
        # If there are more banks than lanes: those that the remaining rotation can move to the front.
        kept = Signal(ELEMENT_BITS * min(shape.banks, shape.lanes + (1 << late) - 1), reset_less=True)
        with m.If(arrived):
            early = rotate_right(m, self.buffer.data, turn, stages=range(late, turns))
            m.d.sync += [kept.eq(early), rest.eq(turn)]
        lanes = rotate_right(m, kept, rest, stages=range(late))

        styles = [Signal(Style, name=f"style{i}", reset_less=True) for i in range(2)]
        m.d.sync += [styles[0].eq(self.style), styles[1].eq(styles[0])]
        zero = self._read(styles[1].zero, styles[1].signed)
        operands = [
            Signal(signed(OPERAND_BITS), name=f"operand{i}", reset_less=True) for i in range(shape.lanes)
        ]
        m.d.comb += [port.eq(operand) for port, operand in zip(self.lanes, operands, strict=True)]
        with m.If(rotated):
            for i, operand in enumerate(operands):
                element = self._read(lanes.word_select(i, ELEMENT_BITS), styles[1].signed)
                m.d.sync += operand.eq(element - zero)
        return m

    @staticmethod
    def _read(element: Value, is_signed: Value) -> Value:
        """An int8 or uint8 as a nine-bit signed number."""
        return Cat(element, element[-1] & is_signed).as_signed()
