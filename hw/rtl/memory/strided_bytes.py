"""Selects every n-th byte of a beat."""

from __future__ import annotations

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib.wiring import Component, In, Out

from hw import isa
from hw.rtl.bits import log2


class StridedBytes(Component):
    """Byte c of `chosen` is byte `skip + c*stride` of the beat; if there is none, its valid bit is 0.

    `skip` must be less than `stride`, and may be clamped to the width of the beat. The `valid` bits move with
    their bytes. With stride 1 nothing moves.

    **Timing.** Combinational: a shifter, then a multiplexer over the strides.
    """

    def __init__(self, width: int):
        self._width = width
        super().__init__(
            {
                "data": In(8 * width),
                "valid": In(width),
                "skip": In(log2(width) + 1),
                "stride": In(isa.KERNEL_BITS),
                "chosen": Out(8 * width),
                "chosen_valid": Out(width),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        width = self._width
        shifted_valid, chosen_by = Signal(width), Signal(width)
        m.d.comb += [
            shifted_valid.eq(self.valid >> self.skip),
            chosen_by.eq(Cat(Const(0, 1), *(self.stride == s for s in range(1, width)))),
        ]
        self._shifts: dict[tuple[int, int], Value] = {}
        shifted = [self._shifted(m, n, self._shift_bits(n)) for n in range(width)]
        data, valid = [shifted[0]], [shifted_valid[0]]
        for c in range(1, width):
            byte, good = Signal(8, name=f"chosen{c}"), Signal(name=f"chosen_valid{c}")
            strides = range(1, (width - 1) // c + 1)
            byte_of: Value = Const(0, 8)
            good_of: Value = Const(0, 1)
            for s in strides:
                byte_of = byte_of | Mux(chosen_by[s], shifted[c * s], 0)
                good_of = good_of | (chosen_by[s] & shifted_valid[c * s])
            m.d.comb += [byte.eq(byte_of), good.eq(good_of)]
            data.append(byte)
            valid.append(good)
        m.d.comb += [self.chosen.eq(Cat(*data)), self.chosen_valid.eq(Cat(*valid))]
        return m

    def _shift_bits(self, n: int) -> int:
        """Number of bits of `skip` that affect byte n after the shift.

        Byte n > 0 is used with strides up to n, and `skip` is less than the stride; a shift beyond the beat
        leaves nothing valid.
        """
        return log2(self._width) if n == 0 else min(n - 1, self._width - 1 - n).bit_length()

    def _shifted(self, m: Module, n: int, bits: int) -> Value:
        """Byte `n + skip mod 2^bits` of the beat."""
        if bits == 0:
            return self.data.word_select(n, 8)
        if (n, bits) not in self._shifts:
            near, beyond = self._shifted(m, n, bits - 1), n + (1 << bits - 1)
            if beyond >= self._width:
                return near
            far = self._shifted(m, beyond, bits - 1)
            self._shifts[n, bits] = both = Signal(8, name=f"shifted{n}_{bits}")
            m.d.comb += both.eq(Mux(self.skip[bits - 1], far, near))
        return self._shifts[n, bits]
