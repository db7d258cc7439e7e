"""`python -m hw.formal`: proves the properties in docs/formal.md and checks that planted faults are found."""

from __future__ import annotations

import json
import os
import sys
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from hw import cache
from hw.errors import InputError
from hw.formal import table, tools
from hw.formal.catalogue import PROOFS
from hw.formal.prover import Outcome, run


def _one(proof: str, fault: str | None, found: tools.Tools, folder: Path) -> Outcome:
    """Runs one job in a worker; proofs are passed by name, because their functions cannot be pickled."""
    planted = next((f for f in PROOFS[proof].faults if f.name == fault), None)
    return run(PROOFS[proof], planted, found, folder)


def prove(
    jobs: list[tuple[str, str | None]], found: tools.Tools, folder: Path, workers: int, console: Console
) -> list[Outcome]:
    """Runs all jobs (proof, fault or None) in a pool and reports each; returns the results in job order."""
    done: dict[tuple[str, str | None], Outcome] = {}
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with (
        ProcessPoolExecutor(workers) as pool,
        Progress(*columns, console=console, transient=True) as progress,
    ):
        task = progress.add_task("proofs", total=len(jobs))
        futures = {pool.submit(_one, *job, found, folder): job for job in jobs}
        for future in as_completed(futures):
            job = futures[future]
            done[job] = future.result()
            name = ", fault ".join(filter(None, job))
            progress.update(task, advance=1, description=name)
            if not console.is_terminal:
                verdict = ("found" if job[1] else "proved") if done[job].holds else "NOT as it must be"
                line = f"{len(done)} of {len(jobs)}: {name}: {verdict}, {done[job].seconds:.0f} s"
                console.print(line, soft_wrap=True, markup=False, highlight=False)
    return [done[job] for job in jobs]


def _selected(names: tuple[str, ...], faults: bool) -> list[tuple[str, str | None]]:
    """The jobs for the named proofs, or for all; the faults of a proof follow it."""
    for name in names:
        if name not in PROOFS:
            raise InputError(f"NAME must be one of {', '.join(PROOFS)}, not {name!r}")
    chosen = tuple(dict.fromkeys(names)) or tuple(PROOFS)
    return [
        (name, fault)
        for name in chosen
        for fault in (None, *((f.name for f in PROOFS[name].faults) if faults else ()))
    ]


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--faults", is_flag=True, help="Plant faults too, each of which must be found.")
@click.option("--list", "listing", is_flag=True, help="List the proofs and end.")
@click.option(
    "--page", is_flag=True, help="Print statements and faults as Markdown (docs/formal.md) and end."
)
@click.option("--json", "as_json", is_flag=True, help="Print the results as JSON.")
@click.option(
    "--solver", type=click.Choice(list(tools.SOLVERS)), help="The solver of all (the best for each)."
)
@click.option("--workers", type=click.IntRange(1), help="Proofs at a time (the number of processors).")
@click.option("--folder", type=click.Path(file_okay=False, path_type=Path), help="Where files and traces go.")
def main(
    names: tuple[str, ...],
    faults: bool,
    listing: bool,
    page: bool,
    as_json: bool,
    solver: str | None,
    workers: int | None,
    folder: Path | None,
) -> None:
    """Prove the machine's properties, all or those of the proofs NAME.

    Exit code 1 if a proof fails or a planted fault is not found, 2 for bad input or a missing tool.
    """
    if page:
        click.echo(table.page(PROOFS), nl=False)
        return
    if listing:
        for name, proof in PROOFS.items():
            click.echo(f"{name:24} {proof.title}")
        return
    try:
        jobs = _selected(names, faults)
        found = tools.find(solver)
        place = (folder or cache.directory() / "formal").absolute()
        try:
            place.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise cache.unwritable(place, error) from None
        outcomes = prove(jobs, found, place, workers or os.cpu_count() or 1, Console(stderr=True))
    except InputError as error:
        click.echo(f"hw.formal: {error}", err=True)
        sys.exit(2)
    results = table.reports(outcomes, PROOFS, faults=faults)
    if as_json:
        click.echo(json.dumps(table.as_data(results, found), indent=2))
    else:
        table.show(results, Console())
    sys.exit(0 if all(r.holds for r in results) else 1)


if __name__ == "__main__":
    main()
