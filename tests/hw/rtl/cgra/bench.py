"""Runs launches on the CGRA alone and compares every cycle with the reference."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from amaranth.hdl import ResetInserter, Signal, Value
from amaranth.sim import Simulator

from hw.config import MachineConfig
from hw.fabric import Fabric
from hw.isa import Cause
from hw.rtl.cgra.grid import Grid
from tests.hw.rtl.cgra.reference import Held, Launch, Reference


@dataclass
class Case:
    """Launches from a reset on: operations with the cycles in which they come, and the memories."""

    name: str
    ops: list[tuple[int, dict[str, int]]]
    memories: list[bytearray]  # accumulator, scratchpad, output buffer
    held: Callable[[int], Held] = lambda cycle: Held()


def operation(bitstream: int, iterations: int, scalars: Sequence[int] = ()) -> dict[str, int]:
    """The payload of an operation; scalars are live0, live1, cgra_0, ..."""
    names = ["live0", "live1", *(f"cgra_{i}" for i in range(12))]
    values = dict(zip(names, [*scalars, *[0] * 14], strict=False))
    return {"bitstream": bitstream, "iterations": iterations, "warp": 3, "pc": 77} | values


def expected(config: MachineConfig, case: Case) -> tuple[Reference, list[Launch]]:
    """What the contract says; the output buffer of the reference is a copy."""
    memories = [bytearray(memory) for memory in case.memories]
    reference = Reference(config, memories, case.held)
    launches: list[Launch] = []
    for issued, op in case.ops:
        launches.append(reference.launch(max(issued + 1, launches[-1].end + 1 if launches else 0), op))
        if launches[-1].cause is not None:
            break
    return reference, launches


def run(config: MachineConfig, cases: Sequence[Case]) -> list[list[Launch]]:
    """Play cases one after the other on one grid; raises `AssertionError` where it differs."""
    simulator, waiting, played = _simulator(config)
    if waiting:  # it has run before
        simulator.reset()
    waiting[:] = cases
    played.clear()
    simulator.run()
    return list(played)


@lru_cache
def _simulator(config: MachineConfig) -> tuple[Simulator, list[Case], list[list[Launch]]]:
    """A simulator, made once for all runs of a machine; the cases that it plays, and what they gave."""
    grid, clear = Grid(config), Signal()
    waiting: list[Case] = []
    played: list[list[Launch]] = []

    async def bench(ctx: Any) -> None:
        for case in waiting:
            played.append(await _play(ctx, config, grid, clear, case))

    simulator = Simulator(ResetInserter(clear)(grid))
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    return simulator, waiting, played


async def _play(ctx: Any, config: MachineConfig, grid: Grid, clear: Signal, case: Case) -> list[Launch]:
    reference, launches = expected(config, case)
    port, control = grid.port, grid.port.control
    ctx.set(clear, 1)
    ctx.set(control.operation.valid, 0)
    ctx.set(control.stop, 1)
    await ctx.tick()
    ctx.set(clear, 0)
    ctx.set(control.stop, 0)
    out = case.memories[2]
    busy = stalls = 0
    seen: list[tuple[int, int, int, int]] = []
    taken, ends = [], []
    links, held = reference.history[0], Held()
    for now in range(launches[-1].end + 3):
        links = reference.history.get(now, links)
        assert _links(ctx, reference.fabric, grid) == links, f"{case.name}: links in cycle {now}"
        if case.held(now) != held or not now:  # to set what is set already takes time
            held = case.held(now)
            ctx.set(port.scratch.held, held.scratch)
            ctx.set(port.out_read.held, held.out)
            ctx.set(port.acc.held, held.acc)
        number = len(taken)
        if number < len(launches) and case.ops[number][0] < now:
            ctx.set(control.operation.valid, 1)
            ctx.set(control.operation.payload, case.ops[number][1])
            if ctx.get(control.operation.ready):
                taken.append(now)
        elif ctx.get(control.operation.valid):
            ctx.set(control.operation.valid, 0)
        if ctx.get(control.complete):
            assert ctx.get(control.complete_warp) == 3
            ends.append((now, None))
        busy += ctx.get(control.busy)
        stalls += ctx.get(control.stall_bank)
        data = _reads(ctx, config, grid, case.memories, held, f"{case.name}: cycle {now}")
        for pe, store in zip(config.store_pes, port.stores, strict=True):
            if ctx.get(store.valid):
                seen.append((now, pe, ctx.get(store.address), ctx.get(store.value)))
        _write(ctx, config, grid, out)
        if ctx.get(control.error):
            report = control.error_report
            ends.append((now, Cause(ctx.get(report.cause))))
            assert (ctx.get(report.warp), ctx.get(report.pc)) == (3, 77)
            await ctx.tick()
            ctx.set(control.stop, 1)
        else:
            await ctx.tick()
        for target, value in data:
            ctx.set(target, value)
    assert taken == [launch.taken for launch in launches], case.name
    assert ends == [(launch.end, launch.cause) for launch in launches], case.name
    assert sorted(seen) == sorted(s for launch in launches for s in launch.stores), case.name
    assert bytes(out) == bytes(reference.memories[2]), case.name
    whole = [launch for launch in launches if launch.cause is None]
    if len(whole) == len(launches):
        assert busy == sum(launch.end - launch.taken for launch in whole), case.name
        assert stalls == sum(launch.stalls for launch in whole), case.name
    return launches


def _links(ctx: Any, fabric: Fabric, grid: Grid) -> list[list[int]]:
    """The link registers in the order of the fabric's links, by lane."""
    found = []
    for pe, links in zip(grid.pes, fabric.outgoing, strict=True):
        value = ctx.get(pe.links_out)
        for link in links:
            lanes = fabric.link_lanes(link)
            found.append([value >> 32 * lane & 0xFFFFFFFF for lane in range(lanes)])
            value >>= 32 * lanes
    return found


def _reads(
    ctx: Any, config: MachineConfig, grid: Grid, memories: list[bytearray], held: Held, name: str
) -> list[tuple[Any, int]]:
    """What the banks give in the next cycle: where nothing was asked for, what was there or noise."""
    port, noise = grid.port, random.Random(name)
    found = []
    derived = config.derived
    for reader, memory, shape, other in (
        (port.scratch, memories[1], derived.scratch, held.scratch),
        (port.out_read, memories[2], derived.out, held.out),
    ):
        enable, banks = ctx.get(reader.enable), shape.banks // 4
        assert not (enable and other), f"{name}: a bank is read that is held"
        value = 0
        for b in range(banks):
            word = noise.randrange(1 << 32)
            if enable >> b & 1:
                at = 4 * (ctx.get(reader.address[b]) * banks + b)
                word = int.from_bytes(memory[at : at + 4], "little")
            value |= word << 32 * b
        if enable or noise.random() < 0.3:
            found.append((reader.data, value))
    enable = ctx.get(port.acc.enable)
    assert not enable & held.acc, f"{name}: a bank of the accumulator is read that is held"
    size = derived.acc_word_bytes
    value = 0
    for b in range(config.acc_banks):
        row = noise.randrange(1 << 8 * size)
        if enable >> b & 1:
            at = size * (derived.acc_bank_words * b + ctx.get(port.acc.address[b]))
            row = int.from_bytes(memories[0][at : at + size], "little")
        value |= row << 8 * size * b
    if enable or noise.random() < 0.3:
        found.append((port.acc.data, value))
    return found


def _write(ctx: Any, config: MachineConfig, grid: Grid, out: bytearray) -> None:
    """What is written at the end of this cycle; reads of this cycle have been made."""
    write, banks = grid.port.out_write, config.derived.out.banks
    enable = ctx.get(write.enable)
    if not enable:
        return
    data, addresses = ctx.get(write.data), ctx.get(Value.cast(write.address))
    bits = len(Value.cast(write.address)) // banks
    for b in range(banks):
        if enable >> b & 1:
            out[(addresses >> bits * b & (1 << bits) - 1) * banks + b] = data >> 8 * b & 255
