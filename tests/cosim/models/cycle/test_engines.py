"""Hand-computed timelines of loaders, array and storer (4 x 4 array, ports of 8 bytes, latency 6)."""

import pytest

from hw.isa import TIMING
from tests.cosim.models.cycle.jobs import completions, run, turn


def load(outer: int, inner: int, address: int = 0, name: str = "load_a", **params: int) -> str:
    """A program whose load issues in turn 3 + number of parameters."""
    lines = [f"li r1, {address}", f"li r3, {outer}", f"li r4, {inner}"]
    lines += [f"parami load_{k}, {v}" for k, v in params.items()]
    return "\n".join([*lines, f"{name} r1, r0, r3, r4", "halt"])


#: From taking a load to the entry of its first beat.
ENTRY = TIMING.load_request - 1


def test_a_load_of_one_beat() -> None:
    # Issued 18, taken 21, entered 25, accepted 26, answered 32, complete 36.
    outcome = run(load(1, 8))
    assert completions(outcome) == [36]
    assert outcome.counters["LOAD_A_BUSY"] == outcome.counters["LOAD_A_OPERATIONS"] == 1


@pytest.mark.parametrize(
    ("outer", "inner", "address", "stride", "beats"),
    [
        (2, 16, 0, 16, 4),
        (2, 16, 4, 16, 6),
        (4, 8, 0, 12, 6),
        (3, 1, 0, 0, 3),
        (1, 9, 7, 0, 2),
        (8, 8, 1, 9, 15),
    ],
)
def test_beats_follow_from_alignment(outer: int, inner: int, address: int, stride: int, beats: int) -> None:
    outcome = run(load(outer, inner, address, stride=stride))
    assert outcome.counters["LOAD_A_BUSY"] == beats
    assert completions(outcome) == [turn(4) + TIMING.enqueue + ENTRY + beats + 6 + TIMING.load_write]


@pytest.mark.parametrize(
    ("pad_outer", "pad_inner", "beats"), [(0, 1, 6), (0, 9, 8), (3, 0, 10), (1, 1, 9), (2, 8, 12)]
)
def test_fill_beats_pass_one_per_cycle(pad_outer: int, pad_inner: int, beats: int) -> None:
    outcome = run(load(2, 16, stride=16, pad_outer=pad_outer, pad_inner=pad_inner))
    assert outcome.counters["LOAD_A_BUSY"] == beats
    assert completions(outcome) == [turn(6) + TIMING.enqueue + ENTRY + beats + 6 + TIMING.load_write]


def test_bandwidth_spaces_requests() -> None:
    # 2 of 8 bytes: cycles 0, 4, 8 ... are available; the beats are presented from 26 and 29 on.
    outcome = run(load(1, 16), memory={"bandwidth": {"load_a": 2}})
    assert completions(outcome) == [32 + 6 + 4]
    assert outcome.counters["LOAD_A_STALL_MEMORY"] == 2 + 3


def test_fill_does_not_wait_for_memory() -> None:
    # Issued in 30, presented in 38, accepted in 40; two fill beats pass in 41 and 42; the second row is
    # presented in 43, accepted in 44, filled until 46.
    outcome = run(load(2, 8, stride=8, pad_inner=16), memory={"bandwidth": {"load_a": 2}})
    assert completions(outcome) == [44 + 6 + 2 + 4]
    assert outcome.counters["LOAD_A_STALL_MEMORY"] == 2 + 1


def test_four_loads_are_in_flight() -> None:
    text = "li r3, 1\nli r4, 8\n" + "load_a r0, r0, r3, r4\n" * 6 + "halt"
    outcome = run(text, memory={"latency": {"load_a": 100}})
    # Issued in 12, 18 ..., entered in 19, 25, 31, 37; the fifth is taken after the first completed in 124.
    assert completions(outcome) == [124, 130, 136, 142, 125 + 5 + 104, 131 + 5 + 104]


def test_transposed_loads_have_the_same_beats() -> None:
    straight, transposed = run(load(3, 4, stride=8)), run(load(3, 4, name="load_a_t", stride=8))
    assert straight.events == transposed.events


def gemm(m: int, n: int, *depths: int) -> str:
    """Products of the given depths; the first issues in turn 2 + their number."""
    lines = [f"parami gemm_m, {m}", f"parami gemm_n, {n}"]
    lines += [f"li r{i}, {k}" for i, k in enumerate(depths, 1)]
    lines += [f"gemm r0, r0, r0, r{i}" for i in range(1, len(depths) + 1)]
    return "\n".join([*lines, "halt"])


def test_a_product_of_one_block() -> None:
    # Issued 18, taken 21, reads 22 to 29, drains 35 to 38, complete 41.
    outcome = run(gemm(4, 4, 8))
    assert completions(outcome) == [41]
    assert outcome.counters["GEMM_BUSY"] == 8


def test_a_ragged_last_block_drains_its_rows_only() -> None:
    assert completions(run(gemm(1, 3, 8))) == [38]


@pytest.mark.parametrize(("k", "last"), [(3, 4 + 4 + 4 + 4 + 3), (8, 40), (1, 4 + 4 + 4 + 4 + 2)])
def test_blocks_follow_without_a_bubble_when_deep_enough(k: int, last: int) -> None:
    # 10 x 8: three rows of two blocks, the last with two rows.
    outcome = run(gemm(10, 8, k))
    assert completions(outcome) == [
        turn(3) + TIMING.enqueue + 1 + last + k + TIMING.gemm_drain + 1 + TIMING.acc_write
    ]
    assert outcome.counters["GEMM_BUSY"] == 6 * k


@pytest.mark.parametrize(("k", "distance"), [(8, 8), (6, 6), (5, 6), (2, 6), (1, 6)])
def test_products_follow_each_other(k: int, distance: int) -> None:
    # Both wait in the queue while one of depth 20 reads, from 34 to 53; the first of them is taken in 53.
    outcome = run(gemm(4, 4, 20, k, k))
    _, first, second = completions(outcome)
    assert first == max(54, 34 + 20 + 4 + 2 - k) + k + TIMING.gemm_drain + 3 + TIMING.acc_write
    assert second - first == distance


def test_a_deep_product_after_a_short_one() -> None:
    # f' = 28, k' = 2; issued in 30, the second may read from max(34, 28 + 2 + 4 + 2 - 50) on.
    assert completions(run(gemm(4, 4, 2, 50)))[1] == 34 + 50 + 5 + 3 + 3


def store(rows: int, size: int, address: int = 0, source: int = 0, name: str = "store", **params: int) -> str:
    """A program whose store issues in turn 4 + number of parameters."""
    lines = [f"li r1, {address}", f"li r2, {source}", f"li r3, {rows}", f"li r4, {size}"]
    lines += [f"parami store_{k}, {v}" for k, v in params.items()]
    return "\n".join([*lines, f"{name} r1, r2, r3, r4", "halt"])


def test_a_store_of_one_beat() -> None:
    # Issued 24, taken 28, read 29, presented and accepted 32, answered 38, complete 39.
    outcome = run(store(1, 8))
    assert completions(outcome) == [39]
    assert outcome.counters["STORE_BUSY"] == 1


@pytest.mark.parametrize(
    ("rows", "size", "address", "beats"), [(2, 16, 0, 4), (2, 16, 3, 6), (3, 5, 3, 3), (3, 6, 3, 6)]
)
def test_beats_of_a_store_leave_every_cycle(rows: int, size: int, address: int, beats: int) -> None:
    # Issued 36, taken 40, read from 41 on, presented from 44 on, the last answered 6 later.
    outcome = run(store(rows, size, address, stride=64, pitch=1))
    assert outcome.counters["STORE_BUSY"] == beats
    assert completions(outcome) == [44 + beats - 1 + 6 + TIMING.store_response]


def test_the_store_pipeline_stands_still_while_memory_refuses() -> None:
    # Issued 30; presented in 38, 41, 45; accepted in 40, 44, 48.
    outcome = run(store(3, 8, stride=8), memory={"bandwidth": {"store": 2}})
    assert completions(outcome) == [48 + 7]
    assert outcome.counters["STORE_STALL_MEMORY"] == (40 - 38) + (44 - 41) + (48 - 45)


def test_stores_of_other_spaces_meet_no_bank() -> None:
    both = [gemm(4, 4, 8), store(16, 16, name="store_scratch", stride=16)]
    assert run(*both).counters["STORE_STALL_BANK"] == 0


@pytest.mark.parametrize(("source", "stall"), [(0, 4), (117, 4), (118, 0), (128, 0)])
def test_the_array_holds_the_bank_it_drains_into(source: int, stall: int) -> None:
    # The product drains into bank 0 (words 0 to 127) in 18 + 4 + 36 + 5 = 63 to 66. The store issues in 37
    # and reads half a word in each cycle from 42 on; the rest of the eleventh, source + 10, is due in 63.
    outcome = run(gemm(4, 4, 36), store(16, 16, source=source, pitch=1, stride=16))
    assert outcome.counters["STORE_STALL_BANK"] == stall
    assert completions(outcome, 1) == [42 + 31 + stall + 3 + 7]


def test_a_product_that_issues_while_a_store_runs_delays_it() -> None:
    # The store reads from 42 on; the product issues in turn 4 + 3 and drains in 42 + 4 + 1 + 5 = 52 to 55.
    late = "nop\n" * 4 + gemm(4, 4, 1)
    outcome = run(late, store(16, 16, pitch=1, stride=16))
    assert outcome.counters["STORE_STALL_BANK"] == 4
    assert completions(outcome, 1) == [42 + 31 + 4 + 3 + 7]
