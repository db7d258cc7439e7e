"""`heald explore`: search a design space for the machine to build for some models."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import click

from heald.cli.options import PATH, as_json, backend, dimensions, fixed, host, note, plugins, print_json
from heald.files import check_directory, check_writable
from heald.progress import shown, stages
from heald.report.console import stdout
from hw.errors import InputError

#: What URLs of databases in files begin with.
_FILE = "sqlite:///"
#: Seconds between progress lines if stderr is no terminal.
_PAUSE = 4.0


@click.command("explore")
@click.argument("space", type=PATH, metavar="SPACE.toml")
@click.argument("models", type=PATH, nargs=-1, required=True, metavar="MODEL.onnx...")
@click.option(
    "--sampler",
    type=click.Choice(["grid", "random", "nsga2", "tpe"]),
    default="grid",
    show_default=True,
    help="Search strategy.",
)
@click.option(
    "--trials",
    type=click.IntRange(1),
    metavar="N",
    help="Total number of points, including earlier runs.  [default: the whole grid, else 100]",
)
@click.option("--storage", metavar="URL", help="Database of the study.  [default: sqlite:///SPACE-MODEL.db]")
@click.option(
    "--executor",
    default="processes",
    show_default=True,
    metavar="processes[:N]|dask://HOST:PORT",
    help="Workers that evaluate points.",
)
@click.option(
    "--confirm", type=click.IntRange(0), default=0, metavar="N", help="Also run the N best points on the RTL."
)
@click.option("--report", type=PATH, metavar="FILE.html", help="Write a report as one HTML page.")
@click.option("--csv", type=PATH, metavar="FILE", help="Write all points as a table.")
@click.option("--export", type=PATH, metavar="DIR", help="Write the non-dominated machines as TOML files.")
@click.option("--compare", metavar="N[,M]", help="Compare point N with the base machine, or with point M.")
@click.option(
    "--family", type=click.Choice(["ecp5", "xilinx"]), default="ecp5", show_default=True, help="FPGA family."
)
@click.option(
    "--synth", "synthesis", is_flag=True, help="Measure resources by synthesis instead of estimating them."
)
@click.option("--energy", type=PATH, metavar="TABLE.toml", help="Energies in pJ, instead of the defaults.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Seed of the search.")
@backend
@host
@dimensions
@fixed
@plugins
@as_json
def command(space: Path, models: tuple[Path, ...], json_: bool, **options: Any) -> int:
    """Search the design space of SPACE.toml for the machine to build for some models.

    Each point is a machine. Heald compiles the models for it and evaluates cycles (with the exact cycle
    model), resources, clock and energy, or keeps the reason why it is refused. All points are stored in a
    database, so that the same command resumes an interrupted search. See docs/explore.md.
    """
    # The mapper and optuna take time to import.
    from heald.exploration.command import Request
    from heald.studies import study_of

    for name in ("report", "csv"):
        if options[name] is not None:
            check_writable(options[name])
    if options["export"] is not None:
        check_directory(options["export"])
    options["dims"] = options.pop("dim")
    options["compare"] = compare = _points(options["compare"])
    asked = {name: value for name, value in options.items() if name not in ("report", "csv", "export")}
    with shown(stages(note, _PAUSE)) as tell:
        study = study_of(Request(space, models, **asked), note, tell)
    written = [study.storage.removeprefix(_FILE)] if study.storage.startswith(_FILE) else []
    for name, write in (("csv", study.csv), ("export", study.export), ("report", study.report)):
        if options[name] is not None:
            write(options[name])
            machines = f" ({len(study.front)} machines)" if name == "export" else ""
            written.append(f"{options[name]}{machines}")
    compared = study.compare(*compare) if compare else []
    if json_:
        print_json(study.as_dict() | {"comparisons": [c.as_dict() for c in compared]})
    else:
        study.print(stdout())
        for comparison in compared:
            comparison.print(stdout(180))
        if study.found.front and not compared:
            where = f" --storage {study.storage}" if options["storage"] else ""
            note(f"--compare {study.found.front[0]}{where} compares the first of these with the base machine")
    if written:
        note(f"written: {', '.join(written)}")
    return 1 if any(not c.confirmed for c in study.found.confirmations) else 0


def _points(text: str | None) -> tuple[int, ...]:
    """The points of --compare."""
    if text is None:
        return ()
    if not re.fullmatch(r"[0-9]{1,9}(,[0-9]{1,9})?", text):
        raise InputError(f"--compare must be a point, or two with a comma, not {text!r} (for example 5,0)")
    return tuple(map(int, text.split(",")))
