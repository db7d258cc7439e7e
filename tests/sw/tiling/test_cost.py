"""The cost of given pieces, computed by hand."""

from __future__ import annotations

import dataclasses

import pytest

from sw.tiling.cost import cost, kernel_cuts, times
from sw.tiling.problem import TilingProblem, convolution_of

#: 100x60x80 with 2-byte elements; buffers hold 30 rows and 20 columns of all of K.
P = TilingProblem(
    m=100,
    k=60,
    n=80,
    elem_bytes=2,
    acc_elem_bytes=4,
    bw_a=8,
    bw_b=10,
    buf_a=30 * 120,
    buf_b=20 * 120,
    acc_max=1 << 16,
    macs_per_cycle=100,
    block_m=10,
    block_n=10,
    sync_granularity=8,
)


def test_times_are_exact_fractions_of_a_cycle() -> None:
    t = times(P)
    assert (t.gemm / t.unit, t.load_a / t.unit, t.load_b / t.unit) == (4800, 1500, 960)
    third = times(dataclasses.replace(P, bw_a=0.3, macs_per_cycle=7))
    assert third.load_a / third.unit == 12000 / 0.3
    assert third.gemm * 7 == 480000 * third.unit


@pytest.mark.parametrize(
    ("rows", "columns", "depth", "order", "loads"),
    [
        (30, 20, 60, "m", (1, 4)),
        (30, 20, 60, "n", (4, 1)),
        (10, 20, 60, "m", (1, 10)),
        (50, 40, 30, "m", (2, 2)),
        (50, 40, 30, "n", (2, 2)),
        (50, 30, 30, "m", (3, 2)),  # the last piece of B is smaller
        (30, 40, 30, "m", (1, 4)),  # the piece of A stays
        (30, 40, 30, "n", (2, 4)),
        (50, 20, 30, "n", (4, 1)),  # the piece of B stays
        (50, 20, 30, "m", (4, 2)),
    ],
)
def test_loads(rows: int, columns: int, depth: int, order: str, loads: tuple[int, int]) -> None:
    c = cost(P, rows, columns, depth, order)  # type: ignore[arg-type]
    assert (c.loads_a, c.loads_b) == loads
    assert (c.bytes_a, c.bytes_b) == (loads[0] * 12000, loads[1] * 9600)
    assert c.cycles == max(4800, 1500 * loads[0], 960 * loads[1])
    assert c.utilization == 4800 / c.cycles


def test_a_matrix_that_fits_whole_is_loaded_once_in_either_order() -> None:
    fits = dataclasses.replace(P, buf_a=12000)
    for order in ("m", "n"):
        c = cost(fits, 50, 40, 30, order)  # type: ignore[arg-type]
        assert (c.loads_a, c.loads_b) == (1, 2)


def test_what_bounds() -> None:
    assert cost(P, 30, 20, 60, "m").bound == "gemm"
    assert cost(P, 10, 20, 60, "m").bound == "load_b"
    assert cost(P, 30, 20, 60, "n").bound == "load_a"


def test_cuts_inside_kernels_read_pixels_again() -> None:
    conv = convolution_of(sn=1, ic=2, h=10, w=10, oc=8, kh=3, kw=3)
    p = TilingProblem(
        **{
            f.name: getattr(P, f.name) for f in dataclasses.fields(P) if f.name not in ("m", "k", "n", "conv")
        },
        conv=conv,
    )
    assert [kernel_cuts(p, depth) for depth in (1, 2, 4, 5, 8, 9, 18)] == [9, 5, 3, 2, 2, 1, 1]
    assert times(p, 3).load_b == 3 * times(p).load_b
    assert times(p, 3).load_a == times(p).load_a
