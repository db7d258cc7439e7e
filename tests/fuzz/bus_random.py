"""Random runs through the AXI top: programs loaded, run and read back over the bus by the host library.

    python -m tests.fuzz.bus_random --runs 100 --seed 0

Runs products, convolutions, kernels of the CGRA and models, under random back-pressure on all ten channels,
with random latencies and order of responses. Prints a line per run and a table per machine; exit code 1 if a
result differs from the reference, a count of work from the model, or a rule of AXI was broken.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache

import click
import numpy as np
from rich.console import Console
from rich.table import Table

from cosim.bus.axi import MEMORY_BYTES, AxiSimulation
from cosim.device import Device
from cosim.device.device import DeviceSimulator
from cosim.job import Job, Outcome
from cosim.models.cycle import predict
from cosim.session.arguments import Arguments
from cosim.session.driver import simulate
from cosim.session.kernel import PreparedKernel, base_machine, machine, prepare_kernel
from cosim.session.network import compile_model
from cosim.settings import MemorySettings
from heald.model_run import run_model
from heald.testing.models import draw as draw_model
from heald.testing.operators import KINDS
from heald.testing.problems import compile_problem, draw_convolution, problem_job, result
from heald.testing.problems import draw as draw_product
from hw import csr
from hw.config import PORTS, MachineConfig, load
from hw.errors import InputError
from hw.fabric import load as load_fabric
from sw.dfg.python import from_function
from sw.frontend.network import import_model
from sw.graph import reference
from tests.cosim.bus_machines import SMALL, UNEVEN, UNEVEN_BEATS
from tests.cosim.bus_worlds import rough
from tests.sw.dfg.reference import CASES, KERNELS

#: Counters that do not depend on when memory answers.
STEADY = ("_INSTRUCTIONS", "_OPERATIONS", "_WORDS")
#: Most cycles of a run by the cycle model: Python looks at every one of them.
MOST_CYCLES = 6_000


@dataclass(frozen=True)
class Setup:
    """A machine, the most transfers of a burst, and what may run on it."""

    config: Callable[[], MachineConfig]
    beats: int
    kinds: tuple[str, ...]


#: Ports of one width; of four widths, narrow ones too; a bus that is wider than three of its ports; a grid.
SETUPS = {
    "small": Setup(lambda: SMALL, 16, ("product", "convolution")),
    "uneven": Setup(lambda: UNEVEN, UNEVEN_BEATS, ("product", "convolution")),
    "lean": Setup(
        lambda: load("lean").replace(
            name="lean_small",
            cgra=None,
            buffer_b_bytes=16384,
            scratch_bytes=4096,
            out_bytes=4096,
            imem_words=1024,
        ),
        256,
        ("product", "convolution"),
    ),
    "grid": Setup(
        lambda: machine(base_machine(), load_fabric("torus4x4"))(0, 0), 16, ("kernel", "kernel", "model")
    ),
}


@dataclass
class Work:
    """What one run does: `prove` returns what is wrong, if anything."""

    text: str
    prove: Callable[[DeviceSimulator], list[str]]


@dataclass
class Tally:
    """What came of the runs on one machine."""

    runs: int = 0
    cycles: int = 0
    bus_cycles: int = 0
    transfers: int = 0
    failures: list[str] = field(default_factory=list)


def unsteady(predicted: Outcome, observed: Outcome) -> list[str]:
    """Counts of work that are not those of the cycle model."""
    return [
        f"{name}: {value} expected, not {observed.counters[name]}"
        for name, value in predicted.counters.items()
        if name.endswith(STEADY) and value != observed.counters[name]
    ]


def array_work(config: MachineConfig, kind: str, seed: str) -> Work:
    """A random product or convolution of not too many cycles."""
    number = 0
    while True:
        made = draw_product if kind == "product" else draw_convolution
        case = made(config, f"{seed}/{number}")
        number += 1
        try:
            kernel = compile_problem(case.problem, config)
        except InputError:
            continue
        a, b = case.problem.random(np.random.default_rng(case.seed))
        job = problem_job(kernel, a, b, MemorySettings.of(config))
        fits = max(address + data.size for address, data in job.memory) < MEMORY_BYTES
        if fits and (predicted := predict(config, job)).cycles <= MOST_CYCLES:
            break

    def prove(device: DeviceSimulator) -> list[str]:
        (outcome,) = device.run([job])
        if outcome.error is not None:
            return [str(outcome.error)]
        same = np.array_equal(result(kernel, outcome), case.problem.reference(a, b))
        return [*([] if same else ["the result is wrong"]), *unsteady(predicted, outcome)]

    return Work(f"{kind} {case.problem}", prove)


@cache
def prepared_kernel(name: str, count: int, seed: int) -> PreparedKernel:
    """A kernel of the grid with so many iterations."""
    config = SETUPS["grid"].config()
    kernel = from_function(KERNELS, name)
    arrays, scalars = CASES[name].arguments(np.random.default_rng(seed), count)
    assert kernel.iterations is not None
    given = Arguments(arrays, {**scalars, kernel.iterations: count})
    return prepare_kernel(kernel, given, lambda scratch, out: config)


def kernel_work(seed: str) -> Work:
    """A kernel of the grid on random data, with a few iterations."""
    r = random.Random(seed)
    name, count = r.choice(list(CASES)), r.choice([1, 2, 17, 40])
    prepared = prepared_kernel(name, count, r.randrange(1000))

    def prove(device: DeviceSimulator) -> list[str]:
        (result,) = simulate([prepared], device)
        wrong = [result.difference] if result.difference is not None else []
        return wrong + unsteady(result.predicted, result.observed)

    return Work(f"kernel {name}, {count} iterations", prove)


def model_work(config: MachineConfig, seed: str) -> Work:
    """A random model of a few operators."""
    settings, number = MemorySettings.of(config), 0
    while True:
        proto, kinds = draw_model(f"{seed}/{number}", KINDS, 1, 2)
        number += 1
        try:
            network = import_model(proto)
            model = compile_model(network, config)
        except InputError:
            continue
        inputs = reference.random_inputs(network, np.random.default_rng(number))
        if model.programs:
            break

    def prove(device: DeviceSimulator) -> list[str]:
        report = run_model(model, inputs, settings, lambda: device)
        wrong = [] if report.correct else [f"wrong: {report.first_wrong}"]
        return wrong + [text for run in report.results for text in unsteady(run.predicted, run.observed)]

    return Work(f"model of {', '.join(kinds)}", prove)


def draw(name: str, seed: str) -> Work:
    """What a run does on a machine."""
    setup = SETUPS[name]
    kind = random.Random(seed).choice(setup.kinds)
    if kind == "kernel":
        return kernel_work(seed)
    if kind == "model":
        return model_work(setup.config(), seed)
    return array_work(setup.config(), kind, seed)


def run(name: str, seed: int, tally: Tally) -> str:
    """One run in a simulation of its own; returns a line that tells of it."""
    setup, begin = SETUPS[name], time.perf_counter()
    work = draw(name, f"{name}/{seed}")
    stock = bool(seed // len(SETUPS) % 2)
    environment = rough(seed)
    made = time.perf_counter()
    with AxiSimulation(setup.config(), beats=setup.beats, stock=stock, seed=seed) as bus:
        bus.behave(environment)
        device = Device(bus, setup.config())
        counted = _Counting(device)
        wrong = work.prove(counted) + bus.violations()
        state = bus.state()
        if state["axi_open"] or state["lite_open"]:
            wrong.append(f"not answered: {state['axi_open']} on m_axi, {state['lite_open']} on s_axil")
        if not state["irq"]:
            wrong.append("irq must be 1 when the machine is done")
        device.write("CONTROL", 1 << csr.CLEAR)
        if bus.state()["irq"]:
            wrong.append("irq must be 0 after a clear")
    tally.runs += 1
    tally.cycles += counted.cycles
    tally.bus_cycles += state["cycles"]
    tally.transfers += state["transfers"]
    tally.failures += [f"{name}, seed {seed}, {work.text}: {text}" for text in wrong]
    memory = "AxiRam" if stock else f"latency {environment.latency[0]} to {environment.latency[1]}"
    return (
        f"{name} {seed}: {work.text}; pauses {environment.pauses}, {memory}: {counted.cycles:,} cycles, "
        f"{state['cycles']:,} on the bus, {state['transfers']:,} transfers, {made - begin:.1f} + "
        f"{time.perf_counter() - made:.1f} s, {'; '.join(wrong) or 'right'}"
    )


class _Counting(DeviceSimulator):
    """A device that adds up the cycles of its runs."""

    cycles = 0

    def run(self, jobs: Sequence[Job]) -> list[Outcome]:
        """See `DeviceSimulator`."""
        outcomes = super().run(jobs)
        self.cycles += sum(outcome.cycles for outcome in outcomes)
        return outcomes


@click.command()
@click.option("--runs", default=100, show_default=True, help="Runs, spread over the machines.")
@click.option("--seed", default=0, show_default=True, help="Number of the first run.")
@click.option("--machine", "names", multiple=True, type=click.Choice(list(SETUPS)), help="Default: all.")
def main(runs: int, seed: int, names: tuple[str, ...]) -> None:
    """Prove or break the AXI top with random runs."""
    chosen = names or tuple(SETUPS)
    tallies = {name: Tally() for name in chosen}
    for number in range(seed, seed + runs):
        name = chosen[number % len(chosen)]
        click.echo(run(name, number, tallies[name]))
    table = Table("machine", "ports", "runs", "cycles", "cycles on the bus", "transfers", "failures")
    for name, t in tallies.items():
        ports = "/".join(str(SETUPS[name].config().port_bytes(port)) for port in PORTS)
        row = (t.runs, t.cycles, t.bus_cycles, t.transfers, len(t.failures))
        table.add_row(name, ports, *(f"{value:,}" for value in row))
    Console(width=100).print(table)
    failures = [text for t in tallies.values() for text in t.failures]
    for text in failures:
        click.echo(text)
    raise SystemExit(bool(failures))


if __name__ == "__main__":
    main()
