"""The units of a processing element that compute: ALU and multiplier."""

from collections.abc import Iterable

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, signed
from amaranth.lib import data
from amaranth.lib.wiring import Component, In, Out

from hw.fabric import PEKind
from hw.fabric.operations import OPERATIONS
from hw.rtl.bits import from_mask, where

WIDTH = 32
#: Attributes of memories that are block RAM although they have few words. What is read while it is
#: written is never used.
BLOCK_RAM = {"ram_style": "block", "no_rw_check": 1}
#: Bits of a product's shift amount.
_SHIFT_BITS = 6


def is_operation(op: Value, kind: PEKind, *names: str) -> Value:
    """Whether an operation's number is that of one of these, out of those that a kind of PE executes."""
    known = [OPERATIONS[name] for name in names]
    return Cat(op == operation.number for operation in known if kind.executes(operation)).any()


def any_of(values: Iterable[Value]) -> Value:
    """The bits that are 1 in any of some values, as a balanced tree; 0 if there is none."""
    found = list(values)
    while len(found) > 1:
        pairs = [a | b for a, b in zip(found[::2], found[1::2], strict=False)]
        found = pairs + found[len(found) & ~1 :]
    return found[0] if found else Const(0, WIDTH)


#: What an ALU does, one bit for every operation or property of some.
AluControl = data.StructLayout(
    dict.fromkeys(
        (
            *("subtract", "total", "both", "odd", "shift", "left", "arithmetic", "zeros"),
            *("compare", "on_less", "on_equal", "invert", "mov", "min", "max", "select", "abs"),
        ),
        1,
    )
)


def alu_control(op: Value, kind: PEKind) -> dict[str, Value]:
    """The members of `AluControl` for the number of an operation; 0 for one that a kind of PE lacks.

    `const` is a copy (`mov`) of operand A. `abs` has its operand as B, and 0 as A.
    """

    def among(*names: str) -> Value:
        return is_operation(op, kind, *names)

    return {
        "subtract": ~among("add"),
        "total": among("add", "sub"),
        "both": among("and", "or"),
        "odd": among("or", "xor"),
        "shift": among("shl", "shr", "shr_logical"),
        "left": among("shl"),
        "arithmetic": among("shr"),
        "zeros": among("clz"),
        "compare": among("lt", "le", "gt", "ge", "eq", "ne"),
        "on_less": among("lt", "le", "gt", "ge"),
        "on_equal": among("le", "gt", "eq", "ne"),
        "invert": among("gt", "ge", "ne"),
        "mov": among("mov", "const"),
        "min": among("min"),
        "max": among("max"),
        "select": among("select"),
        "abs": among("abs"),
    }


class Alu(Component):
    """The operations of latency 1 of `hw.fabric.operations`; `y` is 0 where `holds` is, or nothing is done.

    `control` comes from `alu_control`, registered, so that nothing is worked out from the operation's number
    while operands wait.

    **Timing.** Combinational.
    """

    control: In(AluControl)
    holds: In(1)
    a: In(WIDTH)
    b: In(WIDTH)
    c: In(WIDTH)
    y: Out(WIDTH)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        a, b, control, holds = self.a, self.b, self.control, self.holds
        # One adder for sums, differences, comparisons and absolute values; the carry goes below.
        wide = Signal(WIDTH + 1)
        inverted = b ^ control.subtract.replicate(WIDTH)
        m.d.comb += wide.eq(Cat(Const(1, 1), a) + Cat(control.subtract, inverted))
        total = wide[1:]
        less, equal = Signal(), Signal()
        m.d.comb += [less.eq(Mux(a[-1] ^ b[-1], a[-1], total[-1])), equal.eq(a == b)]
        take_a, take_b, take_c, take_total = Signal(), Signal(), Signal(), Signal()
        flag, some = Signal(), Signal()
        found = control.on_less & less | control.on_equal & equal
        m.d.comb += [
            some.eq(a.any()),
            take_a.eq(holds & (control.mov | control.min & less | control.max & ~less)),
            take_b.eq(
                holds
                & (control.min & ~less | control.max & less | control.select & some | control.abs & ~b[-1])
            ),
            take_c.eq(holds & control.select & ~some),
            take_total.eq(holds & (control.total | control.abs & b[-1])),
            flag.eq(holds & control.compare & (found ^ control.invert)),
        ]
        logic, picked, low, early = Signal(WIDTH), Signal(WIDTH), Signal(WIDTH), Signal(WIDTH)
        m.d.comb += [
            logic.eq(where(holds & control.both, a & b) | where(holds & control.odd, a ^ b)),
            picked.eq(where(take_a, a) | where(take_b, b)),
            low.eq(where(holds & control.zeros, self._leading_zeros(m))),
            # What comes from comparisons and shifts is the last to be known.
            early.eq((logic | where(take_c, self.c)) | (low | where(take_total, total))),
            self.y.eq(early | (picked | flag) | self._shift(m)),
        ]
        return m

    def _shift(self, m: Module) -> Value:
        """A turn to the right for both directions; bits that come from the other end are replaced."""
        amount, control = self.b[:5], self.control
        fill, enable = Signal(), Signal()
        by = Signal(len(amount), name="turn")
        above, turned, kept, moved = Signal(WIDTH), Signal(WIDTH), Signal(WIDTH), Signal(WIDTH)
        m.d.comb += [
            enable.eq(self.holds & control.shift),
            fill.eq(self.a[-1] & control.arithmetic),
            # To the left is to the right by the negative amount.
            by.eq(Cat(bit ^ (control.left & amount[:i].any()) for i, bit in enumerate(amount))),
            turned.eq(Cat(self.a, self.a) >> by),
            above.eq(from_mask(amount, WIDTH)),
            kept.eq(Mux(control.left, above, above[::-1])),
            moved.eq(where(enable, (turned & kept) | where(fill, ~kept))),
        ]
        return moved

    def _leading_zeros(self, m: Module) -> Value:
        """By pairs of neighbours, then of pairs: the zeros go on into the lower one if the upper is 0."""
        # Of every part, from the highest one on: whether it is 0, and else the zeros before its first 1.
        parts: list[tuple[Value, Value]] = [(~bit, Const(0, 0)) for bit in reversed(self.a)]
        while len(parts) > 1:
            pairs = list(zip(parts[::2], parts[1::2], strict=True))
            parts = []
            for i, ((upper, above), (lower, below)) in enumerate(pairs):
                name = f"{WIDTH // len(pairs)}_{i}"
                empty, zeros = Signal(name=f"empty{name}"), Signal(len(above) + 1, name=f"zeros{name}")
                # Of single bits there is nothing to choose, and no signal without bits is wanted.
                rest = Cat(Mux(upper, below, above), upper) if len(above) else upper
                m.d.comb += [empty.eq(upper & lower), zeros.eq(rest)]
                parts.append((empty, zeros))
        empty, zeros = parts[0]
        return Mux(empty, WIDTH, zeros)


class Multiplier(Component):
    """Products, whole or shifted and rounded; 0 where none was started in the step before.

    `start` says that an operation of this unit executes and its predicate holds, `shifted` that the product
    is shifted by the lowest bits of C and rounded, `even` that it is then rounded to even.

    **Timing.** Operands of a step that ends (`advance`) in cycle t make `y2` from t + 1 on, until the
    next step has ended.
    """

    start: In(1)
    shifted: In(1)
    even: In(1)
    advance: In(1)
    a: In(WIDTH)
    b: In(WIDTH)
    c: In(WIDTH)
    y2: Out(WIDTH)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        product = Signal(2 * WIDTH)
        amount = Signal(_SHIFT_BITS)
        even, started = Signal(), Signal()
        following = self._product(m)
        with m.If(self.advance):
            m.d.sync += [
                product.eq(following),
                amount.eq(where(self.shifted, self.c[:_SHIFT_BITS])),
                even.eq(self.even),
                started.eq(self.start),
            ]
        # Below the lowest bit that stays is the highest one that is lost; `lost` tells of the others.
        top = _SHIFT_BITS - 1
        current = Signal(2 * WIDTH, name=f"shifted{top}")
        twice = Mux(amount[top], product.as_signed() >> (1 << top) - 1, product << 1)
        # Where none was started, 0 is shifted.
        m.d.comb += current.eq(where(started, twice[: 2 * WIDTH]))
        lost = [amount[top] & product[: (1 << top) - 1].any()]
        for stage in reversed(range(top)):
            # A shift by one bit of the amount, as an operator: simulators are quick with it.
            step, by = 1 << stage, Cat(Const(0, stage), amount[stage])
            turned = Signal(WIDTH + step, name=f"shifted{stage}")
            lost.append(amount[stage] & current[:step].any())
            m.d.comb += turned.eq(current >> by)
            current = turned
        # The half goes up; where nothing else is lost, the even one of both sums has the lowest bit 0.
        half, floor, tie, rounded = current[0], current[1:], Signal(), Signal(WIDTH)
        m.d.comb += [
            tie.eq(even & half & ~Cat(*lost).any()),
            rounded.eq(floor + half),
            self.y2.eq(Cat(rounded[0] & ~tie, rounded[1:])),
        ]
        return m

    def _product(self, m: Module) -> Value:
        """The product of halves, each of which fits a multiplier of an FPGA, with a single carry chain."""
        half = WIDTH // 2
        low = [value[:half] for value in (self.a, self.b)]
        high = [value[half:].as_signed() for value in (self.a, self.b)]
        outer, first, second = Signal(2 * WIDTH), Signal(signed(3 * half)), Signal(signed(3 * half))
        m.d.comb += [
            outer.eq(Cat((low[0] * low[1])[:WIDTH], (high[0] * high[1])[:WIDTH])),
            first.eq(low[0] * high[1]),
            second.eq(high[0] * low[1]),
        ]
        third = outer[half:]
        carry = (first & second) | (first & third) | (second & third)
        return Cat(outer[:half], ((first ^ second ^ third) + (carry << 1))[: 3 * half])
