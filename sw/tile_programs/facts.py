"""What is known of a program's instructions and of the regions that they name.

Starts and sizes follow from ranges, linear forms and the canonical form, with scalars replaced by what they
stand for. Where these do not show what must hold, the executions of the instruction are followed one by one,
as an interpreter would, so that an error names the first iteration that is wrong.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from sw.canonical.simplify import canonicalize
from sw.ir.errors import IRError
from sw.ir.expression import FALSE, TRUE, Apply, Const, Expr, Op, apply, evaluate, fold, substitute
from sw.ir.linear import always_holds
from sw.ir.program import Assign, For, Instruction, Program, Region, print_access
from sw.ir.ranges import bounds
from sw.ir.walk import Body, assigned, bodies, executions
from sw.tile_programs.places import Place

Values = Mapping[str, int]
#: Executions of one instruction that are followed at most.
FOLLOWED = 1 << 20


@dataclass(frozen=True)
class Box:
    """A region with at least two dimensions: a buffer of one is one row.

    `start` and `size` are expressions per dimension, numbers where they are known. `unless_empty` are the
    conditions under which the region is not empty, last dimension first; none where it never is.
    """

    region: Region
    place: Place
    start: tuple[Expr, ...]
    size: tuple[Expr, ...]
    unless_empty: tuple[Expr, ...]

    @property
    def filled(self) -> Expr:
        """Whether the region is not empty."""
        return all_of(*self.unless_empty)

    def counted(self, dimension: int) -> Expr:
        """The size along a dimension, 0 where the region is empty."""
        size = self.size[dimension]
        return size if self.filled == TRUE else apply(Op.SELECT, self.filled, size, 0)

    @property
    def strides(self) -> tuple[int, ...]:
        """Distances along each dimension."""
        missing = len(self.start) - len(self.place.strides)
        return (*(0 for _ in range(missing)), *self.place.strides)

    @property
    def text(self) -> str:
        """The region as it is written."""
        return print_access(self.region)

    def first(self, start: Mapping[int, Expr] | None = None) -> Expr:
        """Where the region starts, in the unit of its space; `start` replaces starts by dimension."""
        starts = dict(enumerate(self.start))
        starts |= {d % len(starts): e for d, e in (start or {}).items()}
        result: Expr = Const(self.place.base)
        for expr, stride in zip(starts.values(), self.strides, strict=True):
            result = result + expr * stride
        return result


class Facts:
    """Answers questions about the instructions of a program without parameters."""

    def __init__(self, program: Program):
        self.program = program
        self._scalars: dict[str, dict[str, Expr]] = {}
        self._around: dict[str, tuple[For, ...]] = {}
        once = {name for name, count in assigned(program.body).items() if count == 1}
        self._enter(program.body, (), {}, once)

    def _enter(self, body: Body, around: tuple[For, ...], values: dict[str, Expr], once: set[str]) -> None:
        """Scalars by the loop variables that they are computed from, as far as both keep their values."""
        constant = {loop.variable for loop in around}
        for s in body:
            if isinstance(s, Instruction):
                self._scalars[s.label], self._around[s.label] = dict(values), around
            elif isinstance(s, Assign) and s.target in once:
                value = substitute(s.value, values)
                if all(v.name in constant for v in value.variables()):
                    values[s.target] = value
            inner = (*around, s) if isinstance(s, For) else around
            for nested in bodies(s):
                self._enter(nested, inner, dict(values), once)

    # Proofs

    def known(self, s: Instruction, expr: Expr) -> Expr:
        """The expression in canonical form, by loop variables as far as possible."""
        return canonicalize(substitute(expr, self._scalars[s.label]))

    def settled(self, s: Instruction, expr: Expr) -> Expr:
        """The expression in canonical form, or its value where that is always the same."""
        low, high = bounds(self.known(s, expr))
        return Const(low) if low == high else canonicalize(expr)

    def most(self, s: Instruction, expr: Expr) -> int:
        """A value that an expression never exceeds."""
        return bounds(self.known(s, expr))[1]

    def holds(self, s: Instruction, condition: Expr) -> bool:
        """Whether a condition holds at every execution, as far as its form shows."""
        if isinstance(condition, Apply) and condition.op in (Op.AND, Op.OR):
            found = (self.holds(s, c) for c in condition.args)
            if all(found) if condition.op is Op.AND else any(found):
                return True
        if isinstance(condition, Apply) and condition.op is Op.EQ:
            left, right = (self.known(s, a) for a in condition.args)
            return left == right or always_holds(apply(Op.EQ, left, right))
        return always_holds(self.known(s, condition))

    def never(self, s: Instruction) -> bool:
        """Whether an instruction surely never happens."""
        if s.when is not None and self.holds(s, negated(s.when)):
            return True
        return any(0 in self._counts(loop, s) for loop in self._around[s.label])

    # Executions

    def followed(self, s: Instruction) -> Iterator[tuple[Values, tuple[int, ...]]]:
        """The values of all variables at every execution of an instruction, with its iteration numbers."""
        values: dict[str, int] = {}
        happening = executions(self.program.body, values, lambda i: i.label == s.label)
        for count, (_, iteration) in enumerate(happening):
            if count == FOLLOWED:
                text = f"more than {FOLLOWED:,} executions of {s.label}"
                raise IRError(s.where, text, "fewer, or regions that follow from the loops alone")
            yield values, iteration

    def violation(self, s: Instruction, condition: Expr) -> tuple[Values, tuple[int, ...]] | None:
        """The first execution in which a condition does not hold, None where it always does."""
        if self.holds(s, condition):
            return None
        return next((found for found in self.followed(s) if not evaluate(condition, found[0])), None)

    def require(
        self, s: Instruction, region: Region, condition: Expr, found: Callable[[Values], str], expected: str
    ) -> None:
        """Raise `IRError` for the first execution in which a condition does not hold."""
        wrong = self.violation(s, condition)
        if wrong is not None:
            text = f"{found(wrong[0])} in {s.label}{_numbers(wrong[1])}"
            raise IRError(region.where or s.where, text, expected)

    def trips(self, s: Instruction) -> tuple[int, ...]:
        """The most iterations of each loop around an instruction, outermost first."""
        made = [self._counts(loop, s) for loop in self._around[s.label]]
        if all(made):
            return tuple(max(found) for found in made)
        highest = [0] * len(made)
        for _, iteration in self.followed(s):
            highest = [max(a, b + 1) for a, b in zip(highest, iteration, strict=True)]
        return tuple(highest)

    def _counts(self, loop: For, s: Instruction) -> tuple[int, ...]:
        """Numbers of which the largest is not exceeded by a loop's iterations; the only one is exact."""
        if not isinstance(loop.step, Const) or not loop.step.value:
            return ()
        step = loop.step.value
        ends = (loop.start, loop.stop) if step > 0 else (loop.stop, loop.start)
        low, high = bounds(self.known(s, fold(Op.SUB, ends[1], ends[0])))
        if high - low >= FOLLOWED:
            return ()
        return tuple(dict.fromkeys(max(0, -(-size // abs(step))) for size in (low, high)))

    # Regions

    def box(self, s: Instruction, region: Region, place: Place) -> Box:
        """What a region is; raises `IRError` where it is outside of its buffer."""
        starts = tuple(self.settled(s, i.start) for i in region.box)
        sizes = tuple(self.settled(s, fold(Op.SUB, i.stop, i.start)) for i in region.box)
        conditions = [apply(Op.LT, i.start, i.stop) for i in region.box[::-1]]
        unless_empty = tuple(dict.fromkeys(c for c in conditions if not self.holds(s, c)))
        inside = []
        for interval, size in zip(region.box, place.shape, strict=True):
            inside += [apply(Op.GE, interval.start, 0), apply(Op.LE, interval.stop, size)]
        wrong = self.violation(s, any_of(negated(all_of(*unless_empty)), all_of(*inside)))
        if wrong is not None:
            values, iteration = wrong
            ends = ", ".join(f"{evaluate(i.start, values)}:{evaluate(i.stop, values)}" for i in region.box)
            whole = ", ".join(f"0:{size}" for size in place.shape)
            at = f" in iteration {s.label}{_numbers(iteration)}" if iteration else ""
            found = f"the region {region.buffer}[{ends}]{at}"
            raise IRError(region.where or s.where, found, f"one inside of {region.buffer}[{whole}]")
        if len(starts) == 1:
            starts, sizes = (Const(0), *starts), (Const(1), *sizes)
        return Box(region, place, starts, sizes, unless_empty)

    def empty(self, s: Instruction, box: Box) -> bool:
        """Whether a region surely is always empty."""
        return self.holds(s, negated(box.filled))

    def largest(self, s: Instruction, box: Box) -> tuple[int, ...]:
        """Sizes along each dimension that a region never exceeds; all 0 where it is always empty."""
        if self.empty(s, box):
            return (0,) * len(box.size)
        room = (1,) * (len(box.size) - len(box.place.shape)) + box.place.shape
        return tuple(max(0, min(self.most(s, e), n)) for e, n in zip(box.size, room, strict=True))


def where_filled(s: Instruction, boxes: tuple[Box, ...]) -> Expr | None:
    """The instruction's predicate, extended by what makes it do nothing for empty boxes."""
    conditions = [*([] if s.when is None else [s.when]), *(c for box in boxes for c in box.unless_empty)]
    return all_of(*conditions) if conditions else None


def all_of(*conditions: Expr) -> Expr:
    """Whether all conditions hold."""
    return _joined(Op.AND, TRUE, conditions)


def any_of(*conditions: Expr) -> Expr:
    """Whether some condition holds."""
    return _joined(Op.OR, FALSE, conditions)


def _joined(op: Op, neutral: Expr, conditions: tuple[Expr, ...]) -> Expr:
    different = [c for c in dict.fromkeys(conditions) if c != neutral]
    return functools.reduce(lambda a, b: apply(op, a, b), different) if different else neutral


def negated(condition: Expr) -> Expr:
    """The opposite of a condition."""
    return fold(Op.NOT, condition)


def _numbers(iteration: tuple[int, ...]) -> str:
    return f"[{', '.join(map(str, iteration))}]" if iteration else ""
