"""A picture of a tiling plan: how the matrices are cut and walked through, and what bounds the product.

One SVG of its own, drawn by Matplotlib, whose import takes a while: import this module where it is needed.
Lengths are pixels of a page 1200 wide, from its upper left corner. Text is drawn as outlines, so the picture
looks the same everywhere; the same plan gives the same bytes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, NamedTuple

import matplotlib
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, NullFormatter

from heald.report.matrices import PIECE_OF_C, Edge, Matrices, cut_lines, dots, last_is_outside, walk
from heald.report.page import (
    COLOURS,
    GREY,
    INK,
    LINE,
    MARGIN,
    PALE,
    POINT,
    RIGHT,
    SMALL,
    STYLE,
    WIDTH,
    Sheet,
    fitted,
    number_text,
    printable,
    text_width,
    wrap,
)
from sw.tiling.cost import kernel_cuts, times
from sw.tiling.plan import TilingPlan
from sw.tiling.problem import TilingProblem


def draw(
    problem: TilingProblem,
    plan: TilingPlan,
    file: Path | IO[bytes],
    *,
    title: str,
    predicted: tuple[float, float] | None = None,
    stays: Mapping[str, str] | None = None,
) -> None:
    """Write the picture of a plan as SVG into `file`, whatever its name ends in.

    `predicted` are cycles and utilization on the real machine, a point of its own on the roofline; `stays`
    tells of A and B whether all, a piece or nothing of them stays in its buffer ("all", "piece", ""), where
    the plan alone does not. Characters of the title that the font lacks become question marks.
    """
    with matplotlib.rc_context():
        # Not the user's settings: the picture depends on the plan alone.
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(STYLE)
        sheet = Sheet()
        heading = fitted(printable(title))
        sheet.text(MARGIN, 34, heading, size=18, weight="bold")
        top = sheet.lines(MARGIN, 60, _summary(problem, plan), color=GREY) + 34
        bottom = max(Matrices(sheet, problem, plan, top, stays).bottom, top + 440)
        _roofline(sheet, problem, plan, predicted, (top, bottom))
        height = _below(sheet, plan, problem, bottom + 14)
        sheet.save(file, height, heading)


class _Point(NamedTuple):
    """A point of the roofline: MACs per byte and per cycle."""

    name: str
    marker: str
    color: str
    x: float
    y: float


def _roofline(
    sheet: Sheet,
    problem: TilingProblem,
    plan: TilingPlan,
    predicted: tuple[float, float] | None,
    room: tuple[float, float],
) -> None:
    """What the array and the memories allow, and where the plan lies below it."""
    p, top, bottom = problem, *room
    macs, peak, once = p.m * p.n * p.k, float(p.macs_per_cycle), times(p)
    time = times(p, kernel_cuts(p, plan.partition_k))
    loaded, bytes_once = plan.bytes_a + plan.bytes_b, (p.m * p.k + p.pixels) * p.elem_bytes
    rate = loaded * time.unit / max(plan.loads_a * time.load_a, plan.loads_b * time.load_b)
    points = [_Point("this plan", "o", "#7c3aed", macs / loaded, macs / plan.cycles)]
    if bytes_once < loaded:
        best = macs * once.unit / max(once.gemm, once.load_a, once.load_b)
        points.append(_Point("A and B loaded once", "D", "#475569", macs / bytes_once, best))
    if predicted is not None and all(math.isfinite(value) and value > 0 for value in predicted):
        name = f"on the machine, {number_text(predicted[0])} cycles"
        points.append(_Point(name, "s", "#dc2626", macs / loaded, predicted[1] * peak))
    texts = [
        f"{point.name}\n{number_text(point.x)} MACs/byte, {number_text(point.y)}/cycle "
        f"({100 * point.y / peak:.3g} %)"
        for point in points
    ]

    share = plan.bytes_a / loaded
    text = (
        f"Roof: the array's peak, or what the memories deliver at this plan's mix of bytes: "
        f"{100 * share:.3g} % A at {number_text(p.bw_a)} bytes/cycle and {100 * (1 - share):.3g} % B at "
        f"{number_text(p.bw_b)}, side by side {number_text(rate)} bytes/cycle"
    )
    text += "." if p.write_b is None else f" (patches are written at {number_text(p.write_b)})."
    text += " A and B loaded once are another mix, with a roof of its own." if bytes_once < loaded else ""
    legend = wrap(text, WIDTH - MARGIN - RIGHT, SMALL)
    left, width = RIGHT + 56, WIDTH - MARGIN - RIGHT - 56
    height = bottom - top - len(legend) * LINE - 60
    sheet.text(RIGHT, top, "Roofline", 13, weight="bold")
    sheet.lines(RIGHT, bottom - (len(legend) - 1) * LINE, legend, SMALL, color=GREY)

    # Points lie so far left and up that their texts stand to the right and below.
    xs, ys = [math.log10(point.x) for point in points], [math.log10(point.y) for point in points]
    widest = max(text_width(line, SMALL) for text in texts for line in text.split("\n"))
    share = min(max(1 - (widest + 14) / width, 0.2), 0.5)
    ridge = math.log10(peak / rate)
    low = min(min(xs), max(ridge, min(xs) - 4)) - 0.5
    x_range = low, low + max((max(xs) - low) / share, 2.0, min(ridge - low, 8) + 0.8)
    high = math.log10(peak) + 0.35
    y_range = high - max((high - min(ys)) / 0.5, 2.0), high
    axes = sheet.plot(left, top + 14, width, height)
    axes.set(xscale="log", yscale="log", xlim=[10**v for v in x_range], ylim=[10**v for v in y_range])
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(FuncFormatter(lambda value, _: number_text(value)))
        axis.set_minor_formatter(NullFormatter())
    axes.tick_params(labelsize=SMALL * POINT, colors=GREY, which="both", length=3)
    axes.grid(color=PALE, linewidth=0.5)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_xlabel("MACs per byte loaded", fontsize=SMALL * POINT, color=INK)
    axes.set_ylabel("MACs per cycle", fontsize=SMALL * POINT, color=INK)
    roof_x = [10**v for v in sorted({x_range[0], x_range[1], min(max(ridge, x_range[0]), x_range[1])})]
    roof = [min(peak, x * rate) for x in roof_x]
    axes.fill_between(roof_x, roof, 10 ** y_range[0], color="#f3f4f6", linewidth=0)
    axes.axhline(peak, color=GREY, linewidth=0.8, linestyle=(0, (4, 3)))
    axes.add_line(Line2D(roof_x, roof, color=INK, linewidth=1.6))
    how: dict[str, Any] = {"textcoords": "offset points", "fontsize": SMALL * POINT, "parse_math": False}
    name = f"array's peak {number_text(peak)} MACs/cycle"
    axes.annotate(name, (1, peak), (-2, 4), ("axes fraction", "data"), ha="right", color=INK, **how)
    below = -math.inf
    for point, text in sorted(zip(points, texts, strict=True), key=lambda pair: (-pair[0].y, -pair[0].x)):
        down = (high - math.log10(point.y)) / (y_range[1] - y_range[0]) * height
        below = max(down + 22, below + 40)
        axes.plot(point.x, point.y, point.marker, color=point.color, markersize=7, markeredgecolor="white")
        line = {"arrowstyle": "-", "color": point.color, "linewidth": 0.6, "shrinkA": 1, "relpos": (0, 0.5)}
        at = 14 * POINT, (down - below) * POINT
        axes.annotate(text, (point.x, point.y), at, va="center", color=point.color, arrowprops=line, **how)


def _below(sheet: Sheet, plan: TilingPlan, problem: TilingProblem, top: float) -> float:
    """Loops, a piece of C with its tiles, and the reason; returns the height of the page."""
    p = problem
    rows, columns = min(plan.partition_m, p.m), min(plan.partition_n, p.n)
    sheet.strokes([[(MARGIN, top), (WIDTH - MARGIN, top)]], PALE)
    y = top + 28
    sheet.text(MARGIN, y, "Loops, the outermost first", 13, weight="bold")
    sizes = {"k": p.k, "m_outer": p.m, "n_outer": p.n, "m_inner": rows, "n_inner": columns}
    steps = {
        "k": plan.partition_k,
        "m_outer": rows,
        "n_outer": columns,
        "m_inner": plan.tile_m,
        "n_inner": plan.tile_n,
    }
    lines = []
    for depth, loop in enumerate(plan.loop_order):
        step = min(steps[loop], sizes[loop])
        lines.append(f"{'  ' * depth}{loop}: {-(-sizes[loop] // step):,} × {step:,}")
    end = sheet.lines(MARGIN, y + 22, lines, family="DejaVu Sans Mono")

    x = 370.0
    sheet.text(x, y, f"A partition of C: {rows:,} × {columns:,}", 13, weight="bold")
    tile = f"in tiles of {min(plan.tile_m, rows):,} × {min(plan.tile_n, columns):,}"
    sheet.text(x, y + 20, tile)
    scale = min(110 / rows, 240 / columns)
    m, n = (
        Edge.of(size, step, max(size * scale, 50.0))
        for size, step in ((rows, plan.tile_m), (columns, plan.tile_n))
    )
    strong = COLOURS["C"][1]
    for low, high in m.runs:
        for start, stop in n.runs:
            sheet.box(x + start, y + 32 + low, stop - start, high - low, facecolor=PIECE_OF_C)
    sheet.strokes(cut_lines(x, y + 32, m, n), strong)
    dots(sheet, x, y + 32, m, n, strong)
    walk(sheet, x, y + 32, m, n, by_row=False)
    end = max(end, y + 32 + m.length + (16 if last_is_outside(m, n) else 0))

    sheet.text(RIGHT, y, "Why this plan", 13, weight="bold")
    reason = wrap(printable(plan.reason), WIDTH - MARGIN - RIGHT)
    return max(end, sheet.lines(RIGHT, y + 22, reason)) + 26


def _summary(problem: TilingProblem, plan: TilingPlan) -> list[str]:
    p, c = problem, problem.conv
    lines = [
        f"{p.m:,} × {p.k:,} × {p.n:,} (m × k × n): {number_text(plan.cycles)} cycles by array and loads "
        "alone, "
        f"{100 * plan.utilization:.1f} % of the array's peak of {number_text(p.macs_per_cycle)} MACs/cycle"
    ]
    if c is not None:
        rows, cols, several = c.rows, c.cols, "s" if c.images > 1 else ""
        images = f"{c.images:,} image{several} of {c.channels:,} × {rows.size:,} × {cols.size:,}"
        lines.append(
            f"A convolution: {images}, {c.out_channels:,} kernels of {rows.kernel:,} × {cols.kernel:,}, "
            f"stride {rows.stride:,}, padding {rows.before:,}, dilation {rows.dilation:,}; A is the weights, "
            "B the patches, formed from loaded pixels"
        )
    return [line for text in lines for line in wrap(text, WIDTH - 2 * MARGIN)]
