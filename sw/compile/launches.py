"""Statements of CGRA launches: loads of the bitstream and the operands, launch, store of the result."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sw.cgra.launcher import UNIT, HeldConfiguration, launch_operands
from sw.compile.operands import Fetch, Segments, Tile
from sw.compile.writer import CONFIGURATION, AddressMap, ChipSpace, Writer, given, interval
from sw.graph.network import View, whole
from sw.ir.expression import Expr
from sw.ir.program import Access, Instruction, Region, Statement
from sw.ir.roles import WarpRole
from sw.kernels.choose import Chosen
from sw.kernels.configuration import Configured
from sw.layout import round_up


@dataclass
class LaunchWriter(HeldConfiguration):
    """Launches of configurations in the scratchpad."""

    writer: Writer
    #: Names of the tensors that hold configurations, by their words.
    stored: Mapping[tuple[int, ...], str]
    places: dict[tuple[int, ...], int] = field(default_factory=dict)

    def load(self, configured: Configured, area: ChipSpace) -> list[Statement]:
        """Loads a configuration into the scratchpad."""
        return self.load_to(configured, area.take(round_up(4 * len(configured.words), UNIT)))

    def load_to(self, configured: Configured, place: int) -> list[Statement]:
        """Loads a configuration to a byte address of the scratchpad, a multiple of `UNIT`."""
        words = tuple(configured.words)
        home = self.writer.home(self.stored[words])
        self.places[words] = place
        view = whole(home.tensor)
        return [self.writer.load_scratch(view, AddressMap((), {}), 1, home.row, home.row, place, home.size)]

    def bring(self, configured: Configured) -> list[Statement]:
        """A launch without iterations that only loads a configuration, if it is not loaded already."""
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
        """A launch; it keeps the current configuration if that is the right one."""
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


#: Strides of views in the batch loops, in elements, by key: a, b, c, or an operand's number.
Batches = Mapping[int | str, Mapping[str, int]]


@dataclass(frozen=True)
class TileLaunches:
    """The statements for a tile of results: loads of operands, a launch, a store."""

    launcher: LaunchWriter
    chosen: Chosen
    fetches: Sequence[Fetch]
    out_base: int

    def statements(
        self, tile: Tile, batches: Batches, output: View, sums: tuple[Expr, Region] | None = None
    ) -> list[Statement]:
        """The statements of the current tile; its columns may count segments of rows.

        `sums` are index and region of operand 0 in the accumulator.
        """
        writer, tiles = self.launcher.writer, tile.tiles
        itemsize, pitch = writer.home(output.tensor).itemsize, tiles.pitch("result")
        made, place = self.launch(tile, batches, itemsize, sums)
        walk, step = tiles.walk(output, batches.get("c", {})), output.strides[-2]
        columns = across(tiles.segments, "result", tile.columns)
        stored = (tile.rows, step, columns, place, pitch * itemsize, tile.there)
        made.append(writer.store_out(output, walk, *stored, region=tiles.region(writer, output)))
        return made

    def launch(
        self, tile: Tile, batches: Batches, itemsize: int, sums: tuple[Expr, Region] | None = None
    ) -> tuple[list[Statement], Expr]:
        """The loads and launch of the current tile, and the address of its results in the output buffer."""
        writer, kernel, tiles, there = self.launcher.writer, self.chosen.elementwise, tile.tiles, tile.there
        segments, pitch = tiles.segments, tiles.pitch("result")
        width = segments.width if segments else tiles.width
        made: list[Statement] = []
        reads: list[Access] = []
        bases: dict[int | str, Expr | int] = {}
        for fetch in self.fetches:
            columns = across(segments, fetch.key, tile.columns, fetch.access.follows)
            own, batch = dataclasses.replace(tile, columns=columns), batches.get(fetch.key, {})
            loads, region, bases[fetch.key] = fetch.load(writer, own, batch)
            made += loads
            reads.append(region)
        if sums is not None:
            bases[0] = sums[0]
            reads.insert(0, sums[1])
        half = tiles.rows * pitch * itemsize
        place = tile.turn * half + self.out_base
        bases["result"] = tile.turn * (half // itemsize) + self.out_base // itemsize
        turned = {k: 1 - width * a.step for k, a in enumerate(kernel.operands) if a.turned}
        gaps = segments.gaps if segments else {"row_gaps": turned}
        scalars = kernel.scalars(bases, width, **gaps)
        written = (writer.out(place, tile.rows * (pitch * itemsize)),)
        iterations = kernel.iterations(tile.rows, width)
        made.append(self.launcher.launch(self.chosen.configured, iterations, scalars, reads, written, there))
        return made, place


def across(segments: Segments | None, key: int | str, columns: Expr, follows: str = "full") -> Expr:
    """Elements per row of an operand or of the result, including gaps between segments."""
    if segments is None:
        return columns
    return columns * (segments.apart[key] if follows == "full" else segments.length)
