"""The queue of steps between the halves of a loader: order, time and room."""

from __future__ import annotations

import random
from collections import deque
from typing import Any

import pytest
from amaranth.sim import Simulator

from hw.rtl.memory.load_steps import STEPS, StepQueue

#: Cycles between asking for room and entering.
BEHIND = 3


def play(cycles: int, enters: float, leaves: float, seed: int) -> int:
    """Run the queue beside a plain one; how often there was no room."""
    r, queue, full = random.Random(seed), StepQueue(16), 0

    async def bench(ctx: Any) -> None:
        nonlocal full
        held: deque[int] = deque()
        room = deque([1] * BEHIND)
        entering: list[int] = []
        for number in range(cycles):
            enter, ready = room.popleft() and r.random() < enters, r.random() < leaves
            ctx.set(queue.enters, enter)
            ctx.set(queue.data, number & 0xFFFF if enter else r.randrange(1 << 16))
            ctx.set(queue.out.ready, ready)
            # What entered before the cycle before is offered.
            assert ctx.get(queue.out.valid) == (len(held) > 0)
            if held:
                assert ctx.get(queue.out.payload) == held[0]
                if ready:
                    held.popleft()
            held.extend(entering)
            entering = [number & 0xFFFF] * enter
            room.append(ctx.get(queue.room))
            full += not room[-1]
            assert len(held) < STEPS
            assert room[-1] or len(held) > STEPS - 16
            await ctx.tick()

    simulator = Simulator(queue)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
    return full


@pytest.mark.parametrize("rates", [(1.0, 1.0), (0.5, 0.5), (0.9, 0.8), (0.3, 1.0)], ids=str)
def test_steps_come_out_in_order_as_soon_as_they_can(rates: tuple[float, float]) -> None:
    for seed in range(3):
        assert play(400, *rates, seed) < 400, "there is room in some cycle"


def test_a_queue_without_room_says_so_in_time() -> None:
    assert play(2500, 0.95, 0.3, 1) > 0
