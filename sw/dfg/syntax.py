"""Places, module-level names and shapes of statements of a Python function that becomes graphs."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from sw.ir.errors import IRError, Location
from sw.ir.syntax import Place, byte_lines, source

#: Functions of integers by their names in a program, and the operations they are.
CALLS = {
    "abs": "abs",
    "clz": "clz",
    "mul_shift_round": "mul_shift_round",
    "mul_shift_round_even": "mul_shift_round_even",
    "shift_right_logical": "shr_logical",
}
BINARY = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.BitAnd: "and",
    ast.BitOr: "or",
    ast.BitXor: "xor",
    ast.LShift: "shl",
    ast.RShift: "shr",
}
COMPARE = {
    ast.Lt: "lt",
    ast.LtE: "le",
    ast.Gt: "gt",
    ast.GtE: "ge",
    ast.Eq: "eq",
    ast.NotEq: "ne",
}
#: Names that a program cannot give anything else.
RESERVED = frozenset({*CALLS, "min", "max", "range"})


@dataclass(frozen=True)
class KernelText:
    """The text of a file, and what it says outside of functions: integers and tables by name."""

    file: str
    text: str
    #: Names that are set outside of functions, and to what.
    names: Mapping[str, ast.expr]

    def at(self, node: Place) -> Location:
        """Where something stands; columns count characters."""
        column, lines = node.col_offset, byte_lines(self.text)
        if lines is not None and node.lineno <= len(lines):
            column = len(lines[node.lineno - 1][:column].decode("utf-8", "replace"))
        return Location(self.file, node.lineno, column + 1)

    def error(self, node: Place, found: str, expected: str) -> IRError:
        """An error at this place."""
        return IRError(self.at(node), found, expected)

    def unexpected(self, node: Place, expected: str) -> IRError:
        """An error that shows the piece."""
        return self.error(node, source(node), expected)


def module_names(module: ast.Module) -> dict[str, ast.expr]:
    """What assignments outside of functions set; the last one counts, as in Python."""
    found: dict[str, ast.expr] = {}
    for statement in module.body:
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                found[name] = value
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                found[name] = value
    return found


def assigned(statements: Iterable[ast.AST]) -> list[str]:
    """The names that statements set, loops' variables too, in the order of the text."""
    found = [
        node.id
        for statement in statements
        for node in ast.walk(statement)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    ]
    return list(dict.fromkeys(found))


def indexed(function: ast.FunctionDef) -> set[str]:
    """The names that are indexed anywhere in a function."""
    return {
        node.value.id
        for node in ast.walk(function)
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name)
    }


def loops(statements: Iterable[ast.AST]) -> Iterator[ast.For]:
    """All `for` loops, outer ones first."""
    for statement in statements:
        for node in ast.walk(statement):
            if isinstance(node, ast.For):
                yield node


def trip(loop: ast.For) -> ast.expr | None:
    """The argument of a `range()` with only one."""
    match loop.iter:
        case ast.Call(func=ast.Name(id="range"), args=[stop], keywords=[]):
            return stop
    return None
