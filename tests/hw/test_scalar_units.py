"""Scalar units against the semantics of the instruction table, in Amaranth's simulator."""

from __future__ import annotations

import random

from amaranth.hdl import Const
from amaranth.sim import Simulator

from hw import isa
from hw.rtl.core.alu import Alu, MultiplyDivide, alu_control
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

    async def bench(ctx: object) -> None:
        for name in NAMES:
            if name in ("mul", "div", "rem"):
                continue
            for a, b in pairs(60):
                ctx.set(unit.enable, 1)
                for field, value in alu_control(Const(NAMES.index(name), 4)).items():
                    ctx.set(unit.control[field], ctx.get(value))
                ctx.set(unit.a, a)
                ctx.set(unit.b, b)
                assert ctx.get(unit.result) == SEMANTICS[name].value(a, b) % 2**32, (name, a, b)

    simulator = Simulator(unit)
    simulator.add_testbench(bench)
    simulator.run()


def test_products_and_floor_divisions_take_their_cycles() -> None:
    unit = MultiplyDivide()

    async def bench(ctx: object) -> None:
        for name, cycles in (("mul", isa.MUL_CYCLES), ("div", isa.DIV_CYCLES), ("rem", isa.DIV_CYCLES)):
            for a, b in pairs(12):
                if name != "mul" and b == 0:
                    continue
                ctx.set(unit.start, 1)
                ctx.set(unit.select, NAMES.index(name))
                ctx.set(unit.a, a)
                ctx.set(unit.b, b)
                await ctx.tick()
                ctx.set(unit.start, 0)
                waited = 1
                while not ctx.get(unit.done):
                    await ctx.tick()
                    waited += 1
                assert ctx.get(unit.result) == SEMANTICS[name].value(a, b) % 2**32, (name, a, b)
                assert waited == cycles - 1, name
                await ctx.tick()

    simulator = Simulator(unit)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
