"""The AXI4-Lite slave in front of a model of the registers."""

from __future__ import annotations

import random
from typing import Any

import pytest
from amaranth.sim import Simulator

from hw import csr
from hw.config import load
from hw.rtl.bus.axi import Resp
from hw.rtl.bus.lite import LiteSlave
from tests.hw.rtl.bus.bench import Pauses, plain, put, sink, source

CONFIG = load("test")
OFFSETS = [r.offset for r in csr.registers(CONFIG)]


def resp(address: int, strobe: int = 0b1111) -> Resp:
    if address & ~3 not in OFFSETS:
        return Resp.DECERR
    return Resp.SLVERR if address & 3 or strobe != 0b1111 else Resp.OKAY


@pytest.mark.parametrize(("seed", "chance"), [(1, 0.0), (2, 0.5), (3, 0.8)])
def test_any_order_and_pauses_give_each_access_its_answer(seed: int, chance: float) -> None:
    """Reads, writes and their data come from independent sources; answers wait for their sinks."""
    slave, count, r = LiteSlave(CONFIG), 120, random.Random(seed)

    def address() -> int:
        return r.choice([r.choice(OFFSETS), r.choice(OFFSETS), r.randrange(1 << 16), r.choice(OFFSETS) + 1])

    writes = [(address(), r.getrandbits(32), r.choice([15, 15, 15, r.randrange(16)])) for _ in range(count)]
    reads = [address() for _ in range(count)]
    written: list[tuple[int, int]] = []
    read: list[int] = []
    b: list[dict[str, int]] = []
    rs: list[dict[str, int]] = []

    async def host(ctx: Any) -> None:
        pauses = Pauses(seed + 9, chance)
        while True:
            ctx.set(slave.request.ready, 1)
            _, _, valid, payload = await ctx.tick().sample(slave.request.valid, slave.request.payload)
            ctx.set(slave.request.ready, 0)
            if not valid:
                continue
            request = plain(payload)
            if request["write"]:
                written.append((request["address"], request["data"]))
            else:
                read.append(request["address"])
            while pauses():
                await ctx.tick()
            await put(ctx, slave.response, request["address"] * 3)

    async def wait(ctx: Any) -> None:
        while len(b) < count or len(rs) < count:
            await ctx.tick()
        for _ in range(10):
            await ctx.tick()

    bus = slave.bus
    simulator = Simulator(slave)
    simulator.add_clock(1e-6)
    simulator.add_testbench(host, background=True)
    simulator.add_testbench(wait)
    feeds = [
        (bus.aw, [{"addr": a} for a, _, _ in writes]),
        (bus.w, [{"data": d, "strb": s} for _, d, s in writes]),
        (bus.ar, [{"addr": a} for a in reads]),
    ]
    for i, (channel, values) in enumerate(feeds):

        async def feed(ctx: Any, channel: Any = channel, values: Any = values, i: int = i) -> None:
            await source(ctx, channel, values, Pauses(seed + i, chance))

        simulator.add_testbench(feed, background=True)
    for i, (channel, seen) in enumerate([(bus.b, b), (bus.r, rs)]):

        async def drain(ctx: Any, channel: Any = channel, seen: Any = seen, i: int = i) -> None:
            await sink(ctx, channel, Pauses(seed + 5 + i, chance), seen.append)

        simulator.add_testbench(drain, background=True)
    simulator.run()

    assert [answer["resp"] for answer in b] == [resp(a, s) for a, _, s in writes]
    assert written == [(a, d) for a, d, s in writes if resp(a, s) == Resp.OKAY]
    assert read == [a for a in reads if resp(a) == Resp.OKAY]
    assert rs == [
        {"data": 3 * a, "resp": Resp.OKAY} if resp(a) == Resp.OKAY else {"data": 0, "resp": resp(a)}
        for a in reads
    ]


def test_a_write_waits_for_both_of_its_parts_and_reads_go_on() -> None:
    slave = LiteSlave(CONFIG)
    requests: list[dict[str, int]] = []

    async def body(ctx: Any) -> None:
        ctx.set(slave.bus.r.ready, 1)
        await put(ctx, slave.bus.w, {"data": 5, "strb": 15})
        await put(ctx, slave.bus.ar, {"addr": 0x14})
        for _ in range(12):
            await ctx.tick()
        assert [r["write"] for r in requests] == [0]
        await put(ctx, slave.bus.aw, {"addr": 0x20})
        for _ in range(12):
            await ctx.tick()
        assert [r["write"] for r in requests] == [0, 1]
        assert ctx.get(slave.bus.b.valid)

    async def host(ctx: Any) -> None:
        def take(request: dict[str, int]) -> None:
            requests.append(request)

        await sink(ctx, slave.request, Pauses(0, 0.0), take)

    async def answer(ctx: Any) -> None:
        ctx.set(slave.response.valid, 1)
        await ctx.tick()

    simulator = Simulator(slave)
    simulator.add_clock(1e-6)
    simulator.add_testbench(body)
    simulator.add_testbench(host, background=True)
    simulator.add_testbench(answer, background=True)
    simulator.run()
