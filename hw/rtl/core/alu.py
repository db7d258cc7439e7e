"""Scalar arithmetic of a warp: one-cycle operations, multiplier, divider."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, signed
from amaranth.lib import data
from amaranth.lib.wiring import Component, In, Out

from hw import isa
from hw.rtl.bits import where

WIDTH = 32
#: Lower bits that can be moved without the others: those that `lih` replaces.
MOVE_LOW = isa.layout("lih")["imm"].width
_BINARY = list(isa.BINARY)
_MUL = _BINARY.index("mul")
_DIV = _BINARY.index("div")
#: Low opcode bits of the operations that take more than one cycle, and of those that divide.
SLOW = tuple(_BINARY.index(n) for n in ("mul", "div", "rem"))
DIVIDES = tuple(_BINARY.index(n) for n in ("div", "rem"))


#: What the ALU is told of an operation: the operations for which each bit is 1.
_CONTROLS = {
    "subtract": ("sub", "min", "max", "eq", "ne", "lt", "le"),
    "sum": ("add", "sub"),
    "logic": ("and", "or", "xor"),
    "and": ("and",),
    "or": ("or",),
    "shift_left": ("shl",),
    "shift_right": ("shr",),
    "min": ("min",),
    "max": ("max",),
    "if_equal": ("eq", "le"),
    "if_different": ("ne",),
    "if_less": ("lt", "le"),
}
AluControl = data.StructLayout(dict.fromkeys(_CONTROLS, 1))
#: Low opcode bits of the instructions that move.
_MOVES = {isa.INSTRUCTIONS[name].opcode % len(_BINARY) for name in ("li", "lih", "select")}


def alu_control(select: Value) -> dict[str, Value]:
    """What the low opcode bits tell the ALU, by the fields of `AluControl`.

    A move needs the complement of its operand, as a subtraction does. Of the binary operations with the low
    bits of a move, none needs it otherwise.
    """
    codes = {name: {_BINARY.index(n) for n in names} for name, names in _CONTROLS.items()}
    assert codes["subtract"] | set(SLOW) >= _MOVES
    codes["subtract"] |= _MOVES
    return {name: Cat(select == code for code in sorted(found)).any() for name, found in codes.items()}


class Alu(Component):
    """The one-cycle binary operations, as `control` tells (`alu_control`).

    `result` is that of the operation with `enable`, and 0 without it or where the operation takes more
    cycles. For a move, without `enable`, it is `b`: of the lower `MOVE_LOW` bits with `move_low`, of the
    others with `move_high`.

    **Timing.** Combinational.
    """

    enable: In(1)
    move_low: In(1)
    move_high: In(1)
    control: In(AluControl)
    a: In(signed(WIDTH))
    b: In(signed(WIDTH))
    result: Out(WIDTH)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        a, control = Signal(WIDTH), self.control
        # One adder for sums, differences and comparisons; `right` is the complement of b for the latter two.
        right, total = Signal(WIDTH), Signal(WIDTH)
        m.d.comb += [
            a.eq(self.a),
            right.eq(self.b ^ control.subtract.replicate(WIDTH)),
            total.eq((Cat(Const(1, 1), a) + Cat(control.subtract, right))[1:]),
        ]
        less, equal = Signal(), Signal()
        m.d.comb += [
            less.eq(Mux(a[-1] == right[-1], a[-1], total[-1])),
            equal.eq(a == self.b.as_unsigned()),
        ]
        logic = Signal(WIDTH)
        with m.If(~control.logic):
            m.d.comb += logic.eq(~right)
        with m.Elif(control["and"]):
            m.d.comb += logic.eq(a & right)
        with m.Elif(control["or"]):
            m.d.comb += logic.eq(a | right)
        with m.Else():
            m.d.comb += logic.eq(a ^ right)
        compared, takes_a, takes_b = Signal(), Signal(), Signal()
        m.d.comb += [
            compared.eq(
                (equal & self.enable & control.if_equal)
                | (~equal & self.enable & control.if_different)
                | (less & self.enable & control.if_less)
            ),
            takes_a.eq(self.enable & Mux(less, control.min, control.max)),
            takes_b.eq(self.enable & Mux(less, control.max, control.min)),
        ]
        combines = self.enable & control.logic
        logics = Cat(
            (combines | self.move_low).replicate(MOVE_LOW),
            (combines | self.move_high).replicate(WIDTH - MOVE_LOW),
        )
        # What is not chosen is 0, so that no multiplexer is needed.
        m.d.comb += self.result.eq(
            where(self.enable & control.sum, total)
            | (logic & logics)
            | self._shift(m)
            | compared
            | where(takes_a, a)
            | where(takes_b, ~right)
        )
        return m

    def _shift(self, m: Module) -> Value:
        """Shifts as a turn to the right, in which bits that come round are replaced; 0 if there is none.

        To the left by n it is one place and then 31 - n: no subtraction is needed.
        """
        left, right = self.control.shift_left, self.control.shift_right
        keeps_low, keeps_high = Signal(), Signal()
        amount = Signal(5)
        turned, inside, kept, moved = (Signal(WIDTH, name=n) for n in ("turned", "inside", "kept", "moved"))
        begin = Mux(left, Cat(self.a[1:], self.a[0]), self.a[:])
        m.d.comb += [
            keeps_low.eq(self.enable & right),
            keeps_high.eq(self.enable & left),
            amount.eq(self.b[:5] ^ left.replicate(5)),
            turned.eq(Cat(begin, begin) >> amount),
            inside.eq(Const((1 << WIDTH) - 1, WIDTH) >> amount),
            # To the right the bits below 32 - n stay, to the left those from n on.
            kept.eq(where(keeps_low, inside) | where(keeps_high, ~Cat(inside[1:], Const(0, 1)))),
            moved.eq((turned & kept) | where(self.a[-1] & keeps_low, ~inside)),
        ]
        return moved


class MultiplyDivide(Component):
    """Multiplier and floor divider, one operation at a time.

    `start` in cycle t latches the operands; `done` is 1, with `result`, in cycle t + 2 for a product and
    in t + 35 for `div` and `rem`, so that the instruction after them executes `MUL_CYCLES` or
    `DIV_CYCLES` after t. In every other cycle `result` is 0.

    **Timing.** Fixed, whatever the operands.
    """

    start: In(1)
    select: In(4)
    a: In(signed(WIDTH))
    b: In(signed(WIDTH))
    done: Out(1)
    result: Out(WIDTH)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        count = Signal(range(isa.DIV_CYCLES))
        multiplies, quotient_wanted = Signal(), Signal()
        rest, divisor, quotient = Signal(WIDTH), Signal(WIDTH), Signal(WIDTH)
        with m.If(self.start):
            m.d.sync += [
                divisor.eq(self.b),
                multiplies.eq(self.select == _MUL),
                quotient_wanted.eq(self.select == _DIV),
                count.eq(Mux(self.select == _MUL, isa.MUL_CYCLES - 1, isa.DIV_CYCLES - 1)),
            ]
        with m.Elif(count != 0):
            m.d.sync += count.eq(count - 1)
        complement = self._divide(m, count, rest, divisor, quotient)
        product = self._multiply(m, rest, divisor)
        m.d.comb += [
            self.done.eq(count == 1),
            self.result.eq(
                where(self.done & multiplies, product)
                | where(self.done & quotient_wanted, quotient ^ complement.replicate(WIDTH))
                | where(self.done & ~multiplies & ~quotient_wanted, rest)
            ),
        ]
        return m

    def _multiply(self, m: Module, a: Signal, b: Signal) -> Value:
        """The low half of a product, of three products of halves."""
        half = WIDTH // 2
        low, cross = Signal(WIDTH), [Signal(half, name=f"cross{i}") for i in range(2)]
        m.d.sync += [
            low.eq(a[:half] * b[:half]),
            cross[0].eq(a[half:] * b[:half]),
            cross[1].eq(a[:half] * b[half:]),
        ]
        return Cat(low[:half], (low[half:] + (cross[0] + cross[1])[:half])[:half])

    def _divide(self, m: Module, count: Signal, rest: Signal, divisor: Signal, quotient: Signal) -> Value:
        """Restoring division, one bit a cycle, high bit first; returns whether the quotient is a complement.

        With s the sign of the divisor, the dividend a becomes d = -a if s, else a; what is divided by |b| is
        d, or ~d where d is negative. There, a = q*b + r has q = ~q' and r = s ? b + r' + 1 : b + ~r'; else
        q = q' and r = s ? -r' : r'. So one adder makes d, the steps, and r.
        """
        first, last, step = Signal(), Signal(), Signal()
        sign, complement = divisor[-1], Signal()
        left, right, total = Signal(WIDTH), Signal(WIDTH), Signal(WIDTH + 1)
        flip = Signal()
        m.d.comb += [
            first.eq(count == isa.DIV_CYCLES - 1),
            last.eq(count == 2),
            step.eq(~first & ~last),
            flip.eq(sign ^ complement),
            left.eq(Mux(step, Cat(quotient[-1], rest[:-1]), rest ^ flip.replicate(WIDTH))),
            right.eq(
                Mux(
                    step,
                    divisor ^ (~sign).replicate(WIDTH),
                    where(complement, divisor),
                )
            ),
            total.eq((Cat(Const(1, 1), left) + Cat(step ^ sign, right))[1:]),
        ]
        goes, negative = total[-1], Signal()
        # -2^31, negated, is the one that is not negative though its sign bit is set.
        m.d.comb += negative.eq(total[WIDTH - 1] & ~(sign & rest[-1]))
        m.d.sync += rest.eq(Mux(step & ~goes, left, total[:WIDTH]))
        with m.If(first):
            m.d.sync += [
                complement.eq(negative),
                quotient.eq(total[:WIDTH] ^ negative.replicate(WIDTH)),
                rest.eq(0),
            ]
        with m.Elif(step):
            m.d.sync += quotient.eq(Cat(goes, quotient[:-1]))
        with m.If(self.start):
            m.d.sync += [rest.eq(self.a), complement.eq(0)]
        return complement
