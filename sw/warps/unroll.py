"""Unrolled programs: every instance of every instruction becomes an instruction; there are no loops.

Everything that is known is evaluated on the way. What depends on parameters stays: branches, predicates, and
the iterations of a loop with such bounds, each under a branch.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Container, Mapping
from dataclasses import dataclass, field

from hw.config import MachineConfig
from hw.errors import InputError
from sw.ir.errors import IRError
from sw.ir.expression import FALSE, TRUE, Apply, Const, Expr, Op, Var, apply, fold
from sw.ir.program import Assign, For, If, Instruction, Program, Statement
from sw.ir.ranges import bounds, may_wrap
from sw.ir.scope import retype
from sw.ir.split import replaced
from sw.ir.types import Kind, Type
from sw.ir.walk import (
    Instance,
    assigned,
    instructions,
    map_expressions,
    rewrite,
    used_names,
    uses,
    without_empty,
)
from sw.warps.assign import refuse

#: Most instructions of an unrolled program.
LARGEST = 1 << 16


@dataclass(frozen=True)
class Unrolled:
    """A program without loops; `instances` maps a label to the source instance that it stands for."""

    program: Program
    instances: Mapping[str, Instance]

    def name(self, label: str) -> str:
        """An instance as it is printed: `P` outside of loops, `P[1, 0]` inside."""
        return str(self.instances.get(label, label))

    def labelled(self, program: Program) -> Program:
        """The program with labels as in the source; in texts, a label means its next instance."""

        def named(s: Instruction) -> tuple[Statement, ...]:
            known = self.instances.get(s.label)
            return (s if known is None else dataclasses.replace(s, label=known.label),)

        return dataclasses.replace(program, body=replaced(program.body, named))

    def fits(self, config: MachineConfig) -> None:
        """Raises `InputError` if the operations alone exceed the instruction memory of a warp."""
        by_warp: defaultdict[int | None, list[str]] = defaultdict(list)
        for s in instructions(self.program):
            by_warp[s.warp].append(self.name(s.label))
        for warp, names in by_warp.items():
            if len(names) + 1 > config.imem_words:
                raise InputError(
                    f"warp {warp}, {names[0]} to {names[-1]}: imem_words must be at least {len(names) + 1}, "
                    f"not {config.imem_words}"
                )


def unrolled(program: Program) -> Unrolled:
    """The program of all instances.

    Raises `IRError` for a `while`, for a loop without a bound on its trip count, and for more than `LARGEST`
    instructions.
    """
    refuse(program)
    made = _Unroller(used_names(program))
    body = made.body(program.body, {}, ())
    return Unrolled(retype(dataclasses.replace(program, body=_needed(body))), made.instances)


def evaluated(expr: Expr, known: Mapping[str, Expr]) -> Expr:
    """The expression with known values inserted and evaluated; a division by zero stays."""
    if isinstance(expr, Var):
        return known.get(expr.name, expr)
    if not isinstance(expr, Apply):
        return expr
    first = evaluated(expr.args[0], known)
    if isinstance(first, Const) and expr.op in (Op.SELECT, Op.AND, Op.OR):
        # The other side may divide by zero, but is not evaluated.
        if expr.op is Op.SELECT:
            return evaluated(expr.args[1 if first.value else 2], known)
        decided = first.value == (expr.op is Op.OR)
        return first if decided else evaluated(expr.args[1], known)
    return fold(expr.op, first, *(evaluated(a, known) for a in expr.args[1:]))


def _needed(body: tuple[Statement, ...]) -> tuple[Statement, ...]:
    """The statements without unused scalars and without empty branches."""
    while (left := _without(body, uses(body))) != body:
        body = left
    return body


def _without(body: tuple[Statement, ...], read: Container[str]) -> tuple[Statement, ...]:
    return rewrite(body, lambda s: () if isinstance(s, Assign) and s.target not in read else without_empty(s))


@dataclass
class _Unroller:
    """The names in use, and the instances made so far."""

    names: set[str]
    instances: dict[str, Instance] = field(default_factory=dict)

    def fresh(self, stem: str) -> str:
        """Returns a unique name."""
        name, n = stem, 0
        while name in self.names:
            name, n = f"{stem}_{n}", n + 1
        self.names.add(name)
        return name

    def body(
        self, body: tuple[Statement, ...], known: dict[str, Expr], iteration: tuple[int, ...]
    ) -> tuple[Statement, ...]:
        """Unrolls statements in one iteration of the enclosing loops, and updates `known`."""
        made: list[Statement] = []
        for s in body:
            match s:
                case Instruction():
                    made += self.instruction(s, known, iteration)
                case Assign(target, value):
                    value = evaluated(value, known)
                    known.pop(target, None)
                    if isinstance(value, Const):
                        known[target] = value
                    # The value may no longer be known where branches meet; then the scalar is read.
                    made.append(dataclasses.replace(s, value=value))
                case If():
                    made += self.branch(s, known, iteration)
                case For():
                    made += self.loop(s, known, iteration)
                case _:
                    raise AssertionError(s)
        return tuple(made)

    def instruction(
        self, s: Instruction, known: dict[str, Expr], iteration: tuple[int, ...]
    ) -> list[Statement]:
        """One instance, unless its predicate is known to be false."""
        changed = map_expressions(s, lambda e: evaluated(e, known))
        if changed.when == FALSE:
            return []
        if len(self.instances) == LARGEST:
            raise IRError(s.where, f"more than {LARGEST:,} instances", "fewer, to unroll a program")
        label = s.label if not iteration else self.fresh("_".join([s.label, *map(str, iteration)]))
        self.instances[label] = Instance(s.label, iteration)
        when = None if changed.when == TRUE else changed.when
        return [dataclasses.replace(changed, label=label, when=when)]

    def branch(self, s: If, known: dict[str, Expr], iteration: tuple[int, ...]) -> list[Statement]:
        """The side that is taken, or both if that is not known."""
        condition = evaluated(s.condition, known)
        if isinstance(condition, Const):
            return list(self.body(s.body if condition.value else s.orelse, known, iteration))
        then, other = dict(known), dict(known)
        body, orelse = self.body(s.body, then, iteration), self.body(s.orelse, other, iteration)
        _meet(known, then, other)
        return [dataclasses.replace(s, condition=condition, body=body, orelse=orelse)]

    def loop(self, s: For, known: dict[str, Expr], iteration: tuple[int, ...]) -> list[Statement]:
        """All iterations; if the bounds are not known, as many as there can be, each under a branch."""
        start, stop, step = (evaluated(e, known) for e in (s.start, s.stop, s.step))
        made: list[Statement] = []
        if isinstance(start, Const) and isinstance(stop, Const) and isinstance(step, Const) and step.value:
            for n, value in enumerate(range(start.value, stop.value, step.value)):
                known[s.variable] = Const(value)
                made += self.body(s.body, known, (*iteration, n))
            known.pop(s.variable, None)
            return made
        if not isinstance(step, Const) or not step.value:
            raise IRError(s.where, f"the step {s.step} of a loop", "a number other than zero, to unroll it")
        start, stop = (self.kept(e, set(assigned(s.body)), made) for e in (start, stop))
        (low, high), (end_low, end_high) = bounds(start), bounds(stop)
        ends = (low, end_high) if step.value > 0 else (high, end_low)
        count = len(range(*ends, step.value))
        if count > LARGEST or may_wrap(apply(Op.ADD, start, step.value * count)):
            expected = "bounds that limit the iterations, such as those of a parameter n: int[0, 8]"
            raise IRError(s.where, f"the loop over {s.variable}, which may go on to {stop}", expected)
        for n in range(count):
            here = fold(Op.ADD, start, n * step.value)
            holds = fold(Op.LT if step.value > 0 else Op.GT, here, stop)
            inner: dict[str, Expr] = {**known, s.variable: here}
            body = self.body(s.body, inner, (*iteration, n))
            if holds == TRUE:
                _meet(known, inner, inner)
                made += body
                continue
            _meet(known, inner, dict(known))
            made.append(If(holds, body, (), s.where))
        known.pop(s.variable, None)
        return made

    def kept(self, expr: Expr, targets: set[str], made: list[Statement]) -> Expr:
        """The expression, or a scalar with its current value if it depends on what the loop assigns."""
        if not any(v.name in targets for v in expr.variables()):
            return expr
        name = self.fresh("bound")
        made.append(Assign(name, expr))
        low, high = bounds(expr)
        return Var(name, Type(Kind.INT, low, high + 1))


def _meet(known: dict[str, Expr], then: Mapping[str, Expr], other: Mapping[str, Expr]) -> None:
    """Restricts what is known to what both sides agree on."""
    known.clear()
    known.update((name, value) for name, value in then.items() if other.get(name) == value)
