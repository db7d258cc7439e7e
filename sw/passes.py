"""Passes over tile programs, and pipelines of them.

A pass is a frozen dataclass whose fields are its options, and a pure function: program in, program out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar, Protocol, runtime_checkable

from sw.ir.program import Program
from sw.ir.scope import retype


@runtime_checkable
class Pass(Protocol):
    """What a pass is: a name for the command line, and what it makes of a program."""

    name: ClassVar[str]

    def __call__(self, program: Program) -> Program:
        """The program after the pass."""
        ...


def run(
    passes: Sequence[Pass], program: Program, after: Callable[[Pass, Program], None] | None = None
) -> Program:
    """Run passes one after the other; `after` sees the program after each of them."""
    for step in passes:
        program = retype(step(program))
        if after is not None:
            after(step, program)
    return program
