"""The memory and the arbiter in front of it, driven by two masters."""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass
from typing import Any

import pytest
from amaranth.hdl import Module
from amaranth.lib.wiring import Component, connect, flipped
from amaranth.lib.wiring import In as Input
from amaranth.sim import Simulator

from hw.errors import InputError
from hw.rtl.bus.arbiter import Arbiter
from hw.rtl.bus.axi import Axi, Burst, Resp
from hw.rtl.bus.ram import AxiRam, check_size
from tests.hw.rtl.bus.bench import Pauses, sink, source

SIZE, WIDTH = 8192, 8


class Shared(Component):
    """A memory behind an arbiter."""

    def __init__(self) -> None:
        super().__init__({"first": Input(Axi(WIDTH, 1)), "second": Input(Axi(WIDTH, 1))})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.arbiter = arbiter = Arbiter(WIDTH, 1)
        m.submodules.ram = ram = AxiRam(SIZE, WIDTH, 2)
        connect(m, flipped(self.first), arbiter.first)
        connect(m, flipped(self.second), arbiter.second)
        connect(m, arbiter.bus, ram.bus)
        return m


@dataclass
class Transfers:
    """Random bursts of one master inside its own half of the memory, and what they should give."""

    seed: int
    half: int
    count: int = 60

    def __post_init__(self) -> None:
        r = random.Random(self.seed)
        self.bursts: list[dict[str, int]] = []
        for _ in range(self.count):
            size, kind = r.randrange(4), r.choice([Burst.INCR] * 6 + [Burst.FIXED, Burst.WRAP])
            length = r.choice([0, r.randrange(8), r.randrange(16)])
            address = self.half * 4096 + r.randrange(4096)
            if r.random() < 0.15:
                address = r.choice([SIZE, 1 << 31, 0xFFFFF000])
            room = (4096 - address % 4096 + (1 << size) - 1) >> size
            fields = {"id": r.randrange(2), "addr": address, "size": size, "burst": kind}
            self.bursts.append(fields | {"len": min(length, room - 1)})
        self.random = r

    def addresses(self, burst: dict[str, int]) -> list[int]:
        step = 1 << burst["size"]
        if burst["burst"] == Burst.FIXED:
            return [burst["addr"]] * (burst["len"] + 1)
        aligned = burst["addr"] & -step
        return [burst["addr"], *(aligned + step * i for i in range(1, burst["len"] + 1))]

    @staticmethod
    def resp(burst: dict[str, int]) -> Resp:
        if burst["addr"] >= SIZE:
            return Resp.DECERR
        return Resp.SLVERR if burst["burst"] == Burst.WRAP else Resp.OKAY

    def write_beats(self, memory: dict[int, int]) -> list[dict[str, int]]:
        """Transfers on W; `memory` becomes what should be written."""
        beats = []
        for burst in self.bursts:
            for i, address in enumerate(self.addresses(burst)):
                end = (address & -(1 << burst["size"])) + (1 << burst["size"])
                lanes = range(address % WIDTH, address % WIDTH + end - address)
                strobe = sum(1 << lane for lane in lanes if self.random.random() < 0.8)
                value = self.random.getrandbits(8 * WIDTH)
                beats.append({"data": value, "strb": strobe, "last": i == burst["len"]})
                for lane in lanes:
                    if strobe >> lane & 1 and self.resp(burst) == Resp.OKAY:
                        memory[address - address % WIDTH + lane] = value >> 8 * lane & 0xFF
        return beats


@pytest.mark.parametrize(("seed", "chance"), [(1, 0.0), (2, 0.4)])
def test_two_masters_write_and_read_bursts_of_every_kind(seed: int, chance: float) -> None:
    shared = Shared()
    simulator = Simulator(shared)
    simulator.add_clock(1e-6)
    masters = [Transfers(seed * 2 + half, half) for half in range(2)]
    written: list[dict[int, int]] = [{}, {}]
    answers: list[list[dict[str, int]]] = [[], []]
    read: list[list[dict[str, int]]] = [[], []]

    def add(half: int) -> None:
        bus, master = (shared.first, shared.second)[half], masters[half]
        beats = master.write_beats(written[half])
        reads = sum(b["len"] + 1 for b in master.bursts)

        async def run(ctx: Any) -> None:
            await source(ctx, bus.aw, master.bursts, Pauses(seed, chance))
            while len(answers[half]) < master.count:
                await ctx.tick()
            await source(ctx, bus.ar, master.bursts, Pauses(seed + 1, chance))
            while len(read[half]) < reads:
                await ctx.tick()

        async def w(ctx: Any) -> None:
            await source(ctx, bus.w, beats, Pauses(seed + 2, chance))

        async def b(ctx: Any) -> None:
            await sink(ctx, bus.b, Pauses(seed + 3, chance), answers[half].append)

        async def r(ctx: Any) -> None:
            await sink(ctx, bus.r, Pauses(seed + 4, chance), read[half].append)

        simulator.add_testbench(run)
        for bench in (w, b, r):
            simulator.add_testbench(bench, background=True)

    add(0)
    add(1)
    simulator.run()
    for half, master in enumerate(masters):
        expected = [{"id": b["id"], "resp": master.resp(b)} for b in master.bursts]
        assert answers[half] == expected
        data = deque(read[half])
        for burst in master.bursts:
            for i, address in enumerate(master.addresses(burst)):
                beat = data.popleft()
                assert (beat["id"], beat["resp"]) == (burst["id"], master.resp(burst))
                assert beat["last"] == (i == burst["len"])
                if master.resp(burst) == Resp.OKAY:
                    base = address - address % WIDTH
                    word = bytes(written[half].get(base + lane, 0) for lane in range(WIDTH))
                    assert beat["data"] == int.from_bytes(word, "little")


def test_a_size_that_is_not_made_of_pages_is_refused() -> None:
    for size in (0, 4096 + 8, 1 << 33):
        with pytest.raises(InputError, match=f"multiple of 4096 bytes, at most 16777216, not {size}"):
            check_size(size)
