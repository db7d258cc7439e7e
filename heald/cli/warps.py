"""`heald warps`: convert a sequential tile program to warps that run in parallel, and check them."""

from __future__ import annotations

from pathlib import Path

import click
from rich.columns import Columns
from rich.panel import Panel
from rich.text import Text

from cosim.session.warps import Warped, converted
from heald.cli.options import PATH, as_json, hardware, machine, note, print_json, program_file
from heald.files import check_writable, write_text
from heald.report.console import plain_table, stdout
from heald.report.warp_graph import figure, to_dot, to_svg
from hw.config import MachineConfig
from sw.ir.errors import IRError
from sw.ir.load import load_program
from sw.ir.program import Program
from sw.ir.walk import instructions
from sw.warps.assign import assign_warps, unfed
from sw.warps.channels import Channels
from sw.warps.reduce import Reduction


@click.command("warps")
@program_file
@click.option(
    "--reduce",
    "reduction",
    type=click.Choice([r.value for r in Reduction]),
    default=Reduction.FULL.value,
    show_default=True,
    help="Which redundant dependences to remove.",
)
@click.option(
    "--channels",
    type=click.Choice([c.value for c in Channels]),
    default=Channels.FIFO.value,
    show_default=True,
    help="How sync channels are shared.",
)
@click.option("--unroll", is_flag=True, help="Unroll every loop.")
@hardware
@click.option("--dot", type=PATH, metavar="FILE", help="Write the dependence graph for Graphviz.")
@click.option("--svg", type=PATH, metavar="FILE", help="Draw the dependence graph.")
@click.option("--samples-suffice", is_flag=True, help="Accept a check of sampled parameter values only.")
@as_json
def command(
    file: str,
    reduction: str,
    channels: str,
    unroll: bool,
    hw: str,
    settings: tuple[str, ...],
    dot: Path | None,
    svg: Path | None,
    samples_suffice: bool,
    json_: bool,
) -> int:
    """Convert a sequential tile program to warps, and check them (docs/warps.md).

    Instructions without warp= go to the warp of their engine, generic ones to one warp per name. Edges are
    listed with their distance in the common loops (P -> C@1), or with --unroll between instances
    (P[0] -> C[1]). If the checker rejects the result, the exit code is 1.
    """
    pictures = [(path, form) for path, form in ((dot, to_dot), (svg, to_svg)) if path is not None]
    for path, _ in pictures:
        check_writable(path)
    config = machine(hw, settings)
    program = assign_warps(load_program(file))
    _check(program, config)
    how = Reduction(reduction), Channels(channels)
    made = converted(program, config, *how, unroll=unroll, samples_suffice=samples_suffice)
    if pictures:
        drawn = figure(made.nodes, made.entries, made.throttle, made.channels)
    for path, form in pictures:
        write_text(path, form(drawn))
        note(f"written {path}")
    if json_:
        print_json(made.as_dict())
    else:
        _render(made)
    return 0 if made.verdict.ok else 1


def _check(program: Program, config: MachineConfig) -> None:
    """Raise `IRError` for a warp that the machine does not have, and for data that no producer writes."""
    for s in instructions(program):
        if s.warp is not None and s.warp >= config.warps:
            found = f"{s.label} on warp {s.warp}: warps must be at least {s.warp + 1}, not {config.warps}"
            raise IRError(s.where, found, "a warp of the machine")
    if (error := unfed(program)) is not None:
        raise error


def _render(made: Warped) -> None:
    """Print edges with their channels, then the programs."""
    console = stdout()
    table = plain_table("edge", "kind", "channel")
    kinds = [(e.source, e.sink, "data" if e.data else "resource", e.kept) for e in made.entries]
    kinds += [(source, sink, "throttle", True) for source, sink in made.throttle]
    for source, sink, kind, kept in kinds:
        channel = made.channels.get(f"{source}->{sink}") if kept else None
        row = Text(f"{source} -> {sink}"), kind if kept else f"{kind}, dropped", str(channel if kept else "")
        table.add_row(*row, style="" if kept else "dim")
    console.print(table)
    panels = [
        Panel(Text(text.rstrip("\n")), title=f"warp {w}", title_align="left", expand=False)
        for w, text in made.texts.items()
    ]
    console.print(Columns(panels, padding=(0, 1)))
    count = f"{made.channel_count} channel{'' if made.channel_count == 1 else 's'}"
    verdict = made.verdict
    right = f"correct ({verdict.method}): {verdict.dependences:,} dependences enforced"
    console.print(Text(f"{count}; " + (right if verdict.ok else "\n".join(verdict.failure))))
