"""Source text of a Python function that becomes loops of the CGRA, from a file or of a function object."""

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
    """A function as it is written, its parameters, and the integers and tables around it."""

    where: KernelText
    function: ast.FunctionDef
    parameters: list[ast.arg]

    @classmethod
    def from_file(cls, path: str | Path, name: str) -> FunctionText:
        """A function of a file; raises `InputError` with file, line and column."""
        return cls.from_text(read_text(path, str(path)), name, str(path))

    @classmethod
    def from_text(cls, text: str, name: str, file: str = "<text>") -> FunctionText:
        """A function of a text; raises `InputError` with file, line and column."""
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
        """A function of a running program or notebook, read by its text; it is never called.

        Integers and sequences of integers that it finds outside of itself are constants, with the values
        that they have now. Raises `InputError` for what has no text, and with the place for what it says.
        """
        text, file = source_of(function)
        own = cls.from_text(text, function.__name__, file)
        found = inspect.getclosurevars(function)
        # Functions of lanes do not name how many there are.
        outside = {LANES: function.__globals__.get(LANES), **found.globals, **found.nonlocals}
        own.where.names = {n: node for n, v in outside.items() if (node := _constant(v, own.function))}
        return own

    def standalone(self) -> str:
        """A text that says the same without the file around it."""
        outside = [f"{name} = {ast.unparse(value)}" for name, value in self.where.names.items()]
        function = copy.copy(self.function)
        function.decorator_list = []
        return "\n".join([*outside, ast.unparse(function), ""])


def source_of(function: Callable[..., Any]) -> tuple[str, str]:
    """The text of a function with its decorators, and its file.

    Empty lines stand in front of it, so that places are those of the file. Raises `InputError` for what has
    no text.
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
    """An integer or a sequence of integers as it would stand in the text; None for anything else."""
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
