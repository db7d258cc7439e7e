"""What holds engine operations at issue."""

import pytest

from cosim.job import MachineError
from hw.isa import TIMING, Cause
from tests.cosim.models.cycle.jobs import TEST, completions, issues, run, turn, turns

SIZES = "li r3, 1\nli r4, 8\n"
LOAD = "load_a r0, r0, r3, r4\n"
GEMM = "parami gemm_m, 4\nparami gemm_n, 4\nli r5, 100\n"


def test_a_full_queue_holds_until_one_cycle_after_the_engine_takes() -> None:
    # Long products: the first issues in 18, is taken in 21, reads 22 to 121; the next is taken with its last
    # read, in 121, so there is room in turn 21.
    outcome = run(GEMM + "gemm r0, r0, r0, r5\n" * 6 + "halt")
    assert [n for n, pc in turns(outcome) if pc >= 3] == [3, 4, 5, 6, 7, 21, 22]
    assert outcome.counters["WARP0_STALL_ENGINE"] == 13


def test_queue_depth_one_takes_turns() -> None:
    # The first is taken in 21, the second with its last read in 121: room from 22 and from 122 on.
    outcome = run(GEMM + "gemm r0, r0, r0, r5\n" * 3 + "halt", config=TEST.replace(queue_depth=1))
    assert [n for n, pc in turns(outcome) if pc >= 3] == [3, 4, 21, 22]
    assert outcome.counters["WARP0_STALL_ENGINE"] == 16


def test_of_several_warps_the_first_to_have_a_turn_gets_the_room_in_a_queue() -> None:
    # Queues of one: the first product is taken in 21, the second in 121. Two more warps wait for room; warp 2
    # has the first turn from 122 on, and there is room again when its own is taken in 221.
    products = "gemm r0, r0, r0, r5\n"
    other = GEMM + "nop\n" + products + "halt"
    outcome = run(GEMM + products * 2 + "halt", "halt", other, other, config=TEST.replace(queue_depth=1))
    assert turns(outcome)[3:5] == [(3, 3), (4, 4)]
    assert issues(outcome, 2)[4] == (122, 4)
    assert issues(outcome, 3)[4] == (225, 4)


@pytest.mark.parametrize(
    "text",
    [
        SIZES + LOAD + "halt",
        SIZES + "load_b r0, r0, r3, r4\nhalt",
        "parami load_fill, 1\nparam gemm_m, r0\nhalt",
        "@r0 parami load_fill, 1\n@r0 " + LOAD + "halt",
    ],
)
def test_no_warp_is_held_by_what_another_issues(text: str) -> None:
    other = "parami load_fill, 1\nli r3, 1\nli r4, 8\n" + LOAD + "halt"
    for warps in range(6):
        outcome = run(*[other] * warps, text, config=TEST.replace(queue_depth=8))
        assert turns(outcome, warps) == [(n, n) for n in range(text.count("\n") + 1)]
        assert [outcome.counters[f"WARP{w}_STALL_ENGINE"] for w in range(6)] == [0] * 6


def test_neither_a_full_queue_nor_an_operation_under_way_holds_parameters() -> None:
    outcome = run(GEMM + "gemm r0, r0, r0, r5\nparami load_fill, 1\nhalt")
    assert [n for n, _ in turns(outcome)] == [0, 1, 2, 3, 4, 5]
    long = GEMM + "gemm r0, r0, r0, r5\n" * 6 + "halt"
    outcome = run(long, "nop\n" * 20 + "parami gemm_m, 1\nhalt")
    assert turns(outcome, 1)[20] == (20, 20)


def test_a_false_predicate_holds_neither_at_a_full_queue_nor_behind_another_engine() -> None:
    # The queue is full from turn 8 to turn 20.
    text = GEMM + "gemm r0, r0, r0, r5\n" * 5 + "@r0 gemm r0, r0, r0, r5\n@r0 " + LOAD + "halt"
    assert turns(run(text)) == [(n, n) for n in range(11)]


def test_what_is_too_wide_is_an_error_at_once_whatever_holds_it() -> None:
    outcome = run("nop\nparami load_fill, 1\nhalt", "nop\nparami load_fill, 256\nhalt")
    assert outcome.error == MachineError(Cause.OPERAND, 1, 1)
    assert outcome.cycles == turn(1, 1)
    assert turns(outcome) == [(0, 0), (1, 1)]
    # The sixth product would be held until turn 22.
    outcome = run(GEMM + "li r6, -1\n" + "gemm r0, r0, r0, r5\n" * 5 + "gemm r0, r0, r0, r6\nhalt")
    assert outcome.error == MachineError(Cause.OPERAND, 0, 9)
    assert outcome.cycles == turn(9)
    assert turns(outcome)[-1] == (8, 8)


def test_a_warp_whose_queue_is_full_holds_nobody_up() -> None:
    # Warp 0 waits from turn 8 to turn 20 for room in the queue of the array.
    other = SIZES + "nop\n" * 10 + LOAD + "halt"
    outcome = run(GEMM + "gemm r0, r0, r0, r5\n" * 6 + "halt", other)
    assert [n for n, pc in turns(outcome) if pc >= 3] == [3, 4, 5, 6, 7, 21, 22]
    assert turns(outcome, 1)[12] == (12, 12)


@pytest.mark.parametrize(("latency", "done", "issued"), [(2, 32, 6), (5, 35, 6), (6, 36, 7)])
def test_an_operation_waits_for_those_on_another_engine(latency: int, done: int, issued: int) -> None:
    # Issued in 12 and 18, taken in 15 and 21, accepted in 20 and 26, answered `latency` later.
    text = SIZES + LOAD + LOAD + "load_b r0, r0, r3, r4\nhalt"
    outcome = run(text, memory={"latency": {"load_a": latency}})
    assert completions(outcome)[:2] == [done - 6, done]
    assert turns(outcome)[4] == (issued, 4)
    assert outcome.counters["WARP0_STALL_ENGINE"] == issued - 4


def test_stores_hold_other_engines_too_also_when_a_conflict_delays_them() -> None:
    gemm = "parami gemm_m, 4\nparami gemm_n, 4\nli r5, 20\ngemm r0, r0, r0, r5\nhalt"
    store = "li r3, 16\nli r4, 16\nparami store_pitch, 1\nstore r0, r0, r3, r4\nload_a r0, r0, r3, r4\nhalt"
    # The product is issued in 18, the store in 19. Its reads: 24 on, one per cycle; the product reads from 22
    # on and drains in 22 + 20 + 5 = 47 to 50.
    outcome = run(gemm, store)
    last_read = 24 + 31 + 4
    done = last_read + TIMING.store_output + 6 + TIMING.store_response
    assert completions(outcome, 1)[0] == done == 69
    assert turns(outcome, 1)[4] == (12, 4)  # in 73
    assert outcome.counters["STORE_STALL_BANK"] == 4
