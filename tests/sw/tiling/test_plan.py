"""Plans by hand for every case, and properties: a plan fits its buffers and nothing is better."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.exhaustive import Found, search, search_fast
from bench.tiling import SETS
from hw.errors import InputError
from sw.convolution import Convolution
from sw.tiling.cost import cost, kernel_cuts, times
from sw.tiling.plan import LOOPS, TilingPlan, plan
from sw.tiling.problem import TilingProblem, convolution_of

MACHINE = {
    "elem_bytes": 1,
    "acc_elem_bytes": 4,
    "bw_a": 8,
    "bw_b": 8,
    "buf_a": 1024,
    "buf_b": 1024,
    "acc_max": 4096,
    "macs_per_cycle": 64,
    "block_m": 8,
    "block_n": 8,
    "sync_granularity": 8,
}


def problem(m: int, k: int, n: int, **changes: Any) -> TilingProblem:
    return TilingProblem(**MACHINE | {"m": m, "k": k, "n": n} | changes)


def pieces(p: TilingPlan) -> tuple[int, int, int]:
    return p.partition_m, p.partition_n, p.partition_k


# Resident


def test_both_fit_and_m_is_less() -> None:
    p = plan(problem(16, 32, 24))
    assert pieces(p) == (16, 24, 32)
    assert p.loop_order == ("m_outer", "n_outer", "k", "n_inner", "m_inner")
    assert (p.split_k, p.acc_needed, p.loads_a, p.loads_b) == (False, 0, 1, 1)
    assert (p.bytes_a, p.bytes_b) == (16 * 32, 24 * 32)
    # 192 cycles of the array, 64 and 96 of loading.
    assert (p.cycles, p.utilization) == (192.0, 1.0)
    assert "m is less than n" in p.reason


@pytest.mark.parametrize("n", [16, 8])
def test_both_fit_and_m_is_not_less(n: int) -> None:
    p = plan(problem(16, 32, n))
    assert pieces(p) == (16, n, 32)
    assert p.loop_order == LOOPS["n"]


def test_only_a_fits_and_stays_although_m_is_larger() -> None:
    p = plan(problem(32, 32, 24, buf_b=300))
    # 300 bytes hold 9 columns of 32, hence one block of 8.
    assert pieces(p) == (32, 8, 32)
    assert p.loop_order == LOOPS["m"]
    assert (p.loads_a, p.loads_b) == (1, 1)
    assert "A fits its buffer (1,024 of 1,024 bytes)" in p.reason


def test_only_b_fits_and_stays_although_m_is_less() -> None:
    p = plan(problem(24, 32, 32, buf_a=600))
    assert pieces(p) == (16, 32, 32)
    assert p.loop_order == LOOPS["n"]
    assert (p.loads_a, p.loads_b) == (1, 1)


def test_utilization_is_of_the_slowest_load() -> None:
    p = plan(problem(16, 32, 24, bw_b=2))
    assert p.cycles == 24 * 32 / 2
    assert p.utilization == 192 / 384
    assert "loading B: 384 cycles, 50.0 % of the array's peak" in p.reason


# Neither fits, K whole


def test_the_cheaper_matrix_is_loaded_again() -> None:
    # Pieces of 16 rows; B of 4096 bytes four times at 16 bytes per cycle, or A of 4096 four times at 8.
    shape = {"acc_max": 1, "macs_per_cycle": 1024}
    slow_a = plan(problem(64, 64, 64, bw_b=16, **shape))
    assert pieces(slow_a) == (16, 16, 64)
    assert (slow_a.loop_order, slow_a.loads_a, slow_a.loads_b) == (LOOPS["m"], 1, 4)
    assert slow_a.cycles == 4 * 4096 / 16
    slow_b = plan(problem(64, 64, 64, bw_a=16, **shape))
    assert (slow_b.loop_order, slow_b.loads_a, slow_b.loads_b) == (LOOPS["n"], 4, 1)
    assert slow_b.cycles == 4 * 4096 / 16
    assert "n outermost A is loaded 4 times" in slow_b.reason


def test_ties_go_to_fewer_bytes_then_to_m_outermost() -> None:
    # The array is busy all the time in either order.
    slow = {"macs_per_cycle": 1}
    even = plan(problem(64, 64, 64, **slow))
    assert (even.split_k, even.loop_order) == (False, LOOPS["m"])
    # m outermost: 2048 + 2·6144 bytes; n outermost: 6·2048 + 6144, fewer bytes with m.
    assert plan(problem(32, 64, 96, **slow)).loop_order == LOOPS["m"]
    # 6144 + 6·2048 with m outermost, 2·6144 + 2048 with n.
    assert plan(problem(96, 64, 32, **slow)).loop_order == LOOPS["n"]


def test_the_bandwidths_alone_do_not_decide() -> None:
    # A is slower, but loading A again is cheaper: it is small.
    p = plan(problem(24, 64, 512, bw_a=7, bw_b=8, macs_per_cycle=4096, acc_max=1))
    m_outer, n_outer = 2 * 512 * 64 / 8, 32 * 24 * 64 / 7
    assert p.cycles == min(m_outer, n_outer)
    assert p.loop_order == LOOPS["n" if n_outer < m_outer else "m"]


# Neither fits, K split


def test_split_where_it_saves_loads() -> None:
    # K whole: pieces of 16, four loads of 4096 bytes, 2048 cycles. Split: C in 32x32 pieces, two loads each.
    p = plan(problem(64, 64, 64, macs_per_cycle=1024))
    assert p.split_k
    assert (p.loads_a, p.loads_b) == (2, 2)
    assert pieces(p) == (32, 32, 32)
    assert p.loop_order == LOOPS["m"]
    assert p.cycles == 2 * 4096 / 8
    assert p.acc_needed == 4096
    assert "K is split, because with K whole the best takes 2,048 cycles" in p.reason


def test_no_split_for_equal_cycles() -> None:
    p = plan(problem(64, 64, 64, macs_per_cycle=1024, acc_max=1024))
    assert (p.split_k, p.acc_needed, p.partition_k) == (False, 0, 64)
    # The split's accumulator holds 16x16, as the buffers do with K whole.
    assert "splitting K would take 2,048 cycles, no fewer" in p.reason


def test_split_because_no_block_of_that_depth_fits() -> None:
    p = plan(problem(8, 1000, 8))
    assert p.split_k
    assert pieces(p) == (8, 8, 128)
    assert (p.loads_a, p.loads_b, p.acc_needed) == (1, 1, 256)
    assert "K must be split: with all of K not even 8 rows of A (8,000 bytes, there are 1,024) or" in p.reason


def test_a_piece_of_a_stays_while_b_streams() -> None:
    # 8 rows of A fit with all of K, not one column of B: A is loaded once however small the buffer of B.
    p = plan(problem(16, 1024, 4096, buf_a=8192, buf_b=512, bw_b=64, macs_per_cycle=1 << 16))
    assert p.split_k
    assert (p.loads_a, p.loads_b) == (1, 2)
    assert (p.partition_m, p.loop_order) == (8, LOOPS["m"])
    assert p.partition_k == 512 // p.partition_n
    assert "A piece of A, 8 rows with all of K, stays while B streams, so m is outermost" in p.reason


def test_a_piece_of_b_stays_while_a_streams() -> None:
    p = plan(problem(4096, 1024, 16, buf_a=512, buf_b=8192, bw_a=64, macs_per_cycle=1 << 16))
    assert p.split_k
    assert (p.loads_a, p.loads_b) == (2, 1)
    assert (p.partition_n, p.loop_order) == (8, LOOPS["n"])


def test_the_accumulator_shrinks_while_the_cycles_stay() -> None:
    # 131,072 cycles of the array leave time for 8 loads of A and B: pieces of 64x64, 16,384 bytes.
    p = plan(problem(512, 1024, 512, bw_a=32, bw_b=32, macs_per_cycle=2048, acc_max=1 << 20))
    assert p.utilization == 1.0
    assert (p.loads_a, p.loads_b) == (8, 8)
    assert pieces(p) == (64, 64, 16)
    assert p.acc_needed == 16384


def test_one_halving_too_many_is_not_taken() -> None:
    base = problem(512, 1024, 512, bw_a=32, bw_b=32, macs_per_cycle=2048, acc_max=20000)
    assert plan(base).acc_needed == 20000
    assert plan(dataclasses.replace(base, acc_max=40001)).acc_needed == 20000


# Whole blocks, edges, tiles


def test_a_partition_that_reaches_the_edge_counts_real_rows() -> None:
    # Two blocks of 8 hold 13 rows: 13·32 bytes fit where 16·32 would not.
    p = plan(problem(13, 32, 13, buf_a=416, buf_b=416))
    assert pieces(p) == (13, 13, 32)
    assert not p.split_k


def test_a_shape_smaller_than_a_block() -> None:
    p = plan(problem(3, 5, 2, block_m=64, block_n=64, buf_a=15, buf_b=10))
    assert pieces(p) == (3, 2, 5)
    assert (p.tile_m, p.tile_n) == (64, 64)


@pytest.mark.parametrize(
    ("granularity", "elem_bytes", "tiles"),
    [
        (1, 1, (8, 8)),  # less than one: one
        (8, 1, (32, 8)),  # 4 blocks of 8 along m
        (16, 2, (32, 8)),
        (24, 1, (64, 8)),  # 12 blocks, 8 along m; 12 / 8 rounds down
        (40, 1, (64, 16)),  # 20 blocks: 8 along m, 2 along n
        (1000, 1, (64, 32)),  # no more than there are
    ],
)
def test_inner_tiles(granularity: int, elem_bytes: int, tiles: tuple[int, int]) -> None:
    p = plan(problem(64, 8, 32, sync_granularity=granularity, elem_bytes=elem_bytes, buf_a=4096, buf_b=4096))
    assert (p.partition_m, p.partition_n) == (64, 32)
    assert (p.tile_m, p.tile_n) == tiles


# Convolutions


def conv(**changes: Any) -> Convolution:
    return convolution_of(**{"sn": 1, "ic": 4, "h": 8, "w": 8, "oc": 8, "kh": 3, "kw": 3, "pad": 1} | changes)


def convolution(c: Convolution, **changes: Any) -> TilingProblem:
    return TilingProblem(**MACHINE | changes, conv=c)


def test_one_load_of_the_activations_reads_each_pixel_once() -> None:
    p = plan(convolution(conv(), buf_b=4096, bw_b=1, macs_per_cycle=1024))
    # 4·8·8 pixels at 1 byte per cycle; the patches are 9 times as many.
    assert (p.cycles, p.bytes_b) == (256.0, 256)


def test_halo_and_writes_of_patches_come_on_top() -> None:
    base = convolution(conv(), buf_b=4096, bw_b=1, macs_per_cycle=1024)
    assert plan(dataclasses.replace(base, halo=44)).cycles == 300.0
    assert plan(dataclasses.replace(base, write_b=16)).cycles == 256.0
    assert plan(dataclasses.replace(base, write_b=4)).cycles == 36 * 64 / 4


def test_k_is_cut_at_whole_kernels() -> None:
    p = plan(convolution(conv(ic=40), buf_a=200, buf_b=200))
    assert p.split_k
    assert (p.partition_m, p.partition_n, p.partition_k) == (8, 8, 18)


def test_k_is_cut_inside_a_kernel_only_if_a_kernel_does_not_fit() -> None:
    # 40 bytes are a block of depth 5 of the 9 positions: pixels are read twice in one load of B.
    p = plan(convolution(conv(), buf_a=40, buf_b=40))
    assert p.partition_k == 5
    assert p.bytes_b == p.loads_b * 2 * 4 * 8 * 8
    assert "reads its pixels 2 times" in p.reason
    assert plan(convolution(conv(), buf_a=72, buf_b=72)).partition_k == 9


# What does not fit


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"buf_a": 15, "elem_bytes": 2}, "buf_a must hold a single block of depth 1: 8 rows of A need 16 "),
        ({"buf_b": 7}, "buf_b must hold .*: 8 columns of B need 8 bytes, there are 7"),
        ({"acc_max": 255, "k": 1000}, "acc_max must hold .* 8x8 elements need 256 bytes, there are 255"),
    ],
)
def test_a_block_that_does_not_fit_is_refused(changes: dict[str, Any], text: str) -> None:
    with pytest.raises(InputError, match=text):
        plan(problem(**{"m": 64, "k": 64, "n": 64} | changes))
    with pytest.raises(InputError, match="nothing fits"):
        search(problem(**{"m": 64, "k": 64, "n": 64} | changes))


# Properties

_RATES = st.sampled_from([0.3, 1, 2, 7.7, 8, 32])


@st.composite
def problems(draw: st.DrawFn) -> TilingProblem:
    """Small problems, tiny buffers, blocks larger than dimensions, convolutions of all kinds."""

    def whole(least: int, most: int) -> int:
        return draw(st.integers(least, most))

    values: dict[str, Any] = {
        "elem_bytes": draw(st.sampled_from([1, 2, 4])),
        "acc_elem_bytes": draw(st.sampled_from([1, 2, 4])),
        "bw_a": draw(_RATES),
        "bw_b": draw(_RATES),
        "buf_a": whole(1, draw(st.sampled_from([30, 300, 1500]))),
        "buf_b": whole(1, draw(st.sampled_from([30, 300, 1500]))),
        "acc_max": whole(1, draw(st.sampled_from([100, 3000]))),
        "macs_per_cycle": draw(st.sampled_from([0.7, 1, 16, 64, 1000])),
        "block_m": whole(1, 8),
        "block_n": whole(1, 8),
        "sync_granularity": whole(1, 64),
        "write_b": draw(st.none() | _RATES),
    }
    if draw(st.booleans()):
        kh, kw, dilation, pad = whole(1, 4), whole(1, 4), whole(1, 2), whole(0, 2)
        values["conv"] = convolution_of(
            sn=whole(1, 2),
            ic=whole(1, 4),
            h=max(1, dilation * (kh - 1) + 1 - 2 * pad) + whole(0, 4),
            w=max(1, dilation * (kw - 1) + 1 - 2 * pad) + whole(0, 4),
            oc=whole(1, 20),
            kh=kh,
            kw=kw,
            stride=whole(1, 2),
            pad=pad,
            dilation=dilation,
        )
        values["halo"] = whole(0, 40)
    else:
        values |= {"m": whole(1, 30), "k": whole(1, 50), "n": whole(1, 30)}
    return TilingProblem(**values)


def planned(p: TilingProblem) -> TilingPlan | None:
    try:
        return plan(p)
    except InputError:
        return None


def searched(p: TilingProblem) -> Found | None:
    try:
        return search_fast(p)
    except InputError:
        return None


def check(p: TilingProblem, got: TilingPlan | None, best: Found | None) -> None:
    """Neither finds anything, or the plan is as good, says what it costs, and fits."""
    assert (got is None) == (best is None)
    if got is None or best is None:
        return
    c = cost(p, got.partition_m, got.partition_n, got.partition_k, got.order)
    assert c.ticks == best.ticks
    assert got.split_k == best.split_k
    assert (got.cycles, got.utilization) == (c.cycles, c.utilization)
    assert (got.loads_a, got.loads_b, got.bytes_a, got.bytes_b) == (
        c.loads_a,
        c.loads_b,
        c.bytes_a,
        c.bytes_b,
    )
    if not got.split_k:
        assert got.bytes_a + got.bytes_b == best.loaded

    for size, partition, block in ((p.m, got.partition_m, p.block_m), (p.n, got.partition_n, p.block_n)):
        assert 0 < partition <= size
        assert partition == size or partition % block == 0
    assert got.partition_m * got.partition_k * p.elem_bytes <= p.buf_a
    assert got.partition_n * got.partition_k * p.elem_bytes <= p.buf_b
    # What is loaded once while the other matrix passes more than once is there with all of K.
    kept_rows = got.partition_m if got.order == "m" else p.m
    assert got.loads_a == -(-p.n // got.partition_n) or kept_rows * p.k * p.elem_bytes <= p.buf_a
    kept_columns = got.partition_n if got.order == "n" else p.n
    assert got.loads_b == -(-p.m // got.partition_m) or kept_columns * p.k * p.elem_bytes <= p.buf_b
    assert 0 < got.utilization <= 1
    if got.split_k:
        assert 0 < got.partition_k < p.k
        assert got.partition_m * got.partition_n * p.acc_elem_bytes <= got.acc_needed <= p.acc_max
    else:
        assert (got.partition_k, got.acc_needed) == (p.k, 0)


@settings(max_examples=400)
@given(problems())
def test_no_choice_is_better(p: TilingProblem) -> None:
    check(p, planned(p), searched(p))


@st.composite
def deep_kernels(draw: st.DrawFn) -> TilingProblem:
    """Convolutions whose buffers seldom hold a block as deep as a kernel, bound by loading."""
    kernel = draw(st.integers(2, 6))
    return convolution(
        convolution_of(
            sn=1,
            ic=draw(st.integers(1, 3)),
            h=draw(st.integers(kernel, 9)),
            w=draw(st.integers(6, 9)),
            oc=draw(st.integers(1, 16)),
            kh=kernel,
            kw=draw(st.integers(1, 6)),
        ),
        macs_per_cycle=1000,
        bw_a=draw(_RATES),
        bw_b=draw(_RATES),
        buf_a=draw(st.integers(1, 60)),
        buf_b=draw(st.integers(1, 60)),
        acc_max=draw(st.integers(4, 1000)),
        block_m=draw(st.integers(1, 3)),
        block_n=draw(st.integers(1, 3)),
        halo=draw(st.integers(0, 9)),
    )


@settings(max_examples=400)
@given(deep_kernels())
def test_no_choice_is_better_inside_kernels(p: TilingProblem) -> None:
    check(p, planned(p), searched(p))


@settings(max_examples=200)
@given(problems() | deep_kernels())
def test_the_accumulator_is_the_last_that_keeps_the_cycles_and_the_plan_its_best(p: TilingProblem) -> None:
    got, best = planned(p), searched(p)
    if got is None or best is None or not got.split_k:
        return
    acc = p.acc_max
    while acc > 1:
        smaller = searched(dataclasses.replace(p, acc_max=acc // 2))
        if smaller is None or smaller.ticks > best.ticks:
            break
        acc //= 2
    assert got.acc_needed == acc
    least = search_fast(dataclasses.replace(p, acc_max=acc))
    t = times(p, kernel_cuts(p, got.partition_k))
    imbalance = abs(got.loads_a * t.load_a - got.loads_b * t.load_b)
    assert (got.bytes_a + got.bytes_b, imbalance, got.order) == (least.loaded, least.imbalance, least.order)


@settings(max_examples=100)
@given(problems() | deep_kernels())
def test_the_fast_search_is_the_plain_search(p: TilingProblem) -> None:
    fast = searched(p)
    if fast is None:
        with pytest.raises(InputError):
            search(p)
    else:
        assert search(p).key == fast.key


@settings(max_examples=60)
@given(problems())
def test_no_other_depth_is_better(p: TilingProblem) -> None:
    """Depths that the searches leave out: every one that fits, at whole kernels."""
    got = planned(p)
    if got is None or got.partition_k < p.kernel:
        return
    ticks = cost(p, got.partition_m, got.partition_n, got.partition_k, got.order).ticks
    for rows in [*range(p.block_m, p.m, p.block_m), p.m]:
        for columns in [*range(p.block_n, p.n, p.block_n), p.n]:
            split = rows * columns * p.acc_elem_bytes <= p.acc_max
            for depth in [*range(p.kernel, p.k, p.kernel), p.k] if split else [p.k]:
                deepest = min(p.buf_a // (rows * p.elem_bytes), p.buf_b // (columns * p.elem_bytes))
                if depth <= deepest:
                    assert min(cost(p, rows, columns, depth, order).ticks for order in LOOPS) >= ticks


def test_costs_closer_than_floats_can_tell_are_told_apart() -> None:
    """Loading A twice takes 2^-71 less than loading B twice, although these are fewer bytes."""
    m, n, k = (1 << 26) + 8, 1 << 26, 1 << 20
    bw_a, bw_b = (((1 << 26) * (size // 8) - 1) * 2**-30 for size in (m, n))
    rooms = {"buf_a": (m // 2 + 4) * k, "buf_b": n // 2 * k}
    p = problem(m, k, n, bw_a=bw_a, bw_b=bw_b, **rooms, acc_max=1, macs_per_cycle=1e15)
    m_outer, n_outer = (cost(p, m // 2 + 4, n // 2, k, order) for order in LOOPS)
    assert (m_outer.loads_b, n_outer.loads_a, m_outer.cycles) == (2, 2, n_outer.cycles)
    assert plan(p).loop_order == LOOPS["n"]


@pytest.mark.parametrize("name", [name for name, (_, searchable) in SETS.items() if searchable])
def test_real_products_against_the_exhaustive_search(name: str) -> None:
    """Together more than 5,000: BERT-large, ResNet-50, random."""
    for p in SETS[name][0]():
        check(p, planned(p), searched(p))


def test_there_are_as_many_as_said() -> None:
    assert sum(1 for make, searchable in SETS.values() if searchable for _ in make()) > 5000
