"""The loop of a pool for PEs with several lanes: an iteration computes one output per lane.

Maxima down the columns come first, separately in each lane. Along the row, lanes need their neighbours:
`shift_lanes` takes these from the next block, so blocks are computed from the last one to the first. With a
stride of 2, even and odd columns are two values, in each of which adjacent lanes belong to adjacent outputs.
"""

from __future__ import annotations

import functools

from hw.fabric.layout import ARRAYS
from sw.kernels.kernel import GridKernel, Stream
from sw.kernels.passes import balanced, loop, numbered
from sw.patches import Axis


def possible(rows: Axis, cols: Axis, lanes: int) -> bool:
    """Whether such a loop exists: it needs an array per load, and shifts of less than a block."""
    return (
        lanes > 1
        and (cols.stride == 1 or (cols.stride == 2 and cols.dilation == 1))
        and rows.kernel * cols.stride < ARRAYS
        and (cols.reach - 1) // cols.stride < lanes
    )


def blocks(cols: Axis, outputs: int, lanes: int) -> int:
    """Number of blocks that hold the windows of `outputs` outputs of a row."""
    return -(-cols.span(outputs) // (cols.stride * lanes))


def width(cols: Axis, outputs: int, lanes: int) -> int:
    """Number of pixels in these blocks."""
    return blocks(cols, outputs, lanes) * cols.stride * lanes


@functools.cache
def windows(rows: Axis, cols: Axis, element: str, lanes: int, pitch: int) -> GridKernel:
    """The loop over blocks of outputs; rows of pixels are `pitch` bytes apart, results always have a gap."""
    inputs, lines = [], []
    for number, block in enumerate(("a", "b")[: cols.stride]):
        streams = [
            Stream(name, "scratch", element, i * rows.dilation * pitch + number * lanes)
            for i, name in enumerate(numbered(block, rows.kernel))
        ]
        inputs += streams
        lines.append(f"{block} = {balanced([f'load_lanes({s.name}, x)' for s in streams], 'max({}, {})')}")
    values = [("a", cols.kernel)]
    if cols.stride == 2:
        lines += ["even = even_lanes(a, b)", "odd = odd_lanes(a, b)"][: cols.kernel]
        values = [("even", -(-cols.kernel // 2)), ("odd", cols.kernel // 2)][: cols.kernel]
    found, carried = [], []
    for value, count in values:
        covered = 1
        while covered < count:
            more, name = min(covered, count - covered), f"{value}_{covered}"
            lines.append(f"{name} = max({value}, shift_lanes({value}, {value}_next, {more * cols.dilation}))")
            carried.append(value)
            value, covered = name, covered + more
        found.append(value)
    lines += [
        f"store_lanes(out, y, {balanced(found, 'max({}, {})')})",
        # Masks instead of selects, which few PEs have; they are 0 after the last block of a row, or of a
        # channel.
        "in_row = (col == last) - 1",
        "in_plane = (place == most) - 1",
        "x = x + over + ((in_plane & down) + (in_row & step))",
        f"y = y - {lanes} + skip - (in_row & skip)",
        "col = (col + 1) & in_row",
        "place = (place + 1) & in_plane",
        *(f"{name}_next = {name}" for name in carried),
    ]
    before = ["col = 0", "place = 0", *(f"{name}_next = 0" for name in carried)]
    return loop(
        f"max_pool_{rows.kernel}x{cols.kernel}_lanes",
        (*inputs, Stream("out", "out", element)),
        ("x", "y", "last", "most", "over", "down", "step", "skip"),
        "\n".join(lines),
        "\n".join(before),
        per_iteration=lanes,
        lanes=lanes,
    )
