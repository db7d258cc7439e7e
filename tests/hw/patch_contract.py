"""The contract of load_b, load_b_t and load_b_conv in plain Python: step by step, without closed forms."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from hw.config import BufferShape, MachineConfig, load
from hw.isa import TIMING

TEST = load("test")


def pixel(address: int) -> int:
    """The byte at an address."""
    return (address * 167 + (address >> 7) * 59 + 13) & 255


@dataclass
class Step:
    """A beat or step: the address of its word if it awaits one, and its writes (column, lane, byte)."""

    address: int | None = None
    writes: list[tuple[int, int, int]] = field(default_factory=list)
    row: int | None = None  # address of an image row of a channel that is checked here
    patches: bool = False  # the last step of a load_b_conv


@dataclass
class Timed:
    """When an operation is taken and complete, and what it does at memory."""

    taken: int
    complete: int
    requests: list[tuple[int, int]]
    busy: int
    stalls: int
    asks: list[int]  # the cycle of every step in the requests
    writes: list[int]  # and in the writing half


def plain_steps(op: dict[str, int], shape: BufferShape, width: int) -> list[Step]:
    """The beats of a load without patches."""

    def write(row: int, k: int, byte: int) -> tuple[int, int, int]:
        lane, along = (k, row) if op["variant"] else (row, k)
        return op["target"] + lane // shape.lanes * op["load_pitch"] + along, lane % shape.lanes, byte

    steps, inner, pad = [], op["inner"], op["load_pad_inner"]
    for row in range(op["outer"] + op["load_pad_outer"]):
        if row < op["outer"]:
            start = (op["memory"] + row * op["load_stride"]) % 2**32
            for word in range(start // width * width, start + inner, width):
                bytes_ = [b for b in range(word, word + width) if start <= b < start + inner]
                steps.append(Step(word % 2**32, [write(row, b - start, pixel(b % 2**32)) for b in bytes_]))
            fills = range(inner, inner + pad)
        else:
            fills = range(inner + pad)
        for at in range(fills.start, fills.stop, width):
            beat = range(at, min(at + width, fills.stop))
            steps.append(Step(None, [write(row, k, op["load_fill"]) for k in beat]))
    return steps


def patch_steps(op: dict[str, int], shape: BufferShape, width: int) -> list[Step]:
    """The steps of a load_b_conv."""
    g = {name.removeprefix("conv_"): value for name, value in op.items()}
    align = (g["memory"] - g["left"]) % width
    steps = [Step() for _ in range(TIMING.conv_setup)]
    for y in range(g["height"]):
        steps += [Step() for _ in range(g["kernel_h"] + TIMING.conv_settle)]
        rows = [divmod(y - i * g["dilation_h"], g["stride_h"]) for i in range(g["kernel_h"])]
        uses = [(i, r) for i, (r, rest) in enumerate(rows) if rest == 0 and 0 <= r < g["out_rows"]]
        read_row = g["top"] <= y < g["top"] + g["rows"]
        for channel in range(g["outer"] if uses else 0):
            row = g["memory"] + (y - g["top"]) * g["line"] + channel * g["load_stride"] - g["left"]
            for b in range(-(-(align + g["width"]) // width)):
                beat = range(b * width - align, b * width - align + width)
                read = [x for x in beat if read_row and g["left"] <= x < g["left"] + g["inner"]]
                pixels = {x: g["load_fill"] for x in beat if 0 <= x < g["width"]}
                pixels |= {x: pixel((row + x) % 2**32) for x in read if x in pixels}
                first = len(steps)
                for i, r in uses:
                    for j in range(g["kernel_w"]):
                        depth = (channel * g["kernel_h"] + i) * g["kernel_w"] + j
                        step = Step()
                        for x, byte in pixels.items():
                            c, rest = divmod(x - j * g["dilation_w"], g["stride_w"])
                            if rest == 0 and 0 <= c < g["out_cols"]:
                                block, lane = divmod(r * g["out_cols"] + c, shape.lanes)
                                column = g["target"] + block * g["load_pitch"] + depth
                                step.writes.append((column, lane, byte))
                        steps.append(step)
                if read_row and b == 0:
                    steps[first].row = (row + g["left"]) % 2**32
                if read:
                    steps[first].address = (row + beat[0]) % 2**32
    steps[-1].patches = True
    return steps


def schedule(
    all_steps: list[list[Step]], issued: list[int], ready: Callable[[int], bool], latency: int
) -> list[Timed]:
    """When each operation is taken, requests, and completes."""
    entered = passed = wrote = 0
    timed: list[Timed] = []
    for steps, t in zip(all_steps, issued, strict=True):
        start = max(t + 1, entered)
        if len(timed) >= TIMING.in_flight:
            start = max(start, timed[-TIMING.in_flight].complete + 1)
        at, x = max(start + TIMING.load_request - 1, passed), 0
        # Steps of the setup, of which there are none otherwise, are not written.
        w = max(at + 2, wrote + 1 - TIMING.conv_setup * steps[-1].patches)
        asks, writes, requests, stalls = [], [], [], 0
        for k, step in enumerate(steps):
            if k:
                at = max(at + 1, x)
                w += 1
            x = at + 1
            if step.address is not None:
                while not ready(x):
                    x += 1
                stalls += x - at - 1
                requests.append((x, step.address))
                assert w <= x + latency, "an answer would have to wait"
                w = x + latency
            asks.append(at)
            writes.append(w)
        entered, passed, wrote = at + 1, x, w
        timed.append(Timed(start, w + TIMING.load_write, requests, len(steps), stalls, asks, writes))
    return timed


def banks_of(all_steps: list[list[Step]], shape: BufferShape) -> dict[tuple[int, int], int]:
    """What the banks hold in the end, by bank and address."""
    banks = {}
    for steps in all_steps:
        for step in steps:
            places = [(column, lane) for column, lane, _ in step.writes]
            assert len({(c + lane) % shape.banks for c, lane in places}) == len(places), "banks collide"
            for column, lane, byte in step.writes:
                assert column < shape.columns
                at = column // shape.banks * shape.lanes + column % shape.lanes
                banks[(lane + column) % shape.banks, at] = byte
    return banks


def random_patches(r: random.Random, shape: BufferShape, width: int) -> dict[str, int]:
    """A load_b_conv that fits into the buffer."""
    while True:
        op = {f"conv_kernel_{e}": r.randint(1, r.choice([1, 3, 5])) for e in "hw"}
        strides = [1, 1, 1, 2, 2, 3, 4, 5, width - 1, width + 1, r.randint(1, 255)]
        op |= {f"conv_stride_{e}": r.choice(strides) for e in "hw"}
        op |= {f"conv_dilation_{e}": r.choice([1, 1, 2, 3, r.randint(1, 20)]) for e in "hw"}
        op["conv_stride_h"] = min(op["conv_stride_h"], r.choice([2, 3, 5, 255]))
        op |= {"conv_out_rows": r.randint(1, 4), "conv_out_cols": r.randint(1, r.choice([3, 12, 40]))}
        for edge, out, n in (("h", "rows", "height"), ("w", "cols", "width")):
            outputs = (op[f"conv_out_{out}"] - 1) * op[f"conv_stride_{edge}"]
            exact = outputs + (op[f"conv_kernel_{edge}"] - 1) * op[f"conv_dilation_{edge}"] + 1
            op[f"conv_{n}"] = exact if r.random() < 0.7 else r.randint(1, exact + 4)
        height, across = op["conv_height"], op["conv_width"]
        op["conv_top"] = r.choice([0, 0, 1, 2, r.randint(0, height + 1)])
        op["conv_left"] = r.choice([0, 0, 1, 2, r.randint(0, across + 2 * width)])
        op["conv_rows"] = r.choice([height, max(0, height - op["conv_top"]), 0, r.randint(0, height)])
        op["inner"] = max(1, r.choice([across, across - op["conv_left"], r.randint(1, across)]))
        op["conv_line"] = width * r.choice([0, 1, -(-across // width), r.randint(0, 2**32 // width - 1)])
        op["load_stride"] = width * r.choice([0, 5, r.randint(0, 2**32 // width - 1)])
        op |= {"outer": r.randint(1, r.choice([1, 2, 5])), "load_fill": r.randrange(256), "variant": 2}
        op |= {"memory": r.randrange(2**32), "target": r.randint(0, r.choice([0, 50]))}
        depth = op["outer"] * op["conv_kernel_h"] * op["conv_kernel_w"]
        most = (shape.columns - op["target"] - depth) // max(
            1, (op["conv_out_rows"] * op["conv_out_cols"] - 1) // shape.lanes
        )
        pitches = range(shape.lanes % shape.banks, most + 1, shape.banks)
        if height > 60 or most <= 0 or not pitches:
            continue
        op["load_pitch"] = r.choice([pitches[-1], r.choice(pitches)])
        if len(patch_steps(op, shape, width)) <= 400:
            return op


def random_load(r: random.Random, shape: BufferShape) -> dict[str, int]:
    """A load_b or load_b_t that fits into the buffer."""
    variant = r.randint(0, 1)
    lanes = r.randint(1, shape.lanes) if variant else r.randint(1, 2 * shape.lanes)
    along = r.randint(1, 30)
    outer, inner = (along, lanes) if variant else (lanes, along)
    return {
        "variant": variant,
        "memory": r.randrange(2**32),
        "target": r.randint(0, 50),
        "outer": outer,
        "inner": inner,
        "load_stride": r.randrange(2**32),
        "load_pitch": r.randint(0, 99),
        "load_fill": r.randrange(256),
        "load_pad_outer": r.choice([0, 0, 2]) if not variant else 0,
        "load_pad_inner": r.choice([0, 0, 9]) if not variant else 0,
    }


def machine(width: int, cols: int, size: int) -> MachineConfig:
    """A machine by the width of port B, the columns of its array and the bytes of buffer B."""
    return TEST.replace(load_b_bytes=width, cols=cols, buffer_b_bytes=size, store_bytes=4, acc_bytes=8192)
