"""What the commands that take a tile program share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from hw.errors import InputError
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


def printing(function: F) -> F:
    """`--print-after` and `--print-after-all`; the command gets both and calls `printer`."""
    function = click.option(
        "--print-after", metavar="STAGE", help="Print what this stage makes on stderr (docs/compile.md)."
    )(function)
    return click.option(
        "--print-after-all", is_flag=True, help="Print the tile program after every step on stderr."
    )(function)


def printer(stage: str | None, every: bool) -> Callable[[str, Program | str], None] | None:
    """Prints what one stage makes, or all of them; raises `InputError` for a stage that there is not."""
    if every or stage is None:
        return print_after if every else None
    # The compiler behind it takes time to import.
    from sw.compiler import PIPELINE

    names = [step.name for step in PIPELINE]
    if stage not in names:
        raise InputError(f"--print-after must be one of {', '.join(names)}, not {stage!r}")

    def show(step: str, made: Program | str) -> None:
        if step.partition(",")[0] == stage:
            print_after(step, made)

    return show


def print_after(step: str, program: Program | str) -> None:
    """A program, or a graph's text, on stderr, with the stage that made it above."""
    note(f"# ----- after {step} -----\n{program}")
