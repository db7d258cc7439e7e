"""Backend `amaranth`: Amaranth's own simulator, for small machines and systems without a C++ compiler.

One test bench does the work of the whole harness. In every cycle it answers the requests that are due, drives
the ports' ready signals (`MemorySettings.available`), plays the host script, records events, and writes
memory.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from amaranth.hdl import Value
from amaranth.sim import Simulator

from cosim import observe, verdict
from cosim.host import Op, region_words, script
from cosim.images import filled
from cosim.job import Job, Outcome, Output
from cosim.observe import Records
from cosim.waves import Waves
from hw.config import PORTS, MachineConfig
from hw.errors import InputError
from hw.rtl.machine import Machine
from sw.layout import MEMORY_BYTES

#: Number of cycles for which port availability is computed at once.
BLOCK = 1024


class AmaranthSimulator:
    """Runs jobs on the machine in Amaranth's simulator; see `cosim.job.Simulator`."""

    def __init__(self, config: MachineConfig, waves: Waves | None = None):
        if waves is not None and waves.file.suffix != ".vcd":
            raise InputError(f"the wave file of --sim amaranth must end in .vcd, not {str(waves.file)!r}")
        if waves is not None and (waves.windowed or waves.scopes):
            raise InputError("--sim amaranth writes waves of all cycles and scopes: choose some with another")
        self.config = config
        self.build_seconds = 0.0
        self._waves = waves

    def run(self, jobs: Sequence[Job]) -> list[Outcome]:
        """Run the jobs in order. Raises `RuntimeError` if a job does not end as the contract requires."""
        outcomes: list[Outcome] = []
        machine = Machine(self.config)

        async def bench(ctx: Any) -> None:
            wires = Wires(machine, self.config)
            for job in jobs:
                outcomes.append(await _play(ctx, self.config, wires, job))

        begin = time.perf_counter()
        simulator = Simulator(machine)
        simulator.add_clock(1e-6)
        simulator.add_testbench(bench)
        self.build_seconds = time.perf_counter() - begin
        with simulator.write_vcd(str(self._waves.file)) if self._waves else contextlib.nullcontext():
            simulator.run()
        return outcomes


class Wires:
    """The machine's ports as plain values, looked up once."""

    def __init__(self, machine: Any, config: MachineConfig):
        def stream(name: str) -> tuple[Any, Any, Value]:
            port = getattr(machine, name)
            return port.valid, port.ready, Value.cast(port.payload)

        self.host_request = stream("host_request")
        self.host_response = stream("host_response")
        self.requests = [stream(f"{port}_request") for port in PORTS]
        self.responses = [stream(f"{port}_response") for port in PORTS]
        self.running = machine.running
        self.done = machine.done
        self.cycle = machine.cycle
        self.trace = [
            Value.cast(getattr(machine, f"trace_{name}")) for name in ("issue", "void", "complete", "signal")
        ]
        self.pcs = [Value.cast(machine.trace_pc).word_select(w, 16) for w in range(config.warps)]
        names = ("output", "output_address", "output_value")
        self.stores = [Value.cast(getattr(machine, f"trace_{name}")) for name in names if config.store_pes]


class Memory:
    """The memory behind all four ports: its bytes, the accepted requests, and when each port accepts."""

    def __init__(self, config: MachineConfig, job: Job):
        self.settings = job.settings
        self.widths = [config.port_bytes(port) for port in PORTS]
        self.bytes = filled(job.placed().memory, job.placed().end)
        self.due: list[dict[int, int]] = [{} for _ in PORTS]
        self._pattern: tuple[int, list[np.ndarray]] = (-1, [])

    def accepts(self, port: int, running: int, cycle: int) -> bool:
        """Whether a port accepts a request. While the machine is not running, every port accepts."""
        if not running:
            return True
        block = cycle // BLOCK
        if self._pattern[0] != block:
            cycles = np.arange(block * BLOCK, (block + 1) * BLOCK, dtype=np.int64)
            self._pattern = (block, [self.settings.available(name, cycles) for name in PORTS])
        return bool(self._pattern[1][port][cycle % BLOCK])

    def answer(self, port: int, address: int) -> int:
        """Payload of the response that is due now."""
        beyond = address >= MEMORY_BYTES
        if PORTS[port] == "store":
            return int(beyond)
        width = self.widths[port]
        return 1 << 8 * width if beyond else int.from_bytes(self.bytes[address : address + width], "little")

    def accept(self, port: int, now: int, payload: int) -> None:
        """Accept a request. A write is visible to responses from the next cycle on."""
        address, width = payload & 0xFFFFFFFF, self.widths[port]
        self.due[port][now + self.settings.ports[PORTS[port]].latency] = address
        if PORTS[port] != "store" or address >= MEMORY_BYTES:
            return
        data = (payload >> 32 & (1 << 8 * width) - 1).to_bytes(width, "little")
        strobe = payload >> 32 + 8 * width
        for i in range(width):
            if strobe >> i & 1:
                self.bytes[address + i] = data[i]


async def _play(ctx: Any, config: MachineConfig, wires: Wires, job: Job) -> Outcome:
    """Run one job; each iteration of the loop is one clock cycle."""
    begin = time.perf_counter()
    memory = Memory(config, job)
    entries: Iterator[Any] = iter(script(config, job))
    entry = next(entries)
    outstanding, now, quiet = 0, 0, 0
    reading = False
    results: list[int] = []
    rows: list[tuple[int, ...]] = []
    stored: list[Output] = []
    pes = config.store_pes
    limit = observe.quiet_limit(job)
    ctx.set(wires.host_response[1], 1)
    while True:
        moved = _memory_cycle(ctx, wires, memory, now)
        moved |= _record(ctx, wires, rows)
        moved |= _record_stores(ctx, wires, pes, stored)
        if ctx.get(wires.host_response[0]):
            outstanding -= 1
            if reading:
                results.append(ctx.get(wires.host_response[2]))
        if entry.op is Op.WAIT and not outstanding and ctx.get(wires.done):
            reading, entry = True, next(entries)
        while entry.op in (Op.DUMP_FIRST, Op.DUMP_WORDS):
            entry = next(entries)
        if entry.op is Op.END and not outstanding and not any(memory.due):
            break
        access = entry.op in (Op.WRITE, Op.READ)
        ctx.set(wires.host_request[0], access)
        if access:
            ctx.set(wires.host_request[2], entry.address | entry.data << 16 | (entry.op is Op.WRITE) << 48)
            if ctx.get(wires.host_request[1]):
                outstanding, entry, moved = outstanding + 1, next(entries), True
        quiet = 0 if moved else quiet + 1
        if limit and quiet > limit:
            raise RuntimeError(f"{job.name}: {verdict.FAULTS[3]}")
        await ctx.tick()
        now += 1
    ctx.set(wires.host_request[0], 0)
    await ctx.tick()  # the next job must not see this cycle again
    words = memory.bytes.view("<u4")
    regions = [words[first : first + count] for first, count in map(region_words, job.placed().outputs)]
    dump = np.concatenate([words[:0], *regions])
    seconds = time.perf_counter() - begin
    return observe.outcome(config, job, _records(config, rows), results, dump, seconds, stored)


def _memory_cycle(ctx: Any, wires: Wires, memory: Memory, now: int) -> bool:
    """Simulate one cycle of all ports; returns whether anything moved."""
    moved = False
    for port, (valid, ready, payload) in enumerate(wires.responses):
        address = memory.due[port].pop(now, None)
        ctx.set(valid, address is not None)
        if address is not None:
            moved = True
            ctx.set(payload, memory.answer(port, address))
            if not ctx.get(ready):
                raise RuntimeError(f"{PORTS[port]}: {verdict.FAULTS[1]}")
    running, cycle = ctx.get(wires.running), ctx.get(wires.cycle)
    for port, (valid, ready, payload) in enumerate(wires.requests):
        accepts = memory.accepts(port, running, cycle)
        ctx.set(ready, accepts)
        if accepts and ctx.get(valid):
            moved = True
            memory.accept(port, now, ctx.get(payload))
    return moved


def _record(ctx: Any, wires: Wires, rows: list[tuple[int, ...]]) -> bool:
    issue, void, complete, signal = (ctx.get(wire) for wire in wires.trace)
    if not issue | complete | signal:
        return False
    rows.append((ctx.get(wires.cycle), issue, void, complete, signal, *map(ctx.get, wires.pcs)))
    return True


def _record_stores(ctx: Any, wires: Wires, pes: Sequence[int], stored: list[Output]) -> bool:
    """Record what the CGRA stores in this cycle; returns whether there was a store."""
    valid, addresses, values = (ctx.get(wire) for wire in wires.stores) if pes else (0, 0, 0)
    for port, pe in enumerate(pes if valid else ()):
        if valid >> port & 1:
            address, value = (word >> 32 * port & 0xFFFFFFFF for word in (addresses, values))
            stored.append(Output(ctx.get(wires.cycle), pe, address, value))
    return bool(valid)


def _records(config: MachineConfig, rows: list[tuple[int, ...]]) -> Records:
    table = np.array(rows, np.int64).reshape(-1, 5 + config.warps)
    cycle, issue, void, complete, signal = table[:, :5].T
    return Records(cycle, issue, void, complete, signal, pc=table[:, 5:])
