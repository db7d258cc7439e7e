"""The memory ports of a CGRA alone."""

from __future__ import annotations

from typing import Any

import pytest
from amaranth.sim import Simulator

from hw.config import load
from hw.rtl.cgra.ports import Ports


@pytest.mark.parametrize("pipelined", [False, True])
def test_only_a_load_is_served(pipelined: bool) -> None:
    """A port without an access may show the address that another one loads: nothing comes to it."""
    ports = Ports(load("test"), [1] * 3, pipelined)

    async def bench(ctx: Any) -> None:
        for shown in (ports.access, ports.new):
            for access in shown:
                ctx.set(access, {"scratch": 1, "whole": 1, "address": 64})
        for active in range(8):
            for p in range(3):
                ctx.set(ports.access[p].valid, active >> p & 1)
            await ctx.tick()
            assert ctx.get(ports.fresh) == active
            assert not ctx.get(ports.waiting)

    simulator = Simulator(ports)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()


def test_waiting_tells_that_an_access_is_open() -> None:
    """Two words of one bank: the second waits; then the first is not there any more."""
    ports = Ports(load("test"), [1] * 2, pipelined=True)
    bank = 4 * len(ports.scratch.enable)  # from a word to the next one of its bank

    async def bench(ctx: Any) -> None:
        for shown in (ports.access, ports.new):
            for p in range(2):
                ctx.set(shown[p], {"valid": 1, "scratch": 1, "whole": 1, "address": 64 + p * bank})
        assert ctx.get(ports.open) == 0b10
        await ctx.tick()
        assert (ctx.get(ports.fresh), ctx.get(ports.waiting)) == (0b01, 1)
        ctx.set(ports.access[0].valid, 0)
        for p in range(2):
            ctx.set(ports.new[p].address, 0)  # what comes next does not matter yet
        assert ctx.get(ports.open) == 0
        await ctx.tick()
        assert (ctx.get(ports.fresh), ctx.get(ports.waiting)) == (0b10, 0)

    simulator = Simulator(ports)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
