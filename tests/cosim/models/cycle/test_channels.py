"""Waits, signals, and what holds them."""

import pytest

from hw.isa import Cause
from tests.cosim.models.cycle.jobs import TEST, completions, fires, issues, run, turn, turns

#: A load that issues in 12, is taken in 15, entered in 19, accepted in 20; with `QUICK` memory it is answered
#: in 25 and complete in 29.
LOAD = "li r3, 1\nli r4, 8\nload_a r0, r0, r3, r4"
QUICK = {"latency": {"load_a": 5}}


def test_a_signal_fires_when_it_issues_and_its_token_is_there_one_cycle_later() -> None:
    outcome = run("nop\nsignal 0\nhalt", "wait 0\nhalt")
    assert fires(outcome) == [turn(1)]
    assert turns(outcome, 1) == [(1, 0), (2, 1)]
    assert outcome.counters["WARP1_STALL_CHANNEL"] == 1


def test_a_token_of_the_warp_behind_is_there_a_turn_later() -> None:
    outcome = run("wait 0\nhalt", "nop\nsignal 0\nhalt")
    assert fires(outcome, 1) == [turn(1, 1)]
    assert turns(outcome) == [(2, 0), (3, 1)]
    assert outcome.counters["WARP0_STALL_CHANNEL"] == 2


def test_a_token_that_is_there_costs_no_turn() -> None:
    for program, found in (
        ("wait 0\nhalt", [(0, 0), (1, 1)]),
        ("nop\nwait 0\nhalt", [(0, 0), (1, 1), (2, 2)]),
    ):
        outcome = run("signal 0\nhalt", program)
        assert turns(outcome, 1) == found
        assert outcome.counters["WARP1_STALL_CHANNEL"] == 0


@pytest.mark.parametrize(("latency", "done", "fired"), [(2, 26, 5), (5, 29, 5), (6, 30, 6), (8, 32, 6)])
def test_a_signal_fires_in_the_turn_after_the_completion_of_what_was_issued_before(
    latency: int, done: int, fired: int
) -> None:
    outcome = run(LOAD + "\nsignal 0\nhalt", "wait 0\nhalt", memory={"latency": {"load_a": latency}})
    assert completions(outcome) == [done]
    assert fires(outcome) == [turn(fired)]
    assert turns(outcome)[-2:] == [(3, 3), (4, 4)]
    assert turns(outcome, 1)[0] == (fired, 0)


def test_signals_of_a_warp_fire_one_per_turn_in_order() -> None:
    outcome = run(LOAD + "\nsignal 0\nsignal 1\nsignal 0\nhalt", memory=QUICK)
    assert fires(outcome) == [turn(5), turn(6), turn(7)]


def test_the_ninth_pending_signal_waits_for_the_first_to_fire() -> None:
    # The load is complete in 119, the first signal fires in turn 20; the ninth was held from turn 11 on.
    text = LOAD + "\n" + "signal 0\n" * 4 + "signal 1\n" * 5 + "halt"
    outcome = run(text, memory={"latency": {"load_a": 95}})
    assert completions(outcome) == [119]
    assert turns(outcome)[-3:] == [(10, 10), (21, 11), (22, 12)]
    assert fires(outcome) == [turn(n) for n in range(20, 29)]
    assert outcome.counters["WARP0_STALL_ENGINE"] == 10


def test_a_false_wait_or_signal_does_nothing() -> None:
    outcome = run("@r0 wait 0\n@r0 signal 0\nhalt")
    assert turns(outcome) == [(0, 0), (1, 1), (2, 2)]
    assert fires(outcome) == []


def test_a_full_channel_overflows() -> None:
    signals = "signal 0\n" * TEST.channel_depth
    assert run(signals + "halt").error is None
    outcome = run(signals + "signal 0\nhalt")
    assert outcome.error == (Cause.CHANNEL_OVERFLOW, 0, 8)
    assert outcome.cycles == turn(8)
    assert outcome.events[-1].cycle == turn(7)


def test_a_wait_of_another_warp_makes_room_if_it_has_its_turn_first() -> None:
    # The ninth signal fires in 48, the waits issue in 47 and 49.
    signals = "signal 0\n" * (TEST.channel_depth + 1) + "halt"
    none = ["halt"] * 4
    assert run(signals, *none, "nop\n" * 7 + "wait 0\nhalt").error is None
    late = run(signals, "nop\n" * 8 + "wait 0\nhalt")
    assert late.error == (Cause.CHANNEL_OVERFLOW, 0, 8)


@pytest.mark.parametrize(("nops", "overflows"), [(0, False), (1, False), (2, True)])
def test_a_wait_makes_room_for_a_signal_of_its_warp_that_fires_in_the_same_turn(
    nops: int, overflows: bool
) -> None:
    # The load issues in turn 10, is complete in 77; its signal, the ninth, fires in turn 13, as 78 > 77.
    text = "signal 0\n" * TEST.channel_depth + LOAD + "\nsignal 0\n" + "nop\n" * nops + "wait 0\nhalt"
    outcome = run(text, memory=QUICK)
    assert outcome.error == ((Cause.CHANNEL_OVERFLOW, 0, 11) if overflows else None)
    assert fires(outcome)[8:] == ([] if overflows else [turn(13)])
    assert turns(outcome)[12 + nops :] == (
        [] if overflows else [(12 + nops, 12 + nops), (13 + nops, 13 + nops)]
    )


def test_a_signal_that_fires_in_the_turn_of_a_wait_comes_too_late_for_it() -> None:
    # The signal fires in turn 5, in which the wait is tried a second time: its token is there in turn 6.
    outcome = run(LOAD + "\nsignal 0\nwait 0\nhalt", memory=QUICK)
    assert fires(outcome) == [turn(5)]
    assert turns(outcome)[-2:] == [(6, 4), (7, 5)]
    assert outcome.counters["WARP0_STALL_CHANNEL"] == 2


def test_of_several_held_warps_the_first_to_have_a_turn_takes_the_token() -> None:
    # Tokens are there from 14 and 20 on.
    waits = "wait 0\nhalt"
    outcome = run(waits, "nop\nnop\nsignal 0\nsignal 0\nhalt", waits)
    assert fires(outcome, 1) == [turn(2, 1), turn(3, 1)]
    assert issues(outcome, 2) == [(14, 0), (20, 1)]
    assert issues(outcome, 0) == [(24, 0), (30, 1)]
    assert [outcome.counters[f"WARP{w}_STALL_CHANNEL"] for w in range(3)] == [4, 0, 2]


def test_several_warps_may_signal_one_channel() -> None:
    outcome = run("nop\nsignal 0\nhalt", "nop\nsignal 0\nhalt", "wait 0\nwait 0\nhalt")
    assert [fires(outcome, w) for w in range(2)] == [[turn(1, 0)], [turn(1, 1)]]
    assert turns(outcome, 2) == [(1, 0), (2, 1), (3, 2)]


def test_tokens_are_taken_one_by_one_in_a_loop() -> None:
    outcome = run("li r1, 3\nloop r1, 2\nnop\nsignal 0\nhalt", "li r1, 3\nloop r1, 1\nwait 0\nhalt")
    assert fires(outcome) == [turn(3), turn(5), turn(7)]
    assert turns(outcome, 1) == [(0, 0), (1, 1), (3, 2), (5, 2), (7, 2), (8, 3)]


def test_tokens_that_are_taken_later_still_fill_their_channel() -> None:
    # Eight tokens by turn 7; the first is taken in turn 20, long after the ninth has fired.
    signals = "signal 0\n" * (TEST.channel_depth + 1) + "halt"
    outcome = run(signals, "nop\n" * 20 + "wait 0\nhalt")
    assert outcome.error == (Cause.CHANNEL_OVERFLOW, 0, 8)
    assert outcome.events[-1].cycle == turn(7, 1)


def test_a_token_of_an_operation_that_ends_later_holds_the_wait_until_then() -> None:
    # The signal issues in turn 3 and fires in turn 5; the warp that waits issues its own work behind it.
    outcome = run(LOAD + "\nsignal 0\nhalt", "nop\nwait 0\nsignal 1\nhalt", "wait 1\nhalt", memory=QUICK)
    assert turns(outcome, 1) == [(0, 0), (5, 1), (6, 2), (7, 3)]
    assert turns(outcome, 2) == [(6, 0), (7, 1)]
    assert outcome.counters["WARP1_STALL_CHANNEL"] == 4
