"""The first divergence in time, with all its details."""

from __future__ import annotations

import json

from cosim.compare import compare
from cosim.job import Event, EventKind, Job, MachineError, Outcome, Output
from cosim.settings import MemorySettings
from hw.assembly import assemble
from hw.config import MachineConfig
from hw.isa import Cause

ISSUE, VOID, COMPLETE, SIGNAL = EventKind
PROGRAM = assemble("li r1, 5\nload_a r1, r2, r3, r4\nsignal 2\nhalt")
EVENTS = [
    Event(0, 0, ISSUE, 0),
    Event(0, 1, ISSUE, 0),
    Event(1, 0, ISSUE, 1),
    Event(2, 0, ISSUE, 2),
    Event(3, 0, ISSUE, 3),
    Event(20, 0, COMPLETE, 1),
    Event(20, 0, SIGNAL, 2),
]


def job(small: MachineConfig) -> Job:
    return Job({0: PROGRAM, 1: PROGRAM}, MemorySettings.of(small), ())


def observed(*replaced: tuple[int, Event | None]) -> Outcome:
    found: list[Event | None] = list(EVENTS)
    for at, event in replaced:
        found[at] = event
    return Outcome(sorted(e for e in found if e is not None), 21)


def test_equal_runs_do_not_diverge(small: MachineConfig) -> None:
    assert compare(small, job(small), Outcome(EVENTS, 21), observed()) is None


def test_the_earliest_of_several_differences_is_told(small: MachineConfig) -> None:
    late = observed((5, Event(22, 0, COMPLETE, 1)), (6, Event(22, 0, SIGNAL, 2)), (2, Event(2, 0, ISSUE, 1)))
    found = compare(small, job(small), Outcome(EVENTS, 21), late)
    assert found is not None
    assert (found.kind, found.cycle, found.warp, found.pc) == ("issue", 1, 0, 1)
    assert (found.expected, found.got) == (1, 2)
    assert found.instruction == "load_a r1, r2, r3, r4"
    assert found.before == ("cycle 0: issue pc 0 `li r1, 5`",)
    text = str(found)
    assert (
        "cycle 1, warp 0, pc 1: issue of `load_a r1, r2, r3, r4` expected in cycle 1, got in cycle 2" in text
    )


def test_an_event_that_comes_too_early_is_told_with_its_own_cycle(small: MachineConfig) -> None:
    found = compare(small, job(small), Outcome(EVENTS, 21), observed((5, Event(19, 0, COMPLETE, 1))))
    assert found is not None
    assert (found.kind, found.cycle, found.expected, found.got) == ("complete", 19, 20, 19)


def test_a_missing_and_a_surplus_event(small: MachineConfig) -> None:
    missing = compare(small, job(small), Outcome(EVENTS, 21), observed((6, None)))
    assert missing is not None
    assert (missing.kind, missing.expected, missing.got) == ("signal", 20, None)
    assert "got never" in str(missing)
    surplus = compare(small, job(small), observed((6, None)), Outcome(EVENTS, 21))
    assert surplus is not None
    assert (surplus.kind, surplus.expected, surplus.got, surplus.pc) == ("signal", None, 20, 2)


def test_another_instruction_in_the_same_cycle(small: MachineConfig) -> None:
    found = compare(small, job(small), Outcome(EVENTS, 21), observed((3, Event(2, 0, ISSUE, 9))))
    assert found is not None
    assert (found.pc, found.got_pc, found.got_instruction) == (2, 9, "outside the program")
    assert "of pc 9 `outside the program`" in str(found)


def test_error_cycles_and_counters_count_once_events_agree(small: MachineConfig) -> None:
    expected = Outcome(EVENTS, 21, counters={"GEMM_BUSY": 3})
    stopped = Outcome(EVENTS, 21, MachineError(Cause.BUS, 1, 2), {"GEMM_BUSY": 3})
    longer = Outcome(EVENTS, 22, counters={"GEMM_BUSY": 3})
    idle = Outcome(EVENTS, 21, counters={"GEMM_BUSY": 2, "WARP0_INSTRUCTIONS": 1})
    texts = [str(compare(small, job(small), expected, other)) for other in (stopped, longer, idle)]
    assert texts == [
        "error: expected none, got bus, warp 1, pc 2",
        "cycles: expected 21, got 22",
        "GEMM_BUSY: expected 3, got 2",
    ]


def test_a_divergence_goes_into_json(small: MachineConfig) -> None:
    found = compare(small, job(small), Outcome(EVENTS, 21), observed((3, Event(4, 0, ISSUE, 2))))
    assert found is not None
    data = json.loads(json.dumps(found.as_dict()))
    assert data["expected"] == 2
    assert data["instruction"] == "signal 2"
    assert len(data["before"]) == 2


STORED = [Output(7, 0, 16, 1), Output(8, 4, 0x20, 0xFFFFFFFF), Output(9, 0, 20, 2), Output(19, 4, 0x24, 5)]


def with_stored(stored: list[Output], events: list[Event] = EVENTS, **fields: MachineError) -> Outcome:
    return Outcome(events, 21, stored=sorted(stored), **fields)


def test_a_different_output_names_pe_address_values_and_cycle(small: MachineConfig) -> None:
    wrong = [STORED[0], STORED[1], STORED[2], Output(18, 4, 0x28, 6)]
    found = compare(small, job(small), with_stored(STORED), with_stored(wrong))
    assert found is not None
    assert (found.kind, found.cycle, found.pe, found.expected, found.got) == ("output", 18, 4, 19, 18)
    assert (found.stored, found.got_stored) == ((0x24, 5), (0x28, 6))
    assert str(found) == (
        "cycle 18, PE 4: output of 0x5 to byte 0x24 expected in cycle 19, got output of 0x6 to byte 0x28 in "
        "cycle 18\nbefore that, the same PE:\n  cycle 8: output of 0xffffffff to byte 0x20"
    )
    assert json.loads(json.dumps(found.as_dict()))["stored"] == [0x24, 5]


def test_a_missing_output_and_one_too_many_are_told(small: MachineConfig) -> None:
    missing = compare(small, job(small), with_stored(STORED), with_stored(STORED[:3]))
    assert missing is not None
    assert str(missing).startswith(
        "cycle 19, PE 4: output of 0x5 to byte 0x24 expected in cycle 19, got never"
    )
    more = compare(small, job(small), with_stored(STORED[:2]), with_stored(STORED))
    assert more is not None
    assert str(more).startswith("cycle 9, PE 0: expected never, got output of 0x2 to byte 0x14 in cycle 9")


def test_the_earlier_of_an_event_and_an_output_is_told(small: MachineConfig) -> None:
    late = [*EVENTS[:5], Event(22, 0, COMPLETE, 1), Event(22, 0, SIGNAL, 2)]
    for wrong, kind in ((STORED[1:], "output"), (STORED, "complete")):
        found = compare(small, job(small), with_stored(STORED), with_stored(wrong, late))
        assert found is not None
        assert found.kind == kind


def test_outputs_behind_a_predicted_error_do_not_count(small: MachineConfig) -> None:
    error = MachineError(Cause.GRID_RANGE, 0, 1)
    predicted = with_stored(STORED, error=error)
    assert (
        compare(small, job(small), predicted, with_stored([*STORED, Output(21, 0, 0, 0)], error=error))
        is None
    )
    assert compare(small, job(small), predicted, with_stored([*STORED, Output(20, 0, 0, 0)], error=error))


def failed(cause: Cause, cycles: int, *events: Event) -> Outcome:
    return Outcome([*EVENTS[:4], *events], cycles, MachineError(cause, 0, 1))


def test_an_error_has_its_cycle(small: MachineConfig) -> None:
    wanted = failed(Cause.WINDOW, 9)
    assert compare(small, job(small), wanted, failed(Cause.WINDOW, 9)) is None
    late = compare(small, job(small), wanted, failed(Cause.WINDOW, 10))
    assert late is not None
    assert (late.kind, late.expected, late.got) == ("cycles", 9, 10)
    # What still happens while the machine stops does not count; what comes before does.
    assert compare(small, job(small), wanted, failed(Cause.WINDOW, 9, Event(9, 0, ISSUE, 3))) is None
    early = compare(small, job(small), wanted, failed(Cause.WINDOW, 9, Event(8, 0, ISSUE, 3)))
    assert early is not None
    assert (early.kind, early.got) == ("issue", 8)


def test_nothing_happens_before_the_watchdog_gives_up(small: MachineConfig) -> None:
    wanted = failed(Cause.WATCHDOG, 3)
    assert compare(small, job(small), wanted, failed(Cause.WATCHDOG, 99)) is None
    more = compare(small, job(small), wanted, failed(Cause.WATCHDOG, 99, Event(50, 0, ISSUE, 3)))
    assert more is not None
    assert (more.kind, more.got) == ("issue", 50)
