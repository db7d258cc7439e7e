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

ISSUE, VOID, COMPLETE, SIGNAL = EventKind


@pytest.fixture
def job(small: MachineConfig) -> Job:
    load = assemble("@r1 load_a r1, r2, r3, r4\nload_a r1, r2, r3, r4\nload_a r1, r2, r3, r4\nsignal 3\nhalt")
    return Job({0: load, 1: assemble("muli r1, r2, 3\nwait 3\nhalt")}, MemorySettings.of(small), ())


@pytest.fixture
def outcome() -> Outcome:
    events = [Event(i, 0, ISSUE if i else VOID, i) for i in range(5)]
    events += [Event(20, 0, COMPLETE, 1), Event(29, 0, COMPLETE, 2), Event(29, 0, SIGNAL, 3)]
    events += [Event(0, 1, ISSUE, 0), Event(30, 1, ISSUE, 1), Event(31, 1, ISSUE, 2)]
    return Outcome(sorted(events), 32)


def named(document: dict[str, Any], name: str, phase: str = "X") -> list[dict[str, Any]]:
    return [e for e in document["traceEvents"] if e["name"] == name and e["ph"] == phase]


def test_a_wait_lasts_as_long_as_it_was_held(job: Job, outcome: Outcome) -> None:
    (wait,) = named(trace.document(job, {"rtl": outcome}), "wait")
    assert (wait["tid"], wait["ts"], wait["dur"]) == (1, 3, 28)  # ready 3 cycles after the mul


def test_operations_of_an_engine_follow_each_other(job: Job, outcome: Outcome) -> None:
    first, second = [e for e in named(trace.document(job, {"rtl": outcome}), "load_a") if e["tid"] >= 100]
    assert (first["ts"], first["dur"]) == (2, 19)
    assert (second["ts"], second["dur"]) == (21, 9)
    assert second["args"] == {"text": "load_a r1, r2, r3, r4", "warp": 0, "pc": 2, "issued": 2, "queued": 19}


def test_counters_of_operations_and_tokens(job: Job, outcome: Outcome) -> None:
    document = trace.document(job, {"rtl": outcome})
    steps = [(e["ts"], e["args"]["count"]) for e in named(document, "load_a operations", "C")]
    assert steps == [(1, 1), (2, 2), (21, 1), (30, 0)]
    tokens = [(e["ts"], e["args"]["count"]) for e in named(document, "channel 03", "C")]
    assert tokens == [(30, 1), (31, 0)]


def test_outputs_of_the_grid_have_a_track_for_each_pe(job: Job, outcome: Outcome) -> None:
    stored = [Output(7, 0, 16, 1), Output(8, 4, 32, 2), Output(9, 0, 20, 3)]
    document = trace.document(job, {"rtl": replace(outcome, stored=stored)})
    tracks = {e["tid"]: e["args"]["name"] for e in named(document, "thread_name", "M") if e["tid"] >= 1000}
    assert tracks == {1000: "grid, PE 0: outputs", 1004: "grid, PE 4: outputs"}
    (entry,) = named(document, "0x20")
    assert (entry["tid"], entry["ts"], entry["dur"]) == (1004, 8, 1)
    assert entry["args"] == {"address": 32, "value": 2}


def test_the_file_holds_both_sides_as_processes(job: Job, outcome: Outcome) -> None:
    document = json.loads(json.dumps(trace.document(job, {"model": outcome, "rtl": outcome})))
    names = {e["pid"]: e["args"]["name"] for e in named(document, "process_name", "M")}
    assert names == {1: "model: 32 cycles", 2: "rtl: 32 cycles"}
    assert all(e["pid"] in names and (e["ph"] == "M" or e["ts"] >= 0) for e in document["traceEvents"])
    one, two = ([e | {"pid": 0} for e in document["traceEvents"] if e["pid"] == p] for p in names)
    assert one[1:] == two[1:]
