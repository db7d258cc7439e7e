"""The simulator's side of `cosim.bus.axi`: a cocotb test that executes commands."""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from typing import Any

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import ClockCycles, First, RisingEdge, SimTimeoutError, Timer, with_timeout
from cocotbext.axi import AxiBus, AxiLiteBus, AxiLiteMaster, AxiRam

from cosim.bus.commands import connect, obey
from cosim.bus.environment import CALM, Environment
from cosim.bus.memory import Memory

#: Timeout of a register access, in cycles.
PATIENCE = 100_000


class Bench:
    """Models of the host and of the memory around the pins; each public method is a command."""

    def __init__(self, dut: Any, size: int, stock: bool, base: int):
        self._dut, self._data = dut, bytearray(size)
        self._master = AxiLiteMaster(AxiLiteBus.from_prefix(dut, "s_axil"), dut.aclk, dut.aresetn, False)
        bus = AxiBus.from_prefix(dut, "m_axi")
        self._memory: Memory | None = None
        if stock:
            ram = AxiRam(bus, dut.aclk, dut.aresetn, False, mem=self._data)
            write, read = ram.write_if, ram.read_if
            memory = [write.aw_channel, write.w_channel, write.b_channel, read.ar_channel, read.r_channel]
        else:
            self._memory = m = Memory(bus, dut.aclk, dut.aresetn, dut.cycles, self._data, base)
            memory = [m.aw, m.w, m.b, m.ar, m.r]
        write, read = self._master.write_if, self._master.read_if
        host = [write.aw_channel, write.w_channel, write.b_channel, read.ar_channel, read.r_channel]
        self._channels = [*host, *memory]
        self._pausing: Any = None

    async def behave(self, environment: Environment) -> None:
        """Change the behaviour of host and memory."""
        if self._memory is not None:
            self._memory.behave(environment)
        if self._pausing is not None:
            self._pausing.cancel()
        r = random.Random(f"pauses {environment.seed}")
        rates = [(channel, r.choice(environment.pauses)) for channel in self._channels]
        for channel, _ in rates:
            channel.pause = False
        some = [(channel, rate) for channel, rate in rates if rate]
        self._pausing = cocotb.start_soon(self._pause(r, some)) if some else None

    async def _pause(self, r: random.Random, rates: Sequence[tuple[Any, float]]) -> None:
        edge = RisingEdge(self._dut.aclk)
        while True:
            for channel, rate in rates:
                channel.pause = r.random() < rate
            await edge

    async def reset(self) -> None:
        """Hold reset for four cycles."""
        self._dut.aresetn.value = 0
        await ClockCycles(self._dut.aclk, 4)
        if self._memory is not None:
            self._memory.restart()
        self._dut.aresetn.value = 1
        await ClockCycles(self._dut.aclk, 2)

    async def read(self, address: int, words: int) -> tuple[int, bytes]:
        """Read successive registers; returns response and data."""
        done = await self._in_time(self._master.read(address, 4 * words))
        return int(done.resp), bytes(done.data)

    async def write(self, address: int, words: Sequence[int]) -> int:
        """Write words to one register, one after the other; returns the worst response."""
        worst = 0
        for word in words:
            done = await self._in_time(self._master.write(address, word.to_bytes(4, "little")))
            worst = max(worst, int(done.resp))
        return worst

    async def _in_time(self, access: Any) -> Any:
        try:
            return await with_timeout(access, 2 * PATIENCE, "step")  # a cycle has two steps
        except SimTimeoutError:
            raise TimeoutError(f"no answer in {PATIENCE} cycles") from None

    async def peek(self, address: int, size: int) -> bytes:
        """Read bytes of the memory."""
        return bytes(self._data[address : address + size])

    async def poke(self, address: int, data: bytes) -> None:
        """Write bytes of the memory."""
        self._data[address : address + len(data)] = data

    async def idle(self, cycles: int) -> None:
        """Let `cycles` cycles pass, or fewer if the machine raises its interrupt."""
        if not int(self._dut.irq.value):
            await First(RisingEdge(self._dut.irq), ClockCycles(self._dut.aclk, cycles))

    async def plant(self, number: int) -> None:
        """Break an AXI rule from now on (harness/axi/harness.sv); 0: none."""
        self._dut.plant.value = number

    async def state(self) -> dict[str, int]:
        """The checkers' state, including what has not been answered yet."""
        await ClockCycles(self._dut.aclk, 2)  # the checkers count one edge after the models
        names = ("irq", "cycles", "axi_broken", "lite_broken", "axi_open", "lite_open", "transfers")
        return {name: int(getattr(self._dut, name).value) for name in names}


@cocotb.test()  # type: ignore[untyped-decorator]  # cocotb has no types
async def serve(dut: Any) -> None:
    """Execute commands until there are no more."""
    with connect() as connection:
        dut.plant.value = 0
        dut.aresetn.value = 1  # the models look for edges of reset
        await Timer(1, "step")
        size, stock, base = (int(os.environ[f"HEALD_{name}"]) for name in ("MEMORY", "STOCK", "BASE"))
        bench = Bench(dut, size, bool(stock), base)
        Clock(dut.aclk, 2, "step").start(start_high=False)
        await bench.reset()
        await bench.behave(CALM)
        await obey(connection, bench)
