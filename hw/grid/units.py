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
        m.d.comb += [
            negative.eq(a[-1]),
            subtract.eq(Mux(absolute, negative, ~is_operation(self.op, "add"))),
            left.eq(Mux(absolute, 0, a)),
            right.eq(Mux(absolute, a, b) ^ subtract.replicate(WIDTH)),
            total.eq(left + right + subtract),
        ]
        less, equal = Signal(), Signal()
        m.d.comb += [less.eq(Mux(a[-1] ^ b[-1], a[-1], total[-1])), equal.eq(a == b)]
        # One shifter; to the left is to the right with the bits the other way round.
        source, moved = Signal(WIDTH), Signal(WIDTH)
        to_left = is_operation(self.op, "shl")
        fill = a[-1] & is_operation(self.op, "shr")
        m.d.comb += [
            source.eq(Mux(to_left, a[::-1], a)),
            moved.eq(Cat(source, fill.replicate(WIDTH)) >> b[:5]),
        ]
        zeros = Signal(range(WIDTH + 1))
        m.d.comb += zeros.eq(WIDTH)
        for i in range(WIDTH):
            with m.If(a[i]):
                m.d.comb += zeros.eq(WIDTH - 1 - i)
        values = {
            "add": total,
            "sub": total,
            "and": a & b,
            "or": a | b,
            "xor": a ^ b,
            "shl": moved[::-1],
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
        # A zero below the product: what is there after shifting is the highest bit that was shifted out.
        current: Value = Cat(Const(0, 1), product)
        lost: list[Value] = []
        for stage in reversed(range(_SHIFT_BITS)):
            step = 1 << stage
            following = Signal(2 * WIDTH + 1, name=f"shifted{stage}")
            lost.append(amount[stage] & current[:step].any())
            m.d.comb += following.eq(Mux(amount[stage], current.as_signed() >> step, current))
            current = following
        floor, half, rest, up = Signal(WIDTH), Signal(), Signal(), Signal()
        m.d.comb += [
            floor.eq(current[1:]),
            half.eq(current[0]),
            rest.eq(Cat(*lost).any()),
            up.eq(half & (~even | rest | floor[0])),
            self.y2.eq(Mux(valid, floor + up, 0)),
        ]
        return m
