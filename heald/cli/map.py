"""`heald map`: map the loops of a function, or a graph, to a CGRA, and verify the bitstream."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from heald.cli.options import PATH, as_json, grid_option, grid_size, note, print_json
from heald.files import atomic, check_writable, write_text
from heald.report.console import plain_table, stdout
from hw.fabric import load
from hw.fabric.bitstream import to_bytes

if TYPE_CHECKING:
    from cosim.session.mapped_loop import MappedLoop
    from sw.cgra.mapping import Mapping

#: Placements are printed up to this many columns and contexts.
_WIDEST, _MOST = 8, 16


@click.command("map")
@click.argument("source", metavar="GRAPH.json|FILE.py:FUNCTION")
@click.option("--fabric", default="mesh4x4", show_default=True, metavar="PRESET|FILE.toml", help="Fabric.")
@grid_option
@click.option(
    "--timeout",
    type=click.FloatRange(0, min_open=True),
    default=120,
    show_default=True,
    metavar="S",
    help="Time limit for each loop, in seconds.",
)
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Seed of the search.")
@click.option("--flat", is_flag=True, help="Place without grouping PEs.")
@click.option("--unroll", type=click.IntRange(1, 64), default=1, show_default=True, help="Unroll factor.")
@click.option("-o", "output", type=PATH, metavar="FILE", help="Write the bitstream (32-bit little-endian).")
@click.option("--svg", type=PATH, metavar="FILE", help="Draw the mapping, one panel per context.")
@as_json
def command(
    source: str,
    fabric: str,
    grid: str | None,
    timeout: float,
    seed: int,
    flat: bool,
    unroll: int,
    output: Path | None,
    svg: Path | None,
    json_: bool,
) -> int:
    """Map a loop to a CGRA with the smallest initiation interval (docs/map.md).

    The bitstream is decoded again and compared with the graph. If a function has several loops, each is
    mapped, and its number is put before the suffix of output files. Exit code 1: a loop cannot be mapped.
    """
    # The mapper is compiled by Numba, which takes time to import.
    from cosim.session.mapped_loop import loops_of
    from heald.loops import map_loop

    target = load(fabric, grid_size(grid))
    count = len(loops_of(source, unroll))
    files = [_numbered(path, i, count) for path in (output, svg) for i in range(count) if path]
    for path in files:
        check_writable(path)
    mapped = map_loop(source, target, unroll=unroll, seed=seed, timeout=timeout, flat=flat)
    loops = mapped.loops
    for i, loop in enumerate(loops):
        _write(loop, output and _numbered(output, i, count), svg and _numbered(svg, i, count))
    if json_:
        print_json(mapped.as_dict())
    else:
        _render(loops)
    for loop in loops:
        for line in (loop.failure, *loop.outcome.differences):
            if line:
                note(f"heald: {line}")
    return 0 if mapped.verified else 1


def _numbered(path: Path, number: int, count: int) -> Path:
    """The output file of one loop among several."""
    return path if count == 1 else path.with_name(f"{path.stem}.{number}{path.suffix}")


def _write(loop: MappedLoop, output: Path | None, svg: Path | None) -> None:
    """Write the bitstream and picture of a mapped loop."""
    if loop.outcome.mapping is None:
        return
    if output is not None and loop.ok:
        with atomic(output) as part:
            part.write_bytes(to_bytes(loop.bitstream))
        note(f"written {output}")
    if svg is not None:
        from sw.cgra.draw import to_svg

        write_text(svg, to_svg(loop.outcome.mapping))
        note(f"written {svg}")


def _render(loops: Sequence[MappedLoop]) -> None:
    """Print a row per loop, what limits each, and the placements."""
    console = stdout()
    numbers = (">operators", ">II", ">MII", ">ResMII", ">RecMII", ">depth", ">PEs busy", ">words", ">seconds")
    table = plain_table("loop", *numbers)
    for loop in loops:
        bound, mapping = loop.outcome.bound, loop.outcome.mapping
        reached = (mapping.ii, mapping.depth) if mapping else ("none", "")
        cells = (loop.operators, reached[0], bound.mii, bound.res_mii, bound.rec_mii, reached[1])
        rest = (f"{100 * loop.utilization:.0f} %", len(loop.bitstream), f"{loop.outcome.seconds:.1f}")
        table.add_row(Text(loop.name), *(str(cell) for cell in (*cells, *rest)))
    fabric = loops[0].fabric
    console.print(
        Text(f"{fabric.name}: {fabric.rows} x {fabric.cols} PEs, {fabric.contexts} contexts", "dim")
    )
    console.print(table)
    for loop in loops:
        outcome, mapping = loop.outcome, loop.outcome.mapping
        console.print()
        limit = f"the MII is {outcome.bound.mii}" + (
            f": {outcome.bound.why}" if outcome.bound.mii > 1 else ""
        )
        console.print(Text(f"{loop.name}: {limit}"), soft_wrap=True)
        for refused in outcome.refused:
            console.print(Text(f"  II {refused.ii}: {refused.why}"), soft_wrap=True)
        if mapping is None:
            continue
        least = "the least possible" if outcome.proved_minimal else "a smaller one is not ruled out"
        console.print(Text(f"  II {mapping.ii}: {least}"))
        if loop.ok:
            console.print(Text(f"  the bitstream, decoded, is the graph of {loop.operators} operators"))
        if mapping.ii <= _MOST and fabric.cols <= _WIDEST:
            _placement(console, mapping)


def _placement(console: Console, mapping: Mapping) -> None:
    """Print the operators by context and PE; `@` marks the stage."""
    fabric = mapping.fabric
    cells: dict[tuple[int, int], str] = {}
    for node in mapping.graph.nodes:
        place = mapping.places[node.id]
        stage = f"@{place.step // mapping.ii}"
        cells[place.pe, place.step % mapping.ii] = f"{node.id} {node.op}{stage}"
    for context in range(mapping.ii):
        table = Table(box=None, pad_edge=False, show_header=False, padding=(0, 2, 0, 0))
        for _ in range(fabric.cols):
            table.add_column(no_wrap=True, min_width=6, max_width=18, overflow="ellipsis")
        for row in range(fabric.rows):
            pes = range(row * fabric.cols, (row + 1) * fabric.cols)
            table.add_row(
                *(Text(cells.get((pe, context), "."), "" if (pe, context) in cells else "dim") for pe in pes)
            )
        console.print(Text(f"  context {context}", "dim"))
        console.print(table)
