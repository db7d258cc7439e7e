"""Rewrite rules as data: pattern, conditions, replacement. Each rule can be proved by itself.

The texts are expressions of docs/ir.md. Names `c`, `g`, `k` (optionally with a digit) stand for constants,
`p`, `q`, `r` for truth values, all others for integers. Conditions are evaluated over the integers, without
wrap-around: `fits(e)` states that `e` fits in 32 bits. A comparison must hold, for constants by value and
otherwise by the ranges of variables. A constant that occurs only in the replacement and the conditions is
chosen by the caller; the proof covers every choice.

Laws are rules that hold in both directions. They justify normal forms (sorted operands, collected products)
rather than single rewrites.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from sw.ir.expression import Apply, Expr, Op, Var
from sw.ir.parse import parse_expr
from sw.ir.types import BOOL, INT

CONSTANTS = re.compile(r"[cgk]\d?")
TRUTHS = re.compile(r"[pqr]\d?")
_NAME = re.compile(r"\b(?!(?:if|else|and|or|not|min|max|fits|True|False)\b)[a-z]\d?\b")


@dataclass(frozen=True)
class Condition:
    """A condition of a rule: a comparison, or that an expression fits in 32 bits."""

    expr: Expr
    fits: bool


@dataclass(frozen=True)
class Rule:
    """A rule: `pattern` may be replaced by `replacement` if all conditions in `where` hold."""

    name: str
    pattern: str
    replacement: str
    where: tuple[str, ...] = ()
    #: Both sides raise for the same values even if bindings can raise: the evaluation order is kept.
    lazy: bool = False

    @functools.cached_property
    def left(self) -> Expr:
        """The pattern as an expression."""
        return _parse(self.pattern)

    @functools.cached_property
    def right(self) -> Expr:
        """The replacement as an expression."""
        return _parse(self.replacement)

    @functools.cached_property
    def conditions(self) -> tuple[Condition, ...]:
        """The conditions of the rule."""
        return tuple(
            Condition(_parse(t[5:-1]), True) if t.startswith("fits(") else Condition(_parse(t), False)
            for t in self.where
        )

    @functools.cached_property
    def strict(self) -> bool:
        """Whether both sides always evaluate the same names, so that errors in them stay errors."""
        names = {v.name for v in self.left.variables() if not is_constant(v.name)}
        return names == set(_evaluated(self.left)) == set(_evaluated(self.right))

    def __str__(self) -> str:
        where = f"  where {', '.join(self.where)}" if self.where else ""
        return f"{self.pattern}  ->  {self.replacement}{where}"


def is_constant(name: str) -> bool:
    """Whether a name in a rule stands for a constant."""
    return CONSTANTS.fullmatch(name) is not None


def _parse(text: str) -> Expr:
    names = set(_NAME.findall(text))
    return parse_expr(text, {n: BOOL if TRUTHS.fullmatch(n) else INT for n in names})


def _evaluated(expr: Expr) -> Iterator[str]:
    """Names of variables that are evaluated regardless of the conditions in the expression."""
    if isinstance(expr, Var):
        if not is_constant(expr.name):
            yield expr.name
    elif isinstance(expr, Apply):
        first_only = expr.op in (Op.SELECT, Op.AND, Op.OR)
        for argument in expr.args[: 1 if first_only else None]:
            yield from _evaluated(argument)


def _read(text: str) -> dict[str, tuple[Rule, ...]]:
    """Reads the rules of `rules.txt` by group."""
    groups: dict[str, list[Rule]] = {}
    for line in text.splitlines():
        if line.startswith("["):
            found = groups[line.strip("[]")] = []
        elif line and not line.startswith("#"):
            name, rule = line.split(": ", 1)
            equation, _, where = rule.partition(" where ")
            pattern, replacement = equation.split(" -> ")
            conditions = tuple(where.split(", ")) if where else ()
            lazy = name.endswith(" (lazy)")
            found.append(Rule(name.removesuffix(" (lazy)"), pattern, replacement, conditions, lazy))
    return {name: tuple(rules) for name, rules in groups.items()}


#: Rules by group; the first three groups are laws.
GROUPS = _read(Path(__file__).with_name("rules.txt").read_text())
LAWS = tuple(r for name in ("ring", "lattice", "logic") for r in GROUPS[name])
BY_NAME = {r.name: r for rules in GROUPS.values() for r in rules}
RULES = tuple(r for r in BY_NAME.values() if r not in LAWS)
