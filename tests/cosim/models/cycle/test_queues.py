"""What holds engine operations at issue."""

from cosim.job import MachineError
from hw.isa import TIMING, Cause
from tests.cosim.models.cycle.jobs import TEST, completions, issues, run

SIZES = "li r3, 1\nli r4, 8\n"
LOAD = "load_a r0, r0, r3, r4\n"
GEMM = "parami gemm_m, 4\nparami gemm_n, 4\nli r5, 100\n"


def test_a_full_queue_holds_until_one_cycle_after_the_engine_takes() -> None:
    # Long products: the first is taken in 5, reads 6 to 105; the next is taken with its last read.
    outcome = run(GEMM + "gemm r0, r0, r0, r5\n" * 6 + "halt")
    assert [c for c, pc in issues(outcome) if pc >= 3] == [3, 4, 5, 6, 7, 106, 107]
    assert outcome.counters["WARP0_STALL_ENGINE"] == 98


def test_queue_depth_one_takes_turns() -> None:
    # The first is taken in 5, the second with its last read in 105: room from 6 and from 106 on.
    outcome = run(GEMM + "gemm r0, r0, r0, r5\n" * 3 + "halt", config=TEST.replace(queue_depth=1))
    assert [c for c, pc in issues(outcome) if pc >= 3] == [3, 6, 106, 107]


def test_warps_of_lower_number_issue_first() -> None:
    outcome = run(*[SIZES + LOAD + "halt"] * 3)
    assert [issues(outcome, w)[2] for w in range(3)] == [(2, 2), (3, 2), (4, 2)]


def test_warps_take_turns_also_on_the_way_to_different_engines() -> None:
    outcome = run(SIZES + LOAD + "halt", SIZES + "load_b r0, r0, r3, r4\nhalt")
    assert issues(outcome, 0)[2] == (2, 2)
    assert issues(outcome, 1)[2] == (3, 2)


def test_warps_take_turns_with_parameters() -> None:
    outcome = run(*["parami load_fill, 1\nparami gemm_m, 2\nhalt"] * 3)
    assert [[c for c, _ in issues(outcome, w)] for w in range(3)] == [[0, 1, 2], [2, 3, 4], [4, 5, 6]]
    assert [outcome.counters[f"WARP{w}_STALL_ENGINE"] for w in range(3)] == [0, 2, 4]


def test_parameters_and_operations_share_a_way() -> None:
    outcome = run(SIZES + LOAD + "halt", "nop\nnop\nparami load_fill, 1\nhalt", SIZES + LOAD + "halt")
    assert issues(outcome, 0)[2] == (2, 2)
    assert issues(outcome, 1)[2] == (3, 2)
    assert issues(outcome, 2)[2] == (4, 2)


def test_neither_a_full_queue_nor_an_operation_under_way_holds_parameters() -> None:
    outcome = run(GEMM + "gemm r0, r0, r0, r5\nparami load_fill, 1\nhalt")
    assert [c for c, _ in issues(outcome)] == [0, 1, 2, 3, 4, 5]
    long = GEMM + "gemm r0, r0, r0, r5\n" * 6 + "halt"
    outcome = run(long, "nop\n" * 20 + "parami gemm_m, 1\nhalt")
    assert issues(outcome, 1)[20] == (20, 20)


def test_a_parameter_with_a_false_predicate_takes_no_turn() -> None:
    outcome = run("@r0 parami load_fill, 1\nhalt", "parami load_fill, 1\nhalt")
    assert issues(outcome, 1)[0] == (0, 0)


def test_what_is_too_wide_is_an_error_at_once_whoever_holds_it() -> None:
    outcome = run("nop\nparami load_fill, 1\nhalt", "nop\nparami load_fill, 256\nhalt")
    assert outcome.error == MachineError(Cause.OPERAND, 1, 1)
    assert issues(outcome, 0) == [(0, 0)]
    # The sixth product would be held until 106.
    outcome = run(GEMM + "li r6, -1\n" + "gemm r0, r0, r0, r5\n" * 5 + "gemm r0, r0, r0, r6\nhalt")
    assert outcome.error == MachineError(Cause.OPERAND, 0, 9)
    assert issues(outcome)[-1] == (8, 8)


def test_a_warp_whose_queue_is_full_holds_nobody_up() -> None:
    # Warp 0 waits from 8 to 105 for room in the queue of the array.
    other = SIZES + "nop\n" * 20 + LOAD + "halt"
    outcome = run(GEMM + "gemm r0, r0, r0, r5\n" * 6 + "halt", other)
    assert [c for c, pc in issues(outcome) if pc >= 3] == [3, 4, 5, 6, 7, 106, 107]
    assert issues(outcome, 1)[22] == (22, 22)


def test_a_false_predicate_takes_no_turn() -> None:
    outcome = run(SIZES + "@r0 " + LOAD + "halt", SIZES + LOAD + "halt")
    assert issues(outcome, 1)[2] == (2, 2)


def test_an_operation_waits_for_those_on_another_engine() -> None:
    # Issued in 2 and 3, taken in 4 and 5, accepted in 6 and 7, answered in 12 and 13.
    outcome = run(SIZES + LOAD + LOAD + "load_b r0, r0, r3, r4\nhalt")
    done = completions(outcome)
    assert done[:2] == [15, 16]
    assert issues(outcome)[4] == (17, 4)


def test_stores_hold_other_engines_too_also_when_a_conflict_delays_them() -> None:
    gemm = "parami gemm_m, 4\nparami gemm_n, 4\nli r5, 20\ngemm r0, r0, r0, r5\nhalt"
    store = "li r3, 16\nli r4, 16\nparami store_pitch, 1\nstore r0, r0, r3, r4\nload_a r0, r0, r3, r4\nhalt"
    # The product is issued in 3, the store in 4. Its reads: 7 on, one per cycle; the product drains in
    # 3 + 3 + 20 + 5 = 31 to 34.
    outcome = run(gemm, store)
    last_read = 7 + 31 + 4
    done = last_read + TIMING.store_output + 6 + TIMING.store_response
    assert completions(outcome, 1)[0] == done
    assert issues(outcome, 1)[4] == (done + 1, 4)
    assert outcome.counters["STORE_STALL_BANK"] == 4
