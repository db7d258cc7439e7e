"""Measures how fast simulations are built, started and run: cocotb, the plain C++ loop, and the model.

    python -m bench.simulation_speed [--hw PRESET] [--matmul MxKxN] [--repeat N] [--fresh]

`--fresh` builds in an empty cache, to include the build time. The second kernel is a whole `heald run` of
another shape on the same machine, from process start to end.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator

import numpy as np
from rich.console import Console
from rich.table import Table

from cosim.backends import simulator
from cosim.compare import compare
from cosim.job import Outcome, Simulator
from cosim.models.cycle import predict
from cosim.settings import MemorySettings
from heald.testing.problems import compile_problem, problem_job
from hw.cache import VARIABLE
from hw.config import load
from sw.problem import Product

SECOND = "24x40x16"


@contextlib.contextmanager
def empty_cache(wanted: bool) -> Iterator[None]:
    """An empty cache that is removed afterwards, if wanted."""
    if not wanted:
        yield
        return
    before = os.environ.get(VARIABLE)
    with tempfile.TemporaryDirectory(prefix="heald-cache-") as name:
        os.environ[VARIABLE] = name
        try:
            yield
        finally:
            os.environ.pop(VARIABLE)
            if before is not None:
                os.environ[VARIABLE] = before


def second_kernel(hw: str) -> float:
    """Seconds of a whole run of a small product on a machine that is already built."""
    command = [sys.executable, "-m", "heald", "run", "--matmul", SECOND, "--hw", hw, "--json"]
    begin = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    seconds = time.perf_counter() - begin
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with code {done.returncode}:\n{done.stderr}")
    return seconds


def measure(hw: str, shape: tuple[int, int, int], repeat: int) -> int:
    """Run everything and print the table; returns 1 if the RTL differs from the model or between backends."""
    config = load(hw)
    m, k, n = shape
    problem = Product(m, k, n)
    job = problem_job(
        compile_problem(problem, config), *problem.random(np.random.default_rng(0)), MemorySettings.of(config)
    )
    begin = time.perf_counter()
    predicted = predict(config, job)
    model_seconds = time.perf_counter() - begin

    # The two alternate, so that other load on the computer affects both.
    machines: dict[str, Simulator] = {name: simulator(config, name) for name in ("verilator", "cpp")}
    build_seconds = machines["verilator"].build_seconds
    best: dict[str, Outcome] = {}
    for _ in range(repeat):
        for name, machine in machines.items():
            (outcome,) = machine.run([job])
            if name not in best or outcome.seconds < best[name].seconds:
                best[name] = outcome
    second = second_kernel(hw)

    cocotb, plain = best["verilator"], best["cpp"]
    table = Table("what", "measured", title=f"{m}x{k}x{n} on {config.name} ({config.rows}x{config.cols})")
    table.add_row("cycles", f"{cocotb.cycles:,}")
    table.add_row("build (0: from the cache)", f"{build_seconds:.1f} s")
    table.add_row("under cocotb", f"{cocotb.cycles / cocotb.seconds:,.0f} cycles/s")
    table.add_row("plain C++ loop", f"{plain.cycles / plain.seconds:,.0f} cycles/s")
    table.add_row("cocotb / plain loop", f"{plain.seconds / cocotb.seconds:.2f}")
    table.add_row("cycle model", f"{model_seconds:.4f} s")
    table.add_row("RTL time / model time", f"{cocotb.seconds / model_seconds:,.0f}")
    table.add_row(f"second kernel ({SECOND}), whole run", f"{second:.2f} s")
    Console().print(table)

    differs = [compare(config, job, predicted, outcome) for outcome in (cocotb, plain)]
    for divergence in filter(None, differs):
        print(divergence)
    return int(any(d is not None for d in differs))


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--hw", default="default")
    parser.add_argument("--matmul", default="512x1024x1024", metavar="MxKxN")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--fresh", action="store_true")
    given = parser.parse_args()
    m, k, n = (int(size) for size in given.matmul.split("x"))
    with empty_cache(given.fresh):
        return measure(given.hw, (m, k, n), given.repeat)


if __name__ == "__main__":
    sys.exit(main())
