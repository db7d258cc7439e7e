"""Cost of given tile sizes and loop order; the search is elsewhere.

Times are integers in ticks, a fraction of a cycle chosen so that every time is whole. So equal costs compare
equal, without rounding errors.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

from sw.tiling.problem import TilingProblem

#: The outermost loop.
Order = Literal["m", "n"]


class Times(NamedTuple):
    """Ticks for the multiplication, and for loading all of A and all of B once; `unit` ticks are a cycle."""

    unit: int
    gemm: int
    load_a: int
    load_b: int


@dataclass(frozen=True)
class Cost:
    """Loads of all of A and B, bytes loaded, time, share of the array's peak, and the bottleneck.

    `bound` is `gemm`, `load_a` or `load_b`; `ticks` / `unit` are the exact cycles.
    """

    loads_a: int
    loads_b: int
    bytes_a: int
    bytes_b: int
    ticks: int
    unit: int
    cycles: float
    utilization: float
    bound: str


def times(problem: TilingProblem, cuts: int = 1) -> Times:
    """The three times that bound a product (source, paragraphs 134-143, 275-279).

    With `cuts`, one load of B reads the pixels of a convolution that many times.
    """
    p = problem
    product, a_bytes = p.m * p.n * p.k, p.m * p.k * p.elem_bytes
    b_bytes = p.pixels * cuts * p.elem_bytes
    macs, per_macs = p.macs_per_cycle.as_integer_ratio()
    rate_a, per_a = p.bw_a.as_integer_ratio()
    rate_b, per_b = p.bw_b.as_integer_ratio()
    if p.write_b is None:
        unit = math.lcm(macs, rate_a, rate_b)
        load_b = b_bytes * per_b * (unit // rate_b)
    else:
        write, per_write = p.write_b.as_integer_ratio()
        unit = math.lcm(macs, rate_a, rate_b, write)
        load_b = max(
            b_bytes * per_b * (unit // rate_b), p.k * p.n * p.elem_bytes * per_write * (unit // write)
        )
    return Times(unit, product * per_macs * (unit // macs), a_bytes * per_a * (unit // rate_a), load_b)


def kernel_cuts(problem: TilingProblem, partition_k: int) -> int:
    """How often one load of B reads each pixel: once, unless K is cut inside kernels.

    In that case, pieces start anew with each channel, so that every kernel is cut the same way.
    """
    kernel = problem.kernel
    if partition_k >= problem.k or partition_k % kernel == 0:
        return 1
    return max(2, -(-kernel // partition_k))


def cost(problem: TilingProblem, partition_m: int, partition_n: int, partition_k: int, order: Order) -> Cost:
    """The cost of pieces that fit; `order` names the outermost loop (source, paragraphs 134-143, 156-184).

    The piece of the outermost loop is loaded once and stays if it fits its buffer with all of K. This is
    always so if K is whole, and sometimes if K is split. A matrix that fits as a whole is loaded once in
    either order.
    """
    p = problem
    t = times(p, kernel_cuts(p, partition_k))
    depth = p.k * p.elem_bytes
    kept_rows = partition_m if order == "m" else p.m
    kept_columns = partition_n if order == "n" else p.n
    loads_a = 1 if min(kept_rows, p.m) * depth <= p.buf_a else -(-p.n // partition_n)
    loads_b = 1 if min(kept_columns, p.n) * depth <= p.buf_b else -(-p.m // partition_m)
    load_a, load_b = loads_a * t.load_a, loads_b * t.load_b
    ticks = max(t.gemm, load_a, load_b)
    return Cost(
        loads_a=loads_a,
        loads_b=loads_b,
        bytes_a=loads_a * p.m * depth,
        bytes_b=loads_b * p.pixels * kernel_cuts(p, partition_k) * p.elem_bytes,
        ticks=ticks,
        unit=t.unit,
        cycles=ticks / t.unit,
        utilization=t.gemm / ticks,
        bound="gemm" if ticks == t.gemm else "load_a" if ticks == load_a else "load_b",
    )
