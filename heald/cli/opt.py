"""`heald opt`: passes over a tile program."""

from __future__ import annotations

import dataclasses
from typing import Any

import click

from heald.cli.options import as_json, print_after, print_json, program_file
from hw.errors import InputError
from sw.canonical.count import Counts, count
from sw.ir.expression import Apply
from sw.ir.load import load_program
from sw.ir.mlir import to_mlir
from sw.ir.program import Program
from sw.ir.walk import expressions, instructions, statements
from sw.passes import PASSES, named, run, summary

#: Click keeps the line breaks of a paragraph that begins with \b.
_EPILOG = "\b\nPasses:\n" + "\n".join(f"  {name:16} {summary(made)}" for name, made in PASSES.items())


@click.command("opt", epilog=_EPILOG)
@program_file
@click.option(
    "-p",
    "--passes",
    "lists",
    multiple=True,
    metavar="PASS,...",
    help="Passes to run, in this order; repeatable.",
)
@click.option(
    "--registers",
    type=click.IntRange(1, 1 << 16),
    default=32,
    show_default=True,
    metavar="R",
    help="Scalar registers that hoisting may use, including r0.",
)
@click.option("--print-after-all", is_flag=True, help="Print the program after every pass on stderr.")
@click.option(
    "--emit",
    type=click.Choice(["text", "mlir"]),
    default="text",
    show_default=True,
    help="Output format.",
)
@as_json
def command(
    file: str, lists: tuple[str, ...], registers: int, print_after_all: bool, emit: str, json_: bool
) -> None:
    """Run passes over a tile program and print it (docs/ir.md).

    FILE.py holds the program; - reads standard input. --json prints the program, the passes, and the numbers
    of instructions and operations before and after.
    """
    steps = [step for text in lists for step in named(text, registers=registers)]
    before = load_program(file)
    told = (lambda step, program, seconds: print_after(step.name, program)) if print_after_all else None
    after = run(steps, before, told)
    text = to_mlir(after) if emit == "mlir" else str(after)
    if json_:
        names = [step.name for step in steps]
        print_json({"program": text, "passes": names, "before": counts(before), "after": counts(after)})
    else:
        click.echo(text, nl=False)


def counts(program: Program) -> dict[str, Any]:
    """What a program consists of, and what it costs on the warp sequencer.

    `tile_instructions` and `scalar_operations` count the text. The rest is `sw.canonical.count.Counts`; it is
    None for a program with a `while`, which the sequencer does not have.
    """
    operators = sum(
        isinstance(node, Apply)
        for statement in statements(program.body)
        for expr in expressions(statement)
        for node in expr.walk()
    )
    text = {"tile_instructions": len(instructions(program)), "scalar_operations": operators}
    try:
        return text | count(program).as_dict()
    except InputError:
        return text | {field.name: None for field in dataclasses.fields(Counts)}
