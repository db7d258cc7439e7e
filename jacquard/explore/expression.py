"""Formulas of a space: a small part of Python's expressions, evaluated for numbers and for ranges of numbers.

Whole and decimal numbers, text (only compared), names, `+ - * / // % **`, comparisons, `and or not`,
`x if c else y`, and `min`, `max`, `abs`, `log2`. Nothing else is accepted, and nothing is executed.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from hw.errors import InputError

Number = int | float
Value = int | float | str

#: Longest formula, deepest nesting, greatest exponent and greatest number: formulas stay quick to evaluate.
LONGEST, DEEPEST, MOST_EXPONENT, MOST = 1000, 50, 64, 1 << 128
#: Functions, with how many arguments they take at least.
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
_COMPARISONS: Mapping[type[ast.cmpop], Callable[[Value, Value], bool]] = {
    ast.Eq: lambda a, b: a == b,
    ast.NotEq: lambda a, b: a != b,
    ast.Lt: lambda a, b: a < b,  # type: ignore[operator]
    ast.LtE: lambda a, b: a <= b,  # type: ignore[operator]
    ast.Gt: lambda a, b: a > b,  # type: ignore[operator]
    ast.GtE: lambda a, b: a >= b,  # type: ignore[operator]
}


class Range(NamedTuple):
    """All that a number may be, ends included; truth is 0 and 1."""

    low: Number
    high: Number


#: What an expression may be: a range of numbers, or one of several texts.
Possible = Range | frozenset[str]
ANYTHING, FALSE, TRUE, EITHER = Range(-math.inf, math.inf), Range(0, 0), Range(1, 1), Range(0, 1)


@dataclass(frozen=True)
class Formula:
    """A formula that was read: its text, the names in it, and the syntax tree."""

    text: str
    names: frozenset[str]
    tree: ast.expr

    def value(self, values: Mapping[str, Value]) -> Value:
        """Its value; truth is 0 or 1. Raises `InputError` for what has none, such as a division by zero."""
        try:
            return _value(self.tree, values)
        except (ArithmeticError, ValueError, TypeError) as error:
            given = ", ".join(f"{n} = {values[n]}" for n in sorted(self.names))
            raise InputError(f"{self.text!r} has no value where {given or 'it stands'}: {error}") from None

    def possible(self, values: Mapping[str, Possible]) -> Possible:
        """A range that holds every value it has while names stay in theirs."""
        return _possible(self.tree, values)


def parse(text: object, known: Collection[str], place: str, *, comparison: bool = False) -> Formula:
    """Read a formula in `known` names; with `comparison` it must say what is true or false.

    Raises `InputError` that begins with `place` for text that is no formula, and for unknown names.
    """
    if not isinstance(text, str):
        raise InputError(f'{place}: must be a formula as text, such as "2 * rows", not {text!r}')
    if len(text) > LONGEST:
        raise InputError(f"{place}: a formula must have at most {LONGEST} characters, not {len(text)}")
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise InputError(f"{place}: {text!r} is no formula (docs/explore.md)") from None
    _check(tree, text, place, 0)
    names = frozenset(n.id for n in ast.walk(tree) if isinstance(n, ast.Name)) - FUNCTIONS.keys()
    unknown = sorted(names - set(known))
    if unknown:
        raise InputError(f"{place}: unknown name {unknown[0]!r} in {text!r}; known are {', '.join(known)}")
    if comparison and not isinstance(tree, ast.Compare | ast.BoolOp) and not _negated(tree):
        raise InputError(f'{place}: must compare something, as "a <= b" does, not {text!r}')
    return Formula(text.strip(), names, tree)


def _negated(tree: ast.expr) -> bool:
    return isinstance(tree, ast.UnaryOp) and isinstance(tree.op, ast.Not)


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
        case ast.Compare(left, operators, right_hand) if all(type(o) in _COMPARISONS for o in operators):
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


# Values


def _value(tree: ast.expr, values: Mapping[str, Value]) -> Value:
    match tree:
        case ast.Constant(value):
            assert isinstance(value, int | float | str)
            return value
        case ast.Name(name):
            return values[name]
        case ast.BinOp(left, operator, right):
            number = _applied(operator, _number(left, values), _number(right, values))
            if not abs(number) <= MOST:  # also infinity, and what is no number
                raise OverflowError("a number is beyond 128 bits")
            return number
        case ast.UnaryOp(ast.Not(), operand):
            return int(not _value(operand, values))
        case ast.UnaryOp(sign, operand):
            return -_number(operand, values) if isinstance(sign, ast.USub) else _number(operand, values)
        case ast.BoolOp(operator, parts):
            found = (bool(_value(part, values)) for part in parts)
            return int(all(found) if isinstance(operator, ast.And) else any(found))
        case ast.Compare(left, operators, rest):
            return int(_compared([_value(x, values) for x in (left, *rest)], operators))
        case ast.IfExp(test, body, orelse):
            return _value(body if _value(test, values) else orelse, values)
        case ast.Call(ast.Name(name), arguments):
            return _call(name, [_number(a, values) for a in arguments])
    raise AssertionError(ast.dump(tree))


def _number(tree: ast.expr, values: Mapping[str, Value]) -> Number:
    value = _value(tree, values)
    if isinstance(value, str):
        raise TypeError(f"{value!r} is text, of which only equality can be asked")
    return value


def _applied(operator: ast.operator, a: Number, b: Number) -> Number:
    if isinstance(operator, ast.Pow) and (abs(b) > MOST_EXPONENT or (a < 0 and b != int(b))):
        raise ValueError(
            f"exponents must be -{MOST_EXPONENT} to {MOST_EXPONENT}, of whole numbers where negative"
        )
    result = _OPERATORS[type(operator)](a, b)
    if isinstance(result, int) and abs(result) > MOST:
        raise OverflowError("a number is beyond 128 bits")
    return result


def _compared(found: Sequence[Value], operators: Sequence[ast.cmpop]) -> bool:
    for operator, a, b in zip(operators, found, found[1:], strict=False):
        if isinstance(a, str) != isinstance(b, str):
            raise TypeError(f"{a!r} and {b!r} cannot be compared")
        if isinstance(a, str) and not isinstance(operator, ast.Eq | ast.NotEq):
            raise TypeError(f"{a!r} is text, of which only equality can be asked")
        if not _COMPARISONS[type(operator)](a, b):
            return False
    return True


def _call(name: str, found: Sequence[Number]) -> Number:
    match name:
        case "min":
            return min(found)
        case "max":
            return max(found)
        case "abs":
            return abs(found[0])
    exact = math.log2(found[0])
    return int(exact) if exact == int(exact) else exact


# Ranges


def _possible(tree: ast.expr, values: Mapping[str, Possible]) -> Possible:
    match tree:
        case ast.Constant(str() as text):
            return frozenset((text,))
        case ast.Constant(value):
            assert isinstance(value, int | float)
            return Range(value, value)
        case ast.Name(name):
            return values[name]
        case ast.BinOp(left, operator, right):
            return _applied_ranges(operator, _range(left, values), _range(right, values))
        case ast.UnaryOp(ast.Not(), operand):
            low, high = _truth(_possible(operand, values))
            return Range(1 - high, 1 - low)
        case ast.UnaryOp(sign, operand):
            found = _range(operand, values)
            return Range(-found.high, -found.low) if isinstance(sign, ast.USub) else found
        case ast.BoolOp(operator, parts):
            truths = [_truth(_possible(part, values)) for part in parts]
            take = min if isinstance(operator, ast.And) else max
            return Range(take(t.low for t in truths), take(t.high for t in truths))
        case ast.Compare(left, operators, rest):
            found_all = [_possible(x, values) for x in (left, *rest)]
            pairs = zip(operators, found_all, found_all[1:], strict=False)
            truths = [_compared_ranges(o, a, b) for o, a, b in pairs]
            return Range(min(t.low for t in truths), min(t.high for t in truths))
        case ast.IfExp(test, body, orelse):
            return _either(_truth(_possible(test, values)), body, orelse, values)
        case ast.Call(ast.Name(name), arguments):
            return _call_ranges(name, [_range(a, values) for a in arguments])
    raise AssertionError(ast.dump(tree))


def _range(tree: ast.expr, values: Mapping[str, Possible]) -> Range:
    """Of text nothing is known: that is told when the value is asked for."""
    found = _possible(tree, values)
    return found if isinstance(found, Range) else ANYTHING


def _truth(found: Possible) -> Range:
    if not isinstance(found, Range):
        return EITHER
    if found.low > 0 or found.high < 0:
        return TRUE
    return FALSE if found == (0, 0) else EITHER


def _either(test: Range, body: ast.expr, orelse: ast.expr, values: Mapping[str, Possible]) -> Possible:
    if test == TRUE:
        return _possible(body, values)
    if test == FALSE:
        return _possible(orelse, values)
    a, b = _possible(body, values), _possible(orelse, values)
    if isinstance(a, Range) and isinstance(b, Range):
        return Range(min(a.low, b.low), max(a.high, b.high))
    return a | b if not isinstance(a, Range) and not isinstance(b, Range) else ANYTHING


def _applied_ranges(operator: ast.operator, a: Range, b: Range) -> Range:
    if isinstance(operator, ast.Div | ast.FloorDiv | ast.Mod) and b.low <= 0 <= b.high:
        return ANYTHING
    single = a.low == a.high and b.low == b.high
    if isinstance(operator, ast.Mod) and not single:
        return Range(0, b.high) if b.low > 0 else ANYTHING
    if isinstance(operator, ast.Pow) and not single and (a.low < 1 or b.low < 0):
        return ANYTHING
    try:
        corners = [_applied(operator, x, y) for x in a for y in b]
    except (ArithmeticError, ValueError):
        return ANYTHING
    # Infinity times nothing, or less infinity, is no number.
    return ANYTHING if any(math.isnan(c) for c in corners) else Range(min(corners), max(corners))


def _compared_ranges(operator: ast.cmpop, a: Possible, b: Possible) -> Range:
    if not isinstance(a, Range) or not isinstance(b, Range):
        if isinstance(a, Range) or isinstance(b, Range):
            return EITHER
        same = TRUE if len(a) == 1 and a == b else EITHER if a & b else FALSE
        if isinstance(operator, ast.Eq):
            return same
        return Range(1 - same.high, 1 - same.low) if isinstance(operator, ast.NotEq) else EITHER
    match operator:
        case ast.Lt():
            return _decided(a.high < b.low, a.low >= b.high)
        case ast.LtE():
            return _decided(a.high <= b.low, a.low > b.high)
        case ast.Gt():
            return _decided(a.low > b.high, a.high <= b.low)
        case ast.GtE():
            return _decided(a.low >= b.high, a.high < b.low)
    apart = a.high < b.low or b.high < a.low
    same = _decided(a.low == a.high == b.low == b.high, apart)
    return same if isinstance(operator, ast.Eq) else Range(1 - same.high, 1 - same.low)


def _decided(surely: bool, never: bool) -> Range:
    return TRUE if surely else FALSE if never else EITHER


def _call_ranges(name: str, found: Sequence[Range]) -> Range:
    first = found[0]
    match name:
        case "min":
            return Range(min(r.low for r in found), min(r.high for r in found))
        case "max":
            return Range(max(r.low for r in found), max(r.high for r in found))
        case "abs":
            ends = (abs(first.low), abs(first.high))
            return Range(0 if first.low <= 0 <= first.high else min(ends), max(ends))
    if first.low <= 0 or first.high == math.inf:
        return ANYTHING
    return Range(_call(name, [first.low]), _call(name, [first.high]))
