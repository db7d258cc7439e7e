"""Writes runs as Chrome trace JSON, for Perfetto (ui.perfetto.dev) and chrome://tracing.

One cycle is shown as one microsecond. Each outcome is a process. It has a track with the slices of
`cosim.lanes` for every warp, every engine, and every PE that stores something; a counter of outstanding
operations for each engine; and a counter of tokens for each channel.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from cosim.job import Job, Outcome
from cosim.lanes import KINDS, LaneName, Program, lanes_of
from hw.assembly import disassemble
from hw.config import ENGINES, MachineConfig

Slice = dict[str, Any]
#: First track number of each kind that has tracks.
_TRACKS = {"warp": 0, "engine": 100, "grid": 1000}


def document(config: MachineConfig, job: Job, outcomes: Mapping[str, Outcome]) -> dict[str, Any]:
    """The outcomes of a job by name (`model`, `rtl`), each as a process, ready for `json`."""
    program = Program.of(job, config)
    events: list[Slice] = []
    for process, (name, outcome) in enumerate(outcomes.items(), 1):
        part = [_name("process", 0, f"{name}: {outcome.cycles} cycles")]
        for lane, columns in lanes_of(program, outcome).items():
            part += _lane(program, lane, {key: values.tolist() for key, values in columns.items()})
        events += [event | {"pid": process} for event in part]
    return {
        "traceEvents": events,
        "displayTimeUnit": "ns",
        "otherData": {"job": job.name, "unit": "1 us = 1 cycle"},
    }


def documents(config: MachineConfig, runs: Iterable[tuple[Job, Mapping[str, Outcome]]]) -> dict[str, Any]:
    """The traces of several jobs in one document, each with its own processes."""
    whole: dict[str, Any] = {}
    events: list[Any] = []
    first = 0
    for job, outcomes in runs:
        whole = document(config, job, outcomes)
        events += [event | {"pid": event["pid"] + first} for event in whole["traceEvents"]]
        first += len(outcomes)
    return whole | {"traceEvents": events}


def _name(what: str, track: int, name: str) -> Slice:
    return {"ph": "M", "name": f"{what}_name", "tid": track, "args": {"name": name}}


def _slice(track: int, name: str, begin: int, end: int, **details: int | str) -> Slice:
    return {"ph": "X", "name": name, "tid": track, "ts": begin, "dur": end - begin, "args": details}


def _lane(program: Program, lane: LaneName, columns: Mapping[str, list[int]]) -> Iterator[Slice]:
    """The track or counter of a lane."""
    kind, rows = KINDS[lane.kind], zip(*columns.values(), strict=True)
    if kind == "channel":
        # The first entry only says that the channel starts empty.
        yield from (_count(f"channel {lane.number:02}", *row) for row in list(rows)[1:])
        return
    track = _TRACKS[kind] + lane.number
    if kind == "grid":
        yield _name("thread", track, f"grid, PE {lane.number}: outputs")
        for cycle, address, value in rows:
            yield _slice(track, f"{address:#x}", cycle, cycle + 1, address=address, value=value)
        return
    yield _name("thread", track, f"warp {lane.number}" if kind == "warp" else ENGINES[lane.number])
    for start, end, code, *operation in rows:
        what = program.codes[code >> 1]
        text = disassemble(what) if what else "outside the program"
        name = what.name if what else "illegal"
        if kind == "warp":
            # Parentheses mark a no-op: the instruction's predicate is false.
            name, pc = f"({name})" if code & 1 else name, (code >> 1) - program.base[lane.number]
            yield _slice(track, name, start, end, pc=pc, text=text, held=end - 1 - start)
        else:
            issued, warp, _ = operation
            more = {"warp": warp, "pc": (code >> 1) - program.base[warp], "issued": issued}
            yield _slice(track, name, start, end, text=text, queued=start - issued, **more)
    if kind == "engine":
        steps = [(cycle, 1) for cycle in columns["issued"]] + [(cycle, -1) for cycle in columns["end"]]
        yield from _sums(f"{ENGINES[lane.number]} operations", steps)


def _sums(name: str, steps: Iterable[tuple[int, int]]) -> Iterator[Slice]:
    """A running sum as counter entries."""
    changes: dict[int, int] = defaultdict(int)
    for cycle, change in steps:
        changes[cycle] += change
    count = 0
    for cycle in sorted(changes):
        count += changes[cycle]
        yield _count(name, cycle, count)


def _count(name: str, cycle: int, count: int) -> Slice:
    return {"ph": "C", "name": name, "tid": 0, "ts": cycle, "args": {"count": count}}
