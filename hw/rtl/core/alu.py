"""Scalar arithmetic of the warps: single-cycle ALU, multiplier, divider."""

from typing import Any

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, signed
from amaranth.lib import data
from amaranth.lib.wiring import Component, In, Out

from hw import isa
from hw.rtl.bits import where
from hw.rtl.core.ring import Ring

WIDTH = 32
#: Number of low bits that `lih` replaces; they can be moved separately from the high bits.
MOVE_LOW = isa.layout("lih")["imm"].width
_BINARY = list(isa.BINARY)
#: Low opcode bits of `div`, the division that returns the quotient.
QUOTIENT = _BINARY.index("div")
#: Low opcode bits of the operations that the ALU does not execute, and of the two that use the divider.
SLOW = tuple(_BINARY.index(n) for n in ("mul", "div", "rem"))
DIVIDES = tuple(_BINARY.index(n) for n in ("div", "rem"))


#: Control bits of the ALU, each with the operations that set it.
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
#: Low opcode bits of the move instructions.
_MOVES = {isa.INSTRUCTIONS[name].opcode % len(_BINARY) for name in ("li", "lih", "select")}


def alu_control(select: Value) -> dict[str, Value]:
    """Decodes the low opcode bits into ALU controls, by the fields of `AluControl`.

    A move needs the complement of its operand, as a subtraction does. The binary operations that share their
    low opcode bits with a move do not depend on `subtract`.
    """
    codes = {name: {_BINARY.index(n) for n in names} for name, names in _CONTROLS.items()}
    assert codes["subtract"] | set(SLOW) >= _MOVES
    codes["subtract"] |= _MOVES
    return {name: Cat(select == code for code in sorted(found)).any() for name, found in codes.items()}


class Alu(Component):
    """The single-cycle binary operations, selected by `control` (see `alu_control`).

    With `enable`, `result` is the result of the operation, or 0 if the operation takes more than one cycle.
    Without `enable`, `result` is a move of `b`: `move_low` passes the lower `MOVE_LOW` bits, `move_high` the
    rest, `takes` the whole word (a late input). `other` is ORed into the result.

    **Timing.** The result comes in the next cycle. `min` and `max` select their operand there.
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
        # One adder for sums, differences and comparisons; for the latter two, `right` is the complement of b.
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
        # Sources that are not selected are 0, so an OR replaces the multiplexer.
        m.d.comb += self.result.eq(
            known | self._shift(m) | compared | where(takes_a, kept_a) | where(takes_b, kept_b)
        )
        return m

    def _shift(self, m: Module) -> Value:
        """All shifts with one right shifter; a left shift reverses the bits before and after it.

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
    """The low half of a 32-bit product.

    **Timing.** `product` in cycle t + 1 is the product of `a` and `b` of cycle t.
    """

    a: In(signed(WIDTH))
    b: In(signed(WIDTH))
    product: Out(WIDTH)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        # The sum of three half-width products.
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
    """Floor division for all warps, one bit per turn of the warp.

    `start`, in a turn of the warp, begins the division of `a` by `b`; `quotient` selects the quotient,
    otherwise the result is the remainder. `DIV_TURNS` - 1 turns later `done` is 1 and `result` is valid.
    `result` is undefined in other turns.

    **Timing.** Fixed latency, independent of the operands.
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
        # The turn before the last one computes r; it is not a division step.
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
        """Restoring division, one bit per turn, high bit first.

        Let s be the sign of the divisor. The dividend a becomes d = -a if s, else a. The unsigned division by
        |b| divides d, or ~d if d is negative. For negative d, a = q*b + r has q = ~q' and r = s ? b + r' + 1
        : b + ~r'; otherwise q = q' and r = s ? -r' : r'. So one adder computes d, the steps, and r.
        `complement` means that d is negative, `flip` that its sign differs from s.
        """
        sign, step = now.divisor[-1], now.step
        left, right, total = Signal(WIDTH), Signal(WIDTH), Signal(WIDTH + 1)
        goes, negative = Signal(), Signal()
        m.d.comb += [
            left.eq(Mux(step, Cat(now.quotient[-1], now.rest[:-1]), now.rest ^ now.flip.replicate(WIDTH))),
            right.eq(Mux(step, now.divisor ^ (~sign).replicate(WIDTH), where(now.complement, now.divisor))),
            total.eq((Cat(Const(1, 1), left) + Cat(step ^ sign, right))[1:]),
            goes.eq(total[-1]),
            # -(-2^31) is the only non-negative result with its sign bit set.
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
