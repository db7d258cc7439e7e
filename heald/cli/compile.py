"""`heald compile`: compile a model into a directory of programs, memory images and plans."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from heald.cli.options import (
    PATH,
    as_json,
    directory,
    hardware,
    known,
    machine,
    model_source,
    note,
    print_json,
    printer,
    printing,
    reading,
)
from heald.progress import shown

#: The files to read first (docs/compile.md lists all).
_WORTH_READING = {
    "program0/plan.txt": "tiles, loops and bounds of each",
    "program0/memory.txt": "address, size and live range of every tensor",
    "program0/synchronised.py": "what each warp does",
    "testbench/README.txt": "how to simulate it without Python",
}


@click.command("compile")
@click.argument("model", type=PATH, metavar="MODEL.onnx")
@hardware
@reading
@known
@click.option("--export", type=click.Choice(["testbench"]), help="Also write testbench/ (SystemVerilog).")
@directory("Output directory; replaces an earlier compilation.")
@printing
@as_json
def command(model: Path, inputs: Path | None, output: Path, json_: bool, **options: Any) -> int:
    """Compile a model into a directory that `heald run DIR` runs and verifies.

    The directory holds the tiles of each operator, the tile program before and after synchronisation, the
    programs of the warps, the CGRA's bitstreams, the memory map and all constants (docs/compile.md).
    """
    # These import the compiler, which takes time.
    from heald import bundle, session
    from heald.cli.run_files import read_inputs

    bundle.check_target(output)
    after = printer(options["print_after"], options["print_after_all"])
    source = model_source(model, options)
    values = None if inputs is None else read_inputs(inputs, source)
    config = machine(options["hw"], options["settings"])
    with shown(note) as say:
        made = session.compile(source, config, inputs=values, after=after, progress=say)
    assert isinstance(made, session.GraphModel)
    files = made.save(output, export=options["export"] is not None)
    if json_:
        print_json({"directory": str(output), "files": files} | made.as_dict())
    else:
        click.echo(
            f"{output}: {len(files)} files, {sum(files.values()):,} bytes; `heald run {output}` runs them"
        )
        for name in (name for name in _WORTH_READING if name in files):
            click.echo(f"  {output / name}  {_WORTH_READING[name]}")
    if not made.compiled.programs:
        note(f"nothing runs on the machine: `heald explain {model}` tells what would change that")
    for failure in made.compiled.failures:
        note(failure)
    return 1 if made.compiled.failures else 0
