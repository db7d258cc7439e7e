"""`heald compile`: a model as programs, images and plans in a directory."""

from __future__ import annotations

from pathlib import Path

import click

from heald.cli.options import (
    PATH,
    as_json,
    dimensions,
    directory,
    fixed,
    hardware,
    host,
    machine,
    note,
    print_json,
    printer,
    printing,
    run_time,
)
from heald.progress import shown


@click.command("compile")
@click.argument("model", type=PATH, metavar="MODEL.onnx")
@hardware
@host
@dimensions
@run_time
@fixed
@click.option("--inputs", type=PATH, metavar="FILE.npz", help="Values of inputs that the compiler must know.")
@click.option("--export", type=click.Choice(["testbench"]), help="Write testbench/ too: SystemVerilog alone.")
@directory("The directory, which is made; one of an earlier compilation is replaced.")
@printing
@as_json
def command(
    model: Path,
    hw: str,
    settings: tuple[str, ...],
    allow_host: bool,
    dim: dict[str, int],
    dynamic: bool,
    fixed_point: bool,
    inputs: Path | None,
    export: str | None,
    output: Path,
    print_after: str | None,
    print_after_all: bool,
    json_: bool,
) -> int:
    """Compile MODEL.onnx for a machine into a directory that `heald run DIR` runs and checks.

    It holds the tiles of each operator, the sequential and the synchronised tile program, the programs of the
    warps, the configurations of the grid, the memory map and all constants (docs/compile.md).
    """
    # The compiler behind it takes time to import.
    from heald import bundle, session
    from heald.cli.run_files import read_inputs
    from heald.sources import onnx_source

    bundle.check_target(output)
    after = printer(print_after, print_after_all)
    source = onnx_source(model, allow_host=allow_host, dims=dim, dynamic=dynamic, fixed_point=fixed_point)
    known = None if inputs is None else read_inputs(inputs)
    with shown(note) as say:
        made = session.compile(source, machine(hw, settings), inputs=known, after=after, progress=say)
    assert isinstance(made, session.GraphModel)
    files = made.save(output, export=export is not None)
    if json_:
        print_json({"directory": str(output), "files": files} | made.as_dict())
    else:
        for name in sorted(files):
            click.echo(f"{files[name]:>12,}  {output / name}")
    if not made.compiled.programs:
        note(f"nothing runs on the machine: `heald explain {model}` tells what would change that")
    for failure in made.compiled.failures:
        note(failure)
    return 1 if made.compiled.failures else 0
