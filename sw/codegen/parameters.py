"""Hoists writes to parameter registers as far out of loops as all operations agree on the value.

A warp has one copy of each parameter register, which keeps its value. A write can move out of a loop in which
no operation needs another value and nothing changes the value's variables.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Set as AbstractSet

from hw import isa
from hw.errors import InputError
from sw.codegen.loops import trip_count
from sw.codegen.operands import UNSTATED, modified, parameters
from sw.ir.expression import Const, Expr, Op, apply
from sw.ir.expression import names as names_of
from sw.ir.program import Assign, For, If, Instruction, Statement, While
from sw.ir.ranges import bounds

#: By parameter: the value that a statement needs before it, or None if it needs several.
Wants = dict[str, Expr | None]

_MASK = (1 << 32) - 1


class Wanted:
    """The parameter values that each statement of a program needs.

    `mutable` names scalars whose values are unknown. A parameter of an operation that may not execute is cut
    to its width, unless its range shows that it fits, because a value too wide is an error even if nothing
    reads it. Mutable scalars are assumed to fit.
    """

    def __init__(self, mutable: set[str]):
        self.mutable = mutable
        self._known: dict[int, tuple[Statement, Wants]] = {}
        self._changes: dict[int, tuple[Statement, frozenset[str]]] = {}

    def of(self, statement: Statement) -> Wants:
        """The value that the statement, with everything nested in it, needs; None if they differ."""
        found = self._known.get(id(statement))
        if found is None:
            # Keep the statement with its result, so that its id is not reused.
            found = self._known[id(statement)] = statement, self._of(statement)
        return found[1]

    def changes(self, statement: Statement) -> frozenset[str]:
        """What the statement, with everything nested in it, changes, as `modified` returns it."""
        found = self._changes.get(id(statement))
        if found is None:
            found = self._changes[id(statement)] = statement, modified(statement, self.changes)
        return found[1]

    def _of(self, statement: Statement) -> Wants:
        match statement:
            case Instruction():
                return {name: self._safe(statement, name, e) for name, e in parameters(statement).items()}
            case For():
                wants = self._settled(statement, statement.body)
                certain = (trip_count(statement) or 0) > 0
                return wants if certain else {n: self._if_fits(n, e) for n, e in wants.items()}
            case If():
                both = self._settled(statement, (*statement.body, *statement.orelse))
                return {n: self._if_fits(n, e) for n, e in both.items()}
            case While():
                return dict.fromkeys(self._settled(statement, statement.body))
            case Assign():
                return {}

    def _settled(self, around: Statement, body: Iterable[Statement]) -> Wants:
        """The values that all statements of a body need, unless the body changes them."""
        found: Wants = {}
        for s in body:
            for name, expr in self.of(s).items():
                found[name] = expr if found.setdefault(name, expr) == expr else None
        changed = self.changes(around)
        return {n: None if e is None or _uses(e, changed) else e for n, e in found.items()}

    def _safe(self, i: Instruction, name: str, expr: Expr) -> Expr:
        return safe(i, name, expr) if self._if_fits(name, expr) is None else expr

    def _if_fits(self, name: str, expr: Expr | None) -> Expr | None:
        if expr is None or fits(name, expr) or not self.mutable.isdisjoint(names_of(expr)):
            return expr
        return None


def fits(name: str, expr: Expr) -> bool:
    """Whether a parameter register is wide enough for all values of an expression."""
    bits = isa.PARAMETERS[name].bits
    low, high = bounds(expr)
    return bits >= 32 or (low >= 0 and high < 1 << bits)


def safe(i: Instruction, name: str, expr: Expr) -> Expr:
    """The value to write for an operation: cut to its width if it might not fit.

    It is the same for all operations that need the same value, whatever their predicates.
    """
    if i.when is None or fits(name, expr):
        return expr
    limit = (1 << isa.PARAMETERS[name].bits) - 1
    return apply(Op.MAX, expr, 0) if bounds(expr)[1] <= limit else apply(Op.BIT_AND, expr, limit)


def check(program: str, name: str, expr: Expr) -> None:
    """Raises `InputError` for a constant that is too wide for a parameter register."""
    bits = isa.PARAMETERS[name].bits
    if isinstance(expr, Const) and not 0 <= (value := expr.value & _MASK) < 1 << bits:
        shown = expr.value if expr.value < 0 else value
        raise InputError(f"{program}: {name} must be 0 to {(1 << bits) - 1}, not {shown}")


class Held:
    """Contents of the parameter registers while code is emitted in order; None if unknown."""

    def __init__(self) -> None:
        self.values: dict[str, Expr | None] = {}

    def holds(self, name: str, expr: Expr) -> bool:
        """Whether the register holds that value."""
        return self.values.get(name, UNSTATED) == expr

    def forget(self, changed: AbstractSet[str]) -> None:
        """These variables have changed."""
        for name, expr in self.values.items():
            if not (expr is None or isinstance(expr, Const)) and _uses(expr, changed):
                self.values[name] = None

    def merge(self, other: dict[str, Expr | None]) -> None:
        """Control may come from here or from elsewhere."""
        for name in self.values.keys() | other.keys():
            if self.values.get(name, UNSTATED) != other.get(name, UNSTATED):
                self.values[name] = None


def _uses(expr: Expr, names: AbstractSet[str]) -> bool:
    return not names.isdisjoint(names_of(expr))
