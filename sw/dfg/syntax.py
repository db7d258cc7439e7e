"""Helpers for translating Python functions: locations, module-level names, statement forms."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hw.fabric.fabric import MOST_LANES
from hw.fabric.operations import WIDE
from sw.dfg.operations import OPERATIONS
from sw.ir import parse
from sw.ir.errors import IRError
from sw.ir.expression import Op
from sw.ir.syntax import Place, SourceText, source, whole

#: Integer functions by their names in a program, with their operations.
CALLS = {
    "abs": "abs",
    "clz": "clz",
    "mul_shift_round": "mul_shift_round",
    "mul_shift_round_even": "mul_shift_round_even",
    "requantise": "requantise",
    "requantise_even": "requantise_even",
    "requantise_sum": "requantise_sum",
    "requantise_sum_even": "requantise_sum_even",
    "shift_right_logical": "shr_logical",
}
#: Functions that require a fabric with several lanes; their operations have the same names.
OF_LANES = frozenset(name for name, operation in OPERATIONS.items() if operation.of_lanes)
#: The module-level name that sets the number of lanes, and its allowed values.
LANES, SEVERAL = "LANES", tuple(1 << i for i in range(1, MOST_LANES.bit_length()))
#: Operations by Python operator; division is restricted to powers of two.
BINARY = {kind: op.semantics.name for kind, op in parse.BINARY.items() if op not in (Op.DIV, Op.MOD)}
COMPARE = {kind: op.semantics.name for kind, op in parse.COMPARE.items()}
#: Names that a program cannot redefine.
RESERVED = frozenset({*CALLS, "min", "max", "range"})


@dataclass
class KernelText(SourceText):
    """The text of a file, and its module-level integers and tables by name."""

    #: Module-level names and the expressions assigned to them.
    names: Mapping[str, ast.expr]

    def unexpected(self, node: Place, expected: str) -> IRError:
        """Builds an error that quotes the node."""
        return self.error(node, source(node), expected)

    def variable(self, loop: ast.For) -> str:
        """The variable of a plain loop."""
        if loop.orelse:
            raise self.error(loop, "a `for` with `else`", "a plain `for`")
        if not isinstance(loop.target, ast.Name):
            raise self.unexpected(loop.target, "a name")
        return loop.target.id

    def lanes(self, function: ast.FunctionDef) -> int:
        """Number of lanes a function works on: 1 if it calls no lane function or the module sets none."""
        given = self.names.get(LANES)
        if given is None or not any(calls(function, OF_LANES)):
            return 1
        lanes = whole(given)
        if lanes not in SEVERAL:
            raise self.unexpected(given, f"{', '.join(map(str, SEVERAL))}: the numbers of lanes of a fabric")
        return lanes


def module_names(module: ast.Module) -> dict[str, ast.expr]:
    """The expressions that module-level assignments set; the last one counts, as in Python."""
    found: dict[str, ast.expr] = {}
    for statement in module.body:
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                found[name] = value
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                found[name] = value
    return found


def assigned(statements: Iterable[ast.AST]) -> list[str]:
    """The names that statements set, including loop variables, in text order."""
    found = [
        node.id
        for statement in inner(statements)
        for field in ("targets", "target")
        for target in _listed(getattr(statement, field, ()))
        for node in ast.walk(target)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    ]
    return list(dict.fromkeys(found))


def inner(statements: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """Yields statements and those nested in them, outer ones first; kernels nest only in these two fields."""
    for statement in statements:
        yield statement
        for field in ("body", "orelse"):
            yield from inner(_listed(getattr(statement, field, ())))


def _listed(held: Any) -> Sequence[ast.AST]:
    return held if isinstance(held, list | tuple) else [held]


def indexed(function: ast.FunctionDef) -> set[str]:
    """Names that are indexed anywhere in a function."""
    bases = [node.value for node in ast.walk(function) if isinstance(node, ast.Subscript)]
    bases += [call.args[0] for call in calls(function, WIDE) if call.args]
    return {base.id for base in bases if isinstance(base, ast.Name)}


def calls(function: ast.FunctionDef, names: Collection[str]) -> Iterator[ast.Call]:
    """Yields the calls of functions with these names."""
    for node in ast.walk(function):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in names:
            yield node


def loops(statements: Iterable[ast.AST]) -> Iterator[ast.For]:
    """Yields all `for` loops, outer ones first."""
    return (node for node in inner(statements) if isinstance(node, ast.For))


def trip(loop: ast.For) -> ast.expr | None:
    """The argument of a `range()` that has only one, else None."""
    match loop.iter:
        case ast.Call(func=ast.Name(id="range"), args=[stop], keywords=[]):
            return stop
    return None
