"""Scalar units against the semantics of the instruction table, in Amaranth's simulator."""

from __future__ import annotations

import random
from typing import Any

from amaranth.hdl import Const
from amaranth.sim import Simulator

from hw import isa
from hw.rtl.core.alu import Alu, Divider, Multiplier, alu_control
from hw.semantics import SEMANTICS

NAMES = list(isa.BINARY)
EDGES = [0, 1, -1, 2, 7, -7, 31, 32, 2**31 - 1, -(2**31), -(2**31) + 1]


def pairs(count: int) -> list[tuple[int, int]]:
    r = random.Random(1)
    drawn = [
        (r.randint(-(2**31), 2**31 - 1), r.randint(-(2**31), 2**31 - 1) >> r.randint(0, 31))
        for _ in range(count)
    ]
    return [(a, b) for a in EDGES for b in EDGES] + drawn


def test_one_cycle_operations() -> None:
    unit = Alu()

    async def bench(ctx: Any) -> None:
        for name in NAMES:
            if name in ("mul", "div", "rem"):
                continue
            for a, b in pairs(60):
                ctx.set(unit.enable, 1)
                for field, value in alu_control(Const(NAMES.index(name), 4)).items():
                    ctx.set(unit.control[field], ctx.get(value))
                ctx.set(unit.a, a)
                ctx.set(unit.b, b)
                await ctx.tick()
                assert ctx.get(unit.result) == SEMANTICS[name].value(a, b) % 2**32, (name, a, b)

    simulator = Simulator(unit)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()


def test_products() -> None:
    unit = Multiplier()

    async def bench(ctx: Any) -> None:
        for a, b in pairs(12):
            ctx.set(unit.a, a)
            ctx.set(unit.b, b)
            await ctx.tick()
            assert ctx.get(unit.product) == SEMANTICS["mul"].value(a, b) % 2**32, (a, b)

    simulator = Simulator(unit)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()


def test_floor_divisions_of_all_warps_at_a_time_take_their_turns() -> None:
    period = 6
    unit = Divider(period)
    wanted = [(n, a, b) for n in ("div", "rem") for a, b in pairs(12) if b != 0]

    async def bench(ctx: Any) -> None:
        # In each round of turns one more begins, so that they stand at different steps.
        under_way: list[tuple[int, int] | None] = [None] * period
        todo, turn, results = iter(wanted), 0, 0
        while results < len(wanted):
            slot = turn % period
            division = under_way[slot]
            done = division is not None and division[0] == turn
            assert ctx.get(unit.done) == done
            ctx.set(unit.start, 0)
            if division is not None and done:
                assert ctx.get(unit.result) == division[1]
                under_way[slot], results = None, results + 1
            elif division is None and turn % (period + 1) == 0 and (drawn := next(todo, None)):
                name, a, b = drawn
                ctx.set(unit.start, 1)
                ctx.set(unit.quotient, name == "div")
                ctx.set(unit.a, a)
                ctx.set(unit.b, b)
                last = turn + (isa.DIV_TURNS - 1) * period
                under_way[slot] = (last, SEMANTICS[name].value(a, b) % 2**32)
            await ctx.tick()
            turn += 1

    simulator = Simulator(unit)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
