"""Plans the blocking of a matrix product: tile sizes, whether K is split, which loop is outermost.

There are three cases (source, paragraphs 91-143, 167-184, 185-200): a matrix fits its buffer and stays there;
neither does, and one is loaded repeatedly; or a piece of C stays in the accumulator while K streams by in
parts. The plan has the fewest cycles that `sw.tiling.cost` gives to any choice of whole blocks. Only block
counts at which the number of loads changes are tried, about 2·sqrt(blocks) of them.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any, NamedTuple

from hw.errors import InputError
from sw.tiling.cost import Cost, Order, Times, cost, kernel_cuts, times
from sw.tiling.problem import TilingProblem

#: The five loops, by the outermost. Of the inner two, the n loop is always outside (source, paragraph 216).
LOOPS: dict[Order, tuple[str, ...]] = {
    "m": ("m_outer", "n_outer", "k", "n_inner", "m_inner"),
    "n": ("n_outer", "m_outer", "k", "n_inner", "m_inner"),
}
#: Names of bottlenecks in messages.
BOUNDS = {"gemm": "the array", "load_a": "loading A", "load_b": "loading B"}


@dataclass(frozen=True)
class TilingPlan:
    """The tile sizes and loop order of a product, and their cost.

    Partitions and tiles are in elements, and `loop_order` is outermost first. `acc_needed`, `bytes_a` and
    `bytes_b` are in bytes. `loads_a` and `loads_b` say how often all of a matrix is loaded, and `utilization`
    is the share of the array's peak.
    """

    partition_m: int
    partition_n: int
    partition_k: int
    tile_m: int
    tile_n: int
    loop_order: tuple[str, ...]
    split_k: bool
    acc_needed: int
    loads_a: int
    loads_b: int
    utilization: float
    cycles: float
    bytes_a: int
    bytes_b: int
    reason: str

    @property
    def order(self) -> Order:
        """The outermost loop."""
        return "m" if self.loop_order[0] == "m_outer" else "n"

    def as_dict(self) -> dict[str, Any]:
        """The fields by name."""
        return dataclasses.asdict(self)


class _Whole(NamedTuple):
    """A choice that leaves K whole: tile sizes in elements, and the cost."""

    order: Order
    rows: int
    columns: int
    cost: Cost


class _Split(NamedTuple):
    """A choice that splits K, in order of preference; `n_outer` is 0 or 1, sizes are in blocks."""

    ticks: int
    loaded: int
    imbalance: int
    n_outer: int
    blocks_m: int
    blocks_n: int


class _Cut(NamedTuple):
    """A granularity for cutting K: pieces of at least `depth`, and the times with such cuts."""

    depth: int
    cuts: int
    times: Times


def plan(problem: TilingProblem) -> TilingPlan:
    """The plan with the fewest cycles.

    Raises `InputError`, naming the buffer, if not even a single block of depth 1 fits.
    """
    p = problem
    whole = _whole(p)
    t = times(p)
    # A lower bound: each matrix is loaded at least once and all products are computed.
    fastest = whole is not None and whole.cost.ticks == max(t.gemm, t.load_a, t.load_b)
    cuts = [_Cut(p.kernel, 1, t)]
    best = None if fastest else _best(p, cuts, p.acc_max)
    if whole is None and best is None:
        cuts = _inside_kernels(p)
        best = _best(p, cuts, p.acc_max)
    if whole is not None and (best is None or best.ticks >= whole.cost.ticks):
        reason = _why_whole(p, whole, best)
        return _planned(p, whole.order, whole.rows, whole.columns, p.k, whole.cost, 0, reason)
    if best is None:
        raise _unfit(p)

    # With equally many loads, prefer less of the accumulator.
    acc, smaller = p.acc_max, best
    while (half := _best(p, cuts, acc // 2, best.ticks)) is not None:
        acc, smaller = acc // 2, half
    rows, columns = min(smaller.blocks_m * p.block_m, p.m), min(smaller.blocks_n * p.block_n, p.n)
    depth = min(p.buf_a // (rows * p.elem_bytes), p.buf_b // (columns * p.elem_bytes), p.k)
    if depth > p.kernel:
        depth -= depth % p.kernel
    order: Order = "n" if smaller.n_outer else "m"
    chosen = cost(p, rows, columns, depth, order)
    reason = _why_split(p, chosen, order, rows, columns, depth, acc, whole)
    return _planned(p, order, rows, columns, depth, chosen, acc, reason)


def _most(size: int, block: int, room: int) -> int:
    """The most blocks of a dimension that fit in this many rows; the last block counts only its real rows."""
    return -(-size // block) if room >= size else room // block


def _whole(p: TilingProblem) -> _Whole | None:
    """The best choice with K whole, or None if no block of that depth fits both buffers."""
    depth = p.k * p.elem_bytes
    rows = min(_most(p.m, p.block_m, p.buf_a // depth) * p.block_m, p.m)
    columns = min(_most(p.n, p.block_n, p.buf_b // depth) * p.block_n, p.n)
    if not rows or not columns:
        return None
    # The matrix that stays must fit; if both do, m < n decides.
    all_a, all_b = rows == p.m, columns == p.n
    preferred: Order = "n" if all_b and (p.m >= p.n or not all_a) else "m"
    costs: dict[Order, Cost] = {order: cost(p, rows, columns, p.k, order) for order in ("m", "n")}
    order = min(costs, key=lambda o: (costs[o].ticks, costs[o].bytes_a + costs[o].bytes_b, o != preferred))
    return _Whole(order, rows, columns, costs[order])


def _inside_kernels(p: TilingProblem) -> list[_Cut]:
    """Cuts inside the kernels of a convolution, by the number of parts per kernel."""
    found, cuts = [], 2
    while cuts <= p.kernel:
        depth = -(-p.kernel // cuts)
        found.append(_Cut(depth, cuts, times(p, cuts)))
        # The next smaller depth, or the end.
        cuts = -(-p.kernel // (depth - 1)) if depth > 1 else p.kernel + 1
    return found


def _best(p: TilingProblem, cuts: list[_Cut], acc: int, ticks: float = math.inf) -> _Split | None:
    """The best choice with K split that takes at most this many ticks and bytes of accumulator."""
    found = (_best_split(p, cut, acc, ticks) for cut in cuts)
    return min((f for f in found if f is not None and f.ticks <= ticks), default=None)


def _best_split(p: TilingProblem, cut: _Cut, acc: int, ticks: float) -> _Split | None:
    """The best choice with K cut one way, or None if no block fits (source, paragraphs 185-200)."""
    m, n, block_m, block_n = p.m, p.n, p.block_m, p.block_n
    _, gemm, load_a, load_b = cut.times
    piece, column = cut.depth * p.elem_bytes, p.k * p.elem_bytes
    words = acc // p.acc_elem_bytes
    all_m, all_n = -(-m // block_m), -(-n // block_n)
    most_m = min(_most(m, block_m, p.buf_a // piece), _most(m, block_m, words // min(block_n, n)))
    most_n = min(_most(n, block_n, p.buf_b // piece), _most(n, block_n, words // min(block_m, m)))
    if not most_m or not most_n:
        return None
    bytes_a, bytes_b = m * column, p.pixels * cut.cuts * p.elem_bytes

    def split(loads_a: int, loads_b: int, n_outer: int, blocks_m: int, blocks_n: int) -> _Split:
        time_a, time_b = loads_a * load_a, loads_b * load_b
        loaded = loads_a * bytes_a + loads_b * bytes_b
        return _Split(max(gemm, time_a, time_b), loaded, abs(time_a - time_b), n_outer, blocks_m, blocks_n)

    found: list[_Split] = []
    # A piece of A with all of K stays while B streams. (B does not fit whole, or K would not be split.)
    stays = min(most_m, _most(m, block_m, p.buf_a // column))
    if stays:
        loads = -(-all_m // stays)
        blocks = -(-all_m // loads)
        others = min(most_n, _most(n, block_n, words // min(blocks * block_m, m)))
        found.append(split(1, loads, 0, blocks, -(-all_n // -(-all_n // others))))
    stays = min(most_n, _most(n, block_n, p.buf_b // column))
    if stays:
        loads = -(-all_n // stays)
        blocks = -(-all_n // loads)
        others = min(most_m, _most(m, block_m, words // min(blocks * block_n, n)))
        n_outer = int(n * column > p.buf_b)
        found.append(split(loads, 1, n_outer, -(-all_m // -(-all_m // others)), blocks))

    # Nothing stays: start from the fewest loads of B, and stop when they alone take longer than the best.
    best = min(found, default=None)
    blocks = most_m
    while blocks:
        loads_b = -(-all_m // blocks)
        if loads_b * load_b > (ticks if best is None else best.ticks):
            break
        blocks = -(-all_m // loads_b)
        room = words // min(blocks * block_m, m)
        others = min(most_n, all_n if room >= n else room // block_n)
        loads_a = -(-all_n // others)
        if best is None or loads_a * load_a <= best.ticks:
            candidate = split(loads_a, loads_b, 0, blocks, -(-all_n // loads_a))
            if best is None or candidate < best:
                best = candidate
        if others == most_n:
            # Smaller pieces load A no less often, and B more often.
            break
        blocks -= 1
    return best


def _unfit(p: TilingProblem) -> InputError:
    """The buffer that cannot hold a single block of depth 1."""
    rows, columns = min(p.block_m, p.m), min(p.block_n, p.n)
    for name, there, what, needed in (
        ("buf_a", p.buf_a, f"{rows} rows of A", rows * p.elem_bytes),
        ("buf_b", p.buf_b, f"{columns} columns of B", columns * p.elem_bytes),
    ):
        if needed > there:
            return InputError(
                f"{name} must hold a single block of depth 1: {what} need {needed} bytes, there are {there}"
            )
    needed = rows * columns * p.acc_elem_bytes
    return InputError(
        f"acc_max must hold a single block of C, as K = {p.k} cannot be whole in the input buffers: "
        f"{rows}x{columns} elements need {needed} bytes, there are {p.acc_max}"
    )


def _planned(
    p: TilingProblem, order: Order, rows: int, columns: int, depth: int, chosen: Cost, acc: int, reason: str
) -> TilingPlan:
    """The choice with its inner tiles (source, paragraphs 207-218) and its bottleneck in words."""
    blocks_m, blocks_n = -(-rows // p.block_m), -(-columns // p.block_n)
    handed_on = max(1, p.sync_granularity // (2 * p.elem_bytes))
    tile_m = min(handed_on, blocks_m)
    tile_n = min(max(1, handed_on // tile_m), blocks_n)
    return TilingPlan(
        partition_m=rows,
        partition_n=columns,
        partition_k=depth,
        tile_m=tile_m * p.block_m,
        tile_n=tile_n * p.block_n,
        loop_order=LOOPS[order],
        split_k=acc > 0,
        acc_needed=acc,
        loads_a=chosen.loads_a,
        loads_b=chosen.loads_b,
        utilization=chosen.utilization,
        cycles=chosen.cycles,
        bytes_a=chosen.bytes_a,
        bytes_b=chosen.bytes_b,
        reason=f"{reason} The bottleneck is {BOUNDS[chosen.bound]}: {chosen.cycles:,.0f} cycles, "
        f"{100 * chosen.utilization:.1f} % of the array's peak.",
    )


def _why_whole(p: TilingProblem, chosen: _Whole, split: _Split | None = None) -> str:
    """Why K stays whole, and which matrix stays in its buffer."""
    size_a, size_b = p.m * p.k * p.elem_bytes, p.n * p.k * p.elem_bytes
    rows, columns, c = chosen.rows, chosen.columns, chosen.cost
    if rows == p.m and columns == p.n:
        which = "m is less than n" if p.m < p.n else "m is not less than n"
        return (
            f"Both matrices fit their buffers ({size_a:,} of {p.buf_a:,} bytes, {size_b:,} of {p.buf_b:,}), "
            f"so each is loaded once and K stays whole; {chosen.order} is outermost because {which}."
        )
    if rows == p.m or columns == p.n:
        fits, size, room, other, piece = ("B", size_b, p.buf_b, "A", f"{rows:,} rows")
        if rows == p.m:
            fits, size, room, other, piece = ("A", size_a, p.buf_a, "B", f"{columns:,} columns")
        return (
            f"{fits} fits its buffer ({size:,} of {room:,} bytes) and stays there while {other} passes once "
            f"in pieces of {piece}, so nothing is loaded twice, K stays whole and {chosen.order} is "
            "outermost."
        )
    again, loads = ("B", c.loads_b) if chosen.order == "m" else ("A", c.loads_a)
    if split is not None:
        other = f"splitting K would take {split.ticks / c.unit:,.0f} cycles, no fewer"
    elif c.bound == "gemm":
        other = "the array is busy all the time"
    elif (c.loads_a if c.bound == "load_a" else c.loads_b) == 1:
        other = f"no choice is faster than {BOUNDS[c.bound]} once"
    else:
        other = f"no piece of C fits the accumulator's {p.acc_max:,} bytes"
    return (
        f"Neither A ({size_a:,} bytes) nor B ({size_b:,}) fits its buffer; K stays whole, because {other}. "
        f"With {chosen.order} outermost {again} is loaded {loads:,} times; the other order is no better."
    )


def _why_split(
    p: TilingProblem,
    chosen: Cost,
    order: Order,
    rows: int,
    columns: int,
    depth: int,
    acc: int,
    whole: _Whole | None,
) -> str:
    """Why K is split, what stays in its buffer, and how much accumulator that needs."""
    column = p.k * p.elem_bytes
    if whole is None:
        names = [
            f"{block} {what if block > 1 else what[:-1]} of {name} "
            f"({block * column:,} bytes, there are {room:,})"
            for name, what, block, room in (
                ("A", "rows", min(p.block_m, p.m), p.buf_a),
                ("B", "columns", min(p.block_n, p.n), p.buf_b),
            )
            if block * column > room
        ]
        why = f"K must be split: with all of K not even {' or '.join(names)} fit."
    else:
        why = f"K is split, because with K whole the best takes {whole.cost.cycles:,.0f} cycles."
    if order == "m" and rows * column <= p.buf_a:
        stays = f"A piece of A, {rows:,} rows with all of K, stays while B streams, so m is outermost"
    elif order == "n" or p.n * column <= p.buf_b:
        stays = (
            f"{'A piece' if order == 'n' else 'All'} of B, {columns:,} columns a step with all of K, stays "
        )
        stays += f"while A streams, so {order} is outermost"
    else:
        stays = "Nothing stays in the input buffers, so m is outermost"
    inside = (
        f" Pieces as deep as a kernel ({p.kernel}) do not fit, so one load of B reads its pixels "
        f"{kernel_cuts(p, depth)} times."
        if depth < p.kernel
        else ""
    )
    return (
        f"{why} A piece of C, {rows:,} x {columns:,}, stays in the accumulator, of which {acc:,} of "
        f"{p.acc_max:,} bytes suffice, while K passes in parts of {depth:,}; A is loaded "
        f"{times_text(chosen.loads_a)}, B {times_text(chosen.loads_b)}. {stays}.{inside}"
    )


def times_text(count: int) -> str:
    """A count of repetitions in words."""
    return "once" if count == 1 else f"{count:,} times"
