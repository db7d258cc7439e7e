"""The report's timeline: its packed data equal the trace and the values of the warps' registers."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cosim import trace
from cosim.job import Event, EventKind, Job, Outcome, Output
from cosim.lanes import KINDS, Lanes, Program
from cosim.models.cycle import predict
from cosim.settings import MemorySettings
from heald.report.html.data import ProgramTimeline
from heald.report.html.environment import pack
from heald.report.html.lanes import different, equal, operands_of, run_lanes
from heald.report.html.timeline import VALUES, timeline
from heald.testing.problems import compile_problem, problem_job
from hw import isa
from hw.assembly import assemble
from hw.config import load
from sw.problem import Product
from tests.heald.report_pages import late, report
from tests.sw.functional import Machine

CONFIG = load("test")
PROGRAM = """
li r1, 3
eqi r2, r1, 4
loop r1, 3
@r2 addi r3, r3, 1
mul r4, r3, r3
signal 2
halt
"""


def product(stall: int | None = None) -> tuple[Job, Outcome]:
    settings = MemorySettings.of(CONFIG, stall_seed=stall)
    problem = Product(12, 70, 20)
    kernel = compile_problem(problem, CONFIG, name="p")
    job = problem_job(kernel, *problem.random(np.random.default_rng(0)), settings)
    return job, predict(CONFIG, job)


def lanes(job: Job, outcome: Outcome, start: int = 0) -> Lanes:
    run = ProgramTimeline("p", job, outcome, outcome, owner=0)
    return run_lanes(Program.of(job, CONFIG), operands_of(CONFIG, run, {}), outcome, start, 0)


def hand_written() -> tuple[Job, Outcome]:
    job = Job({1: assemble(PROGRAM)}, MemorySettings.of(CONFIG), ())
    return job, predict(CONFIG, job)


def unpack(packed: str, lengths: Sequence[int]) -> list[np.ndarray]:
    """The columns of such lengths again, int32; raises `ValueError` where the text holds another number."""
    data = np.frombuffer(zlib.decompress(base64.b64decode(packed)), np.uint8)
    if len(data) != 4 * sum(lengths):
        raise ValueError(f"{len(data)} bytes must be 4 for each of {sum(lengths)} numbers")
    columns, at = [], 0
    for length in lengths:
        planes = data[at : at + 4 * length].reshape(4, length)
        columns.append(np.ascontiguousarray(planes.T).view("<i4").reshape(length))
        at += 4 * length
    return columns


@given(st.lists(st.lists(st.integers(-(2**31), 2**31 - 1), max_size=40), max_size=5))
def test_packed_columns_come_back(columns: list[list[int]]) -> None:
    arrays = [np.array(column, np.int64) for column in columns]
    found = unpack(pack(arrays), [len(column) for column in columns])
    assert [column.tolist() for column in found] == columns


def test_a_packed_text_of_another_length_is_refused() -> None:
    with pytest.raises(ValueError, match="12 bytes must be 4 for each of 2 numbers"):
        unpack(pack([np.arange(3)]), [2])


@pytest.mark.parametrize("case", ["product", "stalls", "predicates"])
def test_slices_are_those_of_the_trace(case: str) -> None:
    job, outcome = hand_written() if case == "predicates" else product(9 if case == "stalls" else None)
    entries = [e for e in trace.document(CONFIG, job, {"model": outcome})["traceEvents"] if e["ph"] == "X"]
    expected: dict[int, list[tuple[int, int]]] = {}
    for entry in entries:
        expected.setdefault(entry["tid"], []).append((entry["ts"], entry["ts"] + entry["dur"]))
    found = {}
    for name, lane in lanes(job, outcome).items():
        if KINDS[name.kind] in ("warp", "engine") and len(lane["start"]):
            track = name.number + (100 if KINDS[name.kind] == "engine" else 0)
            found[track] = list(zip(lane["start"].tolist(), lane["end"].tolist(), strict=True))
    assert found == expected
    assert found


def test_tokens_are_those_of_the_trace() -> None:
    job, outcome = product(3)
    expected: dict[str, list[tuple[int, int]]] = {}
    for entry in trace.document(CONFIG, job, {"model": outcome})["traceEvents"]:
        if entry["ph"] == "C" and entry["name"].startswith("channel"):
            expected.setdefault(entry["name"], []).append((entry["ts"], entry["args"]["count"]))
    found = {
        f"channel {name.number:02}": list(zip(lane["cycle"].tolist(), lane["tokens"].tolist(), strict=True))[
            1:
        ]
        for name, lane in lanes(job, outcome).items()
        if KINDS[name.kind] == "channel"
    }
    assert found == expected


def test_operands_are_what_another_execution_of_the_program_holds() -> None:
    job, outcome = product()
    memory = np.zeros(1 << 20, np.uint8)
    for address, data in job.memory:
        memory[address : address + len(data)] = data
    machine = Machine(CONFIG, job.programs, memory)
    machine.run()
    table: dict[tuple[int, ...], int] = {}
    found = operands_of(CONFIG, ProgramTimeline("p", job, outcome, outcome), table)
    rows = {number: values for values, number in table.items()}
    for warp, state in machine.warps.items():
        assert found.values[warp].tolist() == [list(o.operands.values()) for o in state.issued]
        for operation, number in zip(state.issued, found.parameters[warp].tolist(), strict=True):
            names = isa.INSTRUCTIONS[operation.name].parameters
            assert rows[number] == tuple(operation.parameters[name] for name in names)
    assert sum(len(values) for values in found.values.values()) >= 10


def test_a_program_that_ends_in_an_endless_loop_is_followed_as_far_as_it_went() -> None:
    job = Job({0: assemble("li r1, 1\nL1:\njump L1\n")}, MemorySettings.of(CONFIG), ())
    outcome = Outcome([Event(0, 0, EventKind.ISSUE, 0), Event(1, 0, EventKind.ISSUE, 1)], 2)
    found = operands_of(CONFIG, ProgramTimeline("p", job, outcome, outcome), {})
    assert found.values[0].shape == (0, 4)


def test_events_outside_of_the_program_keep_their_place() -> None:
    job, _ = hand_written()
    events = [
        Event(4, 1, EventKind.ISSUE, 77),
        Event(5, 3, EventKind.ISSUE, 0),
        Event(9, 1, EventKind.COMPLETE, -1),
    ]
    found = lanes(job, Outcome(events, 10))
    (lane,) = (lane for name, lane in found.items() if name.number == 1)
    assert [Program.of(job, CONFIG).codes[code // 2] for code in lane["code"].tolist()] == [None]
    assert lane["end"].tolist() == [5]


def test_what_the_grid_stored_has_lanes() -> None:
    job, outcome = hand_written()
    stored = [Output(3, 0, 64, 7), Output(3, 4, 68, 9), Output(5, 0, 65, 255)]
    found = {str(name): lane for name, lane in lanes(job, replace(outcome, stored=stored), 100).items()}
    assert found["grid PE 0"]["cycle"].tolist() == [103, 105]
    assert found["grid PE 0"]["address"].tolist() == [64, 65]
    assert found["grid PE 4"]["value"].tolist() == [9]


def _decoded(description: dict, columns: list[np.ndarray]) -> list[dict[str, np.ndarray]]:
    """The first side of each lane as the script of the page reads it."""
    given = iter(columns)
    lanes = []
    for lane in description["lanes"]:
        for i, side in enumerate(lane["sides"]):
            raw = {key: next(given).astype(np.int64) for key in side["columns"]}
            if i == 0:
                lanes.append(_decoded_lane(raw))
    return lanes


def _decoded_lane(raw: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    made = dict(raw)
    if "start" in raw:
        starts, at = [], 0
        for gap, length in zip(raw["start"].tolist(), raw["end"].tolist(), strict=True):
            starts.append(at + gap)
            at += gap + length
        made["start"] = np.array(starts, np.int64)
        made["end"] = made["start"] + raw["end"]
    if "issued" in raw:
        made["issued"] = made["start"] - raw["issued"]
        for key in VALUES:
            last: dict[int, int] = {}
            for i, code in enumerate(raw["code"].tolist()):
                last[code] = made[key][i] = last.get(code, 0) + int(raw[key][i])
    for key in ("cycle", "address", "tokens"):
        if key in raw:
            made[key] = np.cumsum(raw[key])
    return made


def test_the_page_holds_the_lanes() -> None:
    line = timeline(report())
    description, columns = line.packed
    told = json.loads(zlib.decompress(base64.b64decode(description)))
    assert told == json.loads(json.dumps(line.description))
    lengths = [side["count"] for lane in told["lanes"] for side in lane["sides"] for _ in side["columns"]]
    decoded = _decoded(told, unpack(columns, lengths))
    for (name, lane), found in zip(line.model.items(), decoded, strict=True):
        for key, values in found.items():
            assert np.array_equal(values % 2**32, lane[key] % 2**32), (name, key)
    assert all(len(lane["sides"]) == 1 for lane in told["lanes"])
    assert told["divergence"] is None


def test_lanes_that_differ_have_both_sides_and_the_divergence_its_cycle_on_the_axis() -> None:
    made = report(late)
    told = timeline(made).description
    differing = {lane["name"]: lane for lane in told["lanes"] if lane["different"]}
    assert "gemm" in differing
    assert all(len(lane["sides"]) == 2 for lane in differing.values())
    divergence = made.runs[0].divergence
    assert divergence is not None
    assert divergence.cycle is not None
    assert told["divergence"]["cycle"] == made.starts[0] + divergence.cycle
    assert told["divergence"]["text"].startswith("products: cycle ")


def test_what_differs_is_counted_entry_by_entry() -> None:
    one = {"cycle": np.array([1, 2, 3]), "tokens": np.array([0, 1, 0])}
    other = {"cycle": np.array([1, 2, 4, 9]), "tokens": np.array([0, 2, 0, 1])}
    assert different(one, other) == 3
    assert different(one, None) == 3
    assert different(one, one) == 0
    assert equal(one, dict(one))
    assert not equal(one, other)
    assert not equal(one, None)
