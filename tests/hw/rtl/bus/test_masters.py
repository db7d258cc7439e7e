"""The read and write masters against a memory that pauses, reorders and fails."""

from __future__ import annotations

import random
from typing import Any

import pytest
from amaranth.sim import Simulator

from hw.rtl.bus.axi import BOUNDARY, Resp
from hw.rtl.bus.reader import ReadMaster
from hw.rtl.bus.writer import WriteMaster
from tests.hw.rtl.bus.bench import Memory, Pauses, content, sink, source


def runs(width: int, count: int, seed: int) -> list[int]:
    """Aligned addresses: runs of successive ones of random length, often across 4 KiB or around zero."""
    r, out = random.Random(seed), []
    while len(out) < count:
        start = r.choice([r.randrange(1 << 32), BOUNDARY * r.randrange(8) - width * r.randrange(40), 0])
        length = r.choice([1, 2, r.randrange(1, 60)])
        out += [(start // width * width + i * width) % (1 << 32) for i in range(length)]
    return out[:count]


def bad(address: int) -> Resp:
    return Resp(address // 64 % 61 % 4) if address // 64 % 61 < 4 else Resp.OKAY


@pytest.mark.parametrize(
    ("ports", "beats", "seed", "chance"),
    [((8, 8, 8), 16, 1, 0.0), ((4, 16, 8), 16, 2, 0.5), ((32, 4, 4), 5, 3, 0.2), ((8, 4), 1, 4, 0.8)],
)
def test_every_request_gets_its_answer_in_order(
    ports: tuple[int, ...], beats: int, seed: int, chance: float
) -> None:
    width, count = max(ports), 150
    master = ReadMaster(ports, width, beats, 2)
    memory = Memory(width, Pauses(seed, chance), bad, beats)
    simulator = Simulator(master)
    simulator.add_clock(1e-6)
    memory.add_to(simulator, master.bus, write=False)
    got: list[list[dict[str, int]]] = [[] for _ in ports]
    addresses = [runs(w, count, seed + i) for i, w in enumerate(ports)]

    def add(i: int) -> None:
        port = getattr(master, f"port{i}")

        async def requests(ctx: Any) -> None:
            await source(ctx, port.request, addresses[i], Pauses(seed + 10 + i, chance))
            while len(got[i]) < count:
                await ctx.tick()
            for _ in range(20):
                await ctx.tick()

        async def answers(ctx: Any) -> None:
            await sink(ctx, port.response, Pauses(seed + 20 + i, chance / 2), got[i].append)

        simulator.add_testbench(requests)
        simulator.add_testbench(answers, background=True)

    for i in range(len(ports)):
        add(i)
    simulator.run()
    for i, w in enumerate(ports):
        expected = [
            {
                "data": int.from_bytes(bytes(content(a + k) for k in range(w)), "little"),
                "error": bad(a) != Resp.OKAY,
            }
            for a in addresses[i]
        ]
        assert got[i] == expected
        assert {burst["size"] for burst in memory.reads if burst["id"] == i} == {w.bit_length() - 1}


@pytest.mark.parametrize(
    ("port", "width", "beats", "seed", "chance"),
    [(8, 8, 16, 1, 0.0), (4, 16, 16, 2, 0.5), (16, 16, 3, 3, 0.3), (4, 4, 40, 4, 0.1), (8, 32, 1, 5, 0.7)],
)
def test_every_write_arrives_and_is_answered(
    port: int, width: int, beats: int, seed: int, chance: float
) -> None:
    count, r = 200, random.Random(seed)
    master = WriteMaster(port, width, beats, 2, 3)
    memory = Memory(width, Pauses(seed, chance), bad, beats)
    simulator = Simulator(master)
    simulator.add_clock(1e-6)
    memory.add_to(simulator, master.bus, read=False)
    writes = [
        {
            "address": a,
            "data": r.getrandbits(8 * port),
            "strobe": r.choice([r.getrandbits(port), -1 % (1 << port)]),
        }
        for a in runs(port, count, seed)
    ]
    got: list[dict[str, int]] = []

    async def requests(ctx: Any) -> None:
        await source(ctx, master.port.request, writes, Pauses(seed + 1, chance))
        while len(got) < count:
            await ctx.tick()
        for _ in range(20):
            await ctx.tick()

    async def answers(ctx: Any) -> None:
        await sink(ctx, master.port.response, Pauses(seed + 2, chance / 2), got.append)

    simulator.add_testbench(requests)
    simulator.add_testbench(answers, background=True)
    simulator.run()

    expected: dict[int, int] = {}
    for write in writes:
        for lane in range(port):
            if write["strobe"] >> lane & 1:
                expected[write["address"] + lane] = write["data"] >> 8 * lane & 0xFF
    assert memory.data == expected
    assert {burst["id"] for burst in memory.writes} == {3}
    # A burst has one answer, which is that of the worst of its transfers.
    errors = []
    for burst in memory.writes:
        places = [burst["addr"] + (i << burst["size"]) for i in range(burst["len"] + 1)]
        errors += [any(bad(a) != Resp.OKAY for a in places)] * len(places)
    assert [bool(answer["error"]) for answer in got] == errors


def addresses_to_bursts(addresses: list[int], width: int, beats: int) -> list[tuple[int, int]]:
    """The fewest bursts in order: (address, AxLEN)."""
    out: list[list[int]] = []
    for a in addresses:
        if out and a == out[-1][-1] + width and a % BOUNDARY and len(out[-1]) < beats:
            out[-1].append(a)
        else:
            out.append([a])
    return [(burst[0], len(burst) - 1) for burst in out]


@pytest.mark.parametrize("beats", [1, 7, 16, 256])
def test_requests_without_pauses_become_the_fewest_bursts(beats: int) -> None:
    addresses = runs(8, 600, beats) + [BOUNDARY - 8 * 20 + 8 * i for i in range(300)]
    master = ReadMaster((8,), 8, beats, 1)
    memory = Memory(8, Pauses(0, 0.0), beats=beats)
    simulator = Simulator(master)
    simulator.add_clock(1e-6)
    memory.add_to(simulator, master.bus, write=False)

    async def requests(ctx: Any) -> None:
        ctx.set(master.port0.response.ready, 1)
        await source(ctx, master.port0.request, addresses, Pauses(0, 0.0))
        for _ in range(10):
            await ctx.tick()

    simulator.add_testbench(requests)
    simulator.run()
    assert [(b["addr"], b["len"]) for b in memory.reads] == addresses_to_bursts(addresses, 8, beats)


def test_a_request_that_nothing_follows_goes_out_at_once() -> None:
    master = ReadMaster((8, 8), 8, 16, 1)
    simulator = Simulator(master)
    simulator.add_clock(1e-6)
    seen: list[int] = []

    async def requests(ctx: Any) -> None:
        ctx.set(master.bus.ar.ready, 1)
        for i in range(3):  # successive, but each comes after a pause
            ctx.set(master.port1.request.valid, 1)
            ctx.set(master.port1.request.payload, 0x40 + 8 * i)
            await ctx.tick()
            ctx.set(master.port1.request.valid, 0)
            cycles = 1
            while not ctx.get(master.bus.ar.valid):
                await ctx.tick()
                cycles += 1
            assert ctx.get(master.bus.ar.payload.addr) == 0x40 + 8 * i
            assert ctx.get(master.bus.ar.payload.len) == 0
            seen.append(cycles)
            await ctx.tick()

    simulator.add_testbench(requests)
    simulator.run()
    assert seen == [3, 3, 3]
