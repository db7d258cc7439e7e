"""Comparison of a prediction with what was observed: the first divergence in time, told in full."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from cosim.job import Event, EventKind, Job, MachineError, Outcome, Output
from hw.assembly import disassemble_words
from hw.config import MachineConfig
from hw.isa import Cause

#: Events of the same warp that are told with a divergence.
BEFORE = 8


@dataclass(frozen=True)
class Divergence:
    """The first thing that differs.

    `kind` is `issue`, `complete` or `signal` for events, `output` for what a PE of the grid stores; when all
    of these agree, `error`, `cycles`, or the name of a counter. `expected` and `got` are cycles for events
    and outputs (None: it did not happen), otherwise what was predicted and observed. `got_pc` is given when
    another instruction came in its place. Of an output, `pe` is the PE, `stored` and `got_stored` are byte
    address and value. `before` holds the events of the warp, or outputs of the PE, that led there, as text.
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
    pe: int | None = None
    stored: tuple[int, int] | None = None
    got_stored: tuple[int, int] | None = None

    def as_dict(self) -> dict[str, object]:
        """All fields, for JSON."""
        return dataclasses.asdict(self) | {"before": list(self.before)}

    def __str__(self) -> str:
        if self.pe is not None:
            place, what, same = f"PE {self.pe}", _stored(self.stored), "PE"
            got = f"{_stored(self.got_stored)}{_when(self.got)}"
        elif self.warp is not None:
            place, what, same = (
                f"warp {self.warp}, pc {self.pc}",
                f"{self.kind} of `{self.instruction}` ",
                "warp",
            )
            got = _when(self.got)
            if self.got_pc is not None:
                got += f" of pc {self.got_pc} `{self.got_instruction}`"
        else:
            return f"{self.kind}: expected {self.expected}, got {self.got}"
        lines = [f"cycle {self.cycle}, {place}: {what}expected {_when(self.expected)}, got {got}"]
        if self.before:
            lines += [f"before that, the same {same}:", *(f"  {line}" for line in self.before)]
        return "\n".join(lines)


def compare(config: MachineConfig, job: Job, predicted: Outcome, observed: Outcome) -> Divergence | None:
    """The first divergence in time, or None when events, outputs, error, cycles and counters agree.

    The n-th event of a kind in a warp is compared with the n-th observed, and the n-th output of a PE with
    its n-th. Of several that differ, the one that was expected or happened first is reported, events before
    outputs. Only predicted counters count. Where an error is predicted, it must be that, in its cycle, with
    everything before; what still happens while the machine stops, and counters, are not compared. The cycle
    in which the watchdog gives up is not predicted; there nothing may happen that is not.
    """
    happened, stored = observed.events, observed.stored
    timed = predicted.error is not None and predicted.error.cause not in (Cause.WATCHDOG, Cause.CHECK_WORD)
    if timed:
        happened = [event for event in happened if event.cycle < predicted.cycles]
        stored = [output for output in stored if output.cycle < predicted.cycles]
    found = None if predicted.events == happened else _first(job, predicted.events, happened)
    if predicted.stored != stored:
        output = _first_output(predicted.stored, stored)
        if output is not None and (found is None or _cycle(output) < _cycle(found)):
            found = output
    if found is not None:
        return found
    if predicted.error != observed.error:
        return Divergence("error", _error_text(predicted.error), _error_text(observed.error))
    if predicted.error is not None and not timed:
        return None
    if predicted.cycles != observed.cycles:
        return Divergence("cycles", predicted.cycles, observed.cycles)
    if predicted.error is not None:
        return None
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


Of = TypeVar("Of", Event, Output)


def _first_of_stream(expected: Sequence[Of], got: Sequence[Of]) -> tuple[Of | None, Of | None] | None:
    common = min(len(expected), len(got))
    if expected[:common] != got[:common]:
        at = next(i for i in range(common) if expected[i] != got[i])
        return expected[at], got[at]
    if len(expected) > common:
        return expected[common], None
    return (None, got[common]) if len(got) > common else None


def _first_output(predicted: list[Output], observed: list[Output]) -> Divergence | None:
    expected: defaultdict[int, list[Output]] = defaultdict(list)
    got: defaultdict[int, list[Output]] = defaultdict(list)
    for outputs, by_pe in ((predicted, expected), (observed, got)):
        for output in outputs:
            by_pe[output.pe].append(output)
    found = []
    for pe in sorted(expected.keys() | got.keys()):
        pair = _first_of_stream(expected[pe], got[pe])
        if pair is not None:
            found.append(_describe_output(pe, *pair, got[pe]))
    return min(found, key=_cycle, default=None)


def _describe_output(
    pe: int, wanted: Output | None, found: Output | None, observed: list[Output]
) -> Divergence:
    cycle = min(output.cycle for output in (wanted, found) if output is not None)
    before = [output for output in observed if output.cycle < cycle][-BEFORE:]
    return Divergence(
        kind="output",
        expected=None if wanted is None else wanted.cycle,
        got=None if found is None else found.cycle,
        cycle=cycle,
        pe=pe,
        stored=None if wanted is None else wanted[2:],
        got_stored=None if found is None else found[2:],
        before=tuple(f"cycle {o.cycle}: {_stored(o[2:])}".rstrip() for o in before),
    )


def _cycle(divergence: Divergence) -> int:
    return divergence.cycle if divergence.cycle is not None else -1


def _stored(what: tuple[int, int] | None) -> str:
    """Address and value with a space behind them, or nothing."""
    return "" if what is None else f"output of {what[1]:#x} to byte {what[0]:#x} "


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
