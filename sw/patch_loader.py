"""Program of the warp that loads the patches of a convolution, tile of outputs by tile of outputs.

What of a tile's pixels lies in the image, and how much padding surrounds them, is computed by the warp
from the tile's place; the loader forms the patches (docs/machine.md, "Patches").
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sw.builder import Builder, Register, Value
from sw.convolution import Convolution
from sw.layout import Placement
from sw.nest import Loop, Pointer, Size, Turn, Walk, nest
from sw.patches import Axis


@dataclass(frozen=True)
class _Cut:
    """What an axis of a tile comes to: first pixel in the image, how many, padding before them."""

    first: Value
    count: Value
    padding: Value
    span: Value


class _Axis(Walk):
    """Keeps the first pixel of the tile along an axis of the image, and the tile's number of outputs."""

    def __init__(self, b: Builder, name: str, axis: Axis, loops: Sequence[Loop], loop: str, tile: int):
        self.b, self.name, self.axis = b, name, axis
        self.size = Size(b, f"out_{name}", loops, loop, axis.outputs, tile)
        moves = any(x.name == loop for x in loops)
        steps = {loop: tile * axis.stride}
        self.origin = Pointer(b, name, -axis.before, loops, steps) if moves else None
        self.walks: list[Walk] = [self.size, *([self.origin] if self.origin else [])]
        b.param(f"conv_out_{name}", self.size.tile)
        if not self.size.ragged:
            self.span: Value = axis.span(self.size.tile)
        else:
            self.span = b.register(f"span_{name}")
        if self.origin:
            self.first, self.count = b.register(f"first_{name}"), b.register(f"count_{name}")

    def cut(self) -> _Cut:
        """Emit what computes the part of the tile that lies in the image."""
        b, axis = self.b, self.axis
        if self.size.ragged:
            assert isinstance(self.span, Register)
            b.param(f"conv_out_{self.name}", self.size.register)
            b.op("mul", self.span, self.size.register, axis.stride)
            b.add(self.span, axis.reach - axis.stride)
        if self.origin is None:
            assert isinstance(self.span, int)
            count = max(0, min(axis.size, self.span - axis.before))
            return _Cut(0, count, axis.before, self.span)
        place, first, number = self.origin.register, self.first, self.count
        b.op("max", first, place, 0)
        b.op("add", number, place, self.span)
        b.op("min", number, number, axis.size)
        b.op("sub", number, number, first)
        b.op("max", number, number, 0)
        padding = b.register("padding")
        b.op("sub", padding, first, place)
        return _Cut(first, number, padding, self.span)


def patch_loader(
    b: Builder,
    problem: Convolution,
    place: Placement,
    loops: Sequence[Loop],
    steps: Mapping[str, int],
    tile: tuple[int, int],
    *,
    channels: int,
    pitch: int,
    half: int,
    turn: tuple[int, int, int],
) -> list[int]:
    """The program's words.

    `loops` are those that the tile moves in, `steps` bytes in memory per step of group, image and k, `tile`
    the output rows and columns of a tile, `channels` those of a load, `turn` the depth at which a half of
    the buffer (`half` columns) is taken and the channels that tell of its being free and full.
    """
    rows, cols = problem.rows, problem.cols
    line = place.pitch
    for name, value in (
        ("load_stride", place.matrix_bytes),
        ("load_pitch", pitch),
        ("load_fill", problem.zero_b & 0xFF),
        ("conv_line", line),
        ("conv_kernel_h", rows.kernel),
        ("conv_kernel_w", cols.kernel),
        ("conv_stride_h", rows.stride),
        ("conv_stride_w", cols.stride),
        ("conv_dilation_h", rows.dilation),
        ("conv_dilation_w", cols.dilation),
    ):
        b.param(name, value)
    pieces = tile[1] < cols.outputs
    y = _Axis(b, "rows", rows, loops, "row" if pieces else "n", tile[0])
    x = _Axis(b, "cols", cols, loops, "n" if pieces else "", tile[1])
    depth = Size(b, "channels", loops, "k", problem.patches.channels, channels)
    moves = {name: step for name, step in steps.items() if name in ("group", "image", "k")}
    memory = Pointer(b, "memory", place.address, loops, moves)
    address, read, pixels = b.register("address"), b.register("read_rows"), b.register("pixels")
    halves = Turn(b, "b", turn[0], turn[1], turn[2], half)
    with nest(b, loops, [*y.walks, *x.walks, depth, memory, halves]):
        down = y.cut()
        b.param("conv_height", down.span)
        b.param("conv_top", down.padding)
        b.set(read, down.count)
        if isinstance(down.first, Register):
            b.op("mul", address, down.first, line)
            b.op("add", address, address, memory.register)
        else:
            b.set(address, memory.register)
        across = x.cut()
        b.param("conv_width", across.span)
        b.param("conv_left", across.padding)
        if isinstance(across.first, Register):
            b.op("add", address, address, across.first)
        # A load reads one pixel of a row at least; a tile without pixels reads no rows.
        if isinstance(across.count, Register):
            b.op("min", pixels, across.count, 1)
            b.op("mul", read, read, pixels)
            b.op("max", pixels, across.count, 1)
        else:
            b.set(pixels, max(1, across.count))
            if across.count == 0:
                b.set(read, 0)
        b.param("conv_rows", read)
        b.engine(
            "load_b_conv",
            memory=address,
            target=halves.register,
            outer=depth.register,
            inner=pixels,
        )
    return b.words()
