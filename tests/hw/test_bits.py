"""Small combinational functions against arithmetic, for every input."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from amaranth.hdl import Cat, Module, Signal, Value
from amaranth.sim import Simulator

from hw.rtl.bits import at_most, lookup, one_of, place, place_bits, range_mask, rotate_left, rotate_right


def results(inputs: list[Signal], build: Callable[[Module], Value]) -> dict[tuple[int, ...], int]:
    """The value of a piece of logic by all values of its inputs."""
    m = Module()
    value = build(m)
    out, found = Signal(len(value)), {}
    m.d.comb += out.eq(value)
    both = Signal(sum(len(i) for i in inputs))
    m.d.comb += Cat(inputs).eq(both)

    async def read(ctx: Any) -> None:
        for n in range(1 << len(both)):
            ctx.set(both, n)
            found[tuple(ctx.get(i) for i in inputs)] = ctx.get(out)

    simulator = Simulator(m)
    simulator.add_testbench(read)
    simulator.run()
    return found


def test_places_and_limits() -> None:
    value, more = Signal(6), Signal(6)
    assert results([value], lambda m: at_most(value, 8)) == {(n,): int(n <= 8) for n in range(64)}
    assert results([value], lambda m: at_most(value, 1)) == {(n,): int(n <= 1) for n in range(64)}
    sums = results([value, more], lambda m: place(place(value, 8) + place(more, 8), 8))
    assert place_bits(8) == 4
    for (one, other), found in sums.items():
        assert found == one + other if one + other < 8 else found >= 8


def test_choices() -> None:
    first, end = Signal(3), Signal(4)
    masks = results([first, end], lambda m: range_mask(first, end, 8))
    assert masks == {(f, e): sum(1 << i for i in range(f, min(e, 8))) for f, e in masks}
    table = [5, 0, 7, 2, 2, 6, 1, 3]
    assert results([first], lambda m: lookup(first, table, 3)) == {(i,): n for i, n in enumerate(table)}
    select = Signal(3)
    chosen = results([select], lambda m: one_of(select, [first ^ 1, first ^ 2, first ^ 4]))
    assert {n: chosen[n,] for n in (0, 1, 2, 4)} == {0: 0, 1: 1, 2: 2, 4: 4}


def test_rotations() -> None:
    value, amount = Signal(8), Signal(2)
    left = results([value, amount], lambda m: rotate_left(m, value, amount, unit=2))
    right = results([value, amount], lambda m: rotate_right(m, value, amount, unit=2))
    for (v, a), found in left.items():
        assert found == (v << 2 * a | v >> 8 - 2 * a) & 255
        assert right[found, a] == v
