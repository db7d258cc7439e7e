"""The Chrome trace of a run."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from cosim import trace
from cosim.job import Event, EventKind, Job, Outcome, Output
from cosim.settings import MemorySettings
from hw.assembly import assemble
from hw.config import MachineConfig
from tests.cosim.models.cycle.jobs import turn

ISSUE, VOID, COMPLETE, SIGNAL = EventKind


@pytest.fixture
def job(small: MachineConfig) -> Job:
    load = assemble("@r1 load_a r1, r2, r3, r4\nload_a r1, r2, r3, r4\nload_a r1, r2, r3, r4\nsignal 3\nhalt")
    return Job({0: load, 1: assemble("divi r1, r2, 3\nwait 3\nhalt")}, MemorySettings.of(small), ())


@pytest.fixture
def outcome() -> Outcome:
    events = [Event(turn(i), 0, ISSUE if i else VOID, i) for i in range(5)]
    events += [Event(200, 0, COMPLETE, 1), Event(223, 0, COMPLETE, 2), Event(turn(38), 0, SIGNAL, 3)]
    events += [Event(turn(n, 1), 1, ISSUE, pc) for pc, n in enumerate((0, 38, 39))]
    return Outcome(sorted(events), turn(39, 1) + 1)


def named(document: dict[str, Any], name: str, phase: str = "X") -> list[dict[str, Any]]:
    return [e for e in document["traceEvents"] if e["name"] == name and e["ph"] == phase]


def test_a_wait_lasts_as_long_as_it_was_held(small: MachineConfig, job: Job, outcome: Outcome) -> None:
    (wait,) = named(trace.document(small, job, {"rtl": outcome}), "wait")
    # Ready 36 turns after the div, held for two.
    assert (wait["tid"], wait["ts"], wait["dur"]) == (1, turn(36, 1), 2 * 6 + 1)


def test_operations_of_an_engine_follow_each_other(small: MachineConfig, job: Job, outcome: Outcome) -> None:
    first, second = [
        e for e in named(trace.document(small, job, {"rtl": outcome}), "load_a") if e["tid"] >= 100
    ]
    assert (first["ts"], first["dur"]) == (7, 194)
    assert (second["ts"], second["dur"]) == (201, 23)
    assert second["args"] == {
        "text": "load_a r1, r2, r3, r4",
        "warp": 0,
        "pc": 2,
        "issued": 12,
        "queued": 189,
    }


def test_counters_of_operations_and_tokens(small: MachineConfig, job: Job, outcome: Outcome) -> None:
    document = trace.document(small, job, {"rtl": outcome})
    steps = [(e["ts"], e["args"]["count"]) for e in named(document, "load_a operations", "C")]
    assert steps == [(6, 1), (12, 2), (201, 1), (224, 0)]
    tokens = [(e["ts"], e["args"]["count"]) for e in named(document, "channel 03", "C")]
    assert tokens == [(229, 1), (230, 0)]


def test_outputs_of_the_grid_have_a_track_for_each_pe(
    small: MachineConfig, job: Job, outcome: Outcome
) -> None:
    stored = [Output(7, 0, 16, 1), Output(8, 4, 32, 2), Output(9, 0, 20, 3)]
    document = trace.document(small, job, {"rtl": replace(outcome, stored=stored)})
    tracks = {e["tid"]: e["args"]["name"] for e in named(document, "thread_name", "M") if e["tid"] >= 1000}
    assert tracks == {1000: "grid, PE 0: outputs", 1004: "grid, PE 4: outputs"}
    (entry,) = named(document, "0x20")
    assert (entry["tid"], entry["ts"], entry["dur"]) == (1004, 8, 1)
    assert entry["args"] == {"address": 32, "value": 2}


def test_the_file_holds_both_sides_as_processes(small: MachineConfig, job: Job, outcome: Outcome) -> None:
    document = json.loads(json.dumps(trace.document(small, job, {"model": outcome, "rtl": outcome})))
    names = {e["pid"]: e["args"]["name"] for e in named(document, "process_name", "M")}
    assert names == {1: "model: 236 cycles", 2: "rtl: 236 cycles"}
    assert all(e["pid"] in names and (e["ph"] == "M" or e["ts"] >= 0) for e in document["traceEvents"])
    one, two = ([e | {"pid": 0} for e in document["traceEvents"] if e["pid"] == p] for p in names)
    assert one[1:] == two[1:]
