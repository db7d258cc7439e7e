"""`heald tile`: the blocking of a matrix product for given memories, buffers and array."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.text import Text

from heald.cli.options import (
    PATH,
    as_json,
    changes,
    machine,
    memories,
    note,
    port_options,
    print_json,
    refinement,
    sizes,
)
from heald.files import check_writable, write_text
from heald.report.console import plain_table, stdout
from heald.report.tiling_plot import picture
from hw.errors import InputError
from sw.convolution import Convolution
from sw.ir.load import load_object, named
from sw.problem import Product
from sw.tiling.plan import TilingPlan, plan
from sw.tiling.problem import REQUIRED, TilingProblem, shown_name

if TYPE_CHECKING:
    from cosim.session.tiling import MachinePlan

#: What a problem's file holds.
_VALUES = "names and numbers"


@click.command("tile")
@click.argument("problem", required=False, metavar="[PROBLEM.json|-]")
@click.option("--matmul", metavar="MxKxN", help="Plan one GEMM of this shape instead of a file's.")
@click.option("--transpose-a", is_flag=True, help="A is stored as [K, M] (with --matmul).")
@click.option("--transpose-b", is_flag=True, help="B is stored as [N, K] (with --matmul).")
@click.option(
    "--hw",
    metavar="PRESET|FILE.toml",
    help="Plan for this machine; the file then holds only a shape.  [with --matmul: default]",
)
@changes
@memories
@refinement
@click.option("--plot", type=PATH, metavar="FILE.svg", help="Draw the plan.")
@as_json
def command(
    problem: str | None,
    matmul: str | None,
    hw: str | None,
    settings: tuple[str, ...],
    plot: Path | None,
    json_: bool,
    **rest: Any,
) -> None:
    """Plan the tile sizes and loop order of a GEMM or convolution.

    PROBLEM.json (or - for standard input) gives m, k, n (or conv: sn, ic, h, w, oc, kh, kw, stride, pad,
    dilation), elem_bytes, acc_elem_bytes, bw_a, bw_b, buf_a, buf_b, acc_max, macs_per_cycle, block_m,
    block_n, sync_granularity, and optionally write_b and halo. With --hw or --matmul, the plan is for that
    machine, and is the one that `heald run` uses.
    """
    if (problem is None) == (matmul is None):
        raise InputError("tile must be given either a problem file or --matmul MxKxN")
    if plot is not None:
        if plot.suffix != ".svg":
            raise InputError(f"--plot must name an .svg file, not {str(plot)!r}")
        check_writable(plot)
    console = stdout(120)
    if matmul is None and hw is None:
        assert problem is not None
        for name, value in (("set", settings), *rest.items()):
            if value:
                raise InputError(f"--{name.replace('_', '-')} goes with --hw or --matmul")
        given = TilingProblem.from_dict(load_object(problem, _VALUES, shown_name), named(problem))
        planned = plan_of(given, problem)
        if plot is not None:
            write_text(plot, picture(given, planned, title=str(given)))
        if json_:
            print_json(planned.as_dict())
        else:
            render(given, planned, console)
        return
    if matmul is None and (rest["transpose_a"] or rest["transpose_b"]):
        raise InputError("--transpose-a and --transpose-b go with --matmul, not with a file")
    # This imports the compiler, which takes time.
    from cosim.session.tiling import plan_for_machine
    from heald.session import memories as memories_of

    config = machine(hw or "default", settings)
    memory = memories_of(config, **port_options(rest))
    shape = _shape(problem, matmul, rest)
    made = plan_for_machine(shape, config, memory, rest["refine"], _progress)
    if plot is not None:
        title, reached = f"{shape} on {config.name}", (made.cycles, made.utilization)
        drawn = picture(made.tiling, made.plan, title=title, predicted=reached, stays=made.stays)
        write_text(plot, drawn)
    if json_:
        print_json(made.as_dict())
    else:
        render(made.tiling, made.plan, console)
        _render_machine(made, console)


def _progress(done: int, of: int) -> None:
    note(f"cycle model: candidate {done + 1} of {of}")


def _shape(problem: str | None, matmul: str | None, options: dict[str, Any]) -> Product | Convolution:
    if matmul is None:
        assert problem is not None
        return shape_of(problem)
    m, k, n = sizes("--matmul", matmul, "MxKxN")
    return Product(m, k, n, transposed_a=options["transpose_a"], transposed_b=options["transpose_b"])


def shape_of(name: str) -> Product | Convolution:
    """Read a shape from a JSON file: m, k and n, or conv."""
    values = load_object(name, _VALUES, shown_name)
    place = named(name)
    for key in values:
        if key not in ("m", "k", "n", "conv"):
            raise InputError(
                f"{place}: {shown_name(key)} comes from the machine with --hw; the file holds m, k, n or conv"
            )
    # Only the shape is read, so the machine is one that fits any shape.
    filler = dict.fromkeys(REQUIRED, 1) | dict.fromkeys(("buf_a", "buf_b", "acc_max"), 1 << 50)
    given = TilingProblem.from_dict(values | filler, place)
    return given.conv or Product(given.m, given.k, given.n)


def plan_of(problem: TilingProblem, name: str) -> TilingPlan:
    """The plan; raises `InputError` with the name of the problem's file if nothing fits."""
    try:
        return plan(problem)
    except InputError as error:
        raise InputError(f"{named(name)}: {error}") from None


def render(problem: TilingProblem, planned: TilingPlan, console: Console) -> None:
    """Print the plan: a row per matrix or loop, then the reason."""
    console.print()
    what = ""
    if problem.conv is not None:
        what = ", a convolution of " + "×".join(map(str, problem.conv.shape_b))
    console.print(
        f"[bold]{str(problem).replace('x', '×')}[/]{what}: {planned.cycles:,.0f} cycles, "
        f"{100 * planned.utilization:.1f} % of the array's peak",
        highlight=False,
    )
    titles = ("", ">size", ">partition", ">tile", "matrix", ">loaded", ">bytes loaded")
    table = plain_table(*titles, no_wrap=True)
    for axis, size, partition, tile, matrix, loads, loaded in (
        ("m", problem.m, planned.partition_m, planned.tile_m, "A", planned.loads_a, planned.bytes_a),
        ("n", problem.n, planned.partition_n, planned.tile_n, "B", planned.loads_b, planned.bytes_b),
    ):
        table.add_row(axis, f"{size:,}", f"{partition:,}", f"{tile:,}", matrix, f"{loads:,} ×", f"{loaded:,}")
    table.add_row("k", f"{problem.k:,}", f"{planned.partition_k:,}")
    console.print(table)
    split = f"K split, {planned.acc_needed:,} bytes of accumulator" if planned.split_k else "K whole"
    console.print(Text(f"loops: {', '.join(planned.loop_order)} ({split})"))
    console.print()
    console.print(Text(planned.reason))


def _render_machine(made: MachinePlan, console: Console) -> None:
    """Print the machine's prediction for the plan."""
    e, c = made.estimate, made.config
    console.print()
    kind = "exactly" if made.exact else "about"
    console.print(
        f"on [bold]{c.name}[/]: {kind} {made.cycles:,.0f} cycles, {100 * made.utilization:.1f} % of the "
        "array's peak",
        highlight=False,
    )
    waits, ports = (">fill", ">drain", ">waits"), (">port A", ">port B", ">store")
    table = plain_table(">multiplying", ">ragged edges", *waits, *ports, no_wrap=True)
    parts = (e.ideal, e.ragged, e.fill, e.drain, e.waits, e.loads_a, e.loads_b, e.stores)
    table.add_row(*(f"{part:,.0f}" for part in parts))
    console.print(table)
    if made.exact:
        slowest = max(candidate.cycles for candidate in made.exact)
        text = f"the quickest of {len(made.exact)} by the cycle model; the slowest takes {slowest:,}"
        console.print(Text(text), style="dim")
