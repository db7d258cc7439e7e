"""Pooling on the CGRA produces its reference's results, by the graphs and by the bitstreams."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from sw.graph.requantise import LIMITS
from sw.kernels.passes import Pass
from sw.operators.pools import wide
from sw.operators.pools.operator import MaxPool, PoolTile
from sw.patches import Axis
from tests.sw.kernels.passes import Bytes, by_graph, by_words, machine, spaces
from tests.sw.operators.test_pool import pool

X, OUT = 36, 20


def launched(
    made: MaxPool, image: np.ndarray, first: int, count: int, held: dict[str, Bytes]
) -> tuple[Pass, int]:
    """The launch for output rows `first` on of all channels, and the number of results."""
    rows, cols = made.rows, made.cols
    pads = ((0, 0), (rows.before, rows.after), (cols.before, cols.after))
    padded = np.pad(image, pads, constant_values=np.asarray(made.fill, image.dtype))
    part = padded[:, first * rows.stride : first * rows.stride + rows.span(count)]
    pitch, plane = part.shape[2] + 3, (part.shape[2] + 3) * part.shape[1] + 5
    for c, r in np.ndindex(part.shape[:2]):
        held["scratch"][X + c * plane + r * pitch :][: part.shape[2]] = part[c, r].view(np.uint8)
    tile = PoolTile(len(image), count, cols.outputs, X, pitch, plane, OUT)
    return made.launch(tile), len(image) * count * cols.outputs


def check(made: MaxPool, rng: np.random.Generator, rows: tuple[int, int], fabric: str | None) -> None:
    """Compare a tile of output rows with the reference."""
    low, high = LIMITS[made.element]
    image = rng.integers(low, high + 1, made.x.shape).astype(made.element)
    held = spaces()
    launch, count = launched(made, image[0], *rows, held)
    if fabric is None:
        by_graph([launch], held)
    else:
        by_words([launch], held, machine(fabric))
    expected = made.reference([image])[0][:, rows[0] : rows[0] + rows[1]]
    assert np.array_equal(held["out"][OUT : OUT + count].view(made.element), expected.reshape(-1))


def axis(rng: random.Random, size: int) -> Axis:
    """An axis of a pooling that has outputs."""
    kernel, dilation = rng.randint(1, 4), rng.choice((1, 1, 2))
    reach = (kernel - 1) * dilation + 1
    pad = rng.randint(0, kernel // 2)
    return Axis(max(size, reach), kernel, rng.randint(1, 3), pad, rng.randint(0, pad), dilation)


@given(st.integers(0, 1 << 30))
@settings(max_examples=60)
def test_the_launch_leaves_what_the_reference_gives(seed: int) -> None:
    rng = random.Random(seed)
    rows, cols = axis(rng, rng.randint(2, 9)), axis(rng, rng.randint(2, 9))
    made = pool(rows, cols, rng.choice(("int8", "uint8")), rng.randint(1, 3))
    first = rng.randrange(rows.outputs)
    check(made, np.random.default_rng(seed), (first, rng.randint(1, rows.outputs - first)), None)


def test_a_tile_may_be_a_part_of_the_columns_with_results_apart() -> None:
    made = pool(Axis(6, 3), Axis(12, 3), channels=2)
    image = np.random.default_rng(2).integers(-128, 128, (1, 2, 6, 12)).astype(np.int8)
    wanted = made.reference([image])[0, :, :, 3:8]
    for apart in (0, 8):
        held = spaces()
        held["scratch"][:144] = image.reshape(-1).view(np.uint8)
        by_graph([made.launch(PoolTile(2, 4, 5, 3, 12, 72, OUT, apart))], held)
        found = held["out"][OUT : OUT + 8 * (apart or 5)].view(np.int8).reshape(2, 4, -1)
        assert np.array_equal(found[:, :, :5], wanted)


@pytest.mark.parametrize("fabric", ["torus4x4", "mesh4x4"])
def test_the_bitstreams_leave_what_the_reference_gives(fabric: str) -> None:
    cases = [
        (2, Axis(9, 3, 2, 1, 1), Axis(8, 3, 2, 1, 1), "int8"),
        (3, Axis(6, 2, 2), Axis(4, 2, 2), "uint8"),
    ]
    for channels, rows, cols, element in cases:
        made = pool(rows, cols, element, channels)
        check(made, np.random.default_rng(11), (0, rows.outputs), fabric)


def in_blocks(
    made: MaxPool, rng: np.random.Generator, lanes: int, fabric: str | None
) -> tuple[np.ndarray, np.ndarray]:
    """A tile of all outputs, made by a loop that uses lanes, and the reference's."""
    low, high = LIMITS[made.element]
    image = rng.integers(low, high + 1, made.x.shape).astype(made.element)
    rows, cols = made.rows, made.cols
    pads = ((0, 0), (rows.before, rows.after), (cols.before, cols.after))
    padded = np.pad(image[0], pads, constant_values=np.asarray(made.fill, image.dtype))
    pitch, apart = wide.width(cols, cols.outputs, lanes), -(-cols.outputs // lanes) * lanes + 2 * lanes
    plane, held = padded.shape[1] * pitch + lanes, spaces()
    held["scratch"][:] = rng.integers(0, 256, held["scratch"].shape)
    for c, r in np.ndindex(padded.shape[:2]):
        held["scratch"][64 + c * plane + r * pitch :][: padded.shape[2]] = padded[c, r].view(np.uint8)
    launch = made.launch(
        PoolTile(len(padded), rows.outputs, cols.outputs, 64, pitch, plane, 32, apart, lanes)
    )
    if fabric is None:
        by_graph([launch], held)
    else:
        by_words([launch], held, machine(fabric))
    lines = len(padded) * rows.outputs
    found = held["out"][32 : 32 + lines * apart].view(made.element).reshape(lines, apart)
    return found[:, : cols.outputs], made.reference([image]).reshape(lines, -1)


@given(st.integers(0, 1 << 30))
@settings(max_examples=60)
def test_a_loop_with_lanes_leaves_what_the_reference_gives(seed: int) -> None:
    rng = random.Random(seed)
    lanes = rng.choice((2, 4, 8))
    rows, cols = axis(rng, rng.randint(1, 7)), axis(rng, rng.randint(1, 20))
    made = pool(rows, cols, rng.choice(("int8", "uint8")), rng.randint(1, 3))
    assume(wide.possible(rows, cols, lanes))
    found, wanted = in_blocks(made, np.random.default_rng(seed), lanes, None)
    assert np.array_equal(found, wanted)


@pytest.mark.parametrize(("kernel", "stride"), [(3, 2), (2, 2), (3, 1)])
def test_the_bitstreams_with_lanes_leave_what_the_reference_gives(kernel: int, stride: int) -> None:
    rows, cols = (Axis(size, kernel, stride, 1, kernel // 2) for size in (6, 21))
    found, wanted = in_blocks(pool(rows, cols, "int8", 2), np.random.default_rng(3), 8, "vector3x4")
    assert np.array_equal(found, wanted)


def test_operators_of_other_sizes_share_a_loop() -> None:
    one, two = (
        pool(Axis(s, 3, stride, 1, 1), Axis(s, 3, stride, 1, 1), channels=c).kernel(False)
        for c, s, stride in ((1, 8, 2), (2, 11, 1))
    )
    assert one == two
