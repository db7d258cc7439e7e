"""Softmax on the CGRA produces its reference's results, by the graphs and by the bitstreams."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sw.graph.network import View, dense
from sw.graph.requantise import LIMITS
from sw.operators.rows import RowTile, row_pitch
from sw.operators.softmax import Softmax, softmax
from tests.sw.kernels.passes import (
    by_graph,
    by_words,
    chosen_loops,
    lanes_of,
    machine,
    row_results,
    row_tile,
    spaces,
)

#: Lanes of PEs.
LANES = (1, 2, 4, 8, 16)
SHAPES = [(1, 1), (3, 3), (9, 5), (2, 8), (4, 100), (5, 127), (1, 300), (2, 227)]


def operator(rows: int, columns: int, element: str, result: str, x_scale: float, y_scale: float) -> Softmax:
    """A softmax with the usual zero point."""
    x, y = (View(name, (rows, columns), dense((rows, columns))) for name in "xy")
    return softmax(
        "s",
        "Softmax",
        (),
        y,
        x,
        element=element,
        x_scale=x_scale,
        y_scale=y_scale,
        y_zero=LIMITS[result][0] + 3,
        result=result,
    )


def apart(columns: int, lanes: int, seed: int) -> int:
    """Bytes from one row of results to the next: one that leaves a gap, for half of the numbers."""
    return row_pitch(columns, lanes) + 16 * (seed % 3) if seed % 2 else 0


def rows_of(rng: np.random.Generator, rows: int, columns: int, element: str) -> np.ndarray:
    """Rows of any numbers, and rows of equal ones."""
    low, high = LIMITS[element]
    found = rng.integers(low, high + 1, (rows, columns)).astype(element)
    found[::3] = rng.integers(low, high + 1, (len(found[::3]), 1))
    return found


@given(
    st.integers(1, 9),
    st.sampled_from((1, 3, 5, 7, 8, 9, 16, 33, 64, 100, 127, 200, 227)),
    st.sampled_from(("int8", "uint8")),
    st.sampled_from(("int8", "uint8")),
    st.floats(1e-4, 1.0),
    st.sampled_from((1 / 256, 0.001, 0.03)),
    st.sampled_from(LANES),
    st.integers(0, 1 << 30),
)
@settings(max_examples=60)
def test_the_launches_leave_what_the_reference_gives(
    rows: int, columns: int, element: str, result: str, x_scale: float, y_scale: float, lanes: int, seed: int
) -> None:
    made = operator(rows, columns, element, result, x_scale, y_scale)
    rng = np.random.default_rng(seed)
    values, held = rows_of(rng, rows, columns, element), spaces()
    tile = row_tile(values, LIMITS[element][0], held, lanes, apart(columns, lanes, seed))
    chosen = [int(rng.integers(len(loops))) for loops in made.choices(tile, 0)]
    by_graph(made.passes(tile, 0, chosen), held)
    assert np.array_equal(row_results(tile, held, result), made.reference([values]))


@pytest.mark.parametrize("fabric", ["torus4x4", "mesh4x4", "vector3x4"])
def test_the_bitstreams_leave_what_the_reference_gives(fabric: str) -> None:
    rng = np.random.default_rng(7)
    for i, (rows, columns) in enumerate(SHAPES):
        element, result = (("int8", "uint8"), ("uint8", "int8"))[i % 2]
        made = operator(rows, columns, element, result, 0.05, 1 / 256)
        values = rows_of(rng, rows, columns, element)
        held, config = spaces(), machine(fabric)
        tile = row_tile(values, LIMITS[element][0], held, lanes_of(config))
        chosen, configured = chosen_loops(made.choices(tile, 0), config)
        by_words(made.passes(tile, 0, chosen), held, config, configured)
        assert np.array_equal(row_results(tile, held, result), made.reference([values])), (rows, columns)


def test_operators_of_other_scales_and_types_have_loops_of_one_structure() -> None:
    held = spaces()
    one, two = (
        operator(2, columns, element, element, scale, scale).passes(
            row_tile(np.zeros((2, columns), element), 0, held), 0
        )
        for columns, element, scale in ((8, "int8", 0.1), (100, "uint8", 0.01))
    )
    without_tables = [[p.kernel.text.split("\n\n\n")[-1] for p in passes] for passes in (one, two)]
    assert without_tables[0] == without_tables[1]
    assert one[0].kernel == two[0].kernel
    assert one[3].kernel == two[3].kernel


def test_lanes_are_used_where_rows_begin_at_multiples_of_them() -> None:
    config = machine("vector3x4")
    wanted = {16: (2, 2, 0, 0, 2), 20: (1, 1, 0, 0, 1), 100: (2, 2, 0, 0, 2), 128: (3, 2, 0, 0, 2)}
    for columns, numbers in wanted.items():
        made = operator(64, columns, "int8", "int8", 0.1, 1 / 256)
        tile = row_tile(np.zeros((64, columns), "int8"), 0, spaces(), 8)
        assert chosen_loops(made.choices(tile, 0), config)[0] == numbers, columns
    # Rows of 24 bytes are no multiples of 16, and 32 bytes would be too many.
    made = operator(64, 20, "int8", "int8", 0.1, 1 / 256)
    tile = RowTile(64, 20, 0, 0, 0, lanes=16)
    assert [len(loops) for loops in made.choices(tile, 0)] == [1] * 5
