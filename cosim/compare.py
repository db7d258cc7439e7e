"""Compares a prediction with the observed run, and describes the first divergence in time."""

from __future__ import annotations

import dataclasses
import itertools
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cosim.job import Event, EventKind, Job, MachineError, Outcome, Output
from hw.assembly import disassemble_words
from hw.config import MachineConfig
from hw.isa import Cause

#: Number of earlier events of the same warp that are reported with a divergence.
BEFORE = 8


@dataclass(frozen=True)
class Divergence:
    """The first difference between prediction and run.

    `kind` is `issue`, `complete` or `signal` for events, and `output` for stores of a PE. If all of these
    agree, it is `error`, `cycles`, or the name of a counter. `expected` and `got` are cycles for events and
    outputs (None: it did not happen), otherwise the predicted and observed values. `got_pc` is set if another
    instruction came in its place. For outputs, `pe` is the PE, and `stored` and `got_stored` are byte address
    and value. `before` lists, as text, the preceding events of the warp or outputs of the PE.
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
    """The first divergence in time, or None if events, outputs, error, cycles and counters agree.

    The n-th event of each kind in a warp is compared with the n-th observed one, and likewise the n-th output
    of each PE. If several differ, the earliest is reported, by its expected or observed cycle; events come
    before outputs. Only predicted counters are compared. If an error is predicted, the same error must come
    in the same cycle, with everything before it. Counters, and what still happens while the machine stops,
    are then not compared. The cycle of a watchdog error is not predicted; there may just be no event that was
    not predicted.
    """
    happened, stored = observed.events, observed.stored
    timed = predicted.error is not None and predicted.error.cause not in (Cause.WATCHDOG, Cause.CHECK_WORD)
    if timed:
        happened = [event for event in happened if event.cycle < predicted.cycles]
        stored = [output for output in stored if output.cycle < predicted.cycles]
    if predicted.events != happened or predicted.stored != stored:
        found = _first(job, _streams(predicted.events, predicted.stored), _streams(happened, stored))
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


#: Events of one kind in a warp, or outputs of a PE; they are reported in the order of the keys.
Streams = Mapping[tuple[int, int, int], Sequence[Any]]


def _streams(events: Iterable[Event], stored: Iterable[Output]) -> Streams:
    out: defaultdict[tuple[int, int, int], list[Any]] = defaultdict(list)
    for event in events:
        out[0, event.warp, event.kind].append(event)
    for output in stored:
        out[1, output.pe, 0].append(output)
    return out


def _first(job: Job, predicted: Streams, observed: Streams) -> Divergence | None:
    """The first difference in time; ties go by the order of the keys."""
    found = []
    for key in predicted.keys() | observed.keys():
        pairs = itertools.zip_longest(predicted.get(key, ()), observed.get(key, ()))
        pair = next((p for p in pairs if p[0] != p[1]), None)
        if pair is not None:
            found.append((min(one.cycle for one in pair if one is not None), key, pair))
    if not found:
        return None
    cycle, (outputs, number, kind), (wanted, got) = min(found, key=lambda one: one[:2])
    keys = [(1, number, 0)] if outputs else [(0, number, k) for k in EventKind]
    same = sorted(x for key in keys for x in observed.get(key, ()) if x.cycle < cycle)[-BEFORE:]
    cycles = wanted and wanted.cycle, got and got.cycle, cycle
    if outputs:
        return Divergence(
            "output",
            *cycles,
            pe=number,
            stored=wanted and wanted[2:],
            got_stored=got and got[2:],
            before=tuple(f"cycle {o.cycle}: {_stored(o[2:])}".rstrip() for o in same),
        )
    text = disassemble_words(job.programs.get(number, ()))
    pc, got_pc = (wanted or got).pc, got and got.pc
    other = got_pc if got_pc != pc else None
    return Divergence(
        EventKind(kind).name.lower(),
        *cycles,
        warp=number,
        pc=pc,
        instruction=_text(text, pc),
        got_pc=other,
        got_instruction=None if other is None else _text(text, other),
        before=tuple(f"cycle {e.cycle}: {e.kind.name.lower()} pc {e.pc} `{_text(text, e.pc)}`" for e in same),
    )


def _stored(what: tuple[int, int] | None) -> str:
    """Address and value followed by a space, or an empty text."""
    return "" if what is None else f"output of {what[1]:#x} to byte {what[0]:#x} "


def _text(program: list[str], pc: int | None) -> str:
    return program[pc] if pc is not None and 0 <= pc < len(program) else "outside the program"


def _when(cycle: int | str | None) -> str:
    return "never" if cycle is None else f"in cycle {cycle}"


def _error_text(error: MachineError | None) -> str:
    if error is None:
        return "none"
    return error.text
