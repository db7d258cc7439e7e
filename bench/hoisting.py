"""The benefit of hoisting within a register budget: scalar instructions, registers and cycles.

    python -m bench.hoisting [--hw default] [--registers R ...] [--set bert|resnet ...] [--rtl] [--sim cpp]

Compiles the address code of ResNet-50's convolutions and BERT-large's products three times with the same
tiles. `nothing` computes every value where it is used, `everything` hoists values in program order until
registers run out, and `ours` chooses what saves most. Scalar instructions are executed ones of all warps,
without engine operations, waits and signals. Cycles come from the cycle model, which is exact; `--rtl` also
runs every program on the RTL and compares. Exit code 1 if ours is slower than another in any problem, or if
the RTL differs.
"""

from __future__ import annotations

import statistics
import sys
from dataclasses import dataclass

import click
import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

from bench.prediction import Problem, bert, resnet
from cosim.backends import simulator
from cosim.compare import compare
from cosim.job import Simulator
from cosim.models.cycle import predict
from cosim.refine import part_of
from cosim.settings import MemorySettings
from heald.testing.problems import compile_problem, problem_job, result
from hw import isa
from hw.assembly import decode
from hw.config import MachineConfig, load
from hw.errors import InputError
from sw.canonical.hoist import Strategy
from sw.compile.stages import Compiled

STRATEGIES = (Strategy.NOTHING, Strategy.EVERYTHING, Strategy.BUDGET)
SETS = {"bert": bert, "resnet": resnet}


@dataclass(frozen=True)
class Measured:
    """One program of one problem."""

    cycles: int
    scalars: int
    registers: int
    fine: bool


def registers(kernel: Compiled) -> int:
    """The most registers that a warp of the kernel names, including r0."""
    highest = 0
    for words in kernel.programs.values():
        for word in words:
            code = decode(word)
            assert code is not None
            fields = {f.name: f for f in code.spec.fields}
            used = [v for n, v in code.fields.items() if fields[n].kind is isa.FieldKind.REGISTER]
            highest = max(highest, code.predicate, *used, 0)
    return highest + 1


def measure(problem: Problem, kernel: Compiled, settings: MemorySettings, rtl: Simulator | None) -> Measured:
    """Run one program on the model, and on the RTL if there is one."""
    config = kernel.config
    a, b = problem.random(np.random.default_rng(0))
    job = problem_job(kernel, a, b, settings)
    outcome = predict(config, job)
    fine = True
    if rtl is not None:
        (observed,) = rtl.run([job])
        fine = compare(config, job, outcome, observed) is None and np.array_equal(
            result(kernel, observed), problem.reference(a, b)
        )
    scalars = sum(count for name, count in outcome.counters.items() if name.endswith("_INSTRUCTIONS"))
    engines = sum(count for name, count in outcome.counters.items() if name.endswith("_OPERATIONS"))
    scalars -= engines + sum(e.kind.name in ("WAIT", "SIGNAL") for e in outcome.events)
    return Measured(outcome.cycles, scalars, registers(kernel), fine)


def compiled(problem: Problem, config: MachineConfig) -> list[Compiled | None]:
    """The problem by every strategy, with the tiles that ours uses; None if registers do not suffice."""
    tiles = part_of(compile_problem(problem, config)).nest.blocking
    made: list[Compiled | None] = []
    for strategy in STRATEGIES:
        try:
            made.append(compile_problem(problem, config, blocking=tiles, strategy=strategy))
        except InputError:
            made.append(None)
    return made


@click.command()
@click.option("--hw", default="default", show_default=True)
@click.option("--registers", "counts", multiple=True, type=int, help="Per warp; default: 8, 16, 32.")
@click.option("--set", "names", multiple=True, type=click.Choice(list(SETS)), help="Default: both.")
@click.option("--rtl", is_flag=True, help="Run on the RTL as well, and compare.")
@click.option("--sim", default="cpp", show_default=True, type=click.Choice(["cpp", "verilator"]))
def main(hw: str, counts: tuple[int, ...], names: tuple[str, ...], rtl: bool, sim: str) -> None:
    """Print a table per number of registers."""
    console = Console(width=150)
    wrong = slower = total = 0
    for count in counts or (8, 16, 32):
        config = load(hw).replace(registers=count)
        settings = MemorySettings.of(config)
        machine = simulator(config, sim) if rtl else None
        table = Table(title=f"{hw}, {count} registers", box=None, header_style="dim")
        table.add_column("problem", no_wrap=True)
        for what in ("cycles", "scalars", "registers"):
            for strategy in STRATEGIES:
                table.add_column(f"{what} {_name(strategy)}", justify="right")
        gains: list[float] = []
        problems = [p for name in (names or SETS) for p in SETS[name]()]
        for problem in track(problems, f"{count} registers", console=Console(stderr=True), transient=True):
            found = [k and measure(problem, k, settings, machine) for k in compiled(problem, config)]
            ours = found[-1]
            assert ours is not None
            others = [m for m in found[:-1] if m is not None]
            late = any(m.cycles < ours.cycles for m in others)
            bad = not all(m.fine for m in found if m is not None)
            slower, wrong, total = slower + late, wrong + bad, total + 1
            gains += [m.scalars / ours.scalars for m in others[:1]]
            cells = [
                "-" if m is None else f"{getattr(m, what):,}"
                for what in ("cycles", "scalars", "registers")
                for m in found
            ]
            table.add_row(str(problem) + "  WRONG" * bad + "  SLOWER" * late, *cells)
        console.print(table)
        if gains:
            console.print(f"scalar instructions, nothing / ours: median {statistics.median(gains):.2f}\n")
    proof = "on the RTL" if rtl else "by the cycle model"
    console.print(f"{total} programs: ours slower in {slower}, wrong {wrong} ({proof})")
    sys.exit(bool(slower or wrong))


def _name(strategy: Strategy) -> str:
    return "ours" if strategy is Strategy.BUDGET else strategy.name.lower()


if __name__ == "__main__":
    main()
