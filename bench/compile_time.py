"""Compile time of models, and how it grows with the number of operators.

    python -m bench.compile_time [--operators 10,20,40] [--model FILE.onnx ...] [--hw default]

Compiles chains of matrix products with epilogues, each product of the previous result, at several lengths,
and also given models, such as an encoder layer. Shows CPU seconds by stage, with all mappings on disk but all
other caches empty: everything is compiled once before. `exponent` is the growth of time with operators from
one length to the next: 1 is linear.
"""

from __future__ import annotations

import functools
import gc
import math
import resource
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import click
import numpy as np
from rich.console import Console
from rich.table import Table

from hw.config import MachineConfig, load
from sw.compile.stages import Compiled
from sw.compiler import PIPELINE, compile_network
from sw.frontend.network import import_model
from sw.graph.expression import Apply, Argument, Expression, Number
from sw.graph.network import Epilogue, MatrixProduct, Network, Operator, Tensor, View, whole
from sw.ir.program import Program

#: Rows and columns of everything in a chain.
ROWS, COLUMNS = 64, 128
STAGES = tuple(stage.name for stage in PIPELINE)


def chain(count: int) -> Network:
    """`count` products, each of the previous result, with bias, requantisation and clamp."""
    rng = np.random.default_rng(count)
    tensors = {"x0": Tensor("x0", (ROWS, COLUMNS), "int8")}
    operators: list[Operator] = []
    for n in range(count):
        weights = rng.integers(-128, 128, (COLUMNS, COLUMNS)).astype(np.int8)
        bias = rng.integers(-5000, 5000, COLUMNS).astype(np.int32)
        made = (
            Tensor(f"w{n}", (COLUMNS, COLUMNS), "int8", weights),
            Tensor(f"b{n}", (COLUMNS,), "int32", bias),
            Tensor(f"x{n + 1}", (ROWS, COLUMNS), "int8"),
        )
        tensors |= {t.name: t for t in made}
        result, operand = (whole(tensors[f"x{i}"]) for i in (n + 1, n))
        epilogue = Epilogue(_requantised(n), (View(f"b{n}", (ROWS, COLUMNS), (0, 1)),))
        name = f"product {n}"
        operators.append(
            MatrixProduct(name, "MatMul", (name,), result, operand, whole(made[0]), 3, 0, epilogue)
        )
    return Network("chain", tensors, tuple(operators), ("x0",), (f"x{count}",))


def _requantised(number: int) -> Expression:
    """The sum plus bias, requantised with a different scale for every operator."""
    total = Apply("add", (Argument(0), Argument(1)))
    scaled = Apply("mul_shift_round_even", (total, Number(11_000_000 + number), Number(33)))
    return Apply("max", (Apply("min", (scaled, Number(127))), Number(-128)))


def measured(network: Network, config: MachineConfig) -> dict[str, float]:
    """CPU seconds by stage; a stage ends when the compiler reports its result."""
    seconds = dict.fromkeys(STAGES, 0.0)
    since = time.process_time()

    def after(step: str, made: Program | str) -> None:
        nonlocal since
        now = time.process_time()
        seconds[step.partition(",")[0]] += now - since
        since = now

    steps = compile_network(network, config, after=after)
    assert any(isinstance(s, Compiled) for s in steps)
    seconds[STAGES[-1]] += time.process_time() - since
    return seconds


def _forget() -> None:
    """Clear all function caches."""
    for found in gc.get_objects():
        if isinstance(found, functools._lru_cache_wrapper):
            found.cache_clear()


def _networks(operators: Sequence[int], models: Sequence[Path]) -> Iterator[tuple[str, Network]]:
    for count in operators:
        yield f"chain of {count}", chain(count)
    for path in models:
        yield path.name, import_model(str(path))


def rows(found: Sequence[tuple[str, int, dict[str, float]]]) -> Iterator[list[str]]:
    """The cells of every line, with exponents between successive chains."""
    before: tuple[int, dict[str, float]] | None = None
    for name, count, seconds in found:
        total = sum(seconds.values())
        cells = [name, str(count), *(f"{seconds[s]:.2f}" for s in STAGES), f"{total:.2f}"]
        exponents = ["", ""]
        if name.startswith("chain"):
            if before is not None:
                longer = math.log(count / before[0])
                pairs = ((seconds["warps"], before[1]["warps"]), (total, sum(before[1].values())))
                exponents = [f"{math.log(now / then) / longer:.2f}" for now, then in pairs]
            before = count, seconds
        yield [*cells, *exponents]


@click.command()
@click.option("--operators", default="10,20,40,80", show_default=True, help="Lengths of the chain.")
@click.option(
    "--model", "models", multiple=True, type=click.Path(exists=True, dir_okay=False, path_type=Path)
)
@click.option("--hw", default="default", show_default=True)
def main(operators: str, models: tuple[Path, ...], hw: str) -> None:
    """Print the table."""
    config = load(hw).replace(imem_words=16384)
    found = []
    for name, network in _networks([int(n) for n in operators.split(",") if n], models):
        compile_network(network if not name.startswith("chain") else chain(2), config)
        _forget()
        found.append((name, len(network.operators), measured(network, config)))
    table = Table(title=f"seconds of the processor on {hw}", box=None, header_style="dim")
    for title in ("network", "operators", *STAGES, "all", "exponent of warps", "exponent of all"):
        table.add_column(title, justify="left" if title == "network" else "right")
    for cells in rows(found):
        table.add_row(*cells)
    console = Console(width=160)
    console.print(table)
    console.print(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10} MiB")


if __name__ == "__main__":
    main()
