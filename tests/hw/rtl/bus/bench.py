"""Both ends of streams with random pauses, and a memory behind AXI4, for Amaranth's simulator."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from amaranth.sim import Simulator

from hw.rtl.bus.axi import BOUNDARY, Burst, Resp


@dataclass
class Pauses:
    """When an end of a stream rests: in each cycle with this probability, decided by the seed."""

    seed: int
    chance: float

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)

    def __call__(self) -> bool:
        return self.random.random() < self.chance


def set_payload(ctx: Any, payload: Any, value: Any) -> None:
    """Set a payload, field by field when it is a dict."""
    if isinstance(value, dict):
        for name, part in value.items():
            ctx.set(payload[name], part)
    else:
        ctx.set(payload, value)


def plain(value: Any) -> Any:
    """A sampled payload as an int, or as a dict of them."""
    if hasattr(value, "shape"):
        return {name: int(value[name]) for name in value.shape().members}
    return int(value)


async def put(ctx: Any, stream: Any, value: Any) -> None:
    """One transfer into a stream, from this cycle on."""
    ctx.set(stream.valid, 1)
    set_payload(ctx, stream.payload, value)
    ready = False
    while not ready:
        _, _, ready = await ctx.tick().sample(stream.ready)
    ctx.set(stream.valid, 0)


async def source(ctx: Any, stream: Any, values: Iterable[Any], rest: Pauses) -> None:
    """Put all values into a stream."""
    for value in values:
        while rest():
            await ctx.tick()
        await put(ctx, stream, value)


async def sink(ctx: Any, stream: Any, rest: Pauses, take: Callable[[Any], None]) -> None:
    """Give all that comes out of a stream to `take`; check that it waits unchanged."""
    waiting = None
    while True:
        ready = not rest()
        ctx.set(stream.ready, ready)
        _, _, valid, payload = await ctx.tick().sample(stream.valid, stream.payload)
        value = plain(payload) if valid else None
        assert waiting is None or value == waiting, "a transfer changed or went away before it was accepted"
        waiting = None if ready else value
        if valid and ready:
            take(value)


def content(address: int) -> int:
    """The byte that memory holds at an address before anything is written."""
    return (address * 0x9E3779B1 >> 13 ^ address) & 0xFF


@dataclass
class Memory:
    """A memory behind AXI4 that checks the rules of bursts and answers in random order between IDs.

    `bad` tells the answer at an address. `reads` and `writes` are the address payloads that came.
    """

    width: int
    rest: Pauses
    bad: Callable[[int], Resp] = lambda address: Resp.OKAY
    beats: int = 16
    data: dict[int, int] = field(default_factory=dict)
    reads: list[dict[str, int]] = field(default_factory=list)
    writes: list[dict[str, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._waiting: dict[int, deque[tuple[int, int, bool]]] = {}
        self._write_data: deque[dict[str, int]] = deque()
        self._write_bursts: deque[dict[str, int]] = deque()
        self._answers: deque[dict[str, int]] = deque()

    def add_to(self, simulator: Simulator, bus: Any, read: bool = True, write: bool = True) -> None:
        """Add this end of the bus to a simulation."""

        def seeded(offset: int) -> Pauses:
            return Pauses(self.rest.seed + offset, self.rest.chance)

        async def ar(ctx: Any) -> None:
            await sink(ctx, bus.ar, seeded(1), self._read_burst)

        async def aw(ctx: Any) -> None:
            await sink(ctx, bus.aw, seeded(2), self._write_burst)

        async def w(ctx: Any) -> None:
            await sink(ctx, bus.w, seeded(3), self._write_beat)

        async def r(ctx: Any) -> None:
            pauses = seeded(4)
            while True:
                ids = [i for i, queue in self._waiting.items() if queue]
                if not ids or pauses():
                    await ctx.tick()
                    continue
                identity = pauses.random.choice(ids)
                await put(ctx, bus.r, self._read_beat(identity, *self._waiting[identity].popleft()))

        async def b(ctx: Any) -> None:
            pauses = seeded(5)
            while True:
                if not self._answers or pauses():
                    await ctx.tick()
                else:
                    await put(ctx, bus.b, self._answers.popleft())

        for bench in (ar, r) if read else ():
            simulator.add_testbench(bench, background=True)
        for bench in (aw, w, b) if write else ():
            simulator.add_testbench(bench, background=True)

    def byte(self, address: int) -> int:
        return self.data.get(address, content(address))

    def _check(self, burst: dict[str, int]) -> None:
        size = 1 << burst["size"]
        assert burst["burst"] == Burst.INCR
        assert burst["addr"] % size == 0
        assert size <= self.width
        assert burst["len"] < self.beats
        assert burst["addr"] // BOUNDARY == (burst["addr"] + size * (burst["len"] + 1) - 1) // BOUNDARY

    def _read_burst(self, burst: dict[str, int]) -> None:
        self._check(burst)
        self.reads.append(burst)
        queue = self._waiting.setdefault(burst["id"], deque())
        for i in range(burst["len"] + 1):
            queue.append((burst["addr"] + (i << burst["size"]), 1 << burst["size"], i == burst["len"]))

    def _read_beat(self, identity: int, address: int, size: int, last: bool) -> dict[str, int]:
        lane = address % self.width
        # What is not asked for is filled with ones, so that taking the wrong lane shows.
        lanes = [0xFF] * self.width
        lanes[lane : lane + size] = [self.byte(address + i) for i in range(size)]
        value = int.from_bytes(bytes(lanes), "little")
        return {"id": identity, "data": value, "resp": self.bad(address), "last": last}

    def _write_burst(self, burst: dict[str, int]) -> None:
        self._check(burst)
        self.writes.append(burst)
        self._write_bursts.append(burst)
        self._write()

    def _write_beat(self, beat: dict[str, int]) -> None:
        self._write_data.append(beat)
        self._write()

    def _write(self) -> None:
        while self._write_bursts and len(self._write_data) > self._write_bursts[0]["len"]:
            burst, worst = self._write_bursts.popleft(), Resp.OKAY
            for i in range(burst["len"] + 1):
                beat, address = self._write_data.popleft(), burst["addr"] + (i << burst["size"])
                assert beat["last"] == (i == burst["len"])
                worst = max(worst, self.bad(address))
                base = address - address % self.width
                for lane in range(self.width):
                    if beat["strb"] >> lane & 1:
                        assert address <= base + lane < address + (1 << burst["size"])
                        self.data[base + lane] = beat["data"] >> 8 * lane & 0xFF
            self._answers.append({"id": burst["id"], "resp": worst})
