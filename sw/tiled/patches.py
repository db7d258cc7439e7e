"""Operands of the operation that loads the patches of a tile of outputs.

Which of a tile's pixels lie in the image, and how much padding surrounds them, follows from the tile's
place; the loader forms the patches (docs/machine.md, "Patches").
"""

from __future__ import annotations

from dataclasses import dataclass

from sw.convolution import Convolution
from sw.ir.expression import Const, Expr, Op, apply
from sw.ir.program import Interval
from sw.patches import Axis
from sw.tiled.forms import Loops, index, larger, size, smaller


@dataclass(frozen=True)
class Cut:
    """An axis of a tile of outputs: outputs, pixels that they span, and those of them in the image.

    `first` is the first pixel in the image, `pixels` how many, `padding` what lies before them.
    """

    outputs: Expr
    span: Expr
    first: Expr
    pixels: Expr
    padding: Expr


def cut(axis: Axis, loops: Loops, loop: str, tile: int) -> Cut:
    """The tile along an axis that the named loop cuts into tiles of so many outputs."""
    outputs = size(loops, loop, axis.outputs, tile)
    span = outputs * axis.stride + (axis.reach - axis.stride)
    variable = index(loops, loop)
    start = Const(-axis.before) if variable is None else variable * (tile * axis.stride) - axis.before
    first = larger(start, 0)
    return Cut(
        outputs,
        span,
        first,
        pixels=larger(smaller(start + span, axis.size) - first, 0),
        padding=first - start,
    )


@dataclass(frozen=True)
class PatchLoad:
    """Operands of load_b_conv that depend on the tile, and the box of the image that it reads."""

    operands: dict[str, Expr]
    pixels: tuple[Interval, Interval]


def patch_load(problem: Convolution, base: Expr, line: int, rows: Cut, cols: Cut) -> PatchLoad:
    """A tile of these rows and columns of the image at `base`, whose rows lie `line` bytes apart.

    A load reads one pixel of a row at least; a tile without pixels reads no rows.
    """
    read = apply(Op.SELECT, apply(Op.GT, cols.pixels, 0), rows.pixels, 0)
    operands: dict[str, Expr] = {
        "memory": base + rows.first * line + cols.first,
        "inner": larger(cols.pixels, 1),
        "load_fill": Const(problem.zero_b & 0xFF),
        "conv_line": Const(line),
        "conv_rows": read,
        "conv_height": rows.span,
        "conv_width": cols.span,
        "conv_top": rows.padding,
        "conv_left": cols.padding,
        "conv_out_rows": rows.outputs,
        "conv_out_cols": cols.outputs,
    }
    for name, axis in (("h", problem.rows), ("w", problem.cols)):
        operands[f"conv_kernel_{name}"] = Const(axis.kernel)
        operands[f"conv_stride_{name}"] = Const(axis.stride)
        operands[f"conv_dilation_{name}"] = Const(axis.dilation)
    box = (
        Interval(rows.first, rows.first + rows.pixels),
        Interval(cols.first, cols.first + cols.pixels),
    )
    return PatchLoad(operands, box)
