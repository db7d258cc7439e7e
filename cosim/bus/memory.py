"""An AXI4 memory for cocotb, built from the channels of cocotbext-axi.

Unlike `cocotbext.axi.AxiRam`, it accepts many requests before it responds, responds to different IDs in any
order and interleaved, performs a write only when it responds, and returns errors on demand.
"""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass
from typing import Any, NamedTuple

import cocotb
from cocotb.queue import Queue
from cocotb.triggers import ClockCycles, Event
from cocotbext.axi import axi_channels as channels

from cosim.bus.environment import CALM, DECERR, Environment

OKAY = 0


@dataclass
class _Read:
    """A read in progress: what is left of it, and the first cycle in which it may be answered."""

    address: int
    left: int
    size: int
    due: int


class _Write(NamedTuple):
    """A write with its transfers as (data, strobe), and the first cycle in which it may be answered."""

    identity: int
    address: int
    size: int
    transfers: list[tuple[int, int]]
    due: int


class Memory:
    """Serves `data`, whose first byte has the address `base`; other addresses are answered with DECERR.

    `bus` is a `cocotbext.axi.AxiBus`, `cycles` a handle that counts the cycles of `clock`.
    """

    def __init__(self, bus: Any, clock: Any, reset: Any, cycles: Any, data: bytearray, base: int = 0):
        self._clock, self._cycles, self._data, self._base = clock, cycles, data, base
        self.aw = channels.AxiAWSink(bus.write.aw, clock, reset, False)
        self.w = channels.AxiWSink(bus.write.w, clock, reset, False)
        self.b = channels.AxiBSource(bus.write.b, clock, reset, False)
        self.ar = channels.AxiARSink(bus.read.ar, clock, reset, False)
        self.r = channels.AxiRSource(bus.read.r, clock, reset, False)
        self.b.queue_occupancy_limit = self.r.queue_occupancy_limit = 1
        self._width = len(bus.write.w.wstrb)
        self._tasks: list[Any] = []
        self.behave(CALM)
        self.restart()

    def behave(self, environment: Environment) -> None:
        """Change latencies, order and errors from the next request on; transfers are counted from 0 again."""
        self._environment = environment
        self._random = random.Random(f"memory {environment.seed}")
        self._errors = {(f.read, f.number): f.response for f in environment.faults}
        self._count = {True: 0, False: 0}

    def restart(self) -> None:
        """Drop all requests in progress, as after a reset."""
        for task in self._tasks:
            task.cancel()
        self._reads: dict[int, deque[_Read]] = {}
        self._writes: Queue[_Write] = Queue()
        self._some_read = Event()
        parts = (self._take_reads, self._take_writes, self._answer_reads, self._answer_writes)
        self._tasks = [cocotb.start_soon(part()) for part in parts]

    def _now(self) -> int:
        return int(self._cycles.value)

    def _due(self) -> int:
        return self._now() + self._random.randint(*self._environment.latency)

    def _place(self, address: Any) -> int:
        return (int(address) - self._base) % (1 << 32)

    async def _take_reads(self) -> None:
        while True:
            ar = await self.ar.recv()
            read = _Read(self._place(ar.araddr), int(ar.arlen) + 1, 1 << int(ar.arsize), self._due())
            self._reads.setdefault(int(ar.arid), deque()).append(read)
            self._some_read.set()

    async def _answer_reads(self) -> None:
        identity: int | None = None
        while True:
            heads = {i: reads[0] for i, reads in self._reads.items() if reads}
            if not heads:
                self._some_read.clear()
                await self._some_read.wait()
                continue
            ready = [i for i, read in heads.items() if read.due <= self._now()]
            if not ready:
                await ClockCycles(self._clock, 1)
                continue
            if identity not in ready or (self._environment.shuffle and self._random.random() < 0.4):
                identity = self._random.choice(ready)
            await self._answer_read(identity, heads[identity])
            if heads[identity].left == 0:
                self._reads[identity].popleft()
                identity = None

    async def _answer_read(self, identity: int, read: _Read) -> None:
        """Send the next transfer of a read."""
        word = read.address // self._width * self._width
        response = self._response(True, word)
        if response == OKAY:
            data = int.from_bytes(self._data[word : word + self._width], "little")
        else:
            data = self._random.getrandbits(8 * self._width)
        read.address += read.size
        read.left -= 1
        await self.r.send(
            channels.AxiRTransaction(rid=identity, rdata=data, rresp=response, rlast=int(read.left == 0))
        )

    async def _take_writes(self) -> None:
        while True:
            aw = await self.aw.recv()
            words = [await self.w.recv() for _ in range(int(aw.awlen) + 1)]
            transfers = [(int(w.wdata), int(w.wstrb)) for w in words]
            self._writes.put_nowait(
                _Write(int(aw.awid), self._place(aw.awaddr), 1 << int(aw.awsize), transfers, self._due())
            )

    async def _answer_writes(self) -> None:
        while True:
            write = await self._writes.get()
            await ClockCycles(self._clock, max(1, write.due - self._now()))
            response = self._response(False, write.address + write.size * len(write.transfers) - 1)
            if response == OKAY:
                self._store(write)
            await self.b.send(channels.AxiBTransaction(bid=write.identity, bresp=response))

    def _store(self, write: _Write) -> None:
        for number, (data, strobe) in enumerate(write.transfers):
            word = (write.address + number * write.size) // self._width * self._width
            values = data.to_bytes(self._width, "little")
            for lane in range(self._width):
                if strobe >> lane & 1:
                    self._data[word + lane] = values[lane]

    def _response(self, read: bool, address: int) -> int:
        """The code of the next response, which is counted."""
        number = self._count[read]
        self._count[read] += 1
        return DECERR if address >= len(self._data) else self._errors.get((read, number), OKAY)
