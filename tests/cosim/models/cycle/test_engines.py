"""Hand-computed timelines of loaders, array and storer (4 x 4 array, ports of 8 bytes, latency 6)."""

import pytest

from hw.isa import TIMING
from tests.cosim.models.cycle.jobs import completions, run


def load(outer: int, inner: int, address: int = 0, name: str = "load_a", **params: int) -> str:
    """A program whose load issues in cycle 3 + number of parameters."""
    lines = [f"li r1, {address}", f"li r3, {outer}", f"li r4, {inner}"]
    lines += [f"parami load_{k}, {v}" for k, v in params.items()]
    return "\n".join([*lines, f"{name} r1, r0, r3, r4", "halt"])


def test_a_load_of_one_beat() -> None:
    # Issued 3, taken 5, entered 6, accepted 7, answered 13, complete 16.
    outcome = run(load(1, 8))
    assert completions(outcome) == [16]
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
    assert completions(outcome) == [4 + TIMING.enqueue + 1 + beats - 1 + 1 + 6 + TIMING.load_write]


@pytest.mark.parametrize(
    ("pad_outer", "pad_inner", "beats"), [(0, 1, 6), (0, 9, 8), (3, 0, 10), (1, 1, 9), (2, 8, 12)]
)
def test_fill_beats_pass_one_per_cycle(pad_outer: int, pad_inner: int, beats: int) -> None:
    outcome = run(load(2, 16, stride=16, pad_outer=pad_outer, pad_inner=pad_inner))
    assert outcome.counters["LOAD_A_BUSY"] == beats
    assert completions(outcome) == [6 + TIMING.enqueue + 1 + beats + 6 + TIMING.load_write]


def test_bandwidth_spaces_requests() -> None:
    # 2 of 8 bytes: cycles 0, 4, 8 ... are available; the beats are presented from 7 and 9 on.
    outcome = run(load(1, 16), memory={"bandwidth": {"load_a": 2}})
    assert completions(outcome) == [12 + 6 + 3]
    assert outcome.counters["LOAD_A_STALL_MEMORY"] == 1 + 3


def test_fill_does_not_wait_for_memory() -> None:
    # Presented in 9, accepted in 12; two fill beats pass in 13 and 14; the second row is presented in 15,
    # accepted in 16, filled until 18.
    outcome = run(load(2, 8, stride=8, pad_inner=16), memory={"bandwidth": {"load_a": 2}})
    assert completions(outcome) == [16 + 6 + 2 + 3]
    assert outcome.counters["LOAD_A_STALL_MEMORY"] == 3 + 1


def test_four_loads_are_in_flight() -> None:
    text = "li r3, 1\nli r4, 8\n" + "load_a r0, r0, r3, r4\n" * 6 + "halt"
    outcome = run(text, memory={"latency": {"load_a": 100}})
    # Issued in 2 ..., entered in 5, 6, 7, 8; the fifth is taken after the first completed in 109.
    assert completions(outcome) == [109, 110, 111, 112, 110 + 2 + 103, 110 + 3 + 103]


def test_transposed_loads_have_the_same_beats() -> None:
    straight, transposed = run(load(3, 4, stride=8)), run(load(3, 4, name="load_a_t", stride=8))
    assert straight.events == transposed.events


def gemm(m: int, n: int, *depths: int) -> str:
    """Products of the given depths; the first issues in cycle 2 + their number."""
    lines = [f"parami gemm_m, {m}", f"parami gemm_n, {n}"]
    lines += [f"li r{i}, {k}" for i, k in enumerate(depths, 1)]
    lines += [f"gemm r0, r0, r0, r{i}" for i in range(1, len(depths) + 1)]
    return "\n".join([*lines, "halt"])


def test_a_product_of_one_block() -> None:
    # Issued 3, taken 5, reads 6 to 13, drains 19 to 22, complete 25.
    outcome = run(gemm(4, 4, 8))
    assert completions(outcome) == [25]
    assert outcome.counters["GEMM_BUSY"] == 8


def test_a_ragged_last_block_drains_its_rows_only() -> None:
    assert completions(run(gemm(1, 3, 8))) == [22]


@pytest.mark.parametrize(("k", "last"), [(3, 4 + 4 + 4 + 4 + 3), (8, 40), (1, 4 + 4 + 4 + 4 + 2)])
def test_blocks_follow_without_a_bubble_when_deep_enough(k: int, last: int) -> None:
    # 10 x 8: three rows of two blocks, the last with two rows.
    outcome = run(gemm(10, 8, k))
    assert completions(outcome) == [6 + last + k + TIMING.gemm_drain + 1 + TIMING.acc_write]
    assert outcome.counters["GEMM_BUSY"] == 6 * k


@pytest.mark.parametrize(("k", "distance"), [(8, 8), (6, 6), (5, 6), (2, 6), (1, 6)])
def test_products_follow_each_other(k: int, distance: int) -> None:
    outcome = run(gemm(4, 4, k, k))
    first, second = completions(outcome)
    assert first == 7 + k + TIMING.gemm_drain + 3 + TIMING.acc_write
    assert second - first == distance


def test_a_deep_product_after_a_short_one() -> None:
    # f' = 7, k' = 2: the second may read from max(9, 7 + 2 + 4 + 2 - 50) on.
    assert completions(run(gemm(4, 4, 2, 50)))[1] == 9 + 50 + 5 + 3 + 3


def store(rows: int, size: int, address: int = 0, source: int = 0, name: str = "store", **params: int) -> str:
    """A program whose store issues in cycle 4 + number of parameters."""
    lines = [f"li r1, {address}", f"li r2, {source}", f"li r3, {rows}", f"li r4, {size}"]
    lines += [f"parami store_{k}, {v}" for k, v in params.items()]
    return "\n".join([*lines, f"{name} r1, r2, r3, r4", "halt"])


def test_a_store_of_one_beat() -> None:
    # Issued 4, taken 6, read 7, presented and accepted 9, answered 15, complete 16.
    outcome = run(store(1, 8))
    assert completions(outcome) == [16]
    assert outcome.counters["STORE_BUSY"] == 1


@pytest.mark.parametrize(
    ("rows", "size", "address", "beats"), [(2, 16, 0, 4), (2, 16, 3, 6), (3, 5, 3, 3), (3, 6, 3, 6)]
)
def test_beats_of_a_store_leave_every_cycle(rows: int, size: int, address: int, beats: int) -> None:
    # Issued 6, taken 8, read from 9 on, presented from 11 on, the last answered 6 later.
    outcome = run(store(rows, size, address, stride=64, pitch=1))
    assert outcome.counters["STORE_BUSY"] == beats
    assert completions(outcome) == [11 + beats - 1 + 6 + TIMING.store_response]


def test_the_store_pipeline_stands_still_while_memory_refuses() -> None:
    # Issued 5; presented in 10, 13, 17; accepted in 12, 16, 20.
    outcome = run(store(3, 8, stride=8), memory={"bandwidth": {"store": 2}})
    assert completions(outcome) == [20 + 7]
    assert outcome.counters["STORE_STALL_MEMORY"] == (12 - 10) + (16 - 13) + (20 - 17)


def test_stores_of_other_spaces_meet_no_bank() -> None:
    both = [gemm(4, 4, 8), store(16, 16, name="store_scratch", stride=16)]
    assert run(*both).counters["STORE_STALL_BANK"] == 0


@pytest.mark.parametrize(("source", "stall"), [(0, 4), (116, 4), (117, 0), (128, 0)])
def test_the_array_holds_the_bank_it_drains_into(source: int, stall: int) -> None:
    # The product drains into bank 0 (words 0 to 127) in 3 + 3 + 20 + 5 = 31 to 34. The store issues in 6
    # and begins a word every two cycles from 9 on; the twelfth of them, source + 11, is due in 31.
    outcome = run(gemm(4, 4, 20), store(16, 16, source=source, pitch=1, stride=16))
    assert outcome.counters["STORE_STALL_BANK"] == stall
    assert completions(outcome, 1) == [9 + 31 + stall + 2 + 7]


def test_a_product_that_issues_while_a_store_runs_delays_it() -> None:
    # The store reads from 9 on; the product issues in 9 + 3 and drains in 12 + 3 + 1 + 5 = 21 to 24.
    late = "nop\n" * 9 + gemm(4, 4, 1)
    outcome = run(late, store(16, 16, pitch=1, stride=16))
    assert outcome.counters["STORE_STALL_BANK"] == 4
    assert completions(outcome, 1) == [9 + 31 + 4 + 2 + 7]
