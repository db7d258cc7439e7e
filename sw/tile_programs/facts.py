"""What is known of a program's instructions and of the regions that they name.

Starts and sizes follow from ranges, linear forms and the canonical form, with scalars replaced by what they
stand for, and variables of loops by numbers where the instruction happens in one iteration only. Where these
do not show what must hold, it becomes a requirement, for whoever executes the program to look at.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from sw.canonical.simplify import canonicalize
from sw.ir.errors import IRError, Location
from sw.ir.expression import (
    FALSE,
    TRUE,
    Apply,
    Const,
    Expr,
    Op,
    Var,
    apply,
    evaluate,
    fold,
    names,
    substitute,
)
from sw.ir.linear import always_holds
from sw.ir.program import Assign, For, If, Instruction, Program, Region, print_access
from sw.ir.ranges import bounds
from sw.ir.walk import Body, Instance, assigned, executions, value_of
from sw.tile_programs.places import Place

Values = Mapping[str, int]
#: Executions of one instruction that are followed at most to choose the size of its log.
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


@dataclass(frozen=True)
class Requirement:
    """What must hold whenever an instruction happens, and is not known to.

    `found` says by the values of all variables what is there instead, `expected` what was expected.
    """

    instruction: Instruction
    condition: Expr
    where: Location | None
    found: Callable[[Values], str]
    expected: str

    def check(self, values: Values, iteration: tuple[int, ...]) -> None:
        """Raise `IRError` if it does not hold in an execution."""
        if not value_of(self.condition, values, self.where):
            at = Instance(self.instruction.label, iteration)
            raise IRError(self.where, f"{self.found(values)} in {at}", self.expected)


@dataclass(frozen=True)
class _Context:
    """What an instruction stands in.

    `scalars` are those known by the variables of the `loops`; `conditions` are those of branches and of the
    instruction itself, and `fixed` are expressions of those variables by the
    numbers that they equal there.
    """

    loops: tuple[For, ...] = ()
    scalars: Mapping[str, Expr] = field(default_factory=dict)
    conditions: tuple[Expr, ...] = ()
    fixed: Mapping[Expr, Expr] = field(default_factory=dict)

    def where(self, condition: Expr) -> _Context:
        """The same where a condition holds."""
        known = canonicalize(substitute(condition, self.scalars))
        fixed, constant = dict(self.fixed), {loop.variable for loop in self.loops}
        for part in _conjuncts(known):
            # Other variables may change behind the condition.
            if names(part) <= constant:
                match part:
                    case Apply(Op.EQ, (expr, Const() as value)):
                        fixed |= _equal(expr, value)
        return replace(self, conditions=(*self.conditions, known), fixed=fixed)

    def known(self, expr: Expr) -> Expr:
        """The expression in canonical form, by loop variables as far as possible."""
        found = canonicalize(substitute(expr, self.scalars))
        return canonicalize(_replaced(found, self.fixed)) if self.fixed else found


def _equal(expr: Expr, value: Const) -> dict[Expr, Expr]:
    """What is known where an expression has a value: of a remainder also the only number that has it."""
    found: dict[Expr, Expr] = {expr: value}
    match expr:
        case Apply(Op.MOD, (inner, Const(divisor))) if divisor > 0:
            low, high = bounds(inner)
            first = low + (value.value - low) % divisor
            if first + divisor > high:
                found[inner] = Const(first)
    return found


def _replaced(expr: Expr, fixed: Mapping[Expr, Expr]) -> Expr:
    if expr in fixed:
        return fixed[expr]
    args = [_replaced(a, fixed) for a in expr.arguments]
    return Apply(expr.op, tuple(args)) if isinstance(expr, Apply) else expr


class Facts:
    """Answers questions about the instructions of a program without parameters, and notes `requirements`."""

    def __init__(self, program: Program):
        self.program = program
        self.requirements: list[Requirement] = []
        self._context: dict[str, _Context] = {}
        self._once = {name for name, count in assigned(program.body).items() if count == 1}
        self._enter(program.body, _Context())

    def _enter(self, body: Body, context: _Context) -> None:
        """Find the contexts of instructions; scalars are known that stand for what keeps its value."""
        constant = {loop.variable for loop in context.loops}
        for s in body:
            match s:
                case Instruction():
                    self._context[s.label] = context if s.when is None else context.where(s.when)
                case Assign() if s.target in self._once:
                    value = substitute(s.value, context.scalars)
                    if all(v.name in constant for v in value.variables()):
                        context = replace(context, scalars={**context.scalars, s.target: value})
                case For():
                    self._enter(s.body, replace(context, loops=(*context.loops, s)))
                case If():
                    self._enter(s.body, context.where(s.condition))
                    self._enter(s.orelse, context.where(negated(s.condition)))

    # Proofs

    def known(self, s: Instruction, expr: Expr) -> Expr:
        """The expression in canonical form, by loop variables as far as possible."""
        return self._context[s.label].known(expr)

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
        context = self._context[s.label]
        if any(self.holds(s, negated(c)) for c in context.conditions):
            return True
        counts = [self._most(loop, s) for loop in context.loops]
        return any(count is not None and count <= 0 for count in counts)

    def trips(self, s: Instruction) -> tuple[int, ...]:
        """The most iterations of each loop around an instruction in which it happens, outermost first.

        Where the loops do not say how many these are, a bounded number of executions is followed: only places
        in a log depend on it.
        """
        context = self._context[s.label]
        once = {e.name for e in context.fixed if isinstance(e, Var)}
        counts = [1 if loop.variable in once else self._most(loop, s) for loop in context.loops]
        known = [max(1, count) for count in counts if count is not None]
        if len(known) == len(counts) and math.prod(known) <= FOLLOWED:
            return tuple(known)
        highest = [1] * len(counts)
        happening = executions(self.program.body, {}, lambda i: i.label == s.label)
        for number, (_, iteration) in enumerate(happening):
            if number == FOLLOWED:
                found = f"more than {FOLLOWED:,} executions of {s.label}"
                raise IRError(s.where, found, "fewer, or loops that say how many")
            highest = [max(a, b + 1) for a, b in zip(highest, iteration, strict=True)]
        return tuple(highest)

    def _most(self, loop: For, s: Instruction) -> int | None:
        """What the iterations of a loop do not exceed, at most 0 where it has none; None: not known."""
        slow, fast = bounds(loop.step)
        if slow <= 0 <= fast:
            return None
        ends = (loop.start, loop.stop) if slow > 0 else (loop.stop, loop.start)
        return -(-bounds(self.known(s, fold(Op.SUB, ends[1], ends[0])))[1] // min(abs(slow), abs(fast)))

    def require(
        self, s: Instruction, region: Region, condition: Expr, found: Callable[[Values], str], expected: str
    ) -> None:
        """Note that a condition must hold whenever an instruction happens, unless it is known to."""
        if not self.holds(s, condition):
            self.requirements.append(Requirement(s, condition, region.where or s.where, found, expected))

    # Regions

    def box(self, s: Instruction, region: Region, place: Place) -> Box:
        """What a region is; that it lies inside of its buffer is required."""
        starts = tuple(self.settled(s, i.start) for i in region.box)
        sizes = tuple(self.settled(s, fold(Op.SUB, i.stop, i.start)) for i in region.box)
        conditions = [apply(Op.LT, i.start, i.stop) for i in region.box[::-1]]
        unless_empty = tuple(dict.fromkeys(c for c in conditions if not self.holds(s, c)))
        inside = []
        for interval, size in zip(region.box, place.shape, strict=True):
            inside += [apply(Op.GE, interval.start, 0), apply(Op.LE, interval.stop, size)]
        whole = ", ".join(f"0:{size}" for size in place.shape)
        self.require(
            s,
            region,
            any_of(negated(all_of(*unless_empty)), all_of(*inside)),
            functools.partial(_text, region),
            f"one inside of {region.buffer}[{whole}]",
        )
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


def _text(region: Region, values: Values) -> str:
    """A region with its ends as they are."""
    ends = ", ".join(f"{evaluate(i.start, values)}:{evaluate(i.stop, values)}" for i in region.box)
    return f"the region {region.buffer}[{ends}]"


def _conjuncts(condition: Expr) -> Iterator[Expr]:
    if isinstance(condition, Apply) and condition.op is Op.AND:
        for part in condition.args:
            yield from _conjuncts(part)
    else:
        yield condition
