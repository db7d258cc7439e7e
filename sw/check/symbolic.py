"""Loops without bound: extend the check of some trip counts to all of them (docs/check.md).

In a run of n iterations a *cut* says how far every warp has come; it is consistent if every token taken
before it is given before it. Between two consistent cuts each warp goes through the same whole iterations, so
they can be repeated: what is ordered in the run is ordered in one that is a period longer. So when everything
is right for one period of values of n, each with enough iterations between consistent cuts, it is for all
greater ones.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from sw.check.binding import Limits, Verdict
from sw.check.order import SharedError, channels
from sw.check.phases import Structure, phases, unmarked
from sw.check.program_loops import Repeated, UnlikeError, repeated
from sw.check.streams import Compiled, compile_warp, run
from sw.check.trace import trace
from sw.check.warp_loops import Counted, marked
from sw.ir.program import Program

#: Values of the parameters that are checked one by one before the argument is given up.
MOST = 4000
#: By parameter.
_Values = dict[str, int]


@dataclass(frozen=True)
class Symbolic:
    """The argument for some parameters.

    `least` are the values from which on others differ, `high` those behind the last ones, and from `full` on
    all loops run that a parameter repeats. `warps` are the texts with marks around iterations.
    """

    program: Program
    least: Mapping[str, int]
    high: Mapping[str, int]
    full: Mapping[str, int]
    depth: int
    shape: Repeated
    warps: Mapping[int, Compiled]

    @staticmethod
    def of(
        program: Program, warps: Mapping[int, Compiled], names: Collection[str], limits: Limits
    ) -> Symbolic:
        """See that nothing but numbers of iterations depends on parameters; raises `UnlikeError`."""
        types = {p.name: p.type for p in program.parameters if p.name in names}
        shape = repeated(program, names)
        code = {}
        offsets: dict[str, list[int]] = {name: [0] for name in names}
        for w, compiled in warps.items():
            found = Counted(types)
            found.block(compiled.code, {})
            for count in found.loops.values():
                offsets[count.name].append(count.offset)
            code[w] = compile_warp(marked(compiled.code, found.loops), w)
        least, full = {}, {}
        for name, kind in types.items():
            empty = shape.empty[name]
            least[name] = kind.low if empty is None else max(kind.low, min(empty, -max(offsets[name])))
            full[name] = max(least[name], shape.full[name], 1 - min(offsets[name]))
        high = {name: kind.high for name, kind in types.items()}
        return Symbolic(program, least, high, full, limits.depth, shape, code)

    def show(self, fixed: Mapping[str, int], one: Callable[[_Values], Verdict | None]) -> Verdict | None:
        """Check enough values for all, the other parameters' being fixed; the verdict where one is wrong.

        `one` checks the values that it is given, and returns the verdict if they are wrong. Raises
        `UnlikeError` where nothing is shown.
        """
        # Two windows, or one and a channel's tokens, must fit besides the one that is put in.
        room = 2 * self.shape.period + self.depth + 2
        enough = {name: value + room for name, value in self.full.items()}
        done: set[tuple[int, ...]] = set()
        while True:
            missing: dict[str, int] = {}
            for point in self.points(enough):
                values = {**fixed, **dict(zip(enough, point, strict=True))}
                bad = None if point in done else one(values)
                if bad is not None:
                    return bad
                done.add(point)
                if not missing:
                    missing = self.missing(values, enough, room)
            if not missing:
                return None
            for name, count in missing.items():
                enough[name] += count

    def points(self, enough: Mapping[str, int]) -> list[tuple[int, ...]]:
        """The values that are checked, those of short runs first."""
        period = self.shape.period
        ranges = [
            range(self.least[name], min(self.high[name], value + period)) for name, value in enough.items()
        ]
        if math.prod(len(r) for r in ranges) > MOST:
            raise UnlikeError(f"more than {MOST:,} values of {' and '.join(enough)} are needed for all")
        return sorted(itertools.product(*ranges), key=sum)

    def missing(self, values: Mapping[str, int], enough: Mapping[str, int], room: int) -> dict[str, int]:
        """By parameter how many iterations a run is short of, where a longer one must follow from it."""
        period = self.shape.period
        names = [n for n, v in enough.items() if values[n] >= v and v + period < self.high[n]]
        return self.structure(values, names).short(room) if names else {}

    def structure(self, values: Mapping[str, int], names: Collection[str]) -> Structure:
        """The phases of a run that some parameters repeat, with the parts of the warps in them."""
        made = trace(self.program, values)
        runs = {w: unmarked(run(code, values), names) for w, code in self.warps.items()}
        streams = {w: s for w, (s, _) in runs.items()}
        try:
            used = channels(streams)
        except SharedError as error:
            raise UnlikeError(str(error)) from None
        loops = {w: turning for w, (_, turning) in runs.items()}
        found = Structure(made, phases(made, self.shape, names), streams, used, loops, self.shape.period)
        found.assign()
        return found
