"""The operators of random models by kind: each adds nodes that read tensors and produce new ones."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from heald.testing.models import MICROSOFT, MOST_ELEMENTS, MOST_MACS, Draw, Kind, linear, need

UNARY = "Sigmoid Tanh Erf LeakyRelu HardSwish Exp Neg Abs Gelu Elu Softplus HardSigmoid Selu Softsign Sign"
#: Functions with results from -1 to 1.
SMALL = ("Sigmoid", "Tanh", "Erf", "HardSigmoid", "Softsign", "Sign")


def _columns(d: Draw, rows: int, depth: int) -> int:
    """A random number of columns for a product."""
    most = min(MOST_ELEMENTS // rows, MOST_ELEMENTS // depth, MOST_MACS // (rows * depth))
    need(most > 0)
    return d.size(most)


def matmul(d: Draw) -> None:
    """A product with constant weights."""
    x = d.ranked(2)
    depth, rows = x.shape[-1], x.elements // x.shape[-1]
    n = _columns(d, rows, depth)
    w = d.weights((depth, n), 1)
    shape, scale = (*x.shape[:-1], n), d.spread(depth, x, w)
    if d.chance(0.5) and linear(x, w):
        y = d.out(shape, scale, x.element)
        d.linear("QLinearMatMul", y, x, w, y)
        return
    real = d.b.op("MatMul", d.real(x), d.real(w))
    if d.chance(0.5):
        real = d.b.op("Add", real, d.numbers((n,), -20 * scale, 20 * scale))
    if d.chance(0.3):
        real = d.b.op(d.r.choice(["Relu", "Gelu", "Sigmoid"]) if d.chance(0.2) else "Relu", real)
    d.quantised(real, shape, scale)


def gemm(d: Draw) -> None:
    """A matrix product with an integer bias."""
    x = d.pick(lambda h: len(h.shape) == 2, lambda: d.shape(2))
    trans_a = d.chance(0.2)
    rows, depth = reversed(x.shape) if trans_a else x.shape
    n = _columns(d, rows, depth)
    trans_b = d.chance(0.5)
    w = d.weights((n, depth) if trans_b else (depth, n), 0 if trans_b else 1)
    bias = d.integers(n, 20000)
    scale = d.spread(depth, x, w)
    flags: dict[str, Any] = {"transA": int(trans_a), "transB": int(trans_b)}
    if d.chance(0.5) and linear(x, w):
        y = d.out((rows, n), scale, x.element)
        d.linear("QGemm", y, x, w, bias, y, domain=MICROSOFT, **flags)
        return
    real = d.b.op("Gemm", d.real(x), d.real(w), d.bias(bias, x, w), **flags)
    d.quantised(d.b.op("Relu", real) if d.chance(0.3) else real, (rows, n), scale)


def batched(d: Draw) -> None:
    """A product of two computed tensors, with batch axes that may broadcast."""
    a = d.ranked(2)
    depth, rows = a.shape[-1], a.elements // a.shape[-1]
    same = [
        h
        for h in d.pool
        if h is not a and len(h.shape) >= 2 and h.shape[-2] == depth and h.shape[:-2] == a.shape[:-2]
    ]
    if same:
        b = d.r.choice(same)
        need(rows * depth * b.shape[-1] <= MOST_MACS and rows * b.shape[-1] <= MOST_ELEMENTS)
    else:
        batch = tuple(1 if d.chance(0.2) else s for s in a.shape[:-2])
        batch = batch[d.r.randint(0, len(batch)) :] if d.chance(0.3) else batch
        b = d.input((*batch, depth, _columns(d, max(rows, math.prod(batch)), depth)))
    need(b.elements <= MOST_ELEMENTS)
    shape = (*np.broadcast_shapes(a.shape[:-2], b.shape[:-2]), a.shape[-2], b.shape[-1])
    scale = d.spread(depth, a, b)
    if d.chance(0.5) and linear(a, b):
        y = d.out(shape, scale, a.element)
        d.linear("QLinearMatMul", y, a, b, y)
    else:
        d.quantised(d.b.op("MatMul", d.real(a), d.real(b)), shape, scale)


def heads(d: Draw) -> None:
    """Self-attention of a tensor, with heads as views."""
    steps, count, width = d.r.randint(1, 40), d.r.randint(1, 4), d.r.randint(1, 24)
    x = d.pick(lambda h: h.shape == (1, steps, count * width), lambda: (1, steps, count * width))
    apart = d.b.op("Reshape", d.real(x), d.b.constant([1, steps, count, width], np.int64))
    query = d.b.op("Transpose", apart, perm=[0, 2, 1, 3])
    keys = d.b.op("Transpose", apart, perm=[0, 2, 3, 1])
    scores = d.quantised(d.b.op("MatMul", query, keys), (1, count, steps, steps), d.spread(width, x, x))
    soft = d.quantised(d.b.op("Softmax", d.real(scores), axis=-1), scores.shape, 1 / 255)
    context = d.b.op("MatMul", d.real(soft), query)
    y = d.quantised(context, (1, count, steps, width), x.scale)
    if d.chance(0.7):
        back = d.b.op("Transpose", d.read(y), perm=[0, 2, 1, 3])
        d.named(y, d.b.op("Reshape", back, d.b.constant([1, steps, -1], np.int64)), x.shape)


def residual(d: Draw) -> None:
    """A square product plus its operand."""
    x = d.pick(lambda h: len(h.shape) >= 2 and h.shape[-1] <= 64, lambda: (*d.shape(1), d.r.randint(1, 64)))
    depth = x.shape[-1]
    need(x.elements * depth <= MOST_MACS)
    w = d.weights((depth, depth), 1)
    scale = d.spread(depth, x, w)
    y = d.out(x.shape, scale, x.element)
    if linear(x, w):
        middle = d.b.op("QLinearMatMul", d.read(x), *x.grid, w.name, *w.grid, *y.grid)
    else:
        middle = d.b.op("QuantizeLinear", d.b.op("MatMul", d.real(x), d.real(w)), *y.grid)
    total = d.b.op("Add", d.b.op("DequantizeLinear", middle, *y.grid), d.real(x))
    d.quantised(d.b.op("Relu", total) if d.chance(0.3) else total, x.shape, scale + x.scale)


def binary(d: Draw) -> None:
    """An operator on two tensors, or a tensor and a constant, that broadcast."""
    x = d.ranked(0)
    op = d.r.choice(["Add", "Sub", "Mul", "Max", "Min"])
    if d.chance(0.6):
        y = d.r.choice([h for h in d.pool if h.shape == x.shape])
    else:
        sizes = [1 if d.chance(0.4) else s for s in x.shape][d.r.randint(0, len(x.shape)) :]
        y = d.constant(sizes) if d.chance(0.5) else d.input(sizes)
    scale = x.scale * y.scale * 90 if op == "Mul" else max(x.scale, y.scale) * d.r.uniform(0.7, 2)
    pair = [x, y] if d.chance(0.5) else [y, x]
    if op in ("Add", "Mul") and x.element == y.element and d.chance(0.5):
        z = d.out(x.shape, scale, x.element)
        d.linear(f"QLinear{op}", z, *pair, z, domain=MICROSOFT)
    else:
        d.quantised(d.b.op(op, *(d.real(h) for h in pair)), x.shape, scale)


def table(d: Draw) -> None:
    """An elementwise function."""
    x = d.ranked(0)
    op = d.r.choice(["Relu", "Clip", "Requantise", *UNARY.split()])
    real = d.real(x)
    if op == "Clip":
        real = d.b.op("Clip", real, d.numbers((), -60 * x.scale, 0), d.numbers((), 1, 60 * x.scale + 1))
    elif op != "Requantise":
        real = d.b.op(op, real)
    d.quantised(real, x.shape, 1 / 120 if op in SMALL else x.scale * d.r.uniform(0.6, 1.6))


def chain(d: Draw) -> None:
    """A function composed of several operators."""
    x = d.ranked(0)
    real = d.real(x)
    gate = d.b.op("Sigmoid", d.b.op("Mul", real, d.b.constant(1.702, np.float32)))
    d.quantised(d.b.op("Mul", real, gate), x.shape, x.scale)


def softmax(d: Draw) -> None:
    """Softmax along any axis."""
    x = d.ranked(0)
    axis = -1 if d.chance(0.7) or not x.shape else d.r.randrange(len(x.shape))
    need(len(x.shape) > 0)
    d.quantised(d.b.op("Softmax", d.real(x), axis=axis), x.shape, 1 / 255)


def layernorm(d: Draw) -> None:
    """Layer normalisation of the last axis, or the last two."""
    x = d.ranked(1)
    axis = -2 if len(x.shape) > 1 and d.chance(0.15) else -1
    form = x.shape[axis:]
    given = [d.real(x), d.numbers(form, 0.5, 2)]
    if d.chance(0.7):
        given.append(d.numbers(form, -1, 1))
    d.quantised(d.b.op("LayerNormalization", *given, axis=axis), x.shape, d.r.uniform(0.015, 0.04))


def integer(d: Draw) -> None:
    """An integer product: an output unchanged, with a bias, or scaled."""
    x = d.pick(lambda h: len(h.shape) >= 2, lambda: d.shape(2))
    depth, rows = x.shape[-1], x.elements // x.shape[-1]
    n = _columns(d, rows, depth)
    w = d.constant((depth, n))
    sums = d.b.op("MatMulInteger", d.read(x), w.name, x.grid[1], w.grid[1])
    if d.chance(0.5):
        sums = d.b.op("Add", sums, d.integers(n, 9999))
    if d.chance(0.4):
        d.outputs.append(sums)
        return
    factor = d.b.constant(x.scale * w.scale, np.float32)
    real = d.b.op("Mul", d.b.op("Cast", sums, to=1), factor)
    d.quantised(real, (*x.shape[:-1], n), d.spread(depth, x, w))


KINDS: dict[str, Kind] = {
    f.__name__: f
    for f in (matmul, gemm, batched, heads, residual, binary, table, chain, softmax, layernorm, integer)
}
