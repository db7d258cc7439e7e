"""Normalisation on the CGRA produces its reference's results, by the graphs and by the bitstreams."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sw.graph.network import View, dense
from sw.kernels.passes import Pass
from sw.operators.normalisation.operator import Normalisation, normalisation
from sw.operators.rows import RowTile
from tests.sw.kernels.passes import (
    Bytes,
    by_graph,
    by_words,
    chosen_loops,
    lanes_of,
    machine,
    row_results,
    row_tile,
    spaces,
)
from tests.sw.operators.test_softmax_launches import LANES, SHAPES, apart, rows_of

#: Where the parameters lie.
CONSTANTS = 1 << 14


def operator(
    rows: int,
    columns: int,
    element: str,
    result: str,
    x_scale: float,
    epsilon: float,
    zero: int,
    x_zero: int | None = None,
) -> Normalisation:
    """A normalisation with parameters drawn at random; with `x_zero` RMS normalisation."""
    x, y = (View(name, (rows, columns), dense((rows, columns))) for name in "xy")
    rng = np.random.default_rng(rows)
    return normalisation(
        "n",
        "LayerNormalization",
        (),
        y,
        x,
        element=element,
        x_scale=x_scale,
        x_zero=x_zero,
        gamma=rng.normal(1, 0.5, columns),
        beta=rng.normal(0, 1, columns),
        epsilon=epsilon,
        y_scale=0.02,
        y_zero=zero,
        result=result,
    )


def put(
    made: Normalisation, values: np.ndarray, held: dict[str, Bytes], lanes: int = 1, apart: int = 0
) -> RowTile:
    """The tile's rows, in the scratchpad."""
    return row_tile(values, made.fill, held, lanes, apart)


def chosen_passes(
    made: Normalisation, tile: RowTile, chosen: Sequence[int], held: dict[str, Bytes]
) -> tuple[Pass, ...]:
    """Launches by these loops; the parameters are put into the scratchpad as the last one reads them."""
    constants = made.parameters(tile.pitch, tile.lanes if chosen[-1] else 1).view(np.uint8)
    held["scratch"][CONSTANTS : CONSTANTS + len(constants)] = constants
    return made.passes(tile, CONSTANTS, chosen)


@given(
    st.integers(1, 9),
    st.sampled_from((1, 2, 3, 5, 8, 12, 64, 100, 127)),
    st.sampled_from(("int8", "uint8")),
    st.sampled_from(("int8", "uint8")),
    st.sampled_from((1e-4, 0.01, 1.0)),
    st.sampled_from((0.0, 1e-12, 1e-5, 1.0, 1e6)),
    st.sampled_from(LANES),
    st.integers(0, 1 << 30),
)
@settings(max_examples=60)
def test_the_launches_leave_what_the_reference_gives(
    rows: int, columns: int, element: str, result: str, x_scale: float, epsilon: float, lanes: int, seed: int
) -> None:
    x_zero = (None, 0, 100, -128 if element == "int8" else 255)[seed // 3 % 4]
    made = operator(rows, columns, element, result, x_scale, epsilon, 5, x_zero)
    rng = np.random.default_rng(seed)
    values = rows_of(rng, rows, columns, element)
    if seed % 3 == 0:
        values = values // 64 + 50
    held = spaces()
    tile = put(made, values, held, lanes, apart(columns, lanes, seed))
    chosen = [int(rng.integers(len(loops))) for loops in made.choices(tile, CONSTANTS)]
    by_graph(chosen_passes(made, tile, chosen, held), held)
    assert np.array_equal(row_results(tile, held, result), made.reference([values]))


@pytest.mark.parametrize("fabric", ["torus4x4", "mesh4x4", "vector3x4"])
def test_the_bitstreams_leave_what_the_reference_gives(fabric: str) -> None:
    rng = np.random.default_rng(7)
    for i, (rows, columns) in enumerate(SHAPES):
        element, result = (("int8", "uint8"), ("uint8", "int8"))[i % 2]
        zero, x_zero = -7 if result == "int8" else 120, 11 if i % 3 == 0 else None
        made = operator(rows, columns, element, result, 0.05, 1e-5, zero, x_zero)
        values = rows_of(rng, rows, columns, element)
        held, config = spaces(), machine(fabric)
        tile = put(made, values, held, lanes_of(config))
        chosen, configured = chosen_loops(made.choices(tile, CONSTANTS), config)
        by_words(chosen_passes(made, tile, chosen, held), held, config, configured)
        assert np.array_equal(row_results(tile, held, result), made.reference([values])), (rows, columns)


def test_operators_of_one_type_share_all_loops() -> None:
    held = spaces()
    one, two = (
        operator(2, columns, "int8", result, scale, 1e-5, 9).passes(
            row_tile(np.zeros((2, columns), "int8"), 0, held), 0
        )
        for columns, scale, result in ((8, 0.1, "int8"), (100, 0.01, "uint8"))
    )
    assert [p.kernel for p in one] == [p.kernel for p in two]
