"""The rewrite engine: checks a rule's conditions against known ranges and builds its replacement.

Each operator has one constructor (`build`) that returns core form, so a replacement is simplified while it is
built.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Mapping

from sw.canonical.facts import fits, span, value_bounds
from sw.canonical.linear import Form, atom, product, to_form
from sw.canonical.rules import BY_NAME, Condition, Rule
from sw.ir.expression import Apply, Const, Expr, Op, Var, const, fold
from sw.ir.linear import HOLDS
from sw.ir.ranges import may_trap
from sw.ir.types import Kind

Bindings = Mapping[str, Expr]
Builder = Callable[..., Expr]
BUILDERS: dict[Op, Builder] = {}


def builder(*ops: Op) -> Callable[[Builder], Builder]:
    """Registers the constructor of operators, which takes and returns core form."""

    def register(function: Builder) -> Builder:
        for op in ops:
            BUILDERS[op] = function
        return function

    return register


def build(op: Op, *args: Expr) -> Expr:
    """Builds an operator on core-form expressions, in core form; associative ones take any number."""
    if len(args) == op.arity and all(isinstance(a, Const) for a in args):
        made = fold(op, *args)
        if isinstance(made, Const):
            return made
    return value_known(BUILDERS[op](*args))


def value_known(expr: Expr) -> Expr:
    """The constant if the range of an integer expression is a single value, else the expression."""
    if isinstance(expr, Const) or expr.kind is Kind.BOOL:
        return expr
    low, high = value_bounds(expr)
    if low != high:
        return expr
    found = rewrite("value known", x=expr, k=low)
    return expr if found is None else found


@functools.lru_cache(maxsize=1 << 14)
def rebuilt(expr: Expr) -> Expr:
    """Rebuilds the core form of an expression whose variables have new types."""
    if isinstance(expr, Apply):
        return build(expr.op, *(rebuilt(a) for a in expr.args))
    return value_known(expr)


#: Called for every application of a rule with the rule and its bindings.
OBSERVERS: list[Callable[[Rule, Bindings], None]] = []


def rewrite(name: str, *, backwards: bool = False, **bindings: Expr | int) -> Expr | None:
    """Returns a rule's replacement in core form, or None if a condition is not known to hold.

    Rules are equations: with `backwards`, returns the pattern for the replacement.
    """
    rule = BY_NAME[name]
    bound = {n: const(b) if isinstance(b, int) else b for n, b in bindings.items()}
    if not applies(rule, bound):
        return None
    for observer in OBSERVERS:
        observer(rule, bound)
    return instantiate(rule.left if backwards else rule.right, bound)


def applies(rule: Rule, bindings: Bindings) -> bool:
    """Whether a rule's conditions hold and no error in its bindings would be lost."""
    if not all(holds(c, bindings) for c in rule.conditions):
        return False
    return rule.strict or rule.lazy or not any(may_trap(b) for b in bindings.values())


def instantiate(template: Expr, bindings: Bindings) -> Expr:
    """Instantiates a template in core form."""
    if isinstance(template, Var):
        return bindings[template.name]
    if not isinstance(template, Apply):
        return template
    return build(template.op, *(instantiate(a, bindings) for a in template.args))


def holds(condition: Condition, bindings: Bindings) -> bool:
    """Whether a condition is known to hold."""
    expr = condition.expr
    if condition.fits:
        return fits(exact(expr, bindings))
    a, b = (exact(x, bindings) for x in expr.arguments)
    assert isinstance(expr, Apply)
    return HOLDS[expr.op](*span(a - b))


def exact(expr: Expr, bindings: Bindings) -> Form:
    """A term of a condition as a sum over the integers, of 32-bit values."""
    if isinstance(expr, Const):
        return Form(expr.value)
    if isinstance(expr, Var):
        bound = bindings[expr.name]
        form = to_form(bound)
        # A sum that may wrap is a single opaque value; its summands must not be used.
        return form if fits(form) else atom(bound)
    assert isinstance(expr, Apply)
    a, b = (exact(x, bindings) for x in expr.args)
    if expr.op in _OF_FORMS:
        return _OF_FORMS[expr.op](a, b)
    assert not a.terms
    assert not b.terms
    return Form(_OF_CONSTANTS[expr.op](a.const, b.const))


_OF_FORMS: dict[Op, Callable[[Form, Form], Form]] = {
    Op.ADD: operator.add,
    Op.SUB: operator.sub,
    Op.MUL: product,
}
_OF_CONSTANTS: dict[Op, Callable[[int, int], int]] = {
    Op.MOD: operator.mod,
    Op.BIT_AND: operator.and_,
    Op.SHL: operator.lshift,
}
