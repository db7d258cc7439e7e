"""`heald fabric`: show the CGRA that a preset or a file describes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from rich.table import Table
from rich.text import Text

from heald.cli.options import PATH, as_json, grid_option, grid_size, note, print_json
from heald.files import write_text
from heald.report.console import plain_table, stdout
from hw.errors import InputError
from hw.fabric import Fabric, layout, load, to_toml
from hw.fabric.bitstream import entry_words
from hw.fabric.draw import to_svg


@click.command("fabric")
@click.argument("source", metavar="PRESET|FILE.toml", default="mesh4x4")
@grid_option
@click.option("--svg", type=PATH, metavar="FILE", help="Draw the PEs and links.")
@click.option("--toml", is_flag=True, help="Print the fabric as TOML, one entry per PE.")
@as_json
def command(source: str, grid: str | None, svg: Path | None, toml: bool, json_: bool) -> None:
    """Show a fabric: kinds of PEs, links, configuration words (docs/cgra.md)."""
    if toml and json_:
        raise InputError("--toml and --json must not be given together")
    fabric = load(source, grid_size(grid))
    if svg is not None:
        write_text(svg, to_svg(fabric))
        note(f"written {svg}")
    if toml:
        click.echo(to_toml(fabric), nl=False)
    elif json_:
        print_json(_as_dict(fabric))
    else:
        _render(fabric)


def _as_dict(fabric: Fabric) -> dict[str, Any]:
    pes = [
        {
            "at": list(fabric.at(pe)),
            "kind": kind.name,
            **kind.as_dict(),
            "links": [list(fabric.at(fabric.links[i].target)) for i in fabric.outgoing[pe]],
            "words": layout(fabric, pe).words,
        }
        for pe, kind in enumerate(fabric.kinds)
    ]
    return {
        "name": fabric.name,
        **{key: getattr(fabric, key) for key in ("rows", "cols", "contexts", "stages", "pipelined")},
        "hash": f"{fabric.hash:08x}",
        "links": len(fabric.links),
        "context_words": entry_words(fabric),
        "pes": pes,
    }


def _render(fabric: Fabric) -> None:
    """Print the kinds, then the grid with the number of links that leave each PE."""
    console = stdout()
    console.print(
        Text(
            f"{fabric.name}: {fabric.rows} x {fabric.cols} PEs, {len(fabric.links)} links, "
            f"up to {fabric.contexts} contexts of {entry_words(fabric)} words, "
            f"{fabric.stages} iterations may overlap{', pipelined' * fabric.pipelined}"
        )
    )
    table = plain_table("kind", ">PEs", ">lanes", "units", ">registers", ">table words", "without")
    for kind in dict.fromkeys(fabric.kinds):
        units = ", ".join(sorted(unit.value for unit in kind.units)) or "none"
        first = str(fabric.kinds.count(kind)), str(kind.lanes), units, str(kind.registers)
        table.add_row(Text(kind.name), *first, str(kind.table_words or ""), " ".join(sorted(kind.without)))
    console.print(table)
    grid = Table(box=None, pad_edge=False, show_header=False, padding=(0, 2, 0, 0))
    for row in range(fabric.rows):
        pes = range(row * fabric.cols, (row + 1) * fabric.cols)
        grid.add_row(*(Text(f"{fabric.kinds[pe].name}/{len(fabric.outgoing[pe])}") for pe in pes))
    console.print(grid)
