"""Kernels on the CGRA: each one on the RTL, for several numbers of iterations, against NumPy and the model.

    python -m tests.fuzz.grid_kernels [KERNEL...] [--fabric mesh4x4] [--hw PRESET] [--sim verilator]

The kernels are those of `examples/08_grid_kernels`, each with 1, 2, 17 and 1,000 iterations. All runs share
one machine, so it is built once. Cycles are those of the whole tile program: loads of data and
configurations, launches, stores. Exit code 1 if a result differs from NumPy's, or an event does not come in
the predicted cycle.
"""

from __future__ import annotations

import sys
import time
import zlib
from collections.abc import Sequence

import click
import numpy as np
from rich.console import Console
from rich.table import Table

from cosim.backends import BACKENDS, simulator
from cosim.session.arguments import Arguments
from cosim.session.driver import simulate
from cosim.session.kernel import KernelResult, PreparedKernel, base_machine, machine, prepare_kernel
from hw.config import MachineConfig
from hw.fabric import load as load_fabric
from sw.dfg.python import from_function
from tests.sw.dfg.reference import CASES, KERNELS

COUNTS = (1, 2, 17, 1000)


def prepared(name: str, count: int, make: MachineConfig, times: int) -> PreparedKernel:
    """A kernel with so many iterations, ready to run."""
    kernel = from_function(KERNELS, name)
    rng = np.random.default_rng(zlib.crc32(name.encode()) + count)
    arrays, scalars = CASES[name].arguments(rng, count)
    assert kernel.iterations is not None
    given = Arguments(arrays, {**scalars, kernel.iterations: count})
    return prepare_kernel(kernel, given, lambda scratch, out: make, times=times)


def equals_numpy(name: str, count: int, result: KernelResult) -> bool:
    """Whether all that the RTL left is what NumPy computes."""
    rng = np.random.default_rng(zlib.crc32(name.encode()) + count)
    arrays, scalars = CASES[name].arguments(rng, count)
    changed, returned = CASES[name].expected(count, arrays, scalars)
    held = {**arrays, **changed}
    same = all(np.array_equal(held[array], found) for array, found in result.arrays.items())
    return same and result.returned == returned


@click.command()
@click.argument("names", nargs=-1)
@click.option("--fabric", default="mesh4x4", show_default=True)
@click.option("--unroll", default=1, show_default=True)
@click.option("--hw", help="The machine around the grid, as `heald cgra run` has it.")
@click.option("--sim", type=click.Choice(BACKENDS), default="verilator", show_default=True)
def main(names: Sequence[str], fabric: str, unroll: int, hw: str | None, sim: str) -> None:
    """Run all kernels, print the table."""
    console = Console(width=120)
    make = machine(base_machine(hw), load_fabric(fabric))(0, 0)
    begin = time.perf_counter()
    runs = [(name, count) for name in names or CASES for count in COUNTS]
    ready = [prepared(name, count, make, unroll) for name, count in runs]
    console.print(f"mapped, compiled and predicted in {time.perf_counter() - begin:.0f} s")
    results = simulate(ready, simulator(make, sim))
    table = Table(title=f"{fabric}, unrolled {unroll}", box=None, header_style="dim")
    for column in (
        "kernel",
        "operations",
        "II",
        "least",
        *(f"{count:,}" for count in COUNTS),
        "per iteration",
    ):
        table.add_column(column, justify="left" if column == "kernel" else "right")
    wrong: list[str] = []
    for i in range(0, len(runs), len(COUNTS)):
        name, own = runs[i][0], results[i : i + len(COUNTS)]
        cycles = []
        for (_, count), result in zip(runs[i : i + len(COUNTS)], own, strict=True):
            cycles.append(result.observed.cycles)
            if not result.verified:
                wrong.append(f"{name}, {count}: {result.difference or result.divergence}")
            elif not equals_numpy(name, count, result):
                wrong.append(f"{name}, {count}: not NumPy's result")
        main = own[-1].main
        each = (cycles[-1] - cycles[-2]) / (COUNTS[-1] - COUNTS[-2])
        table.add_row(
            name,
            str(len(main.graph.nodes)),
            str(main.found.ii),
            str(main.bound.mii),
            *(f"{c:,}" for c in cycles),
            f"{each:.2f}",
        )
    console.print(table)
    console.print(f"{len(runs) - len(wrong)} of {len(runs)} runs equal NumPy and the model's cycles")
    for line in wrong:
        console.print(f"[red]{line}", highlight=False)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
