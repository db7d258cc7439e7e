"""Elementwise loops on the CGRA: cycles per element of a tile, by the cycle model.

    python -m bench.grid_elementwise [KERNEL ...] [--fabric torus4x4] [--hw default] [--rows 64] [--width 128]

Launches keep their configuration; a launch's cycles include patches, array checks, prologue and epilogue. The
result is compared with the expression's value. Exit code 1 if anything differs.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence

import click
import numpy as np
from rich.console import Console
from rich.table import Table

from bench.elementwise_program import ElementwiseProgram, build
from cosim.session.tile_program import PreparedProgram, prepare
from cosim.settings import MemorySettings
from hw.config import MachineConfig, load
from hw.fabric import load as load_fabric
from sw.graph.expression import Apply, Argument, Expression, Lookup, Number
from sw.kernels.access import TileAccess
from sw.kernels.choose import Chosen, choose

ACC, BYTE, RESULT = (
    TileAccess("acc", "int32"),
    TileAccess("scratch", "int8"),
    TileAccess("out", "int8"),
)
COLUMN, ROW = (TileAccess("scratch", "int32", follows, record=True) for follows in ("column", "row"))
TABLE = tuple((i * 37) % 256 - 128 for i in range(256))
Case = tuple[Expression, list[TileAccess]]


def _apply(operation: str, *operands: Expression | int) -> Apply:
    return Apply(operation, tuple(Number(x) if isinstance(x, int) else x for x in operands))


def _clamp(value: Expression, low: int = -128, high: int = 127) -> Expression:
    return _apply("max", _apply("min", value, high), low)


def _scaled(value: Expression) -> Expression:
    return _apply("add", _apply("mul_shift_round_even", value, 12_345_678, 37), 3)


def _packed(value: Expression, operand: int) -> Expression:
    """Mantissa and shift in one word; the shift counts modulo 64."""
    shift = Argument(operand)
    return _apply("add", _apply("mul_shift_round_even", value, _apply("shr", shift, 6), shift), 3)


def _sum(a: Expression, b: Expression) -> Expression:
    """The sum of two byte tensors with different scales."""
    both = _apply("add", _apply("mul", a, 1_000_003), _apply("mul", b, 2_000_003))
    return _clamp(_apply("add", _apply("mul_shift_round_even", both, 1 << 20, 41), 5))


def cases() -> dict[str, Case]:
    """Expressions and their operands, by name."""
    x, y = Argument(0), Argument(1)
    biased = _apply("add", x, y)
    product = _apply("mul", _apply("sub", x, 4), _apply("sub", y, 9))
    scaled = _clamp(_scaled(biased))
    gelu = Lookup(TABLE, _clamp(_apply("add", _scaled(biased), 128), 0, 255))
    each = [Argument(k) for k in range(4)]
    separate = _clamp(_apply("add", _apply("mul_shift_round_even", biased, *each[2:]), 3))
    return {
        "requantise": (_clamp(_scaled(x)), [ACC]),
        "bias + requantise": (_clamp(_scaled(_apply("add", x, 77_777))), [ACC]),
        "bias per column": (scaled, [ACC, COLUMN]),
        "bias, scale per column": (_clamp(_packed(biased, 2)), [ACC, COLUMN, COLUMN]),
        "the same, 3 words": (separate, [ACC, COLUMN, COLUMN, COLUMN]),
        "bias per row": (scaled, [ACC, ROW]),
        "bias, scale per row": (_clamp(_packed(biased, 2)), [ACC, ROW, ROW]),
        "bias per column, table": (gelu, [ACC, COLUMN]),
        "bias per column, residual": (_sum(scaled, Argument(2)), [ACC, COLUMN, BYTE]),
        "int8 add": (_sum(x, y), [BYTE, BYTE]),
        "int8 mul": (_clamp(_scaled(product)), [BYTE, BYTE]),
        "table": (Lookup(TABLE, _apply("and", x, 255)), [BYTE]),
        "relu": (_apply("max", x, -7), [BYTE]),
        "copy": (x, [BYTE]),
    }


def prepared(program: ElementwiseProgram, config: MachineConfig) -> PreparedProgram:
    """A program compiled, executed and predicted."""
    return prepare(program.program, config, MemorySettings.of(config), program.inputs)


def right(program: ElementwiseProgram, run: PreparedProgram) -> bool:
    """Whether the sequential execution produces the expression's value."""
    place = run.compiled.bound.memory["y"]
    found = place.extract(run.expected.memory[place.address : place.address + place.size])
    return np.array_equal(found.reshape(-1), program.expected)


def measured(
    case: Case, chosen: Chosen, config: MachineConfig, rows: int, width: int
) -> tuple[int, int, bool]:
    """Cycles of a launch, cycles in which it was frozen, and whether the result is right."""
    found = []
    for launches in (1, 2):
        program = build(case[0], chosen, config, rows, width, launches=launches)
        run = prepared(program, config)
        counters = run.prediction.predicted.counters
        found.append((counters["CGRA_BUSY"], counters["CGRA_STALL_BANK"], right(program, run)))
    one, two = found
    return two[0] - one[0], two[1] - one[1], one[2] and two[2]


@click.command()
@click.argument("names", nargs=-1)
@click.option("--fabric", default="torus4x4", show_default=True)
@click.option("--hw", default="default", show_default=True)
@click.option("--rows", default=64, show_default=True)
@click.option("--width", default=128, show_default=True)
def main(names: Sequence[str], fabric: str, hw: str, rows: int, width: int) -> None:
    """Print the table."""
    console = Console(width=130)
    config = load(hw).replace(cgra=load_fabric(fabric), scratch_bytes=1 << 16, out_bytes=1 << 16)
    table = Table(title=f"{fabric}, {hw}, {rows} x {width} elements", box=None, header_style="dim")
    for column in (
        "kernel", "elements", "mask", "operations", "II", "least", "words", "steps/element", "cycles",
        "frozen", "cycles/element", "seconds",
    ):  # fmt: skip
        table.add_column(column, justify="left" if column == "kernel" else "right")
    wrong: list[str] = []
    for name, case in cases().items():
        if names and name not in names:
            continue
        begin = time.perf_counter()
        chosen = choose(*case, RESULT, config, multiple=width)
        seconds = time.perf_counter() - begin
        made, configured = chosen.elementwise, chosen.configured
        cycles, frozen, correct = measured(case, chosen, config, rows, width)
        if not (correct and configured.verified):
            wrong.append(name)
        table.add_row(
            name,
            str(made.per_iteration),
            f"{made.unrolling.mask:b}",
            str(len(configured.graph.nodes)),
            str(configured.ii),
            str(configured.found.bound.mii),
            str(len(configured.words)),
            f"{configured.ii / made.per_iteration:.3f}",
            f"{cycles:,}",
            f"{frozen:,}",
            f"{cycles / (rows * width):.3f}",
            f"{seconds:.1f}",
        )
    console.print(table)
    for name in wrong:
        console.print(f"[red]{name}: not the expression's value", highlight=False)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
