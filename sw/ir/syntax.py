"""Python syntax as text form: parses it safely, and quotes pieces of it in messages."""

from __future__ import annotations

import ast
import contextlib
import gc
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sw.ir.errors import IRError, LimitError, Location

#: Maximum nesting of expressions and statements. Code that processes them recurses to the same depth.
DEEPEST = 100
#: Expression nodes that add a nesting level.
_NESTING = (ast.BoolOp, ast.Call, ast.Compare, ast.BinOp, ast.UnaryOp, ast.IfExp)
#: Most characters of program text quoted in a message.
_SHOWN = 100

Place = ast.expr | ast.stmt | ast.arg | ast.keyword


def python_tree(text: str, file: str, mode: str) -> ast.AST:
    """Parses any text to a syntax tree; every failure is an `IRError`."""
    try:
        with warnings.catch_warnings():
            # Python's warnings about odd code, such as invalid escapes, do not concern this language.
            warnings.simplefilter("ignore")
            return ast.parse(text, mode=mode)
    except SyntaxError as error:
        where = Location(file, error.lineno or 1, max(1, error.offset or 1))
        raise IRError(where, f"a syntax error ({error.msg})", "Python syntax") from None
    except ValueError as error:
        raise IRError(Location(file, 1, 1), f"unreadable text ({error})", "Python syntax") from None
    except (RecursionError, MemoryError):
        raise LimitError(Location(file, 1, 1), "a text nested too deep", "less nesting") from None


def check_depth(root: ast.stmt | ast.expr, file: str) -> set[str]:
    """Returns all names under a node. Raises `IRError` if expressions or statements nest too deep."""
    names: set[str] = set()
    stack: list[tuple[ast.AST, int]] = [(root, 0)]
    while stack:
        node, depth = stack.pop()
        kind = type(node)
        if isinstance(node, ast.Name):
            names.add(node.id)
            continue
        if kind is ast.Constant:
            continue
        if isinstance(node, ast.arg):
            names.add(node.arg)
        elif kind in _NESTING or isinstance(node, ast.stmt):
            depth += _weight(node)
            if depth > DEEPEST:
                at = node if isinstance(node, ast.stmt | ast.expr) else root
                where = Location(file, at.lineno, at.col_offset + 1)
                raise LimitError(where, f"nesting deeper than {DEEPEST} levels", "less nesting")
        for name in node._fields:
            child = getattr(node, name, None)
            if isinstance(child, list):
                stack.extend([(item, depth) for item in child if isinstance(item, ast.AST)])
            elif isinstance(child, ast.AST) and not isinstance(child, ast.expr_context):
                stack.append((child, depth))
    return names


def _weight(node: ast.AST) -> int:
    """Number of levels a node adds: a chain becomes a nest of binary operators."""
    match node:
        case ast.BoolOp(values=operands) | ast.Call(func=ast.Name(id="min" | "max"), args=operands):
            return len(operands) - 1
        case ast.Compare(ops=ops):
            return len(ops)
        case ast.Call():
            return 0
    return 1


@contextlib.contextmanager
def paused_collector() -> Iterator[None]:
    """Pauses garbage collection.

    A collection that scans hundreds of thousands of small, live objects takes longer than creating them.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def is_docstring(statement: ast.stmt) -> bool:
    """Whether a statement is a docstring."""
    return (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Constant)
        and isinstance(statement.value.value, str)
    )


def whole(node: ast.expr) -> int | None:
    """The value of an integer literal."""
    match node:
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() as value)):
            return None if isinstance(value, bool) else -value
        case ast.Constant(value=int() as value):
            return None if isinstance(value, bool) else value
    return None


def byte_lines(text: str) -> Sequence[bytes] | None:
    """The lines as UTF-8 bytes if the text is not all ASCII: `ast` counts columns in bytes."""
    return None if text.isascii() else text.encode("utf-8", "replace").splitlines()


def source(node: ast.AST) -> str:
    """The source text of a node as shown in messages."""
    try:
        text = ast.unparse(node).strip().partition("\n")[0]
    except (ValueError, RecursionError):
        # Python itself cannot print numbers of thousands of digits or nested strings.
        return f"a piece of {type(node).__name__}"
    return text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."


def short(value: int) -> str:
    """Formats a number for a message."""
    return str(value) if abs(value) < 10**20 else f"a number of {value.bit_length()} bits"


@dataclass
class SourceText:
    """Source text being read: file name, and its lines in UTF-8, or None if it is all ASCII."""

    file: str
    lines: Sequence[bytes] | None

    def at(self, node: Place) -> Location:
        """Location of a node; columns count characters."""
        column = node.col_offset
        if self.lines is not None and node.lineno <= len(self.lines):
            column = len(self.lines[node.lineno - 1][:column].decode("utf-8", "replace"))
        return Location(self.file, node.lineno, column + 1)

    def error(self, node: Place, found: str, expected: str) -> IRError:
        """Builds an error at this location."""
        return IRError(self.at(node), found, expected)

    def limit(self, node: Place, found: str, expected: str) -> LimitError:
        """An error for what is too large, at this place."""
        return LimitError(self.at(node), found, expected)
