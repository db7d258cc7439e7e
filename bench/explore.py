"""Exploration: the speed of a grid, and how much of its front NSGA-II finds with a quarter of the points.

    python -m bench.explore --grid --model build/bert_encoder.onnx [--executor processes:2] [--storage URL]
    python -m bench.explore --nsga2 --model build/bert_encoder.onnx [--seeds 10] [--storage URL]

The space is that of example 11. `--grid` evaluates all of it, resuming an earlier run; the time covers only
the points evaluated now. `--nsga2` searches with several seeds and looks points up in the finished grid,
which gives the same values, since nothing in them is random. Hypervolumes are measured from the worst values
of the grid.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from cosim.session.pareto import dominated, extremes, vector
from heald.exploration.command import (
    Prepared,
    Request,
    explore,
    fingerprints,
    kept_so_far,
    prepare,
)
from heald.exploration.evaluate import Evaluation
from heald.exploration.results import Exploration, Point, State, ranked
from heald.exploration.samplers import sampler
from heald.exploration.search import Progress, Search
from heald.exploration.study import distributions, fields_of, open_study
from heald.exploration.worker import Answer
from hw.config import MachineConfig
from hw.errors import InputError

SPACE = Path(__file__).resolve().parents[1] / "examples/11_exploration/space.toml"
#: Fraction of the grid's points that a search may use (1 / QUARTER), and of its volume that it must find.
QUARTER, ENOUGH = 4, 0.95


@dataclass
class Known:
    """Workers that look points up in the grid."""

    points: Mapping[str, Point]
    patience: int = 1
    queues: bool = False

    def count(self) -> int:
        """As many points at a time as two cores would evaluate."""
        return 2

    def submit(self, config: MachineConfig) -> Future[Answer]:
        """The result in the grid."""
        point = self.points[str(fields_of(config))]
        future: Future[Answer] = Future()
        if point.state is State.REFUSED:
            future.set_result(Answer(refused=point.reason))
        else:
            future.set_result(Answer(Evaluation(point.metrics, (), 0.0)))
        return future

    def heard_of(self, task: Future[Answer]) -> str:
        """Empty: nothing takes long."""
        return ""

    def translate(self, error: BaseException) -> BaseException:
        """The error itself: no worker is ever lost."""
        return error

    def close(self, *, kill: bool) -> None:
        """Does nothing: there are no processes."""


def searched(prepared: Prepared, known: Known, trials: int, seed: int) -> list[Point]:
    """The points that NSGA-II chooses."""
    space = prepared.space
    with tempfile.TemporaryDirectory() as folder:
        kept = open_study(f"sqlite:///{folder}/search.db", prepared.name, space, fingerprints(prepared))
        try:
            made = sampler("nsga2", space.feasible, space.values, distributions(space), trials, seed)
            kept.study.sampler = made
            Search(kept, made, known, trials).run()
            return kept.points()
        finally:
            kept.close()


def volume(points: list[Point], grid: list[Point], objectives: Mapping[str, str]) -> float:
    """The hypervolume of a front in the box of the grid's values."""
    complete = [vector(p.metrics, objectives) for p in grid if p.state is State.COMPLETE]
    best, worst = extremes(complete, len(objectives))
    ranks = ranked(points, objectives)
    vectors = [vector(p.metrics, objectives) for p in (ranks[0] if ranks else [])]
    return dominated(vectors, best, worst)


def tell(progress: Progress) -> None:
    """Print a line for every twentieth point."""
    done = len(progress.done)
    if done and done % 20 == 0:
        click.echo(f"{progress.known + done} of {progress.target}, {progress.rate:.2f} points/s", err=True)


def grid_table(found: Exploration, seconds: float) -> Table:
    """A line for the grid."""
    table = Table(title="grid", box=None, header_style="dim")
    for title in ("points", "complete", "infeasible", "refused", "front", "seconds", "points/s"):
        table.add_column(title, justify="right")
    counts = [len(found.of(state)) for state in (State.COMPLETE, State.INFEASIBLE, State.REFUSED)]
    cells = (len(found.points), *counts, len(found.front), f"{seconds:.0f}", f"{found.points_per_second:.2f}")
    table.add_row(*map(str, cells))
    return table


def nsga2_table(prepared: Prepared, grid: Exploration, seeds: int) -> tuple[Table, float]:
    """A line for every seed, and the smallest fraction of the grid's volume."""
    points = list(grid.points)
    known = Known({str(fields_of(prepared.space.machine(p.parameters))): p for p in points if p.metrics})
    known = Known({**known.points, **_refused(prepared, points)})
    whole = volume(points, points, grid.objectives)
    trials = len(points) // QUARTER
    table = Table(title=f"NSGA-II, {trials} of {len(points)} points", box=None, header_style="dim")
    for title in ("seed", "different points", "front", "share of the grid's volume"):
        table.add_column(title, justify="right")
    least = 1.0
    for seed in range(seeds):
        found = searched(prepared, known, trials, seed)
        share = volume(found, points, grid.objectives) / whole
        least = min(least, share)
        different = len({str(sorted(p.parameters.items())) for p in found})
        front = len(ranked(found, grid.objectives)[0])
        table.add_row(str(seed), str(different), str(front), f"{100 * share:.1f} %")
    return table, least


def _refused(prepared: Prepared, points: list[Point]) -> dict[str, Point]:
    """Points that the compiler refused; those that cannot be built never reach the workers."""
    found = {}
    for point in points:
        if point.state is State.REFUSED:
            try:
                found[str(fields_of(prepared.space.machine(point.parameters)))] = point
            except InputError:
                continue
    return found


@click.command()
@click.option("--grid", is_flag=True, help="Evaluate the whole space.")
@click.option("--nsga2", is_flag=True, help="Compare NSGA-II with the finished grid.")
@click.option("--model", type=click.Path(exists=True, dir_okay=False, path_type=Path), required=True)
@click.option("--space", type=click.Path(exists=True, dir_okay=False, path_type=Path), default=SPACE)
@click.option("--executor", default="processes:2", show_default=True)
@click.option("--storage", metavar="URL")
@click.option("--seeds", default=10, show_default=True)
def main(
    grid: bool, nsga2: bool, model: Path, space: Path, executor: str, storage: str | None, seeds: int
) -> None:
    """Print tables; exit 1 if NSGA-II finds less than 95 % of the volume with some seed."""
    prepared = prepare(Request(space, (model,), storage=storage, executor=executor))
    console = Console(width=120)
    if grid:
        begin = time.perf_counter()
        found = explore(prepared, tell, lambda text: None)
        console.print(grid_table(found, time.perf_counter() - begin))
    if nsga2:
        held = kept_so_far(prepared)
        if len(held.points) < held.size:
            raise click.ClickException(f"the grid has {len(held.points)} of {held.size} points: --grid first")
        table, least = nsga2_table(prepared, held, seeds)
        console.print(table)
        if least < ENOUGH:
            raise SystemExit(1)


if __name__ == "__main__":
    main()
