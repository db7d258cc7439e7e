"""Direct lowering of a matrix product: one warp each loads A, loads B, multiplies and stores.

Every warp runs the same nest of hardware loops (batches, m and n in the chosen order, k), without the
loops inside of which its tile stays the same. Halves of the buffers and of the accumulator change hands
over pairs of channels: `full` tells that a tile is there, `free` that its place may be used again.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from hw.config import MachineConfig
from hw.errors import InputError
from sw.builder import Builder
from sw.kernel import Kernel
from sw.layout import MEMORY_BYTES, Placement, coalesce, place
from sw.problem import Product
from sw.tiles import Extent, Tiles, choose

LOAD_A, LOAD_B, GEMM, STORE = range(4)
WARPS = {LOAD_A: "load A", LOAD_B: "load B", GEMM: "gemm", STORE: "store"}
#: Channels by buffer: (a tile is there, its place is free).
CHANNELS = {"a": (0, 1), "b": (2, 3), "c": (4, 5)}
HALVES = 2


@dataclass(frozen=True)
class Loop:
    """One level of the nest: how often, and how many bytes each tensor moves on per step."""

    name: str
    count: int
    steps: dict[str, int]


@dataclass(frozen=True)
class Plan:
    """All that the four programs have in common."""

    config: MachineConfig
    problem: Product
    sizes: dict[str, int]
    tiles: Tiles
    loops: tuple[Loop, ...]
    places: dict[str, Placement]

    def tile(self, axis: str) -> int:
        """Size of a tile along `m`, `n` or `k`."""
        size: int = getattr(self.tiles, axis)
        return size

    def ragged(self, axis: str) -> bool:
        """Whether the last tile along the axis is smaller than the others."""
        return self.sizes[axis] % self.tile(axis) != 0

    def depth(self, tensor: str) -> int:
        """How many loops, from the outside, are needed to reach every tile of the tensor."""
        return max((i + 1 for i, loop in enumerate(self.loops) if loop.steps[tensor]), default=0)


def lower(
    problem: Product,
    config: MachineConfig,
    *,
    name: str = "matmul",
    bandwidth: Mapping[str, int] | None = None,
    memory_bytes: int = MEMORY_BYTES,
) -> Kernel:
    """Compile a product for a machine.

    `bandwidth` (bytes per cycle by port) tells of ports that will be slower than their width; it only
    guides the choice of tiles. Raises `InputError` when the machine lacks warps, channels, registers,
    loops, windows, buffer or memory for it.
    """
    try:
        plan = make_plan(problem, config, bandwidth, memory_bytes)
        programs = {
            LOAD_A: _loader(plan, "a", "m", problem.transposed_a),
            LOAD_B: _loader(plan, "b", "n", not problem.transposed_b),
            GEMM: _gemm(plan),
            STORE: _store(plan),
        }
    except InputError as error:
        raise InputError(f"{name} ({problem}) on {config.name}: {error}") from None
    return Kernel(name, problem, config, programs, plan.places, plan.tiles)


def make_plan(
    problem: Product,
    config: MachineConfig,
    bandwidth: Mapping[str, int] | None = None,
    memory_bytes: int = MEMORY_BYTES,
) -> Plan:
    """Tiles, loops and addresses of a product."""
    for field, needed in (
        ("warps", len(WARPS)),
        ("channels", 1 + max(c for pair in CHANNELS.values() for c in pair)),
        ("windows", 3),
    ):
        if getattr(config, field) < needed:
            raise InputError(f"{field} must be at least {needed}, not {getattr(config, field)}")
    a, b, c = place(problem, config, memory_bytes)
    m, batch = problem.m, problem.batch
    if not problem.transposed_a and problem.batch_a == batch and math.prod(problem.batch_b) == 1:
        # All products share B: their rows follow each other in memory and make one tall product.
        m, batch = m * math.prod(batch), ()
    extent = Extent(m, problem.n, problem.k, problem.transposed_a, problem.transposed_b, math.prod(batch))
    tiles = choose(extent, config, bandwidth)
    sizes = {"m": m, "n": problem.n, "k": problem.k}
    steps = {
        "m": {"a": tiles.m * (1 if problem.transposed_a else a.pitch), "b": 0, "c": tiles.m * c.pitch},
        "n": {"a": 0, "b": tiles.n * (b.pitch if problem.transposed_b else 1), "c": 4 * tiles.n},
        "k": {
            "a": tiles.k * (a.pitch if problem.transposed_a else 1),
            "b": tiles.k * (1 if problem.transposed_b else b.pitch),
            "c": 0,
        },
    }
    loops = [
        Loop(f"batch{i}", count, dict(zip("abc", step, strict=True)))
        for i, (count, step) in enumerate(coalesce(batch, tuple(t.batch_steps(batch) for t in (a, b, c))))
    ]
    for axis in (*tiles.order, "k"):
        count = -(-sizes[axis] // getattr(tiles, axis))
        if count > 1:
            loops.append(Loop(axis, count, steps[axis]))
    return Plan(config, problem, sizes, tiles, tuple(loops), {"a": a, "b": b, "c": c})


class Walk:
    """What a program does at the borders of its loops; subclasses add to it."""

    def enter(self, loop: Loop) -> None:
        """Before the loop."""

    def start(self, depth: int) -> None:
        """At the start of a step inside `depth` loops."""

    def end(self, depth: int) -> None:
        """At the end of a step inside `depth` loops."""


@contextlib.contextmanager
def _nest(b: Builder, loops: tuple[Loop, ...], walks: list[Walk]) -> Iterator[None]:
    """Opens the loops one inside the other and lets the walks add theirs at every border."""
    with contextlib.ExitStack() as stack:
        for depth in range(len(loops) + 1):
            if depth:
                for walk in walks:
                    walk.enter(loops[depth - 1])
                stack.enter_context(b.loop(loops[depth - 1].count))
            for walk in walks:
                walk.start(depth)
            # Callbacks run last in, first out: the walks end in reverse order, before their loop does.
            for walk in walks:
                stack.callback(walk.end, depth)
        yield


class Pointer(Walk):
    """Keeps an address at the tile of a tensor: one register, moved on and back by constants."""

    def __init__(self, b: Builder, plan: Plan, tensor: str, loops: tuple[Loop, ...]):
        self.b, self.tensor, self.loops = b, tensor, loops
        self.register = b.register("memory")
        b.set(self.register, plan.places[tensor].address)
        self.step = b.constant(loops[-1].steps[tensor]) if loops else 0

    def end(self, depth: int) -> None:
        """Move on by this loop's step, after taking back what the loop inside went."""
        if depth == len(self.loops):
            self.b.add(self.register, self.step)
        elif depth:
            inner = self.loops[depth]
            back = inner.count * inner.steps[self.tensor]
            self.b.add(self.register, self.loops[depth - 1].steps[self.tensor] - back)


class Size(Walk):
    """Keeps the size of the present tile along an axis: in a register, or a parameter register."""

    def __init__(
        self, b: Builder, plan: Plan, axis: str, loops: tuple[Loop, ...], parameter: str | None = None
    ):
        self.b, self.plan, self.axis, self.parameter = b, plan, axis, parameter
        self.depth = next((i + 1 for i, loop in enumerate(loops) if loop.name == axis), 0)
        self.ragged = self.depth > 0 and plan.ragged(axis)
        self.tile = min(plan.tile(axis), plan.sizes[axis])
        self.register = b.scratch if parameter else b.register(f"size_{axis}")
        if self.ragged:
            self.left = b.register(f"left_{axis}")
        elif parameter:
            b.param(parameter, self.tile)
        else:
            b.set(self.register, self.tile)

    def enter(self, loop: Loop) -> None:
        """All of the axis is left before its loop."""
        if self.ragged and loop.name == self.axis:
            self.b.set(self.left, self.plan.sizes[self.axis])

    def start(self, depth: int) -> None:
        """The tile is as large as all tiles are, or what is left."""
        if self.ragged and depth == self.depth:
            self.b.op("min", self.register, self.left, self.tile)
            if self.parameter:
                self.b.param(self.parameter, self.register)

    def end(self, depth: int) -> None:
        """One tile less is left."""
        if self.ragged and depth == self.depth:
            self.b.add(self.left, -self.tile)


class Bytes(Walk):
    """Keeps a multiple of another size in a register (`size` must come before it)."""

    def __init__(self, b: Builder, size: Size, shift: int):
        self.b, self.size, self.shift = b, size, shift
        self.register = b.register(f"bytes_{size.axis}")
        if not size.ragged:
            b.set(self.register, size.tile << shift)

    def start(self, depth: int) -> None:
        """Follows the size."""
        if self.size.ragged and depth == self.size.depth:
            self.b.op("shl", self.register, self.size.register, self.shift)


class Turn(Walk):
    """Takes a half of a buffer at the start of a step and hands it on at the end of the step."""

    def __init__(self, b: Builder, depth: int, take: int, give: int, half: int):
        self.b, self.depth, self.take, self.give = b, depth, take, give
        self.register = b.register(f"half{take}")
        b.set(self.register, 0)
        self.half = b.constant(half)

    def start(self, depth: int) -> None:
        """Wait for the half."""
        if depth == self.depth:
            self.b.wait(self.take)

    def end(self, depth: int) -> None:
        """Hand it on, and go to the other."""
        if depth == self.depth:
            self.b.signal(self.give)
            self.b.op("xor", self.register, self.register, self.half)


class FirstStep(Walk):
    """A register that is 0 in the first step of the k loop and 1 in later ones."""

    def __init__(self, b: Builder, loops: tuple[Loop, ...]):
        self.b = b
        self.depth = next((i + 1 for i, loop in enumerate(loops) if loop.name == "k"), 0)
        self.register = b.register("later") if self.depth else None

    def enter(self, loop: Loop) -> None:
        """The step that comes is the first."""
        if self.register and loop.name == "k":
            self.b.set(self.register, 0)

    def end(self, depth: int) -> None:
        """The step that comes is not."""
        if self.register and depth == self.depth:
            self.b.set(self.register, 1)


def _loader(plan: Plan, tensor: str, axis: str, transposed_load: bool) -> list[int]:
    """Program of the warp that loads A (axis m) or B (axis n); `_t` where the axis is contiguous."""
    b = Builder(plan.config, f"warp load {tensor.upper()}")
    shape = getattr(plan.config.derived, f"buffer_{tensor}")
    full, free = CHANNELS[tensor]
    depth = plan.depth(tensor)
    loops = plan.loops[:depth]
    b.param("load_stride", plan.places[tensor].pitch)
    b.param("load_pitch", getattr(plan.tiles, f"pitch_{tensor}"))
    lanes, steps = Size(b, plan, axis, loops), Size(b, plan, "k", loops)
    pointer = Pointer(b, plan, tensor, loops)
    turn = Turn(b, depth, free, full, shape.columns // HALVES)
    with _nest(b, loops, [pointer, lanes, steps, turn]):
        outer, inner = (steps, lanes) if transposed_load else (lanes, steps)
        b.engine(
            f"load_{tensor}{'_t' * transposed_load}",
            memory=pointer.register,
            target=turn.register,
            outer=outer.register,
            inner=inner.register,
        )
    return b.words()


def _gemm(plan: Plan) -> list[int]:
    """Program of the warp that multiplies."""
    b = Builder(plan.config, "warp gemm")
    p, d, loops = plan.problem, plan.config.derived, plan.loops
    for tensor in "ab":
        b.signal(CHANNELS[tensor][1], HALVES)
    b.param("gemm_a_pitch", plan.tiles.pitch_a)
    b.param("gemm_b_pitch", plan.tiles.pitch_b)
    b.param("gemm_c_pitch", -(-plan.tiles.n // plan.config.cols))
    b.param("gemm_zero_a", p.zero_a & 0xFF)
    b.param("gemm_zero_b", p.zero_b & 0xFF)
    b.param("gemm_signed", (p.type_a == "int8") | (p.type_b == "int8") << 1)
    m, n = Size(b, plan, "m", loops, "gemm_m"), Size(b, plan, "n", loops, "gemm_n")
    k, first = Size(b, plan, "k", loops), FirstStep(b, loops)
    # The result's half is waited for first: it was free long ago when operands arrive.
    c_full, c_free = CHANNELS["c"]
    turn_c = Turn(b, plan.depth("c"), c_free, c_full, d.acc_words // HALVES)
    turn_a = Turn(b, plan.depth("a"), *CHANNELS["a"], d.buffer_a.columns // HALVES)
    turn_b = Turn(b, plan.depth("b"), *CHANNELS["b"], d.buffer_b.columns // HALVES)
    operands = {"a": turn_a.register, "b": turn_b.register, "c": turn_c.register, "k": k.register}
    with _nest(b, loops, [m, n, k, turn_c, first, turn_a, turn_b]):
        if first.register is None:
            b.engine("gemm", **operands)
        else:
            with b.when(first.register, sense=False):
                b.engine("gemm", **operands)
            with b.when(first.register):
                b.engine("gemm_acc", **operands)
    return b.words()


def _store(plan: Plan) -> list[int]:
    """Program of the warp that stores."""
    b = Builder(plan.config, "warp store")
    depth = plan.depth("c")
    loops = plan.loops[:depth]
    full, free = CHANNELS["c"]
    b.signal(free, HALVES)
    b.param("store_stride", plan.places["c"].pitch)
    b.param("store_pitch", -(-plan.tiles.n // plan.config.cols))
    rows, columns = Size(b, plan, "m", loops), Size(b, plan, "n", loops)
    width = Bytes(b, columns, 2)
    pointer = Pointer(b, plan, "c", loops)
    turn = Turn(b, depth, full, free, plan.config.derived.acc_words // HALVES)
    with _nest(b, loops, [pointer, rows, columns, width, turn]):
        b.engine(
            "store",
            memory=pointer.register,
            source=turn.register,
            rows=rows.register,
            bytes=width.register,
        )
    return b.words()
