"""Random products on random memories, on the RTL against model and NumPy, for as long as it is let.

    python -m bench.random_products --count 1000 --seed 7

prints a line per machine; exit code 1 if anything differed.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

import click
import numpy as np
from rich.console import Console
from rich.table import Table

from bench.problems import compile_problem, problem_job
from cosim.backends import simulator
from cosim.compare import compare
from cosim.models.cycle import predict
from cosim.settings import MemorySettings
from hw.config import PORTS, MachineConfig, load
from sw.convolution import Convolution
from sw.patches import Axis
from sw.problem import Product

_TEST = load("test")
_BARE = _TEST.replace(cgra=None)

#: Six small machines that differ in what matters: shape of the array, ports, banks, queues; two with a grid.
MACHINES: dict[str, MachineConfig] = {
    "test": _TEST,
    "wide": _BARE.replace(
        name="wide", rows=2, cols=8, load_a_bytes=4, load_b_bytes=16, store_bytes=16, acc_banks=1
    ),
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


@dataclass(frozen=True)
class Case:
    """One product or convolution, its operands' seed and its memories."""

    problem: Product | Convolution
    settings: MemorySettings
    seed: int


@dataclass
class Tally:
    """What came of the cases of one machine."""

    products: int = 0
    macs: int = 0
    cycles: int = 0
    events: int = 0
    failures: list[str] = field(default_factory=list)


def draw(config: MachineConfig, seed: str) -> Case:
    """A random case: 1 to 300 per dimension, types, zero points, layouts, latency, bandwidth, stalls."""
    r = random.Random(seed)

    def size() -> int:
        return r.choice([r.randint(1, 12), r.randint(1, 64), r.randint(1, 300)])

    types = {x: r.choice(["int8", "uint8"]) for x in "ab"}
    zeros = {x: r.choice([0, r.randint(*((-128, 127) if types[x] == "int8" else (0, 255)))]) for x in "ab"}
    problem = Product(
        size(),
        size(),
        size(),
        types["a"],
        types["b"],
        zeros["a"],
        zeros["b"],
        r.random() < 0.5,
        r.random() < 0.5,
    )
    return Case(problem, memories(config, r), r.randrange(1 << 32))


def draw_convolution(config: MachineConfig, seed: str) -> Case:
    """A random convolution: kernels, strides, padding, dilation, groups, images, types, zero points."""
    r = random.Random(seed)
    kernel_most = min(config.buffer_a_bytes // config.rows, config.buffer_b_bytes // config.cols) // 4

    def axis() -> Axis:
        kernel, dilation = r.choice([1, 2, 3, 3, 5, 7]), r.choice([1, 1, 2, 3])
        before, after = (r.choice([0, 0, 1, kernel // 2, r.randint(0, 9)]) for _ in range(2))
        least = max(1, (kernel - 1) * dilation + 1 - before - after)
        size = max(least, r.choice([r.randint(1, 9), r.randint(1, 40), r.randint(30, 120)]))
        return Axis(size, kernel, r.choice([1, 1, 2, 3, 7]), before, after, dilation)

    while True:
        rows, cols = axis(), axis()
        groups, images = r.choice([1, 1, 2]), r.choice([1, 1, 2])
        channels, out = groups * r.randint(1, 24), groups * r.randint(1, 24)
        size = images * out * channels * rows.outputs * cols.outputs * rows.kernel * cols.kernel // groups
        if size < 30_000 * config.macs_per_cycle and rows.kernel * cols.kernel < kernel_most:
            break
    types = {x: r.choice(["int8", "uint8"]) for x in "ab"}
    zeros = {x: r.choice([0, r.randint(*((-128, 127) if types[x] == "int8" else (0, 255)))]) for x in "ab"}
    problem = Convolution(
        images, channels, rows, cols, out, types["a"], types["b"], zeros["a"], zeros["b"], groups
    )
    return Case(problem, memories(config, r), r.randrange(1 << 32))


def memories(config: MachineConfig, r: random.Random) -> MemorySettings:
    """Random latencies, and for some bandwidths and stalls."""
    return MemorySettings.of(
        config,
        latency={p: r.randint(1, 100) for p in PORTS},
        bandwidth={p: r.randint(1, config.port_bytes(p)) for p in PORTS} if r.random() < 0.4 else None,
        stall_seed=r.randrange(1 << 32) if r.random() < 0.5 else None,
        stall_rate=r.choice([16, 64, 128]),
    )


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
        tally.macs += kernel.problem.macs
        tally.cycles += outcome.cycles
        tally.events += len(outcome.events)
        divergence = compare(config, job, predict(config, job), outcome)
        if divergence is not None:
            tally.failures.append(f"{case}: {divergence}")
        elif not np.array_equal(kernel.extract(outcome.outputs[0]), case.problem.reference(a, b)):
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
