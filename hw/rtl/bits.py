"""Small pieces of combinational logic that several components share."""

from __future__ import annotations

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value


def rotate_left(m: Module, value: Value, amount: Value, *, unit: int = 8) -> Value:
    """`value`, in units of `unit` bits, rotated towards higher positions by `amount` units.

    The number of units must be a power of two; `amount` is taken modulo it. Each stage is a signal of its
    own, because an expression that is used twice would be built twice.
    """
    return _rotate(m, value, amount, unit, None, left=True)


def rotate_right(
    m: Module, value: Value, amount: Value, *, unit: int = 8, stages: range | None = None
) -> Value:
    """The inverse of `rotate_left`; with `stages`, only the part for these bits of `amount`."""
    return _rotate(m, value, amount, unit, stages, left=False)


def _rotate(m: Module, value: Value, amount: Value, unit: int, stages: range | None, *, left: bool) -> Value:
    stages = range(log2(len(value) // unit)) if stages is None else stages
    turn = Signal(max(1, stages.stop), name="rotate_amount")
    current = Signal(len(value), name="rotate_in")
    m.d.comb += [turn.eq(amount), current.eq(value)]
    # Left: padding at the end spreads slowly. Right: bits cut off at the end are dropped early.
    for stage in stages if left else reversed(stages):
        step = (1 << stage) * unit
        moved = Cat(current[-step:], current[:-step]) if left else Cat(current[step:], current[:step])
        following = Signal(len(value), name=f"rotate_{stage}")
        m.d.comb += following.eq(Mux(turn[stage], moved, current))
        current = following
    return current


def range_mask(first: Value, end: Value, width: int) -> Value:
    """Mask of `width` bits in which bit i is 1 if first <= i < end, both unsigned."""
    return from_mask(first, width) & ~from_mask(end, width)


def from_mask(first: Value, width: int) -> Value:
    """Mask of `width` bits in which bit i is 1 if i >= first, unsigned."""
    ones = (1 << width) - 1
    return lookup(first, [(ones << n) & ones for n in range(1 << len(first))], width)


def reaches(a: Value, b: Value) -> Value:
    """`a >= b` for unsigned values of equal width, with a carry chain instead of a LUT tree."""
    return ~(a - b)[len(a)]


def lookup(index: Value, results: list[int], width: int) -> Value:
    """`results[index]` in `width` bits; for a short index, smaller than an adder or a comparator."""
    tables = [sum((r >> bit & 1) << i for i, r in enumerate(results)) for bit in range(width)]
    return Cat(Const(table, len(results)).bit_select(index, 1) for table in tables)


def total(a: Value, b: Value, carry: Value) -> Value:
    """`a + b + carry`, signed, in one carry chain."""
    return (Cat(1, a).as_signed() + Cat(carry, Value.cast(b), 0).as_signed())[1:].as_signed()


def difference(a: Value, b: Value, borrow: Value) -> Value:
    """`a - b - borrow` for an unsigned `b`; the result is signed, in one carry chain."""
    return (Cat(1, a).as_signed() + Cat(~borrow, ~Value.cast(b), 1).as_signed())[1:].as_signed()


def low(value: Value, bits: int) -> Value:
    """The low `bits` bits of a value; the constant 0 when `bits` is 0."""
    return value[:bits] if bits else Const(0, 1)


def log2(value: int) -> int:
    """Exponent of a power of two."""
    assert value.bit_count() == 1, value
    return value.bit_length() - 1


def place_bits(size: int) -> int:
    """Width of a `place` in a range of `size` (a power of two)."""
    return log2(size) + 1


def place(value: Value, size: int) -> Value:
    """An unsigned value as a position in a range of `size`, a power of two, in `place_bits(size)` bits.

    The highest bit is 1 if the value is out of range. The other bits then have no meaning, and sums with the
    value must count as out of range too.
    """
    bits = log2(size)
    return Cat(value[:bits], value[bits:].any())


def at_most(value: Value, limit: int) -> Value:
    """`value <= limit` for an unsigned value and a power of two, without a subtraction."""
    bits = log2(limit)
    return ~value[bits:].any() | (~value[bits + 1 :].any() & ~value[:bits].any())


def where(select: Value, value: Value) -> Value:
    """The value if `select` is 1, else 0.

    This is a multiplexer and not a mask: replicating `select` for every bit would make the Verilog of a
    machine half as long again.
    """
    return Mux(select, value[:], 0)


def one_of(select: Value, values: list[Value]) -> Value:
    """The value whose bit of `select` is 1; 0 if none is, undefined if several are."""
    shape = len(values[0])
    chosen: Value = Const(0, shape)
    for i, value in enumerate(values):
        chosen = chosen | where(select[i], value)
    return chosen
