"""Loops without bound: extends the check of some trip counts to all of them (docs/check.md).

In a run of n iterations, a *cut* says how far each warp has come. It is consistent if every token taken
before it was signalled before it. Between two consistent cuts, each warp executes the same whole iterations,
so these can be repeated: what is ordered in the run is also ordered in a run that is one period longer. So if
everything is correct for one period of values of n, each with enough iterations between consistent cuts, it
is correct for all larger values.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from sw.check.affine import Box
from sw.check.order import SharedError, channels, sides
from sw.check.phases import Structure, phases
from sw.check.repeated_loops import BoxRun, PeriodError, UnlikeError, run_box
from sw.check.streams import Compiled
from sw.ir.program import Program

#: Most parameter values checked individually before the argument is given up.
MOST = 4000


@dataclass(frozen=True)
class Symbolic:
    """The argument for some parameters, with the others fixed.

    Up to `least`, all values behave alike; from `full` on, every loop that a parameter repeats runs. `high`
    are the values after the last ones. `found` holds the common behaviour of each class of values, by the
    smallest value of each parameter in it.
    """

    period: int
    depth: int
    fixed: Mapping[str, int]
    least: Mapping[str, int]
    full: Mapping[str, int]
    high: Mapping[str, int]
    found: Mapping[tuple[int, ...], BoxRun]

    @staticmethod
    def of(
        program: Program,
        warps: Mapping[int, Compiled],
        names: Collection[str],
        fixed: Mapping[str, int],
        depth: int,
        period: int = 1,
    ) -> Symbolic:
        """Checks that only trip counts depend on some parameters; raises `UnlikeError`."""
        fixed_box: Box = {name: (v, v) for name, v in fixed.items()}
        types = {p.name: p.type for p in program.parameters if p.name in names}
        low, high = ({n: t.low for n, t in types.items()}, {n: t.high for n, t in types.items()})
        ends = {n: (max(1, low[n]), high[n] - 1) for n in types}
        if any(first > last for first, last in ends.values()):
            raise UnlikeError("no loop ever runs")
        try:
            first = run_box(program, warps, fixed_box | ends, period)
            if {loop.name for loop in first.loops} != set(names):
                raise UnlikeError(f"not every one of {', '.join(names)} is in a trip count")
            full = {n: max(ends[n][0], 1 - min(first.offsets[n])) for n in types}
            least = {n: max(low[n], min(0, -max(first.offsets[n]))) for n in types}
            found = {}
            classes = {n: range(least[n], min(full[n] + 1, high[n])) for n in types}
            if math.prod(map(len, classes.values())) > MOST:
                raise UnlikeError(f"loops run only for large values of {', '.join(names)}")
            for values in itertools.product(*classes.values()):
                box = dict(fixed_box)
                for n, v in zip(classes, values, strict=True):
                    box[n] = (v, high[n] - 1) if v == full[n] else (low[n] if v == least[n] else v, v)
                made = found[values] = run_box(program, warps, box, period)
                if any(box[n][0] + min(offsets) < 1 for n, offsets in made.offsets.items()):
                    raise UnlikeError("a loop runs only for some values")
        except PeriodError as error:
            return Symbolic.of(program, warps, names, fixed, depth, error.period)
        return Symbolic(period, depth, fixed, least, full, high, found)

    @property
    def room(self) -> int:
        """Iterations between cuts: two windows, or one and a channel's tokens, besides the added one."""
        return 2 * self.period + self.depth + 2

    def show(self, one: Callable[[dict[str, int]], None]) -> None:
        """Checks enough values with `one` to cover all; passes errors on, raises `UnlikeError` to stop."""
        enough = {name: value + self.room for name, value in self.full.items()}
        done: set[tuple[int, ...]] = set()
        while True:
            missing: dict[str, int] = {}
            for point in self.points(enough):
                values = {**self.fixed, **dict(zip(enough, point, strict=True))}
                if point not in done:
                    one(values)
                done.add(point)
                names = [n for n, v in enough.items() if values[n] >= v and v + self.period < self.high[n]]
                if names and not missing:
                    # By parameter, the iterations that this run lacks; a longer run follows.
                    missing = self.structure(values, names).short(self.room)
            if not missing:
                return
            for name, count in missing.items():
                enough[name] += count

    def points(self, enough: Mapping[str, int]) -> list[tuple[int, ...]]:
        """The values to check, those of short runs first."""
        ranges = [
            range(self.least[name], min(self.high[name], value + self.period))
            for name, value in enough.items()
        ]
        if math.prod(len(r) for r in ranges) > MOST:
            raise UnlikeError(f"more than {MOST:,} values of {' and '.join(enough)} are needed for all")
        return sorted(itertools.product(*ranges), key=sum)

    def structure(self, values: Mapping[str, int], names: Collection[str]) -> Structure:
        """The phases of a run that some parameters repeat, with the warps' parts in them."""
        found = self.found[tuple(min(values[n], full) for n, full in self.full.items())]
        runs = {w: s.run(values, names) for w, s in found.warps.items()}
        streams = {w: s for w, (s, _) in runs.items()}
        try:
            used = channels(sides(streams))
        except SharedError as error:
            raise UnlikeError(str(error)) from None
        loops = {w: turning for w, (_, turning) in runs.items()}
        structure = Structure(phases(found.loops, values, names), streams, used, loops, self.period)
        structure.assign()
        return structure
