"""The program memory: a written word can be read, with its class, three cycles later."""

from __future__ import annotations

import random
from typing import Any

import pytest
from amaranth.hdl import Module, Signal
from amaranth.sim import Simulator

from hw import isa
from hw.config import load
from hw.rtl.core.decoder import stored
from hw.rtl.core.program import ProgramMemory

TEST = load("test")
#: Legal instructions and any words.
WORDS = [s.opcode << isa.OPCODE_LOW | 5 for s in isa.INSTRUCTIONS.values()] + [0xFFFFFFFF, 0x12345678]


@pytest.mark.parametrize("warps", [1, 2, 3, 6])
def test_words_that_follow_each_other_are_all_kept(warps: int) -> None:
    config = TEST.replace(warps=warps, imem_words=256)
    m, r, word_now = Module(), random.Random(warps), Signal(isa.WORD_BITS)
    m.submodules.memory = memory = ProgramMemory(config)
    expected = Signal(isa.STORED_BITS)
    m.d.comb += expected.eq(stored(config, word_now))
    written = {(w, r.randrange(256)): r.choice(WORDS) for w in range(warps) for _ in range(20)}

    async def bench(ctx: Any) -> None:
        ctx.set(memory.write, 1)
        for (warp, pc), word in written.items():
            ctx.set(memory.write_warp, warp)
            ctx.set(memory.write_pc, pc)
            ctx.set(memory.data, word)
            await ctx.tick()
        ctx.set(memory.write, 0)
        await ctx.tick().repeat(2)
        for (warp, pc), word in written.items():
            ctx.set(memory.warp, warp)
            ctx.set(memory.pc, pc)
            ctx.set(word_now, word)
            await ctx.tick()
            assert ctx.get(memory.word) == ctx.get(expected), (warp, pc)

    simulator = Simulator(m)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
