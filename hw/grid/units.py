"""The units of a processing element that compute: ALU and multiplier."""

from __future__ import annotations

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib.wiring import Component, In, Out

from hw.fabric.operations import OPERATION_BITS, OPERATIONS

WIDTH = 32
#: Bits of a product's shift amount.
_SHIFT_BITS = 6


def is_operation(op: Value, *names: str) -> Value:
    """Whether an operation's number is that of one of these."""
    return Cat(op == OPERATIONS[name].number for name in names).any()


class Alu(Component):
    """The operations of latency 1 of `hw.fabric.operations`; `y` is 0 for every other number.

    **Timing.** Combinational.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "op": In(OPERATION_BITS),
                "a": In(WIDTH),
                "b": In(WIDTH),
                "c": In(WIDTH),
                "const": In(WIDTH),
                "y": Out(WIDTH),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        a, b = self.a, self.b
        # One adder for sums, differences, comparisons and absolute values.
        negative, subtract = Signal(), Signal()
        left, right = Signal(WIDTH), Signal(WIDTH)
        total = Signal(WIDTH)
        absolute = is_operation(self.op, "abs")
        addend = Signal(WIDTH)
        m.d.comb += [
            addend.eq(Mux(absolute, a, b)),
            negative.eq(a[-1]),
            subtract.eq(Mux(absolute, negative, ~is_operation(self.op, "add"))),
            left.eq(Mux(absolute, 0, a)),
            right.eq(Mux(subtract, ~addend, addend)),
            total.eq(left + right + subtract),
        ]
        less, equal = Signal(), Signal()
        m.d.comb += [less.eq(Mux(a[-1] ^ b[-1], a[-1], total[-1])), equal.eq(a == b)]
        moved, zeros = self._shift(m), self._leading_zeros(m)
        values = {
            "add": total,
            "sub": total,
            "and": a & b,
            "or": a | b,
            "xor": a ^ b,
            "shl": moved,
            "shr": moved,
            "shr_logical": moved,
            "lt": less,
            "le": less | equal,
            "gt": ~(less | equal),
            "ge": ~less,
            "eq": equal,
            "ne": ~equal,
            "min": Mux(less, a, b),
            "max": Mux(less, b, a),
            "select": Mux(a != 0, b, self.c),
            "abs": total,
            "clz": zeros,
            "mov": a,
            "const": self.const,
        }
        with m.Switch(self.op):
            for name, value in values.items():
                with m.Case(OPERATIONS[name].number):
                    m.d.comb += self.y.eq(value)
        return m

    def _shift(self, m: Module) -> Value:
        """A turn to the right for both directions; bits that come from the other end are replaced."""
        amount = self.b[:5]
        left, fill = Signal(), Signal()
        turned, kept, moved = Signal(WIDTH), Signal(WIDTH), Signal(WIDTH)
        ones = Const((1 << WIDTH) - 1, WIDTH)
        m.d.comb += [
            left.eq(is_operation(self.op, "shl")),
            fill.eq(self.a[-1] & is_operation(self.op, "shr")),
            turned.eq(Cat(self.a, self.a) >> Mux(left, -amount, amount)[:5]),
            kept.eq(Mux(left, (ones << amount)[:WIDTH], ones >> amount)),
            moved.eq((turned & kept) | Mux(fill, ~kept, 0)),
        ]
        return moved

    def _leading_zeros(self, m: Module) -> Value:
        """By halves: where the upper one is 0, its bits count, and the lower one is looked at."""
        rest: Value = self.a
        counts: list[Value] = []
        while len(rest) > 1:
            half = len(rest) // 2
            empty, following = Signal(name=f"empty{half}"), Signal(half, name=f"half{half}")
            m.d.comb += [
                empty.eq(rest[half:] == 0),
                following.eq(Mux(empty, rest[:half], rest[half:])),
            ]
            counts.insert(0, empty)
            rest = following
        zeros = Signal(range(WIDTH + 1))
        m.d.comb += zeros.eq(Cat(*counts) + ~rest[0])
        return zeros


class Multiplier(Component):
    """Products, whole or shifted and rounded; 0 where none was started in the step before.

    `start` says that an operation of this unit executes and its predicate holds.

    **Timing.** Operands of a step that ends (`advance`) in cycle t make `y2` from t + 1 on, until the
    next step has ended.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "op": In(OPERATION_BITS),
                "start": In(1),
                "advance": In(1),
                "a": In(WIDTH),
                "b": In(WIDTH),
                "c": In(WIDTH),
                "y2": Out(WIDTH),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        product = Signal(2 * WIDTH)
        amount = Signal(_SHIFT_BITS)
        even, valid = Signal(), Signal()
        with m.If(self.advance):
            m.d.sync += [
                valid.eq(self.start),
                product.eq(self.a.as_signed() * self.b.as_signed()),
                amount.eq(Mux(is_operation(self.op, "mul"), 0, self.c[:_SHIFT_BITS])),
                even.eq(is_operation(self.op, "mul_shift_round_even")),
            ]
        # `half` is the highest bit that was shifted out, `lost` tells of the others.
        current, half = product, Signal()
        lost: list[Value] = []
        for stage in reversed(range(_SHIFT_BITS)):
            # A shift by one bit of the amount, as an operator: simulators are quick with it.
            step, by = 1 << stage, Cat(Const(0, stage), amount[stage])
            following, out = Signal(2 * WIDTH, name=f"shifted{stage}"), Signal(name=f"out{stage}")
            lost.append(amount[stage] & (half | current[: step - 1].any()))
            m.d.comb += [
                following.eq(current.as_signed() >> by),
                out.eq(Mux(amount[stage], current[step - 1], half)),
            ]
            current, half = following, out
        floor, rest, up = Signal(WIDTH), Signal(), Signal()
        m.d.comb += [
            floor.eq(current),
            rest.eq(Cat(*lost).any()),
            up.eq(half & (~even | rest | floor[0])),
            self.y2.eq(Mux(valid, floor + up, 0)),
        ]
        return m
