"""Predicted against RTL utilization, and the composition of every difference.

    python -m bench.prediction [--count N] [--hw PRESET ...] [--sim cpp|verilator]
    python -m bench.prediction --set bert|resnet [--hw default]

By default, it runs 24 products and 8 convolutions on each of three machines, from a few to some hundred
blocks, in all layouts. Columns are fractions of the RTL's cycles: multiplying at the peak (the planner's cost
if the array bounds it), and the losses at ragged edges, while the pipeline fills (first loads) and drains
(last store), to memory latency before and after, and while the array waits for ports and for double buffers.
`error` is the unexplained rest. With --refine N, the plan is the fastest of N by the cycle model, whose
prediction must be exact.
"""

from __future__ import annotations

import random
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass

import click
import numpy as np
from rich.console import Console
from rich.table import Table

from cosim.backends import simulator
from cosim.compare import compare
from cosim.models.cycle import predict
from cosim.session.tiling import MachinePlan, plan_for_machine
from cosim.settings import MemorySettings
from heald.testing.problems import bounds, compile_problem, problem_job, result
from hw.config import PORTS, MachineConfig, load
from sw.convolution import Convolution
from sw.patches import Axis
from sw.problem import Product

MACHINES = ("tiny", "lean", "default")
#: Limit on a random product's multiply-accumulates per unit of the array; keeps each under 60,000 cycles.
LARGEST = 50_000

#: Distinct convolutions of ResNet-50: image size, channels in and out, kernel, stride, padding.
RESNET = (
    (224, 3, 64, 7, 2, 3),
    (56, 64, 64, 1, 1, 0),
    (56, 64, 64, 3, 1, 1),
    (56, 64, 256, 1, 1, 0),
    (56, 256, 64, 1, 1, 0),
    (56, 256, 128, 1, 1, 0),
    (56, 128, 128, 3, 2, 1),
    (56, 256, 512, 1, 2, 0),
    (28, 128, 512, 1, 1, 0),
    (28, 512, 128, 1, 1, 0),
    (28, 128, 128, 3, 1, 1),
    (28, 512, 256, 1, 1, 0),
    (28, 256, 256, 3, 2, 1),
    (28, 512, 1024, 1, 2, 0),
    (14, 256, 1024, 1, 1, 0),
    (14, 1024, 256, 1, 1, 0),
    (14, 256, 256, 3, 1, 1),
    (14, 1024, 512, 1, 1, 0),
    (14, 512, 512, 3, 2, 1),
    (14, 1024, 2048, 1, 2, 0),
    (7, 512, 2048, 1, 1, 0),
    (7, 2048, 512, 1, 1, 0),
    (7, 512, 512, 3, 1, 1),
)

Problem = Product | Convolution


@dataclass(frozen=True)
class Row:
    """One problem: the prediction and the RTL's result."""

    problem: Problem
    plan: MachinePlan
    cycles: int
    bound: int
    fine: bool

    @property
    def utilization(self) -> float:
        """Fraction of the array's peak that the RTL reached."""
        return self.plan.estimate.ideal / self.cycles

    @property
    def error(self) -> float:
        """Predicted against observed utilization."""
        return self.plan.utilization / self.utilization - 1


def bert(lengths: Sequence[int] = (128, 384, 512)) -> list[Problem]:
    """The matrix products of a layer of BERT-large; those of attention as a batch of all 16 heads."""
    found: list[Problem] = []
    for s in lengths:
        found += [Product(s, 1024, 1024), Product(s, 1024, 4096), Product(s, 4096, 1024)]
        found.append(Product(s, 64, s, transposed_b=True, batch_a=(16,), batch_b=(16,)))
        found.append(Product(s, s, 64, batch_a=(16,), batch_b=(16,)))
    return found


def resnet() -> list[Problem]:
    """The distinct convolutions of ResNet-50, with uint8 activations."""
    made: list[Problem] = []
    for size, channels, out, kernel, stride, pad in RESNET:
        axis = Axis(size, kernel, stride, pad, pad)
        made.append(Convolution(1, channels, axis, axis, out, type_b="uint8", zero_b=128))
    return made


def draw(config: MachineConfig, seed: str) -> Product:
    """A random product of any layout, large enough to take the machine some time."""
    r = random.Random(seed)
    while True:
        m, k, n = (r.choice([r.randint(8, 100), r.randint(8, 400), r.randint(100, 1200)]) for _ in range(3))
        if 2000 <= m * k * n / config.macs_per_cycle <= LARGEST:
            return Product(m, k, n, transposed_a=r.random() < 0.25, transposed_b=r.random() < 0.4)


def draw_convolution(config: MachineConfig, seed: str) -> Convolution:
    """A random convolution of similar size."""
    r = random.Random(seed)
    while True:
        rows, cols = (
            Axis(r.choice([r.randint(7, 64), r.randint(14, 200)]), k, r.choice([1, 1, 2]), k // 2, k // 2)
            for k in (r.choice([1, 3, 3, 5, 7]), r.choice([1, 3, 3, 5, 7]))
        )
        made = Convolution(
            r.choice([1, 1, 4]), r.choice([3, 8, 16, 64]), rows, cols, r.choice([8, 16, 64, 128])
        )
        if 2000 <= made.macs / config.macs_per_cycle <= LARGEST:
            return made


def measure(
    config: MachineConfig,
    problems: Sequence[Problem],
    sim: str,
    candidates: int = 0,
    bandwidth: int | None = None,
) -> list[Row]:
    """Plan, compile, run and compare the problems on one machine, optionally with slower ports."""
    rate = {port: min(bandwidth or 1 << 10, config.port_bytes(port)) for port in PORTS}
    settings = MemorySettings.of(config, bandwidth=rate)
    machine = simulator(config, sim)
    rows = []
    for problem in problems:
        plan = plan_for_machine(problem, config, settings, candidates)
        kernel = compile_problem(problem, config, blocking=plan.blocking)
        a, b = problem.random(np.random.default_rng(0))
        job = problem_job(kernel, a, b, settings)
        (outcome,) = machine.run([job])
        fine = compare(config, job, predict(config, job), outcome) is None and np.array_equal(
            result(kernel, outcome), problem.reference(a, b)
        )
        rows.append(Row(problem, plan, outcome.cycles, max(bounds(problem, kernel, rate).values()), fine))
    return rows


def table(config: MachineConfig, rows: Sequence[Row]) -> Table:
    """A row per problem."""
    made = Table(title=f"{config.name}: {config.rows}×{config.cols}", box=None, header_style="dim")
    made.add_column("problem", no_wrap=True)
    for name in (
        "cycles",
        "bound",
        "peak",
        "ragged",
        "fill",
        "drain",
        "latency",
        "waits",
        "predicted",
        "RTL",
        "error",
    ):
        made.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        e = row.plan.estimate
        before, after = max(config.load_a_latency, config.load_b_latency), config.store_latency
        fill, drain = e.fill - before, e.drain - after
        every = (e.ideal, e.ragged, fill, drain, before + after, e.waits)
        parts = [100 * part / row.cycles for part in every]
        made.add_row(
            str(row.problem) + ("" if row.fine else "  WRONG"),
            f"{row.cycles:,}",
            f"{row.bound / row.cycles:.3f}",
            *(f"{part:.1f} %" for part in parts),
            f"{100 * row.plan.utilization:.2f} %",
            f"{100 * row.utilization:.2f} %",
            f"{100 * row.error:+.2f} %",
        )
    return made


@click.command()
@click.option(
    "--count",
    default=24,
    show_default=True,
    help="Random products per machine, and a third as many convolutions.",
)
@click.option("--hw", "machines", multiple=True, help="Machines; default: tiny, lean and default.")
@click.option("--set", "name", type=click.Choice(["random", "bert", "resnet"]), default="random")
@click.option("--refine", "candidates", default=0, show_default=True)
@click.option("--bandwidth", type=int, help="Bytes per cycle of every port, where less than its width.")
@click.option("--sim", default="cpp", show_default=True, type=click.Choice(["cpp", "verilator"]))
def main(
    count: int, machines: tuple[str, ...], name: str, candidates: int, bandwidth: int | None, sim: str
) -> None:
    """Print a table per machine, then median and worst error of all; exit code 1 if a result was wrong."""
    console = Console(width=150)
    every: list[Row] = []
    for hw in machines or (MACHINES if name == "random" else ("default",)):
        config = load(hw)
        problems: list[Problem] = {"bert": bert, "resnet": resnet}.get(name, list)()
        if name == "random":
            problems = [draw(config, f"{hw}/{i}") for i in range(count)]
            problems += [draw_convolution(config, f"{hw}/{i}") for i in range(count // 3)]
        rows = measure(config, problems, sim, candidates, bandwidth)
        console.print(table(config, rows))
        every += rows
    errors = sorted(abs(row.error) for row in every)
    console.print(
        f"{len(every)} problems: median error {100 * statistics.median(errors):.3f} %, worst "
        f"{100 * errors[-1]:.2f} %; least bound/cycles {min(r.bound / r.cycles for r in every):.4f}"
    )
    wrong = sum(not row.fine for row in every)
    if wrong:
        console.print(f"{wrong} results or cycles WRONG")
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
