"""Pooling on the grid leaves what its reference gives, by the graphs and by the bitstreams."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hw.errors import InputError
from sw.graph.network import View, dense
from sw.graph.requantise import LIMITS
from sw.kernels.passes import Pass
from sw.operators.pools import passes as kernels
from sw.operators.pools.operator import Pool, average_pool, max_pool
from sw.patches import Axis
from tests.sw.kernels.passes import Bytes, by_graph, by_words, machine, row_tile, spaces

FACTORS, X, OUT, SUMS = 1 << 13, 36, 20, 1 << 14


def operator(
    channels: int, rows: Axis, cols: Axis, kind: str, element: str, include_pad: bool = False
) -> Pool:
    """Pooling of one image; averages have another type than the image."""
    shape, outputs = (1, channels, rows.size, cols.size), (1, channels, rows.outputs, cols.outputs)
    x, y = View("x", shape, dense(shape)), View("y", outputs, dense(outputs))
    if kind == "max":
        return max_pool("p", "MaxPool", (), y, x, rows, cols, element=element)
    result = "int8" if element == "uint8" else "uint8"
    return average_pool(
        "p",
        "AveragePool",
        (),
        y,
        x,
        rows,
        cols,
        element=element,
        x_scale=0.07,
        x_zero=LIMITS[element][0] + 100,
        y_scale=0.031,
        y_zero=LIMITS[result][0] + 99,
        result=result,
        include_pad=include_pad,
    )


def tile_of(
    made: Pool, image: np.ndarray, first: int, count: int, held: dict[str, Bytes]
) -> tuple[tuple[Pass, ...], int, int]:
    """The passes for output rows `first` on of all channels, with their place and number of results."""
    rows, cols = made.rows, made.cols
    pads = ((0, 0), (rows.before, rows.after), (cols.before, cols.after))
    padded = np.pad(image, pads, constant_values=np.asarray(made.fill, image.dtype))
    part = padded[:, first * rows.stride : first * rows.stride + rows.span(count)]
    pitch, plane = part.shape[2] + 3, (part.shape[2] + 3) * part.shape[1] + 5
    for c, r in np.ndindex(part.shape[:2]):
        held["scratch"][X + c * plane + r * pitch :][: part.shape[2]] = part[c, r].view(np.uint8)
    factors = kernels.factor_words(made).reshape(-1, cols.outputs)[first : first + count]
    held["scratch"][FACTORS : FACTORS + factors.nbytes] = factors.reshape(-1).view(np.uint8)
    tile = kernels.PoolTile(len(image), count, X, pitch, plane, OUT, FACTORS, sums=SUMS)
    return kernels.passes(made, tile), OUT, len(image) * count * cols.outputs


def check(made: Pool, rng: np.random.Generator, rows: tuple[int, int], fabric: str | None) -> None:
    """Compare a tile of output rows with the reference."""
    low, high = LIMITS[made.element]
    image = rng.integers(low, high + 1, made.x.shape).astype(made.element)
    held = spaces()
    passes, start, count = tile_of(made, image[0], *rows, held)
    if fabric is None:
        by_graph(passes, held)
    else:
        by_words(passes, held, machine(fabric))
    expected = made.reference([image])[0][:, rows[0] : rows[0] + rows[1]]
    assert np.array_equal(held["out"][start : start + count].view(made.result), expected.reshape(-1))


def axis(rng: random.Random, size: int) -> Axis:
    """An axis of a pooling that has outputs."""
    kernel, dilation = rng.randint(1, 4), rng.choice((1, 1, 2))
    reach = (kernel - 1) * dilation + 1
    pad = rng.randint(0, kernel // 2)
    return Axis(max(size, reach), kernel, rng.randint(1, 3), pad, rng.randint(0, pad), dilation)


@given(st.integers(0, 1 << 30))
@settings(max_examples=60)
def test_the_launches_leave_what_the_reference_gives(seed: int) -> None:
    rng = random.Random(seed)
    rows, cols = axis(rng, rng.randint(2, 9)), axis(rng, rng.randint(2, 9))
    kind, element = rng.choice(("max", "average")), rng.choice(("int8", "uint8"))
    channels = 1 if rng.random() < 0.3 else rng.randint(2, 3)
    made = operator(channels, rows, cols, kind, element, rng.random() < 0.5)
    if kernels.way(made) == "rows":
        return
    first = rng.randrange(rows.outputs)
    check(made, np.random.default_rng(seed), (first, rng.randint(1, rows.outputs - first)), None)


@pytest.mark.parametrize("kind", ["max", "average"])
def test_large_windows_take_steps(kind: str) -> None:
    cases = [
        (Axis(9, 7, 1, 3, 3), Axis(8, 6, 1, 3, 2)),
        (Axis(40, 40), Axis(5, 1)),
        (Axis(3, 2), Axis(30, 15, 2, 0, 0, 2)),
    ]
    for rows, cols in cases:
        made = operator(1, rows, cols, kind, "uint8")
        assert kernels.way(made) == "steps"
        check(made, np.random.default_rng(3), (0, rows.outputs), None)


@pytest.mark.parametrize("fabric", [None, "torus4x4", "mesh4x4"])
@pytest.mark.parametrize("kind", ["max", "average"])
@pytest.mark.parametrize("element", ["int8", "uint8"])
def test_parts_of_columns_are_taken_four_at_a_time(element: str, kind: str, fabric: str | None) -> None:
    for rows, cols in [(Axis(50, 50), Axis(12, 1)), (Axis(90, 40, 7, 0, 0, 2), Axis(4, 1))]:
        made = operator(1, rows, cols, kind, element)
        assert kernels.way(made) == "columns"
        check(made, np.random.default_rng(9), (0, rows.outputs), fabric)


def test_a_tile_may_be_a_part_of_the_columns() -> None:
    made = operator(1, Axis(50, 50), Axis(12, 1), "average", "int8")
    image = np.random.default_rng(1).integers(-128, 128, (1, 1, 50, 12)).astype(np.int8)
    held = spaces()
    held["scratch"][: 50 * 8] = image[0, 0, :, 4:].reshape(-1).view(np.uint8)
    by_graph(kernels.passes(made, kernels.PoolTile(1, 1, 0, 8, 400, OUT, cols=8, sums=SUMS)), held)
    assert np.array_equal(held["out"][OUT : OUT + 8].view(made.result), made.reference([image])[0, 0, 0, 4:])
    made = operator(2, Axis(6, 3), Axis(12, 3), "max", "int8")
    image = np.random.default_rng(2).integers(-128, 128, (1, 2, 6, 12)).astype(np.int8)
    held["scratch"][:144] = image.reshape(-1).view(np.uint8)
    by_graph(kernels.passes(made, kernels.PoolTile(2, 4, 3, 12, 72, OUT, cols=5)), held)
    assert np.array_equal(
        held["out"][OUT : OUT + 40].view(np.int8), made.reference([image])[0, :, :, 3:8].reshape(-1)
    )


@pytest.mark.parametrize("kind", ["max", "average"])
@pytest.mark.parametrize("element", ["int8", "uint8"])
@pytest.mark.parametrize("fabric", [None, "torus4x4", "mesh4x4"])
def test_windows_as_large_as_the_image_are_rows(kind: str, element: str, fabric: str | None) -> None:
    made = operator(5, Axis(7, 7), Axis(7, 7), kind, element)
    assert kernels.way(made) == "rows"
    rng = np.random.default_rng(5)
    image = rng.integers(*LIMITS[element], made.x.shape, endpoint=True).astype(element)
    held = spaces()
    tile = row_tile(image.reshape(5, 49), LIMITS[element][0] if kind == "max" else 0, held)
    passes = kernels.row_passes(made, tile)
    if fabric is None:
        by_graph(passes, held)
    else:
        by_words(passes, held, machine(fabric))
    assert isinstance(tile.out, int)
    assert np.array_equal(
        held["out"][tile.out : tile.out + 5].view(made.result), made.reference([image]).reshape(-1)
    )


@pytest.mark.parametrize("fabric", ["torus4x4", "mesh4x4"])
@pytest.mark.parametrize("kind", ["max", "average"])
def test_the_bitstreams_leave_what_the_reference_gives(kind: str, fabric: str) -> None:
    cases = [
        (2, Axis(9, 3, 2, 1, 1), Axis(8, 3, 2, 1, 1), "int8"),
        (3, Axis(6, 2, 2), Axis(4, 2, 2), "uint8"),
        (1, Axis(9, 7, 1, 3, 3), Axis(8, 7, 1, 3, 3), "int8"),
    ]
    for channels, rows, cols, element in cases:
        check(
            operator(channels, rows, cols, kind, element),
            np.random.default_rng(11),
            (0, rows.outputs),
            fabric,
        )


def test_operators_of_other_sizes_share_a_loop() -> None:
    held = spaces()
    one, two = (
        tile_of(
            operator(c, Axis(s, 3, stride, 1, 1), Axis(s, 3, stride, 1, 1), "max", "int8"),
            np.zeros((c, s, s), "int8"),
            0,
            2,
            held,
        )
        for c, s, stride in ((1, 8, 2), (2, 11, 1))
    )
    assert one[0][0].kernel == two[0][0].kernel


def test_a_tile_that_cannot_be_is_one_message() -> None:
    made = operator(2, Axis(9, 7, 1, 3, 3), Axis(8, 7, 1, 3, 3), "max", "int8")
    with pytest.raises(InputError, match="p: a tile of windows so large must have one channel"):
        kernels.passes(made, kernels.PoolTile(2, 1, 0, 16, 256, 0))
    whole = operator(2, Axis(7, 7), Axis(7, 7), "max", "int8")
    with pytest.raises(InputError, match="p: windows as large as the image are rows"):
        kernels.passes(whole, kernels.PoolTile(2, 1, 0, 16, 256, 0))
