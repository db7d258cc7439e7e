"""Samples a bounded run of a program, on which the sites of waits and signals are chosen.

The dependence edges alone (`sw.dependence`) say what must be ordered. Where to signal and wait is a choice.
This module is the only one that follows instances to make it. Of each loop it follows the first and last
iterations, whatever its trip count. The number of iterations left out is a multiple of the period after which
the body reuses its buffers, so that the iterations on both sides fit together like neighbours.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from hw.errors import InputError
from sw.ir.errors import IRError, Location
from sw.ir.expression import Apply, Const, Expr, Op
from sw.ir.program import Assign, For, If, Instruction, Program, Statement
from sw.ir.vector import Array, Column, evaluate_rows
from sw.ir.walk import assigned, expressions, statements
from sw.warps.sites import Gap, Path, Spot, spots

#: Iterations followed at a loop's start (besides a period) and at its end.
HEAD, TAIL = 3, 4
#: Remainders by larger divisors are not those of buffers; and the longest period looked for.
_LARGEST_MODULUS, _LONGEST_PERIOD = 8, 24

#: Most numbers stored for the visits of one block: a quarter of a gigabyte, twice that while growing.
MOST_NUMBERS = 1 << 25

_NONE: Array = np.empty(0, np.int64)


@dataclass
class _Rows:
    """Visits of one block, processed together: values of variables, and the iteration of each enclosing loop.

    `place` counts the iterations followed, `number` all of them, and `skipped` those left out of the loop.
    `step` is the increment of the loop variable.
    """

    size: int
    values: dict[str, Column]
    place: tuple[Array, ...] = ()
    number: tuple[Array, ...] = ()
    skipped: tuple[Array, ...] = ()
    step: tuple[Array, ...] = ()

    def take(self, index: Array) -> _Rows:
        """Some of the visits."""
        values = {n: v[index] if isinstance(v, np.ndarray) else v for n, v in self.values.items()}
        loops = (
            tuple(i[index] for i in found) for found in (self.place, self.number, self.skipped, self.step)
        )
        return _Rows(int(index.size), values, *loops)

    def column(self, value: Column) -> Array:
        """A number for each visit."""
        return value if isinstance(value, np.ndarray) else np.full(self.size, value, np.int64)

    def of(self, expr: Expr, where: Location | None = None) -> Array:
        """The value of an expression at every visit."""
        if not self.size:
            return _NONE
        for v in expr.variables():
            if v.name not in self.values:
                raise IRError(where, f"{v.name!r} before it has a value", "an assignment before")
        result, wrong = evaluate_rows(expr, self.values)
        if self.size and np.any(wrong):
            raise IRError(where, f"a division by zero in {expr}", "a divisor other than zero")
        return self.column(result)

    def merge(self, names: Iterable[str], index: Array, some: _Rows) -> None:
        """Copies scalars back from some of the visits."""
        for name in names:
            if name in some.values:
                value = self.column(self.values.get(name, 0)).copy()
                value[index] = some.column(some.values[name])
                self.values[name] = value


def _joined(parts: Sequence[_Rows]) -> _Rows:
    if len(parts) == 1:
        return parts[0]
    names = set(parts[0].values).intersection(*(p.values for p in parts[1:]))
    values: dict[str, Column] = {n: np.concatenate([p.column(p.values[n]) for p in parts]) for n in names}
    loops = (
        tuple(np.concatenate(arrays) for arrays in zip(*found, strict=True))
        for found in zip(*((p.place, p.number, p.skipped, p.step) for p in parts), strict=True)
    )
    return _Rows(sum(p.size for p in parts), values, *loops)


@dataclass(frozen=True)
class Visits:
    """When control passes a site, in order, with the values of variables there."""

    times: Array
    rows: _Rows

    def holds(self, predicate: Expr) -> Array:
        """When control passes with a predicate that holds."""
        return self.times[np.flatnonzero(self.rows.of(predicate))]


@dataclass(frozen=True)
class Sample:
    """A bounded run for given parameter values.

    `instances` holds by label the visits in which an instruction executes. `head` is the number of iterations
    of a loop (by its block) followed before those left out. `periods` are time spans (start, end), each one
    period of a loop that is followed in part. All times are below `end`; `complete` is true if nothing is
    left out.
    """

    program: Program
    values: Mapping[str, int]
    spots: Mapping[str, Spot]
    gaps: Mapping[Gap, Visits]
    instances: Mapping[str, Visits]
    head: Mapping[Path, int]
    periods: Array
    end: int
    complete: bool

    def heads(self, spot: Spot) -> list[int]:
        """For each loop around an instruction, the iterations followed before those left out."""
        return [self.head.get(spot.gap.block[:length], 0) for _, length in spot.loops]

    def flow(self) -> bytes:
        """The control flow: equal for runs that differ only in the regions of instructions."""
        return b"|".join(v.times.tobytes() for v in (*self.gaps.values(), *self.instances.values()))


def follow(program: Program, values: Mapping[str, int], reach: int = 1) -> Sample:
    """Follows a program without `while`; a larger `reach` follows that many times more iterations.

    Raises `IRError` for a run-time failure and for a missing parameter.
    """
    for p in program.parameters:
        if p.name not in values:
            raise IRError(p.where, f"no value of the parameter {p.name}", "a number for every parameter")
    follower = _Follower(reach)
    follower.body(program.body, (), _Rows(1, dict(values)))
    return follower.sample(program, values)


@dataclass
class _Follower:
    """Executes the statements; times follow from text and iterations once all loops are known."""

    reach: int
    gaps: defaultdict[Gap, list[_Rows]] = field(default_factory=lambda: defaultdict(list))
    happening: defaultdict[str, list[_Rows]] = field(default_factory=lambda: defaultdict(list))
    #: By block of a loop: the most iterations followed, and the period.
    most: dict[Path, int] = field(default_factory=dict)
    period: dict[Path, int] = field(default_factory=dict)

    def body(self, body: Sequence[Statement], path: Path, rows: _Rows) -> None:
        """Follows statements in sequence."""
        for position, s in enumerate(body):
            self._pass(Gap(path, position), rows)
            match s:
                case Assign(target, value):
                    rows.values[target] = rows.of(value, s.where)
                case Instruction():
                    here = rows if s.when is None else rows.take(np.flatnonzero(rows.of(s.when, s.where)))
                    self.happening[s.label].append(_Rows(**vars(here) | {"values": dict(here.values)}))
                case If():
                    holds = rows.of(s.condition, s.where)
                    for side, inner in enumerate((s.body, s.orelse)):
                        index = np.flatnonzero(holds if side == 0 else 1 - holds)
                        some = rows.take(index)
                        if index.size:
                            self.body(inner, (*path, (position, side)), some)
                        rows.merge(assigned(inner), index, some)
                case For():
                    self.loop(s, (*path, (position, 0)), rows)
                case _:
                    raise IRError(s.where, "a while loop", "loops with a known number of iterations")
        self._pass(Gap(path, len(body)), rows)

    def _pass(self, gap: Gap, rows: _Rows) -> None:
        self.gaps[gap].append(_Rows(**vars(rows) | {"values": dict(rows.values)}))

    def loop(self, s: For, path: Path, rows: _Rows) -> None:
        """Follows first and last iterations, for all visits at once or, with scalars, one by one."""
        start, stop, step = (rows.of(e, s.where) for e in (s.start, s.stop, s.step))
        if not step.all():
            raise IRError(s.where, f"step {s.step} = 0", "a step other than zero")
        trips = np.maximum(0, (stop - start + step - np.sign(step)) // step)
        if path not in self.period:
            self.period[path] = _period(s)
        period = self.period[path]
        least = (HEAD + TAIL) * self.reach + period
        kept = np.where(trips < least + period, trips, least + (trips - least) % period)
        self.most[path] = max(self.most.get(path, 0), int(kept.max(initial=0)))
        visits = int(kept.sum())
        if visits * (4 * (len(rows.place) + 1) + len(rows.values) + 1) > MOST_NUMBERS:
            # Not an `IRError`: that would blame the parameter values and try others.
            raise InputError(
                f"{s.where}: {visits:,} iterations of loops inside of each other would have to be followed "
                "to place waits: nest fewer loops"
            )
        loop = _Loop(s.variable, start, step, kept, trips - kept, self.head(path))
        targets = assigned(s.body)
        if not targets:
            owner = np.repeat(np.arange(rows.size), kept)
            place = np.arange(owner.size) - np.repeat(np.cumsum(kept) - kept, kept)
            if owner.size:
                self.body(s.body, path, loop.inside(rows, owner, place))
            return
        for n in range(int(kept.max(initial=0))):
            owner = np.flatnonzero(kept > n)
            some = loop.inside(rows, owner, np.full(owner.size, n, np.int64))
            self.body(s.body, path, some)
            rows.merge(targets, owner, some)

    def head(self, path: Path) -> int:
        """Number of iterations followed before those left out."""
        return HEAD * self.reach + self.period[path]

    def sample(self, program: Program, values: Mapping[str, int]) -> Sample:
        """The followed visits on one timeline."""
        layout = _Layout(self.most)
        end = layout.block(program.body, (), ())
        gaps = {gap: layout.placed(gap, 0, parts) for gap, parts in self.gaps.items()}
        # Sites that are never reached have no times.
        nothing = Visits(_NONE, _Rows(0, {}))
        gaps = {gap: gaps.get(gap, nothing) for gap in layout.at}
        places = {s.instruction.label: s for s in spots(program)}
        instances = {}
        for label, spot in places.items():
            parts = self.happening.get(label)
            instances[label] = layout.placed(spot.gap, 1, parts) if parts else nothing
        spans, complete = [np.empty((0, 2), np.int64)], True
        for path, period in self.period.items():
            visits = gaps[Gap(path, 0)]
            if not visits.times.size:
                continue
            cut = (visits.rows.place[-1] == self.head(path)) & (visits.rows.skipped[-1] > 0)
            ends = visits.times[cut]
            spans.append(np.stack([ends - period * layout.size[path], ends], axis=1))
            complete = complete and not ends.size
        head = {path: self.head(path) for path in self.period}
        return Sample(program, values, places, gaps, instances, head, np.concatenate(spans), end, complete)


@dataclass(frozen=True)
class _Loop:
    """The followed iterations of a loop, by visit."""

    variable: str
    start: Array
    step: Array
    kept: Array
    skipped: Array
    head: int

    def inside(self, rows: _Rows, owner: Array, place: Array) -> _Rows:
        """Some of the iterations: the visit of the loop that each belongs to, and its place among them."""
        inner = rows.take(owner)
        skipped = self.skipped[owner]
        number: Array = np.where(place < self.head, place, place + skipped)
        inner.values[self.variable] = self.start[owner] + number * self.step[owner]
        inner.place, inner.number = (*inner.place, place), (*inner.number, number)
        inner.skipped, inner.step = (*inner.skipped, skipped), (*inner.step, self.step[owner])
        return inner


@dataclass
class _Layout:
    """Times from the text: the position of statements in their block, and the duration of blocks."""

    most: Mapping[Path, int]
    at: dict[Gap, int] = field(default_factory=dict)
    #: By block: duration, start within the enclosing block, and enclosing loops.
    size: dict[Path, int] = field(default_factory=dict)
    start: dict[Path, int] = field(default_factory=dict)
    loops: dict[Path, tuple[Path, ...]] = field(default_factory=dict)

    def block(self, body: Sequence[Statement], path: Path, around: tuple[Path, ...]) -> int:
        """Lays out a block and returns its duration."""
        time = 0
        for position, s in enumerate(body):
            self.at[Gap(path, position)] = time
            time += 2
            if isinstance(s, For):
                inner = (*path, (position, 0))
                self.start[inner] = time
                time += self.block(s.body, inner, (*around, inner)) * self.most.get(inner, 0)
            elif isinstance(s, If):
                for side, part in enumerate((s.body, s.orelse)):
                    inner = (*path, (position, side))
                    self.start[inner] = time
                    time += self.block(part, inner, around)
        self.at[Gap(path, len(body))] = time
        self.loops[path] = around
        self.size[path] = time + 1
        return time + 1

    def placed(self, gap: Gap, behind: int, parts: Sequence[_Rows]) -> Visits:
        """The visits of a gap, or of the statement right after it, in order."""
        rows = _joined(parts)
        time = self.at[gap] + behind
        time += sum(self.start[gap.block[:n]] for n in range(1, len(gap.block) + 1))
        times = np.full(rows.size, time, np.int64)
        for place, loop in zip(rows.place, self.loops[gap.block], strict=True):
            times += place * self.size[loop]
        if len(parts) > 1 or (times[1:] < times[:-1]).any():
            order = np.argsort(times, kind="stable")
            times, rows = times[order], rows.take(order)
        return Visits(times, rows)


def _period(loop: For) -> int:
    """The number of iterations after which the body reuses the same places in its buffers."""
    names = {loop.variable, *assigned(loop.body)}
    period = 1
    for s in statements(loop.body):
        for e in expressions(s):
            for node in e.walk():
                modulus = _modulus(node)
                if modulus > 1 and any(v.name in names for v in node.variables()):
                    longer = math.lcm(period, modulus)
                    period = longer if longer <= _LONGEST_PERIOD else period
    return period


def _modulus(node: Expr) -> int:
    """The divisor of a remainder, times the divisor inside it; 1 for any other expression."""
    if not isinstance(node, Apply) or not isinstance(node.args[-1], Const):
        return 1
    number = node.args[-1].value
    if node.op is Op.BIT_AND:
        number += 1
    elif node.op is not Op.MOD:
        return 1
    if not 1 < number <= _LARGEST_MODULUS:
        return 1
    for inner in node.args[0].walk():
        if isinstance(inner, Apply) and isinstance(divisor := inner.args[-1], Const):
            number *= abs(divisor.value) if inner.op is Op.DIV else 1
            number <<= divisor.value % 8 if inner.op is Op.SHR else 0
    return number
