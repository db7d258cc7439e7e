"""Core form of minimum and maximum, and of sums that contain them.

Summands, factors and signs that all operands share move outside, so `min(x, y - z) + z` and `min(x + z, y)`
become the same: of each product, the smallest coefficient among the operands moves out, which leaves no
negative ones.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

from sw.canonical.engine import BUILDERS, build
from sw.canonical.facts import at_most, fits
from sw.canonical.linear import ZERO, Form, atom, lowest, to_expr, to_form
from sw.canonical.operands import DUAL, chain, operands
from sw.canonical.rank import key
from sw.canonical.settle import choose_min_or_max, view_choice
from sw.ir.expression import Expr, Op
from sw.ir.ranges import may_trap

#: Longer operand lists are sorted but not compared pairwise.
COMPARED = 12
#: Largest number of operands for which a minimum inside a sum is distributed.
SPREAD = 16
#: Most clauses to which a maximum of minima is multiplied out.
CLAUSES = 8

#: The maximum of several sums.
Clause = tuple[Form, ...]


def extreme(op: Op, *args: Expr) -> Expr:
    """Minimum or maximum of any number of values, in core form."""
    forms = list(dict.fromkeys(to_form(x) for a in args for x in operands(op, a)))
    if any(may_trap(a) for a in args):
        return chain(op, sorted((to_expr(f) for f in forms), key=key))
    clauses = _reduced(_combined(op, [_clauses(f) for f in forms]))
    if len(clauses) == 1 and len(clauses[0]) == 1:
        return to_expr(clauses[0][0])
    if len(clauses) > 1 and any(len(c) > 1 for c in clauses):
        return _nested(clauses)
    op, forms = (Op.MIN, [c[0] for c in clauses]) if len(clauses) > 1 else (Op.MAX, list(clauses[0]))
    choice = _of_choices(op, forms)
    return choice if choice is not None else _take_out(op, forms)


# Nested minima and maxima


def _clauses(form: Form) -> list[Clause]:
    """A sum with a multiple of one minimum or maximum in it, as a minimum of maxima of sums."""
    found = list(form.applied(*DUAL))
    if len(found) != 1:
        return [(form,)]
    ((inner, k, rest),) = found
    parts = [to_form(s) for s in operands(inner.op, inner)]
    whole = [rest + p * k for p in parts]
    if len(parts) > SPREAD or not all(map(fits, (*parts, *whole))):
        return [(form,)]
    return _combined(inner.op if k > 0 else DUAL[inner.op], [_clauses(f) for f in whole]) or [(form,)]


def _combined(op: Op, args: Sequence[list[Clause]]) -> list[Clause]:
    """Minimum or maximum of minima of maxima; with too many clauses, each argument stays one summand."""
    if op is Op.MIN:
        return [c for a in args for c in a]
    found: list[Clause] = [()]
    for argument in args:
        if len(found) * len(argument) > CLAUSES:
            whole = chain(Op.MIN, [chain(Op.MAX, [to_expr(f) for f in c]) for c in argument])
            argument = [(to_form(whole),)]
        found = [tuple(dict.fromkeys((*c, *d))) for c in found for d in argument]
    return found


def _reduced(clauses: Sequence[Clause]) -> list[Clause]:
    """Removes dominated sums and clauses; the result does not depend on their order."""
    forms = list(dict.fromkeys(f for c in clauses for f in c))
    if len(forms) > COMPARED:
        return list(clauses)
    above = _order(forms)
    kept = [tuple(f for f in c if not any(_beats(g, f, above) for g in c)) for c in clauses]
    kept = list(dict.fromkeys(tuple(sorted(c, key=Form.order)) for c in kept))

    def below(c: Clause, d: Clause) -> bool:
        return all(any(f == g or g in above[f] for g in d) for f in c)

    first = {c: i for i, c in enumerate(sorted(kept, key=lambda c: [f.order() for f in c]))}
    return [
        c for c in kept if not any(below(d, c) and (not below(c, d) or first[d] < first[c]) for d in kept)
    ]


def _order(forms: Sequence[Form]) -> dict[Form, set[Form]]:
    """For each sum, the sums known to be at least as large (transitively closed)."""
    above = {f: {g for g in forms if g is not f and at_most(f, g)} for f in forms}
    for middle in forms:
        for form in forms:
            if middle in above[form]:
                above[form] |= above[middle]
    return above


def _beats(one: Form, other: Form, above: dict[Form, set[Form]]) -> bool:
    """Whether one sum dominates another; of two equal ones, the first in the fixed order does."""
    if one == other or one not in above[other]:
        return False
    return other not in above[one] or one.order() < other.order()


def _nested(clauses: list[Clause]) -> Expr:
    """A minimum of maxima, with common parts factored out."""
    forms = list(dict.fromkeys(f for c in clauses for f in c))
    op, shift, factor, rests = _normal(Op.MIN, forms)
    new = dict(zip(forms, rests, strict=True))
    clauses = [tuple(new[f] for f in c) for c in clauses]
    if op is Op.MAX:
        # The sign has turned it into a maximum of minima.
        clauses = _reduced(_combined(Op.MAX, [[(f,) for f in c] for c in clauses]))
    shared = [f for f in clauses[0] if all(f in c for c in clauses)]
    rest = [[f for f in c if f not in shared] for c in clauses]
    found = [to_expr(f) for f in sorted(shared, key=Form.order)]
    if all(rest):
        inner = (chain(Op.MAX, [to_expr(f) for f in sorted(c, key=Form.order)]) for c in rest)
        found.append(chain(Op.MIN, sorted(inner, key=key)))
    return to_expr((shift + atom(chain(Op.MAX, found)) * factor).wrapped())


def _of_choices(op: Op, forms: Sequence[Form]) -> Expr | None:
    """Writes operands as one select: all share a condition, or both sides of one compare with the other."""
    views = [view_choice(f) for f in forms]
    for condition in dict.fromkeys(v[0] for v in views if v is not None):
        mine = [v if v is not None and v[0] == condition else None for v in views]
        sides = [[f if v is None else v[1:][i] for f, v in zip(forms, mine, strict=True)] for i in (0, 1)]
        if None in mine:
            fitting = all(fits(f) for f, v in zip(forms, mine, strict=True) if v is not None)
            if len(forms) != 2 or not fitting or not all(at_most(a, b) or at_most(b, a) for a, b in sides):
                continue
        return build(Op.SELECT, condition, *(extreme(op, *map(to_expr, s)) for s in sides))
    return None


def _take_out(op: Op, forms: Sequence[Form]) -> Expr:
    """Moves a common summand, factor and sign out of the operands."""
    op, shift, factor, rests = _normal(op, forms)
    inner = chain(op, [to_expr(f) for f in sorted(rests, key=Form.order)])
    return to_expr(choose_min_or_max((shift + atom(inner) * factor).wrapped()))


def _normal(op: Op, forms: Sequence[Form]) -> tuple[Op, Form, int, list[Form]]:
    """Operator, summand, factor and operands such that op(forms) is summand + factor * operator(operands)."""
    if not all(map(fits, forms)):
        return op, ZERO, 1, list(forms)
    shift, factor = lowest(forms), 1
    rests = [f - shift for f in forms]
    if not fits(shift) or not all(map(fits, rests)):
        shift, rests = ZERO, list(forms)
    if len(forms) > 2:
        negative = [-f for f in rests]
        down = lowest(negative)
        mirrored = [f - down for f in negative]
        shorter = sum(f.count for f in mirrored) < sum(f.count for f in rests)
        if shorter and all(map(fits, (*negative, *mirrored, shift - down))):
            op, shift, factor, rests = DUAL[op], shift - down, -1, mirrored
    common = math.gcd(*(f.common for f in rests))
    if common > 1:
        factor, rests = factor * common, [f // common for f in rests]
    return op, shift, factor, rests


BUILDERS.update((op, functools.partial(extreme, op)) for op in DUAL)
