"""Random graphs on random fabrics: mapped, decoded again, and some of them run on the whole machine's RTL.

    python -m tests.fuzz.grid_graphs --count 300 [--seed 0] [--why] [--rtl 60 --fabrics 6]

Number k is the loop and the fabric of seed k (`tests/sw/cgra/random_loops.py`, `random_fabrics.py`). Half of
the loops are drawn as graphs, half are the largest loops of random functions. Half of the fabrics have PEs of
2 or 4 lanes, and their graphs as many. Every mapping is checked, and its bitstream is decoded and compared
with the graph; without a mapping, a text must name what limits it. `--rtl` also maps this many of the loops
to small fabrics and runs them there: results must equal the interpreter's, and every event must come in the
predicted cycle. Exit code 1 otherwise.
"""

from __future__ import annotations

import random
import re
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import click
from rich.console import Console
from rich.table import Table

from cosim.backends import BACKENDS, simulator
from cosim.session.arguments import Arguments
from cosim.session.driver import simulate
from cosim.session.kernel import KernelResult, PreparedKernel, base_machine, machine, prepare_kernel
from cosim.session.mapped_loop import MappedLoop
from hw.errors import InputError
from hw.fabric import Fabric, Unit
from hw.fabric.bitstream import OUT, SCRATCH, ArrayEntry
from hw.fabric.operations import LOADS, STORES
from sw.cgra.launch_plan import plan
from sw.cgra.search import SearchResult, map_graph
from sw.cgra.verify import verify
from sw.dfg.graph import Graph, arrays_of
from tests.sw.cgra.random_fabrics import random_fabric
from tests.sw.cgra.random_loops import Loop, random_loop
from tests.sw.cgra.right import SMALL
from tests.sw.dfg.random_functions import MOST

#: What a text about a graph that was not mapped may name.
LIMITS = {
    "a unit that no PE has": r"needs a PE with .+, fabric .+ has none$",
    "another number of lanes": r"works on \d+ lanes, the PEs of fabric .+ have \d+$",
    "a distance greater than all registers": r"the distance must be at most \d+, one",
    "contexts: the MII is greater": r"the MII is \d+ \(.+\), the fabric has \d+ contexts$",
    "search: links, registers or ports overused": r"up to II \d+: .*(link|result|register|port) .+overused",
    "search: dependences too short for the way": r"up to II \d+: .*lacks \d+ step",
    "search: no route arrives in time": r"up to II \d+: .*no route arrives in time",
    "search: no free PEs": r"up to II \d+: .*no free PEs",
    "time": r"the search got no further than II \d+$",
}
#: The same for kernels that are prepared for the RTL.
REFUSED = (
    r"needs a PE with .+|works on \d+ lanes, .+|contexts must be at least \d+, not \d+|"
    r"the distance must be at most \d+, one|no mapping was found: (II \d+: .+|the time was too short)"
)
#: Fabrics for the RTL have at most so many PEs and at least so many contexts.
RTL_PES, RTL_CONTEXTS = 12, 8


@dataclass(frozen=True)
class Attempt:
    """What became of a graph on a fabric: why there is no mapping, what is wrong with what there is."""

    seed: int
    graph: Graph
    fabric: Fabric
    outcome: SearchResult | None = None
    why: str = ""
    faults: tuple[str, ...] = ()

    @property
    def mapped(self) -> bool:
        """Whether there is a mapping."""
        return self.outcome is not None and self.outcome.mapping is not None

    @property
    def limit(self) -> str | None:
        """Which of `LIMITS` the text names."""
        return next((name for name, pattern in LIMITS.items() if re.search(pattern, self.why)), None)


@contextmanager
def told_with(case: str) -> Iterator[None]:
    """Lets every exception through, with a note that says which case it comes from."""
    try:
        yield
    except BaseException as error:
        error.add_note(f"in {case}")
        raise


def lanes_of(seed: int) -> int:
    """The lanes of the loop and of the fabric of a seed."""
    return random.Random(f"lanes {seed}").choice((1, 1, 2, 4))


def largest(loop: Loop) -> Graph:
    """The graph with the most operations among those that are launched, or would be if loops ran."""
    ran = {name: value or MOST for name, value in loop.scalars.items()}
    runs = plan(loop.kernel, loop.scalars).launches or plan(loop.kernel, ran).launches
    return max((run.graph for run in runs), key=lambda graph: len(graph.nodes))


def attempt(seed: int, timeout: float | None = None) -> Attempt:
    """Map the graph of a seed to its fabric and check what comes of it."""
    lanes = lanes_of(seed)
    graph, fabric = largest(random_loop(seed, lanes)), random_fabric(seed, lanes)
    try:
        outcome = map_graph(graph, fabric, seed=seed, timeout=timeout, budget=SMALL)
    except InputError as error:
        found = Attempt(seed, graph, fabric, None, str(error))
    else:
        faults = tuple(_wrong(graph, outcome))
        found = Attempt(seed, graph, fabric, outcome, MappedLoop(outcome, fabric).failure, faults)
    if not found.mapped and found.limit is None:
        return Attempt(seed, graph, fabric, found.outcome, found.why, ("says not what limits it",))
    return found


def _wrong(graph: Graph, outcome: SearchResult) -> Iterator[str]:
    """What is wrong with a mapping and with the words that are made of it."""
    if outcome.mapping is None:
        return
    written = arrays_of(graph, *STORES)
    places = {
        name: ArrayEntry(OUT if name in written else SCRATCH, i % 3, 256 * i, 48 + i)
        for i, name in enumerate(arrays_of(graph, *LOADS, *STORES))
    }
    scalars = {name: i for i, name in enumerate(graph.scalars)}
    words = outcome.words(places)
    yield from verify(
        outcome.prepared,
        words,
        outcome.mapping.fabric,
        outcome.mapping.places,
        arrays=places,
        scalars=scalars,
    )


def small_fabrics(count: int, seed: int) -> list[Fabric]:
    """The first fabrics from a seed on that have all units and are small enough to build their RTL."""
    found: list[Fabric] = []
    while len(found) < count:
        fabric = random_fabric(seed, lanes_of(seed))
        seed += 1
        # Random kinds have no quantiser, and those of one lane nothing for all lanes.
        without = {Unit.QUANTISER, *([Unit.LANES] if fabric.lanes == 1 else [])}
        units = [unit for unit in Unit if unit not in without]
        enough = fabric.contexts >= RTL_CONTEXTS and all(fabric.having(unit) for unit in units)
        if enough and fabric.size <= RTL_PES:
            found.append(fabric)
    return found


@dataclass
class Tally:
    """What was run on the RTL of one fabric, and what differed."""

    fabric: Fabric
    results: list[KernelResult] = field(default_factory=list)
    refused: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    build_seconds: float = 0.0

    def counter(self, name: str) -> int:
        """The sum of a counter of the machine."""
        return sum(r.observed.counters[name] for r in self.results)


def prove(fabric: Fabric, seeds: Sequence[int], count: int, timeout: float | None, sim: str) -> Tally:
    """Run the first loops that can be mapped to a fabric in one simulation."""
    tally, config = Tally(fabric), machine(base_machine(), fabric)(0, 0)
    ready: dict[int, PreparedKernel] = {}
    for seed in seeds:
        if len(ready) == count:
            break
        loop = random_loop(seed, lanes_of(seed))
        given = Arguments(loop.arrays, loop.scalars)
        try:
            with told_with(f"loop {seed} on {fabric.name}"):
                ready[seed] = prepare_kernel(
                    loop.kernel, given, lambda scratch, out: config, seed=seed, timeout=timeout
                )
        except InputError as error:
            tally.refused[str(error)] += 1
            if not re.search(REFUSED, str(error)):
                tally.faults.append(f"loop {seed} on {fabric.name}: says not what limits it: {error}")
    if not ready:
        return tally
    simulated = simulator(config, sim)
    tally.build_seconds = simulated.build_seconds
    tally.results = simulate(list(ready.values()), simulated)
    for seed, result in zip(ready, tally.results, strict=True):
        if not result.verified:
            what = result.difference or result.divergence or "a check of warps or of a configuration"
            tally.faults.append(f"loop {seed} on {fabric.name}: {what}")
    return tally


def _attempts(count: int, seed: int, timeout: float) -> tuple[list[Attempt], list[str]]:
    """All attempts, and what went wrong."""
    made: list[Attempt] = []
    faults: list[str] = []
    for number in range(seed, seed + count):
        with told_with(f"graph {number}"):
            found = attempt(number, timeout)
        made.append(found)
        faults += [f"graph {number} on {found.fabric.name}: {f}: {found.why}" for f in found.faults]
    return made, faults


def graphs_table(attempts: Sequence[Attempt]) -> Table:
    """What became of the graphs."""
    table = Table("", "graphs", "operations", "PEs", title="random graphs on random fabrics", box=None)
    mapped = [a for a in attempts if a.mapped]
    least = [a for a in mapped if a.outcome and a.outcome.proved_minimal]
    rows = {"all": list(attempts), "mapped": mapped, "  with the least II there is": least}
    for name in LIMITS:
        rows[name] = [a for a in attempts if not a.mapped and a.limit == name]
    rows["no reason that names a limit"] = [a for a in attempts if not a.mapped and a.limit is None]
    rows["checks or decoder find a fault"] = [a for a in mapped if a.faults]
    for name, own in rows.items():
        spans = (_span([len(a.graph.nodes) for a in own]), _span([a.fabric.size for a in own]))
        table.add_row(name, str(len(own)), *spans)
    return table


def _span(values: Sequence[int]) -> str:
    return f"{min(values)} to {max(values)}" if values else ""


def rtl_table(tallies: Sequence[Tally]) -> Table:
    """What was run on the RTL."""
    columns = (
        "fabric",
        "PEs",
        "links",
        "kernels",
        "cannot be mapped",
        "launches",
        "stores",
        "frozen",
        "cycles",
    )
    table = Table(*columns, "build s", "faults", title="on the RTL", box=None)
    for tally in tallies:
        numbers = (
            len(tally.fabric.links),
            len(tally.results),
            tally.refused.total(),
            tally.counter("CGRA_OPERATIONS"),
            sum(len(r.observed.stored) for r in tally.results),
            tally.counter("CGRA_STALL_BANK"),
            sum(r.observed.cycles for r in tally.results),
            round(tally.build_seconds),
            len(tally.faults),
        )
        fabric = tally.fabric
        table.add_row(fabric.name, f"{fabric.rows}x{fabric.cols}", *(f"{n:,}" for n in numbers))
    return table


@click.command()
@click.option("--count", default=300, show_default=True, help="Graphs.")
@click.option("--seed", default=0, show_default=True, help="The first graph.")
@click.option("--timeout", default=10.0, show_default=True, help="Seconds per search.")
@click.option(
    "--why", is_flag=True, help="Say of every graph that was not mapped why; else of one per reason."
)
@click.option("--rtl", default=0, show_default=True, help="Kernels on the RTL.")
@click.option("--fabrics", default=6, show_default=True, help="Fabrics of which the RTL is built.")
@click.option("--sim", default="cpp", show_default=True, type=click.Choice(BACKENDS))
def main(count: int, seed: int, timeout: float, why: bool, rtl: int, fabrics: int, sim: str) -> None:
    """Map random graphs, run some on the RTL, print the tables."""
    console, begin = Console(width=150), time.perf_counter()
    attempts, faults = _attempts(count, seed, timeout)
    console.print(f"{count} graphs in {time.perf_counter() - begin:.0f} s")
    told: set[str | None] = set()
    for found in attempts:
        if not found.mapped and (why or found.limit not in told):
            told.add(found.limit)
            console.print(f"graph {found.seed} ({found.limit}): {found.why}", highlight=False, markup=False)
    tallies: list[Tally] = []
    seeds = [found.seed for found in attempts if found.mapped]
    for i, fabric in enumerate(small_fabrics(fabrics, seed) if rtl else ()):
        wanted = rtl // fabrics + (i < rtl % fabrics)
        tally = prove(fabric, seeds[i::fabrics], wanted, timeout, sim)
        if len(tally.results) < wanted and not tally.faults:
            tally.faults.append(f"{fabric.name}: {len(tally.results)} of {wanted} kernels could be mapped")
        faults += tally.faults
        tallies.append(tally)
        for text in tally.refused if why else ():
            console.print(f"on {fabric.name}: {text}", highlight=False, markup=False)
    console.print(graphs_table(attempts))
    if tallies:
        console.print(rtl_table(tallies))
    for text in faults:
        console.print(text, highlight=False, markup=False)
    console.print(f"{len(faults)} faults")
    raise SystemExit(bool(faults))


if __name__ == "__main__":
    main()
