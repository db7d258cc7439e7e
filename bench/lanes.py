"""Lanes against LUTs: elements per cycle of the loops that every element of a result needs, by fabric.

    python -m bench.lanes [FABRIC...] [--hw default]

The loops are epilogues of products and convolutions, a sum of two tensors and a table, as the compiler
chooses them. Elements per cycle are those of a long undisturbed launch, including waits for banks. LUTs are
those of the CGRA by the area model of ECP5. Exit code 1: a configuration does not implement its loop.
"""

from __future__ import annotations

from collections.abc import Mapping

import click
import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

from bench.fabrics import luts
from hw.config import load
from sw.graph.expression import Apply, Argument, Expression, Number
from sw.graph.requantise import lookup_of, requantised
from sw.kernels.access import TileAccess
from sw.kernels.choose import choose

SUMS, RESULT, BYTES = TileAccess("acc", "int32"), TileAccess("out", "int8"), TileAccess("scratch", "int8")
ROW, COLUMN = (TileAccess("scratch", "int32", follows, record=True) for follows in ("row", "column"))
FACTOR = Number(12_345_677)
#: The number of columns is a multiple of this.
COLUMNS = 32


def _bytes(total: Expression, factor: Expression = FACTOR) -> Expression:
    return requantised(total, factor, Number(30), Number(5), -128, 127)


def _table(value: Expression) -> Expression:
    return lookup_of(np.arange(256), value, "int8")


_BIASED: Expression = Apply("add", (Argument(0), Argument(1)))
_TWO: Expression = Apply("add", tuple(Apply("mul", (Argument(k), Number(333 + k))) for k in range(2)))
LOOPS: Mapping[str, tuple[Expression, list[TileAccess]]] = {
    "one scale": (_bytes(Argument(0)), [SUMS]),
    "bias per row": (_bytes(_BIASED), [SUMS, ROW]),
    "bias and scale per row": (_bytes(_BIASED, Argument(2)), [SUMS, ROW, ROW]),
    "the same, and a table": (_table(_bytes(_BIASED, Argument(2))), [SUMS, ROW, ROW]),
    "bias per column": (_bytes(_BIASED), [SUMS, COLUMN]),
    "bias and scale per column": (_bytes(_BIASED, Argument(2)), [SUMS, COLUMN, COLUMN]),
    "sum of two tensors": (_bytes(_TWO), [BYTES, BYTES]),
    "table of a tensor": (_table(Argument(0)), [BYTES]),
}


@click.command()
@click.argument("fabrics", nargs=-1)
@click.option("--hw", default="default", show_default=True, help="The machine around the grid.")
def main(fabrics: tuple[str, ...], hw: str) -> None:
    """Print a row for each loop, with a column for each fabric."""
    names = fabrics or ("shared4x4", "vector3x4")
    configs = [load(hw, {"cgra": name}) for name in names]
    wrong: list[str] = []

    def cell(value: Expression, operands: list[TileAccess], name: str, at: int) -> str:
        found = choose(value, operands, RESULT, configs[at], multiple=COLUMNS)
        if not found.configured.verified:
            wrong.append(f"{name} on {names[at]}: {found.configured.differences[0]}")
        made = found.elementwise.per_iteration
        return f"{1 / found.cycles_per_element:.2f} ({made} in {found.configured.ii})"

    table = Table("elements per cycle", *names, title=f"loops of {hw}")
    for name, (value, operands) in track(LOOPS.items(), "loops", console=Console(stderr=True)):
        table.add_row(name, *(cell(value, operands, name, i) for i in range(len(names))))
    grids = (config.cgra for config in configs)
    table.add_row("LUTs of the grid", *(f"{luts(configs[0], grid):,}" for grid in grids if grid is not None))
    Console(width=120).print(table)
    for text in wrong:
        click.echo(text)
    raise SystemExit(bool(wrong))


if __name__ == "__main__":
    main()
