"""Comparison of a prediction with what was observed: the first divergence in time, told in full."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from cosim.job import Event, EventKind, Job, MachineError, Outcome
from hw.assembly import disassemble_words
from hw.config import MachineConfig

#: Events of the same warp that are told with a divergence.
BEFORE = 8


@dataclass(frozen=True)
class Divergence:
    """The first thing that differs.

    `kind` is `issue`, `complete` or `signal` for events; when all events agree, `error`, `cycles`, or the
    name of a counter. `expected` and `got` are cycles for events (None: it did not happen), otherwise what
    was predicted and observed. `got_pc` is given when another instruction came in its place. `before` holds
    the events of the warp that led there, as text.
    """

    kind: str
    expected: int | str | None
    got: int | str | None
    cycle: int | None = None
    warp: int | None = None
    pc: int | None = None
    instruction: str | None = None
    got_pc: int | None = None
    got_instruction: str | None = None
    before: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, object]:
        """All fields, for JSON."""
        return dataclasses.asdict(self) | {"before": list(self.before)}

    def __str__(self) -> str:
        if self.warp is None:
            return f"{self.kind}: expected {self.expected}, got {self.got}"
        lines = [
            f"cycle {self.cycle}, warp {self.warp}, pc {self.pc}: {self.kind} of `{self.instruction}` "
            f"expected {_when(self.expected)}, got {_when(self.got)}"
        ]
        if self.got_pc is not None:
            lines[0] += f" of pc {self.got_pc} `{self.got_instruction}`"
        if self.before:
            lines += ["before that, the same warp:", *(f"  {line}" for line in self.before)]
        return "\n".join(lines)


def compare(config: MachineConfig, job: Job, predicted: Outcome, observed: Outcome) -> Divergence | None:
    """The first divergence in time, or None when events, error, cycles and predicted counters all agree.

    The n-th event of a kind in a warp is compared with the n-th observed. Of several that differ, the one
    that was expected or happened first is reported. Where an error is predicted, the prediction ends before
    the machine stops: what happens from then on, cycles and counters are not compared, the error is.
    """
    happened = observed.events
    if predicted.error is not None:
        happened = [event for event in happened if event.cycle < predicted.cycles]
    if predicted.events != happened:
        found = _first(job, predicted.events, happened)
        if found is not None:
            return found
    if predicted.error != observed.error:
        return Divergence("error", _error_text(predicted.error), _error_text(observed.error))
    if predicted.error is not None:
        return None
    if predicted.cycles != observed.cycles:
        return Divergence("cycles", predicted.cycles, observed.cycles)
    for name, value in predicted.counters.items():
        if observed.counters.get(name) != value:
            return Divergence(name, value, observed.counters.get(name))
    return None


def _first(job: Job, predicted: list[Event], observed: list[Event]) -> Divergence | None:
    expected, got = _streams(predicted), _streams(observed)
    best: tuple[tuple[int, int, int], Event | None, Event | None] | None = None
    for warp, kind in sorted(expected.keys() | got.keys()):
        pair = _first_of_stream(expected[warp, kind], got[warp, kind])
        if pair is not None:
            first = min(event.cycle for event in pair if event is not None)
            if best is None or (first, warp, kind) < best[0]:
                best = ((first, warp, kind), *pair)
    if best is None:
        return None
    (cycle, warp, kind), wanted, found = best
    return _describe(job, cycle, warp, EventKind(kind), wanted, found, observed)


def _streams(events: Iterable[Event]) -> defaultdict[tuple[int, int], list[Event]]:
    out: defaultdict[tuple[int, int], list[Event]] = defaultdict(list)
    for event in events:
        out[event.warp, event.kind].append(event)
    return out


def _first_of_stream(expected: list[Event], got: list[Event]) -> tuple[Event | None, Event | None] | None:
    common = min(len(expected), len(got))
    if expected[:common] != got[:common]:
        at = next(i for i in range(common) if expected[i] != got[i])
        return expected[at], got[at]
    if len(expected) > common:
        return expected[common], None
    return (None, got[common]) if len(got) > common else None


def _describe(
    job: Job,
    cycle: int,
    warp: int,
    kind: EventKind,
    wanted: Event | None,
    found: Event | None,
    observed: list[Event],
) -> Divergence:
    text = disassemble_words(job.programs.get(warp, ()))
    subject = wanted or found
    pc = subject.pc if subject is not None else None
    other = found.pc if wanted is not None and found is not None and found.pc != wanted.pc else None
    before = [e for e in observed if e.warp == warp and e.cycle < cycle][-BEFORE:]
    return Divergence(
        kind=kind.name.lower(),
        expected=None if wanted is None else wanted.cycle,
        got=None if found is None else found.cycle,
        cycle=cycle,
        warp=warp,
        pc=pc,
        instruction=_text(text, pc),
        got_pc=other,
        got_instruction=None if other is None else _text(text, other),
        before=tuple(
            f"cycle {e.cycle}: {e.kind.name.lower()} pc {e.pc} `{_text(text, e.pc)}`" for e in before
        ),
    )


def _text(program: list[str], pc: int | None) -> str:
    return program[pc] if pc is not None and 0 <= pc < len(program) else "outside the program"


def _when(cycle: int | str | None) -> str:
    return "never" if cycle is None else f"in cycle {cycle}"


def _error_text(error: MachineError | None) -> str:
    if error is None:
        return "none"
    return f"{error.cause.name.lower()}, warp {error.warp}, pc {error.pc}"
