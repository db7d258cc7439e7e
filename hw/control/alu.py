"""Scalar arithmetic of a warp: one-cycle operations, multiplier, divider."""

from amaranth.hdl import Cat, Module, Mux, Signal, signed
from amaranth.lib.wiring import Component, In, Out

from hw import isa

_BINARY = list(isa.BINARY)


class Alu(Component):
    """The one-cycle binary operations, selected by the low opcode bits (order of `isa.BINARY`).

    **Timing.** Combinational.
    """

    select: In(4)
    a: In(signed(32))
    b: In(signed(32))
    result: Out(32)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        less, equal = Signal(), Signal()
        m.d.comb += [less.eq(self.a < self.b), equal.eq(self.a == self.b)]
        values = {
            "add": self.a + self.b,
            "sub": self.a - self.b,
            "min": Mux(less, self.a, self.b),
            "max": Mux(less, self.b, self.a),
            "and": self.a & self.b,
            "or": self.a | self.b,
            "xor": self.a ^ self.b,
            "shl": (self.a << self.b[:5].as_unsigned())[:32],
            "shr": self.a >> self.b[:5].as_unsigned(),
            "eq": equal,
            "ne": ~equal,
            "lt": less,
            "le": less | equal,
        }
        with m.Switch(self.select):
            for name, value in values.items():
                with m.Case(_BINARY.index(name)):
                    m.d.comb += self.result.eq(value)
        return m


class MultiplyDivide(Component):
    """Multiplier and floor divider, one operation at a time.

    `start` in cycle t latches the operands; `done` is 1, with `result`, in cycle t + 2 for a product and
    in t + 35 for `div` and `rem`, so that the instruction after them executes `MUL_CYCLES` or
    `DIV_CYCLES` after t.

    **Timing.** Fixed, whatever the operands.
    """

    start: In(1)
    select: In(4)
    a: In(signed(32))
    b: In(signed(32))
    done: Out(1)
    result: Out(32)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        a, b = Signal(signed(32)), Signal(signed(32))
        product = Signal(32)
        kind = Signal(4)
        count = Signal(range(isa.DIV_CYCLES + 1))
        quotient, remainder = Signal(32), Signal(32)
        divisor = Signal(32)
        is_mul = kind == _BINARY.index("mul")
        m.d.sync += product.eq((a * b)[:32])
        with m.If(self.start):
            m.d.sync += [a.eq(self.a), b.eq(self.b), kind.eq(self.select)]
            m.d.sync += count.eq(
                Mux(self.select == _BINARY.index("mul"), isa.MUL_CYCLES - 1, isa.DIV_CYCLES - 1)
            )
        with m.Elif(count != 0):
            m.d.sync += count.eq(count - 1)

        # Restoring division of the magnitudes, one bit a cycle, high bit first.
        first = count == isa.DIV_CYCLES - 1
        shifted = Signal(33)
        m.d.comb += shifted.eq(Cat(quotient[31], remainder))
        goes = Signal()
        m.d.comb += goes.eq(shifted >= divisor)
        with m.If(first):
            m.d.sync += [
                quotient.eq(Mux(a[31], -a, a)),
                divisor.eq(Mux(b[31], -b, b)),
                remainder.eq(0),
            ]
        with m.Elif(count > 2):
            m.d.sync += [
                quotient.eq(Cat(goes, quotient[:31])),
                remainder.eq(Mux(goes, shifted - divisor, shifted)),
            ]

        # Signs: towards minus infinity, remainder with the sign of the divisor.
        opposite = a[31] ^ b[31]
        inexact = remainder != 0
        fixed_quotient, fixed_remainder = Signal(32), Signal(32)
        with m.If(count == 2):
            m.d.sync += [
                fixed_quotient.eq(Mux(opposite, Mux(inexact, ~quotient, -quotient), quotient)),
                fixed_remainder.eq(
                    Mux(
                        inexact & opposite,
                        Mux(b[31], remainder - divisor, divisor - remainder),
                        Mux(a[31], -remainder, remainder),
                    )
                ),
            ]
        m.d.comb += [
            self.done.eq(count == 1),
            self.result.eq(
                Mux(is_mul, product, Mux(kind == _BINARY.index("div"), fixed_quotient, fixed_remainder))
            ),
        ]
        return m


#: Bits that a binary operation needs beyond one cycle.
SLOW = tuple(_BINARY.index(n) for n in ("mul", "div", "rem"))
DIVIDES = tuple(_BINARY.index(n) for n in ("div", "rem"))
