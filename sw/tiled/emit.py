"""The sequential tile program of a product or convolution.

Loads stand where their tile changes, the product in the innermost loop, the store behind the loop over K.
Every operand is a closed form of the loop variables; making cheap code of it is the business of the
passes. What warps must wait for follows from the regions (`sw.warps`).
"""

from __future__ import annotations

from collections.abc import Iterable

from sw.arrangement import HALVES, INNER, Loop, Nest
from sw.convolution import Convolution
from sw.ir.expression import Const, Expr, Op, apply
from sw.ir.program import Buffer, For, Instruction, Interval, Program, Region, Statement
from sw.ir.roles import WarpRole
from sw.tiled.forms import both, count, index, linear, part, present, size, turns
from sw.tiled.patches import cut, patch_load
from sw.tiling.blocking import Resident

Operands = dict[str, Expr]


def emit(plan: Nest, name: str = "kernel") -> Program:
    """The tile program of an arranged problem."""
    return Emitter(plan).program(name)


def _interval(start: Expr, length: Expr | int) -> Interval:
    return Interval(start, start + length)


class Emitter:
    """What the operations of one problem have in common; what a whole model does otherwise are methods."""

    def __init__(self, plan: Nest):
        self.plan = plan
        self.t, self.loops = plan.blocking, plan.loops
        self.depths = {tensor: plan.depth(tensor) for tensor in "abc"}
        inner = (Loop(INNER, self.t.parts),) if self.t.parts > 1 else ()
        self.all = (*plan.loops, *inner)
        self.stored = (*plan.loops[: self.depths["c"]], *inner)
        self.inner = inner

    # Buffers

    def program(self, name: str) -> Program:
        """All of it."""
        return Program(name, (), self.buffers(), tuple(self.step(0)))

    def buffers(self) -> tuple[Buffer, ...]:
        """Tensors in memory, a row of elements per row of memory, and what they pass through."""
        p, d, t = self.plan.problem, self.plan.config.derived, self.t
        a, b, c = (self.plan.places[x] for x in "abc")
        tensors: list[tuple[str, tuple[int, ...], str]] = [("tensor_a", (a.rows, a.shape[-1]), p.type_a)]
        if self.plan.extent.patches is None:
            tensors.append(("tensor_b", (b.rows, b.shape[-1]), p.type_b))
        else:
            tensors.append(("tensor_b", (b.rows // b.shape[-2], *b.shape[-2:]), p.type_b))
        tensors.append(("tensor_c", (c.rows, c.shape[-1]), "int32"))
        made = [Buffer(n, _shape(shape), kind, "memory") for n, shape, kind in tensors]
        for x, shape in (("a", d.buffer_a), ("b", d.buffer_b)):
            made.append(Buffer(f"buffer_{x}", _shape((shape.columns, shape.lanes)), "int8", x.upper()))
        rows, words = min(t.partition_m, self.plan.extent.m), self.plan.c_pitch
        acc = (1 if t.single_c else HALVES, rows, words * self.plan.config.cols)
        made.append(Buffer("accumulator", _shape(acc), "int32", "acc"))
        return tuple(made)

    # Order

    def step(self, depth: int) -> list[Statement]:
        """What one step inside `depth` loops does."""
        body: list[Statement] = []
        for x in "ab":
            if self.depths[x] == depth:
                body.append(self.load(x))
        if depth < len(self.loops):
            body.append(_loop(self.loops[depth], self.step(depth + 1)))
        elif self.inner:
            body.append(_loop(self.inner[0], self.multiply()))
        else:
            body += self.multiply()
        if self.depths["c"] == depth:
            body += [_loop(self.inner[0], self.finish())] if self.inner else self.finish()
        return body

    def finish(self) -> list[Statement]:
        """What becomes of an inner tile that is complete."""
        return [self.store()]

    def label(self, stem: str) -> str:
        """The label of an operation."""
        return stem

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
                _interval(target, self.blocks(x, self.plan.tile(x, _AXIS[x])) * self.plan.pitch(x)),
                _interval(Const(0), buffer.lanes),
            ),
        )
        operands |= {"target": target, "load_pitch": Const(self.plan.pitch(x))}
        return Instruction(
            self.label("LA" if x == "a" else "LB"),
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
        """The region of so many rows of a tensor."""
        row, column = self.coordinates(x, loops)
        return Region(f"tensor_{x}", (_interval(row, outer), _interval(column, inner)))

    def coordinates(self, x: str, loops: tuple[Loop, ...]) -> tuple[Expr, Expr]:
        """Row and column of a tensor's first element, from the bytes that it moves on."""
        place, steps = self.plan.places[x], self.plan.steps[x]
        rows = {n: step // place.pitch for n, step in steps.items()}
        columns = {n: step % place.pitch // place.dtype.itemsize for n, step in steps.items()}
        return linear(loops, rows), linear(loops, columns)

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
        """The region of the images that a load of patches reads."""
        return Region("tensor_b", (_interval(first, channels), *box))

    # The product

    def pitch_of(self, columns: Expr) -> Expr:
        """Accumulator words between the rows of what the array writes."""
        return Const(self.plan.c_pitch)

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
        t, c = self.t, self.plan.config
        half = 0 if t.single_c else c.derived.acc_words // HALVES
        turn = Const(0) if t.single_c else self.turn("c")
        move = {}
        corner: list[Expr] = [Const(0), Const(0)]
        if self.inner and t.tile_n < t.partition_n:
            move = {INNER: t.tile_n // c.cols}
            corner[1] = linear(loops, {INNER: t.tile_n})
        elif self.inner:
            move = {INNER: t.tile_m * self.plan.c_pitch}
            corner[0] = linear(loops, {INNER: t.tile_m})
        box = (_interval(turn, 1), _interval(corner[0], rows), _interval(corner[1], columns))
        return turn * half + linear(loops, move), Region("accumulator", box)

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
        columns = _interval(first, (blocks - 1) * pitch + k)
        return first, Region(f"buffer_{x}", (columns, _interval(Const(0), buffer.lanes)))

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
            Instruction(self.label("G"), "gemm", reads, writes, WarpRole.GEMM, both(first, there), rest)
        ]
        if later is not None:
            when = both(later, there)
            made.append(
                Instruction(
                    self.label("GA"), "gemm_acc", (*reads, region_c), writes, WarpRole.GEMM, when, rest
                )
            )
        return made

    # The store

    def store(self) -> Instruction:
        """Storing one inner tile."""
        loops, place, t = self.stored, self.plan.places["c"], self.t
        rows, columns, there = self.parted(loops)
        move = dict(self.plan.steps["c"])
        corner = list(self.coordinates("c", loops))
        if self.inner and t.tile_n < t.partition_n:
            move[INNER] = 4 * t.tile_n
            corner[1] = corner[1] + linear(loops, {INNER: t.tile_n})
        elif self.inner:
            move[INNER] = t.tile_m * place.pitch
            corner[0] = corner[0] + linear(loops, {INNER: t.tile_m})
        word, region = self.accumulator(loops, rows, columns)
        operands: Operands = {
            "memory": linear(loops, move, place.address),
            "source": word,
            "rows": rows,
            "bytes": columns * 4,
            "store_stride": Const(place.pitch),
            "store_pitch": Const(self.plan.c_pitch),
        }
        target = Region("tensor_c", (_interval(corner[0], rows), _interval(corner[1], columns)))
        return Instruction("S", "store", (region,), (target,), WarpRole.STORE, there, tuple(operands.items()))


_AXIS = {"a": "m", "b": "n"}


def _shape(sizes: Iterable[int]) -> tuple[Expr, ...]:
    return tuple(Const(size) for size in sizes)


def _loop(loop: Loop, body: list[Statement]) -> For:
    return For(loop.name, Const(0), Const(loop.count), Const(1), tuple(body))
