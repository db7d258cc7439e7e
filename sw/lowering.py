"""Lowering of products and convolutions: one warp each loads A, loads B, multiplies and stores.

Every warp runs the same nest of hardware loops (batches, partitions in the plan's order, steps of K), without
the loops inside of which its tile stays the same. Halves of the buffers and of the accumulator change hands
over pairs of channels: `full` tells that a tile is there, `free` that its place may be used again. The
array hands a partition of C over in inner tiles, so that the storer need not wait for the whole. A partition
that fills the accumulator alone is released in inner tiles too: places change hands one by one. Tokens stand
for places, so a tile that is not there at the edge takes its turn all the same.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from hw.config import MachineConfig
from hw.errors import InputError
from sw.builder import Builder, Register
from sw.convolution import Convolution
from sw.kernel import Kernel
from sw.layout import MEMORY_BYTES, Placement, coalesce, place, place_convolution
from sw.nest import (
    HALVES,
    Loop,
    Multiple,
    Offset,
    Parameter,
    Part,
    Pointer,
    Size,
    Steps,
    Turn,
    Walk,
    nest,
)
from sw.patch_loader import patch_loader
from sw.problem import Product
from sw.tiling.blocking import Blocking, Extent, Resident, pitch
from sw.tiling.machine import choose

LOAD_A, LOAD_B, GEMM, STORE = range(4)
WARPS = {LOAD_A: "load A", LOAD_B: "load B", GEMM: "gemm", STORE: "store"}
#: Channels by buffer: (a tile is there, its place is free).
CHANNELS = {"a": (0, 1), "b": (2, 3), "c": (4, 5)}
#: Name of the loop over inner tiles.
INNER = "inner"


@dataclass(frozen=True)
class Nest:
    """All that the four programs have in common.

    `steps` holds, per tensor, the bytes in memory that it moves on with every step of a loop.
    """

    config: MachineConfig
    problem: Product | Convolution
    extent: Extent
    blocking: Blocking
    loops: tuple[Loop, ...]
    steps: dict[str, dict[str, int]]
    places: dict[str, Placement]

    def depth(self, tensor: str) -> int:
        """Inside how many loops a tile of the tensor is loaded (or stored)."""
        names = [loop.name for loop in self.loops]
        moving = {name for name in names if self.steps[tensor].get(name)}
        resident = {"a": self.blocking.resident_a, "b": self.blocking.resident_b}.get(tensor, Resident.TILE)
        if resident is not Resident.TILE:
            moving.discard("k")
        if resident is Resident.WHOLE:
            moving -= {"m"} if tensor == "a" else {"n"}
        return max((i + 1 for i, name in enumerate(names) if name in moving), default=0)

    def tile(self, tensor: str, axis: str) -> int:
        """Size along m, n or k of what is loaded of a tensor at once, if it is not cut off by the edge."""
        b, whole = self.blocking, getattr(self.extent, axis)
        resident = {"a": b.resident_a, "b": b.resident_b}.get(tensor, Resident.TILE)
        if resident is Resident.WHOLE or (resident is Resident.DEPTH and axis == "k"):
            return int(whole)
        return int(getattr(b, f"partition_{axis}"))

    def pitch(self, tensor: str) -> int:
        """Columns between the blocks of a loaded tile of A or B."""
        d, axis = self.config.derived, "m" if tensor == "a" else "n"
        shape = d.buffer_a if tensor == "a" else d.buffer_b
        blocks = -(-min(self.tile(tensor, axis), getattr(self.extent, axis)) // shape.lanes)
        depth = min(self.tile(tensor, "k"), self.extent.k)
        if self.extent.patches is not None and tensor == "b":
            return pitch(shape, True, 2, depth)
        return pitch(shape, self.lanes_first(tensor), blocks, depth)

    def lanes_first(self, tensor: str) -> bool:
        """Whether the lanes of an operand, not its depth, are contiguous in memory."""
        return self.extent.transposed_a if tensor == "a" else not self.extent.transposed_b

    @property
    def c_pitch(self) -> int:
        """Accumulator words between the rows of a partition."""
        return -(-min(self.blocking.partition_n, self.extent.n) // self.config.cols)


def lower(
    problem: Product | Convolution,
    config: MachineConfig,
    *,
    name: str = "matmul",
    bandwidth: Mapping[str, int] | None = None,
    memory_bytes: int = MEMORY_BYTES,
    blocking: Blocking | None = None,
) -> Kernel:
    """Compile a product or convolution for a machine.

    `bandwidth` (bytes per cycle by port) tells of ports that will be slower than their width; it only
    guides the choice of tiles, which `blocking` sets instead. Raises `InputError` when the machine lacks
    warps, channels, registers, loops, windows, buffer or memory for it.
    """
    try:
        plan = make_nest(problem, config, bandwidth, memory_bytes, blocking)
        programs = {
            LOAD_A: _loader(plan, "a", "m"),
            LOAD_B: _loader(plan, "b", "n") if plan.extent.patches is None else _patches(plan),
            GEMM: _gemm(plan),
            STORE: _store(plan),
        }
    except InputError as error:
        raise InputError(f"{name} ({problem}) on {config.name}: {error}") from None
    return Kernel(name, problem, config, programs, plan.places, plan.extent, plan.blocking)


def make_nest(
    problem: Product | Convolution,
    config: MachineConfig,
    bandwidth: Mapping[str, int] | None = None,
    memory_bytes: int = MEMORY_BYTES,
    blocking: Blocking | None = None,
) -> Nest:
    """Tiles, loops and addresses of a problem."""
    for field, needed in (
        ("warps", len(WARPS)),
        ("channels", 1 + max(c for pair in CHANNELS.values() for c in pair)),
        ("windows", 3),
    ):
        if getattr(config, field) < needed:
            raise InputError(f"{field} must be at least {needed}, not {getattr(config, field)}")
    product = problem.product if isinstance(problem, Convolution) else problem
    if product is not None:
        return _product_nest(problem, product, config, bandwidth, memory_bytes, blocking)
    assert isinstance(problem, Convolution)
    return _convolution_nest(problem, config, bandwidth, memory_bytes, blocking)


def extent_of(problem: Product | Convolution) -> Extent:
    """What is tiled of a problem."""
    product = problem.product if isinstance(problem, Convolution) else problem
    if product is None:
        assert isinstance(problem, Convolution)
        p = problem
        return Extent(p.m, p.n, p.k, batch=p.groups * p.images, images=p.images, patches=p.patches)
    m, batch = product.m, product.batch
    if _folds(product):
        m, batch = m * math.prod(batch), ()
    return Extent(m, product.n, product.k, product.transposed_a, product.transposed_b, math.prod(batch))


def _folds(problem: Product) -> bool:
    """Whether all products share B: their rows follow each other in memory and make one tall product."""
    shared = math.prod(problem.batch_b) == 1
    return not problem.transposed_a and problem.batch_a == problem.batch and shared


def _product_nest(
    problem: Product | Convolution,
    product: Product,
    config: MachineConfig,
    bandwidth: Mapping[str, int] | None,
    memory_bytes: int,
    blocking: Blocking | None,
) -> Nest:
    a, b, c = place(product, config, memory_bytes)
    extent = extent_of(product)
    t = blocking or choose(extent, config, bandwidth)
    batch = () if _folds(product) else product.batch
    m, n, k = t.partition_m, t.partition_n, t.partition_k
    steps = {
        "a": {
            "m": m * (1 if product.transposed_a else a.pitch),
            "k": k * (a.pitch if product.transposed_a else 1),
        },
        "b": {
            "n": n * (b.pitch if product.transposed_b else 1),
            "k": k * (1 if product.transposed_b else b.pitch),
        },
        "c": {"m": m * c.pitch, "n": 4 * n},
    }
    loops = []
    axes = coalesce(batch, tuple(x.batch_steps(batch) for x in (a, b, c)))
    for i, (count, moves) in enumerate(axes):
        loops.append(Loop(f"batch{i}", count))
        for tensor, move in zip("abc", moves, strict=True):
            steps[tensor][f"batch{i}"] = move
    for axis in "mnk" if t.m_outermost else "nmk":
        count = -(-getattr(extent, axis) // getattr(t, f"partition_{axis}"))
        if count > 1:
            loops.append(Loop(axis, count))
    return Nest(config, problem, extent, t, tuple(loops), steps, {"a": a, "b": b, "c": c})


def _convolution_nest(
    p: Convolution,
    config: MachineConfig,
    bandwidth: Mapping[str, int] | None,
    memory_bytes: int,
    blocking: Blocking | None,
) -> Nest:
    a, b, c = place_convolution(p, config, memory_bytes)
    extent = extent_of(p)
    t = blocking or choose(extent, config, bandwidth)
    channels = t.partition_k // p.patches.kernel
    channel = b.matrix_bytes
    steps = {
        "a": {"group": p.m * a.pitch, "m": t.partition_m * a.pitch, "k": t.partition_k},
        # Rows and columns of outputs move on by pixels, not bytes: the loader keeps count of them itself.
        "b": {
            "group": p.patches.channels * channel,
            "image": p.channels * channel,
            "row": 1,
            "n": 1,
            "k": channels * channel,
        },
        "c": {
            "group": p.m * c.pitch,
            "image": p.out_channels * c.pitch,
            "row": 4 * p.cols.outputs,
            "n": 4 * t.partition_n,
            "m": t.partition_m * c.pitch,
        },
    }
    pieces = t.out_cols < p.cols.outputs
    across = [("image", p.images)]
    if pieces:
        across += [("row", p.rows.outputs), ("n", -(-p.cols.outputs // t.out_cols))]
        extent = dataclasses.replace(extent, n=p.cols.outputs)
    else:
        across += [("n", -(-p.n // t.partition_n))]
    down = [("m", -(-p.m // t.partition_m))]
    counts = [("group", p.groups), *(down + across if t.m_outermost else across + down)]
    counts += [("k", -(-p.k // t.partition_k))]
    loops = tuple(Loop(name, count) for name, count in counts if count > 1)
    return Nest(config, p, extent, t, loops, steps, {"a": a, "b": b, "c": c})


def _bytes(plan: Nest, tensor: str, loops: Sequence[Loop]) -> dict[str, int]:
    return {loop.name: plan.steps[tensor].get(loop.name, 0) for loop in loops}


def _size(b: Builder, plan: Nest, tensor: str, axis: str, loops: Sequence[Loop]) -> Size:
    """The size along an axis of what is loaded of a tensor."""
    return Size(b, axis, loops, axis, getattr(plan.extent, axis), plan.tile(tensor, axis))


def _loader(plan: Nest, tensor: str, axis: str) -> list[int]:
    """Program of the warp that loads A (axis m) or B (axis n); `_t` where the axis is contiguous."""
    b = Builder(plan.config, f"warp load {tensor.upper()}")
    shape = getattr(plan.config.derived, f"buffer_{tensor}")
    full, free = CHANNELS[tensor]
    depth, lanes_first = plan.depth(tensor), plan.lanes_first(tensor)
    loops = plan.loops[:depth]
    b.param("load_stride", plan.places[tensor].pitch)
    b.param("load_pitch", plan.pitch(tensor))
    lanes, steps = _size(b, plan, tensor, axis, loops), _size(b, plan, tensor, "k", loops)
    pointer = Pointer(b, "memory", plan.places[tensor].address, loops, _bytes(plan, tensor, loops))
    turn = Turn(b, tensor, depth, free, full, shape.columns // HALVES)
    with nest(b, loops, [pointer, lanes, steps, turn]):
        outer, inner = (steps, lanes) if lanes_first else (lanes, steps)
        b.engine(
            f"load_{tensor}{'_t' * lanes_first}",
            memory=pointer.register,
            target=turn.register,
            outer=outer.register,
            inner=inner.register,
        )
    return b.words()


def _patches(plan: Nest) -> list[int]:
    """Program of the warp that loads the patches of a convolution."""
    assert isinstance(plan.problem, Convolution)
    full, free = CHANNELS["b"]
    depth = plan.depth("b")
    whole = plan.blocking.resident_b is Resident.WHOLE
    rows = plan.problem.rows.outputs if whole else plan.blocking.out_rows
    return patch_loader(
        Builder(plan.config, "warp load B"),
        plan.problem,
        plan.places["b"],
        plan.loops[:depth],
        plan.steps["b"],
        (rows, plan.blocking.out_cols),
        channels=plan.tile("b", "k") // plan.problem.patches.kernel,
        pitch=plan.pitch("b"),
        half=plan.config.derived.buffer_b.columns // HALVES,
        turn=(depth, free, full),
    )


def _inner(plan: Nest) -> Loop | None:
    """The loop over inner tiles of a partition, if there is one."""
    count = plan.blocking.parts
    return Loop(INNER, count) if count > 1 else None


def _places(plan: Nest) -> dict[str, dict[str, int]]:
    """Columns or words that a place in the buffers moves on with every step of a loop."""
    t, c = plan.blocking, plan.config
    blocks_m, blocks_n = t.partition_m // c.rows, t.partition_n // c.cols
    moves: dict[str, dict[str, int]] = {
        "a": {"m": blocks_m * plan.pitch("a"), "k": t.partition_k},
        "b": {"n": blocks_n * plan.pitch("b"), "k": t.partition_k},
        "c": {},
    }
    if t.tile_n < t.partition_n:
        moves["b"][INNER] = t.tile_n // c.cols * plan.pitch("b")
        moves["c"][INNER] = t.tile_n // c.cols
    elif t.tile_m < t.partition_m:
        moves["a"][INNER] = t.tile_m // c.rows * plan.pitch("a")
        moves["c"][INNER] = t.tile_m * plan.c_pitch
    return moves


def _half_of_accumulator(plan: Nest) -> int:
    """Words from one partition to the next; 0 where each takes the place of the one before."""
    return 0 if plan.blocking.single_c else plan.config.derived.acc_words // HALVES


def _parted(
    b: Builder, plan: Nest, loops: Sequence[Loop], m: Size, n: Size
) -> tuple[Size | Part, Size | Part, Part | None]:
    """Rows and columns of the present inner tile, and which of them the inner loop cuts."""
    t = plan.blocking
    if t.tile_n < t.partition_n:
        part = Part(b, "n", loops, INNER, n, t.tile_n)
        return m, part, part
    if t.tile_m < t.partition_m:
        part = Part(b, "m", loops, INNER, m, t.tile_m)
        return part, n, part
    return m, n, None


def _gemm(plan: Nest) -> list[int]:
    """Program of the warp that multiplies."""
    b = Builder(plan.config, "warp gemm")
    p, d, t = plan.problem, plan.config.derived, plan.blocking
    for tensor in "ab":
        b.signal(CHANNELS[tensor][1], HALVES)
    b.param("gemm_a_pitch", plan.pitch("a"))
    b.param("gemm_b_pitch", plan.pitch("b"))
    b.param("gemm_c_pitch", plan.c_pitch)
    b.param("gemm_zero_a", p.zero_a & 0xFF)
    b.param("gemm_zero_b", p.zero_b & 0xFF)
    b.param("gemm_signed", (p.type_a == "int8") | (p.type_b == "int8") << 1)
    inner = _inner(plan)
    loops = [*plan.loops, *([inner] if inner else [])]
    m = Size(b, "m", plan.loops, "m", plan.extent.m, t.partition_m, keep=False)
    n = Size(b, "n", plan.loops, "n", plan.extent.n, t.partition_n, keep=False)
    k = Size(b, "k", plan.loops, "k", plan.extent.k, t.partition_k)
    rows, columns, part = _parted(b, plan, loops, m, n)
    steps = Steps(b, loops, "k", last=True)
    free = CHANNELS["c"][1]
    # The result's half is waited for first: it was free long ago when operands arrive.
    turns = {
        "c": Turn(b, "c", plan.depth("c"), None if t.single_c else free, None, _half_of_accumulator(plan)),
        "a": Turn(b, "a", plan.depth("a"), *CHANNELS["a"], d.buffer_a.columns // HALVES),
        "b": Turn(b, "b", plan.depth("b"), *CHANNELS["b"], d.buffer_b.columns // HALVES),
    }
    moves = _places(plan)
    at = {x: Offset(b, f"at_{x}", turn, turn.depth, loops, moves[x]) for x, turn in turns.items()}
    walks: list[Walk] = [m, n, k, *([part] if part else [])]
    walks += [Parameter(b, rows, "gemm_m"), Parameter(b, columns, "gemm_n"), steps]
    walks += [*turns.values(), *at.values()]
    operands = {name: walk.register for name, walk in at.items()} | {"k": k.register}
    with nest(b, loops, walks):
        if t.single_c:
            with _when(b, steps.later, False):
                b.wait(free)
        _multiply(b, steps, part.present if part else None, operands)
        with _when(b, steps.left, False):
            b.signal(CHANNELS["c"][0])
    return b.words()


def _multiply(b: Builder, steps: Steps, present: Register | None, operands: dict[str, Register]) -> None:
    """One inner tile, if it is present: a product with the first step of K, added to with later ones."""
    first, later = steps.later, steps.later
    sense = False
    if present is not None and steps.later is not None:
        # first: present in the first step of K; later: present in another one.
        first, later, sense = b.register("start"), b.register("go_on"), True
        b.op("and", later, present, steps.later)
        b.op("xor", first, present, later)
    elif present is not None:
        first, sense = present, True
    with _when(b, first, sense):
        b.engine("gemm", **operands)
    if later is not None:
        with b.when(later):
            b.engine("gemm_acc", **operands)


@contextlib.contextmanager
def _when(b: Builder, register: Register | None, sense: bool) -> Iterator[None]:
    """Predicated by a register, or always where there is none."""
    if register is None:
        yield
    else:
        with b.when(register, sense):
            yield


def _store(plan: Nest) -> list[int]:
    """Program of the warp that stores."""
    b = Builder(plan.config, "warp store")
    t, depth, c = plan.blocking, plan.depth("c"), plan.places["c"]
    outer = plan.loops[:depth]
    full, free = CHANNELS["c"]
    b.signal(free, t.parts if t.single_c else HALVES)
    b.param("store_stride", c.pitch)
    b.param("store_pitch", plan.c_pitch)
    inner = _inner(plan)
    loops = [*outer, *([inner] if inner else [])]
    m = Size(b, "m", outer, "m", plan.extent.m, t.partition_m, keep=t.tile_m == t.partition_m)
    n = Size(b, "n", outer, "n", plan.extent.n, t.partition_n, keep=False)
    rows, columns, part = _parted(b, plan, loops, m, n)
    move = {loop.name: plan.steps["c"].get(loop.name, 0) for loop in outer}
    move[INNER] = 4 * t.tile_n if t.tile_n < t.partition_n else t.tile_m * c.pitch
    width = Multiple(b, "bytes", columns, 4)
    pointer = Pointer(b, "memory", c.address, loops, move)
    turn = Turn(b, "c", depth, None, None if t.single_c else free, _half_of_accumulator(plan))
    source = Offset(b, "at_c", turn, depth, loops, _places(plan)["c"])
    walks: list[Walk] = [pointer, m, n, *([part] if part else []), width, turn, source]
    with nest(b, loops, walks):
        b.wait(full)
        with _when(b, part.present if part else None, True):
            b.engine(
                "store",
                memory=pointer.register,
                source=source.register,
                rows=rows.register,
                bytes=width.register,
            )
        if t.single_c:
            b.signal(free)
    return b.words()
