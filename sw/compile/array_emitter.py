"""Emits the statements of matrix products and convolutions.

Loads are placed where their tile changes, the product in the innermost loop, and the launch or store after
the loop over K. Every operand is a closed form of the loop variables; passes turn these into cheap code.
"""

from __future__ import annotations

from dataclasses import dataclass

from sw.compile.array import AXIS, Nest
from sw.compile.forms import (
    HALVES,
    INNER,
    Loop,
    both,
    count,
    index,
    larger,
    linear,
    part,
    present,
    size,
    smaller,
)
from sw.compile.launches import TileLaunches
from sw.compile.operands import Tile
from sw.compile.writer import AddressMap, Writer, given, interval, loop
from sw.ir.expression import Const, Expr, Op, apply
from sw.ir.program import Instruction, Region, Statement
from sw.ir.roles import WarpRole
from sw.patches import Axis
from sw.tiling.blocking import Resident

Operands = dict[str, Expr | int]
Given = tuple[tuple[str, Expr], ...]


class ArrayEmitter:
    """Emits a product or convolution as part of a program."""

    def __init__(self, nest: Nest, writer: Writer, launches: TileLaunches | None):
        self.nest, self.writer, self.launches = nest, writer, launches
        self.problem, self.t, self.loops = nest.problem, nest.blocking, nest.loops
        self.depths = {tensor: nest.depth(tensor) for tensor in "abc"}
        self.all = (*nest.loops, *nest.inner)
        self.stored = (*nest.loops[: self.depths["c"]], *nest.inner)

    def body(self, depth: int = 0) -> list[Statement]:
        """The statements of one step inside `depth` loops."""
        body: list[Statement] = [self.load(x) for x in "ab" if self.depths[x] == depth]
        if depth < len(self.loops):
            body.append(loop(self.loops[depth], self.body(depth + 1)))
        else:
            body += self.each_inner(self.multiply())
        if self.depths["c"] == depth:
            body += self.each_inner(self.finish())
        return body

    def each_inner(self, body: list[Statement]) -> list[Statement]:
        """Statements for every inner tile."""
        return [loop(self.nest.inner[0], body)] if self.nest.inner else body

    def load(self, x: str) -> Instruction:
        """Loads a tile into the current half of the buffer."""
        nest, loops = self.nest, self.loops[: self.depths[x]]
        patches = x == "b" and not self.problem.direct
        name, operands, source = self.load_patches(loops) if patches else self.load_rows(x, loops)
        buffer, pitch = nest.buffer(x), nest.pitch(x)
        target = self.turn(x) * (buffer.columns // HALVES)
        columns = interval(target, nest.blocks(x) * pitch)
        return Instruction(
            self.writer.label("LA" if x == "a" else "LB"),
            name,
            (source,),
            (Region(f"buffer_{x}", (columns, interval(0, buffer.lanes))),),
            WarpRole.LOAD_A if x == "a" else WarpRole.LOAD_B,
            operands=given(operands | {"target": target, "load_pitch": pitch}),
        )

    def size(self, x: str, axis: str, loops: tuple[Loop, ...]) -> Expr:
        """Size along an axis of one load of a tensor."""
        return size(loops, axis, getattr(self.nest.extent, axis), self.nest.tile(x, axis))

    def load_rows(self, x: str, loops: tuple[Loop, ...]) -> tuple[str, Operands, Region]:
        """A load of rows of a matrix."""
        view, lanes_first = self.problem.views[x], self.nest.lanes_first(x)
        lanes, depth = self.size(x, AXIS[x], loops), self.size(x, "k", loops)
        outer, inner = (depth, lanes) if lanes_first else (lanes, depth)
        step = view.strides[-2 if lanes_first == (x == "b") else -1]
        walk = AddressMap(loops, self.nest.steps(x), view.offset)
        operands: Operands = {
            "memory": self.writer.address(view.tensor, walk),
            "outer": outer,
            "inner": inner,
            "load_stride": self.writer.home(view.tensor).offset(step),
        }
        source = self.writer.region(view, walk, outer, step, inner)
        return f"load_{x}_t" if lanes_first else f"load_{x}", operands, source

    def load_patches(self, loops: tuple[Loop, ...]) -> tuple[str, Operands, Region]:
        """A load of the patches of a tile of outputs, whose pixels may lie outside the image.

        A load reads at least one pixel per row; a tile without pixels reads no rows. The load counts as
        reading the whole image, because the pixels of a tile over all channels are not a box of rows.
        """
        patches, t, view = self.nest.extent.patches, self.t, self.problem.views["b"]
        assert patches is not None
        pieces = t.out_cols < patches.cols.outputs
        all_rows = patches.rows.outputs if t.resident_b is Resident.WHOLE else t.out_rows
        rows = TileSpan.of(patches.rows, loops, "row" if pieces else "n", all_rows)
        cols = TileSpan.of(patches.cols, loops, "n" if pieces else "", t.out_cols)
        channel, line, _ = view.strides
        pixel = ((rows.first, line), (cols.first, 1))
        start = AddressMap(loops, self.nest.steps("b"), view.offset, pixel)
        home = self.writer.home(view.tensor)
        operands: Operands = {
            "memory": self.writer.address(view.tensor, start),
            "inner": larger(cols.pixels, 1),
            "load_fill": self.problem.zeros[1] & 0xFF,
            "conv_line": home.offset(line),
            "conv_rows": apply(Op.SELECT, apply(Op.GT, cols.pixels, 0), rows.pixels, 0),
            "conv_height": rows.span,
            "conv_width": cols.span,
            "conv_top": rows.padding,
            "conv_left": cols.padding,
            "conv_out_rows": rows.outputs,
            "conv_out_cols": cols.outputs,
        }
        for name, axis in (("h", patches.rows), ("w", patches.cols)):
            operands[f"conv_kernel_{name}"] = axis.kernel
            operands[f"conv_stride_{name}"] = axis.stride
            operands[f"conv_dilation_{name}"] = axis.dilation
        channels = self.nest.tile("b", "k") // patches.kernel
        operands["outer"] = size(loops, "k", patches.channels, channels)
        operands["load_stride"] = home.offset(channel)
        return "load_b_conv", operands, self.writer.whole(view.tensor)

    def parted(self, loops: tuple[Loop, ...]) -> tuple[Expr, Expr, Expr | None]:
        """Rows and columns of the current inner tile, and whether it exists."""
        t, e = self.t, self.nest.extent
        m = size(self.loops, "m", e.m, t.partition_m)
        n = size(self.loops, "n", e.n, t.partition_n)
        if t.tile_n < t.partition_n:
            return m, part(loops, INNER, n, t.tile_n), present(loops, INNER, n, t.tile_n)
        if t.tile_m < t.partition_m:
            return part(loops, INNER, m, t.tile_m), n, present(loops, INNER, m, t.tile_m)
        return m, n, None

    def turn(self, x: str) -> Expr:
        """Which half of a buffer or of the accumulator is in use."""
        return count(self.loops[: self.depths[x]]) % HALVES

    def accumulator(self, loops: tuple[Loop, ...], rows: Expr, columns: Expr) -> tuple[Expr, Region]:
        """First word of the current inner tile, and its region."""
        half = self.nest.config.derived.acc_words // HALVES
        inner = index(loops, INNER)
        if not self.t.single_c:
            word = self.turn("c") * half + linear(loops, {INNER: self.nest.words})
        elif inner is not None and -(-self.t.parts // HALVES) * self.nest.words <= half:
            # Adjacent tiles are in different banks, so that storer and array do not conflict.
            word = inner % HALVES * half + inner // HALVES * self.nest.words
        else:
            word = linear(loops, {INNER: self.nest.words})
        return word, self.writer.accumulator(word, rows * self.pitch_of(columns))

    def pitch_of(self, columns: Expr) -> Expr:
        """Words between the rows of the current inner tile."""
        cols = self.nest.config.cols
        return (columns + (cols - 1)) // cols if self.nest.tight else Const(self.nest.row_words)

    def operand(self, x: str, lanes: Expr, k: Expr) -> tuple[Expr, Region]:
        """First column of the current tile of A or B, and its region."""
        t, buffer, pitch = self.t, self.nest.buffer(x), self.nest.pitch(x)
        partition, tile = (t.partition_m, t.tile_m) if x == "a" else (t.partition_n, t.tile_n)
        moves = {AXIS[x]: partition // buffer.lanes * pitch, "k": t.partition_k}
        if tile < partition:
            moves[INNER] = tile // buffer.lanes * pitch
        moves = {loop.name: moves.get(loop.name, 0) for loop in self.all[self.depths[x] :]}
        first = self.turn(x) * (buffer.columns // HALVES) + linear(self.all, moves)
        return first, self.held(x, first, lanes, k)

    def held(self, x: str, first: Expr, lanes: Expr, k: Expr) -> Region:
        """The region of a buffer that a product reads, starting at a column."""
        buffer, pitch = self.nest.buffer(x), self.nest.pitch(x)
        blocks = (lanes + (buffer.lanes - 1)) // buffer.lanes
        columns = interval(first, (blocks - 1) * pitch + k)
        return Region(f"buffer_{x}", (columns, interval(0, buffer.lanes)))

    def factors(self, a: Expr, b: Expr, word: Expr, k: Expr, rows: Expr, columns: Expr) -> Given:
        """The operands of a product: first columns, first word, and sizes."""
        p = self.problem
        return given(
            {
                **{"a": a, "b": b, "c": word, "k": k, "gemm_m": rows, "gemm_n": columns},
                "gemm_a_pitch": self.nest.pitch("a"),
                "gemm_b_pitch": self.nest.pitch("b"),
                "gemm_zero_a": p.zeros[0] & 0xFF,
                "gemm_zero_b": p.zeros[1] & 0xFF,
                "gemm_signed": p.signed[0] | p.signed[1] << 1,
                "gemm_c_pitch": self.pitch_of(columns),
            }
        )

    def multiply(self) -> list[Statement]:
        """One inner tile: a product in the first step of K, accumulated in later ones."""
        t = self.t
        rows, columns, there = self.parted(self.all)
        k = size(self.loops, "k", self.nest.extent.k, t.partition_k)
        a, region_a = self.operand("a", rows, k)
        b, region_b = self.operand("b", columns, k)
        word, region_c = self.accumulator(self.all, rows, columns)
        operands = self.factors(a, b, word, k, rows, columns)
        reads, writes = (region_a, region_b), (region_c,)

        def gemm(label: str, name: str, reads: tuple[Region, ...], when: Expr | None) -> Instruction:
            here = both(when, there)
            return Instruction(self.writer.label(label), name, reads, writes, WarpRole.GEMM, here, operands)

        step = index(self.loops, "k")
        if step is None:
            return [gemm("G", "gemm", reads, None)]
        first, later = apply(Op.EQ, step, 0), apply(Op.NE, step, 0)
        return [
            gemm("G", "gemm", reads, first),
            gemm("GA", "gemm_acc", (*reads, region_c), later),
        ]

    def finish(self) -> list[Statement]:
        """A launch and its store, or a store of the sums."""
        rows, columns, there = self.parted(self.stored)
        word, region = self.accumulator(self.stored, rows, columns)
        view, moves = self.problem.views["c"], self.problem.moves
        if self.launches is None:
            walk = AddressMap(self.stored, self.nest.steps("c"), view.offset)
            held = word, self.pitch_of(columns)
            return [self.writer.store("store", region, view, walk, rows, columns, *held, there)]
        sums = (word * self.nest.config.cols, region)
        tile = Tile(self.nest.tiles, rows, self.across(columns), count(self.stored) % HALVES, there)
        return self.launches.statements(tile, moves, view, sums)

    def across(self, columns: Expr) -> Expr:
        """The unit in which launches count columns of a tile: image rows, if these have gaps after them."""
        segments, patches, t = self.nest.tiles.segments, self.nest.extent.patches, self.t
        if segments is None:
            return columns
        assert patches is not None
        rows = size(self.loops, "n", patches.rows.outputs, t.out_rows)
        return part(self.stored, INNER, rows, segments.count) if t.tile_n < t.partition_n else rows


@dataclass(frozen=True)
class TileSpan:
    """One axis of a tile of outputs: the outputs, the pixels that they span, and those inside the image.

    `first` is the first pixel inside the image, `pixels` their number, and `padding` the pixels before them.
    """

    outputs: Expr
    span: Expr
    first: Expr
    pixels: Expr
    padding: Expr

    @classmethod
    def of(cls, axis: Axis, loops: tuple[Loop, ...], name: str, tile: int) -> TileSpan:
        """The tile along an axis that the named loop cuts into tiles of `tile` outputs."""
        outputs = size(loops, name, axis.outputs, tile)
        span = outputs * axis.stride + (axis.reach - axis.stride)
        start = linear(loops, {name: tile * axis.stride}) - axis.before
        first = larger(start, 0)
        pixels = larger(smaller(start + span, axis.size) - first, 0)
        return cls(outputs, span, first, pixels, padding=first - start)
