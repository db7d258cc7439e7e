"""The first divergence in time, told in full."""

from __future__ import annotations

import json

from cosim.compare import compare
from cosim.job import Event, EventKind, Job, MachineError, Outcome
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
