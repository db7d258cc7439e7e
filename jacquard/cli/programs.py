"""What the commands that take a tile program share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from jacquard.cli.options import note
from sw.ir.load import load_program
from sw.ir.program import Program

F = TypeVar("F", bound=Callable[..., Any])


def program_file(function: F) -> F:
    """The argument FILE.py; the command gets its name as `file` and calls `read`."""
    return click.argument("file", metavar="FILE.py|-")(function)


def read(file: str) -> Program:
    """The checked program in a file, `-` for standard input. Raises `InputError`."""
    return load_program(file)


def print_after(step: str, program: Program | str) -> None:
    """A program, or a graph's text, on stderr, with the stage that made it above."""
    note(f"# ----- after {step} -----\n{program}")
