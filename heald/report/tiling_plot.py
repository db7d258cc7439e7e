"""A picture of a tiling plan: how matrices are cut, the order of the pieces, and what bounds the product.

A single SVG; lengths are in pixels of a page 1200 wide, from its upper left corner.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence

from rich.filesize import decimal

from heald.report.html.svg import Drawing, LogAxis
from heald.report.numbers import number_text
from sw.tiling.cost import kernel_cuts, times
from sw.tiling.plan import TilingPlan
from sw.tiling.problem import TilingProblem

#: Page width, margin, start of the right half, and line height.
_WIDTH, _MARGIN, _RIGHT, _LINE = 1200.0, 24.0, 690.0, 17.0
#: Room for C with A beside it or B above it, minimum side of a matrix, minimum size of a piece.
_ROOM, _LEAST, _LEAST_PIECE = 470.0, 60.0, 9.0
#: Number of pieces drawn if there are too many.
_FEW = 6
#: Typical pixels per character.
_CHARACTER = 6.4
_STYLE = """<style>
text { font: 12px system-ui, sans-serif; fill: #1f2937; }
path { stroke: #1f2937; fill: none; }
.title { font-size: 18px; font-weight: bold; } .heading { font-size: 13px; font-weight: bold; }
.small { fill: #6b7280; } .middle { text-anchor: middle; } .end { text-anchor: end; }
.mono { font-family: ui-monospace, monospace; white-space: pre; }
.paper { fill: #ffffff; } .A { fill: #dbeafe; } .B { fill: #d1fae5; } .C { fill: #fef3c7; }
.piece { fill: #6b7280; fill-opacity: 0.3; } .stays { fill: url(#hatch); }
.cut { stroke: #6b7280; stroke-width: 0.7; } .fine { stroke: #6b7280; stroke-width: 0.3; }
.walk { marker-end: url(#arrow); } .pale { stroke: #d1d5db; stroke-width: 0.5; }
.roof { stroke-width: 1.6; } .mark { fill: #7c3aed; stroke: #ffffff; }
</style><defs>
<pattern id="hatch" width="6" height="6" patternUnits="userSpaceOnUse">
<path d="M0 6L6 0" class="cut"/></pattern>
<marker id="arrow" viewBox="0 0 6 6" refX="6" refY="3" markerWidth="6" markerHeight="6" orient="auto">
<path d="M0 0L6 3L0 6z" style="fill:#1f2937"/></marker></defs>"""


def picture(
    problem: TilingProblem,
    plan: TilingPlan,
    *,
    title: str,
    predicted: tuple[float, float] | None = None,
    stays: Mapping[str, str] | None = None,
) -> str:
    """The picture of a plan as SVG; the same plan gives the same text.

    `predicted` are cycles and utilization on the real machine, drawn as a separate point on the roofline.
    `stays` overrides, for A and B, how much stays in the buffer ("all", "piece", ""), if the plan alone does
    not say.
    """
    heading = textwrap.shorten("".join(c if c.isprintable() else "?" for c in " ".join(title.split())), 100)
    d = Drawing(_WIDTH, 0, f"Tiling plan: {heading}", [_STYLE])
    d.parts.append('<rect width="100%" height="100%" class="paper"/>')
    d.text(_MARGIN, 34, heading, "title")
    top = _lines(d, _MARGIN, 60, _WIDTH - 2 * _MARGIN, _summary(problem, plan)) + 14
    kept = {name: what_stays(problem, plan, name) for name in "ABC"} | dict(stays or {})
    left = _matrices(d, problem, plan, kept, top)
    left = _lines(d, _MARGIN, left, _RIGHT - 2 * _MARGIN, _remarks(problem, plan, kept))
    right = _roofline(d, problem, plan, predicted, top)
    d.text(_RIGHT, right, "Why this plan", "heading")
    right = _lines(d, _RIGHT, right + 20, _WIDTH - _MARGIN - _RIGHT, [plan.reason]) + 14
    d.text(_RIGHT, right, "Loops, the outermost first", "heading")
    for line in _loops(problem, plan):
        right += _LINE
        d.text(_RIGHT, right, line, "mono")
    d.height = max(left, right + _LINE)
    return str(d)


def _lines(d: Drawing, x: float, y: float, width: float, texts: Sequence[str]) -> float:
    """Draw texts in lines of limited width, from baseline `y` down; returns the baseline after them."""
    for line in (line for text in texts for line in textwrap.wrap(text, int(width / _CHARACTER))):
        d.text(x, y, line)
        y += _LINE
    return y


def _summary(p: TilingProblem, plan: TilingPlan) -> list[str]:
    lines = [
        f"{p.m:,} × {p.k:,} × {p.n:,} (m × k × n): {number_text(plan.cycles)} cycles by array and loads "
        f"alone, {100 * plan.utilization:.1f} % of the array's peak of "
        f"{number_text(p.macs_per_cycle)} MACs/cycle"
    ]
    if (c := p.conv) is not None:
        rows, cols, several = c.rows, c.cols, "s" if c.images > 1 else ""
        images = f"{c.images:,} image{several} of {c.channels:,} × {rows.size:,} × {cols.size:,}"
        lines.append(
            f"A convolution: {images}, {c.out_channels:,} kernels of {rows.kernel:,} × {cols.kernel:,}, "
            f"stride {rows.stride:,}, padding {rows.before:,}, dilation {rows.dilation:,}; A is the weights, "
            "B the patches, formed from loaded pixels"
        )
    return lines


def _loops(p: TilingProblem, plan: TilingPlan) -> list[str]:
    rows, columns = min(plan.partition_m, p.m), min(plan.partition_n, p.n)
    steps = {
        "k": (p.k, plan.partition_k),
        "m_outer": (p.m, rows),
        "n_outer": (p.n, columns),
        "m_inner": (rows, min(plan.tile_m, rows)),
        "n_inner": (columns, min(plan.tile_n, columns)),
    }
    sized = ((depth, loop, *steps[loop]) for depth, loop in enumerate(plan.loop_order))
    return [f"{'  ' * depth}{loop}: {-(-size // step):,} × {step:,}" for depth, loop, size, step in sized]


def _remarks(p: TilingProblem, plan: TilingPlan, stays: Mapping[str, str]) -> list[str]:
    """A sentence about each matrix: its size, how often it is loaded, and what of it stays."""
    rows, columns, parts = min(plan.partition_m, p.m), min(plan.partition_n, p.n), -(-p.k // plan.partition_k)
    found = []
    for name, shape, loads, loaded, step, what in (
        ("A", (p.m, p.k), plan.loads_a, plan.bytes_a, rows, "row"),
        ("B", (p.k, p.n), plan.loads_b, plan.bytes_b, columns, "column"),
    ):
        kind = "" if p.conv is None else "weights, " if name == "A" else "patches, "
        text = f"loaded {_times(loads)}, {decimal(loaded)}"
        if kind.startswith("p"):
            cuts = kernel_cuts(p, plan.partition_k)
            text = f"pixels {text}" + (f" (each read {_times(cuts)} in a load)" if cuts > 1 else "")
        if stays[name] == "all":
            text += "; all of it stays in its buffer (hatched)"
        elif stays[name]:
            text += f"; {step:,} {what}{'s stay' if step > 1 else ' stays'} in the buffer at a time (hatched)"
        else:
            text += "; streams through its buffer"
        found.append(f"{name}: {kind}{shape[0]:,} × {shape[1]:,}, {text}.")
    pieces = -(-p.m // rows) * -(-p.n // columns)
    way = "row by row" if plan.order == "m" else "column by column"
    cut = (
        f"{pieces:,} partitions of {rows:,} × {columns:,}, {way}" if pieces > 1 else "whole, in one partition"
    )
    depth = "K is whole"
    if parts > 1:
        what = "a piece" if pieces > 1 else "all of it"
        depth = f"{what} stays in the accumulator (hatched) while K passes in {parts:,} parts"
    found.append(f"C: {p.m:,} × {p.n:,}, {cut}; {depth}.")
    return [
        *found,
        f"Not to scale: every side is longer by {_LEAST:g} pixels, many pieces are drawn as {_FEW}.",
    ]


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count:,} times"


def _matrices(d: Drawing, p: TilingProblem, plan: TilingPlan, stays: Mapping[str, str], top: float) -> float:
    """Draw A, B above C beside it, as multiplied by hand; returns the bottom of the drawing."""
    scale = (_ROOM - 2 * _LEAST) / (p.k + max(p.m, p.n))
    sizes = {"m": (p.m, plan.partition_m), "k": (p.k, plan.partition_k), "n": (p.n, plan.partition_n)}
    m, k, n = (_pieces(size, step, _LEAST + size * scale) for size, step in sizes.values())
    left = _MARGIN + 76
    right, upper = left + k[-1][1] + 46, top + 18
    lower = upper + k[-1][1] + 46
    for name, x, y, rows, columns in (
        ("A", left, lower, m, k),
        ("B", right, upper, k, n),
        ("C", right, lower, m, n),
    ):
        height, width = rows[-1][1], columns[-1][1]
        d.box(x, y, width, height, name)
        if stays[name]:
            piece = stays[name] == "piece"
            wide = columns[0][1] if piece and name != "A" else width
            d.box(x, y, wide, rows[0][1] if piece and name != "B" else height, "stays")
        d.box(x, y, columns[0][1], rows[0][1], "piece")
        for at in {end for piece in rows for end in piece}:
            d.line([(x, y + at), (x + width, y + at)], "cut")
        for at in {end for piece in columns for end in piece}:
            d.line([(x + at, y), (x + at, y + height)], "cut")
        d.text(x - 6, y - 6, name, "heading end")
    _walk(d, right, lower, (m, n), plan.order == "m")
    _tiles(d, p, plan, (right, lower), (m[0][1], n[0][1]))
    for name, x, y, style in (
        ("n", right + n[-1][1] / 2, upper - 6, "middle"),
        ("k", left + k[-1][1] / 2, lower - 6, "middle"),
        ("k", right - 8, upper + k[-1][1] / 2, "end"),
        ("m", left - 8, lower + m[-1][1] / 2, "end"),
    ):
        d.text(x, y, f"{name} = {sizes[name][0]:,}", style)
    return lower + m[-1][1] + 28


def _pieces(size: int, step: int, length: float) -> list[tuple[float, float]]:
    """Start and end of an axis's drawn pieces: to scale, or the first few and the last."""
    count, width = -(-size // step), length * min(step, size) / size
    if count > _FEW and width < _LEAST_PIECE:
        width = length / (_FEW + 1)
        return [*((i * width, (i + 1) * width) for i in range(_FEW - 1)), (length - width, length)]
    return [(i * width, min((i + 1) * width, length)) for i in range(count)]


def _walk(d: Drawing, x: float, y: float, axes: tuple[list[tuple[float, float]], ...], by_row: bool) -> None:
    """Draw the order of the pieces: an arrow per row or column of them."""
    outer, inner = axes if by_row else axes[::-1]
    if len(outer) * len(inner) == 1:
        return
    for begin, end in outer:
        ends = [(inner[0][0] + 3, (begin + end) / 2), (inner[-1][1] - 3, (begin + end) / 2)]
        d.line([(x + a, y + b) if by_row else (x + b, y + a) for a, b in ends], "walk")


def _tiles(
    d: Drawing, p: TilingProblem, plan: TilingPlan, at: tuple[float, float], size: tuple[float, float]
) -> None:
    """Draw the inner tiles of the first piece of C, along axes where they are large enough."""
    (x, y), (height, width) = at, size
    across = height * plan.tile_m / min(plan.partition_m, p.m)
    down = width * plan.tile_n / min(plan.partition_n, p.n)
    for i in range(1, math.ceil(height / across) if across >= 3 else 0):
        d.line([(x, y + i * across), (x + width, y + i * across)], "fine")
    for i in range(1, math.ceil(width / down) if down >= 3 else 0):
        d.line([(x + i * down, y), (x + i * down, y + height)], "fine")


def what_stays(problem: TilingProblem, plan: TilingPlan, name: str) -> str:
    """How much of a matrix stays in its buffer while the other is reused: `all`, `piece` or nothing.

    C, or its piece, stays in the accumulator while K passes.
    """
    p = problem
    if name == "C":
        return "piece" if plan.partition_k < p.k else ""
    size, step, loads, room = p.m, plan.partition_m, plan.loads_a, p.buf_a
    other, other_step = p.n, plan.partition_n
    if name == "B":
        size, step, loads, room, other, other_step = other, other_step, plan.loads_b, p.buf_b, size, step
    if loads > 1 or (other <= other_step and size > step):
        return ""
    depth = p.k * p.elem_bytes
    if size * depth <= room:
        return "all"
    return "piece" if plan.order == ("m" if name == "A" else "n") and step * depth <= room else ""


def _roofline(
    d: Drawing, p: TilingProblem, plan: TilingPlan, predicted: tuple[float, float] | None, top: float
) -> float:
    """Draw the limits of array and memories, and the plan's point; returns the bottom of the drawing."""
    macs, peak, once = p.m * p.n * p.k, float(p.macs_per_cycle), times(p)
    time = times(p, kernel_cuts(p, plan.partition_k))
    loaded, bytes_once = plan.bytes_a + plan.bytes_b, (p.m * p.k + p.pixels) * p.elem_bytes
    rate = loaded * time.unit / max(plan.loads_a * time.load_a, plan.loads_b * time.load_b)
    points = [("this plan", macs / loaded, macs / plan.cycles)]
    if bytes_once < loaded:
        best = macs * once.unit / max(once.gemm, once.load_a, once.load_b)
        points.append(("A and B loaded once", macs / bytes_once, best))
    if predicted is not None and all(math.isfinite(value) and value > 0 for value in predicted):
        name = f"on the machine, {number_text(predicted[0])} cycles"
        points.append((name, macs / loaded, predicted[1] * peak))
    d.text(_RIGHT, top, "Roofline", "heading")
    ridge = peak / rate
    x = LogAxis.around([*(at for _, at, _ in points), ridge / 4, ridge * 4], _RIGHT + 56, _WIDTH - _MARGIN)
    y = LogAxis.around([*(at for _, _, at in points), peak, peak / 16], top + 300, top + 14)
    d.axes(x, y, "MACs per byte loaded", "MACs per cycle")
    low = max(x.low, y.low / rate)
    d.line([(x.at(low), y.at(low * rate)), (x.at(ridge), y.at(peak)), (x.end, y.at(peak))], "roof")
    d.text(x.end, y.at(peak) - 6, f"array's peak {number_text(peak)} MACs/cycle", "end")
    told = []
    for number, (name, across, up) in enumerate(points, 1):
        d.mark(x.at(across), y.at(up), "circle", name)
        d.text(x.at(across) + 10, y.at(up) + 14, str(number))
        told.append(
            f"{number}: {name}: {number_text(across)} MACs/byte, {number_text(up)}/cycle "
            f"({100 * up / peak:.3g} %)"
        )
    share = 100 * plan.bytes_a / loaded
    patches = "" if p.write_b is None else f" (patches are written at {number_text(p.write_b)})"
    told.append(
        "Roof: the array's peak, or what the memories deliver at this plan's mix of bytes: "
        f"{share:.3g} % A at {number_text(p.bw_a)} bytes/cycle and {100 - share:.3g} % B at "
        f"{number_text(p.bw_b)}, side by side {number_text(rate)} bytes/cycle{patches}."
    )
    return _lines(d, _RIGHT, y.start + 58, _WIDTH - _MARGIN - _RIGHT, told) + 14
