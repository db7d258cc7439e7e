"""Operators of random models that move elements, and those on images."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from heald.testing.models import (
    MICROSOFT,
    MOST_ELEMENTS,
    MOST_MACS,
    Draw,
    Held,
    Kind,
    UnfitError,
    integers,
    linear,
)


def _some(d: Draw, least: int = 1) -> Held:
    return d.pick(lambda h: len(h.shape) >= least, lambda: d.shape(d.r.randint(least, 4)))


def transpose(d: Draw) -> None:
    """Axes in another order."""
    x = _some(d, 2)
    order = list(range(len(x.shape)))
    d.r.shuffle(order)
    d.named(x, d.b.op("Transpose", d.read(x), perm=order), [x.shape[a] for a in order])


def reshape(d: Draw) -> None:
    """Other axes with the same elements."""
    x = _some(d)
    how = d.r.choice(["reshape", "flatten", "unsqueeze"])
    if how == "flatten":
        axis = d.r.randint(0, len(x.shape))
        shape = (math.prod(x.shape[:axis]), math.prod(x.shape[axis:]))
        d.named(x, d.b.op("Flatten", d.read(x), axis=axis), shape)
    elif how == "unsqueeze" and len(x.shape) < 4:
        axis = d.r.randint(0, len(x.shape))
        name = d.b.op("Unsqueeze", d.read(x), integers([axis], d.b))
        d.named(x, name, (*x.shape[:axis], 1, *x.shape[axis:]))
    else:
        left, sizes = x.elements, []
        for _ in range(d.r.randint(0, 3)):
            sizes.append(d.r.choice([n for n in range(1, left + 1) if left % n == 0]))
            left //= sizes[-1]
        sizes.append(left)
        d.named(x, d.b.op("Reshape", d.read(x), integers(sizes, d.b)), sizes)


def slices(d: Draw) -> None:
    """A part of some axes, with steps of any sign."""
    x = _some(d)
    shape, starts, ends, steps = list(x.shape), [], [], []
    axes = d.r.sample(range(len(shape)), d.r.randint(1, min(2, len(shape))))
    for axis in axes:
        size = shape[axis]
        step = d.r.choice([1, 1, 2, 3, -1, -2])
        first, last = sorted((d.r.randrange(size), d.r.randrange(size)))
        if step < 0:
            starts.append(last)
            ends.append(first - 1 if first else -size - 1)
        else:
            starts.append(first)
            ends.append(last + 1)
        steps.append(step)
        shape[axis] = (last - first) // abs(step) + 1
    given = [integers(v, d.b) for v in (starts, ends, axes, steps)]
    d.named(x, d.b.op("Slice", d.read(x), *given), shape)


def split(d: Draw) -> None:
    """Two parts of an axis."""
    x = _some(d)
    axis = d.r.randrange(len(x.shape))
    if x.shape[axis] < 2:
        raise UnfitError
    first = d.r.randint(1, x.shape[axis] - 1)
    sizes = [first, x.shape[axis] - first]
    names = d.b.ops("Split", d.read(x), integers(sizes, d.b), count=2, axis=axis)
    for name, size in zip(names, sizes, strict=True):
        d.named(x, name, [size if a == axis else s for a, s in enumerate(x.shape)])


def concat(d: Draw) -> None:
    """Tensors behind each other, on the same grid or brought to one."""
    x = _some(d)
    axis = d.r.randrange(len(x.shape))
    parts = [x]
    for _ in range(d.r.randint(1, 2)):
        fit = [
            h
            for h in d.pool
            if len(h.shape) == len(x.shape)
            and h.element == x.element
            and all(a == axis or s == t for a, (s, t) in enumerate(zip(h.shape, x.shape, strict=True)))
        ]
        parts.append(d.r.choice(fit))
    total = sum(p.shape[axis] for p in parts)
    if total * x.elements // x.shape[axis] > MOST_ELEMENTS:
        raise UnfitError
    shape = [total if a == axis else s for a, s in enumerate(x.shape)]
    scale = max(p.scale for p in parts)
    how = d.r.choice(["plain", "linear", "real"])
    if how == "plain":
        d.named(x, d.b.op("Concat", *(d.read(p) for p in parts), axis=axis), shape)
    elif how == "linear":
        y = d.out(shape, scale, x.element)
        given = [part for p in parts for part in (d.read(p), *p.grid)]
        d.named(y, d.b.op("QLinearConcat", *y.grid, *given, domain=MICROSOFT, axis=axis))
    else:
        d.quantised(d.b.op("Concat", *(d.real(p) for p in parts), axis=axis), shape, scale)


def gather(d: Draw) -> None:
    """One element of an axis (which goes), or an axis repeated."""
    x = _some(d)
    axis = d.r.randrange(len(x.shape))
    if d.chance(0.6):
        index = d.b.constant(d.r.randrange(x.shape[axis]), np.int64)
        shape = (*x.shape[:axis], *x.shape[axis + 1 :])
        d.named(x, d.b.op("Gather", d.read(x), index, axis=axis), shape)
        return
    times = d.r.randint(2, 4)
    if x.elements * times * 3 > MOST_ELEMENTS:
        raise UnfitError
    ones = [a for a, n in enumerate(x.shape) if n == 1]
    if ones and d.chance(0.7):
        axis = d.r.choice(ones)
        form = [times * 3 if a == axis else n for a, n in enumerate(x.shape)]
        d.named(x, d.b.op("Expand", d.read(x), integers(form, d.b)), form)
        return
    wide = d.b.op("Expand", d.read(x), integers((times, *x.shape), d.b))
    if len(x.shape) < 4:
        d.named(x, wide, (times, *x.shape))
    else:
        flat = d.b.op("Reshape", wide, integers((-1, *x.shape[1:]), d.b))
        d.named(x, flat, (times * x.shape[0], *x.shape[1:]))


def space(d: Draw) -> None:
    """Pixels as channels, or channels as pixels."""
    block = d.r.choice([2, 3])

    def make() -> tuple[int, ...]:
        return (1, block**2 * d.r.randint(1, 3), block * d.r.randint(1, 8), block * d.r.randint(1, 8))

    def fits(h: Held) -> bool:
        return len(h.shape) == 4 and h.shape[2] % block == h.shape[3] % block == h.shape[1] % block**2 == 0

    x = d.pick(fits, make)
    images, channels, rows, columns = x.shape
    if d.chance(0.5):
        name = d.b.op("SpaceToDepth", d.read(x), blocksize=block)
        d.named(x, name, (images, channels * block**2, rows // block, columns // block))
    else:
        name = d.b.op("DepthToSpace", d.read(x), blocksize=block, mode=d.r.choice(["DCR", "CRD"]))
        d.named(x, name, (images, channels // block**2, rows * block, columns * block))


def pad(d: Draw) -> None:
    """More elements around."""
    x = _some(d)
    pads = [d.r.choice([0, 0, 1, d.r.randint(0, 5)]) for _ in range(2 * len(x.shape))]
    rank = len(x.shape)
    shape = [s + pads[a] + pads[rank + a] for a, s in enumerate(x.shape)]
    if math.prod(shape) > MOST_ELEMENTS:
        raise UnfitError
    value = d.b.constant(x.zero, x.element)
    d.named(x, d.b.op("Pad", d.read(x), integers(pads, d.b), value), shape)


def where(d: Draw) -> None:
    """One of two tensors by a constant condition."""
    x = _some(d)
    y = d.r.choice([h for h in d.pool if h.shape == x.shape])
    form = [1 if d.chance(0.4) else s for s in x.shape]
    condition = d.b.constant(d.b.rng.integers(0, 2, form) > 0)
    d.quantised(d.b.op("Where", condition, d.real(x), d.real(y)), x.shape, max(x.scale, y.scale))


# Images


def _image(d: Draw, axes: tuple[int, ...] = (3, 4)) -> Held:
    def make() -> tuple[int, ...]:
        if d.r.choice(axes) == 3:
            return (d.r.randint(1, 2), d.r.randint(1, 12), d.r.randint(1, 200))
        most = math.isqrt(MOST_ELEMENTS // 2 // 6)
        return (d.r.randint(1, 2), d.r.randint(1, 6), d.r.randint(1, most), d.r.randint(1, most))

    return d.pick(lambda h: len(h.shape) in axes and h.elements <= MOST_ELEMENTS, make)


def _window(d: Draw, x: Held, dilated: bool) -> tuple[dict[str, Any], list[int], list[int]]:
    """Attributes of a window that fits, its kernel, and the shape of the result."""
    kernel, strides, before, after, dilations, shape = [], [], [], [], [], []
    for size in x.shape[2:]:
        k = d.r.choice([1, 2, 3, 3, 5])
        g = d.r.choice([1, 1, 2]) if dilated else 1
        reach = (k - 1) * g + 1
        low, high = (d.r.choice([0, 0, k // 2, d.r.randint(0, k - 1)]) for _ in range(2))
        if size + low + high < reach:
            k, g, low, high, reach = 1, 1, 0, 0, 1
        s = d.r.choice([1, 1, 2, 3])
        kernel.append(k)
        strides.append(s)
        dilations.append(g)
        before.append(low)
        after.append(high)
        shape.append((size + low + high - reach) // s + 1)
    made: dict[str, Any] = {"kernel_shape": kernel, "strides": strides, "pads": before + after}
    if dilated:
        made["dilations"] = dilations
    return made, kernel, shape


def conv(d: Draw) -> None:
    """A convolution, with groups, strides, padding, dilation and bias or without."""
    x = _image(d)
    window, kernel, pixels = _window(d, x, True)
    channels = x.shape[1]
    groups = d.r.choice([n for n in range(1, channels + 1) if channels % n == 0] + [1, 1])
    depth = channels // groups * math.prod(kernel)
    count = x.shape[0] * math.prod(pixels)
    most = min(MOST_ELEMENTS // count, MOST_MACS // (count * depth)) // groups
    if most < 1:
        raise UnfitError
    outputs = groups * d.r.randint(1, min(most, 16))
    w, scales, axis = d.weights((outputs, channels // groups, *kernel), 0)
    bias = d.b.constant(d.b.rng.integers(-9999, 9999, outputs), np.int32) if d.chance(0.6) else ""
    scale = d.spread(depth, x.scale, float(scales.max()))
    shape = (x.shape[0], outputs, *pixels)
    if d.chance(0.5) and linear(x, w):
        y = d.out(shape, scale, x.element)
        given = [d.read(x), *x.grid, w.name, *w.grid, *y.grid, *([bias] if bias else [])]
        d.named(y, d.b.op("QLinearConv", *given, group=groups, **window))
        return
    real = [d.real(x), d.b.op("DequantizeLinear", w.name, *w.grid, **axis)]
    if bias:
        real.append(d.bias(bias, np.float32(x.scale) * scales))
    value = d.b.op("Conv", *real, group=groups, **window)
    d.quantised(d.b.op("Relu", value) if d.chance(0.4) else value, shape, scale)


def pool(d: Draw) -> None:
    """Maxima or averages of windows."""
    x = _image(d)
    window, kernel, pixels = _window(d, x, False)
    if any(p >= k for p, k in zip(window["pads"], kernel * 2, strict=True) if k > 1):
        raise UnfitError
    shape = (*x.shape[:2], *pixels)
    how = d.r.choice(["max", "max", "real", "average", "average"])
    if how == "max" and len(x.shape) == 4:
        d.named(x, d.b.op("MaxPool", d.read(x), **window), shape)
    elif how in ("max", "real"):
        d.quantised(d.b.op("MaxPool", d.real(x), **window), shape, x.scale * d.r.uniform(0.7, 1.3))
    else:
        window["count_include_pad"] = d.r.randint(0, 1)
        d.quantised(d.b.op("AveragePool", d.real(x), **window), shape, x.scale / 2)


def mean(d: Draw) -> None:
    """The mean of images, or of any axes."""
    if d.chance(0.5):
        x = _image(d)
        real = d.b.op("GlobalAveragePool", d.real(x))
        d.quantised(real, (*x.shape[:2], *(1 for _ in x.shape[2:])), x.scale / 4)
        return
    x = _some(d)
    axes = sorted(d.r.sample(range(len(x.shape)), d.r.randint(1, len(x.shape))))
    real = d.b.op("ReduceMean", d.real(x), integers(axes, d.b), keepdims=1)
    d.quantised(real, [1 if a in axes else s for a, s in enumerate(x.shape)], x.scale / 4)


VIEWS: dict[str, Kind] = {
    f.__name__: f for f in (transpose, reshape, slices, split, concat, gather, space, pad, where)
}
IMAGES: dict[str, Kind] = {f.__name__: f for f in (conv, pool, mean)}
