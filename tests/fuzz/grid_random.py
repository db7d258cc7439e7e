"""Random launches of the CGRA on the RTL against the model, and bitstreams with flipped bits.

    python -m tests.fuzz.grid_random --jobs 1000 --broken 500 --seed 7

Prints a line per machine; exit code 1 if anything differed, or a run did not end.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import click
from rich.console import Console
from rich.table import Table

from cosim.backends import simulator
from cosim.compare import compare
from cosim.job import Job
from cosim.models.cycle import predict
from hw import fabric
from hw.config import MachineConfig
from tests.cosim.models.cycle.grids import GridJob, corrupted, random_fabric
from tests.machines import MIXED, machine_of

#: Machines that differ in what matters: grid, banks of every space, width of the ports that store and load.
MACHINES: dict[str, MachineConfig] = {
    "mixed": MIXED,
    "line": machine_of(random_fabric(random.Random(6), 1, 3), store_bytes=16, acc_banks=4, queue_depth=1),
    "dense": machine_of(random_fabric(random.Random(2), 3, 3), store_bytes=4, load_c_bytes=4),
    "broad": machine_of(
        random_fabric(random.Random(4), 2, 3), rows=8, cols=8, acc_bytes=8192, acc_banks=8, store_bytes=32
    ),
    "pipelined": machine_of(replace(random_fabric(random.Random(2), 3, 3), pipelined=True), acc_banks=2),
    "lanes": machine_of(
        random_fabric(random.Random(9), 2, 3, lanes=4), rows=8, cols=8, acc_bytes=8192, acc_banks=2
    ),
    "pipelined lanes": machine_of(replace(random_fabric(random.Random(5), 2, 2, lanes=2), pipelined=True)),
    "mesh4x4": machine_of(fabric.load("mesh4x4")).replace(scratch_bytes=32768, imem_words=512),
}


@dataclass
class Tally:
    """What was run on one machine, and what differed."""

    launches: int = 0
    outputs: int = 0
    stalls: int = 0
    cycles: int = 0
    ends: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)


def draw(config: MachineConfig, name: str, count: int, *, broken: bool) -> list[Job]:
    """Jobs that fit the instruction memory, a sixth of whose configurations are anything (or broken)."""
    found: list[Job] = []
    number = 0
    while len(found) < count:
        seed = random.Random(f"{name}/{number}").randrange(1 << 32)
        number += 1
        job = GridJob(seed, config, wild=0.15, change=corrupted if broken else None).job
        if max(map(len, job.programs.values())) <= config.imem_words:
            found.append(job)
    return found


def prove(config: MachineConfig, jobs: Sequence[Job], sim: str, tally: Tally) -> None:
    """Run jobs in one simulation, one after the other, and compare everything with the prediction."""
    for job, outcome in zip(jobs, simulator(config, sim).run(jobs), strict=True):
        tally.launches += outcome.counters["CGRA_OPERATIONS"]
        tally.stalls += outcome.counters["CGRA_STALL_BANK"]
        tally.outputs += len(outcome.stored)
        tally.cycles += outcome.cycles
        tally.ends["completed" if outcome.error is None else outcome.error.cause.name.lower()] += 1
        divergence = compare(config, job, predict(config, job), outcome)
        if divergence is not None:
            tally.failures.append(f"{config.name}, {job.name}: {divergence}")
        elif any(output.address >= config.out_bytes for output in outcome.stored):
            tally.failures.append(f"{config.name}, {job.name}: an output outside the output buffer")


@click.command()
@click.option("--jobs", default=100, show_default=True, help="Jobs per machine.")
@click.option("--broken", default=100, show_default=True, help="Jobs with broken bitstreams per machine.")
@click.option("--seed", default=0, show_default=True)
@click.option("--sim", default="cpp", show_default=True, type=click.Choice(["verilator", "cpp"]))
@click.option("--machine", multiple=True, type=click.Choice(list(MACHINES)), help="Default: all.")
def main(jobs: int, broken: int, seed: int, sim: str, machine: tuple[str, ...]) -> None:
    """Compare random launches with the model, and see what broken bitstreams do."""
    table = Table("machine", "jobs", "launches", "outputs", "frozen", "cycles", "ends", "differences")
    failures: list[str] = []
    for name in machine or tuple(MACHINES):
        for count, is_broken in ((jobs, False), (broken, True)):
            tally, config = Tally(), MACHINES[name]
            prove(config, draw(config, f"{seed}/{name}/{is_broken}", count, broken=is_broken), sim, tally)
            failures += tally.failures
            ends = ", ".join(f"{end} {n}" for end, n in sorted(tally.ends.items()))
            numbers = (count, tally.launches, tally.outputs, tally.stalls, tally.cycles)
            row = (f"{n:,}" for n in numbers)
            table.add_row(f"{name}, broken" if is_broken else name, *row, ends, str(len(tally.failures)))
    Console(width=120).print(table)
    for text in failures:
        click.echo(text)
    raise SystemExit(bool(failures))


if __name__ == "__main__":
    main()
