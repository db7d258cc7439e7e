"""Convolutions: ConvInteger, and Conv of dequantised operands.

Patches can be loaded from images whose rows and channels are multiples of the port's word apart. Otherwise
the tensor gets padding after its rows (`lines`), or a copy has it.
"""

from __future__ import annotations

import dataclasses
import math
from collections import defaultdict
from collections.abc import Mapping

import numpy as np

from hw.config import MachineConfig
from hw.errors import InputError, UnwritableError, refusals_ignored
from sw.compile.array_tiles import lowered
from sw.compile.bands import in_bands
from sw.compile.images import convolution_problem, follows_of, joined, plain, spread, widened
from sw.compile.memory import Lines
from sw.compile.writer import row_compatible
from sw.frontend.importer import Importer
from sw.frontend.node import OnnxNode
from sw.frontend.quantised import BYTES, dequantised_operand
from sw.frontend.sums import WORD
from sw.frontend.values import Dequantised, Stored, Value
from sw.frontend.windows import axes, images, two
from sw.graph.expression import Argument
from sw.graph.network import Epilogue, ImageConvolution, MatrixProduct, Network, Operator, Tensor, View, dense
from sw.graph.requantise import apply
from sw.graph.views import broadcast, reshaped, same_places, sliced
from sw.layout import round_up
from sw.operators.copies import Copies
from sw.operators.elementwise.reals import combined
from sw.operators.places import FILL, assembled
from sw.operators.products import Bytes, Side, constant_along, depths, greatest_sum, part_of, scales
from sw.operators.registry import LoweredOperator, LoweringContext, imports, legalise, lower, takes_padding
from sw.operators.shapes import moved, places_of
from sw.operators.zero_points import Zeros, at_edges, deepened, zero_points, zeros
from sw.patches import Axis

#: A longer one-row kernel is multiplied with windows instead, since its patches fit no tile.
LONG = 128
#: Bands of rows must reduce the predicted cycles of output-channel tiles to this fraction.
WORTH = 0.9


def _convolved(
    importer: Importer, node: OnnxNode, x: Bytes, w: Bytes, zero_x: int, zero_w: Zeros
) -> tuple[Stored, int]:
    """The convolution of images with weights, int32, and the largest magnitude of a sum without wrapping."""
    if len(w.shape) != len(x.shape):
        raise node.error(f"weights must have {len(x.shape)} axes like the images, not {len(w.shape)}")
    found, _ = axes(node, x, w.shape[2:])
    groups = int(node.attributes.get("group", 1))
    if groups < 1 or w.shape[1] * groups != x.shape[1] or w.shape[0] % groups:
        raise node.error(
            f"channels of the images must be group ({groups}) times those of the weights ({w.shape[1]}), "
            f"not {x.shape[1]}; output channels ({w.shape[0]}) a multiple of group"
        )
    rows, cols = two(found)
    image, weights = images(importer, node, x.view), images(importer, node, w.view)
    hint = node.outputs[0]

    def sums(kernel: View, zero: int, name: str) -> View:
        output = importer.tensor(name, (x.shape[0], kernel.shape[0], rows.outputs, cols.outputs), "int32")
        if cols.kernel > LONG and rows == Axis(1, 1):
            _as_products(importer, node, image, kernel, output, cols, groups, zero_x, zero)
            return output
        importer.operators.append(
            ImageConvolution(
                node.name, node.op, (node.name,), output, image, kernel, rows, cols, groups, zero_x, zero
            )
        )
        return output

    total = sums(weights, zero_w.base, f"{hint}.sum")
    depth = tuple(range(1, len(weights.shape)))
    zero = zero_w.all(importer)
    if zero is not None and zero.size > 1:
        zero = zero.reshape(-1, *(1,) * (len(weights.shape) - 1))
    limit = greatest_sum(
        importer, Side(weights, w.element, zero, depth), Side(image, x.element, np.asarray(zero_x), ())
    )
    if zero_w.more is not None:
        # The sum of (w' - dw) x' is the sum of w' x' minus dw times the sum of the window.
        channels = 1 if groups == 1 else w.shape[0]
        ones = importer.constant(np.ones((channels, *weights.shape[1:]), np.int8), f"{hint}.ones")
        windows = sums(ones, 0, f"{hint}.windows")
        value = apply("sub", Argument(0), apply("mul", Argument(1), Argument(2)))
        operands, name = (total, zero_w.more, windows), f"{hint}.corrected"
        total = importer.elementwise(node, value, operands, total.shape, "int32", name).view
    shape = (x.shape[0], w.shape[0], *(axis.outputs for axis in found))
    return Stored(importer.reshaped(node, total, shape), "int32"), limit


def _as_products(
    importer: Importer,
    node: OnnxNode,
    image: View,
    kernel: View,
    output: View,
    axis: Axis,
    groups: int,
    zero_x: int,
    zero_w: int,
) -> None:
    """A 1-D convolution as products of the weights and windows that overlap in memory."""
    if axis.before or axis.after:
        element, around = importer.tensors[image.tensor].element, (axis.before, axis.after)
        places = np.arange(math.prod(image.shape)).reshape(image.shape)
        places = np.pad(places, [(0, 0)] * 3 + [around], constant_values=FILL)
        name = f"{node.outputs[0]}.padded"
        image = assembled(importer, node, [image], places, element, name, zero_x)
    depth, filters = kernel.shape[1], kernel.shape[0] // groups
    for group in range(groups):
        part = sliced(image, 1, group * depth, depth)
        step = part.strides[3]
        strides = (*part.strides[:2], step * axis.dilation, step * axis.stride)
        windows = View(part.tensor, (*part.shape[:2], axis.kernel, axis.outputs), strides, part.offset)
        shape = (image.shape[0], depth * axis.kernel, axis.outputs)
        b = importer.reshaped(node, windows, shape)
        own = sliced(kernel, 0, group * filters, filters)
        a = importer.reshaped(node, own, (1, filters, depth * axis.kernel))
        a = broadcast(a, (image.shape[0], *a.shape[1:]))
        target = reshaped(sliced(output, 1, group * filters, filters), (*shape[:1], filters, axis.outputs))
        assert target is not None
        importer.operators.append(
            MatrixProduct(node.name, node.op, (node.name,), target, a, b, zero_w, zero_x)
        )


@imports("ConvInteger")
def _conv_integer(importer: Importer, node: OnnxNode) -> Value:
    x, w = importer.stored(node, 0, BYTES), importer.stored(node, 1, BYTES)
    zero_x = zero_points(importer, node, 2, x, (1,), lambda z: z.reshape(()))
    shape = (w.shape[0], 1, 1, 1)
    zero_w = zero_points(importer, node, 3, w, shape, lambda z: z.reshape(-1, 1, 1) if z.size > 1 else z)
    given = zero_w.array(importer)
    if given is not None and at_edges(importer, node, x, w):
        given = given.reshape(-1, *(1,) * (len(w.shape) - 1))
        w, zero_w, x = deepened(importer, node, w, given, 1, x, 1, x.shape[1] // w.shape[1])
    total, _ = _convolved(importer, node, x, w, zero_x.base, zero_w)
    return total if zero_x.more is None else _less_zero(importer, node, total, x, w, zero_w, zero_x.more)


def _less_zero(
    importer: Importer, node: OnnxNode, total: Stored, x: Bytes, w: Bytes, zero_w: Zeros, zero_x: View
) -> Stored:
    """Correction for a computed zero point of the images: its product with the weights that meet pixels.

    Pixels outside the image equal the zero point, so their products are 0.
    """
    held, zero = importer.array(w.view), zero_w.all(importer)
    if held is None or zero is None:
        raise node.error("weights must be constants where the zero point of the images is computed")
    rows, cols = two(axes(node, x, w.shape[2:])[0])
    less = held.astype(np.int64) - zero.reshape(-1, *(1,) * (len(w.shape) - 1))
    # The weights of all channels of a group meet pixels at the same positions.
    kernel = less.sum(axis=1).reshape(w.shape[0], rows.kernel, cols.kernel)
    met = np.einsum("mrc,ra,cb->mab", kernel, _inside(rows), _inside(cols)).astype(np.int32)
    if np.all(met == met[:, :1, :1]):
        met = met[:, :1, :1]
    if len(x.shape) == 3:
        met = met[:, 0]
    known = importer.constant(met, f"{node.outputs[0]}.met")
    value = apply("sub", Argument(0), apply("mul", Argument(1), Argument(2)))
    operands = (total.view, zero_x, known)
    return importer.elementwise(node, value, operands, total.shape, "int32", f"{node.outputs[0]}.less")


def _inside(axis: Axis) -> np.ndarray:
    """By kernel position and output: whether it meets a pixel of the image."""
    place = np.arange(axis.kernel)[:, None] * axis.dilation + np.arange(axis.outputs) * axis.stride
    return ((place >= axis.before) & (place < axis.before + axis.size)).astype(np.int64)


@imports("Conv")
def _conv(importer: Importer, node: OnnxNode) -> Value:
    kernel = importer.value(node, 1)
    x = dequantised_operand(importer, node, importer.value(node, 0), "the images")
    w = dequantised_operand(importer, node, kernel, "the weights")
    if not x.uniform:
        raise node.error("the images must have one scale and one zero point")
    scale, zero = (
        constant_along(
            node,
            values,
            w.shape,
            range(1, len(w.shape)),
            f"{what} of the weights must differ by output channel only",
        )
        for values, what in ((w.scale, "scales"), (w.zero, "zero points"))
    )
    more = zeros(importer, zero, node.outputs[0], lambda z: z.reshape(-1, 1, 1))
    result = _real(importer, node, x, w, more, scale)
    if not node.optional(2):
        return result
    bias = importer.value(node, 2)
    bias = moved(importer, node, bias, places_of(bias).reshape(-1, *(1,) * (len(x.shape) - 2)))
    return combined(importer, node, "Add", [result, bias])


def _real(
    importer: Importer, node: OnnxNode, x: Dequantised, w: Dequantised, zero_w: Zeros, scale: np.ndarray
) -> Value:
    """The convolution with weights with these zero points and scales, split into parts if sums are large."""
    scale = scales(importer, x.scale.reshape(()), scale)
    zero_x = int(x.zero.item())

    def made(images: Dequantised, weights: Dequantised) -> tuple[Dequantised, int]:
        total, limit = _convolved(importer, node, images, weights, zero_x, zero_w)
        form = (-1, *(1,) * (len(total.shape) - 2))
        wide = np.broadcast_to(scale.reshape(form), total.shape) if scale.size > 1 else scale.reshape(())
        return Dequantised(total.view, "int32", wide, np.asarray(0), min(limit, WORD)), limit

    before = len(importer.operators)
    total, limit = made(x, w)
    reaches = [Side(v.view, v.element, v.zero, ()).reach for v in (x, w)]
    channels = w.shape[1]
    parts = depths(node, limit, channels, math.prod(reaches) * math.prod(w.shape[2:]))
    if len(parts) == 1:
        return total
    if channels != x.shape[1]:
        raise node.error(
            f"sums of products reach {limit}, more than {WORD}, in groups of {channels} channels"
        )
    del importer.operators[before:]
    pieces = [made(part_of(x, 1, *p), part_of(w, 1, *p))[0] for p in parts]
    named = dataclasses.replace(node, inputs=tuple(piece.view.tensor for piece in pieces))
    return combined(importer, named, "Sum", pieces)


def lines(network: Network, config: MachineConfig) -> dict[str, Lines]:
    """The row layout of images whose patches are loaded: unaligned rows get padding after them.

    The padding of a convolution before a row falls into the same word of the port, which saves a beat.
    """
    found: dict[str, Lines] = {}
    width = config.load_b_bytes
    for o in network.operators:
        if isinstance(o, ImageConvolution) and not plain(o) and config.convolutions:
            tensor = network.tensors[o.x.tensor]
            row = row_bytes(tensor)
            known = found.get(tensor.name, Lines(row))
            pitch = max(known.pitch, row if _aligned(o.x, config) else round_up(row, width))
            found[tensor.name] = Lines(pitch, max(known.start, o.cols.before % width))
    return found | _for_lanes(network, config, found)


def _for_lanes(network: Network, config: MachineConfig, padded: Mapping[str, Lines]) -> dict[str, Lines]:
    """Rows of pixels that are also loaded as patches, so that the array can compute multiples of the lanes.

    That pays if the result has padding after its rows, and the CGRA is slower than the array.
    """
    lanes, width = config.cgra.lanes if config.cgra is not None else 1, config.load_b_bytes
    uses: dict[str, list[tuple[Operator, View]]] = defaultdict(list)
    for o in network.operators if lanes > 1 and config.convolutions else ():
        for view in (*o.inputs, o.output):
            uses[view.tensor].append((o, view))
    found: dict[str, Lines] = {}
    for o in reversed(network.operators if uses else ()):
        if (
            not isinstance(o, ImageConvolution)
            or not plain(o)
            or o.epilogue is None
            or not o.cols.outputs % lanes
        ):
            continue
        tensor, result = network.tensors[o.x.tensor], network.tensors[o.output.tensor]
        gaps = {**padded, **found}.get(result.name)
        slow = o.w.shape[1] < config.rows * config.cols
        if slow and gaps is not None and gaps.pitch > row_bytes(result) and tensor.name not in padded:
            row = tensor.shape[-1]
            if _of_rows(o.x, row) and all(takes_padding(u, view, row) for u, view in uses[tensor.name]):
                found[tensor.name] = Lines(round_up(row_bytes(tensor), width))
    return found


def row_bytes(tensor: Tensor) -> int:
    """Bytes of a row."""
    return tensor.shape[-1] * np.dtype(tensor.element).itemsize


def _aligned(view: View, config: MachineConfig) -> bool:
    """Whether patches can be loaded from images in a tensor without padding."""
    _, row, channel = spread(view)
    whole_rows = row == 0 or channel % row == 0
    return row % config.load_b_bytes == 0 and channel % config.load_b_bytes == 0 and whole_rows


@legalise.register
def _(o: ImageConvolution, copies: Copies) -> None:
    x = o.x if plain(o) or _loadable(o.x, copies) else copies.copy(o, o.x, "images")
    contiguous = same_places(o.w, dataclasses.replace(o.w, strides=dense(o.w.shape)))
    w = o.w if contiguous else copies.copy(o, o.w, "weights")
    made = dataclasses.replace(o, x=x, w=w)
    if o.epilogue is not None:
        operands = tuple(
            v if follows_of(v) is not None else copies.copy(o, v, f"operand {i + 1}")
            for i, v in enumerate(o.epilogue.operands)
        )
        made = dataclasses.replace(made, epilogue=Epilogue(o.epilogue.value, operands))
    flat = joined(o.output)
    copies.append(made, flat is not None and (flat.strides[-1] == 1 or flat.shape[-1] == 1))


def _loadable(view: View, copies: Copies) -> bool:
    """Whether patches can be loaded from a view, for the padding after the rows of its tensor."""
    if view.strides[3] != 1 and view.shape[3] > 1:
        return False
    if _aligned(view, copies.config):
        return True
    rows = copies.source.tensors[view.tensor].shape[-1]
    return _of_rows(view, rows) and all(
        takes_padding(o, other, rows) for o, other in copies.uses[view.tensor]
    )


def _of_rows(view: View, rows: int) -> bool:
    """Whether image rows are rows of their tensor, which have this many elements."""
    _, row, channel = spread(view)
    return not (row % rows or channel % rows or (row and channel % row))


@takes_padding.register
def _(operator: ImageConvolution, view: View, row: int) -> bool:
    # The epilogue's operands are loaded segment by segment only as whole images.
    images = view in (operator.x, operator.output)
    return row_compatible(view, row) and (images or follows_of(view) == "full")


@lower.register
def _(operator: ImageConvolution, context: LoweringContext) -> LoweredOperator:
    """Raises `InputError` for views that no load or store can address, and if no tile fits."""
    problem, allowed = convolution_problem(operator, context.homes, context.config), context.allowed
    # Given blockings and later choices are tiles of output channels.
    given = operator.output.tensor in (allowed.blockings or {}) or allowed.skip
    bands = in_bands(problem, context.room, allowed) if allowed.bands and not given else None
    try:
        made = lowered(problem, context.room, allowed)
        if (wider := widened(problem)) is not None:
            # Its tiles may be too large.
            with refusals_ignored():
                made = min(made, lowered(wider, context.room, allowed), key=lambda found: found.time)
    except UnwritableError:
        raise
    except InputError:
        if bands is None:
            raise
        return bands[1]
    return bands[1] if bands is not None and bands[0] < WORTH * made.time else made
