"""Runs as Chrome trace JSON, which Perfetto (ui.perfetto.dev) and chrome://tracing open.

A cycle is shown as a microsecond. Each outcome is a process: a track for every warp (an instruction lasts
from when it was ready to the end of its issue cycle, so that what held it is seen), a track for every engine
(an operation from when the one before it completed), a track for every PE of the grid that stores something,
a counter of operations that each engine has yet to complete, and a counter of tokens in each channel.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Mapping
from typing import Any

from cosim.job import Event, EventKind, Job, Outcome, Output
from hw.assembly import Code, decode, disassemble
from hw.config import ENGINES

Slice = dict[str, Any]
_ENGINE_TRACK = 100
_GRID_TRACK = 1000


def document(job: Job, outcomes: Mapping[str, Outcome]) -> dict[str, Any]:
    """Outcomes of a job by name (`model`, `rtl`), each as a process of its own, for `json` to write."""
    codes = {warp: [decode(word) for word in words] for warp, words in job.programs.items()}
    events: list[Slice] = []
    for process, (name, outcome) in enumerate(outcomes.items(), 1):
        part = [
            _name("process", 0, f"{name}: {outcome.cycles} cycles"),
            *_warps(codes, outcome.events),
            *_engines(codes, outcome.events),
            *_grid(outcome.stored),
            *_channels(codes, outcome.events),
        ]
        events += [event | {"pid": process} for event in part]
    return {
        "traceEvents": events,
        "displayTimeUnit": "ns",
        "otherData": {"job": job.name, "unit": "1 us = 1 cycle"},
    }


def documents(runs: Iterable[tuple[Job, Mapping[str, Outcome]]]) -> dict[str, Any]:
    """The traces of several jobs in one document, each with processes of its own."""
    whole: dict[str, Any] = {}
    events: list[Any] = []
    first = 0
    for job, outcomes in runs:
        whole = document(job, outcomes)
        events += [event | {"pid": event["pid"] + first} for event in whole["traceEvents"]]
        first += len(outcomes)
    return whole | {"traceEvents": events}


def _code(codes: Mapping[int, list[Code | None]], event: Event) -> Code | None:
    program = codes.get(event.warp, [])
    return program[event.pc] if 0 <= event.pc < len(program) else None


def _name(what: str, track: int, name: str) -> Slice:
    return {"ph": "M", "name": f"{what}_name", "tid": track, "args": {"name": name}}


def _slice(track: int, name: str, begin: int, end: int, **details: int | str) -> Slice:
    return {"ph": "X", "name": name, "tid": track, "ts": begin, "dur": end - begin, "args": details}


def _warps(codes: Mapping[int, list[Code | None]], events: Iterable[Event]) -> list[Slice]:
    out = [_name("thread", warp, f"warp {warp}") for warp in sorted(codes)]
    ready: dict[int, int] = defaultdict(int)
    for event in events:
        if event.kind in (EventKind.ISSUE, EventKind.VOID):
            code = _code(codes, event)
            begin = min(ready[event.warp], event.cycle)
            name = code.name if code else "illegal"
            if event.kind is EventKind.VOID:
                name = f"({name})"  # a no-op: its predicate is false
            text = disassemble(code) if code else "outside the program"
            held = event.cycle - begin
            out.append(_slice(event.warp, name, begin, event.cycle + 1, pc=event.pc, text=text, held=held))
            real = event.kind is EventKind.ISSUE
            ready[event.warp] = event.cycle + (code.spec.cycles if code and real else 1)
    return out


def _engines(codes: Mapping[int, list[Code | None]], events: Iterable[Event]) -> list[Slice]:
    out = [_name("thread", _ENGINE_TRACK + i, engine) for i, engine in enumerate(ENGINES)]
    waiting: dict[int, deque[Event]] = defaultdict(deque)
    free: dict[str, int] = defaultdict(int)
    steps: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for event in events:
        code = _code(codes, event)
        engine = code.spec.engine if code else None
        if code is None or engine is None:
            continue
        if event.kind is EventKind.ISSUE:
            waiting[event.warp].append(event)
        elif event.kind is EventKind.COMPLETE:
            if not waiting[event.warp]:
                continue
            issued = waiting[event.warp].popleft()  # operations of a warp complete in order
            begin = min(max(issued.cycle + 1, free[engine]), event.cycle)
            track = _ENGINE_TRACK + ENGINES.index(engine)
            details = {
                "warp": event.warp,
                "pc": event.pc,
                "issued": issued.cycle,
                "queued": begin - issued.cycle,
            }
            out.append(_slice(track, code.name, begin, event.cycle + 1, text=disassemble(code), **details))
            free[engine] = event.cycle + 1
            steps[engine] += [(issued.cycle, 1), (event.cycle + 1, -1)]
    return out + [entry for engine in ENGINES for entry in _sums(f"{engine} operations", steps[engine])]


def _grid(stored: Iterable[Output]) -> list[Slice]:
    out = [
        _slice(_GRID_TRACK + pe, f"{address:#x}", cycle, cycle + 1, address=address, value=value)
        for cycle, pe, address, value in stored
    ]
    tracks = sorted({entry["tid"] for entry in out})
    return [_name("thread", track, f"grid, PE {track - _GRID_TRACK}: outputs") for track in tracks] + out


def _channels(codes: Mapping[int, list[Code | None]], events: Iterable[Event]) -> list[Slice]:
    steps: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for event in events:
        code = _code(codes, event)
        if code is None or event.kind is EventKind.COMPLETE:
            continue
        if event.kind is EventKind.SIGNAL:
            steps[code.fields["channel"]].append((event.cycle + 1, 1))
        elif code.name == "wait" and event.kind is EventKind.ISSUE:
            steps[code.fields["channel"]].append((event.cycle + 1, -1))
    return [entry for channel in sorted(steps) for entry in _sums(f"channel {channel:02}", steps[channel])]


def _sums(name: str, steps: Iterable[tuple[int, int]]) -> list[Slice]:
    """Running count as counter entries."""
    changes: dict[int, int] = defaultdict(int)
    for cycle, change in steps:
        changes[cycle] += change
    out, count = [], 0
    for cycle in sorted(changes):
        count += changes[cycle]
        out.append({"ph": "C", "name": name, "tid": 0, "ts": cycle, "args": {"count": count}})
    return out
