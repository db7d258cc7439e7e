"""The units of a processing element against the meaning of the operations in graphs."""

from __future__ import annotations

import random
from typing import Any

import pytest
from amaranth.hdl import Module, Signal
from amaranth.sim import Simulator

from hw.fabric import OPERATIONS, PEKind, Unit
from hw.fabric.operations import OPERATION_BITS
from hw.rtl.cgra.units import Alu, Multiplier, alu_control
from hw.semantics import quantisation

MASK = 0xFFFFFFFF
EDGES = [0, 1, -1, 2, -2, 31, 32, 33, 63, 64, -64, 0x7FFFFFFF, -0x80000000, -0x7FFFFFFF, 0x40000000, 0xFFFF]
WHOLE = PEKind("whole", frozenset({Unit.ALU}))
#: What has no meaning of its own: memory, constants, names.
WITHOUT = {"const", "lane", "table", "load", "store", "opaque", "opaque_memory"}


def operands(count: int, seed: int) -> list[tuple[int, int, int]]:
    """All pairs of edges with some third, and random words of every size."""
    r = random.Random(seed)

    def word() -> int:
        return r.choice([r.choice(EDGES), r.randrange(-(1 << 31), 1 << 31) >> r.randrange(32)])

    pairs = [(a, b, r.choice(EDGES)) for a in EDGES for b in EDGES]
    return pairs + [(word(), word(), word()) for _ in range(count)]


@pytest.mark.parametrize("pipelined", [False, True])
def test_the_alu(pipelined: bool) -> None:
    """Operations by their numbers; what the ALU does for each is worked out before."""
    m, alu, op = Module(), Alu(pipelined), Signal(OPERATION_BITS)
    m.submodules.alu = alu
    m.d.comb += [alu.control[name].eq(value) for name, value in alu_control(op, WHOLE).items()]
    names = [o.name for o in OPERATIONS.values() if o.unit is Unit.ALU and o.name not in WITHOUT]

    async def result(ctx: Any) -> int:
        if pipelined:
            ctx.set(alu.advance, 1)
            await ctx.tick()
            # A step that does not end keeps it, whatever waits.
            ctx.set(alu.advance, 0)
            ctx.set(op, 0)
            await ctx.tick()
        return int(ctx.get(alu.y))

    async def bench(ctx: Any) -> None:
        for name in names:
            operation = OPERATIONS[name]
            assert operation.meaning is not None
            for values in operands(60, OPERATIONS[name].number):
                # The operand of an absolute value is B, and A is 0.
                given = (0, values[0], values[2]) if name == "abs" else values
                for port, value in zip((alu.a, alu.b, alu.c), given, strict=True):
                    ctx.set(port, value & MASK)
                expected = operation.meaning(*values[: operation.operands]) & MASK
                for holds in (1, 0):
                    ctx.set(op, operation.number)
                    ctx.set(alu.holds, holds)
                    assert await result(ctx) == expected * holds, f"{name}{values}"
        ctx.set(alu.holds, 1)
        ctx.set(alu.a, 12345)
        known = {o.number: o.name for o in OPERATIONS.values() if o.unit is Unit.ALU}
        for number in range(64):
            ctx.set(op, number)
            if known.get(number, "const") == "const":
                assert await result(ctx) == (12345 if number in known else 0), number

    assert len(names) == 20
    simulator = Simulator(m)
    if pipelined:
        simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()


@pytest.mark.parametrize(("quantises", "sums"), [(False, False), (True, False), (True, True)])
@pytest.mark.parametrize("pipelined", [False, True])
def test_the_multiplier(pipelined: bool, quantises: bool, sums: bool) -> None:
    """A product per step, in every order of operations, also where steps take several cycles."""
    unit, r = Multiplier(pipelined, quantises, sums), random.Random(7)
    units = (Unit.MULTIPLIER, Unit.QUANTISER) if quantises else (Unit.MULTIPLIER,)
    names = [o.name for o in OPERATIONS.values() if o.unit in units and sums >= o.constant]
    # The last word is the quantisation of a sum, for other operations anything.
    work = [(name, (*values, values[1])) for name in names for values in operands(200, len(name))]
    # Shifts of every amount, halves among what is lost.
    for amount in range(70):
        for name in names:
            half = amount - 1 if 0 < amount < 60 else 0
            left, right = 1 << min(half, 29), 1 << max(0, half - 29)
            work += [(name, (r.choice([1, -1, 3, -3]) * left, r.choice([1, -1]) * right, amount, amount))]
            work += [(name, (-0x80000000, r.choice([-0x80000000, 0x7FFFFFFF, 1]), amount, amount))]
    # Products of the size of bytes and somewhat more, zero points, limits of both kinds.
    for _ in range(1000 * quantises):
        low, high = r.choice([(-128, 127), (0, 255), (-20, 90), (17, 200), (50, 40)])
        packed = quantisation(r.randint(0, 40), r.randint(-256, 255), low, high)
        name, scale = r.choice(names[3:]), 1 << (packed & 63) >> 1 & 0x7FFFFFFF
        third = r.randint(-600, 600) if OPERATIONS[name].constant else packed
        work += [(name, (r.randint(-600, 600), scale, third, packed))]
    r.shuffle(work)

    async def bench(ctx: Any) -> None:
        begun: list[tuple[str, tuple[int, ...]] | None] = [None] * (1 + pipelined)
        ctx.set(unit.advance, 1)
        for name, values in work:
            starts = r.random() < 0.9
            ctx.set(unit.shifted, name != "mul")
            ctx.set(unit.even, name.endswith("even"))
            if quantises:
                ctx.set(unit.quantise, name.startswith("requantise"))
            ctx.set(unit.start, starts)
            if sums:
                ctx.set(unit.adds, OPERATIONS[name].constant)
            words = (unit.a, unit.b, unit.c, *([unit.packed] if sums else []))
            for port, value in zip(words, values, strict=False):
                ctx.set(port, value & MASK)
            previous = begun.pop(0)
            for held in range(r.choice([0, 0, 0, 2]), -1, -1):
                ctx.set(unit.advance, not held)
                expected = 0
                if previous:
                    operation = OPERATIONS[previous[0]]
                    assert operation.meaning is not None
                    given = previous[1][: operation.arguments]
                    expected = operation.meaning(*given) & MASK
                assert ctx.get(unit.y) == expected, previous
                await ctx.tick()
            begun.append((name, values) if starts else None)

    assert len(names) == 3 + 2 * quantises + 2 * sums
    simulator = Simulator(unit)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
