"""Random products on random memories, on the RTL against model and NumPy, for as long as wanted.

    python -m tests.fuzz.random_products --count 1000 --seed 7

Prints a line per machine; exit code 1 if anything differed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import click
import numpy as np
from rich.console import Console
from rich.table import Table

from cosim.backends import simulator
from cosim.compare import compare
from cosim.models.cycle import predict
from heald.testing.problems import Case, compile_problem, draw, draw_convolution, problem_job, result
from hw.config import MachineConfig, load
from tests.machines import TEST, WIDE

_BARE = TEST.replace(cgra=None)

#: Six small machines that differ in what matters: shape of the array, ports, banks, queues; two with a grid.
MACHINES: dict[str, MachineConfig] = {
    "test": TEST,
    "wide": WIDE,
    "tall": _BARE.replace(
        name="tall",
        rows=8,
        cols=2,
        load_a_bytes=16,
        load_b_bytes=4,
        store_bytes=4,
        acc_banks=4,
        queue_depth=1,
    ),
    "narrow": _BARE.replace(
        name="narrow",
        rows=8,
        cols=8,
        load_a_bytes=4,
        load_b_bytes=4,
        store_bytes=8,
        queue_depth=1,
    ),
    "broad": _BARE.replace(
        name="broad",
        load_a_bytes=32,
        load_b_bytes=16,
        store_bytes=4,
        acc_banks=8,
        queue_depth=2,
        registers=24,
    ),
    "tiny": load("tiny"),
}


@dataclass
class Tally:
    """What came of the cases of one machine."""

    products: int = 0
    macs: int = 0
    cycles: int = 0
    events: int = 0
    failures: list[str] = field(default_factory=list)


def prove(config: MachineConfig, cases: Sequence[Case], sim: str) -> Tally:
    """Run the cases in one simulation and compare results, events, cycles and counters."""
    tally = Tally()
    work = []
    for case in cases:
        kernel = compile_problem(case.problem, config)
        a, b = case.problem.random(np.random.default_rng(case.seed))
        work.append((case, kernel, a, b, problem_job(kernel, a, b, case.settings)))
    observed = simulator(config, sim).run([job for *_, job in work])
    for (case, kernel, a, b, job), outcome in zip(work, observed, strict=True):
        tally.products += 1
        tally.macs += case.problem.macs
        tally.cycles += outcome.cycles
        tally.events += len(outcome.events)
        divergence = compare(config, job, predict(config, job), outcome)
        if divergence is not None:
            tally.failures.append(f"{case}: {divergence}")
        elif not np.array_equal(result(kernel, outcome), case.problem.reference(a, b)):
            tally.failures.append(f"{case}: the result is wrong")
    return tally


@click.command()
@click.option("--count", default=200, show_default=True, help="Products, spread over the machines.")
@click.option("--seed", default=0, show_default=True)
@click.option("--sim", default="cpp", show_default=True, type=click.Choice(["verilator", "cpp"]))
@click.option("--convolutions", is_flag=True, help="Draw convolutions instead of products.")
@click.option("--machine", multiple=True, type=click.Choice(list(MACHINES)), help="Default: all.")
def main(count: int, seed: int, sim: str, convolutions: bool, machine: tuple[str, ...]) -> None:
    """Compare random products or convolutions with model and NumPy."""
    table = Table("machine", "products", "MACs", "cycles", "events", "differences")
    names = machine or tuple(MACHINES)
    failures: list[str] = []
    for name in names:
        config = MACHINES[name]
        made = draw_convolution if convolutions else draw
        cases = [made(config, f"{seed}/{name}/{i}") for i in range(-(-count // len(names)))]
        tally = prove(config, cases, sim)
        failures += tally.failures
        table.add_row(
            name,
            *(
                f"{v:,}"
                for v in (tally.products, tally.macs, tally.cycles, tally.events, len(tally.failures))
            ),
        )
    Console(width=100).print(table)
    for text in failures:
        click.echo(text)
    raise SystemExit(bool(failures))


if __name__ == "__main__":
    main()
