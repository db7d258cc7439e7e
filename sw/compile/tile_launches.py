"""The statements of one tile on the grid: operands from memory, the launch, the result to memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypedDict

from sw.compile.launches import Grid
from sw.compile.operands import Fetch, Segments, Tiles
from sw.compile.writer import Writer
from sw.graph.network import View
from sw.ir.expression import Expr
from sw.ir.program import Access, Region, Statement
from sw.kernels.choose import Chosen
from sw.kernels.indices import Key

#: Elements that a view moves on with the loops over batches, by key: a, b, c, or number of an operand.
Batches = Mapping[int | str, Mapping[str, int]]


@dataclass(frozen=True)
class Launches:
    """What a tile of results takes: loads of operands, a launch, a store."""

    writer: Writer
    grid: Grid
    chosen: Chosen
    fetches: Sequence[Fetch]
    out_base: int

    def statements(
        self,
        tiles: Tiles,
        batches: Batches,
        output: View,
        size: tuple[Expr, Expr],
        turn: Expr,
        there: Expr | None = None,
        sums: tuple[Expr, Region] | None = None,
    ) -> list[Statement]:
        """The statements of the present tile of so many rows and columns (or segments of rows).

        `turn` says which of two places it has. `sums` are index and region of operand 0 in the accumulator.
        """
        writer, kernel = self.writer, self.chosen.elementwise
        rows, columns = size
        segments, pitch = tiles.segments, tiles.pitch("result")
        width = segments.width if segments else tiles.width

        def across(key: int | str, follows: str = "full") -> Expr:
            """Elements of a row, gaps between segments included."""
            if segments is None:
                return columns
            return columns * (segments.apart[key] if follows == "full" else segments.length)

        bytes_ = writer.home(output.tensor).itemsize
        made: list[Statement] = []
        bases: dict[int | str, Expr | int] = {}
        reads: list[Access] = []
        if sums is not None:
            bases[0] = sums[0]
            reads.append(sums[1])
        for fetch in self.fetches:
            batch = batches.get(fetch.key, {})
            elements = across(fetch.key, fetch.follows)
            loads, region, index = fetch.load(writer, tiles, batch, rows, elements, turn, there)
            made += loads
            reads.append(region)
            bases[fetch.key] = index
        half = tiles.rows * pitch * bytes_
        place = turn * half + self.out_base
        bases["result"] = turn * (half // bytes_) + self.out_base // bytes_
        made.append(
            self.grid.launch(
                self.chosen.configured,
                kernel.iterations(rows, width),
                kernel.scalars(bases, width, **gaps(segments)),
                reads,
                (writer.out(place, rows * (pitch * bytes_)),),
                there,
            )
        )
        walk = tiles.walk(output, batches.get("c", {}))
        step = output.strides[-2]
        elements = across("result")
        made.append(
            writer.store_out(
                *(output, walk, rows, step, elements, place, pitch * bytes_, there),
                region=tiles.region(writer, output),
            )
        )
        return made


class Gaps(TypedDict, total=False):
    """What scalars of a launch say about segments."""

    segment: int
    row_gaps: Mapping[Key, Expr | int]
    segment_gaps: Mapping[Key, Expr | int]


def gaps(segments: Segments | None) -> Gaps:
    """The gaps of rows that consist of segments."""
    if segments is None:
        return {}
    return {
        "segment": segments.length,
        "row_gaps": {key: segments.behind(key) for key in segments.pitches},
        "segment_gaps": {key: segments.between(key) for key in segments.apart},
    }
