"""Scalar arithmetic of the warps: operations of one cycle, multiplier, divider."""

from typing import Any

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, signed
from amaranth.lib import data
from amaranth.lib.wiring import Component, In, Out

from hw import isa
from hw.rtl.bits import where
from hw.rtl.core.ring import Ring

WIDTH = 32
#: Lower bits that can be moved without the others: those that `lih` replaces.
MOVE_LOW = isa.layout("lih")["imm"].width
_BINARY = list(isa.BINARY)
#: Low opcode bits of the division that gives the quotient.
QUOTIENT = _BINARY.index("div")
#: Low opcode bits of the operations that the ALU does not do, and of those that divide.
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
    others with `move_high`, or all of it with `takes`, which may come late. The bits of `other` are 1 in the
    result, too.

    **Timing.** The result comes in the next cycle. What a comparison chooses is chosen there.
    """

    enable: In(1)
    move_low: In(1)
    move_high: In(1)
    control: In(AluControl)
    a: In(signed(WIDTH))
    b: In(signed(WIDTH))
    takes: In(1)
    other: In(WIDTH)
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
        combines = self.enable & control.logic
        logics = Cat(
            (combines | self.move_low).replicate(MOVE_LOW),
            (combines | self.move_high).replicate(WIDTH - MOVE_LOW),
        )
        compared, takes_a, takes_b = Signal(), Signal(), Signal()
        kept_a, kept_b, known = (Signal(WIDTH, name=n) for n in ("kept_a", "kept_b", "known"))
        m.d.sync += [
            compared.eq(
                (equal & self.enable & control.if_equal)
                | (~equal & self.enable & control.if_different)
                | (less & self.enable & control.if_less)
            ),
            takes_a.eq(self.enable & Mux(less, control.min, control.max)),
            takes_b.eq((self.enable & Mux(less, control.max, control.min)) | self.takes),
            kept_a.eq(a),
            kept_b.eq(self.b),
            known.eq(where(self.enable & control.sum, total) | (logic & logics) | self.other),
        ]
        # What is not chosen is 0, so that no multiplexer is needed.
        m.d.comb += self.result.eq(
            known | self._shift(m) | compared | where(takes_a, kept_a) | where(takes_b, kept_b)
        )
        return m

    def _shift(self, m: Module) -> Value:
        """Shifts, all to the right: to the left with the bits in reverse order, before and after.

        The result comes in the next cycle.
        """
        left, right = self.control.shift_left, self.control.shift_right
        fill, shifted = Signal(), Signal(WIDTH, name="shift_in")
        m.d.comb += [fill.eq(self.a[-1] & right), shifted.eq(Mux(left, self.a[::-1], self.a[:]))]
        for stage in reversed(range(5)):
            further = Signal(WIDTH, name=f"shift_{stage}")
            moved = Cat(shifted[1 << stage :], fill.replicate(1 << stage))
            m.d.comb += further.eq(Mux(self.b[stage], moved, shifted))
            shifted = further
        kept, to_right, to_left = Signal(WIDTH, name="shift_out"), Signal(), Signal()
        m.d.sync += [kept.eq(shifted), to_right.eq(self.enable & right), to_left.eq(self.enable & left)]
        return where(to_right, kept) | where(to_left, kept[::-1])


class Multiplier(Component):
    """The low half of a product.

    **Timing.** What `a` and `b` are in cycle t is multiplied in `product` in t + 1.
    """

    a: In(signed(WIDTH))
    b: In(signed(WIDTH))
    product: Out(WIDTH)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        # Three products of halves.
        half = WIDTH // 2
        low, cross = Signal(WIDTH), [Signal(half, name=f"cross{i}") for i in range(2)]
        m.d.sync += [
            low.eq(self.a[:half] * self.b[:half]),
            cross[0].eq(self.a[half:] * self.b[:half]),
            cross[1].eq(self.a[:half] * self.b[half:]),
        ]
        m.d.comb += self.product.eq(Cat(low[:half], (low[half:] + (cross[0] + cross[1])[:half])[:half]))
        return m


class Divider(Component):
    """Floor division for all warps, a bit in each turn of the warp.

    In the turn of a warp `start` begins a division of `a` by `b`, which `quotient` asks for the quotient or
    the remainder; `DIV_TURNS` - 1 turns later `done` is 1, with `result`, which means nothing in other turns.

    **Timing.** Fixed, whatever the operands.
    """

    def __init__(self, period: int):
        self._period = period
        super().__init__(
            {
                "start": In(1),
                "quotient": In(1),
                "a": In(signed(WIDTH)),
                "b": In(signed(WIDTH)),
                "done": Out(1),
                "result": Out(WIDTH),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        layout = {"count": range(isa.DIV_TURNS), "first": 1, "step": 1}
        layout |= {"wanted": 1, "complement": 1, "flip": 1}
        layout |= dict.fromkeys(("rest", "divisor", "quotient"), WIDTH)
        state = Ring(m, data.StructLayout(layout), self._period, "state")
        now, then = state.now, state.then
        self._step(m, now, then)
        # The last turn but one, in which r is made, is no step.
        m.d.comb += [then.first.eq(self.start), then.step.eq(~self.start & (now.count != 3))]
        with m.If(now.count != 0):
            m.d.comb += then.count.eq(now.count - 1)
        with m.If(self.start):
            m.d.comb += [
                then.count.eq(isa.DIV_TURNS - 1),
                then.wanted.eq(self.quotient),
                then.rest.eq(self.a),
                then.divisor.eq(self.b),
                then.complement.eq(0),
                then.flip.eq(self.b[-1]),
            ]
        m.d.comb += [
            self.done.eq(now.count == 1),
            self.result.eq(Mux(now.wanted, now.quotient ^ now.complement.replicate(WIDTH), now.rest)),
        ]
        return m

    def _step(self, m: Module, now: Any, then: Any) -> None:
        """Restoring division, one bit a turn, high bit first.

        With s the sign of the divisor, the dividend a becomes d = -a if s, else a; what is divided by |b| is
        d, or ~d where d is negative. There, a = q*b + r has q = ~q' and r = s ? b + r' + 1 : b + ~r'; else
        q = q' and r = s ? -r' : r'. So one adder makes d, the steps, and r. `complement` says that d is
        negative, `flip` that s is not the same.
        """
        sign, step = now.divisor[-1], now.step
        left, right, total = Signal(WIDTH), Signal(WIDTH), Signal(WIDTH + 1)
        goes, negative = Signal(), Signal()
        m.d.comb += [
            left.eq(Mux(step, Cat(now.quotient[-1], now.rest[:-1]), now.rest ^ now.flip.replicate(WIDTH))),
            right.eq(Mux(step, now.divisor ^ (~sign).replicate(WIDTH), where(now.complement, now.divisor))),
            total.eq((Cat(Const(1, 1), left) + Cat(step ^ sign, right))[1:]),
            goes.eq(total[-1]),
            # -2^31, negated, is the one that is not negative though its sign bit is set.
            negative.eq(total[WIDTH - 1] & ~(sign & now.rest[-1])),
            then.rest.eq(Mux(step & ~goes, left, total[:WIDTH])),
        ]
        with m.If(now.first):
            m.d.comb += [
                then.complement.eq(negative),
                then.flip.eq(sign ^ negative),
                then.quotient.eq(total[:WIDTH] ^ negative.replicate(WIDTH)),
                then.rest.eq(0),
            ]
        with m.Elif(step):
            m.d.comb += then.quotient.eq(Cat(goes, now.quotient[:-1]))
