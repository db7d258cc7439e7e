"""`heald compile`: a model as programs, images and plans in a directory."""

from __future__ import annotations

from pathlib import Path

import click

from heald.cli.options import (
    PATH,
    as_json,
    directory,
    hardware,
    host,
    machine,
    note,
    print_json,
    printer,
    printing,
)
from heald.progress import shown
from hw.errors import InputError


@click.command("compile")
@click.argument("model", type=PATH, metavar="MODEL.onnx")
@hardware
@host
@directory("The directory, which is made; one of an earlier compilation is replaced.")
@printing
@as_json
def command(
    model: Path,
    hw: str,
    settings: tuple[str, ...],
    allow_host: bool,
    output: Path,
    print_after: str | None,
    print_after_all: bool,
    json_: bool,
) -> int:
    """Compile MODEL.onnx for a machine into a directory that `heald run DIR` runs and checks.

    It holds the tiles of each operator, the sequential and the synchronised tile program, the programs of the
    warps, the configurations of the grid, the memory map and all constants (docs/compile.md).
    """
    # The mapper takes time to import.
    from cosim.session.network import compile_model
    from heald import bundle
    from heald.sources import OnnxSource
    from sw.frontend.model import read_file

    config = machine(hw, settings)
    bundle.check_target(output)
    try:
        source = OnnxSource(str(model), read_file(model), allow_host)
        with shown(note) as say:
            made = compile_model(source.network(), config, printer(print_after, print_after_all), say)
    except InputError as error:
        text = str(error)
        raise InputError(text if text.startswith(str(model)) else f"{model}: {text}") from None
    files = bundle.files(made, source)
    bundle.write(files, output)
    rejected = [v for v in made.verdicts if not v.ok]
    unverified = [k.name for p in made.programs for k in p.kernels if not k.verified]
    if json_:
        print_json(
            {
                "directory": str(output),
                "files": {name: len(data) for name, data in files.items()},
                "operators": [o.name for p in made.programs for o in p.operators],
                "programs": [{str(w): len(words) for w, words in p.programs.items()} for p in made.programs],
                "ii": [k.as_dict() for p in made.programs for k in p.kernels],
                "checked": [v.as_dict() for v in made.verdicts],
                "compile_seconds": dict(made.seconds),
                "hw": config.hash,
            }
        )
    else:
        _print(output, files)
    for verdict in rejected:
        note(f"the checker does not accept the warps: {verdict.reason}")
    for name in unverified:
        note(f"configuration {name} does not mean its loop")
    return 1 if rejected or unverified else 0


def _print(output: Path, files: dict[str, bytes]) -> None:
    """The files with their sizes."""
    for name in sorted(files):
        click.echo(f"{len(files[name]):>12,}  {output / name}")
