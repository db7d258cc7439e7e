"""The core form of an expression, and the canonical form that is written out.

Core form is what expressions are compared in: sums of products over few operators. The canonical form is core
form written so that it costs little (`sw.canonical.emit`).
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

from hw.semantics import wrap
from sw.canonical import compare, conditionals, integers, lattice, logic  # noqa: F401 - register constructors
from sw.canonical.conditionals import Sides, choice_of_choices
from sw.canonical.cost import cycles
from sw.canonical.emit import emit
from sw.canonical.engine import build, value_known
from sw.canonical.integers import build_bits, product_of, sum_of
from sw.canonical.lattice import extreme
from sw.canonical.linear import to_form
from sw.canonical.logic import conjunction, disjunction
from sw.canonical.operands import chain, operands
from sw.canonical.rank import key, may_raise, size
from sw.ir.expression import ASSOCIATIVE, Apply, Const, Expr, Op, apply, const

#: How often an expression is brought into canonical form again until nothing changes.
ROUNDS = 16
_GROUPED = frozenset((*ASSOCIATIVE, Op.SUB))


def canonicalize(expr: Expr) -> Expr:
    """An expression of the same value in canonical form; the same for every spelling that the rules unite.

    Canonicalising twice changes nothing: it is repeated until the text stays, and should it not stay, the
    smallest of the expressions that it alternates between is taken. An expression nested too deep for
    Python's stack (some hundred levels) is returned as it is.
    """
    try:
        return _canonical(expr)
    except RecursionError:
        return expr


@functools.lru_cache(maxsize=1 << 14)
def _canonical(expr: Expr) -> Expr:
    seen: list[Expr] = []
    while expr not in seen and len(seen) < ROUNDS:
        seen.append(expr)
        expr = _cheaper(expr)
    if expr not in seen:
        return expr
    return min(seen[seen.index(expr) :], key=lambda e: (cycles(e), size(e), str(e)))


def _cheaper(expr: Expr) -> Expr:
    """Core form as it is written; where that costs more, the expression with its parts in canonical form."""
    found = emit(core(expr))
    if cycles(found) <= cycles(expr):
        return found
    return min(_by_parts(expr), found, key=cycles)


def _by_parts(expr: Expr) -> Expr:
    """An expression of the same operators, their operands in canonical form and sorted."""
    if not isinstance(expr, Apply):
        return expr
    op = expr.op
    if op in (Op.ADD, Op.SUB):
        parts = [(t, s * sign) for e, sign in _terms(expr) for t, s in _terms(_canonical(e))]
        constant = wrap(sum(t.value * sign for t, sign in parts if isinstance(t, Const)))
        terms = [t for t in parts if not isinstance(t[0], Const)] + [(const(constant), 1)] * (constant != 0)
        terms = sorted(terms, key=lambda t: (-t[1], key(t[0]))) or [(const(0), 1)]
        found = terms[0][0] if terms[0][1] > 0 else apply(Op.SUB, 0, terms[0][0])
        for term, sign in terms[1:]:
            found = Apply(Op.ADD if sign > 0 else Op.SUB, (found, term))
        return found
    args = _joined(op, [_canonical(a) for a in _parts(expr)])
    if op in (Op.AND, Op.OR) and any(map(may_raise, args)):
        return chain(op, args)
    return chain(op, sorted(args, key=key)) if op in ASSOCIATIVE else Apply(op, tuple(args))


def _joined(op: Op, args: Sequence[Expr]) -> list[Expr]:
    """The operands of an associative operator with its constants in one."""
    numbers = [a.value for a in args if isinstance(a, Const)]
    if op not in ASSOCIATIVE or len(numbers) < 2:
        return list(args)
    return [
        Const(functools.reduce(op.meaning, numbers), args[0].kind),
        *(a for a in args if not isinstance(a, Const)),
    ]


def core(expr: Expr) -> Expr:
    """The core form of an expression; its parts first, so that nesting is no recursion."""
    done: set[int] = set()
    todo: list[tuple[Expr, bool]] = [(expr, False)]
    while todo:
        node, ready = todo.pop()
        if id(node) in done or not isinstance(node, Apply):
            continue
        if ready:
            done.add(id(node))
            _core(node)
        else:
            todo.append((node, True))
            todo += [(p, False) for p in _parts(node)]
    return _core(expr)


def _parts(node: Apply) -> list[Expr]:
    """The operands that a node's constructor gets, over all groupings of the operator."""
    return (
        [e for e, _ in _terms(node)]
        if node.op in (Op.ADD, Op.SUB)
        else operands(node.op, node)
        if node.op in ASSOCIATIVE
        else list(node.args)
    )


def _terms(expr: Expr) -> list[tuple[Expr, int]]:
    """The summands of sums and differences, with their signs."""
    found, todo = [], [(expr, 1)]
    while todo:
        node, sign = todo.pop()
        if isinstance(node, Apply) and node.op in (Op.ADD, Op.SUB):
            todo += [(node.args[1], -sign if node.op is Op.SUB else sign), (node.args[0], sign)]
        else:
            found.append((node, sign))
    return found


@functools.lru_cache(maxsize=1 << 16)
def _core(expr: Expr) -> Expr:
    return value_known(_built(expr))


def _inside(expr: Expr) -> Sides | None:
    """Condition and sides of a choice as it was written."""
    if not isinstance(expr, Apply) or expr.op is not Op.SELECT:
        return None
    condition, a, b = (_core(x) for x in expr.args)
    return condition, a, b


def _built(expr: Expr) -> Expr:
    if not isinstance(expr, Apply):
        return expr
    op = expr.op
    if op in (Op.ADD, Op.SUB):
        return sum_of([to_form(_core(e)) * sign for e, sign in _terms(expr)])
    if op is Op.SELECT:
        p, a, b = (_core(x) for x in expr.args)
        return choice_of_choices(p, a, b, (_inside(expr.args[1]), _inside(expr.args[2])))
    if op not in ASSOCIATIVE:
        return build(op, *(_core(a) for a in expr.args))
    args = [_core(a) for a in operands(op, expr)]
    if op is Op.MUL:
        return product_of([to_form(a) for a in args])
    if op is Op.AND:
        return conjunction(args)
    if op is Op.OR:
        return disjunction(args)
    return extreme(op, args) if op in (Op.MIN, Op.MAX) else build_bits(op, args)
