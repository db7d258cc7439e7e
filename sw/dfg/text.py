"""Source text of a Python function that becomes CGRA loops, from a file or a function object."""

from __future__ import annotations

import ast
import copy
import inspect
import textwrap
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hw.errors import InputError
from sw.dfg.syntax import LANES, RESERVED, KernelText, module_names
from sw.ir.errors import IRError, Location
from sw.ir.load import read_text
from sw.ir.syntax import byte_lines, check_depth, python_tree


@dataclass(frozen=True)
class FunctionText:
    """A function's source, its parameters, and the integers and tables around it."""

    where: KernelText
    function: ast.FunctionDef
    parameters: list[ast.arg]

    @classmethod
    def from_file(cls, path: str | Path, name: str) -> FunctionText:
        """Reads a function in a file; raises `InputError` with file, line and column."""
        return cls.from_text(read_text(path, str(path)), name, str(path))

    @classmethod
    def from_text(cls, text: str, name: str, file: str = "<text>") -> FunctionText:
        """Reads a function in a text; raises `InputError` with file, line and column."""
        module = python_tree(text, file, "exec")
        assert isinstance(module, ast.Module)
        functions = {s.name: s for s in module.body if isinstance(s, ast.FunctionDef)}
        if name not in functions:
            listed = ", ".join(functions) or "one, there is none"
            raise IRError(Location(file, 1, 1), f"no function {name!r}", f"a function of the file: {listed}")
        where = KernelText(file, byte_lines(text), module_names(module))
        for outside in where.names.values():
            check_depth(outside, file)
        function = functions[name]
        check_depth(function, file)
        arguments = function.args
        odd = arguments.vararg or arguments.kwarg
        if odd:
            raise where.error(odd, f"the parameter *{odd.arg}", "parameters by name")
        if arguments.defaults or any(arguments.kw_defaults):
            raise where.error(function, "a default value of a parameter", "parameters without one")
        parameters = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
        for parameter in parameters:
            if parameter.arg in RESERVED:
                found = f"the parameter {parameter.arg!r}"
                raise where.error(parameter, found, "a name that is no function")
        return cls(where, function, parameters)

    @classmethod
    def from_function(cls, function: Callable[..., Any]) -> FunctionText:
        """Reads the source of a live function, for example in a notebook; the function is never called.

        Integers and sequences of integers defined outside of it become constants with their current values.
        Raises `InputError` if there is no source, and with the location if the source is not supported.
        """
        text, file = source_of(function)
        own = cls.from_text(text, function.__name__, file)
        found = inspect.getclosurevars(function)
        # Lane functions do not mention LANES, so it is not among the closure's names.
        outside = {LANES: function.__globals__.get(LANES), **found.globals, **found.nonlocals}
        own.where.names = {n: node for n, v in outside.items() if (node := _constant(v, own.function))}
        return own

    def standalone(self) -> str:
        """Source text with the same meaning that does not need the rest of the file."""
        outside = [f"{name} = {ast.unparse(value)}" for name, value in self.where.names.items()]
        function = copy.copy(self.function)
        function.decorator_list = []
        return "\n".join([*outside, ast.unparse(function), ""])


def source_of(function: Callable[..., Any]) -> tuple[str, str]:
    """The source of a function with its decorators, and its file.

    Blank lines are prepended so that line numbers match the file. Raises `InputError` if there is no source.
    """
    try:
        lines, first = inspect.getsourcelines(function)
        file = inspect.getsourcefile(function) or "<text>"
    except (OSError, TypeError) as error:
        name = getattr(function, "__name__", str(function))
        raise InputError(f"{name}: its text cannot be read: {error}") from None
    if getattr(function, "__name__", "") == "<lambda>":
        raise InputError(f"{file}:{first}: found a lambda, expected a function with a name, `def ...`")
    return "\n" * (first - 1) + textwrap.dedent("".join(lines)), file


def _constant(value: object, at: ast.stmt) -> ast.expr | None:
    """An integer or a sequence of integers as a syntax node, None for anything else."""
    made: ast.expr | None = None
    if isinstance(value, int | np.integer):
        made = ast.Constant(int(value))
    elif isinstance(value, np.ndarray) and value.ndim == 1 and value.dtype.kind in "iub":
        made = _table(value.tolist())
    elif isinstance(value, tuple | list) and all(isinstance(v, int | np.integer) for v in value):
        made = _table(value)
    if made is not None:
        for node in ast.walk(made):
            ast.copy_location(node, at)
    return made


def _table(words: Iterable[int]) -> ast.expr:
    return ast.Tuple([ast.Constant(int(w)) for w in words], ast.Load())
