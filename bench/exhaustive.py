"""The best blocking by exhaustive search: the reference for `plan`, with which it shares no reasoning.

It tries every outer order, every piece of whole blocks, K whole and K split. `search` is the plain form,
`search_fast` the same with arrays.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import get_args

import numpy as np

from hw.errors import InputError
from sw.tiling.cost import Order, cost, kernel_cuts, times
from sw.tiling.problem import TilingProblem

#: Below this, products of ticks and loads are exact in 64 bits.
_EXACT = 1 << 62


@dataclass(frozen=True)
class Found:
    """The best choice; `ticks` and `loaded` (bytes) are the same for all equally good choices."""

    ticks: int
    split_k: bool
    loaded: int
    imbalance: int
    order: Order
    partition_m: int
    partition_n: int
    partition_k: int

    @property
    def key(self) -> tuple[int, bool, int, int, str]:
        """The key of comparison, less is better; with K whole, balance does not count."""
        return self.ticks, self.split_k, self.loaded, 0 if not self.split_k else self.imbalance, self.order


def search(problem: TilingProblem) -> Found:
    """The best choice, one by one; raises `InputError` if there is none."""
    for inside_kernels in (False, True):
        best = min(_choices(problem, inside_kernels), key=lambda found: found.key, default=None)
        if best is not None:
            return best
    raise InputError(f"nothing fits of {problem}")


def _choices(p: TilingProblem, inside_kernels: bool) -> Iterator[Found]:
    """Every choice that fits, with K whole and with K split; cuts inside kernels only if `inside_kernels`."""
    for rows in _sizes(p.m, p.block_m):
        for columns in _sizes(p.n, p.block_n):
            for depth in _depths(p, rows, columns, inside_kernels):
                t = times(p, kernel_cuts(p, depth))
                for order in get_args(Order):
                    c = cost(p, rows, columns, depth, order)
                    imbalance = abs(c.loads_a * t.load_a - c.loads_b * t.load_b)
                    loaded = c.bytes_a + c.bytes_b
                    yield Found(c.ticks, depth < p.k, loaded, imbalance, order, rows, columns, depth)


def _sizes(size: int, block: int) -> list[int]:
    """All multiples of the block size along a dimension, in elements, up to the dimension itself."""
    return [*range(block, size, block), size]


def _depths(p: TilingProblem, rows: int, columns: int, inside_kernels: bool) -> list[int]:
    """The depths worth trying for a piece: all of K if it fits, and the deepest cut."""
    deepest = min(p.k, p.buf_a // (rows * p.elem_bytes), p.buf_b // (columns * p.elem_bytes))
    if deepest == p.k:
        return [p.k]
    if not inside_kernels:
        deepest -= deepest % p.kernel
    return [deepest] if deepest and rows * columns * p.acc_elem_bytes <= p.acc_max else []


def search_fast(problem: TilingProblem) -> Found:
    """The best choice, with arrays over all pieces; raises `InputError` if there is none."""
    for inside_kernels in (False, True):
        best = _search_arrays(problem, inside_kernels)
        if best is not None:
            return best
    raise InputError(f"nothing fits of {problem}")


def _search_arrays(p: TilingProblem, inside_kernels: bool) -> Found | None:
    once = times(p)
    row_sizes, column_sizes = _sizes(p.m, p.block_m), _sizes(p.n, p.block_n)
    largest = max(
        once.gemm,
        once.load_a * len(column_sizes),
        times(p, p.kernel).load_b * len(row_sizes),
        p.m * p.k * p.elem_bytes * len(column_sizes) + p.pixels * p.kernel * p.elem_bytes * len(row_sizes),
    )
    # Python integers have no limit, but are slow in arrays.
    kind = np.int64 if largest < _EXACT else np.object_
    rows: np.ndarray = np.array(row_sizes, kind)[:, None]
    columns: np.ndarray = np.array(column_sizes, kind)[None, :]
    d, column = p.elem_bytes, p.k * p.elem_bytes
    depth = np.minimum(np.minimum(p.buf_a // (rows * d), p.buf_b // (columns * d)), p.k)
    whole = depth == p.k
    if not inside_kernels:
        depth = np.where(whole, p.k, depth - depth % p.kernel)
    fits = whole | ((depth > 0) & (rows * columns * p.acc_elem_bytes <= p.acc_max))
    if not fits.any():
        return None
    depth = np.where(fits, depth, p.k)
    load_b = np.array([times(p, cuts).load_b for cuts in range(1, p.kernel + 1)], kind)
    cuts = np.where((depth == p.k) | (depth % p.kernel == 0), 1, -(-p.kernel // np.maximum(depth, 1))).astype(
        np.int64
    )
    best: Found | None = None
    for order in get_args(Order):
        keeps_a = (p.m * column <= p.buf_a) | ((order == "m") & (rows * column <= p.buf_a))
        keeps_b = (p.n * column <= p.buf_b) | ((order == "n") & (columns * column <= p.buf_b))
        loads_a = np.where(keeps_a, 1, -(-p.n // columns))
        loads_b = np.where(keeps_b, 1, -(-p.m // rows))
        time_a, time_b = loads_a * once.load_a, loads_b * load_b[cuts - 1]
        ticks = np.maximum(np.maximum(time_a, time_b), once.gemm)
        loaded = loads_a * (p.m * column) + loads_b * (p.pixels * d) * cuts
        # By ticks, then K whole, then bytes, then balance if K is split.
        left = fits
        for measure in (ticks, (~whole).astype(np.int64), loaded, np.where(whole, 0, abs(time_a - time_b))):
            left = left & (measure == measure[left].min())
        i, j = (int(x[0]) for x in np.nonzero(left))
        found = Found(
            int(ticks[i, j]),
            not whole[i, j],
            int(loaded[i, j]),
            int(abs(time_a - time_b)[i, j]),
            order,
            row_sizes[i],
            column_sizes[j],
            int(depth[i, j]),
        )
        if best is None or found.key < best.key:
            best = found
    return best
