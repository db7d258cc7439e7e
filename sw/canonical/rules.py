"""Rewrite rules as data: pattern, condition, replacement, so that each can be proved by itself.

The texts are expressions of docs/ir.md. By name, `c`, `g`, `k` (and with a digit) stand for constants, `p`,
`q`, `r` for truth values, every other name for an integer. Conditions are read over the integers, nothing
wraps in them: `fits(e)` says that `e` lies within 32 bits; a comparison must hold, of constants by their
value, of others by the ranges of variables. A constant that only replacement and conditions name is chosen
by who applies the rule: the proof is for every choice.

Laws are rules too, which hold in both directions; they justify normal forms (sorted operands, collected
products) instead of single rewrites.
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
    """What must hold: a comparison, or that an expression lies within 32 bits."""

    expr: Expr
    fits: bool


@dataclass(frozen=True)
class Rule:
    """`pattern` may be replaced by `replacement` where all of `where` hold."""

    name: str
    pattern: str
    replacement: str
    where: tuple[str, ...] = ()
    #: Both sides raise for the same values even if what names stand for can raise: the order stays.
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
        """What must hold."""
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
    """Whether a name of a rule stands for a constant."""
    return CONSTANTS.fullmatch(name) is not None


def _parse(text: str) -> Expr:
    names = set(_NAME.findall(text))
    return parse_expr(text, {n: BOOL if TRUTHS.fullmatch(n) else INT for n in names})


def _evaluated(expr: Expr) -> Iterator[str]:
    """Names of variables that are evaluated whatever the conditions in the expression say."""
    if isinstance(expr, Var):
        if not is_constant(expr.name):
            yield expr.name
    elif isinstance(expr, Apply):
        first_only = expr.op in (Op.SELECT, Op.AND, Op.OR)
        for argument in expr.args[: 1 if first_only else None]:
            yield from _evaluated(argument)


def _read(text: str) -> dict[str, tuple[Rule, ...]]:
    """The rules of `rules.txt` by group."""
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


#: Groups of rules by name; the first three are laws.
GROUPS = _read(Path(__file__).with_name("rules.txt").read_text())
LAWS = tuple(r for name in ("ring", "lattice", "logic") for r in GROUPS[name])
BY_NAME = {r.name: r for rules in GROUPS.values() for r in rules}
RULES = tuple(r for r in BY_NAME.values() if r not in LAWS)
