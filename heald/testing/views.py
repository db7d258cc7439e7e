"""Operators of random models that move elements, and operators on images."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from heald.testing.models import MICROSOFT, MOST_ELEMENTS, MOST_MACS, Draw, Held, Kind, linear, need
from sw.patches import Axis


def transpose(d: Draw) -> None:
    """A permutation of axes."""
    x = d.ranked(2)
    order = list(range(len(x.shape)))
    d.r.shuffle(order)
    d.view("Transpose", x, [x.shape[a] for a in order], perm=order)


def reshape(d: Draw) -> None:
    """A reshape to other axes with the same elements."""
    x = d.ranked(1)
    how = d.r.choice(["reshape", "flatten", "unsqueeze"])
    if how == "flatten":
        axis = d.r.randint(0, len(x.shape))
        d.view("Flatten", x, (math.prod(x.shape[:axis]), math.prod(x.shape[axis:])), axis=axis)
    elif how == "unsqueeze" and len(x.shape) < 4:
        axis = d.r.randint(0, len(x.shape))
        d.view("Unsqueeze", x, (*x.shape[:axis], 1, *x.shape[axis:]), [axis])
    else:
        left, sizes = x.elements, []
        for _ in range(d.r.randint(0, 3)):
            sizes.append(d.r.choice([n for n in range(1, left + 1) if left % n == 0]))
            left //= sizes[-1]
        sizes.append(left)
        d.view("Reshape", x, sizes, sizes)


def slices(d: Draw) -> None:
    """A slice of some axes, with steps of any sign."""
    x = d.ranked(1)
    shape, parts = list(x.shape), []
    for axis in d.r.sample(range(len(shape)), d.r.randint(1, min(2, len(shape)))):
        size = shape[axis]
        step = d.r.choice([1, 1, 2, 3, -1, -2])
        first, last = sorted((d.r.randrange(size), d.r.randrange(size)))
        start, end = (first, last + 1) if step > 0 else (last, first - 1 if first else -size - 1)
        parts.append((start, end, axis, step))
        shape[axis] = (last - first) // abs(step) + 1
    d.view("Slice", x, shape, *zip(*parts, strict=True))


def split(d: Draw) -> None:
    """A split of an axis into two parts."""
    x = d.ranked(1)
    axis = d.r.randrange(len(x.shape))
    need(x.shape[axis] > 1)
    first = d.r.randint(1, x.shape[axis] - 1)
    sizes = [first, x.shape[axis] - first]
    names = d.b.ops("Split", d.read(x), d.b.constant(sizes, np.int64), count=2, axis=axis)
    for name, size in zip(names, sizes, strict=True):
        d.named(x, name, [size if a == axis else s for a, s in enumerate(x.shape)])


def concat(d: Draw) -> None:
    """A concatenation of tensors, with the same grid or converted to one."""
    x = d.ranked(1)
    axis = d.r.randrange(len(x.shape))

    def fits(h: Held) -> bool:
        beside = h.shape[:axis] == x.shape[:axis] and h.shape[axis + 1 :] == x.shape[axis + 1 :]
        return beside and len(h.shape) == len(x.shape) and h.element == x.element

    parts = [x, *(d.r.choice(list(filter(fits, d.pool))) for _ in range(d.r.randint(1, 2)))]
    total = sum(p.shape[axis] for p in parts)
    need(total * x.elements // x.shape[axis] <= MOST_ELEMENTS)
    shape = [total if a == axis else s for a, s in enumerate(x.shape)]
    scale = max(p.scale for p in parts)
    how = d.r.choice(["plain", "linear", "real"])
    if how == "plain":
        d.named(x, d.b.op("Concat", *(d.read(p) for p in parts), axis=axis), shape)
    elif how == "linear":
        y = d.out(shape, scale, x.element)
        d.linear("QLinearConcat", y, y, *parts, domain=MICROSOFT, axis=axis)
    else:
        d.quantised(d.b.op("Concat", *(d.real(p) for p in parts), axis=axis), shape, scale)


def gather(d: Draw) -> None:
    """A gather of one element of an axis (which is dropped), or of repeated elements."""
    x = d.ranked(1)
    axis = d.r.randrange(len(x.shape))
    if d.chance(0.6):
        index = d.b.constant(d.r.randrange(x.shape[axis]), np.int64)
        shape = (*x.shape[:axis], *x.shape[axis + 1 :])
        d.named(x, d.b.op("Gather", d.read(x), index, axis=axis), shape)
        return
    times = d.r.randint(2, 4)
    need(x.elements * times * 3 <= MOST_ELEMENTS)
    ones = [a for a, n in enumerate(x.shape) if n == 1]
    if ones and d.chance(0.7):
        axis = d.r.choice(ones)
        form = [times * 3 if a == axis else n for a, n in enumerate(x.shape)]
        d.view("Expand", x, form, form)
    elif len(x.shape) < 4:
        d.view("Expand", x, (times, *x.shape), (times, *x.shape))
    else:
        wide = d.b.op("Expand", d.read(x), d.b.constant((times, *x.shape), np.int64))
        flat = d.b.op("Reshape", wide, d.b.constant((-1, *x.shape[1:]), np.int64))
        d.named(x, flat, (times * x.shape[0], *x.shape[1:]))


def space(d: Draw) -> None:
    """Depth to space, or space to depth."""
    block = d.r.choice([2, 3])

    def make() -> tuple[int, ...]:
        return (1, block**2 * d.r.randint(1, 3), block * d.r.randint(1, 8), block * d.r.randint(1, 8))

    def fits(h: Held) -> bool:
        return len(h.shape) == 4 and h.shape[2] % block == h.shape[3] % block == h.shape[1] % block**2 == 0

    x = d.pick(fits, make)
    images, channels, rows, columns = x.shape
    if d.chance(0.5):
        shape = (images, channels * block**2, rows // block, columns // block)
        d.view("SpaceToDepth", x, shape, blocksize=block)
    else:
        shape = (images, channels // block**2, rows * block, columns * block)
        d.view("DepthToSpace", x, shape, blocksize=block, mode=d.r.choice(["DCR", "CRD"]))


def pad(d: Draw) -> None:
    """Padding."""
    x = d.ranked(1)
    rank = len(x.shape)
    pads = [d.r.choice([0, 0, 1, d.r.randint(0, 5)]) for _ in range(2 * rank)]
    shape = [s + pads[a] + pads[rank + a] for a, s in enumerate(x.shape)]
    need(math.prod(shape) <= MOST_ELEMENTS)
    d.named(x, d.b.op("Pad", d.read(x), d.b.constant(pads, np.int64), x.grid[1]), shape)


def moves(d: Draw) -> None:
    """Elements moved to other places, some of them several times."""
    x = d.ranked(2)
    axis = d.r.randrange(len(x.shape))
    how = d.r.choice(["edge", "reflect", "wrap", "gather", "tile", "nearest"])
    if how in ("edge", "reflect", "wrap"):
        most = [s - 1 if how == "reflect" else min(s, 4) for s in x.shape]
        pads = [d.r.randint(0, max(0, m)) for m in (*most, *most)]
        shape = [s + pads[a] + pads[len(most) + a] for a, s in enumerate(x.shape)]
        need(math.prod(shape) <= MOST_ELEMENTS)
        d.named(x, d.b.op("Pad", d.read(x), d.b.constant(pads, np.int64), mode=how), shape)
        return
    times = d.r.randint(2, 3)
    need(x.elements * times <= MOST_ELEMENTS)
    if how == "gather":
        count = d.r.randint(1, 6)
        indices = [d.r.randrange(x.shape[axis]) for _ in range(count)]
        need(x.elements // x.shape[axis] * count <= MOST_ELEMENTS)
        name = d.b.op("Gather", d.read(x), d.b.constant(indices, np.int64), axis=axis)
        d.named(x, name, [count if a == axis else s for a, s in enumerate(x.shape)])
        return
    form = [times if a == axis else 1 for a in range(len(x.shape))]
    shape = [s * n for s, n in zip(x.shape, form, strict=True)]
    if how == "tile":
        d.named(x, d.b.op("Tile", d.read(x), d.b.constant(form, np.int64)), shape)
        return
    place = d.r.choice(["half_pixel", "asymmetric", "align_corners"])
    given = d.b.constant(shape, np.int64)
    name = d.b.op("Resize", d.read(x), "", "", given, coordinate_transformation_mode=place)
    d.named(x, name, shape)


def where(d: Draw) -> None:
    """A choice between two tensors by a constant condition."""
    x = d.ranked(1)
    y = d.r.choice([h for h in d.pool if h.shape == x.shape])
    form = [1 if d.chance(0.4) else s for s in x.shape]
    condition = d.b.constant(d.b.rng.integers(0, 2, form) > 0)
    d.quantised(d.b.op("Where", condition, d.real(x), d.real(y)), x.shape, max(x.scale, y.scale))


# Images


def _image(d: Draw) -> Held:
    def make() -> tuple[int, ...]:
        if d.r.choice((3, 4)) == 3:
            return (d.r.randint(1, 2), d.r.randint(1, 12), d.r.randint(1, 200))
        most = math.isqrt(MOST_ELEMENTS // 2 // 6)
        return (d.r.randint(1, 2), d.r.randint(1, 6), d.r.randint(1, most), d.r.randint(1, most))

    return d.pick(lambda h: len(h.shape) in (3, 4) and h.elements <= MOST_ELEMENTS, make)


def _window(d: Draw, x: Held, dilated: bool) -> tuple[list[Axis], dict[str, Any]]:
    """The axes of a window that fits, and its attributes."""
    axes = []
    for size in x.shape[2:]:
        kernel = d.r.choice([1, 2, 3, 3, 5])
        dilation = d.r.choice([1, 1, 2]) if dilated else 1
        before, after = (d.r.choice([0, 0, kernel // 2, d.r.randint(0, kernel - 1)]) for _ in range(2))
        axis = Axis(size, kernel, 1, before, after, dilation)
        axes.append(replace(axis if axis.outputs > 0 else Axis(size, 1), stride=d.r.choice([1, 1, 2, 3])))
    made: dict[str, Any] = {
        "kernel_shape": [a.kernel for a in axes],
        "strides": [a.stride for a in axes],
        "pads": [a.before for a in axes] + [a.after for a in axes],
    }
    return axes, made | ({"dilations": [a.dilation for a in axes]} if dilated else {})


def conv(d: Draw) -> None:
    """A convolution, with or without groups, strides, padding, dilation and bias."""
    x = _image(d)
    axes, window = _window(d, x, True)
    channels, kernel, pixels = x.shape[1], [a.kernel for a in axes], [a.outputs for a in axes]
    groups = d.r.choice([n for n in range(1, channels + 1) if channels % n == 0] + [1, 1])
    depth = channels // groups * math.prod(kernel)
    count = x.shape[0] * math.prod(pixels)
    most = min(MOST_ELEMENTS // count, MOST_MACS // (count * depth)) // groups
    need(most > 0)
    outputs = groups * d.r.randint(1, min(most, 16))
    w = d.weights((outputs, channels // groups, *kernel), 0)
    bias = d.integers(outputs, 9999) if d.chance(0.6) else ""
    shape, scale = (x.shape[0], outputs, *pixels), d.spread(depth, x, w)
    if d.chance(0.5) and linear(x, w):
        y = d.out(shape, scale, x.element)
        d.linear("QLinearConv", y, x, w, y, bias, group=groups, **window)
        return
    real = [d.real(x), d.real(w), *([d.bias(bias, x, w)] if bias else [])]
    value = d.b.op("Conv", *real, group=groups, **window)
    d.quantised(d.b.op("Relu", value) if d.chance(0.4) else value, shape, scale)


def pool(d: Draw) -> None:
    """Max or average pooling."""
    x = _image(d)
    axes, window = _window(d, x, False)
    need(all(max(a.before, a.after) < a.kernel for a in axes))
    shape = (*x.shape[:2], *(a.outputs for a in axes))
    how = d.r.choice(["max", "max", "real", "average", "average"])
    if how == "max" and len(x.shape) == 4:
        d.view("MaxPool", x, shape, **window)
    elif how in ("max", "real"):
        d.quantised(d.b.op("MaxPool", d.real(x), **window), shape, x.scale * d.r.uniform(0.7, 1.3))
    else:
        window["count_include_pad"] = d.r.randint(0, 1)
        d.quantised(d.b.op("AveragePool", d.real(x), **window), shape, x.scale / 2)


def mean(d: Draw) -> None:
    """The mean over the pixels of images, or over any axes."""
    if d.chance(0.5):
        x = _image(d)
        real = d.b.op("GlobalAveragePool", d.real(x))
        d.quantised(real, (*x.shape[:2], *(1 for _ in x.shape[2:])), x.scale / 4)
        return
    x = d.ranked(1)
    axes = sorted(d.r.sample(range(len(x.shape)), d.r.randint(1, len(x.shape))))
    real = d.b.op("ReduceMean", d.real(x), d.b.constant(axes, np.int64), keepdims=1)
    d.quantised(real, [1 if a in axes else s for a, s in enumerate(x.shape)], x.scale / 4)


VIEWS: dict[str, Kind] = {
    f.__name__: f for f in (transpose, reshape, slices, split, concat, gather, space, pad, where, moves)
}
IMAGES: dict[str, Kind] = {f.__name__: f for f in (conv, pool, mean)}
