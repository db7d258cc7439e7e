"""Core form of `and`, `or` and `not`.

A conjunction is a sorted list of conditions. Conditions that bound the same sum become one interval, and
intervals of variables simplify the other conditions. A disjunction is the negation of the conjunction of the
negated conditions. Conditions that can raise an error keep their order, since earlier ones may guard them.
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
from sw.canonical.rank import key, size
from sw.ir.expression import FALSE, TRUE, Apply, Const, Expr, Op, Var
from sw.ir.ranges import may_trap
from sw.ir.scope import with_types
from sw.ir.types import Type

_OPPOSITE = {Op.LT: Op.LE, Op.LE: Op.LT, Op.EQ: Op.NE, Op.NE: Op.EQ, Op.AND: Op.OR, Op.OR: Op.AND}
#: Most rounds of simplifying a conjunction.
ROUNDS = 4
#: Longer conjunctions are only sorted.
WIDE = 16


@builder(Op.NOT)
@functools.lru_cache(maxsize=1 << 15)
def negate(expr: Expr) -> Expr:
    """Returns `not expr` with negations pushed down to variables."""
    if isinstance(expr, Const):
        return FALSE if expr.value else TRUE
    if not isinstance(expr, Apply):
        return Apply(Op.NOT, (expr,))
    a, op = expr.args, expr.op
    if op is Op.NOT:
        return a[0]
    if op in (Op.LT, Op.LE):
        return build(_OPPOSITE[op], a[1], a[0])
    if op in (Op.EQ, Op.NE):
        return Apply(_OPPOSITE[op], a)
    if op in (Op.AND, Op.OR):
        return build(_OPPOSITE[op], *(negate(x) for x in operands(op, expr)))
    assert op is Op.SELECT
    return build(op, a[0], negate(a[1]), negate(a[2]))


def connective(op: Op, *args: Expr) -> Expr:
    """The conjunction or disjunction of any number of conditions, in core form."""
    found = list(dict.fromkeys(x for a in args for x in operands(op, a)))
    if any(map(may_trap, found)):
        return _in_order(op, found)
    if op is Op.AND:
        return joined(op, _conjoined(found))
    return joined(op, [negate(x) for x in _conjoined(list(map(negate, found)))])


def joined(op: Op, args: Sequence[Expr]) -> Expr:
    """A sorted chain of `and` or `or`."""
    flat = dict.fromkeys(x for a in args for x in operands(op, a))
    if not flat:
        return TRUE if op is Op.AND else FALSE
    return chain(op, sorted(flat, key=key))


def _in_order(op: Op, args: Sequence[Expr]) -> Expr:
    """Conditions that may raise: keeps their order, and drops what is decided without them."""
    neutral, final = (TRUE, FALSE) if op is Op.AND else (FALSE, TRUE)
    kept: list[Expr] = []
    for argument in args:
        if argument == final:
            # Nothing after it is evaluated, but conditions before it may still raise.
            while kept and not may_trap(kept[-1]):
                kept.pop()
            kept.append(final)
            break
        if argument != neutral:
            kept.append(argument)
    return chain(op, kept) if kept else neutral


def _conjoined(args: Sequence[Expr]) -> list[Expr]:
    """The conditions of a conjunction, simplified together."""
    found = _flat(args)
    for _ in range(ROUNDS if len(found) <= WIDE else 0):
        before = found
        for step in (_opposites, _intervals, _remainders, _in_context, _shared):
            found = _flat(step(found)) if len(found) > 1 else found
        if found == before:
            break
    return found


def _flat(args: Sequence[Expr]) -> list[Expr]:
    """Flattens and sorts conditions without duplicates; just `False` if it is among them."""
    found = dict.fromkeys(x for a in args for x in operands(Op.AND, a) if x != TRUE)
    return [FALSE] if FALSE in found else sorted(found, key=key)


def _opposites(args: list[Expr]) -> list[Expr]:
    """Handles contradictions, absorption, and alternatives excluded by another condition."""
    known = set(args)
    opposite = {a: negate(a) for a in args if not (isinstance(a, Apply) and a.op is Op.OR)}
    if any(o in known for o in opposite.values()):
        return [FALSE]
    excluded = set(opposite.values())
    found: list[Expr] = []
    for argument in args:
        if not isinstance(argument, Apply) or argument.op is not Op.OR:
            found.append(argument)
            continue
        parts = operands(Op.OR, argument)
        if any(known.issuperset(operands(Op.AND, p)) for p in parts):
            continue
        found.append(joined(Op.OR, [p for p in parts if p not in excluded]))
    return found


# Intervals


@dataclass
class _Interval:
    """What is known of a sum without constant: its bounds, excluded values, and the conditions used."""

    low: int
    high: int
    limits: tuple[int, int]
    holes: set[int] = field(default_factory=set)
    sources: list[Expr] = field(default_factory=list)

    def shrink(self) -> None:
        """Moves the bounds past excluded values."""
        while self.low in self.holes and self.low <= self.high:
            self.low += 1
        while self.high in self.holes and self.low <= self.high:
            self.high -= 1
        self.holes = {h for h in self.holes if self.low < h < self.high}

    def conditions(self, base: Form) -> list[Expr] | None:
        """The comparisons that state this interval; None if one cannot be written."""
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
    """Groups comparisons by the sum they bound, without constant and with a positive first coefficient."""
    groups: dict[Form, _Interval] = {}
    for argument in args:
        bound = bound_of(argument)
        if bound is None or not bound.form.terms:
            continue
        base, c = signed(bound.form.varying), bound.form.const
        known = groups.setdefault(base, _Interval(*span(base), span(base)))
        known.sources.append(argument)
        if bound.op is Op.NE:
            known.holes.add(-c)
        if bound.op is Op.EQ or (bound.op is Op.LE and base == bound.form.varying):
            known.low = max(known.low, -c)
        if bound.op is Op.EQ:
            known.high = min(known.high, -c)
        if bound.op is Op.LE and base != bound.form.varying:
            known.high = min(known.high, c)
    for interval in groups.values():
        interval.shrink()
    return groups


def _intervals(args: list[Expr]) -> list[Expr]:
    """Merges comparisons of the same sum into one interval."""
    found = dict.fromkeys(args)
    for base, interval in _grouped(args).items():
        if interval.low > interval.high:
            return [FALSE]
        if len(interval.sources) > 1:
            conditions = interval.conditions(base)
            if conditions is not None:
                for source in interval.sources:
                    found.pop(source, None)
                found |= dict.fromkeys(conditions)
    return list(found)


def _remainders(args: list[Expr]) -> list[Expr]:
    """Moves a bound of x to a value that agrees with the bounds of x % c."""
    groups = _grouped(args)
    found = dict.fromkeys(args)
    for base, interval in groups.items():
        for inner, k, x in base.applied(Op.DIV):
            # x - c * (x // c) is x % c.
            if x in groups and inner.args == (to_expr(x), Const(-k)) and k < 0:
                found |= dict.fromkeys(_tightened(groups[x], x, -k, interval))
    return list(found)


def _tightened(other: _Interval, base: Form, c: int, remainder: _Interval) -> list[Expr]:
    """Bounds of x that agree with the bounds of x % c."""
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


def _in_context(args: list[Expr]) -> list[Expr]:
    """Simplifies conditions using what the others say about single variables."""
    known: dict[str, tuple[Type, list[Expr]]] = {}
    for base, interval in _grouped(args).items():
        variable = base.terms[0][0][0]
        if isinstance(variable, Var) and base == atom(variable) and interval.low <= interval.high:
            narrow = dataclasses.replace(variable.type, low=interval.low, high=interval.high + 1)
            known[variable.name] = narrow, interval.sources
    return [_narrowed(a, {n: t for n, (t, sources) in known.items() if a not in sources}) for a in args]


def _narrowed(expr: Expr, types: dict[str, Type]) -> Expr:
    """Simplifies a condition for narrower ranges of its variables, if that makes it smaller."""
    narrow = with_types(expr, types)
    if narrow is expr:
        return expr
    found = with_types(rebuilt(narrow), {v.name: v.type for v in expr.variables()})
    return found if size(found) < size(expr) else expr


def _shared(args: list[Expr]) -> list[Expr]:
    """(p or q) and (p or r) becomes p or (q and r), if all conditions share an alternative."""
    if len(args) < 2 or any(not isinstance(a, Apply) or a.op is not Op.OR for a in args):
        return args
    lists = [operands(Op.OR, a) for a in args]
    common = [p for p in lists[0] if all(p in other for other in lists[1:])]
    if not common:
        return args
    rests = [[p for p in one if p not in common] for one in lists]
    if not all(rests):
        return [joined(Op.OR, common)]
    inner = connective(Op.AND, *(joined(Op.OR, rest) for rest in rests))
    return [joined(Op.OR, [*common, inner])]


BUILDERS.update((op, functools.partial(connective, op)) for op in (Op.AND, Op.OR))
