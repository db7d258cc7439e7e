"""`heald deps`: show the dependences between the instructions of a tile program."""

from __future__ import annotations

import click
from rich.text import Text

from heald.cli.options import as_json, print_json, program_file
from heald.report.console import plain_table, stdout
from hw.errors import InputError
from sw.dependence import Dependences, analyse
from sw.dependence.explain import explain
from sw.ir.load import load_program


@click.command("deps")
@program_file
@click.option("--explain", "label", metavar="LABEL", help="Explain the dependences of one instruction.")
@as_json
def command(file: str, label: str | None, json_: bool) -> None:
    """Show the dependences of a tile program.

    For each instruction, lists the writes whose bytes it may read, and the instructions that may read what it
    writes. "entry" stands for what a buffer held before the program. In parentheses is the distance in
    iterations of the loops around both: a number for one loop, a list for several, * if not constant.
    """
    program = load_program(file)
    if label is None:
        found = analyse(program)
        if json_:
            print_json(found.as_dict())
        else:
            _render(found)
        return
    found = analyse(program, details=True)
    if label not in found.use_def:
        known = ", ".join(found.use_def) or "none"
        raise InputError(f"--explain must be a label of the program ({known}), not {label!r}")
    explained = explain(found, label)
    if json_:
        print_json(explained.as_dict())
    else:
        stdout().print(Text(str(explained)))


def _render(found: Dependences) -> None:
    """Print a row per instruction."""
    table = plain_table("instruction", "reads from", "is read by")
    for label, sources in found.use_def.items():
        reads = [_with_distance(found, source, label) for source in sources]
        table.add_row(label, Text(", ".join(reads)), Text(", ".join(found.def_use[label])))
    console = stdout()
    console.print(table)
    console.print(Text(f"entry is read by: {', '.join(found.def_use['entry']) or 'none'}", style="dim"))


def _with_distance(found: Dependences, source: str, use: str) -> str:
    distances = found.distance.get(f"{source}->{use}")
    if not distances:
        return source
    texts = [str(d).replace("'", "") for d in distances]
    shown = texts if len(texts) <= 8 else [*texts[:7], f"and {len(texts) - 7} more"]
    return f"{source} ({', '.join(shown)})"
