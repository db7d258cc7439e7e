"""Find the loops of a program whose trip count is a parameter, and see that nothing else depends on it.

An iteration may depend on its number only through remainders, so that it repeats after a period. Values are
followed abstractly through the text. A program that does not fit is refused (docs/check.md, "Loops without
bound").
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from hw.semantics import BITS
from sw.check.dependences import TooLargeError
from sw.check.trace import stated_operands
from sw.ir.expression import Const, Expr, Op, Var, substitute
from sw.ir.intrinsics import effects
from sw.ir.program import Assign, For, If, Instruction, Program, Region, Statement
from sw.ir.ranges import Bounds, bounds, may_wrap
from sw.ir.scope import retype
from sw.ir.walk import assigned, expressions, statements

#: Iterations after which a body must repeat.
LONGEST = 256


class UnlikeError(TooLargeError):
    """A program or a text that is not as the symbolic argument needs it; says what."""


@dataclass(frozen=True)
class Rising:
    """A value that does not depend on the parameter, and rises by `rise` every `period` iterations.

    Outside of the repeated loops period and rise are 1 and 0. It is `exact` unless it may have wrapped: then
    only the value modulo 2^32 rises so.
    """

    period: int = 1
    rise: int = 0
    exact: bool = True


@dataclass(frozen=True)
class Count:
    """A parameter and a number that does not depend on it, which for warps is known."""

    name: str
    offset: int = 0


#: None stands for anything.
Value = Rising | Count | None
FIXED = Rising()


def join(a: Value, b: Value, period: int = 1) -> Value:
    """One of two values; which of them repeats after a period."""
    if isinstance(a, Rising) and isinstance(b, Rising):
        common = math.lcm(a.period, b.period, period)
        if common <= LONGEST and a.rise * (common // a.period) == b.rise * (common // b.period):
            return Rising(common, a.rise * (common // a.period), a.exact and b.exact)
        return None
    return a if a == b else None


@dataclass(frozen=True)
class Repeated:
    """The loops of a program that parameters repeat: the parameter by number of the loop, and the period.

    For all values of a parameter up to `empty` none of its loops runs; it is None where this is not known.
    From `full` on all of them do.
    """

    loops: Mapping[int, str]
    period: int
    empty: Mapping[str, int | None]
    full: Mapping[str, int]


def repeated(program: Program, names: Collection[str]) -> Repeated:
    """The loops that parameters repeat; raises `UnlikeError` where anything else depends on one of these."""
    walk = _ProgramWalk(retype(program), names)
    walk.all()
    loops = {n: walk.found[id(s)] for n, s in enumerate(_loops(walk.source)) if id(s) in walk.found}
    return Repeated(loops, walk.period, {n: walk.empty(n) for n in names}, {n: walk.full(n) for n in names})


def _loops(program: Program) -> list[For]:
    return [s for s in statements(program.body) if isinstance(s, For)]


#: Values by name.
_Env = dict[str, Value]


@dataclass
class _ProgramWalk:
    source: Program
    names: Collection[str]
    #: By identity of a repeated loop its parameter.
    found: dict[int, str] = field(default_factory=dict)
    period: int = 1
    inside: bool = False

    def all(self) -> None:
        """The whole program."""
        env: _Env = {p.name: Count(p.name) if p.name in self.names else FIXED for p in self.source.parameters}
        for b in self.source.buffers:
            for size in b.shape:
                self.steady(size, env, f"the shape of {b.name}")
        self.body(self.source.body, env)

    def ends(self, name: str, value: int) -> list[tuple[Bounds, Bounds]]:
        """The bounds of start and stop of the loops of a parameter that has some value."""
        given: dict[str, Expr] = {name: Const(value)}
        loops = [s for s in _loops(self.source) if self.found.get(id(s)) == name]
        return [(bounds(s.start), bounds(substitute(s.stop, given))) for s in loops]

    def empty(self, name: str) -> int | None:
        """A value up to which no loop of a parameter runs."""
        for value in (0, -1, -2, -4, -8, -16, -32, -64, -128):
            if all(stop[1] <= start[0] for start, stop in self.ends(name, value)):
                return value
        return None

    def full(self, name: str) -> int:
        """A value from which on all loops of a parameter run."""
        if name not in self.found.values():
            raise UnlikeError(f"no loop runs as often as {name} says")
        for value in (1 << n for n in range(10)):
            if all(start[1] < stop[0] for start, stop in self.ends(name, value)):
                return value
        raise UnlikeError(f"loops start at unknown or large values of {name}")

    def body(self, body: tuple[Statement, ...], env: _Env) -> None:
        """Statements in their order; changes what is known of names."""
        for s in body:
            match s:
                case Assign(target, value):
                    env[target] = self.value(value, env)
                case If():
                    period = self.steady(s.condition, env, f"the branch {s.condition}")
                    ends = dict(env), dict(env)
                    self.body(s.body, ends[0])
                    self.body(s.orelse, ends[1])
                    for name in assigned((s,)):
                        env[name] = join(ends[0].get(name), ends[1].get(name), period)
                case For():
                    self.loop(s, env)
                case Instruction():
                    self.instruction(s, env)
                case _:
                    raise AssertionError(s)

    def loop(self, s: For, env: _Env) -> None:
        """A loop: one that the parameter repeats, or one like any other statement."""
        stop = self.value(s.stop, env)
        if isinstance(stop, Count):
            self.repeat(s, env, stop.name)
        else:
            periods = [self.steady(e, env, f"a bound {e}") for e in (s.start, s.stop, s.step)]
            targets = assigned(s.body)
            while True:
                inner = {**env, s.variable: Rising(math.lcm(*periods))}
                self.body(s.body, inner)
                # How often it ran decides which iteration a value is of.
                after = {t: join(env.get(t), inner.get(t), math.lcm(*periods)) for t in targets}
                if all(env.get(t) == v for t, v in after.items()):
                    break
                env |= after
        env.pop(s.variable, None)

    def repeat(self, s: For, env: _Env, name: str) -> None:
        """A loop that runs as often as a parameter says."""
        if self.inside:
            raise UnlikeError(f"a loop to {s.stop} stands in another one that a parameter repeats")
        self.steady(s.start, env, f"the start {s.start}")
        if s.step != Const(1):
            raise UnlikeError(f"a loop to {s.stop} must have the step 1")
        self.found[id(s)] = name
        targets = assigned(s.body)
        inner = {**env, **dict.fromkeys(targets), s.variable: Rising(1, 1)}
        self.inside = True
        self.body(s.body, inner)
        self.inside = False
        for t in targets:
            # What repeats after more than one iteration depends on how many there were.
            env[t] = FIXED if env.get(t) == FIXED and inner.get(t) == FIXED else None

    def instruction(self, s: Instruction, env: _Env) -> None:
        """Whether it happens, where, and with which operands."""
        parts = [] if s.when is None else [s.when]
        for access in (a for side in effects(s) for a in side):
            if isinstance(access, Region):
                parts += [e for i in access.box for e in (i.start, i.stop)]
        parts += stated_operands(s).values()
        for e in parts:
            self.steady(e, env, f"{e} of {s.label}")

    def steady(self, expr: Expr, env: _Env, what: str) -> int:
        """The period of an expression that must repeat."""
        value = self.value(expr, env)
        if not isinstance(value, Rising) or value.rise:
            raise UnlikeError(
                f"{what} depends on {' or '.join(self.names)}, or on how many iterations came before"
            )
        self.period = math.lcm(self.period, value.period)
        if self.period > LONGEST:
            raise UnlikeError(f"what loops do repeats only after more than {LONGEST} iterations")
        return value.period

    def value(self, expr: Expr, env: _Env) -> Value:
        """What is known of an expression."""
        if isinstance(expr, Const):
            return FIXED
        if isinstance(expr, Var):
            return env.get(expr.name)
        op, values = _operator(expr), [self.value(a, env) for a in expr.arguments]
        if any(isinstance(v, Count) for v in values):
            plain = (op is Op.ADD and FIXED in values) or (op is Op.SUB and values[1] == FIXED)
            count = next(v for v in values if isinstance(v, Count))
            return count if plain and not may_wrap(expr) else None
        known = [v for v in values if isinstance(v, Rising)]
        if len(known) < len(values):
            return None
        made = _applied(op, expr.arguments, known, wraps=may_wrap(expr))
        return made if made is not None and made.period <= LONGEST else None


def _operator(expr: Expr) -> Op:
    found: Op = expr.op  # type: ignore[attr-defined]
    return found


def _applied(op: Op, args: tuple[Expr, ...], values: list[Rising], *, wraps: bool) -> Rising | None:
    """An operator on values that rise, None where the result does not."""
    period = math.lcm(*(v.period for v in values))
    if not any(v.rise for v in values):
        return Rising(period)
    rises = [v.rise * (period // v.period) for v in values]
    exact = all(v.exact for v in values) and not wraps
    if op in (Op.ADD, Op.SUB):
        return Rising(period, rises[0] + (rises[1] if op is Op.ADD else -rises[1]), exact)
    numbers = [a.value if isinstance(a, Const) else None for a in args]
    if op is Op.MUL:
        for rise, factor in ((rises[0], numbers[1]), (rises[1], numbers[0])):
            if factor is not None:
                return Rising(period, rise * factor, exact)
        return None
    by = numbers[1] if len(numbers) == 2 else None
    if by is None:
        return None
    if op is Op.SHL:
        return Rising(period, rises[0] << by % BITS, exact)
    if op is Op.BIT_AND and by > 0 and by & (by + 1) == 0:
        op, by = Op.MOD, by + 1
    if by <= 0 or op not in (Op.DIV, Op.MOD):
        return None
    times = by // math.gcd(rises[0], by)
    if op is Op.MOD and (values[0].exact or (1 << BITS) % by == 0):
        return Rising(period * times)
    if op is Op.DIV and values[0].exact:
        return Rising(period * times, rises[0] * times // by)
    return None


def in_bounds(program: Program) -> set[str]:
    """The names that occur in bounds of loops, directly or through scalars."""
    found: set[str] = set()
    before = -1
    while len(found) != before:
        before = len(found)
        for s in statements(program.body):
            if isinstance(s, For) or (isinstance(s, Assign) and s.target in found):
                found |= {v.name for e in expressions(s) for v in e.variables()}
    return found
