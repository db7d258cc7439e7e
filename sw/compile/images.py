"""Convolutions as problems of the array: weights times patches of images, or times pixels as stored.

The rows of a tile are output channels. Its columns are pixels of one image: a band of whole output rows, or a
part of one row. If image rows are followed by padding in memory, they are in the buffers of the CGRA too, so
that a channel of a tile is one row of a load or store. The loop of the epilogue skips the padding.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection

from hw.config import MachineConfig
from hw.errors import InputError
from sw.compile.array import ArrayProblem, Homes, Key
from sw.compile.forms import Loop
from sw.compile.memory import Allocation
from sw.compile.operands import Source
from sw.graph.network import Epilogue, ImageConvolution, MatrixProduct, View, word
from sw.graph.views import reshaped
from sw.kernels.access import Follows, TileAccess
from sw.patches import Patches
from sw.tiling.blocking import Extent


def spread(view: View) -> tuple[int, int, int]:
    """Strides from image to image, row to row and channel to channel, in elements; 0 if there is only one."""
    image, channel, row, _ = (s if n > 1 else 0 for n, s in zip(view.shape, view.strides, strict=True))
    return image, row, channel


def joined(view: View) -> View | None:
    """A view of images as [image, channel, pixel]; None if rows do not directly follow each other."""
    images, channels, rows, columns = view.shape
    return reshaped(view, (images, channels, rows * columns))


def follows_of(view: View) -> Follows | None:
    """How an operand [image, channel, row, column] follows channels and pixels; None if no load can do it."""
    flat = joined(view)
    if flat is None:
        return None
    channel, pixel = (s if n > 1 else 0 for n, s in zip(flat.shape[1:], flat.strides[1:], strict=True))
    if pixel == 0:
        return "scalar" if channel == 0 else "row" if channel == 1 else None
    if pixel != 1:
        return None
    return "full" if channel or flat.shape[1] == 1 else "column"


def plain(o: ImageConvolution) -> bool:
    """Whether every patch is one pixel, every pixel is a patch, and pixels are contiguous."""
    flat = joined(o.x)
    one = all((a.kernel, a.stride, a.before, a.after) == (1, 1, 0, 0) for a in (o.rows, o.cols))
    return one and flat is not None and (flat.strides[-1] == 1 or flat.shape[-1] == 1)


def product_of(o: ImageConvolution, padded: Collection[str]) -> MatrixProduct | None:
    """A plain convolution as weights times pixels; None for others, and if rows have padding.

    The batch axes are images, and groups if there are several.
    """
    operands = o.epilogue.operands if o.epilogue else ()
    views = [joined(v) for v in (o.x, o.output, *operands)]
    if not plain(o) or any(v is None or v.tensor in padded for v in views):
        return None
    x, y, *rest = (_grouped(v, o.groups) for v in views if v is not None)
    out, depth = o.w.shape[:2]
    own = o.w.strides[0]
    w = View(o.w.tensor, (o.x.shape[0], out, depth), (0, own, 1), o.w.offset)
    epilogue = Epilogue(o.epilogue.value, tuple(rest)) if o.epilogue else None
    return MatrixProduct(o.name, o.op, o.nodes, y, _grouped(w, o.groups), x, o.zero_w, o.zero_x, epilogue)


def _grouped(view: View, groups: int) -> View:
    """Channels split into groups and channels per group, if there are several groups."""
    if groups == 1:
        return view
    image, channel, pixel = view.strides
    images, channels, pixels = view.shape
    shape = (images, groups, channels // groups, pixels)
    return dataclasses.replace(
        view, shape=shape, strides=(image, channels // groups * channel, channel, pixel)
    )


def widened(p: ArrayProblem) -> ArrayProblem | None:
    """The same convolution with output rows that are multiples of the CGRA's lanes, if gaps can hold them.

    The array computes more outputs than an image has, so that the loop of the epilogue can use lanes.
    """
    o, lanes = p.operator, p.config.cgra.lanes if p.config.cgra is not None else 1
    if not isinstance(o, ImageConvolution) or o.epilogue is None or p.direct or not p.images:
        return None
    more = -o.cols.outputs % lanes
    apart = p.images.values()
    fits = p.images["result"] >= o.cols.outputs + more and all(step % lanes == 0 for step in apart)
    columns = any(s.access.follows == "column" for s in p.sources.values())
    return convolution_problem(o, p.homes, p.config, more) if more and fits and not columns else None


def convolution_problem(
    o: ImageConvolution, homes: Homes, config: MachineConfig, more: int = 0
) -> ArrayProblem:
    """The convolution as the array executes it, with `more` extra outputs after each output row.

    Raises `InputError` for views that no load or store can address, and if the machine cannot form patches.
    """
    images, (out, depth, *_) = o.x.shape[0], o.w.shape
    cols = dataclasses.replace(o.cols, after=o.cols.after + more * o.cols.stride)
    patches, rows = Patches(o.rows, cols, depth), out // o.groups
    pixels = o.rows.outputs * o.cols.outputs
    extent = Extent(
        rows, patches.outputs, depth * patches.kernel, batch=o.groups * images, images=images, patches=patches
    )
    direct = plain(o) and homes[o.x.tensor].dense
    if not direct and (needed := config.lacks("load_b_conv")):
        raise InputError(f"{o.name}: {config.name!r} forms no image patches; this needs {needed}")
    image, row, channel = spread(o.x)
    weights = View(o.w.tensor, (rows, extent.k), (extent.k, 1), o.w.offset)
    views: dict[Key, View] = {"a": weights}
    if direct:
        views["b"] = View(o.x.tensor, (depth, pixels), (channel or pixels, 1), o.x.offset)
    else:
        views["b"] = View(o.x.tensor, (depth, *o.x.shape[2:]), (channel, row, 1), o.x.offset)
    moves: dict[Key, dict[str, int]] = {
        "a": {"group": rows * extent.k},
        "b": {"group": depth * channel, "image": image} | ({"row": o.cols.outputs} if direct else {}),
        # Records cover all groups.
        "rows": {"group": rows},
    }
    operands = dict(enumerate(o.epilogue.operands if o.epilogue else (), 1))
    results: list[tuple[Key, View]] = [("c", o.output), *operands.items()]
    for key, view in results:
        flat = joined(view)
        if flat is None:
            raise InputError(f"{o.name}: rows of images in {view.tensor!r} must be contiguous")
        image, channel, pixel = flat.strides
        views[key] = View(view.tensor, (rows, pixels), (channel, pixel), view.offset)
        moves[key] = {"group": rows * channel, "image": image, "row": o.cols.outputs * pixel}
    sources = {k: _source(o, v, views[k], homes[v.tensor]) for k, v in operands.items()}
    return ArrayProblem(
        *(o, config, homes, extent, views, moves, (Loop("group", o.groups),), sources),
        *((o.zero_w, o.zero_x), direct, _row_steps(o, homes, sources)),
    )


def _source(o: ImageConvolution, whole: View, view: View, home: Allocation) -> Source:
    """An operand of the epilogue; constants per channel become records."""
    how = follows_of(whole)
    if how is None:
        raise InputError(f"{o.name}: an operand in {view.tensor!r} must be contiguous, or follow channels")
    if how == "row" and home.tensor.constant is not None and not (spread(whole)[0]):
        channels = View(view.tensor, (whole.shape[1], 1), (whole.strides[1], 0), view.offset)
        return Source(channels, TileAccess("scratch", "int32", "row", record=True), home)
    return Source(view, TileAccess("scratch", word(home.tensor.element), how), home)


def _row_steps(o: ImageConvolution, homes: Homes, sources: dict[int, Source]) -> dict[Key, int]:
    """Elements from one output row to the next, for result and operands; empty if none has gaps."""
    length, pixels = o.cols.outputs, o.rows.outputs * o.cols.outputs
    found: dict[Key, int] = {}
    images: list[tuple[Key, str]] = [("result", o.output.tensor)]
    images += [(k, s.view.tensor) for k, s in sources.items() if s.access.follows == "full"]
    for key, tensor in images:
        home = homes[tensor]
        gapped = not home.dense and home.row % pixels != 0
        found[key] = home.pitch // home.itemsize if gapped else length
    return found if o.rows.outputs > 1 and any(step != length for step in found.values()) else {}
