"""Max pooling over windows of an image: its semantics and its loop (docs/operators.md)."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sw.frontend.importer import Importer
from sw.frontend.node import OnnxNode
from sw.frontend.quantised import BYTES, on_grid
from sw.frontend.values import Dequantised, Quantisation, Stored, Structured, Value, is_real
from sw.frontend.windows import axes, images, reduced_axes, two
from sw.graph.network import View
from sw.graph.views import transposed
from sw.kernels.kernel import GridKernel, Stream
from sw.kernels.passes import Pass, Span, balanced, loop, numbered
from sw.kernels.passes import Value as Scalar
from sw.operators.float_windows import maximum
from sw.operators.pools import wide
from sw.operators.registry import imports
from sw.operators.rows import ByteOperator
from sw.patches import Axis

#: Most loads per iteration, and most positions of a kernel row, each of which needs an array.
_MOST_LOADS, _MOST_PLACES = 36, 13


@dataclass(frozen=True)
class MaxPool(ByteOperator):
    """y[n, c, r, s] = maximum of the window of `x` [images, channels, rows, columns] at (r, s).

    Pixels outside the image count as the smallest number of the type. The result has the type, scale and zero
    point of the images.
    """

    rows: Axis
    cols: Axis

    def reference(self, arrays: Sequence[npt.NDArray[np.generic]]) -> npt.NDArray[np.generic]:
        """The maximum of every window."""
        (x,) = arrays
        rows, cols = self.rows, self.cols
        pads = ((0, 0), (0, 0), (rows.before, rows.after), (cols.before, cols.after))
        image = np.pad(x, pads, constant_values=np.asarray(self.fill, x.dtype))
        windows = np.lib.stride_tricks.sliding_window_view(image, (rows.reach, cols.reach), (2, 3))
        windows = windows[:, :, :: rows.stride, :: cols.stride, :: rows.dilation, :: cols.dilation]
        found: npt.NDArray[np.generic] = windows.max(axis=(4, 5))
        return found

    def kernel(self, gap: bool) -> GridKernel:
        """The loop that computes one output per iteration; with a gap, rows of results are apart."""
        return _windows(self.rows.kernel, self.cols.kernel, self.cols.dilation, self.element, gap)

    def launch(self, tile: PoolTile) -> Pass:
        """The launch that computes the results of a tile."""
        return self._in_lanes(tile) if tile.lanes > 1 else self._one_by_one(tile)

    def _in_lanes(self, tile: PoolTile) -> Pass:
        """The launch that computes blocks of outputs, from the last one to the first."""
        rows, cols, lanes = self.rows, self.cols, tile.lanes
        row = wide.width(cols, tile.cols, lanes)
        blocks, down = wide.blocks(cols, tile.cols, lanes), rows.stride * tile.pitch
        step, above, lines = cols.stride * lanes, (tile.rows - 1) * down, tile.rows * tile.channels
        scalars: dict[str, Scalar] = {
            "x": tile.x + (tile.channels - 1) * tile.plane + above + row - step,
            "y": tile.out + (lines - 1) * tile.apart + (blocks - 1) * lanes,
            "last": blocks - 1,
            "most": tile.rows * blocks - 1,
            # Step from the first block of a channel to the last block of the previous one; then its
            # differences to the step to the row above, and from that to the step within a row.
            "over": above + row - step - tile.plane,
            "down": tile.plane - above - down,
            "step": down - row,
            "skip": blocks * lanes - tile.apart,
        }
        below = (tile.rows - 1) * rows.stride + rows.reach - 1
        size = (tile.channels - 1) * tile.plane + below * tile.pitch + row
        return Pass(
            wide.windows(rows, cols, self.element, lanes, tile.pitch),
            lines * blocks,
            scalars,
            (Span("scratch", tile.x, size),),
            (Span("out", tile.out, lines * tile.apart),),
        )

    def _one_by_one(self, tile: PoolTile) -> Pass:
        """The launch that computes one output per iteration."""
        rows, cols = self.rows, self.cols
        outputs = tile.rows * tile.cols
        across, down = (tile.cols - 1) * cols.stride, rows.stride * tile.pitch
        scalars: dict[str, Scalar] = {
            "x": tile.x,
            "y": tile.out,
            "last": tile.cols - 1,
            "most": outputs - 1,
            "step": cols.stride,
            # Step from the last output of a row to the first of the next row, and of the next channel.
            "down": down - across,
            "over": tile.plane + (tile.rows - 1) * -down - across,
            "line": rows.dilation * tile.pitch,
            "skip": tile.apart - tile.cols + 1,
        }
        below = (tile.rows - 1) * rows.stride + rows.reach - 1
        size = (tile.channels - 1) * tile.plane + below * tile.pitch + cols.span(tile.cols)
        results = tile.rows * tile.apart if tile.apart else outputs
        return Pass(
            self.kernel(tile.apart > tile.cols),
            outputs * tile.channels,
            scalars,
            (Span("scratch", tile.x, size),),
            (Span("out", tile.out, results * tile.channels),),
        )


@dataclass(frozen=True)
class PoolTile:
    """Addresses of a tile of `rows` output rows with `cols` outputs each, in each of `channels` channels.

    `x` is the byte in the scratchpad at which the first channel's window of the first output starts,
    including padding. Image rows are `pitch` bytes apart, channels `plane` bytes. All pixels of the windows
    must be present, with `MaxPool.fill` outside the image. Results start at byte `out` of the output buffer,
    contiguous or with rows `apart` bytes apart. With several `lanes`, all of these are multiples of `lanes`,
    and rows of pixels and results are whole blocks.
    """

    channels: Scalar
    rows: Scalar
    cols: int
    x: Scalar
    pitch: int
    plane: int
    out: Scalar
    apart: int = 0
    lanes: int = 1


@functools.cache
def _windows(rows: int, cols: int, dilation: int, element: str, gap: bool) -> GridKernel:
    """One output per iteration; positions in a kernel row are arrays, kernel rows are indices.

    With a gap, the first output of a row is `skip` bytes after the last one of the previous row.
    """
    inputs = [Stream(name, "scratch", element, j * dilation) for j, name in enumerate(numbered("a", cols))]
    lines = [f"r{i} = {f'r{i - 1} + line' if i else 'x'}" for i in range(rows)]
    scalars = ("x", "y", "last", "most", "step", "down", "over", *["line"] * (rows > 1), *["skip"] * gap)
    window = [f"a{j}[r{i}]" for i in range(rows) for j in range(cols)]
    lines += [
        "row_ends = col == last",
        "plane_ends = place == most",
        f"out[y] = {balanced(window, 'max({}, {})')}",
        "x = x + (over if plane_ends else (down if row_ends else step))",
        "y = y + (skip if row_ends else 1)" if gap else "y = y + 1",
        "col = 0 if row_ends else col + 1",
        "place = 0 if plane_ends else place + 1",
    ]
    streams = (*inputs, Stream("out", "out", element))
    return loop(f"max_pool_{rows}x{cols}", streams, scalars, "\n".join(lines), "col = 0\nplace = 0")


def steps(rows: Axis, cols: Axis) -> list[tuple[Axis, Axis]]:
    """Splits the window into windows that one loop each can process; the maximum of maxima is the maximum.

    Maxima over parts of rows come first, then those over columns of them.
    """
    if rows.kernel * cols.kernel <= _MOST_LOADS and cols.kernel <= _MOST_PLACES:
        return [(rows, cols)]
    across = [(Axis(rows.size, 1), part) for part in _parts(cols, _MOST_PLACES)]
    down = [(part, Axis(cols.outputs, 1)) for part in _parts(rows, _MOST_LOADS)]
    return [one for one in (*across, *down) if one != (Axis(rows.size, 1), Axis(one[1].size, 1))]


def _parts(axis: Axis, most: int) -> list[Axis]:
    """Successive windows of at most `most` pixels, whose combined maxima are those of the axis."""
    if axis.kernel <= most:
        return [axis]
    number = next(n for n in range(2, axis.kernel) if axis.kernel - (n - 1) * (axis.kernel // n) <= most)
    apart = axis.kernel // number
    # The next windows need results only at these positions.
    step = apart * axis.dilation if axis.outputs == 1 else math.gcd(axis.stride, apart * axis.dilation)
    first = dataclasses.replace(axis, kernel=axis.kernel - (number - 1) * apart, stride=step)
    rest = Axis(first.outputs, number, -(-axis.stride // step), dilation=apart * axis.dilation // step)
    return [first, *_parts(rest, most)]


@imports("MaxPool", "GlobalMaxPool")
def _import(importer: Importer, node: OnnxNode) -> Value:
    """Max pooling; for real numbers, on the grid of the result."""
    if any(node.outputs[1:]):
        raise node.error("indices as an output are not supported")
    value = importer.value(node, 0)
    if node.op == "GlobalMaxPool":
        return _greatest(importer, node, value, range(2, len(value.shape)), True)
    found, _ = axes(node, value, tuple(node.attributes["kernel_shape"]))
    shape = (*value.shape[:2], *(a.outputs for a in found))
    if (real := maximum(importer, node, value, found)) is not None:
        return real
    return _maximum(importer, node, value, lambda view: images(importer, node, view), two(found), shape)


@imports("ReduceMax")
def _reduce_max(importer: Importer, node: OnnxNode) -> Value:
    value = importer.value(node, 0)
    chosen = reduced_axes(importer, node, len(value.shape))
    if chosen is None:
        return value
    return _greatest(importer, node, value, chosen, bool(node.attributes.get("keepdims", 1)))


def _greatest(importer: Importer, node: OnnxNode, value: Value, chosen: Sequence[int], keep: bool) -> Value:
    """The maxima over axes, each as a window that covers an image of one row."""
    rest = [a for a in range(len(value.shape)) if a not in chosen]
    kept, count = [value.shape[a] for a in rest], math.prod(value.shape[a] for a in chosen)
    shape = tuple(1 if a in chosen else s for a, s in enumerate(value.shape)) if keep else tuple(kept)

    def flat(view: View) -> View:
        return importer.reshaped(node, transposed(view, (*rest, *chosen)), (1, math.prod(kept), 1, count))

    return _maximum(importer, node, value, flat, (Axis(1, 1), Axis(count, count)), shape)


def _maximum(
    importer: Importer,
    node: OnnxNode,
    value: Value,
    image_of: Callable[[View], View],
    window: tuple[Axis, Axis],
    shape: tuple[int, ...],
) -> Value:
    windows = steps(*window)

    def pooled(view: View, element: str, name: str, nodes: tuple[str, ...]) -> View:
        image = image_of(view)
        for number, (rows, cols) in enumerate(windows, start=1):
            hint = name if number == len(windows) else f"{name}.part"
            output = importer.tensor(hint, (*image.shape[:2], rows.outputs, cols.outputs), element)
            own = node.name if number == len(windows) else f"{node.name}, part {number}"
            importer.operators.append(MaxPool(own, node.op, nodes, output, image, element, rows, cols))
            image = output
        return importer.reshaped(node, image, shape)

    if not is_real(value):
        stored = importer.stored(node, 0, BYTES)
        return Stored(pooled(stored.view, stored.element, node.outputs[0], (node.name,)), stored.element)
    if isinstance(value, Dequantised) and value.element in BYTES and value.uniform:
        view = pooled(value.view, value.element, f"{node.outputs[0]}.whole", (node.name,))
        return dataclasses.replace(value, view=view)

    def make(name: str, grid: Quantisation) -> View:
        view = on_grid(importer, grid.node, value, grid, f"{name}.pixels")
        return pooled(view, grid.element, name, grid.nodes(node))

    return Structured(node, shape, make)
