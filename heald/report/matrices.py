"""The matrices of a product in the layout of a multiplication, cut into the pieces of a plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from heald.report.page import (
    COLOURS,
    GREY,
    INK,
    LEFT_END,
    LINE,
    MARGIN,
    SMALL,
    Sheet,
    bytes_text,
    number_text,
    text_width,
    times_text,
    wrap,
)
from sw.tiling.cost import kernel_cuts
from sw.tiling.plan import TilingPlan
from sw.tiling.problem import TilingProblem

#: Room for B above C and A beside it, and for what is written between.
_ROOM_ACROSS, _ROOM_DOWN, _GAP_ACROSS, _GAP_DOWN = 464.0, 400.0, 76.0, 46.0
#: Pieces of an axis that are drawn all, and the least pixels of one.
_MOST_PIECES, _LEAST_PIECE = 24, 9.0
#: The highlighted piece of C: its strong colour over its light one.
PIECE_OF_C = "#e0b17b"


@dataclass(frozen=True)
class Piece:
    """A piece of an axis and its pixels."""

    index: int
    start: float
    end: float

    @property
    def middle(self) -> float:
        """Half way from start to end."""
        return (self.start + self.end) / 2


@dataclass(frozen=True)
class Edge:
    """A dimension cut into `count` pieces, as drawn: all of them, or some with a gap before the last."""

    count: int
    pieces: tuple[Piece, ...]

    @classmethod
    def of(cls, size: int, step: int, length: float) -> Edge:
        """The pieces of `step` elements each, the last what is left, on so many pixels."""
        step = min(step, size)
        count = -(-size // step)
        scale = length / size
        if count == 1 or (count <= _MOST_PIECES and step * scale >= _LEAST_PIECE):
            ends = [*(i * step * scale for i in range(count)), length]
            return cls(count, tuple(Piece(i, ends[i], ends[i + 1]) for i in range(count)))
        shown = min(max(int(length / 18) - 1, 3), 10, count)
        last = max((size - (count - 1) * step) / step, 0.4)
        gap = float(shown < count)
        slot = length / (shown - 1 + gap + last)
        first = tuple(Piece(i, i * slot, (i + 1) * slot) for i in range(shown - 1))
        return cls(count, (*first, Piece(count - 1, length - last * slot, length)))

    @property
    def gap(self) -> tuple[float, float] | None:
        """From where to where pieces are left out."""
        if len(self.pieces) == self.count:
            return None
        return self.pieces[-2].end, self.pieces[-1].start

    @property
    def length(self) -> float:
        """Pixels of all."""
        return self.pieces[-1].end

    @property
    def runs(self) -> list[tuple[float, float]]:
        """From where to where pieces lie side by side."""
        if self.gap is None:
            return [(0, self.length)]
        return [(0, self.gap[0]), (self.gap[1], self.length)]

    @property
    def edges(self) -> list[float]:
        """Where pieces begin and end."""
        return sorted({edge for piece in self.pieces for edge in (piece.start, piece.end)})


class Matrices:
    """A, B above and C beside it, as one multiplies by hand; `bottom` is where the drawing ends."""

    def __init__(
        self,
        sheet: Sheet,
        problem: TilingProblem,
        plan: TilingPlan,
        top: float,
        stays: Mapping[str, str] | None = None,
    ) -> None:
        self.sheet, self.problem, self.plan = sheet, problem, plan
        self.stays = {name: what_stays(problem, plan, name) for name in "ABC"} | dict(stays or {})
        sizes = {"m": problem.m, "k": problem.k, "n": problem.n}
        steps = {"m": plan.partition_m, "k": plan.partition_k, "n": plan.partition_n}
        sides, stretched = _sides(sizes, {axis: -(-sizes[axis] // steps[axis]) for axis in sizes})
        self.m, self.k, self.n = (Edge.of(sizes[axis], steps[axis], sides[axis]) for axis in "mkn")
        split = self.k.count > 1
        self.left = MARGIN + 46
        self.right = self.left + self.k.length + _GAP_ACROSS
        # The pieces' depth is written between B and its height.
        side = self.right - (64 if split else 14)

        above = self._about("B", LEFT_END - self.right)
        y = sheet.lines(self.right, self._name("B", self.right, top) + LINE, above)
        self.upper = y + 34
        self.lower = self.upper + self.k.length + _GAP_DOWN
        beside = self._about("A", side - 24 - MARGIN)
        y = self.lower - 32 - len(beside) * LINE
        sheet.lines(MARGIN, self._name("A", MARGIN, y) + LINE, beside)

        self._matrix("A", self.left, self.lower, self.m, self.k)
        self._matrix("B", self.right, self.upper, self.k, self.n)
        self._matrix("C", self.right, self.lower, self.m, self.n)
        self._tiles()
        walk(sheet, self.right, self.lower, self.m, self.n, plan.order == "m")
        if split:
            self._along_k()
        self._measures(sizes, steps, side)
        self.bottom = self._remarks(stretched)

    def _name(self, name: str, x: float, y: float) -> float:
        p = self.problem
        rows, columns = {"A": (p.m, p.k), "B": (p.k, p.n), "C": (p.m, p.n)}[name]
        what = {"A": "weights, ", "B": "patches, ", "C": ""}[name] if p.conv is not None else ""
        self.sheet.text(
            x, y, f"{name}: {what}{rows:,} × {columns:,}", 13, color=COLOURS[name][1], weight="bold"
        )
        return y

    def _about(self, name: str, width: float) -> list[str]:
        """How often a matrix is loaded and what of it stays."""
        p, plan = self.problem, self.plan
        loads, loaded = (plan.loads_a, plan.bytes_a) if name == "A" else (plan.loads_b, plan.bytes_b)
        text = f"loaded {times_text(loads)}, {bytes_text(loaded)}"
        if name == "B" and p.conv is not None:
            cuts = kernel_cuts(p, plan.partition_k)
            text = f"pixels {text}" + (f" (each read {times_text(cuts)} in a load)" if cuts > 1 else "")
        kept = self.stays[name]
        step, what = (plan.partition_m, "rows") if name == "A" else (plan.partition_n, "columns")
        if kept == "all":
            stays = "all of it stays in its buffer (hatched)"
        elif kept:
            stays = f"{step:,} {what if step > 1 else what[:-1]} at a time stay in the buffer (hatched)"
        else:
            stays = "streams through its buffer"
        return [*wrap(text, width), *wrap(stays, width)]

    def _matrix(self, name: str, x: float, y: float, rows: Edge, columns: Edge) -> None:
        """A matrix with its cuts, its first piece strong and what stays of it hatched."""
        light, strong = COLOURS[name]
        sheet, first_row, first_column = self.sheet, rows.pieces[0], columns.pieces[0]
        for low, high in rows.runs:
            for start, end in columns.runs:
                sheet.box(x + start, y + low, end - start, high - low, facecolor=light)
        kept = self.stays[name]
        height, width = rows.length, columns.length
        if name == "C" or (name == "A" and kept == "piece"):
            height = first_row.end
        if name == "C" or (name == "B" and kept == "piece"):
            width = first_column.end
        if kept:
            sheet.box(x, y, width, height, facecolor="none", edgecolor=strong, hatch="////")
        sheet.box(x, y, first_column.end, first_row.end, facecolor=strong, alpha=0.4)
        sheet.strokes(cut_lines(x, y, rows, columns), strong, 0.6)
        sheet.box(x, y, first_column.end, first_row.end, facecolor="none", edgecolor=strong, linewidth=1.5)
        dots(sheet, x, y, rows, columns, strong)

    def _tiles(self) -> None:
        """The inner tiles of the first piece of C, along axes where they are large enough to be seen."""
        p, plan = self.problem, self.plan
        height, width = self.m.pieces[0].end, self.n.pieces[0].end
        strokes = []
        for y in ticks(min(plan.partition_m, p.m), plan.tile_m, height):
            strokes.append([(self.right, self.lower + y), (self.right + width, self.lower + y)])
        for x in ticks(min(plan.partition_n, p.n), plan.tile_n, width):
            strokes.append([(self.right + x, self.lower), (self.right + x, self.lower + height)])
        self.sheet.strokes(strokes, COLOURS["C"][1], 0.35)

    def _along_k(self) -> None:
        """Arrows along K, for the pieces that make the first piece of C."""
        y, x = self.lower + self.m.pieces[0].middle, self.right + self.n.pieces[0].middle
        end = self.k.length
        self.sheet.arrow((self.left + 3, y), (self.left + end - 2, y), INK)
        self.sheet.arrow((x, self.upper + 3), (x, self.upper + end - 2), INK)

    def _measures(self, sizes: dict[str, int], steps: dict[str, int], side: float) -> None:
        """Sizes of the matrices as arrows with two heads, of a piece as brackets."""
        sheet, left, right, upper, lower = self.sheet, self.left, self.right, self.upper, self.lower
        middle = {"ha": "center", "va": "center", "rotation": 90}
        double = {"arrowstyle": "<|-|>", "mutation_scale": 6, "linewidth": 0.7}
        for axis, start, end in (
            ("n", (right, upper - 9), (right + self.n.length, upper - 9)),
            ("k", (left, lower - 9), (left + self.k.length, lower - 9)),
            ("k", (side, upper), (side, upper + self.k.length)),
            ("m", (left - 12, lower), (left - 12, lower + self.m.length)),
        ):
            sheet.arrow(start, end, GREY, **double)
            x, y, text = (start[0] + end[0]) / 2, (start[1] + end[1]) / 2, f"{axis} = {sizes[axis]:,}"
            if start[1] == end[1]:
                sheet.text(x, y - 5, text, SMALL, ha="center")
            else:
                sheet.text(x - 10, y, text, SMALL, **middle)
        for axis, cut, x, y, across in (
            ("m", self.m, right - 7, lower, False),
            ("n", self.n, right, lower - _GAP_DOWN + 9, True),
            ("k", self.k, left, lower + self.m.length + 8, True),
            ("k", self.k, right - 7, upper, False),
        ):
            if cut.count == 1:
                continue
            far, text = cut.pieces[0].end, f"{steps[axis]:,}"
            if across:
                sheet.strokes([[(x, y - 4), (x, y), (x + far, y), (x + far, y - 4)]], INK)
                # Narrow pieces have their size beside them.
                at = x + far / 2 if far > text_width(text, SMALL) else x
                sheet.text(at, y + 13, text, SMALL, ha="center" if at > x else "left")
            else:
                sheet.strokes([[(x + 4, y), (x, y), (x, y + far), (x + 4, y + far)]], INK)
                sheet.text(x - 4, y + max(far / 2, 5), text, SMALL, ha="right", va="center")

    def _remarks(self, stretched: dict[str, float]) -> float:
        """What is written below C; returns where it ends."""
        p, plan, m, n = self.problem, self.plan, self.m, self.n
        rows, columns, pieces = min(plan.partition_m, p.m), min(plan.partition_n, p.n), m.count * n.count
        way, which = "row by row" if plan.order == "m" else "column by column", "a piece"
        notes = [f"{pieces:,} partitions of {rows:,} × {columns:,}, {way}"]
        if pieces == 1:
            notes, which = ["whole, in one partition"], "all of it"
        if self.k.count > 1:
            notes.append(
                f"{which} stays in the accumulator (hatched) while K passes in {self.k.count:,} parts"
            )
        else:
            notes.append("K whole: the array accumulates by itself")
        y = self.lower + m.length + (30 if last_is_outside(m, n) else 22)
        y = self._name("C", self.right, y) + LINE
        width = LEFT_END - self.right
        y = self.sheet.lines(self.right, y, [line for note in notes for line in wrap(note, width)])
        remarks = []
        few = [
            f"{len(a.pieces):,} of {a.count:,} along {name}"
            for name, a in zip("mkn", (m, self.k, n), strict=True)
            if a.gap
        ]
        if few:
            remarks.append(f"Drawn are {', '.join(few)} (…).")
        if stretched:
            parts = [f"{axis} is {number_text(round(factor, 1))} times" for axis, factor in stretched.items()]
            remarks.append(f"Not to scale: {' and '.join(parts)} as long as it should be drawn.")
        lines = [line for remark in remarks for line in wrap(remark, LEFT_END - MARGIN, SMALL)]
        y = max(y, self.lower + m.length + 26)
        return self.sheet.lines(MARGIN, y + 24, lines, SMALL, color=GREY, style="italic") if lines else y


def walk(sheet: Sheet, x: float, y: float, rows: Edge, columns: Edge, by_row: bool) -> None:
    """The order in which pieces are worked on: an arrow per row or column, numbers at both ends."""
    if rows.count * columns.count == 1:
        return
    # A single row or column is one arrow, whichever loop is outside.
    if (columns if by_row else rows).count == 1:
        by_row = not by_row
    outer, inner = (rows, columns) if by_row else (columns, rows)

    def point(along: float, across: float) -> tuple[float, float]:
        return (x + along, y + across) if by_row else (x + across, y + along)

    first, last = inner.pieces[0].start + 3, inner.pieces[-1].end - 2
    back = [
        [point(last, a.middle), point(first, b.middle)]
        for a, b in zip(outer.pieces, outer.pieces[1:], strict=False)
    ]
    sheet.strokes(back, GREY, 0.5, linestyle=(0, (3, 3)))
    for piece in outer.pieces:
        sheet.arrow(point(first, piece.middle), point(last, piece.middle), INK)
    shown = [(a, b) for a in outer.pieces[:3] for b in inner.pieces[:3]]
    numbers = {a.index * inner.count + b.index + 1: (a, b) for a, b in shown}
    total = outer.count * inner.count
    numbers = {number: pair for number, pair in numbers.items() if number <= 3 and number < total}
    numbers[total] = outer.pieces[-1], inner.pieces[-1]
    for number, (a, b) in numbers.items():
        if holds(number, *((b, a) if by_row else (a, b))):
            where = point(b.middle, a.middle)
            back_ground = {
                "boxstyle": "round,pad=0.12",
                "facecolor": "white",
                "edgecolor": "none",
                "alpha": 0.85,
            }
            sheet.text(*where, f"{number:,}", SMALL, ha="center", va="center", bbox=back_ground)
        elif number == total:
            where = x + columns.length, y + rows.length + 13
            sheet.text(*where, f"last: {number:,}", SMALL, ha="right")


def holds(number: int, column: Piece, row: Piece) -> bool:
    """Whether a number has room in a piece, with a little of the arrow beside it."""
    return column.end - column.start > text_width(f"{number:,}", SMALL) + 8 and row.end - row.start > 16


def last_is_outside(rows: Edge, columns: Edge) -> bool:
    """Whether the number of the last piece stands beside it."""
    total = rows.count * columns.count
    return total > 1 and not holds(total, columns.pieces[-1], rows.pieces[-1])


def cut_lines(x: float, y: float, rows: Edge, columns: Edge) -> list[list[tuple[float, float]]]:
    """The lines between pieces and around them."""
    across = [[(x + a, y + e), (x + b, y + e)] for e in rows.edges for a, b in columns.runs]
    return across + [[(x + e, y + a), (x + e, y + b)] for e in columns.edges for a, b in rows.runs]


def dots(sheet: Sheet, x: float, y: float, rows: Edge, columns: Edge, color: str) -> None:
    """Three dots where pieces are left out."""
    how: dict[str, Any] = {"ha": "center", "va": "center", "color": color}
    if columns.gap:
        for a, b in rows.runs:
            sheet.text(x + sum(columns.gap) / 2, y + (a + b) / 2, "⋯", **how)
    if rows.gap:
        for a, b in columns.runs:
            sheet.text(x + (a + b) / 2, y + sum(rows.gap) / 2, "⋮", **how)


def ticks(size: int, step: int, length: float) -> list[float]:
    """Pixels of the inner cuts of a piece; none if they would lie too close."""
    spacing = length * step / size
    return [i * spacing for i in range(1, -(-size // step))] if spacing >= 3 else []


def _sides(sizes: dict[str, int], counts: dict[str, int]) -> tuple[dict[str, float], dict[str, float]]:
    """Pixels of m, k and n, of one scale but where too short to be read, and how much longer those are."""
    least = {axis: min(70.0 + 20 * (counts[axis] - 1), 130.0) for axis in sizes}
    least["k"] = max(least["k"], 120.0)

    def at(scale: float) -> dict[str, float]:
        return {axis: max(least[axis], sizes[axis] * scale) for axis in sizes}

    low, high = 0.0, _ROOM_ACROSS
    for _ in range(80):
        scale = (low + high) / 2
        sides = at(scale)
        fits = sides["k"] + sides["n"] <= _ROOM_ACROSS and sides["k"] + sides["m"] <= _ROOM_DOWN
        low, high = (scale, high) if fits else (low, scale)
    factors = {axis: side / (sizes[axis] * low) for axis, side in at(low).items()}
    return at(low), {axis: factor for axis, factor in factors.items() if factor > 1.05}


def what_stays(problem: TilingProblem, plan: TilingPlan, name: str) -> str:
    """What of a matrix stays in its buffer while the other is used again: `all`, `piece` or nothing.

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
