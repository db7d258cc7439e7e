"""The cost of synchronisation: waits and signals, and cycles, of four ways to order the same programs.

    python -m bench.sync [--set bert|resnet ...] [--hw default] [--rtl] [--sim cpp]

The sequential programs of BERT-large's products and ResNet-50's convolutions, with the same tiles, are
ordered by `sw.warps` and, for comparison, by three schemes (`bench.schemes`):

- `barrier`: all warps meet between dependent phases. A barrier stands wherever an instruction would otherwise
  depend on something since the last one, as far out in the loops as possible.
- `tokens`: dependence queues between neighbouring engines, as in VTA: both loads and the array, the array and
  the store. Every instruction takes and gives one token for each instruction of the other engine that uses
  the same tile: a load for each product that reads it, a store for each product that adds to it.
- `values`: a full and an empty channel for each place of a tile in a buffer. Every product waits for its
  tiles and releases them, and so does every store.

Each program is checked by `sw.check`. Operations are executed waits and signals, without those whose
predicate is false. Cycles come from the cycle model, which is exact; `--rtl` also runs every program on the
RTL and compares. As the schemes need many channels and tokens, all four run on a machine with 64 channels of
255 tokens; ours is compiled for the machine as it is. Exit code 1 unless ours has fewer cycles than all
others, and fewer operations than `tokens` and `values`, in every problem; or if anything is wrong.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass

import click
import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

from bench.hoisting import SETS
from bench.prediction import Problem
from bench.schemes import barrier, tokens, values
from cosim.backends import simulator
from cosim.compare import compare
from cosim.job import EventKind, Simulator
from cosim.models.cycle import predict
from cosim.refine import part_of
from cosim.session.warps import verdict_on
from cosim.settings import MemorySettings
from heald.testing.problems import compile_problem, problem_job, result
from hw.assembly import decode, listing
from hw.config import MachineConfig, load
from sw.compile.stages import Compiled, Synchroniser

#: Channels, and tokens per channel, of the machine that all programs run on.
CHANNELS, DEPTH = 64, 255
OTHERS: dict[str, Synchroniser] = {"barrier": barrier, "tokens": tokens, "values": values}
SCHEMES = ("ours", *OTHERS)


# Measuring


@dataclass(frozen=True)
class Measured:
    """One program of one problem: cycles, executed waits and signals, and what is wrong, if anything."""

    cycles: int
    operations: int
    wrong: str = ""


def compiled(problem: Problem, config: MachineConfig) -> dict[str, Compiled]:
    """The problem by every scheme, with the tiles that ours uses."""
    ours = compile_problem(problem, config)
    large = config.replace(channels=CHANNELS, channel_depth=DEPTH)
    tiles = part_of(ours).nest.blocking
    others = {
        name: compile_problem(problem, large, blocking=tiles, synchronise=scheme)
        for name, scheme in OTHERS.items()
    }
    return {"ours": ours} | others


def measure(
    problem: Problem,
    kernel: Compiled,
    settings: MemorySettings,
    config: MachineConfig,
    rtl: Simulator | None,
) -> Measured:
    """Check one program, and run it on the model of a machine, and on the RTL if there is one."""
    a, b = problem.random(np.random.default_rng(0))
    job = problem_job(kernel, a, b, settings)
    outcome = predict(config, job)
    texts = {warp: listing(words) for warp, words in kernel.programs.items()}
    verdict = verdict_on(kernel.source, texts, kernel.config)
    wrong = verdict.reason or str(outcome.error or "")
    if rtl is not None:
        (observed,) = rtl.run([job])
        if (found := compare(config, job, outcome, observed)) is not None:
            wrong = wrong or str(found)
        elif not np.array_equal(result(kernel, observed), problem.reference(a, b)):
            wrong = wrong or "the result"
    is_wait = {
        w: [(code := decode(word)) is not None and code.spec.name == "wait" for word in words]
        for w, words in kernel.programs.items()
    }
    operations = sum(
        e.kind is EventKind.SIGNAL or (e.kind is EventKind.ISSUE and is_wait[e.warp][e.pc])
        for e in outcome.events
    )
    return Measured(outcome.cycles, operations, wrong)


# Tables


def table(title: str, found: Sequence[tuple[Problem, dict[str, Measured]]]) -> Table:
    """A row per problem, then sums, and sums as multiples of ours."""
    made = Table(title=title, box=None, header_style="dim")
    made.add_column("problem", no_wrap=True)
    for what in ("cycles", "operations"):
        for name in SCHEMES:
            made.add_column(f"{what} {name}", justify="right")
    for problem, by_name in found:
        ours = by_name["ours"]
        cells = [f"{ours.cycles:,}", *(f"{by_name[n].cycles - ours.cycles:+,}" for n in SCHEMES[1:])]
        notes = faults(by_name)
        cells += [f"{by_name[n].operations:,}" for n in SCHEMES]
        made.add_row("  ".join([str(problem), *notes]), *cells)
    sums = {
        what: [sum(getattr(by_name[n], what) for _, by_name in found) for n in SCHEMES]
        for what in ("cycles", "operations")
    }
    made.add_row("sum", *(f"{n:,}" for numbers in sums.values() for n in numbers))
    made.add_row("/ ours", *(f"{n / numbers[0]:.4f}" for numbers in sums.values() for n in numbers))
    return made


def faults(by_name: dict[str, Measured]) -> list[str]:
    """What should not be, in capitals."""
    ours, others = by_name["ours"], [by_name[n] for n in SCHEMES[1:]]
    found = []
    if any(m.cycles <= ours.cycles for m in others):
        found.append("NOT QUICKER")
    if any(by_name[n].operations <= ours.operations for n in ("tokens", "values")):
        found.append("NOT FEWER")
    if any(m.wrong for m in by_name.values()):
        found.append("WRONG")
    return found


def _worst(found: Sequence[tuple[Problem, dict[str, Measured]]]) -> list[str]:
    """For each scheme, the problem in which it comes closest to ours, in cycles and in operations."""
    lines = []
    for name in SCHEMES[1:]:
        cycles, problem = min(
            ((by[name].cycles - by["ours"].cycles, str(p)) for p, by in found), key=lambda x: x[0]
        )
        ratio, other = min(
            ((by[name].operations / by["ours"].operations, str(p)) for p, by in found), key=lambda x: x[0]
        )
        fewer = sum(by["ours"].operations < by[name].operations for _, by in found)
        quicker = sum(by["ours"].cycles < by[name].cycles for _, by in found)
        lines.append(
            f"{name}: ours is quicker in {quicker} of {len(found)}, least {cycles:+,} cycles ({problem}); "
            f"has fewer operations in {fewer}, least ratio {ratio:.3f} ({other})"
        )
    return lines


@click.command()
@click.option("--hw", default="default", show_default=True)
@click.option("--set", "names", multiple=True, type=click.Choice(list(SETS)), help="Default: both.")
@click.option("--rtl", is_flag=True, help="Run on the RTL as well, and compare.")
@click.option("--only", type=int, help="So many problems of each set, the smallest ones.")
@click.option("--sim", default="cpp", show_default=True, type=click.Choice(["cpp", "verilator"]))
def main(hw: str, names: tuple[str, ...], rtl: bool, only: int | None, sim: str) -> None:
    """Print a table per set; exit code 1 if ours does not win, or something is wrong."""
    console = Console(width=160)
    config = load(hw)
    large = config.replace(channels=CHANNELS, channel_depth=DEPTH)
    settings = MemorySettings.of(config)
    machine = simulator(large, sim) if rtl else None
    bad = 0
    for name in names or SETS:
        problems = sorted(SETS[name](), key=lambda p: p.macs)[:only] if only else SETS[name]()
        found = []
        for problem in track(problems, name, console=Console(stderr=True), transient=True):
            kernels = compiled(problem, config)
            found.append(
                (problem, {n: measure(problem, k, settings, large, machine) for n, k in kernels.items()})
            )
        console.print(table(f"{name} on {hw}", found))
        for line in _worst(found):
            console.print(line)
        for problem, by_name in found:
            bad += bool(faults(by_name))
            for n, m in by_name.items():
                if m.wrong:
                    console.print(f"{problem}, {n}: {m.wrong}")
        console.print()
    proof = "on the RTL" if rtl else "by the cycle model"
    console.print(f"all checked, cycles {proof}; ours does not win, or something is wrong, in {bad} problems")
    sys.exit(bool(bad))


if __name__ == "__main__":
    main()
