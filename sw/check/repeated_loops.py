"""Follows loops whose trip count is a parameter for all values of the parameter at once.

Program and warps are executed on linear forms, as for classes of values, but every decision must hold in the
whole box. One round of a repeated loop represents all: its iteration number is a multiple of the period plus
a remainder, and registers that the body writes start it with arbitrary values. Anything that is not a linear
form becomes a new unknown.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hw.errors import InputError
from hw.semantics import MASK
from sw.check.affine import Affine, Around, Box, Number, form_of
from sw.check.boxes import DecisionRun, FailsError
from sw.check.dependences import TooLargeError
from sw.check.streams import Compiled, Forget, Runtime, Stream, follow
from sw.ir.expression import evaluate
from sw.ir.linear import Linear
from sw.ir.program import For, Program
from sw.ir.types import LOW
from sw.ir.walk import assigned

#: Longest period of a loop body, in iterations.
LONGEST = 256
#: Most statements and instructions executed.
FOLLOWED = 200_000
#: Number of periods of a repeated loop before an iteration. No parameter can have this name.
_PERIODS = "periods before"


class UnlikeError(TooLargeError):
    """A program or text that does not fit the symbolic argument; the message says why."""


class PeriodError(UnlikeError):
    """Iterations repeat only with a longer period."""

    def __init__(self, period: int):
        super().__init__(f"iterations repeat after {period} at the earliest")
        self.period = period


@dataclass
class WholeBox(Around):
    """Makes decisions that are the same in the whole box, and raises `UnlikeError` for others.

    `offsets` maps a parameter n to the numbers c of loops that run n + c times; inside one (`inside`), there
    can be no other.
    """

    period: int = 1
    offsets: dict[str, list[int]] = field(default_factory=dict)
    inside: bool = False

    def at_least(self, a: Number, low: int) -> None:
        """Checks that a number is at least a limit."""
        if self.range(a)[0] < low:
            raise UnlikeError("a decision depends on a parameter, or on how many iterations came before")

    def quotient(self, a: Affine, by: int) -> Number:
        """The quotient if it is always the same; otherwise an unknown within its bounds."""
        low, high = sorted(end // by for end in self.range(a))
        times = abs(by) // math.gcd(by, a.form.factor(_PERIODS))
        if low < high and times > 1 and _PERIODS in a.form.factors and self.period * times <= LONGEST:
            raise PeriodError(self.period * times)
        return self.unknown(low, high)

    def unknown(self, low: int, high: int, name: str = "") -> Number:
        """An unknown number within bounds."""
        if low == high:
            return low
        name = name or f"unknown {len(self.box)}"
        self.box[name], self.values[name] = (low, high), low
        return self.number(Linear({name: 1}))

    def repeated(self, count: Number) -> str | None:
        """The parameter in a loop's trip count; None if the count is a number or 0."""
        form = form_of(count)
        if not form.factors or self.range(count)[1] <= 0:
            return None
        name = next(iter(form.factors))
        if self.inside or form.varying != Linear({name: 1}) or name not in self.parameters:
            raise UnlikeError("how often a loop runs depends on more than one parameter")
        self.offsets.setdefault(name, []).append(form.constant)
        self.inside = True
        return name


@dataclass(frozen=True)
class Repeated:
    """One execution of a loop that runs n + `offset` times, for the parameter n with this `name`.

    `counts` holds, by warp, the number of instances before the loop, and before and after each iteration of
    the first period, as if all earlier repeated loops had run for one period.
    """

    name: str
    offset: int
    counts: list[dict[int, int]]


@dataclass
class ProgramRun(DecisionRun):
    """Runs the sequential program, with one period of each repeated loop."""

    around: WholeBox
    found: list[Repeated] = field(default_factory=list)

    def program(self, program: Program) -> None:
        """Runs the program, and checks that instances are alike; raises `FailsError`."""
        super().program(program)
        _see_known(itertools.chain(*self.sizes.values(), *(found.values() for found in self.ends.values())))
        _see_known(a for rows in self.operands.values() for row in rows for a in row.values())

    def loop(self, s: For, values: dict[str, Any]) -> None:
        """A loop that a parameter repeats, or an ordinary one."""
        start, stop, step = (evaluate(e, values) for e in (s.start, s.stop, s.step))
        count = stop - start
        name = self.around.repeated(count)
        if name is None:
            super().loop(s, values)
            return
        if step != 1:
            raise UnlikeError("a repeated loop must have the step 1")
        targets, period, most = assigned(s.body), self.around.period, self.around.range(count)[1]
        # Scalars that the body assigns have no value at its start: none is loop-carried.
        before = {n: v for n, v in values.items() if n not in targets}
        ends, counts = [], [self.counts()]
        for k in range(min(period, most)):
            self.step()
            periods = self.around.unknown(0, (most - 1 - k) // period, _PERIODS)
            ends.append({**before, s.variable: start + k + period * periods})
            self.body(s.body, ends[-1])
            counts.append(self.counts())
        for target in targets:
            values.pop(target, None)
            found = [end.get(target) for end in ends]
            if isinstance(found[0], int) and all(isinstance(v, int) and v == found[0] for v in found):
                values[target] = found[0]
        self.around.inside = False
        self.found.append(Repeated(name, form_of(count).constant, counts))

    def counts(self) -> dict[int, int]:
        """By warp, the number of instances so far."""
        return {w: len(rows) for w, rows in self.operands.items()}


@dataclass(frozen=True)
class LoopRun:
    """A repeated loop of a warp in a run: its parameter, and its events, `length` per iteration."""

    name: str
    start: int
    stop: int
    length: int


@dataclass
class PeriodicStream(Runtime):
    """The events of a warp for all values: `events` with one round of each repeated loop.

    `loops` are these rounds: from an event up to another, with the parameter n and the number c of n + c.
    """

    around: WholeBox
    loops: list[tuple[int, int, str, int]] = field(default_factory=list)

    def rounds(self, count: Number) -> Iterator[Forget | None]:
        """One round of a loop that a parameter repeats; all rounds of any other."""
        name = self.around.repeated(count)
        if name is None:
            yield from super().rounds(count)
            return
        start = len(self.events)
        yield lambda written: [self.around.unknown(LOW, MASK) for _ in range(written)]
        self.loops.append((start, len(self.events), name, form_of(count).constant))
        self.around.inside = False

    def follow(self) -> None:
        """Runs the warp."""
        rows, _ = follow(self, self.around.parameters)
        if self.around.inside:
            raise UnlikeError("a halt is inside a repeated loop")
        _see_known(a for row in rows for a in row)

    def run(self, values: Mapping[str, int], names: Collection[str]) -> tuple[Stream, list[LoopRun]]:
        """The events for some values, and the loops of some parameters that have events."""
        events = np.array(self.events, np.int32)
        parts, loops, at, size = [], [], 0, 0
        for start, stop, name, offset in self.loops:
            rounds = np.tile(events[start:stop], values[name] + offset)
            parts += [events[at:start], rounds]
            size, at = size + start - at + rounds.size, stop
            if name in names and stop > start:
                loops.append(LoopRun(name, size - rounds.size, size, stop - start))
        return Stream(self.code.sites, np.concatenate([*parts, events[at:]])), loops


def _see_known(numbers: Iterable[Number]) -> None:
    if any(isinstance(a, Affine) for a in numbers):
        raise UnlikeError(
            "where an instance works depends on a parameter, or on how many iterations came before"
        )


@dataclass(frozen=True)
class BoxRun:
    """A run that holds for all values in a box: the program's repeated loops, and the warps.

    `offsets` maps a parameter n to the numbers c of repeated loops, of program and warps, that run n + c
    times.
    """

    loops: list[Repeated]
    offsets: Mapping[str, list[int]]
    warps: Mapping[int, PeriodicStream]


def run_box(program: Program, warps: Mapping[int, Compiled], box: Box, period: int) -> BoxRun:
    """Follows program and warps for all values in a box.

    Raises `UnlikeError`, and `PeriodError` if iterations repeat only with a longer period.
    """
    around = WholeBox({name: low for name, (low, _) in box.items()}, box, period)
    walk = ProgramRun(around, FOLLOWED)
    streams = {w: PeriodicStream(code, FOLLOWED, around) for w, code in warps.items()}
    try:
        walk.program(program)
        for stream in streams.values():
            stream.follow()
    except UnlikeError:
        raise
    except (FailsError, InputError, TooLargeError) as error:
        raise UnlikeError(f"not followed: {error}") from None
    return BoxRun(walk.found, around.offsets, streams)
