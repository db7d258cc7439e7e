"""Converts a machine to the terms of the planner, and a blocking back to a plan."""

from __future__ import annotations

from collections.abc import Mapping

from hw.config import MachineConfig
from sw.convolution import Convolution
from sw.patches import Patches
from sw.tiling.blocking import Blocking, Extent, Resident
from sw.tiling.estimate import Estimate, loads
from sw.tiling.plan import BOUNDS, LOOPS, TilingPlan, times_text
from sw.tiling.problem import TilingProblem

#: Bytes of an element of A and B, and of an accumulator element.
ELEMENT, ACCUMULATED = 1, 4


def tiling_problem(
    extent: Extent, config: MachineConfig, rate: Mapping[str, float], blocking: Blocking
) -> TilingProblem:
    """The tiling problem of one product on a machine: half of each buffer, while the other half is filled.

    The planner has no terms for a convolution whose two axes differ, so that becomes a plain product. `rate`
    gives the bytes per cycle of each port. `blocking` gives the size of an inner tile and the halo of a
    convolution.
    """
    p, conv = extent.patches, None
    tiles = -(-blocking.tile_m // config.rows) * -(-blocking.tile_n // config.cols)
    shape = {"m": extent.m, "k": extent.k, "n": extent.n * extent.images}
    square = p is not None and (p.rows.stride, p.rows.dilation) == (p.cols.stride, p.cols.dilation)
    if p is not None and square and len({p.rows.before, p.rows.after, p.cols.before, p.cols.after}) == 1:
        conv = Convolution(extent.images, p.channels, p.rows, p.cols, extent.m)
        shape = {}
    return TilingProblem(
        **shape,
        elem_bytes=ELEMENT,
        acc_elem_bytes=ACCUMULATED,
        bw_a=rate["load_a"],
        bw_b=rate["load_b"],
        buf_a=config.buffer_a_bytes // 2,
        buf_b=config.buffer_b_bytes // 2,
        acc_max=config.acc_bytes // 2,
        macs_per_cycle=config.macs_per_cycle,
        block_m=config.rows,
        block_n=config.cols,
        sync_granularity=2 * ELEMENT * tiles,
        halo=0 if conv is None or p is None else _halo(p, blocking) * extent.images,
        write_b=None if conv is None else config.load_b_bytes,
        conv=conv,
    )


def _halo(p: Patches, t: Blocking) -> int:
    """Pixels of an image that its tiles of outputs read more than once, over all channels."""
    rows, cols = p.rows.read(t.out_rows), p.cols.read(t.out_cols)
    return max(0, rows * cols - p.rows.size * p.cols.size) * p.channels


def described(
    problem: TilingProblem, config: MachineConfig, extent: Extent, t: Blocking, estimate: Estimate
) -> TilingPlan:
    """A blocking as a plan, with the planner's cost and the prediction for the machine.

    Sizes are those of one product, and loads count per product; cycles and bytes are those of all products.
    """
    loads_a, loads_b = loads(extent, t)
    count, p = extent.batch // extent.images, extent.patches
    pixels = problem.k * problem.n if p is None else (p.pixels + _halo(p, t)) * extent.images
    gemm = problem.m * problem.n * problem.k / problem.macs_per_cycle
    load_a, load_b = loads_a * problem.m * problem.k / problem.bw_a, loads_b * pixels / problem.bw_b
    if p is not None:
        load_b = max(load_b, loads_b * problem.k * problem.n / config.load_b_bytes)
    longest = max(gemm, load_a, load_b)
    rows, columns = min(t.partition_m, extent.m), t.partition_n
    split = t.partition_k < extent.k
    acc = rows * -(-columns // problem.block_n) * problem.block_n * ACCUMULATED
    bound = "gemm" if longest == gemm else "load_a" if longest == load_a else "load_b"
    return TilingPlan(
        partition_m=rows,
        partition_n=columns,
        partition_k=t.partition_k,
        tile_m=min(t.tile_m, rows),
        tile_n=min(t.tile_n, columns),
        loop_order=LOOPS["m" if t.m_outermost else "n"],
        split_k=split,
        acc_needed=acc if split else 0,
        loads_a=loads_a,
        loads_b=loads_b,
        utilization=gemm / longest,
        cycles=count * longest,
        bytes_a=count * loads_a * problem.m * problem.k * ELEMENT,
        bytes_b=count * loads_b * pixels * ELEMENT,
        reason=_reason(extent, t, estimate, (loads_a, loads_b), bound),
    )


def _reason(extent: Extent, t: Blocking, e: Estimate, loaded: tuple[int, int], bound: str) -> str:
    outer, inner = ("m", "n") if t.m_outermost else ("n", "m")
    rows, columns = min(t.partition_m, extent.m), t.partition_n
    if t.partition_k == extent.k:
        why = (
            f"K stays whole: {rows:,} rows of A and {columns:,} columns of B with all of K fit their buffers."
        )
    else:
        why = (
            f"K is split into steps of {t.partition_k:,}, while a piece of C of {rows:,} x {columns:,} "
            "stays in the accumulator."
        )
    stays = [
        f"{'all' if resident is Resident.WHOLE else 'a piece'} of {name} stays in its buffer"
        for name, resident in (("A", t.resident_a), ("B", t.resident_b))
        if resident is not Resident.TILE
    ]
    order = f"With {outer} outside {inner}, A is loaded {times_text(loaded[0])} and B {times_text(loaded[1])}"
    order += " by each product" if extent.batch > extent.images else ""
    if extent.patches is not None and (halo := _halo(extent.patches, t)):
        order += f" (neighbouring tiles read {halo:,} of {extent.patches.pixels:,} pixels again)"
    order += f"; {' and '.join(stays)}." if stays else "."
    lost = [
        f"{cycles:,.0f} {what}"
        for cycles, what in (
            (e.ragged, "at ragged edges and short depths"),
            (e.fill, "before the first product"),
            (e.drain, "after the last"),
            (e.waits, "waiting for loads and stores"),
        )
        if round(cycles) > 0
    ]
    return (
        f"{why} {order} Counting array and loads only, the bottleneck is {BOUNDS[bound]}. Of the "
        f"{e.cycles:,.0f} cycles predicted on this machine, {e.ideal:,.0f} multiply at the peak"
        + (f", lost are {', '.join(lost)}." if lost else ".")
    )
