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
from collections.abc import Iterator, Mapping, Sequence

from hw.config import MachineConfig
from hw.errors import InputError
from sw.arrangement import CHANNELS, GEMM, INNER, LOAD_A, LOAD_B, STORE, Nest, extent_of, make_nest
from sw.builder import Builder, Register
from sw.convolution import Convolution
from sw.kernel import Kernel
from sw.layout import MEMORY_BYTES
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
from sw.tiling.blocking import Blocking, Resident
from sw.tiling.machine import best

#: Blockings that are tried where a machine cannot hold the programs of the best one.
ALTERNATIVES = 64


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
    guides the choice of tiles, which `blocking` sets instead. Where registers, loops or instruction memory do
    not suffice for the best tiles, the next best are tried. Raises `InputError` when the machine lacks warps,
    channels, registers, loops, windows, buffer or memory for it.
    """
    try:
        plan = make_nest(problem, config, bandwidth, memory_bytes, blocking)
        try:
            programs = _programs(plan)
        except InputError as error:
            if blocking is not None:
                raise
            plan, programs = _simpler(plan, bandwidth, memory_bytes, error)
    except InputError as error:
        raise InputError(f"{name} ({problem}) on {config.name}: {error}") from None
    return Kernel(name, problem, config, programs, plan.places, extent_of(problem), plan.blocking)


def _programs(plan: Nest) -> dict[int, list[int]]:
    """The words of every warp."""
    return {
        LOAD_A: _loader(plan, "a", "m"),
        LOAD_B: _loader(plan, "b", "n") if plan.extent.patches is None else _patches(plan),
        GEMM: _gemm(plan),
        STORE: _store(plan),
    }


def _simpler(
    plan: Nest, bandwidth: Mapping[str, int] | None, memory_bytes: int, error: InputError
) -> tuple[Nest, dict[int, list[int]]]:
    """The best blocking whose programs the machine can hold; raises the first error if there is none."""
    for choice in best(extent_of(plan.problem), plan.config, bandwidth, ALTERNATIVES)[1:]:
        other = make_nest(plan.problem, plan.config, bandwidth, memory_bytes, choice.blocking)
        with contextlib.suppress(InputError):
            return other, _programs(other)
    raise error


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
