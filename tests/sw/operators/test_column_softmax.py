"""Softmax of columns: nearly always the correctly rounded result, by lanes and by rows."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sw.graph.network import View, dense
from sw.graph.requantise import LIMITS
from sw.graph.views import transposed
from sw.layout import round_up
from sw.operators.column_softmax import ColumnSoftmax, Inverse, by_columns, column_softmax
from sw.operators.columns import ColumnTile
from tests.sw.graph.onnx_nodes import run
from tests.sw.kernels.passes import (
    by_graph,
    by_words,
    chosen_loops,
    lanes_of,
    machine,
    number,
    row_results,
    row_tile,
    spaces,
)
from tests.sw.operators.test_softmax import TYPES_AND_SCALES, exact

#: Bytes of garbage between what belongs to a tile.
APART = 64


def operator(
    shape: tuple[int, int], element: str, x_scale: float, y_scale: float, y_zero: int, result: str
) -> ColumnSoftmax:
    """A softmax down the rows of a matrix."""
    x, y = (transposed(View(name, shape, dense(shape)), (1, 0)) for name in "xy")
    return column_softmax(
        "s",
        "Softmax",
        (),
        y,
        x,
        element=element,
        x_scale=x_scale,
        y_scale=y_scale,
        y_zero=y_zero,
        result=result,
    )


def usual(shape: tuple[int, int], element: str, result: str, x_scale: float, y_scale: float) -> ColumnSoftmax:
    """The same with the usual zero point."""
    return operator(shape, element, x_scale, y_scale, LIMITS[result][0] + 3, result)


def matrix(rng: np.random.Generator, shape: tuple[int, int], element: str) -> np.ndarray:
    """Columns of any numbers, and columns of equal ones."""
    low, high = LIMITS[element]
    found = rng.integers(low, high + 1, shape).astype(element)
    found[:, ::3] = rng.integers(low, high + 1, (1, found[:, ::3].shape[1]))
    return found


@pytest.mark.parametrize("rows", [2, 3, 16, 21, 80, 255, 256])
@TYPES_AND_SCALES
def test_results_are_those_of_onnxruntime(
    rows: int, element: str, result: str, x_scale: float, y_scale: float, spread: float
) -> None:
    rng = np.random.default_rng(rows)
    low, high = LIMITS[element]
    shape = (rows, 40_000 // rows)
    x = np.clip(np.rint(rng.normal((low + high) / 2, spread, shape)), low, high).astype(element)
    zero = LIMITS[result][0]
    made = operator(shape, element, np.float32(x_scale), np.float32(y_scale), zero, result)
    found, wanted = made.reference([x.T]).T, exact(x.T, x_scale, y_scale, zero, result).T
    assert found.dtype == result
    ort = run("Softmax", x, x_scale, 3, y_scale, zero, result, axis=0)
    assert np.abs(found.astype(int) - ort).max() <= 1
    assert np.mean(found != ort) < 1e-3
    assert np.mean(found != wanted) < 1e-3


def test_sums_of_any_length_fit_and_have_exact_reciprocals() -> None:
    rng = np.random.default_rng(1)
    for count in range(1, 257):
        inverse = Inverse(count)
        assert count * inverse.one < 1 << 31
        ends = [inverse.one, inverse.one + 1, count * inverse.one]
        total = np.concatenate([ends, rng.integers(inverse.one, count * inverse.one + 1, 300)])
        found = inverse.factors(total)
        assert found.max() < 1 << 31
        # Half a unit of the last product, and an error of 2^-28 before it.
        assert np.abs(found / 2.0**inverse.bits * total - 1).max() < 2.0**-28 + 2 / found.min()


@pytest.mark.parametrize("rows", [2, 8, 9, 256])
@pytest.mark.parametrize("y_scale", [2.0**-28, 0.4, 1.0, 32.0])
def test_extreme_scales_of_results(rows: int, y_scale: float) -> None:
    shape = (rows, 99)
    made = operator(shape, "int8", 0.3, y_scale, 0, "uint8")
    assert 0 < made.shift < 64
    assert max(made.numbers) < 1 << 31
    x = matrix(np.random.default_rng(rows), shape, "int8").T
    assert np.abs(made.reference([x]).astype(int) - exact(x, 0.3, y_scale, 0, "uint8")).max() <= 1


def test_columns_are_short_and_have_neighbours_in_both_views() -> None:
    x, y = View("x", (4, 525, 16), (8400, 1, 525)), View("y", (4, 525, 16), (525, 1, 2100))
    assert by_columns(x, y)
    assert not by_columns(View("x", (4, 525, 16), (8400, 16, 1)), y)
    assert not by_columns(x, View("y", (4, 525, 16), (8400, 16, 1)))
    assert not by_columns(View("x", (525, 257), (1, 525)), View("y", (525, 257), (1, 525)))


def placed(x: np.ndarray, lanes: int, held: dict[str, np.ndarray]) -> ColumnTile:
    """A tile of a matrix, put into the scratchpad; garbage is around it."""
    rows, columns = x.shape
    near, apart = round_up(columns, lanes) + lanes, round_up(columns, 4 * lanes)
    top = APART + rows * apart + APART
    word = top + apart + APART
    groups = -(-columns // lanes)
    found = ColumnTile(groups, near, apart, lanes, x=APART, out=APART, top=top, word=word)
    width = round_up(columns, lanes)
    for i, row in enumerate(x):
        own = np.pad(row, (0, width - columns), constant_values=LIMITS[str(x.dtype)][0]).view(np.uint8)
        held["scratch"][APART + i * near :][:width] = own
    return found


def left(tile: ColumnTile, shape: tuple[int, int], held: dict[str, np.ndarray], result: str) -> np.ndarray:
    """The results of a tile."""
    start, rows = number(tile.out), shape[0]
    found = held["out"][start : start + rows * tile.apart].reshape(rows, tile.apart)
    return found[:, : shape[1]].view(result)


@given(
    st.sampled_from((2, 3, 7, 8, 12, 16, 35)),
    st.integers(1, 40),
    st.sampled_from(("int8", "uint8")),
    st.sampled_from(("int8", "uint8")),
    st.floats(1e-4, 1.0),
    st.sampled_from((1 / 256, 0.001, 0.03)),
    st.sampled_from((2, 4, 8, 16)),
    st.integers(0, 1 << 30),
)
@settings(max_examples=40)
def test_the_launches_leave_what_the_reference_gives(
    rows: int, columns: int, element: str, result: str, x_scale: float, y_scale: float, lanes: int, seed: int
) -> None:
    made = usual((rows, columns), element, result, x_scale, y_scale)
    x = matrix(np.random.default_rng(seed), (rows, columns), element)
    wanted, held = made.reference([x.T]), spaces()
    tile = placed(x, lanes, held)
    by_graph(tile.passes(made), held)
    assert np.array_equal(left(tile, x.shape, held, result), wanted.T)
    held = spaces()
    by_rows = row_tile(x.T, LIMITS[element][0], held)
    by_graph(made.passes(by_rows, 0), held)
    assert np.array_equal(row_results(by_rows, held, result), wanted)


def test_the_bitstreams_leave_what_the_reference_gives() -> None:
    config = machine("vector3x4")
    for (rows, columns), element, result in (((16, 37), "int8", "uint8"), ((5, 8), "uint8", "int8")):
        made = usual((rows, columns), element, result, 0.05, 1 / 256)
        x, held = matrix(np.random.default_rng(7), (rows, columns), element), spaces()
        tile = placed(x, lanes_of(config), held)
        by_words(tile.passes(made), held, config)
        assert np.array_equal(left(tile, x.shape, held, result), made.reference([x.T]).T), rows


@pytest.mark.parametrize("fabric", ["torus4x4", "vector3x4"])
def test_rows_give_the_same_results(fabric: str) -> None:
    config, held = machine(fabric), spaces()
    made = usual((11, 9), "uint8", "int8", 0.05, 1 / 256)
    x = matrix(np.random.default_rng(3), (11, 9), "uint8")
    tile = row_tile(x.T, 0, held, lanes_of(config))
    chosen, configured = chosen_loops(made.choices(tile, 0), config)
    by_words(made.passes(tile, 0, chosen), held, config, configured)
    assert np.array_equal(row_results(tile, held, "int8"), made.reference([x.T]))
