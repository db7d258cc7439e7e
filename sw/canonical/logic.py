"""Core form of `and`, `or` and `not`.

A conjunction is kept as a sorted list of conditions; those that bound the same sum become one interval, and
what an interval says of a variable simplifies the others. A disjunction is the negation of the conjunction
of the negated conditions. Conditions that can raise an error stay in their order, since the first ones may
guard them.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from dataclasses import dataclass, field

from sw.canonical.compare import Bound, bound_of, of_bound, signed
from sw.canonical.engine import BUILDERS, build, builder, rebuilt
from sw.canonical.facts import span
from sw.canonical.linear import Form, atom, to_expr
from sw.canonical.operands import chain, operands
from sw.canonical.rank import key, may_raise, size
from sw.ir.expression import FALSE, TRUE, Apply, Const, Expr, Op, Var
from sw.ir.scope import with_types
from sw.ir.types import Type

#: How often a conjunction is looked through for more.
ROUNDS = 4
#: Conjunctions of more conditions than this are sorted only.
WIDE = 16


@builder(Op.NOT)
@functools.lru_cache(maxsize=1 << 15)
def negate(expr: Expr) -> Expr:
    """`not expr`: negations stand at variables only."""
    if isinstance(expr, Const):
        return FALSE if expr.value else TRUE
    if not isinstance(expr, Apply):
        return Apply(Op.NOT, (expr,))
    a = expr.args
    match expr.op:
        case Op.NOT:
            return a[0]
        case Op.LT | Op.LE:
            return build(Op.LE if expr.op is Op.LT else Op.LT, a[1], a[0])
        case Op.EQ:
            return Apply(Op.NE, a)
        case Op.NE:
            return Apply(Op.EQ, a)
        case Op.AND:
            return disjunction([negate(x) for x in operands(Op.AND, expr)])
        case Op.OR:
            return conjunction([negate(x) for x in operands(Op.OR, expr)])
        case Op.SELECT:
            return build(Op.SELECT, a[0], negate(a[1]), negate(a[2]))
    raise AssertionError(f"no truth value: {expr}")


def conjunction(args: Sequence[Expr]) -> Expr:
    """All of several conditions."""
    found = list(dict.fromkeys(x for a in args for x in operands(Op.AND, a)))
    if any(map(may_raise, found)):
        return _in_order(Op.AND, found)
    kept = _conjoined(found)
    return FALSE if kept is None else joined(Op.AND, kept)


def disjunction(args: Sequence[Expr]) -> Expr:
    """Any of several conditions."""
    found = list(dict.fromkeys(x for a in args for x in operands(Op.OR, a)))
    if any(map(may_raise, found)):
        return _in_order(Op.OR, found)
    kept = _conjoined([y for x in found for y in operands(Op.AND, negate(x))])
    return TRUE if kept is None else joined(Op.OR, [negate(x) for x in kept])


def joined(op: Op, args: Sequence[Expr]) -> Expr:
    """A sorted chain of `and` or `or`."""
    flat = dict.fromkeys(x for a in args for x in operands(op, a))
    if not flat:
        return TRUE if op is Op.AND else FALSE
    return chain(op, sorted(flat, key=key))


def _in_order(op: Op, args: Sequence[Expr]) -> Expr:
    """Conditions that may raise: what is decided without them goes, the order stays."""
    neutral, final = (TRUE, FALSE) if op is Op.AND else (FALSE, TRUE)
    kept: list[Expr] = []
    for argument in args:
        if argument == final:
            # Nothing after it is evaluated; what stands before it may still raise.
            while kept and not may_raise(kept[-1]):
                kept.pop()
            kept.append(final)
            break
        if argument != neutral:
            kept.append(argument)
    return chain(op, kept) if kept else neutral


def _conjoined(args: Sequence[Expr]) -> list[Expr] | None:
    """The conditions of a conjunction, simplified together; None where they contradict."""
    found = _flat(args)
    if found is None or len(found) <= 1 or len(found) > WIDE:
        return found
    for _ in range(ROUNDS):
        before = set(found)
        for step in (_opposites, _intervals, _remainders, _in_context, _shared):
            simpler = step(found)
            found = None if simpler is None else _flat(simpler)
            if found is None or len(found) <= 1:
                return found
        if set(found) == before:
            break
    return found


def _flat(args: Sequence[Expr]) -> list[Expr] | None:
    """Conditions without repetition, in a fixed order; None where one of them is false."""
    found = dict.fromkeys(x for a in args for x in operands(Op.AND, a) if x != TRUE)
    return None if FALSE in found else sorted(found, key=key)


def _opposites(args: list[Expr]) -> list[Expr] | None:
    """Contradictions, absorption, and alternatives that another condition excludes."""
    known = set(args)
    opposite = {a: negate(a) for a in args if not (isinstance(a, Apply) and a.op is Op.OR)}
    if any(o in known for o in opposite.values()):
        return None
    excluded = set(opposite.values())
    found: list[Expr] = []
    for argument in args:
        if not isinstance(argument, Apply) or argument.op is not Op.OR:
            found.append(argument)
            continue
        parts = operands(Op.OR, argument)
        if any(p in known or _all_known(p, known) for p in parts):
            continue
        left = [p for p in parts if p not in excluded]
        if not left:
            return None
        found.append(chain(Op.OR, left))
    return found


def _all_known(part: Expr, known: set[Expr]) -> bool:
    """Whether a conjunction inside an alternative holds already."""
    return isinstance(part, Apply) and part.op is Op.AND and all(x in known for x in operands(Op.AND, part))


# Intervals


@dataclass
class _Interval:
    """What is known of a sum without constant: its limits, values that it does not have, who says so."""

    low: int
    high: int
    limits: tuple[int, int]
    holes: set[int] = field(default_factory=set)
    sources: list[Expr] = field(default_factory=list)

    def add(self, bound: Bound, sign: int) -> None:
        """A comparison of the sum."""
        c = bound.form.const
        if bound.op is Op.LE:
            if sign > 0:
                self.low = max(self.low, -c)
            else:
                self.high = min(self.high, c)
        elif bound.op is Op.EQ:
            self.low, self.high = max(self.low, -c * sign), min(self.high, -c * sign)
        else:
            self.holes.add(-c * sign)

    def shrink(self) -> None:
        """Move limits off the holes."""
        while self.low in self.holes and self.low <= self.high:
            self.low += 1
        while self.high in self.holes and self.low <= self.high:
            self.high -= 1
        self.holes = {h for h in self.holes if self.low < h < self.high}

    def conditions(self, base: Form) -> list[Expr] | None:
        """The comparisons that say this; None if one cannot be written."""
        bounds = [Bound(Op.NE, base + -h) for h in sorted(self.holes)]
        if self.low == self.high:
            bounds = [Bound(Op.EQ, base + -self.low)]
        else:
            if self.low > self.limits[0]:
                bounds.append(Bound(Op.LE, base + -self.low))
            if self.high < self.limits[1]:
                bounds.append(Bound(Op.LE, -base + self.high))
        found = [of_bound(b) for b in bounds]
        return None if None in found else [f for f in found if f is not None]


def _grouped(args: Sequence[Expr]) -> dict[Form, _Interval]:
    """Comparisons by the sum that they bound, without its constant, its first coefficient positive."""
    groups: dict[Form, _Interval] = {}
    for argument in args:
        bound = bound_of(argument)
        if bound is None or not bound.form.terms:
            continue
        base = signed(bound.form.varying)
        if base not in groups:
            limits = span(base)
            groups[base] = _Interval(*limits, limits)
        groups[base].add(bound, 1 if base.terms == bound.form.terms else -1)
        groups[base].sources.append(argument)
    for interval in groups.values():
        interval.shrink()
    return groups


def _intervals(args: list[Expr]) -> list[Expr] | None:
    """Comparisons of one sum, as one interval."""
    found = dict.fromkeys(args)
    for base, interval in _grouped(args).items():
        if interval.low > interval.high:
            return None
        if len(interval.sources) > 1:
            conditions = interval.conditions(base)
            if conditions is not None:
                for source in interval.sources:
                    found.pop(source, None)
                found |= dict.fromkeys(conditions)
    return list(found)


def _remainders(args: list[Expr]) -> list[Expr] | None:
    """A bound of x beside a bound of x % c goes to a value that has such a remainder."""
    groups = _grouped(args)
    found = dict.fromkeys(args)
    for base, interval in groups.items():
        for inner, k, x in base.applied(Op.DIV):
            # x - c * (x // c) is x % c.
            if x in groups and inner.args == (to_expr(x), Const(-k)) and k < 0:
                found |= dict.fromkeys(_tightened(groups[x], x, -k, interval))
    return list(found)


def _tightened(other: _Interval, base: Form, c: int, remainder: _Interval) -> list[Expr]:
    """Limits of x that fit the limits of x % c."""
    if other.low > other.high or remainder.low > remainder.high:
        return []
    low, high = other.low, other.high
    if low > other.limits[0] and low % c < remainder.low:
        low = low // c * c + remainder.low
    if high < other.limits[1] and high % c > remainder.high:
        high = high // c * c + remainder.high
    if (low, high) == (other.low, other.high):
        return []
    return _Interval(low, high, other.limits).conditions(base) or []


def _in_context(args: list[Expr]) -> list[Expr] | None:
    """Conditions simplified by what the other ones say of single variables."""
    types: dict[str, Type] = {}
    speakers: dict[str, list[Expr]] = {}
    for base, interval in _grouped(args).items():
        variable = base.terms[0][0][0]
        if base != atom(variable) or interval.low > interval.high:
            continue
        if isinstance(variable, Var) and (interval.low, interval.high) != interval.limits:
            types[variable.name] = dataclasses.replace(
                variable.type, low=interval.low, high=interval.high + 1
            )
            speakers[variable.name] = interval.sources
    if not types:
        return args
    return [_narrowed(a, types, speakers) for a in args]


def _narrowed(expr: Expr, types: dict[str, Type], speakers: dict[str, list[Expr]]) -> Expr:
    """A condition where variables have these ranges, if that makes it smaller."""
    variables = {v.name: v.type for v in expr.variables()}
    names = [n for n in variables if n in types and expr not in speakers[n]]
    if not names:
        return expr
    narrow = rebuilt(with_types(expr, {n: types[n] for n in names}))
    wide = with_types(narrow, variables)
    return wide if size(wide) < size(expr) else expr


def _shared(args: list[Expr]) -> list[Expr] | None:
    """(p or q) and (p or r) is p or (q and r), where all conditions share an alternative."""
    if len(args) < 2 or any(not isinstance(a, Apply) or a.op is not Op.OR for a in args):
        return args
    lists = [operands(Op.OR, a) for a in args]
    common = [p for p in lists[0] if all(p in other for other in lists[1:])]
    if not common:
        return args
    rests = [[p for p in one if p not in common] for one in lists]
    if not all(rests):
        return [joined(Op.OR, common)]
    inner = conjunction([joined(Op.OR, rest) for rest in rests])
    return [joined(Op.OR, [*common, inner])]


BUILDERS[Op.AND] = lambda *args: conjunction(args)
BUILDERS[Op.OR] = lambda *args: disjunction(args)
