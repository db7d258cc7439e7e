"""`heald cgra run`: map a Python function to the CGRA, run it on the RTL, and verify it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import click
import numpy as np

from cosim.session.arguments import function_of
from heald.cli.options import (
    PATH,
    as_json,
    backend,
    changes,
    grid_option,
    grid_size,
    memories,
    note,
    port_options,
    print_after,
    print_json,
)
from heald.cli.run_files import read_inputs, write_outputs
from heald.files import check_writable
from heald.progress import shown
from heald.report.console import stdout
from hw.config import parse_setting


@click.group("cgra", invoke_without_command=True)
@click.pass_context
def command(context: click.Context) -> None:
    """Run kernels, written as Python functions, on the CGRA."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


@command.command("run")
@click.argument("kernel", metavar="FILE.py:FUNCTION")
@click.option(
    "--fabric", metavar="PRESET|FILE.toml", help="Fabric.  [default: that of --hw and --set, else mesh4x4]"
)
@grid_option
@click.option("--iterations", type=click.IntRange(0), metavar="N", help="Iterations of the outermost loop.")
@click.option("--inputs", type=PATH, metavar="FILE.npz", help="Arrays and scalars by name.")
@click.option("--outputs", type=PATH, metavar="FILE.npz", help="Write all arrays, and `returned`.")
@click.option("--trace", type=PATH, metavar="FILE", help="Write a trace for Perfetto (JSON).")
@click.option("--unroll", type=click.IntRange(1, 64), default=1, show_default=True, help="Unroll factor.")
@click.option(
    "--hw",
    metavar="PRESET|FILE.toml",
    help="The machine around the CGRA.  [default: `test` with ports of 32 and 16 bytes]",
)
@changes
@backend
@click.option(
    "--seed", type=click.IntRange(0), default=0, show_default=True, help="Seed of inputs and mapping."
)
@click.option(
    "--timeout", type=click.FloatRange(0, min_open=True), metavar="S", help="Time limit per mapping in s."
)
@click.option("--stall", type=int, metavar="SEED", help="Stall the memory at random, with this seed.")
@memories
@click.option("--print-after-all", is_flag=True, help="Print the tile program after every stage on stderr.")
@as_json
def run(
    kernel: str,
    fabric: str | None,
    grid: str | None,
    hw: str | None,
    settings: tuple[str, ...],
    sim: str,
    seed: int,
    json_: bool,
    **rest: Any,
) -> int:
    """Map the loops of FUNCTION, run them on the RTL, and verify results and cycles.

    Results must equal those of the function in 32-bit arithmetic. Every event, including the CGRA's stores,
    must happen in the predicted cycle. Arrays and scalars that --inputs does not give are random.
    """
    # The mapper is compiled by Numba, which takes time to import.
    from cosim.session.kernel import base_machine
    from heald.loops import run_loop
    from heald.report.table import print_kernel

    _, name = function_of(kernel, "a kernel must be FILE.py:FUNCTION")
    for path in (rest["outputs"], rest["trace"]):
        if path is not None:
            check_writable(path)
    given = {} if rest["inputs"] is None else read_inputs(rest["inputs"])
    with shown(note) as say:
        ran = run_loop(
            kernel,
            given,
            fabric=fabric,
            size=grid_size(grid),
            hw=base_machine(hw, dict(parse_setting(text) for text in settings)),
            iterations=rest["iterations"],
            unroll=rest["unroll"],
            seed=seed,
            timeout=rest["timeout"],
            on=sim,
            after=print_after if rest["print_after_all"] else None,
            progress=say,
            **port_options(rest),
        )
    if rest["outputs"] is not None:
        returned = np.array(ran.result.returned, np.int32)
        write_outputs(rest["outputs"], dict(ran.result.arrays) | {"returned": returned})
    if rest["trace"] is not None:
        ran.trace(rest["trace"])
    if json_:
        print_json(ran.as_dict())
        for text in (ran.result.difference, ran.divergence):
            if text is not None:
                note(f"{name}: {text}")
    else:
        print_kernel(replace(ran, title=kernel), stdout(140))
    return 0 if ran.verified else 1
