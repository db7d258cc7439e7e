"""Launches of the CGRA as statements: configurations, operands of tiles, launch, and store of the result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypedDict

from sw.cgra.launcher import UNIT, HeldConfiguration, launch_operands
from sw.compile.operands import Fetch, Segments, Tiles
from sw.compile.writer import CONFIGURATION, AddressMap, ChipSpace, Writer, given, interval
from sw.graph.network import View, whole
from sw.ir.expression import Expr
from sw.ir.program import Access, Instruction, Region, Statement
from sw.ir.roles import WarpRole
from sw.kernels.choose import Chosen
from sw.kernels.configuration import Configured
from sw.kernels.indices import Key
from sw.layout import round_up


@dataclass
class LaunchWriter(HeldConfiguration):
    """Launches of configurations that lie in the scratchpad."""

    writer: Writer
    #: Names of the tensors that hold configurations, by their words.
    stored: Mapping[tuple[int, ...], str]
    places: dict[tuple[int, ...], int] = field(default_factory=dict)

    def load(self, configured: Configured, area: ChipSpace) -> list[Statement]:
        """Bring a configuration into the scratchpad."""
        return self.load_to(configured, area.take(round_up(4 * len(configured.words), UNIT)))

    def load_to(self, configured: Configured, place: int) -> list[Statement]:
        """Bring a configuration to a byte of the scratchpad, a multiple of `UNIT`."""
        words = tuple(configured.words)
        home = self.writer.home(self.stored[words])
        self.places[words] = place
        view = whole(home.tensor)
        return [self.writer.load_c(view, AddressMap((), {}), 1, home.row, home.row, place, home.size)]

    def bring(self, configured: Configured) -> list[Statement]:
        """A launch of no iteration that only brings a configuration, if it is not there."""
        return [] if self.current == configured.words else [self.launch(configured, 0, {}, (), ())]

    def launch(
        self,
        configured: Configured,
        iterations: Expr | int,
        scalars: Mapping[str, Expr | int],
        reads: Sequence[Access],
        writes: Sequence[Access],
        when: Expr | None = None,
    ) -> Instruction:
        """A launch; the configuration is kept where it is there."""
        words, keep = configured.words, self.keeps(configured.words)
        values = (scalars[name] for name in configured.kernel.scalars)
        held = Region(CONFIGURATION, (interval(0, 1),))
        brought = (held,) if keep else (self.writer.scratch(self.places[words], 4 * len(words)),)
        return Instruction(
            self.writer.label("X"),
            "cgra",
            (*reads, *brought),
            (*writes, *(() if keep else (held,))),
            WarpRole.CGRA,
            when,
            given(launch_operands(self.places[words] // UNIT, iterations, values, keep)),
        )


#: Elements that a view moves on with the loops over batches, by key: a, b, c, or number of an operand.
Batches = Mapping[int | str, Mapping[str, int]]


@dataclass(frozen=True)
class TileLaunches:
    """What a tile of results takes: loads of operands, a launch, a store."""

    writer: Writer
    grid: LaunchWriter
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
        made, reads, bases = self.operands(tiles, batches, size, turn, there)
        if sums is not None:
            bases[0] = sums[0]
            reads.insert(0, sums[1])
        itemsize = writer.home(output.tensor).itemsize
        half = tiles.rows * pitch * itemsize
        place = turn * half + self.out_base
        bases["result"] = turn * (half // itemsize) + self.out_base // itemsize
        scalars = kernel.scalars(bases, width, **gaps(segments))
        written = (writer.out(place, rows * (pitch * itemsize)),)
        iterations = kernel.iterations(rows, width)
        made.append(self.grid.launch(self.chosen.configured, iterations, scalars, reads, written, there))
        walk = tiles.walk(output, batches.get("c", {}))
        elements, step = across(segments, "result", columns), output.strides[-2]
        region = tiles.region(writer, output)
        made.append(
            writer.store_out(
                output, walk, rows, step, elements, place, pitch * itemsize, there, region=region
            )
        )
        return made

    def operands(
        self, tiles: Tiles, batches: Batches, size: tuple[Expr, Expr], turn: Expr, there: Expr | None
    ) -> tuple[list[Statement], list[Access], dict[int | str, Expr | int]]:
        """The loads of a tile, what the launch reads of them, and the first element's index of each."""
        made: list[Statement] = []
        reads: list[Access] = []
        bases: dict[int | str, Expr | int] = {}
        for fetch in self.fetches:
            batch = batches.get(fetch.key, {})
            elements = across(tiles.segments, fetch.key, size[1], fetch.follows)
            loads, region, bases[fetch.key] = fetch.load(
                self.writer, tiles, batch, size[0], elements, turn, there
            )
            made += loads
            reads.append(region)
        return made, reads, bases


def across(segments: Segments | None, key: int | str, columns: Expr, follows: str = "full") -> Expr:
    """Elements of a row of an operand or of the result, gaps between segments included."""
    if segments is None:
        return columns
    return columns * (segments.apart[key] if follows == "full" else segments.length)


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
