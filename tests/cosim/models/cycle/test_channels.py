"""Waits, signals, and what holds them."""

from hw.isa import Cause
from tests.cosim.models.cycle.jobs import TEST, cycles, fires, issues, run

LOAD = "li r3, 1\nli r4, 8\nload_a r0, r0, r3, r4"


def test_a_signal_fires_when_it_issues_and_its_token_is_there_one_cycle_later() -> None:
    outcome = run("nop\nsignal 0\nhalt", "wait 0\nhalt")
    assert fires(outcome) == [1]
    assert issues(outcome, 1) == [(2, 0), (3, 1)]
    assert outcome.counters["WARP1_STALL_CHANNEL"] == 2


def test_a_token_that_is_there_costs_no_cycle() -> None:
    outcome = run("signal 0\nhalt", "nop\nwait 0\nhalt")
    assert issues(outcome, 1) == [(0, 0), (1, 1), (2, 2)]
    assert outcome.counters["WARP1_STALL_CHANNEL"] == 0


def test_a_signal_fires_with_the_completion_of_what_was_issued_before() -> None:
    # Issued in 2, taken in 4, entered in 5, accepted in 6, answered in 12, complete in 15.
    outcome = run(LOAD + "\nsignal 0\nhalt", "wait 0\nhalt")
    assert fires(outcome) == [15]
    assert issues(outcome)[-2:] == [(3, 3), (4, 4)]
    assert issues(outcome, 1)[0] == (16, 0)


def test_signals_of_a_warp_fire_one_per_cycle_in_order() -> None:
    outcome = run(LOAD + "\nsignal 0\nsignal 1\nsignal 0\nhalt")
    assert fires(outcome) == [15, 16, 17]


def test_the_ninth_pending_signal_waits_for_the_first_to_fire() -> None:
    outcome = run(LOAD + "\n" + "signal 0\n" * 4 + "signal 1\n" * 5 + "halt")
    assert issues(outcome)[-3:] == [(10, 10), (16, 11), (17, 12)]
    assert fires(outcome) == list(range(15, 24))
    assert outcome.counters["WARP0_STALL_ENGINE"] == 5


def test_a_false_wait_or_signal_does_nothing() -> None:
    outcome = run("@r0 wait 0\n@r0 signal 0\nhalt")
    assert issues(outcome) == [(0, 0), (1, 1), (2, 2)]
    assert fires(outcome) == []


def test_a_full_channel_overflows() -> None:
    signals = "signal 0\n" * TEST.channel_depth
    assert run(signals + "halt").error is None
    outcome = run(signals + "signal 0\nhalt")
    assert outcome.error == (Cause.CHANNEL_OVERFLOW, 0, 8)
    assert outcome.events[-1].cycle == 7


def test_a_wait_in_the_same_cycle_makes_room_in_a_full_channel() -> None:
    signals = "signal 0\n" * (TEST.channel_depth + 1)
    assert run(signals + "halt", "nop\n" * 8 + "wait 0\nhalt").error is None
    late = run(signals + "halt", "nop\n" * 9 + "wait 0\nhalt")
    assert late.error == (Cause.CHANNEL_OVERFLOW, 0, 8)


def test_two_waits_that_issue_in_one_cycle_conflict() -> None:
    outcome = run(
        "signal 0\nsignal 0\nhalt", "nop\nnop\nnop\nwait 0\nhalt", "li r1, 0\nnop\nnop\nwait 0\nhalt"
    )
    assert outcome.error == (Cause.CHANNEL_CONFLICT, 1, 3)


def test_two_held_waits_conflict_when_a_token_arrives() -> None:
    outcome = run("nop\nnop\nsignal 0\nhalt", "wait 0\nhalt", "wait 0\nhalt")
    assert outcome.error == (Cause.CHANNEL_CONFLICT, 1, 0)
    assert outcome.events[-1].cycle == 2


def test_two_signals_that_fire_in_one_cycle_conflict() -> None:
    assert run("signal 0\nhalt", "signal 1\nhalt").error is None
    assert run("nop\nsignal 0\nhalt", "nop\nsignal 0\nhalt").error == (Cause.CHANNEL_CONFLICT, 0, 1)


def test_tokens_are_taken_one_by_one_in_a_loop() -> None:
    outcome = run("li r1, 3\nloop r1, 2\nnop\nsignal 0\nhalt", "li r1, 3\nloop r1, 1\nwait 0\nhalt")
    assert fires(outcome) == [4, 6, 8]
    assert [c for c, pc in issues(outcome, 1) if pc == 2] == [5, 7, 9]
    assert cycles(outcome, outcome.events[0].kind, 1)[3] == [10]


def test_tokens_that_are_taken_later_still_fill_their_channel() -> None:
    # Eight tokens by cycle 7; the first is taken in 20, long after the ninth has fired.
    signals = "signal 0\n" * (TEST.channel_depth + 1) + "halt"
    outcome = run(signals, "nop\n" * 20 + "wait 0\nhalt")
    assert outcome.error == (Cause.CHANNEL_OVERFLOW, 0, 8)
    assert outcome.events[-1].cycle == 7


def test_a_token_of_an_operation_that_ends_later_holds_the_wait_until_then() -> None:
    # The signal issues in 3 and fires in 15; the warp that waits issues its own work behind it.
    outcome = run(LOAD + "\nsignal 0\nhalt", "nop\nwait 0\nsignal 1\nhalt", "wait 1\nhalt")
    assert issues(outcome, 1) == [(0, 0), (16, 1), (17, 2), (18, 3)]
    assert issues(outcome, 2) == [(18, 0), (19, 1)]
    assert outcome.counters["WARP1_STALL_CHANNEL"] == 15
