"""Small pieces of combinational logic that several parts share."""

from __future__ import annotations

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, ValueLike


def rotate_left(m: Module, value: Value, amount: Value, *, unit: int = 8) -> Value:
    """`value`, cut in units of `unit` bits, rotated towards higher positions by `amount` units.

    The number of units must be a power of two; `amount` is taken modulo it. Each stage is a signal of
    its own, since an expression that is used twice would be built twice.
    """
    return _rotate(m, value, amount, unit, left=True)


def rotate_right(m: Module, value: Value, amount: Value, *, unit: int = 8) -> Value:
    """The inverse of `rotate_left`."""
    return _rotate(m, value, amount, unit, left=False)


def _rotate(m: Module, value: Value, amount: Value, unit: int, *, left: bool) -> Value:
    units = len(value) // unit
    stages = log2(units)
    turn = Signal(max(1, stages), name="rotate_amount")
    current = Signal(len(value), name="rotate_in")
    m.d.comb += [turn.eq(amount), current.eq(value)]
    for stage in range(stages):
        step = (1 << stage) * unit
        moved = Cat(current[-step:], current[:-step]) if left else Cat(current[step:], current[:step])
        following = Signal(len(value), name=f"rotate_{stage}")
        m.d.comb += following.eq(Mux(turn[stage], moved, current))
        current = following
    return current


def range_mask(first: ValueLike, end: Value, width: int) -> Value:
    """Bits i of `width` with first <= i < end, for unsigned `first` and `end`."""
    return Cat((Const(i) >= first) & (Const(i) < end) for i in range(width))


def low(value: Value, bits: int) -> Value:
    """The low `bits` bits of a value; the constant 0 when `bits` is 0."""
    return value[:bits] if bits else Const(0, 1)


def log2(value: int) -> int:
    """Exponent of a power of two."""
    assert value.bit_count() == 1, value
    return value.bit_length() - 1
