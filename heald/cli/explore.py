"""`heald explore`: which machine to build for some models."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from heald.cli.options import PATH, as_json, backend, host, note, print_json
from heald.files import check_directory, check_writable
from heald.progress import shown, stages
from heald.report.console import stdout
from hw.errors import InputError

if TYPE_CHECKING:
    from heald.exploration.command import Prepared
    from heald.exploration.search import Progress

#: Seconds between two lines of progress where there is no terminal.
_PAUSE = 4.0


@click.command("explore")
@click.argument("space", type=PATH, metavar="SPACE.toml")
@click.argument("models", type=PATH, nargs=-1, required=True, metavar="MODEL.onnx...")
@click.option(
    "--sampler",
    type=click.Choice(["grid", "random", "nsga2", "tpe"]),
    default="grid",
    show_default=True,
    help="How points are chosen.",
)
@click.option(
    "--trials",
    type=click.IntRange(1),
    metavar="N",
    help="Points in all, those of earlier runs among them.  [default: the whole grid, else 100]",
)
@click.option("--storage", metavar="URL", help="The study's database.  [default: sqlite:///SPACE-MODEL.db]")
@click.option(
    "--executor",
    default="processes",
    show_default=True,
    metavar="processes[:N]|dask://HOST:PORT",
    help="Who evaluates points.",
)
@click.option(
    "--confirm", type=click.IntRange(0), default=0, metavar="N", help="Run the N best points on the RTL."
)
@click.option("--report", type=PATH, metavar="FILE.html", help="Write a report as one HTML page.")
@click.option("--csv", type=PATH, metavar="FILE", help="Write all points as a table.")
@click.option("--export", type=PATH, metavar="DIR", help="Write the machines of the front as TOML files.")
@click.option(
    "--family", type=click.Choice(["ecp5", "xilinx"]), default="ecp5", show_default=True, help="The FPGA."
)
@click.option(
    "--synth", "synthesis", is_flag=True, help="Measure resources by synthesis instead of estimating them."
)
@click.option("--energy", type=PATH, metavar="TABLE.toml", help="Energies in pJ instead of the default ones.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Seed of the search.")
@backend
@host
@as_json
def command(space: Path, models: tuple[Path, ...], json_: bool, **options: Any) -> int:
    """Explore the machines of SPACE.toml: cycles, resources, clock and energy of each for the models.

    Every point is compiled for, and its cycles are those of the exact cycle model. All points are kept in a
    database: the same command goes on where an earlier one ended, in whatever way. Points that the compiler
    refuses are kept with the reason. See docs/explore.md.
    """
    # The mapper and optuna take time to import.
    from heald.exploration import output
    from heald.exploration.command import Request, explore, prepare
    from heald.exploration.study import without_password

    for name in ("report", "csv"):
        if options[name] is not None:
            check_writable(options[name])
    if options["export"] is not None:
        check_directory(options["export"])
    asked = {name: value for name, value in options.items() if name not in ("report", "csv", "export")}
    request = Request(space, models, **asked)
    prepared = prepare(request)
    storage = without_password(prepared.storage)
    note(f"{prepared.space.feasible.size:,} points satisfy the constraints; study {storage}")
    with _resumable(prepared), shown(stages(note, _PAUSE)) as tell:
        found = explore(prepared, lambda progress: tell(_told(progress)), note)
    if options["csv"] is not None:
        output.write_csv(options["csv"], found)
    if options["export"] is not None:
        output.export(options["export"], found, prepared.space)
    if options["report"] is not None:
        output.report(options["report"], found, prepared.space)
    if json_:
        print_json(output.as_dict(found, storage))
    else:
        output.show(found, stdout())
    wrong = [c for c in found.confirmations if not c.confirmed]
    for c in wrong:
        note(f"point {c.point} differs on the RTL: {c.difference}")
    return 1 if wrong else 0


@contextlib.contextmanager
def _resumable(prepared: Prepared) -> Iterator[None]:
    """After an interrupt, tell what there is and how to go on."""
    from heald.exploration.command import kept_so_far
    from heald.exploration.output import summary
    from heald.exploration.study import without_password

    try:
        yield
    except KeyboardInterrupt:
        with contextlib.suppress(InputError):
            note(summary(kept_so_far(prepared)))
        storage = without_password(prepared.storage)
        note(f"all of it is in {storage}: the same command goes on from here")
        raise


def _told(progress: Progress) -> str:
    from heald.exploration.results import State

    refused = sum(p.state is State.REFUSED for p in progress.done)
    done = progress.known + len(progress.done)
    text = f"{done} of {progress.target} points, {progress.rate:.2f} points/s"
    text += f", {refused} refused" if refused else ""
    return text if progress.left is None else f"{text}, about {timedelta(seconds=round(progress.left))} left"
