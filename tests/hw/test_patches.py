"""`load_b_conv` on the loader alone: every request, completion, byte and error follows the contract."""

from __future__ import annotations

import random
from typing import Any

import pytest
from amaranth.hdl import ResetInserter, Signal, Value
from amaranth.sim import Simulator

from hw.config import BufferShape, MachineConfig
from hw.isa import TIMING, Cause
from hw.rtl.memory.loader import Loader
from tests.hw.patch_contract import (
    Step,
    Timed,
    banks_of,
    machine,
    patch_steps,
    pixel,
    plain_steps,
    random_load,
    random_patches,
    schedule,
)

#: Port widths, columns of the array, bytes of the buffer.
MACHINES = [(8, 4, 4096), (4, 8, 4096), (16, 4, 8192), (8, 8, 8192), (32, 2, 8192), (4, 2, 512)]


def open_window(ctx: Any, loader: Loader, first: int, last: int) -> None:
    """Permit reading of one range."""
    ctx.set(Value.cast(loader.windows), 0)
    for bound, value in (("first", first), ("last", last), ("read", 1)):
        ctx.set(getattr(loader.windows[0], bound), value)


def word_at(address: int, width: int) -> int:
    """The word that memory answers."""
    return int.from_bytes(bytes(pixel(address + i) for i in range(width)), "little")


def written(ctx: Any, loader: Loader) -> dict[tuple[int, int], int]:
    """What the loader writes in this cycle, by bank and address."""
    enables, banks = ctx.get(loader.write.enable), {}
    if enables:
        addresses = Value.cast(loader.write.address)
        at, data, count = ctx.get(addresses), ctx.get(loader.write.data), len(loader.write.enable)
        bits = len(addresses) // count
        for b in range(count):
            if enables >> b & 1:
                banks[b, at >> bits * b & (1 << bits) - 1] = data >> 8 * b & 255
    return banks


async def play(ctx: Any, loader: Loader, ops: list[dict[str, int]], r: random.Random, name: str) -> None:
    """Run operations and compare with the contract."""
    config = loader.config
    shape, width = config.derived.buffer_b, config.load_b_bytes
    latency = r.choice([1, 1, 2, 7, 30])
    rate = r.choice([0.0, 0.0, 0.3, 0.8])
    blocked = [r.random() < rate for _ in range(4096)]
    steps = [(patch_steps if op["variant"] == 2 else plain_steps)(op, shape, width) for op in ops]
    issued, t = [], 0
    for _ in ops:
        t += r.choice([1, 1, 1, 40])
        issued.append(t)
    timed = schedule(steps, issued, lambda t: not blocked[t % 4096], latency)
    control, memory = loader.control, loader.memory
    open_window(ctx, loader, 0, 2**32 - 1)
    banks: dict[tuple[int, int], int] = {}
    taken, completed, requests, due = [], [], [], {}
    busy = stalls = count = 0
    for now in range(timed[-1].complete + 4):
        operation = control.operation
        waiting = len(taken) < len(ops) and issued[len(taken)] < now
        ctx.set(operation.valid, waiting)
        if waiting:
            ctx.set(operation.payload, ops[len(taken)])
        ctx.set(memory.request.ready, not blocked[now % 4096])
        answer = due.pop(now, None)
        ctx.set(memory.response.valid, answer is not None)
        if answer is not None:
            ctx.set(memory.response.payload.data, word_at(answer, width))
            assert ctx.get(memory.response.ready), f"{name}: the answer of cycle {now} is not taken"
        if waiting and ctx.get(operation.ready):
            taken.append(now)
        if ctx.get(memory.request.valid) and not blocked[now % 4096]:
            requests.append((now, ctx.get(memory.request.payload)))
            due[now + latency] = requests[-1][1]
        if ctx.get(control.complete):
            completed.append(now)
        assert not ctx.get(control.error), f"{name}: error in cycle {now}: {ctx.get(control.error_report)}"
        busy += ctx.get(control.busy)
        stalls += ctx.get(control.stall_memory)
        now_written = written(ctx, loader)
        banks |= now_written
        count += len(now_written)
        await ctx.tick()
    assert taken == [o.taken for o in timed], name
    assert requests == [q for o in timed for q in o.requests], name
    assert completed == [o.complete for o in timed], name
    assert (busy, stalls) == (sum(o.busy for o in timed), sum(o.stalls for o in timed)), name
    assert banks == banks_of(steps, shape), name
    assert count == sum(len(step.writes) for operation in steps for step in operation), name


def run(config: MachineConfig, cases: list[tuple[str, int, list[dict[str, int]]]]) -> list[str]:
    """Play cases (name, seed of all else, operations) one after the other on one loader.

    The names of those that went as they should; the first that does not raises `AssertionError`.
    """
    loader = Loader(config, "load_b")
    played: list[str] = []

    async def bench(ctx: Any) -> None:
        for name, seed, ops in cases:
            await play(ctx, loader, ops, random.Random(seed), name)
            played.append(name)

    simulator = Simulator(loader)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
    return played


def random_case(seed: int, config: MachineConfig) -> tuple[str, int, list[dict[str, int]]]:
    """Several operations, most of them of patches."""
    r = random.Random(seed)
    shape = config.derived.buffer_b
    ops = [
        random_patches(r, shape, config.load_b_bytes) if r.random() < 0.6 else random_load(r, shape)
        for _ in range(r.choice([1, 3, 7]))
    ]
    return f"seed {seed}: {ops}", seed, ops


@pytest.mark.parametrize("shape", MACHINES, ids=str)
def test_random_patches(shape: tuple[int, int, int]) -> None:
    config = machine(*shape)
    cases = [random_case(seed, config) for seed in range(15)]
    assert run(config, cases) == [name for name, _, _ in cases]


def small(**changes: int) -> dict[str, int]:
    """Nine outputs of a kernel of 3 x 3 on two channels of an image with a border of padding."""
    op = {f"conv_{name}_{edge}": 1 for name in ("stride", "dilation") for edge in "hw"}
    op |= {"conv_kernel_h": 3, "conv_kernel_w": 3, "conv_out_rows": 3, "conv_out_cols": 3}
    op |= {"conv_height": 5, "conv_width": 5, "conv_top": 1, "conv_left": 1, "conv_rows": 3, "inner": 3}
    op |= {"conv_line": 8, "load_stride": 32, "load_pitch": 20, "load_fill": 9, "outer": 2, "variant": 2}
    return op | {"memory": 256, "target": 0} | changes


def first_fault(
    steps: list[Step], timed: Timed, size: int, shape: BufferShape, window: tuple[int, int]
) -> tuple[int, Cause] | None:
    """The first step whose row is in no window or that leaves the buffer: when it is told, and its cause."""
    for k, step in enumerate(steps):
        if step.row is not None and not (window[0] <= step.row and step.row + size - 1 <= window[1]):
            return timed.asks[k] + TIMING.load_error, Cause.WINDOW
        if any(column >= shape.columns for column, _, _ in step.writes):
            return timed.writes[k] + TIMING.load_write - 1, Cause.BUFFER_RANGE
    return None


def provoke(config: MachineConfig, cases: list[tuple[dict[str, int], tuple[int, int], Any]]) -> list[Any]:
    """Run operations that fail on a loader that is reset before each: cases of operation, window, fault.

    The faults that were found; the first in another cycle or of another cause raises `AssertionError`.
    """
    faults: list[Any] = []
    loader, clear, latency = Loader(config, "load_b"), Signal(), 3
    control, memory = loader.control, loader.memory

    async def bench(ctx: Any) -> None:
        for op, window, expected in cases:
            ctx.set(clear, 1)
            await ctx.tick()
            ctx.set(clear, 0)
            await ctx.tick()  # in the first cycle behind a reset nothing is taken
            open_window(ctx, loader, *window)
            ctx.set(memory.request.ready, 1)
            ctx.set(control.operation.payload, op)
            due: dict[int, int] = {}
            for now in range(2, expected[0] + 1):
                ctx.set(control.operation.valid, now == 2)
                ctx.set(memory.response.valid, now in due)
                ctx.set(memory.response.payload.data, word_at(due.get(now, 0), config.load_b_bytes))
                if ctx.get(memory.request.valid):
                    due[now + latency] = ctx.get(memory.request.payload)
                found = ctx.get(control.error), ctx.get(control.error_report.cause)
                assert found[0] == (now == expected[0]), f"{op}: {found} in {now}, not {expected}"
                if found[0]:
                    assert found[1] == expected[1], f"{op}: {found} in {now}, not {expected}"
                    faults.append((now, found[1]))
                await ctx.tick()

    simulator = Simulator(ResetInserter(clear)(loader))
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
    return faults


OPEN = (0, 2**32 - 1)


def reached(op: dict[str, int], config: MachineConfig, window: tuple[int, int] = OPEN) -> Any:
    """A case of `provoke` for an error in the middle of an operation, or None."""
    shape = config.derived.buffer_b
    steps = patch_steps(op, shape, config.load_b_bytes)
    timed = schedule([steps], [1], lambda _: True, 3)[0]
    fault = first_fault(steps, timed, op["inner"], shape, window)
    return None if fault is None else (op, window, fault)


def test_operands_that_are_refused() -> None:
    config = machine(8, 4, 4096)
    zeros = [n for n in small() if n[:4] == "conv" and n not in ("conv_top", "conv_left", "conv_rows")]
    zeros = [n for n in zeros if n != "conv_line"] + ["outer", "inner"]
    wrong = [{n: 0} for n in zeros]
    wrong += [{"load_stride": 36}, {"conv_line": 1}, {"load_pitch": 24}, {"load_pitch": 4 + 4}]
    large = [{"conv_out_rows": 256, "conv_out_cols": 256}, {"outer": 7282}, {"conv_out_rows": 65535}]
    large += [{"conv_kernel_h": 255, "conv_kernel_w": 255, "outer": 65535}]
    fault = 2 + TIMING.load_request - 1 + TIMING.load_error, Cause.OPERAND
    cases = [(small(**change), OPEN, fault) for change in wrong + large]
    assert provoke(config, cases) == [fault for _, _, fault in cases]


def test_rows_outside_windows() -> None:
    config = machine(8, 4, 4096)
    windows = [(257, 400), (256, 257), (256, 274 + 31), (256, 271), (300, 299), (256, 299)]
    cases = [reached(small(), config, window) for window in windows]
    provoke(config, [case for case in cases if case])
    assert sum(case is not None for case in cases) >= 5
    assert reached(small(conv_rows=0), config, (300, 299)) is None


@pytest.mark.parametrize("shape", [(8, 4, 4096), (64, 2, 8192), (128, 2, 16384)], ids=str)
def test_columns_outside_the_buffer(shape: tuple[int, int, int]) -> None:
    """Pitches of any size, so that products wrap: no column comes back into the buffer unnoticed."""
    config, r = machine(*shape), random.Random(3)
    buffer = config.derived.buffer_b
    cases: list[Any] = []
    while len(cases) < 25:
        op = random_patches(r, buffer, config.load_b_bytes) | {"outer": 1}
        for edge in "hw":
            op |= {f"conv_stride_{edge}": r.randint(1, 3), f"conv_dilation_{edge}": 1}
        op |= {"conv_out_cols": r.randint(1, 150), "conv_width": 150, "conv_rows": r.randint(0, 1)}
        most = (1 << r.randint(10, 20)) // buffer.banks - 1
        op["load_pitch"] = buffer.lanes % buffer.banks + buffer.banks * r.randint(most // 2, most)
        op["target"] = r.choice([0, 0, r.randint(0, buffer.columns), r.randrange(1 << 20)])
        case = reached(op, config)
        if case and case[2][0] < 500:
            cases.append(case)
    assert provoke(config, cases) == [fault for _, _, fault in cases]


def test_products_that_wrap_into_the_buffer() -> None:
    """The second output row would come to lie in the buffer again, 2^24 columns further."""
    change = {"conv_kernel_h": 1, "conv_kernel_w": 1, "conv_out_rows": 2, "conv_height": 2, "conv_top": 0}
    change |= {"conv_left": 0, "outer": 1, "inner": 2, "conv_width": 2, "conv_line": 0, "load_stride": 0}
    for shape, more in (
        ((8, 4, 4096), {"conv_out_cols": 4 * 4092, "load_pitch": 4100, "target": 20}),
        # The low bits of the pitch alone lead beyond it.
        ((16, 8, 4096), {"conv_out_cols": 8191, "load_pitch": 8, "target": 99}),
        # Byte 0 of the beat is before the row, 43 blocks before the first that is written.
        ((128, 2, 16384), {"conv_out_cols": 86, "load_pitch": 390146, "target": 940, "memory": 86}),
    ):
        config = machine(*shape)
        case = reached(small(**change, **more), config)
        assert case[2][1] is Cause.BUFFER_RANGE
        provoke(config, [case])
