"""Measures the mapper: IIs and times of the benchmark graphs beside Morpher's, and large fabrics.

    python -m bench.mapping [--fabric NAME]... [--cold] [--seeds N] [--scale [--efforts N]]

The graphs are those in tests/data/dfg, with memory ports in the left column. Times are wall and CPU seconds.
`--cold` first measures a process with an empty cache of compiled code. `--scale` maps generated and unrolled
graphs to larger fabrics, through groups of PEs and flat, with equal budgets. It shows the smallest II, and
when each reached the best II that both reach. Exit code 1 if a mapping is wrong.
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from heald.testing.graphs import generated
from hw.fabric import Fabric, load
from sw.cgra.encode import differences
from sw.cgra.search import EFFORTS, Budget, SearchEvent, SearchResult, map_graph
from sw.dfg.graph import Graph
from sw.dfg.json import load_graph
from sw.dfg.unroll import unroll

DFG = Path(__file__).parents[1] / "tests/data/dfg"
#: Morpher 2026-11 on a nearest-neighbour mesh: II and seconds, measured beside other work.
MORPHER = {
    "sum": "1, 1.4",
    "mac": "1, 1.6",
    "matrixmultiply": "crashes",
    "conv2": "2, 3.7",
    "accumulate": "2, 2.9",
    "mults1": "4, 18.8",
    "conv3": "2, 14.8",
    "cap": "2, 56.1",
    "mults2": "3, 5.9",
    "mac2": "2, 27.1",
    "array_add": "4, 11.3",
    "atax": "5, 42.5",
    "2mm": "none in 60 s",
}
#: Fabric edge and graph: file and unroll factor, or operators and parts of a generated one.
SCALE: tuple[tuple[int, str, int], ...] = (
    (8, "bicg_unroll3", 4),
    (8, "dct", 3),
    (8, "generated 120", 2),
    (8, "generated 250", 4),
    (8, "generated 500", 4),
    (16, "generated 250", 4),
    (16, "generated 500", 8),
    (32, "generated 500", 8),
)
_COLD = "from bench.mapping import first; first()"


def first() -> None:
    """Map one small graph, to load what a process needs before it can map."""
    map_graph(load_graph(DFG / "mac.json"), load("mesh4x4"))


@dataclass(frozen=True)
class Run:
    """A search with its times, and when it reached each II."""

    outcome: SearchResult
    wall: float
    processor: float
    reached: dict[int, float]


def run(graph: Graph, fabric: Fabric, seed: int = 0, flat: bool = False, budget: Budget = EFFORTS) -> Run:
    """Map a graph and check the result in every way; raises `ValueError` if it is wrong."""
    wall, processor = time.perf_counter(), time.process_time()
    starts: list[tuple[int, float]] = []

    def report(event: SearchEvent) -> None:
        starts.append((event.ii, time.process_time() - processor))

    outcome = map_graph(graph, fabric, seed=seed, flat=flat, budget=budget, report=report)
    wall, processor = time.perf_counter() - wall, time.process_time() - processor
    ends = [*(at for _, at in starts[1:]), processor]
    reached: dict[int, float] = {}
    for attempt, end in zip(outcome.attempts, ends, strict=False):
        if attempt.left == 0:
            reached.setdefault(attempt.ii, end)
    if outcome.mapping and (wrong := differences(outcome.mapping)):
        raise ValueError(f"{graph.name} on {fabric.name}: {wrong[0]}")
    return Run(outcome, wall, processor, reached)


def cold(console: Console) -> None:
    """The very first mapping, which compiles everything."""
    with tempfile.TemporaryDirectory() as cache:
        for what in ("cold", "warm"):
            before, wall = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
            subprocess.run(
                [sys.executable, "-c", _COLD], check=True, env={**os.environ, "NUMBA_CACHE_DIR": cache}
            )
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
            wall = time.perf_counter() - wall
            console.print(f"first graph of a process, {what}: {wall:.1f} s, {used:.1f} s of the processor")


def graphs(console: Console, name: str, seeds: int) -> None:
    """The table of the benchmark graphs on a fabric."""
    first()
    table = Table(
        "graph", "operators", "MII", "II", "s", "s CPU", "attempts", "Morpher mesh: II, s", title=name
    )
    times = []
    for path in sorted(DFG.glob("*.json"), key=lambda p: len(load_graph(p).nodes)):
        graph = load_graph(path)
        runs = [run(graph, load(name), seed) for seed in range(seeds)]
        found = sorted({r.outcome.mapping.ii if r.outcome.mapping else 0 for r in runs})
        times += [r.wall for r in runs]
        table.add_row(
            graph.name,
            str(len(graph.nodes)),
            str(runs[0].outcome.bound.mii),
            "-".join(map(str, dict.fromkeys((found[0], found[-1])))),
            _span([r.wall for r in runs]),
            _span([r.processor for r in runs]),
            _span([len(r.outcome.attempts) for r in runs]),
            MORPHER.get(graph.name, "not run"),
        )
    console.print(table)
    console.print(f"median {statistics.median(times):.3f} s")


def _span(values: list[float] | list[int]) -> str:
    """The smallest and largest of some values."""
    shown: Callable[[float], str] = lambda v: f"{v:.2f}" if isinstance(v, float) else str(v)  # noqa: E731
    return " - ".join(dict.fromkeys((shown(min(values)), shown(max(values)))))


def scale(console: Console, efforts: int) -> None:
    """Groups against flat on large fabrics, with a budget of `efforts` efforts."""
    budget = EFFORTS[:efforts]
    first()
    table = Table(
        "grid", "graph", "operators", "MII", "groups: II, s", "flat: II, s", "s to the II of both", "ratio"
    )
    for edge, name, times in SCALE:
        kind, _, size = name.partition(" ")
        graph = (
            generated(int(size), 1, parts=times) if size else unroll(load_graph(DFG / f"{kind}.json"), times)
        )
        fabric = load("mesh4x4", (edge, edge))
        groups, flat = (run(graph, fabric, flat=f, budget=budget) for f in (False, True))
        shown = [
            f"{r.outcome.mapping.ii if r.outcome.mapping else 'none'}, {r.processor:.1f}"
            for r in (groups, flat)
        ]
        reach, ratio = "none", ""
        if groups.reached and flat.reached:
            both = max(min(r.reached) for r in (groups, flat))
            first_at = [min(at for ii, at in r.reached.items() if ii <= both) for r in (groups, flat)]
            reach, ratio = f"{both}: {first_at[0]:.2f}, {first_at[1]:.2f}", f"{first_at[1] / first_at[0]:.2f}"
        label = f"{name} x{times}"
        table.add_row(
            f"{edge}x{edge}",
            label,
            str(len(graph.nodes)),
            str(groups.outcome.bound.mii),
            *shown,
            reach,
            ratio,
        )
        console.print(
            f"{edge}x{edge} {label}: groups {shown[0]}; flat {shown[1]}; to II {reach}; ratio {ratio}"
        )
    console.print(table)


@click.command()
@click.option("--fabric", "names", multiple=True, default=("mesh4x4", "torus4x4"))
@click.option("--cold", "with_cold", is_flag=True)
@click.option("--seeds", default=1)
@click.option("--scale", "with_scale", is_flag=True)
@click.option("--efforts", default=1, help="efforts of the search on large grids")
def main(names: tuple[str, ...], with_cold: bool, seeds: int, with_scale: bool, efforts: int) -> None:
    """Print the tables."""
    console = Console(width=150)
    if with_cold:
        cold(console)
    if with_scale:
        scale(console, efforts)
        return
    for name in names:
        graphs(console, name, seeds)


if __name__ == "__main__":
    main()
