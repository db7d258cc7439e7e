"""Views of images [image, channel, row, column] as the tiles of convolutions see them."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection

from sw.graph.network import Epilogue, ImageConvolution, MatrixProduct, View
from sw.kernels.access import Follows


def spread(view: View) -> tuple[int, int, int]:
    """Elements from image to image, row to row and channel to channel; 0 where there is only one."""
    image, channel, row, _ = (s if n > 1 else 0 for n, s in zip(view.shape, view.strides, strict=True))
    return image, row, channel


def joined(view: View) -> View | None:
    """A view of images as [image, channel, pixel]; None where rows do not go on where rows end."""
    images, channels, rows, columns = view.shape
    image, channel, row, column = view.strides
    if rows > 1 and columns > 1 and row != columns * column:
        return None
    step = column if columns > 1 else row if rows > 1 else 1
    return View(view.tensor, (images, channels, rows * columns), (image, channel, step), view.offset)


def follows_of(view: View) -> Follows | None:
    """How an operand [image, channel, row, column] follows channels and pixels; None: no load brings it."""
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
    """Whether every patch is one pixel and every pixel a patch, and pixels follow each other."""
    flat = joined(o.x)
    one = all((a.kernel, a.stride, a.before, a.after) == (1, 1, 0, 0) for a in (o.rows, o.cols))
    return one and flat is not None and (flat.strides[-1] == 1 or flat.shape[-1] == 1)


def product_of(o: ImageConvolution, padded: Collection[str]) -> MatrixProduct | None:
    """A plain convolution as weights times pixels; None for others, and where rows have padding.

    The batch axes are images, and groups where there are several.
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
    """Channels as groups and channels of a group, where there are several groups."""
    if groups == 1:
        return view
    image, channel, pixel = view.strides
    images, channels, pixels = view.shape
    shape = (images, groups, channels // groups, pixels)
    return dataclasses.replace(
        view, shape=shape, strides=(image, channels // groups * channel, channel, pixel)
    )
