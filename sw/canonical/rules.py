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


RING = (
    Rule("add commutes", "x + y", "y + x"),
    Rule("add associates", "(x + y) + z", "x + (y + z)"),
    Rule("multiply commutes", "x * y", "y * x"),
    Rule("multiply associates", "(x * y) * z", "x * (y * z)"),
    Rule("multiply distributes", "x * (y + z)", "x * y + x * z"),
    Rule("add nothing", "x + 0", "x"),
    Rule("multiply by one", "x * 1", "x"),
    Rule("multiply by zero", "x * 0", "0"),
    Rule("subtract as add", "x - y", "x + y * (-1)"),
)
LATTICE = (
    Rule("min commutes", "min(x, y)", "min(y, x)"),
    Rule("max commutes", "max(x, y)", "max(y, x)"),
    Rule("min associates", "min(min(x, y), z)", "min(x, min(y, z))"),
    Rule("max associates", "max(max(x, y), z)", "max(x, max(y, z))"),
    Rule("and of bits commutes", "x & y", "y & x"),
    Rule("and of bits associates", "(x & y) & z", "x & (y & z)"),
    Rule("min absorbs max", "min(x, max(x, y))", "x"),
    Rule("max absorbs min", "max(x, min(x, y))", "x"),
    Rule("min distributes", "min(max(x, y), z)", "max(min(x, z), min(y, z))"),
    Rule("or of bits commutes", "x | y", "y | x"),
    Rule("or of bits associates", "(x | y) | z", "x | (y | z)"),
    Rule("xor commutes", "x ^ y", "y ^ x"),
    Rule("xor associates", "(x ^ y) ^ z", "x ^ (y ^ z)"),
)
LOGIC = (
    Rule("and commutes", "p and q", "q and p"),
    Rule("and associates", "(p and q) and r", "p and (q and r)"),
    Rule("or commutes", "p or q", "q or p"),
    Rule("or associates", "(p or q) or r", "p or (q or r)"),
    Rule("and twice", "p and p", "p"),
    Rule("or twice", "p or p", "p"),
    Rule("not of and", "not (p and q)", "not p or not q"),
    Rule("not of or", "not (p or q)", "not p and not q"),
    Rule("not twice", "not not p", "p"),
    Rule("and with true", "True and p", "p"),
    Rule("and with false", "False and p", "False"),
    Rule("or with false", "False or p", "p"),
    Rule("or with true", "True or p", "True"),
    Rule("not less", "not (x < y)", "y <= x"),
    Rule("not at most", "not (x <= y)", "y < x"),
    Rule("not equal", "not (x == y)", "x != y"),
    Rule("greater", "x > y", "y < x"),
    Rule("at least", "x >= y", "y <= x"),
    Rule("equal truths to true", "p == True", "p"),
    Rule("equal truths to false", "p == False", "not p"),
    Rule("equal truths commute", "p == q", "q == p"),
    Rule("equal truth to itself", "p == p", "True"),
    Rule("unequal truths", "p != q", "not (p == q)"),
    Rule("equal truths, one negated", "not p == q", "not (p == q)"),
    Rule("contradiction", "p and not p", "False"),
    Rule("absorption", "p and (p or q)", "p"),
    Rule("resolution", "p and (not p or q)", "p and q"),
    Rule("common disjunct", "(p or q) and (p or r)", "p or (q and r)"),
)

BITS = (
    Rule("shift left", "x << c", "x * (1 << c)"),
    Rule("shift right", "x >> c", "x // (1 << c)", ("0 <= c", "fits(1 << c)")),
    Rule("mask", "x & c", "x % (c + 1)", ("0 <= c", "c & (c + 1) == 0", "fits(c + 1)")),
    Rule("and with itself", "x & x", "x"),
    Rule("or with itself", "x | x", "x"),
    Rule("xor with itself", "x ^ x", "0"),
    Rule("and with zero", "x & 0", "0"),
    Rule("and with ones", "x & (-1)", "x"),
    Rule("or with zero", "x | 0", "x"),
    Rule("or with ones", "x | (-1)", "-1"),
    Rule("xor with zero", "x ^ 0", "x"),
    Rule("and absorbs or", "x & (x | y)", "x"),
    Rule("or absorbs and", "x | (x & y)", "x"),
    Rule("shift nothing left", "0 << x", "0"),
    Rule("shift nothing right", "0 >> x", "0"),
)
DIVISION = (
    Rule("divide by one", "x // 1", "x"),
    Rule("divide by minus one", "x // (-1)", "x * (-1)"),
    Rule("divide by a negative", "x // c", "(x * (-1)) // (0 - c)", ("c < 0", "fits(0 - x)", "fits(0 - c)")),
    Rule("quotient known", "x // c", "k", ("0 < c", "k * c <= x", "x <= k * c + (c - 1)")),
    Rule("quotient zero", "x // y", "0", ("0 <= x", "x < y")),
    Rule("multiple of the divisor", "(x * z + y) // z", "x + y // z", ("0 <= z", "fits(x * z + y)")),
    Rule("nothing divided", "0 // x", "0", ("x != 0",)),
    Rule("nested quotient", "x // c // k", "x // (c * k)", ("0 < c", "0 < k", "fits(c * k)")),
    Rule("upper half", "(x + 1) // 2", "x - x // 2", ("fits(x + 1)",)),
    Rule("quotient of a negative", "(c - 1 - x) // c", "x // c * (-1)", ("0 < c", "fits(c - 1 - x)")),
    Rule("min divided", "min(x, y) // c", "min(x // c, y // c)", ("0 < c",)),
    Rule("max divided", "max(x, y) // c", "max(x // c, y // c)", ("0 < c",)),
    Rule("remainder", "x % y", "x - y * (x // y)"),
    Rule(
        "multiple of a power of two",
        "(x * c1 + y) % c2",
        "y % c2",
        ("0 < c2", "c2 & (c2 - 1) == 0", "c1 % c2 == 0"),
    ),
    Rule("remainder by one", "x % 1", "0"),
)
MINMAX = (
    Rule("smaller known", "min(x, y)", "x", ("x <= y",)),
    Rule("larger known", "max(x, y)", "y", ("x <= y",)),
    Rule("min, common summand", "min(x + t, y + t)", "min(x, y) + t", ("fits(x + t)", "fits(y + t)")),
    Rule("max, common summand", "max(x + t, y + t)", "max(x, y) + t", ("fits(x + t)", "fits(y + t)")),
    Rule("min, common factor", "min(x * c, y * c)", "min(x, y) * c", ("0 < c", "fits(x * c)", "fits(y * c)")),
    Rule("max, common factor", "max(x * c, y * c)", "max(x, y) * c", ("0 < c", "fits(x * c)", "fits(y * c)")),
    Rule("min, negated", "min(x * (-1), y * (-1))", "max(x, y) * (-1)", ("fits(0 - x)", "fits(0 - y)")),
    Rule("max, negated", "max(x * (-1), y * (-1))", "min(x, y) * (-1)", ("fits(0 - x)", "fits(0 - y)")),
    Rule("max from min", "max(x, y)", "x + y - min(x, y)"),
    Rule("min from max", "min(x, y)", "x + y - max(x, y)"),
    Rule("min times max", "min(x, y) * max(x, y)", "x * y"),
    Rule("min of max", "min(max(x, y), max(x, z))", "max(x, min(y, z))"),
    Rule("max of min", "max(min(x, y), min(x, z))", "min(x, max(y, z))"),
    Rule("min of choices", "min(x if p else y, z if p else t)", "min(x, z) if p else min(y, t)"),
    Rule("min of a choice", "min(x if p else y, z)", "min(x, z) if p else min(y, z)"),
    Rule("max of a choice", "max(x if p else y, z)", "max(x, z) if p else max(y, z)"),
    Rule("max of choices", "max(x if p else y, z if p else t)", "max(x, z) if p else max(y, t)"),
)
CHOICE = (
    Rule("merge by or", "x if p else (x if q else y)", "x if (p or q) else y", lazy=True),
    Rule("merge by or not", "x if p else (y if q else x)", "x if (p or not q) else y", lazy=True),
    Rule("merge by not or", "(x if q else y) if p else x", "x if (not p or q) else y", lazy=True),
    Rule("merge by and", "(y if q else x) if p else x", "y if (p and q) else x", lazy=True),
    Rule("merge truths by or", "r if p else (r if q else r1)", "r if (p or q) else r1", lazy=True),
    Rule("merge truths by or not", "r if p else (r1 if q else r)", "r if (p or not q) else r1", lazy=True),
    Rule("merge truths by not or", "(r if q else r1) if p else r", "r if (not p or q) else r1", lazy=True),
    Rule("merge truths by and", "(r1 if q else r) if p else r", "r1 if (p and q) else r", lazy=True),
    Rule("same choice inside", "(x if p else y) if p else z", "x if p else z"),
    Rule("same choice inside the other", "x if p else (y if p else z)", "x if p else z"),
    Rule("choice by true", "x if True else y", "x"),
    Rule("choice by false", "x if False else y", "y"),
    Rule("choice of truths by true", "q if True else r", "q"),
    Rule("choice of truths by false", "q if False else r", "r"),
    Rule("choice without difference", "x if p else x", "x"),
    Rule("choice of truths without difference", "q if p else q", "q"),
    Rule("negated choice", "x if not p else y", "y if p else x"),
    Rule("negated choice of truths", "q if not p else r", "r if p else q"),
    Rule("choice is or", "True if p else q", "p or q"),
    Rule("choice is and", "q if p else False", "p and q"),
    Rule("choice is not and", "False if p else q", "not p and q"),
    Rule("choice is not or", "q if p else True", "not p or q"),
    Rule("not of a choice", "not (q if p else r)", "not q if p else not r"),
    Rule("choice, common summand", "x + t if p else y + t", "(x if p else y) + t"),
    Rule("sum of choices", "(x if p else y) + (z if p else t)", "x + z if p else y + t"),
    Rule("choice, common factor", "(x if p else y) * c", "x * c if p else y * c"),
    Rule("turned choice", "x if p else y", "x + y - (y if p else x)"),
    Rule("choice is min", "x if x <= y else y", "min(x, y)"),
    Rule("strict choice is min", "x if x < y else y", "min(x, y)"),
    Rule("choice is max", "x if y <= x else y", "max(x, y)"),
    Rule("strict choice is max", "x if y < x else y", "max(x, y)"),
)
COMPARISON = (
    Rule("value known", "x", "k", ("k <= x", "x <= k")),
    Rule("at most, known", "x <= y", "True", ("x <= y",)),
    Rule("above, known", "x <= y", "False", ("y < x",)),
    Rule("less, known", "x < y", "True", ("x < y",)),
    Rule("not less, known", "x < y", "False", ("y <= x",)),
    Rule("equal to itself", "x == x", "True"),
    Rule("equality, below", "x == y", "False", ("x < y",)),
    Rule("equality, above", "x == y", "False", ("y < x",)),
    Rule("less as at most", "x < y", "x <= y + (-1)", ("fits(y - 1)",)),
    Rule("at most, common summand", "x + t <= y + t", "x <= y", ("fits(x + t)", "fits(y + t)")),
    Rule(
        "at most, common factor",
        "k <= x * g",
        "(k + (g - 1)) // g <= x",
        ("0 < g", "fits(x * g)", "fits(k + (g - 1))"),
    ),
    Rule("at most, common factor above", "x * g <= k", "x <= k // g", ("0 < g", "fits(x * g)")),
    Rule("at most at the end", "y <= x", "x == y", ("x <= y",)),
    Rule("at most from the end", "x <= y", "x != y + 1", ("x <= y + 1", "fits(y + 1)")),
    Rule("equality, common summand", "x + t == y + t", "x == y"),
    Rule("equality, negated", "x * (-1) == y * (-1)", "x == y"),
    Rule("equality, common factor", "x * g == y * g", "x == y", ("g != 0", "fits(x * g)", "fits(y * g)")),
    Rule("equality, no multiple", "x * g == k", "False", ("g != 0", "k % g != 0", "fits(x * g)")),
    Rule("product is zero", "x * y == 0", "x == 0 or y == 0", ("fits(x * y)",)),
    Rule("quotient at most", "x // c <= y", "x <= y * c + (c - 1)", ("0 < c", "fits(y * c + (c - 1))")),
    Rule("quotient at least", "y <= x // c", "y * c <= x", ("0 < c", "fits(y * c)")),
    Rule(
        "quotient equals",
        "x // c == y",
        "y * c <= x and x <= y * c + (c - 1)",
        ("0 < c", "fits(y * c)", "fits(y * c + (c - 1))"),
    ),
    Rule("product is zero for one", "x * y == 0", "x == 0", ("y != 0", "fits(x * y)")),
    Rule("positive factor", "0 <= x * y", "0 <= x", ("0 < y", "fits(x * y)")),
    Rule("negative factor", "0 <= x * y", "x <= 0", ("y < 0", "fits(x * y)")),
    Rule(
        "rest within one multiple",
        "0 <= x * g + y",
        "0 <= x + k",
        ("0 < g", "k * g <= y", "y <= k * g + (g - 1)", "fits(x * g + y)", "fits(x + k)"),
    ),
    Rule("rest is no multiple", "x * g + y == 0", "False", ("0 < y", "y < g", "fits(x * g + y)")),
    Rule("choice at least zero", "0 <= (x if p else y)", "0 <= x if p else 0 <= y"),
    Rule("choice is zero", "(x if p else y) == 0", "x == 0 if p else y == 0"),
    Rule("min is its operand", "min(x, y) == x", "x <= y"),
    Rule("max is its operand", "max(x, y) == x", "y <= x"),
    Rule("min is the other", "min(x, y) == z", "y == z", ("z < x",)),
    Rule("max is the other", "max(x, y) == z", "y == z", ("x < z",)),
    Rule("at most a min", "z <= min(x, y)", "z <= x and z <= y"),
    Rule("min at most", "min(x, y) <= z", "x <= z or y <= z"),
    Rule("max at most", "max(x, y) <= z", "x <= z and y <= z"),
    Rule("at most a max", "z <= max(x, y)", "z <= x or z <= y"),
)
INTERVALS = (
    Rule("both above", "c <= x and k <= x", "max(c, k) <= x"),
    Rule("both below", "x <= c and x <= k", "x <= min(c, k)"),
    Rule("empty interval", "c <= x and x <= k", "False", ("k < c",)),
    Rule("single value", "c <= x and x <= c", "x == c"),
    Rule("equal within", "x == c and x <= k", "x == c", ("c <= k",)),
    Rule("equal from", "x == c and k <= x", "x == c", ("k <= c",)),
    Rule("equal outside below", "x == c and k <= x", "False", ("c < k",)),
    Rule("equal outside above", "x == c and x <= k", "False", ("k < c",)),
    Rule("unequal outside below", "x != c and k <= x", "k <= x", ("c < k",)),
    Rule("unequal outside above", "x != c and x <= k", "x <= k", ("k < c",)),
    Rule("unequal at the lower end", "x != c and c <= x", "c + 1 <= x", ("fits(c + 1)",)),
    Rule("unequal at the upper end", "x != c and x <= c", "x <= c - 1", ("fits(c - 1)",)),
    Rule("equal and unequal", "x == c and x != k", "x == c", ("c != k",)),
    Rule("two values", "x == c and x == k", "False", ("c != k",)),
    Rule(
        "below, with remainder",
        "x <= c and x % g <= k",
        "x <= c // g * g + k and x % g <= k",
        ("0 < g", "0 <= k", "k < c % g", "fits(c - c % g + k)"),
    ),
    Rule(
        "above, with remainder",
        "c <= x and k <= x % g",
        "c // g * g + k <= x and k <= x % g",
        ("0 < g", "c % g < k", "k < g", "fits(c - c % g + k)"),
    ),
)

LAWS = (*RING, *LATTICE, *LOGIC)
RULES = (*BITS, *DIVISION, *MINMAX, *CHOICE, *COMPARISON, *INTERVALS)
BY_NAME = {r.name: r for r in (*LAWS, *RULES)}
