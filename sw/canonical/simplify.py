"""The core form of an expression, and the canonical form that is printed.

Expressions are compared in core form: sums of products over few operators. The canonical form is core form
written as cheaply as possible (`sw.canonical.emit`).
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

from hw.semantics import wrap
from sw.canonical import compare, lattice, logic  # noqa: F401 - register constructors
from sw.canonical.conditionals import merged_choices
from sw.canonical.emit import emit
from sw.canonical.engine import build, value_known
from sw.canonical.integers import sum_of
from sw.canonical.linear import to_form
from sw.canonical.operands import chain, operands
from sw.canonical.rank import key, size
from sw.codegen.cost import turns
from sw.ir.expression import ASSOCIATIVE, Apply, Const, Expr, Op, const
from sw.ir.ranges import may_trap

#: Most repetitions of canonicalising an expression until nothing changes.
ROUNDS = 16


def canonicalize(expr: Expr) -> Expr:
    """Returns an equal expression in canonical form, the same for all spellings that the rules unify.

    The function is idempotent: it repeats until the text is stable; if the text alternates, it takes the
    smallest of the alternatives. An expression nested too deep for Python's stack (some hundred levels) is
    returned unchanged.
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
    return min(seen[seen.index(expr) :], key=lambda e: (turns(e), size(e), str(e)))


def _cheaper(expr: Expr) -> Expr:
    """Writes the core form; if that is more expensive, canonicalises only the operands."""
    found = emit(core(expr))
    if turns(found) <= turns(expr):
        return found
    return min(_by_parts(expr), found, key=turns)


def _by_parts(expr: Expr) -> Expr:
    """The same operators, with operands in canonical form and sorted."""
    if not isinstance(expr, Apply):
        return expr
    op = expr.op
    if op in (Op.ADD, Op.SUB):
        parts = [(t, s * sign) for e, sign in _terms(expr) for t, s in _terms(_canonical(e))]
        constant = const(wrap(sum(t.value * sign for t, sign in parts if isinstance(t, Const))))
        plus, minus = (
            sorted((t for t, s in parts if s == sign and not isinstance(t, Const)), key=key)
            for sign in (1, -1)
        )
        first = chain(Op.ADD, [constant, *plus] if constant.value or not plus else plus)
        return functools.reduce(lambda a, b: Apply(Op.SUB, (a, b)), minus, first)
    args = [_canonical(a) for a in _parts(expr)]
    if op not in ASSOCIATIVE:
        return Apply(op, tuple(args))
    numbers = [a for a in args if isinstance(a, Const)]
    if numbers:
        constant = Const(functools.reduce(op.meaning, [n.value for n in numbers]), args[0].kind)
        args = [constant, *(a for a in args if not isinstance(a, Const))]
    guarded = op in (Op.AND, Op.OR) and any(map(may_trap, args))
    return chain(op, args if guarded else sorted(args, key=key))


def _parts(node: Apply) -> Sequence[Expr]:
    """The operands of a node, flattened over groupings of its operator."""
    return operands(node.op, node) if node.op in ASSOCIATIVE else node.args


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
def core(expr: Expr) -> Expr:
    """The core form of an expression."""
    if not isinstance(expr, Apply):
        return value_known(expr)
    if expr.op in (Op.ADD, Op.SUB):
        return value_known(sum_of([to_form(core(e)) * sign for e, sign in _terms(expr)]))
    args = [core(a) for a in _parts(expr)]
    if expr.op is Op.SELECT:
        condition, a, b = args
        merged = merged_choices(condition, a, b, [_choice(x) for x in expr.args[1:]])
        if merged is not None:
            return merged
    return build(expr.op, *args)


def _choice(expr: Expr) -> Sequence[Expr] | None:
    """Condition and sides of a select as written."""
    return [core(a) for a in expr.arguments] if isinstance(expr, Apply) and expr.op is Op.SELECT else None
