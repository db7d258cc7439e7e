"""The arithmetic units of a processing element: ALU and multiplier."""

from collections.abc import Iterable

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data
from amaranth.lib.wiring import Component, In, Out

from hw.fabric import PEKind
from hw.fabric.operations import OPERATIONS
from hw.rtl.bits import from_mask, reaches, total, where

WIDTH = 32
#: Attributes that force small memories into block RAM. A word that is read while it is written is never used.
BLOCK_RAM = {"ram_style": "block", "no_rw_check": 1}
#: Width of a product's shift amount.
_SHIFT_BITS = 6


def is_operation(op: Value, kind: PEKind, *names: str) -> Value:
    """Whether `op` is the number of one of these operations, of those that a kind of PE executes."""
    known = [OPERATIONS[name] for name in names]
    return Cat(op == operation.number for operation in known if kind.executes(operation)).any()


def any_of(values: Iterable[Value]) -> Value:
    """The OR of some values, as a balanced tree; 0 if there are none."""
    found = list(values)
    while len(found) > 1:
        pairs = [a | b for a, b in zip(found[::2], found[1::2], strict=False)]
        found = pairs + found[len(found) & ~1 :]
    return found[0] if found else Const(0, WIDTH)


def spread(value: Value, lanes: int) -> Value:
    """A value in `lanes` lanes: its first lanes, or its only one copied to all of them."""
    return value[: WIDTH * lanes] if len(value) >= WIDTH * lanes else value.replicate(lanes)


def later(m: Module, advance: Value, name: str, value: Value, reset: bool = False) -> Signal:
    """A value of the previous step."""
    register = Signal(value.shape(), name=f"late_{name}", reset_less=not reset)
    with m.If(advance):
        m.d.sync += register.eq(value)
    return register


def shown(m: Module, shows: Value, name: str, happens: Value) -> Value:
    """Whether something happened in the previous step, in the first cycle in which accesses may follow."""
    register = Signal(name=f"shown_{name}")
    with m.If(shows):
        m.d.sync += register.eq(happens)
    return register & shows


#: Controls of an ALU: one bit for each operation or group of operations.
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
    """Decodes an operation into `AluControl`; operations that a kind of PE lacks give 0.

    `const` and `lane` are copies (`mov`) of operand A. `abs` has its operand as B, and 0 as A.
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
        "mov": among("mov", "const", "lane"),
        "min": among("min"),
        "max": among("max"),
        "select": among("select"),
        "abs": among("abs"),
    }


class Alu(Component):
    """The ALU operations of `hw.fabric.operations`; `y` is 0 if `holds` is 0 or no operation is executed.

    `control` comes from a register (`alu_control`), so that nothing is decoded while operands wait. The adder
    comes first, and so do the amount and the largest stages of a shift; in a pipelined fabric registers
    follow.

    **Timing.** Combinational. Pipelined: operands of a step that ends (`advance`) in cycle t give `y` from t
    + 1 on, until the next step has ended.
    """

    control: In(AluControl)
    holds: In(1)
    advance: In(1)
    a: In(WIDTH)
    b: In(WIDTH)
    c: In(WIDTH)
    y: Out(WIDTH)

    def __init__(self, pipelined: bool = False):
        self._pipelined = pipelined
        super().__init__()

    def elaborate(self, platform: object) -> Module:
        m = Module()
        # One adder for sums, differences, comparisons and absolute values; bit 0 carries in.
        wide = Signal(WIDTH + 1)
        inverted = self.b ^ self.control.subtract.replicate(WIDTH)
        m.d.comb += wide.eq(Cat(Const(1, 1), self.a) + Cat(self.control.subtract, inverted))
        shift = self._shift(m)
        empty, zeros = self._leading_zeros(m)
        control = AluControl(self._later(m, "control", self.control.as_value(), reset=True))
        holds = self._later(m, "holds", self.holds, reset=True)
        a, b, c, total = (
            self._later(m, name, value)
            for name, value in (("a", self.a), ("b", self.b), ("c", self.c), ("total", wide[1:]))
        )
        less, equal = Signal(), self._later(m, "equal", self.a == self.b)
        m.d.comb += less.eq(Mux(a[-1] ^ b[-1], a[-1], total[-1]))
        take_a, take_b, take_c, take_total = Signal(), Signal(), Signal(), Signal()
        flag, some = Signal(), self._later(m, "some", self.a.any())
        found = control.on_less & less | control.on_equal & equal
        m.d.comb += [
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
            low.eq(where(holds & control.zeros, Mux(empty, WIDTH, zeros))),
            # Comparisons and shifts are known last, so they are merged last.
            early.eq((logic | where(take_c, c)) | (low | where(take_total, total))),
            self.y.eq(early | (picked | flag) | shift),
        ]
        return m

    def _later(self, m: Module, name: str, value: Value, reset: bool = False) -> Value:
        """The value registered for one step if the unit is pipelined, otherwise the value itself."""
        # Only the control needs a reset: with it at 0, the other values are unused.
        return later(m, self.advance, name, value, reset) if self._pipelined else value

    def _shift(self, m: Module) -> Value:
        """Shifts as a right rotation for both directions; bits that wrap around are masked."""
        amount, control = self.b[:5], self.control
        by = Signal(len(amount), name="turn")
        above, kept, turned, moved = (Signal(WIDTH, name=n) for n in ("above", "kept", "turned", "moved"))
        m.d.comb += [
            # A left shift rotates right by the negated amount.
            by.eq(Cat(bit ^ (control.left & amount[:i].any()) for i, bit in enumerate(amount))),
            above.eq(from_mask(amount, WIDTH)),
            kept.eq(Mux(control.left, above, above[::-1])),
            turned.eq(Cat(self.a, self.a) >> by[:2]),
        ]
        parts = (("turned", turned), ("by", by[2:]), ("kept", kept))
        begun, rest, mask = (self._later(m, name, value) for name, value in parts)
        enable = self._later(m, "shift", self.holds & control.shift, reset=True)
        fill = self._later(m, "fill", self.a[-1] & control.arithmetic)
        ended = Signal(WIDTH)
        m.d.comb += [
            ended.eq(Cat(begun, begun) >> Cat(Const(0, 2), rest)),
            moved.eq(where(enable, (ended & mask) | where(fill, ~mask))),
        ]
        return moved

    def _leading_zeros(self, m: Module) -> tuple[Value, Value]:
        """Whether A is 0, and otherwise its number of leading zeros.

        A tree: in each pair, the count continues into the lower half if the upper half is 0.
        """
        # For every part, from the highest on: whether it is 0, and otherwise its number of leading zeros.
        parts: list[tuple[Value, Value]] = [(~bit, Const(0, 0)) for bit in reversed(self.a)]
        while len(parts) > 1:
            pairs = list(zip(parts[::2], parts[1::2], strict=True))
            parts = []
            for i, ((upper, above), (lower, below)) in enumerate(pairs):
                name = f"{WIDTH // len(pairs)}_{i}"
                empty, zeros = Signal(name=f"empty{name}"), Signal(len(above) + 1, name=f"zeros{name}")
                # Single bits have no count to select, and an empty signal must not be made.
                rest = Cat(Mux(upper, below, above), upper) if len(above) else upper
                m.d.comb += [empty.eq(upper & lower), zeros.eq(rest)]
                parts.append((empty, zeros))
            if len(parts) == 2:
                parts = [
                    (self._later(m, f"empty{i}", empty), self._later(m, f"zeros{i}", zeros))
                    for i, (empty, zeros) in enumerate(parts)
                ]
        return parts[0]


def _lost(amount: Value, bits: Value) -> Value:
    """Whether any of the bits shifted out is 1, as one bit for every four of them."""
    return Cat(amount & bits[i : i + 4].any() for i in range(0, len(bits), 4))


#: Limits for a product that becomes a byte (`on`): zero point, range, whether it can be or must be negative.
_Limits = data.StructLayout({"on": 1, "zero": 9, "low": 9, "high": 9, "signed": 1, "negative": 1})


class Multiplier(Component):
    """Multiplies, and shifts and rounds the product; 0 in steps to which no product belongs.

    `start` says that an operation of this unit executes and its predicate holds, `shifted` that the product
    is shifted right by the low bits of C and rounded, `even` that ties are rounded to even. If the unit
    `quantises`, the port `quantise` says that the product becomes a byte, as described by the rest of C
    (`hw.semantics.quantisation`). With `sums`, the port `adds` says that A + C is multiplied instead of A,
    and that `packed` has the rest.

    **Timing.** Operands of a step that ends (`advance`) in cycle t give `y` from t + 1 on, until the next
    step has ended; in a pipelined unit, one step later. A sum is added in the same step as it is multiplied.
    """

    def __init__(self, pipelined: bool = False, quantises: bool = False, sums: bool = False):
        self._pipelined, self._quantises, self._sums = pipelined, quantises, sums
        bits = ["start", "shifted", "even", "advance", *["quantise"] * quantises, *["adds"] * sums]
        words = [*"abc", *["packed"] * sums]
        super().__init__({**dict.fromkeys(bits, In(1)), **dict.fromkeys(words, In(WIDTH)), "y": Out(WIDTH)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        first, third = self._operands(m)
        limits = self._limits(m, third) if self._quantises else Const(0, 0)
        amount = where(self.shifted, third[:_SHIFT_BITS])
        product, started, even = Signal(2 * WIDTH), self.start, self.even
        if self._pipelined:
            # No reset, so that these registers can be part of the FPGA's multipliers.
            parts = [later(m, self.advance, f"part{i}", part) for i, part in enumerate(self._parts(first))]
            amount, started, even = self._held(m, "first", amount, started, even)
            m.d.comb += product.eq(self._sum(*parts))
            value, lost = self._shifted(m, *self._top(m, product, amount, started), amount, 2)
            value, lost, amount, even = self._held(m, "second", value, lost, amount, even)
            value, lost = self._shifted(m, value, lost, amount, _SHIFT_BITS - 3)
            limits = self._late_limits(m, 2, limits)
        else:
            m.d.comb += product.eq(self._sum(*self._parts(first)))
            product, amount, started, even = self._held(m, "first", product, amount, started, even)
            value, lost = self._shifted(m, *self._top(m, product, amount, started), amount, _SHIFT_BITS - 1)
            limits = self._late_limits(m, 1, limits)
        # A half rounds up. If only a half is lost (a tie), clearing the lowest bit of the sum rounds to even.
        half, floor, tie, rounded = value[0], value[1:], Signal(), Signal(WIDTH)
        m.d.comb += tie.eq(even & half & ~lost.any())
        if not self._quantises:
            m.d.comb += [rounded.eq(floor + half), self.y.eq(Cat(rounded[0] & ~tie, rounded[1:]))]
            return m
        # With a zero point, the lowest bit of the sum is not that of the rounded product.
        found = _Limits(limits)
        zero = Cat(found.zero, found.zero[-1].replicate(WIDTH - len(found.zero)))
        m.d.comb += [
            rounded.eq(total(floor, zero, half & ~(tie & ~floor[0]))),
            self.y.eq(self._limited(m, rounded, found)),
        ]
        return m

    def _operands(self, m: Module) -> tuple[Value, Value]:
        """The first factor, and the word with the shift amount and the limits."""
        if not self._sums:
            return self.a, self.c
        first, third = Signal(WIDTH, name="first"), Signal(WIDTH, name="third")
        m.d.comb += [
            first.eq(self.a + where(self.adds, self.c)),
            third.eq(Mux(self.adds, self.packed, self.c)),
        ]
        return first, third

    def _limits(self, m: Module, third: Value) -> Value:
        """Unpacks the byte limits in operand C, to be registered with the product; 0 if there are none."""
        packed, made = third[_SHIFT_BITS:], Signal(_Limits)
        zero, first, last, unsigned = packed[:9], packed[9:17], packed[17:25], packed[25]
        low, high = (Cat(byte, byte[-1] & ~unsigned) for byte in (first, last))
        values = {"on": 1, "zero": zero, "low": low, "high": high}
        values |= {"signed": low[-1], "negative": low[-1] & high[-1]}
        begins = self.quantise & self.start
        m.d.comb += [getattr(made, name).eq(where(begins, Value.cast(v))) for name, v in values.items()]
        return made.as_value()

    def _late_limits(self, m: Module, steps: int, limits: Value) -> Value:
        """The limits, delayed by `steps` steps."""
        for step in range(steps if len(limits) else 0):
            limits = later(m, self.advance, f"limits{step}", limits, reset=True)
        return limits

    @staticmethod
    def _limited(m: Module, value: Value, limits: data.View) -> Value:  # type: ignore[type-arg]
        """The value, or, if it becomes a byte, the value limited to the byte's range.

        Carry chains compare the low bits. The bits above a byte do not wait for them: the low limit is never
        above the high limit, so the sign of the result follows from the sign of the value.
        """
        bits, sign = len(limits.low), value[-1]
        # If the value does not fit into these bits, its sign decides.
        small = value[bits - 1 :].all() | ~value[bits - 1 :].any()
        ordered, low, high = (Cat(x[: bits - 1], ~x[bits - 1]) for x in (value, limits.low, limits.high))
        above, below = Signal(), Signal()
        m.d.comb += [
            above.eq(limits.on & Mux(small, ~reaches(high, ordered), ~sign)),
            below.eq(limits.on & Mux(small, ~reaches(ordered, low), sign)),
        ]
        lowest = [Mux(above, limits.high[i], Mux(below, limits.low[i], value[i])) for i in range(bits - 1)]
        upper = [
            Mux(limits.on, (limits.signed & sign) | limits.negative, value[i]) for i in range(bits - 1, WIDTH)
        ]
        return Cat(*lowest, *upper)

    def _held(self, m: Module, name: str, *values: Value) -> list[Signal]:
        """Registers values for one step."""
        return [later(m, self.advance, f"{name}{i}", value, True) for i, value in enumerate(values)]

    @staticmethod
    def _top(m: Module, product: Value, amount: Value, started: Value) -> tuple[Value, Value]:
        """The product shifted by the top bit of the amount, with the highest bit lost as bit 0.

        Also returns whether other bits were lost, in several bits. If no product started, the result is 0.
        """
        top = _SHIFT_BITS - 1
        value = Signal(2 * WIDTH, name=f"shifted{top}")
        twice = Mux(amount[top], product.as_signed() >> (1 << top) - 1, product << 1)
        m.d.comb += value.eq(where(started, twice[: 2 * WIDTH]))
        return value, _lost(amount[top], product[: (1 << top) - 1])

    @staticmethod
    def _shifted(m: Module, value: Value, lost: Value, amount: Value, count: int) -> tuple[Value, Value]:
        """Shifts by `count` more bits of the amount, as the width implies; also returns the bits lost."""
        for _ in range(count):
            stage = ((len(value) - WIDTH) // 2).bit_length() - 1
            # One stage of the shift, written as an operator, which simulators execute quickly.
            step, by = 1 << stage, Cat(Const(0, stage), amount[stage])
            turned = Signal(WIDTH + step, name=f"shifted{stage}")
            lost = Cat(lost, _lost(amount[stage], value[:step]))
            m.d.comb += turned.eq(value >> by)
            value = turned
        return value, lost

    def _parts(self, first: Value) -> tuple[Value, Value, Value]:
        """Products of halves that fit FPGA multipliers: the outer two as one word, then the inner two."""
        half = WIDTH // 2
        low = [value[:half] for value in (first, self.b)]
        high = [value[half:].as_signed() for value in (first, self.b)]
        outer = Cat((low[0] * low[1])[:WIDTH], (high[0] * high[1])[:WIDTH])
        return outer, low[0] * high[1], low[1] * high[0]

    @staticmethod
    def _sum(outer: Value, first: Value, second: Value) -> Value:
        """The product of the parts, with a single carry chain."""
        half = WIDTH // 2
        third = outer[half:]
        carry = (first & second) | (first & third) | (second & third)
        return Cat(outer[:half], ((first ^ second ^ third) + (carry << 1))[: 3 * half])
