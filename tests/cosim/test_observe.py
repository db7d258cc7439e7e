"""From records to events: completions and signals are assigned to their instructions."""

from __future__ import annotations

import numpy as np
import pytest

from cosim.host import RESULTS, counter_names
from cosim.job import Event, EventKind, Job, MachineError, Outcome, Output, Region
from cosim.observe import Records, events, outcome, parse_records, parse_stored
from cosim.settings import MemorySettings
from hw.assembly import assemble
from hw.config import MachineConfig
from hw.fabric import Fabric, PEKind, Unit
from hw.isa import Cause

ISSUE, VOID, COMPLETE, SIGNAL = EventKind

PROGRAM = assemble("@r1 load_a r1, r2, r3, r4\nload_a r1, r2, r3, r4\n@r1 signal 0\nsignal 0\nhalt")


def records(rows: list[tuple[int, int, int, int, int, list[int]]]) -> Records:
    cycle, issue, void, complete, signal = (np.array([row[i] for row in rows], np.int64) for i in range(5))
    pc = np.array([row[5] for row in rows], np.int64)
    return Records(cycle, issue, void, complete, signal, pc)


def test_instructions_with_a_false_predicate_own_no_completion_and_no_signal() -> None:
    found = events(
        {1: PROGRAM},
        records(
            [
                (0, 2, 2, 0, 0, [0, 0]),
                (1, 2, 0, 0, 0, [0, 1]),
                (2, 2, 2, 0, 0, [0, 2]),
                (3, 2, 0, 0, 0, [0, 3]),
                (4, 2, 0, 0, 0, [0, 4]),
                (30, 0, 0, 2, 2, [0, 4]),
            ]
        ),
    )
    issues = [Event(i, 1, VOID if i in (0, 2) else ISSUE, i) for i in range(5)]
    assert found == [*issues, Event(30, 1, COMPLETE, 1), Event(30, 1, SIGNAL, 3)]


def test_events_of_one_cycle_come_by_warp_and_kind() -> None:
    found = events({0: PROGRAM, 1: PROGRAM}, records([(0, 3, 0, 0, 0, [1, 1]), (9, 2, 0, 3, 0, [0, 4])]))
    assert [(e.cycle, e.warp, e.kind) for e in found[2:]] == [
        (9, 0, COMPLETE),
        (9, 1, ISSUE),
        (9, 1, COMPLETE),
    ]


def test_a_completion_that_belongs_to_nothing_is_kept() -> None:
    assert events({0: PROGRAM}, records([(4, 0, 0, 1, 0, [0])])) == [Event(4, 0, COMPLETE, -1)]


def test_records_are_read_as_the_recorder_writes_them() -> None:
    words = [0x89ABCDEF, 0x4567, 0x0002_0003, 0x0004_0001, 0x0011_0010, 0x0000_0012]
    found = parse_records(np.array(words, "<u4").tobytes(), 3)
    assert found.cycle.tolist() == [0x4567_89AB_CDEF]
    assert (found.issue[0], found.void[0], found.complete[0], found.signal[0]) == (3, 2, 1, 4)
    assert found.pc.tolist() == [[0x10, 0x11, 0x12]]


def test_stores_are_read_as_the_recorder_writes_them(small: MachineConfig) -> None:
    kinds = [PEKind("plain", frozenset({Unit.ALU})), PEKind("port", frozenset({Unit.MEMORY}))]
    fabric = Fabric("row", 1, 4, (kinds[0], kinds[1], kinds[0], kinds[1]), ())
    words = [0x89ABCDEF, 0x0000_4567, 0x10, 0xFFFFFFFF, 0x89ABCDEF, 0x0001_4567, 0x14, 7]
    found = parse_stored(np.array(words, "<u4").tobytes(), small.replace(cgra=fabric))
    assert found == [Output(0x4567_89AB_CDEF, 1, 0x10, 0xFFFFFFFF), Output(0x4567_89AB_CDEF, 3, 0x14, 7)]
    assert parse_stored(b"", small) == []


def finish(small: MachineConfig, status: int, error: int, outputs: tuple[Region, ...] = ()) -> Outcome:
    job = Job({0: PROGRAM}, MemorySettings.of(small), (), outputs=outputs)
    results = [status, error, 5, 1, *range(len(counter_names(small)))]
    dump = np.arange(16, dtype=np.uint8).view("<u4")
    return outcome(small, job, records([(0, 1, 0, 0, 0, [1])]), results, dump, 0.5)


def test_an_outcome_holds_cycles_counters_and_bytes(small: MachineConfig) -> None:
    found = finish(small, 2, 0, (Region(5, 2), Region(8, 12)))
    assert found.cycles == (1 << 32) + 5
    assert found.error is None
    assert found.counters["WARP0_STALL_CHANNEL"] == 1
    assert [o.tolist() for o in found.outputs] == [[1, 2], list(range(4, 16))]
    assert len(RESULTS) == 4


def test_an_error_tells_cause_warp_and_pc(small: MachineConfig) -> None:
    assert finish(small, 6, 0x0007_0304).error == MachineError(Cause.WINDOW, 3, 7)
    with pytest.raises(RuntimeError, match="ERROR must hold a known cause, not 0x000000ff"):
        finish(small, 6, 0xFF)
