"""Emits matrix products and convolutions.

Loads stand where their tile changes, the product in the innermost loop, launch or store behind the loop
over K.
Every operand is a closed form of the loop variables; making cheap code of it is the business of the passes.
"""

from __future__ import annotations

from collections.abc import Mapping

from sw.arrangement import HALVES, INNER, Loop, Nest
from sw.compile.memory import Home
from sw.compile.products import Shape, tiles_of
from sw.compile.tile_launches import Batches, Launches
from sw.compile.writer import Walk, Writer, given, interval, loop
from sw.convolution import Convolution
from sw.graph.network import View
from sw.ir.expression import Const, Expr, Op, apply
from sw.ir.program import Instruction, Interval, Region, Statement
from sw.ir.roles import WarpRole
from sw.tiled.forms import both, count, index, linear, part, present, size, turns
from sw.tiled.patches import cut, patch_load
from sw.tiling.blocking import Resident

Operands = dict[str, Expr]
_AXIS = {"a": "m", "b": "n"}


class ProductEmitter:
    """Emits a product as part of a program; what a convolution does otherwise are methods."""

    def __init__(
        self,
        plan: Nest,
        writer: Writer,
        views: Mapping[str, View],
        batches: Batches,
        shape: Shape,
        launches: Launches | None = None,
    ):
        self.plan, self.writer, self.views, self.batches, self.shape = plan, writer, views, batches, shape
        self.launches = launches
        self.tiles = tiles_of(plan, shape)
        self.t, self.loops = plan.blocking, plan.loops
        self.depths = {tensor: plan.depth(tensor) for tensor in "abc"}
        self.inner = (Loop(INNER, self.t.parts),) if self.t.parts > 1 else ()
        self.all = (*plan.loops, *self.inner)
        self.stored = (*plan.loops[: self.depths["c"]], *self.inner)

    def body(self) -> list[Statement]:
        """All of it."""
        return self.step(0)

    def step(self, depth: int) -> list[Statement]:
        """What one step inside `depth` loops does."""
        body: list[Statement] = []
        for x in "ab":
            if self.depths[x] == depth:
                body.append(self.load(x))
        if depth < len(self.loops):
            body.append(loop(self.loops[depth], self.step(depth + 1)))
        elif self.inner:
            body.append(loop(self.inner[0], self.multiply()))
        else:
            body += self.multiply()
        if self.depths["c"] == depth:
            body += [loop(self.inner[0], self.finish())] if self.inner else self.finish()
        return body

    # Loads

    def load(self, x: str) -> Instruction:
        """Loading the tile into the half of the buffer that has its turn."""
        loops = self.loops[: self.depths[x]]
        patches = x == "b" and self.plan.extent.patches is not None
        name, operands, box = self.load_patches(loops) if patches else self.load_rows(x, loops)
        buffer = self.plan.config.derived.buffer_a if x == "a" else self.plan.config.derived.buffer_b
        target = turns(loops, HALVES, buffer.columns // HALVES)
        place = Region(
            f"buffer_{x}",
            (
                interval(target, self.blocks(x, self.plan.tile(x, _AXIS[x])) * self.plan.pitch(x)),
                interval(Const(0), buffer.lanes),
            ),
        )
        operands |= {"target": target, "load_pitch": Const(self.plan.pitch(x))}
        return Instruction(
            self.writer.label("LA" if x == "a" else "LB"),
            name,
            (box,),
            (place,),
            WarpRole.LOAD_A if x == "a" else WarpRole.LOAD_B,
            operands=tuple(operands.items()),
        )

    def blocks(self, x: str, tile: int) -> int:
        """Blocks of lanes of a tile of A or B."""
        shape = self.plan.config.derived.buffer_a if x == "a" else self.plan.config.derived.buffer_b
        whole: int = getattr(self.plan.extent, _AXIS[x])
        return -(-min(tile, whole) // shape.lanes)

    def size(self, x: str, axis: str, loops: tuple[Loop, ...]) -> Expr:
        """Size along an axis of what is loaded of a tensor."""
        return size(loops, axis, getattr(self.plan.extent, axis), self.plan.tile(x, axis))

    def load_rows(self, x: str, loops: tuple[Loop, ...]) -> tuple[str, Operands, Region]:
        """A load of rows of a matrix."""
        place, lanes_first = self.plan.places[x], self.plan.lanes_first(x)
        steps = self.plan.steps[x]
        lanes, depth = self.size(x, _AXIS[x], loops), self.size(x, "k", loops)
        outer, inner = (depth, lanes) if lanes_first else (lanes, depth)
        operands: Operands = {
            "memory": linear(loops, steps, place.address),
            "outer": outer,
            "inner": inner,
            "load_stride": Const(place.pitch),
        }
        name = f"load_{x}_t" if lanes_first else f"load_{x}"
        return name, operands, self.rows_of(x, loops, outer, inner)

    def rows_of(self, x: str, loops: tuple[Loop, ...], outer: Expr, inner: Expr) -> Region:
        """Rows of an operand's tensor."""
        view = self.views[x]
        home = self.writer.home(view.tensor)
        steps = {n: _elements(home, step) for n, step in self.plan.steps[x].items()}
        step = _elements(home, self.plan.places[x].pitch)
        return self.writer.region(view, Walk(loops, steps, view.offset), outer, step, inner)

    def load_patches(self, loops: tuple[Loop, ...]) -> tuple[str, Operands, Region]:
        """A load of the patches of a tile of outputs."""
        problem, place, t = self.plan.problem, self.plan.places["b"], self.t
        assert isinstance(problem, Convolution)
        pieces = t.out_cols < problem.cols.outputs
        whole = t.resident_b is Resident.WHOLE
        rows = cut(
            problem.rows, loops, "row" if pieces else "n", problem.rows.outputs if whole else t.out_rows
        )
        cols = cut(problem.cols, loops, "n" if pieces else "", t.out_cols)
        channels = self.plan.tile("b", "k") // problem.patches.kernel
        depth = size(loops, "k", problem.patches.channels, channels)
        moves = {n: step for n, step in self.plan.steps["b"].items() if n in ("group", "image", "k")}
        load = patch_load(problem, linear(loops, moves, place.address), place.pitch, rows, cols)
        first = linear(loops, {n: step // place.matrix_bytes for n, step in moves.items()})
        operands = load.operands | {"outer": depth, "load_stride": Const(place.matrix_bytes)}
        return "load_b_conv", operands, self.pixels(first, depth, load.pixels)

    def pixels(self, first: Expr, channels: Expr, box: tuple[Interval, Interval]) -> Region:
        """Images count as read whole: what a tile reads of all channels is no box of rows."""
        return self.writer.whole(self.views["b"].tensor)

    # The product

    def parted(self, loops: tuple[Loop, ...]) -> tuple[Expr, Expr, Expr | None]:
        """Rows and columns of the present inner tile, and whether it is there."""
        t, e = self.t, self.plan.extent
        m = size(self.loops, "m", e.m, t.partition_m)
        n = size(self.loops, "n", e.n, t.partition_n)
        if t.tile_n < t.partition_n:
            return m, part(loops, INNER, n, t.tile_n), present(loops, INNER, n, t.tile_n)
        if t.tile_m < t.partition_m:
            return part(loops, INNER, m, t.tile_m), n, present(loops, INNER, m, t.tile_m)
        return m, n, None

    def turn(self, x: str) -> Expr:
        """Which place of a buffer or of the accumulator has its turn."""
        return count(self.loops[: self.depths[x]]) % HALVES

    def accumulator(self, loops: tuple[Loop, ...], rows: Expr, columns: Expr) -> tuple[Expr, Region]:
        """First word of the present inner tile, and its region."""
        half = self.plan.config.derived.acc_words // HALVES
        inner = index(loops, INNER)
        if not self.t.single_c:
            word = self.turn("c") * half + linear(loops, {INNER: self.shape.words} if self.inner else {})
        elif inner is not None and -(-self.t.parts // HALVES) * self.shape.words <= half:
            # Neighbours lie in different banks, so that storer and array are not in each other's way.
            word = inner % HALVES * half + inner // HALVES * self.shape.words
        else:
            word = linear(loops, {INNER: self.shape.words} if self.inner else {})
        return word, self.writer.accumulator(word, rows * self.pitch_of(columns))

    def pitch_of(self, columns: Expr) -> Expr:
        """Words between the rows of the present inner tile."""
        cols = self.plan.config.cols
        return (columns + (cols - 1)) // cols if self.shape.tight else Const(self.shape.pitch)

    def operand(self, x: str, lanes: Expr, k: Expr) -> tuple[Expr, Region]:
        """First column of the present tile of A or B, and its region."""
        t, depth = self.t, self.depths[x]
        d = self.plan.config.derived
        buffer = d.buffer_a if x == "a" else d.buffer_b
        pitch = self.plan.pitch(x)
        partition, tile = (t.partition_m, t.tile_m) if x == "a" else (t.partition_n, t.tile_n)
        moves = {_AXIS[x]: partition // buffer.lanes * pitch, "k": t.partition_k}
        if tile < partition:
            moves[INNER] = tile // buffer.lanes * pitch
        moves = {loop.name: moves.get(loop.name, 0) for loop in self.all[depth:]}
        first = self.turn(x) * (buffer.columns // HALVES) + linear(self.all, moves)
        blocks = (lanes + (buffer.lanes - 1)) // buffer.lanes
        columns = interval(first, (blocks - 1) * pitch + k)
        return first, Region(f"buffer_{x}", (columns, interval(Const(0), buffer.lanes)))

    def multiply(self) -> list[Statement]:
        """One inner tile: a product with the first step of K, added to with later ones."""
        p, t = self.plan.problem, self.t
        rows, columns, there = self.parted(self.all)
        k = size(self.loops, "k", self.plan.extent.k, t.partition_k)
        a, region_a = self.operand("a", rows, k)
        b, region_b = self.operand("b", columns, k)
        word, region_c = self.accumulator(self.all, rows, columns)
        operands: Operands = {"a": a, "b": b, "c": word, "k": k, "gemm_m": rows, "gemm_n": columns}
        constants = {
            "gemm_a_pitch": self.plan.pitch("a"),
            "gemm_b_pitch": self.plan.pitch("b"),
            "gemm_zero_a": p.zero_a & 0xFF,
            "gemm_zero_b": p.zero_b & 0xFF,
            "gemm_signed": (p.type_a == "int8") | (p.type_b == "int8") << 1,
        }
        operands |= {n: Const(value) for n, value in constants.items()}
        operands["gemm_c_pitch"] = self.pitch_of(columns)
        steps = index(self.loops, "k")
        first = later = None
        if steps is not None:
            first, later = apply(Op.EQ, steps, 0), apply(Op.NE, steps, 0)
        rest = tuple(operands.items())
        reads, writes = (region_a, region_b), (region_c,)
        made: list[Statement] = [
            Instruction(
                self.writer.label("G"), "gemm", reads, writes, WarpRole.GEMM, both(first, there), rest
            )
        ]
        if later is not None:
            when = both(later, there)
            made.append(
                Instruction(
                    self.writer.label("GA"), "gemm_acc", (*reads, region_c), writes, WarpRole.GEMM, when, rest
                )
            )
        return made

    # Results

    def walk(self, key: int | str, view: View) -> Walk:
        """Where the present inner tile starts in a view [..., m, n]."""
        return self.tiles.walk(view, self.batches.get(key, {}))

    def moves(self, view: View) -> dict[str, int]:
        """Elements of the result that every loop moves on."""
        t, (row, column) = self.t, view.strides[-2:]
        moved = dict(self.batches.get("c", {}))
        own = {"m": t.partition_m * row, "n": t.partition_n * column}
        own[INNER] = t.tile_n * column if t.tile_n < t.partition_n else t.tile_m * row
        for name, step in own.items():
            moved[name] = moved.get(name, 0) + step
        return moved

    def across(self, columns: Expr) -> Expr:
        """What launches count the columns of the present inner tile in."""
        return columns

    def finish(self) -> list[Statement]:
        """A launch and its store, or a store of the sums."""
        rows, columns, there = self.parted(self.stored)
        word, region = self.accumulator(self.stored, rows, columns)
        if self.launches is not None:
            sums = (word * self.plan.config.cols, region)
            return self.launches.statements(
                self.tiles,
                self.batches,
                self.views["c"],
                (rows, self.across(columns)),
                count(self.stored) % HALVES,
                there,
                sums,
            )
        view = self.views["c"]
        home = self.writer.home(view.tensor)
        walk = Walk(self.stored, self.moves(view), view.offset)
        target = self.writer.region(view, walk, rows, view.strides[-2], columns)
        operands: dict[str, Expr | int] = {
            "memory": self.writer.address(view.tensor, walk),
            "source": word,
            "rows": rows,
            "bytes": columns * home.itemsize,
            "store_stride": home.offset(view.strides[-2]),
            "store_pitch": self.pitch_of(columns),
        }
        writes = self.writer.stored(view.tensor, target)
        return [
            Instruction(
                self.writer.label("S"), "store", (region,), writes, WarpRole.STORE, there, given(operands)
            )
        ]


def _elements(home: Home, step: int) -> int:
    """Elements that so many bytes are."""
    rows, rest = divmod(step, home.pitch)
    return rows * home.row + rest // home.itemsize
