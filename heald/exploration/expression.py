"""Formulas of a space: a subset of Python expressions, evaluated for numbers and for ranges of numbers.

Integers and decimals, text (only compared), names, `+ - * / // % **`, comparisons, `and or not`, `x if c else
y`, and `min`, `max`, `abs`, `log2`. Nothing else is accepted, and nothing is executed.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from hw.errors import InputError, unknown

Number = int | float
Value = int | float | str

#: Limits on length, nesting, exponents and numbers keep formulas fast to evaluate.
LONGEST, DEEPEST, MOST_EXPONENT, MOST = 1000, 50, 64, 1 << 128
#: Functions, with their minimum number of arguments.
FUNCTIONS: Mapping[str, int] = {"min": 2, "max": 2, "abs": 1, "log2": 1}

_OPERATORS: Mapping[type[ast.operator], Callable[[Number, Number], Number]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.Div: lambda a, b: a / b,
    ast.FloorDiv: lambda a, b: a // b,
    ast.Mod: lambda a, b: a % b,
    ast.Pow: lambda a, b: a**b,
}
_COMPARISONS = (ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE)
_BEYOND = "a number is beyond 128 bits"


class Range(NamedTuple):
    """The range of a number, ends included; truth values are 0 and 1."""

    low: Number
    high: Number


#: Possible values of an expression: a range of numbers, or a set of texts.
Possible = Range | frozenset[str]
ANYTHING, FALSE, TRUE, EITHER = Range(-math.inf, math.inf), Range(0, 0), Range(1, 1), Range(0, 1)


@dataclass(frozen=True)
class Formula:
    """A parsed formula: its text, the names in it, and the syntax tree."""

    text: str
    names: frozenset[str]
    tree: ast.expr

    def value(self, values: Mapping[str, Value]) -> Value:
        """Its value; truth is 0 or 1. Raises `InputError` if there is none, as in a division by zero."""
        known = {name: exact(values[name]) for name in self.names}
        try:
            found = _Evaluation(known, strict=True).possible(self.tree)
            return found.low if isinstance(found, Range) else next(iter(found))
        except (ArithmeticError, ValueError, TypeError) as error:
            given = ", ".join(f"{n} = {values[n]}" for n in sorted(self.names))
            raise InputError(f"{self.text!r} has no value where {given or 'it stands'}: {error}") from None

    def possible(self, values: Mapping[str, Possible]) -> Possible:
        """A range that holds all its values while names stay in theirs."""
        return _Evaluation(values, strict=False).possible(self.tree)


def parse(text: object, known: Collection[str], place: str, *, comparison: bool = False) -> Formula:
    """Parse a formula over `known` names; with `comparison`, it must be true or false.

    Raises `InputError` that begins with `place` for text that is no formula, and for unknown names.
    """
    if not isinstance(text, str):
        raise InputError(f'{place}: must be a formula as text, such as "2 * rows", not {text!r}')
    if len(text) > LONGEST:
        raise InputError(f"{place}: a formula must have at most {LONGEST} characters, not {len(text)}")
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise InputError(f"{place}: {text!r} is not a formula (docs/explore.md)") from None
    _check(tree, text, place, 0)
    names = frozenset(n.id for n in ast.walk(tree) if isinstance(n, ast.Name)) - FUNCTIONS.keys()
    if others := sorted(names - set(known)):
        raise InputError(f"{place}: {unknown('name', others[0], known)} (in {text!r})")
    negates = isinstance(tree, ast.UnaryOp) and isinstance(tree.op, ast.Not)
    if comparison and not negates and not isinstance(tree, ast.Compare | ast.BoolOp):
        raise InputError(f'{place}: must compare something, as "a <= b" does, not {text!r}')
    return Formula(text.strip(), names, tree)


def _check(tree: ast.AST, text: str, place: str, depth: int) -> None:
    """Raise `InputError` for any node that formulas do not have."""
    inner: Sequence[ast.AST] = ()
    match tree:
        case ast.Constant(value=bool()):
            _refuse(tree, text, place)
        case ast.Constant(value=int() | float() as number) if abs(number) > MOST:
            raise InputError(f"{place}: a number in {text!r} is beyond 128 bits")
        case ast.Constant(value=int() | float() | str()) | ast.Name():
            pass
        case ast.BinOp(left, operator, right) if type(operator) in _OPERATORS:
            inner = (left, right)
        case ast.UnaryOp(ast.USub() | ast.UAdd() | ast.Not(), operand):
            inner = (operand,)
        case ast.BoolOp(_, values):
            inner = values
        case ast.Compare(left, operators, right_hand) if all(isinstance(o, _COMPARISONS) for o in operators):
            inner = (left, *right_hand)
        case ast.IfExp(test, body, orelse):
            inner = (test, body, orelse)
        case ast.Call(ast.Name(name), arguments, []) if name in FUNCTIONS:
            least = FUNCTIONS[name]
            if len(arguments) < least or (least == 1 and len(arguments) > 1):
                many = "1 argument" if least == 1 else f"{least} arguments or more"
                raise InputError(f"{place}: {name} in {text!r} takes {many}")
            inner = arguments
        case _:
            _refuse(tree, text, place)
    if depth > DEEPEST:
        raise InputError(f"{place}: a formula must nest at most {DEEPEST} deep")
    for node in inner:
        _check(node, text, place, depth + 1)


def _refuse(tree: ast.AST, text: str, place: str) -> None:
    known = f"numbers, names, + - * / // % **, comparisons, and, or, not, if else, {', '.join(FUNCTIONS)}"
    try:
        part = ast.unparse(tree)
    except RecursionError:
        part = text
    raise InputError(f"{place}: {part!r} in {text!r} is not part of formulas, which have {known}")


# Evaluation over ranges; a single value is a range too


@dataclass(frozen=True)
class _Evaluation:
    """The possible values of a formula, given those of its names.

    With `strict`, all names have one value, and an undefined result raises an error. Otherwise, it may be
    anything.
    """

    values: Mapping[str, Possible]
    strict: bool

    def possible(self, tree: ast.expr) -> Possible:
        match tree:
            case ast.Constant(str() | int() | float() as value):
                return exact(value)
            case ast.Name(name):
                return self.values[name]
            case ast.BinOp(left, operator, right):
                return self._guarded(_arithmetic, operator, self._range(left), self._range(right))
            case ast.UnaryOp(ast.Not(), operand):
                return _negated(_truth(self.possible(operand)))
            case ast.UnaryOp(sign, operand):
                found = self._range(operand)
                return Range(-found.high, -found.low) if isinstance(sign, ast.USub) else found
            case ast.BoolOp(ast.And(), parts):
                return _all(_truth(self.possible(part)) for part in parts)
            case ast.BoolOp(_, parts):
                return _negated(_all(_negated(_truth(self.possible(part))) for part in parts))
            case ast.Compare(left, operators, rest):
                sides = [self.possible(x) for x in (left, *rest)]
                pairs = zip(operators, sides, sides[1:], strict=False)
                return _all(self._guarded(_comparison, *pair) for pair in pairs)
            case ast.IfExp(test, body, orelse):
                return self._either(_truth(self.possible(test)), body, orelse)
            case ast.Call(ast.Name(name), arguments):
                return self._guarded(_call, name, *(self._range(a) for a in arguments))
        raise AssertionError(ast.dump(tree))

    def _range(self, tree: ast.expr) -> Range:
        """A value as a range; text raises `TypeError` if `strict`, and else counts as any number."""
        found = self.possible(tree)
        if isinstance(found, Range):
            return found
        if self.strict:
            raise TypeError(_text_only(found))
        return ANYTHING

    def _guarded(self, function: Callable[..., Range], *arguments: Any) -> Range:
        """The result of a function, or the widest range if it may be undefined."""
        try:
            return function(*arguments)
        except (ArithmeticError, ValueError, TypeError):
            if self.strict:
                raise
            return EITHER if function is _comparison else ANYTHING

    def _either(self, test: Range, body: ast.expr, orelse: ast.expr) -> Possible:
        if test != EITHER:
            return self.possible(body if test == TRUE else orelse)
        a, b = self.possible(body), self.possible(orelse)
        if isinstance(a, Range) and isinstance(b, Range):
            return Range(min(a.low, b.low), max(a.high, b.high))
        return a | b if not isinstance(a, Range) and not isinstance(b, Range) else ANYTHING


def exact(value: Value) -> Possible:
    """A single value as `Possible`."""
    return frozenset((value,)) if isinstance(value, str) else Range(value, value)


def _truth(found: Possible) -> Range:
    if isinstance(found, Range):
        if found.low > 0 or found.high < 0:
            return TRUE
        return FALSE if found == (0, 0) else EITHER
    return EITHER if len(found) > 1 else TRUE if any(found) else FALSE


def _negated(truth: Range) -> Range:
    return Range(1 - truth.high, 1 - truth.low)


def _all(truths: Iterable[Range]) -> Range:
    """Whether all hold; evaluation stops at the first that fails."""
    found = TRUE
    for truth in truths:
        found = Range(min(found.low, truth.low), min(found.high, truth.high))
        if found == FALSE:
            break
    return found


def _arithmetic(operator: ast.operator, a: Range, b: Range) -> Range:
    """The range of an operation; raises `ArithmeticError` and `ValueError` if it may be undefined."""
    single = a.low == a.high and b.low == b.high
    if not single:
        if isinstance(operator, ast.Div | ast.FloorDiv | ast.Mod) and b.low <= 0 <= b.high:
            return ANYTHING
        if isinstance(operator, ast.Mod):
            return Range(0, b.high) if b.low > 0 else ANYTHING
        if isinstance(operator, ast.Pow) and (a.low < 1 or b.low < 0):
            return ANYTHING
    corners = [_applied(operator, x, y) for x in dict.fromkeys(a) for y in dict.fromkeys(b)]
    # Infinity times 0, or infinity minus infinity, is not a number.
    if any(math.isnan(c) for c in corners) or (single and abs(corners[0]) > MOST):
        raise OverflowError(_BEYOND)
    return Range(min(corners), max(corners))


def _applied(operator: ast.operator, a: Number, b: Number) -> Number:
    if isinstance(operator, ast.Pow) and (abs(b) > MOST_EXPONENT or (a < 0 and b != int(b))):
        raise ValueError(
            f"exponents must be -{MOST_EXPONENT} to {MOST_EXPONENT}, of whole numbers where negative"
        )
    result = _OPERATORS[type(operator)](a, b)
    if isinstance(result, int) and abs(result) > MOST:
        raise OverflowError(_BEYOND)
    return result


def _comparison(operator: ast.cmpop, a: Possible, b: Possible) -> Range:
    """The result of a comparison; raises `TypeError` for text, except in equality with text."""
    if isinstance(a, Range) and isinstance(b, Range):
        return _compared(operator, a, b)
    if isinstance(a, Range) or isinstance(b, Range):
        raise TypeError(f"{_shown(a)} and {_shown(b)} cannot be compared")
    if not isinstance(operator, ast.Eq | ast.NotEq):
        raise TypeError(_text_only(a))
    same = TRUE if len(a) == 1 and a == b else EITHER if a & b else FALSE
    return same if isinstance(operator, ast.Eq) else _negated(same)


def _compared(operator: ast.cmpop, a: Range, b: Range) -> Range:
    if isinstance(operator, ast.Eq | ast.NotEq):
        meet = a.low <= b.high and b.low <= a.high
        found = Range(int(a.low == a.high == b.low == b.high), int(meet))
    else:
        # a > b is b < a, and a <= b is the opposite of that.
        if isinstance(operator, ast.Gt | ast.LtE):
            a, b = b, a
        found = Range(int(a.high < b.low), int(a.low < b.high))
    return _negated(found) if isinstance(operator, ast.NotEq | ast.LtE | ast.GtE) else found


def _shown(found: Possible) -> str:
    """A single value as shown in messages."""
    return repr(next(iter(found)))


def _text_only(found: Possible) -> str:
    return f"{_shown(found)} is text, which can only be compared for equality"


def _call(name: str, *found: Range) -> Range:
    if name == "abs":
        low, high = found[0]
        ends = abs(low), abs(high)
        return Range(0 if low < 0 < high else min(ends), max(ends))
    rising: dict[str, Callable[..., Number]] = {"min": min, "max": max, "log2": _log2}
    return Range(*(rising[name](*ends) for ends in zip(*found, strict=True)))


def _log2(number: Number) -> Number:
    found = math.log2(number)
    return int(found) if found == int(found) else found
