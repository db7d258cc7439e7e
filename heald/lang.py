"""The names used in tile programs, so that editors, linters and type checkers accept them (docs/ir.md).

    from heald.lang import Buffer, gemm, int8, load, memory, program, store

    @program
    def product():
        A: Buffer[16, 16, int8, memory]
        ...

`@program` compiles the source text of a function into a tile program; the function is never called. Generic
instructions, which the machine does not have, are imported from here too, whatever their names.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sw.ir.program import Program

#: Declares a buffer: `Buffer[rows, columns, type, space]`.
Buffer: Any = None


def program(function: Callable[..., None]) -> Program:
    """Decorator: read the source of a function as a tile program.

    Raises `InputError` with file, line and column if it is not one.
    """
    from sw.dfg.text import source_of
    from sw.ir.check import check
    from sw.ir.parse import parse_program

    text, file = source_of(function)
    made = parse_program(text, file)
    check(made)
    return made


def __getattr__(name: str) -> Any:
    """Any other name in the text of programs: a type, a space, an instruction."""
    if name.startswith("_"):
        raise AttributeError(name)
    return None
