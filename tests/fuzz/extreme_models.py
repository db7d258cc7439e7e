"""Small quantised models with extreme biases, scales and depths, against exact arithmetic and onnxruntime.

    python -m tests.fuzz.extreme_models --count 100 --seed 0

Prints a line per kind of model; exit code 1 if anything differs by more than the roundings of
docs/network.md.
"""

from __future__ import annotations

import math
import random
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import click
import numpy as np
from rich.console import Console
from rich.table import Table

from heald.testing.models import MICROSOFT, Builder
from hw.errors import InputError
from sw.frontend.network import import_model
from sw.graph import reference
from tests.sw.quantised_models import runtime

#: How far from a tie ours may be rounded to the other side (docs/network.md).
NEAR = 2.0**-12
MOST = 2**31 - 1
BYTES = ("int8", "uint8")
DEPTHS = (1, 2, 3, 7, 16, 64, 300, 1000, 33_000, 33_100, 40_000, 66_000, 70_000)


@dataclass
class Real:
    """Real numbers of a model: their name, what they are exactly, and how far from it float32 may be."""

    name: str
    exact: np.ndarray
    error: np.ndarray


@dataclass
class Verdict:
    """What became of a model; `loose` counts elements of which float32 says less than one step."""

    kind: str
    refused: str = ""
    elements: int = 0
    apart: int = 0
    loose: int = 0
    failure: str = ""


class Extremes:
    """A model in the making, with its inputs; what it computes is known exactly."""

    def __init__(self, seed: str) -> None:
        self.r = random.Random(seed)
        self.b = Builder(self.r.randrange(1 << 32))
        self.rng = self.b.rng
        self.inputs: dict[str, np.ndarray] = {}

    def depth(self) -> int:
        """A depth of sums, seldom one of those at which they leave 32 bits."""
        return self.r.choice(DEPTHS if self.r.random() < 0.3 else DEPTHS[:8])

    def scale(self, spread: float = 12) -> np.float32:
        """A scale, often a power of two so that there are ties."""
        exponent = self.r.uniform(-spread, spread)
        return np.float32(2.0 ** (round(exponent) if self.r.random() < 0.4 else exponent))

    def bytes(self, shape: tuple[int, ...], element: str) -> np.ndarray:
        """Elements at the ends of their type, near one end, or anywhere."""
        limits, kind = np.iinfo(element), self.r.random()
        if kind < 0.25:
            return np.full(shape, self.r.choice([limits.min, limits.max]), element)
        if kind < 0.5:
            return self.rng.choice([limits.min, limits.max], shape).astype(element)
        if kind < 0.6:
            return (self.rng.random(shape) < 0.1).astype(element)
        return self.rng.integers(limits.min, limits.max, shape, element, endpoint=True)

    def zero(self, element: str) -> int:
        """A zero point: often the middle of the type, sometimes an end of it."""
        limits = np.iinfo(element)
        middle = (limits.min + limits.max + 1) // 2
        return self.r.choice(
            [middle, middle, 0, limits.min, limits.max, self.r.randint(limits.min, limits.max)]
        )

    def grid(self, scale: np.ndarray | np.float32, element: str, zero: int) -> tuple[str, str]:
        """The names of scale and zero point."""
        zeros = np.full(np.shape(scale), zero, element)
        return self.b.constant(scale, np.float32), self.b.constant(zeros)

    def held(self, array: np.ndarray, constant: bool) -> str:
        """A tensor as a constant or an input."""
        if constant:
            return self.b.constant(array)
        name = self.b.input(array.shape, str(array.dtype))
        self.inputs[name] = array
        return name

    def limits(self, count: int, sums: np.ndarray) -> np.ndarray:
        """Biases at the ends of 32 bits, against the sums, or of any magnitude."""
        kind = self.r.random()
        if kind < 0.3:
            return self.rng.choice([MOST, -MOST - 1, MOST - 3, -MOST + 5], count)
        if kind < 0.5:
            return np.clip(-sums.reshape(-1)[:1] + self.rng.integers(-9, 9, count), -MOST - 1, MOST)
        signs = self.rng.choice([-1, 1], count)
        return (signs * 2.0 ** self.rng.uniform(0, 31, count)).astype(np.int64).clip(-MOST - 1, MOST)

    def product(self, kind: str, columns: int = 0, depth: int = 0) -> Real:
        """A product or convolution of dequantised operands, perhaps with a bias."""
        rows, columns, depth = self.r.randint(1, 3), columns or self.r.randint(1, 4), depth or self.depth()
        types = self.r.choice(BYTES), self.r.choice(BYTES)
        a, w = self.bytes((rows, depth), types[0]), self.bytes((depth, columns), types[1])
        zeros = [self.zero(e) for e in types]
        several = self.r.random() < 0.4
        scale_a = self.scale()
        scale_w = np.array([self.scale() for _ in range(columns)]) if several else self.scale()
        centred = [x.astype(np.int64) - z for x, z in zip((a, w), zeros, strict=True)]
        sums, most = centred[0] @ centred[1], np.abs(centred[0]) @ np.abs(centred[1])
        constant = several or self.r.random() < 0.7
        kernel = a.reshape(rows, depth, 1, 1), np.ascontiguousarray(w.T).reshape(columns, depth, 1, 1)
        given = [
            self.b.op("DequantizeLinear", self.held(x, c), *self.grid(s, e, z), **axis)
            for x, s, e, z, c, axis in (
                (kernel[0] if kind == "Conv" else a, scale_a, types[0], zeros[0], False, {}),
                (
                    *(kernel[1] if kind == "Conv" else w, scale_w, types[1], zeros[1], constant),
                    {"axis": 0 if kind == "Conv" else 1} if several else {},
                ),
            )
        ]
        unit = np.float32(scale_a) * scale_w
        if kind != "MatMul" and self.r.random() < 0.8:
            bias = self.limits(columns, sums)
            axis = {"axis": 0} if several else {}
            held = self.b.constant(bias, np.int32)
            given.append(self.b.op("DequantizeLinear", held, self.b.constant(unit, np.float32), **axis))
            sums, most = sums + bias, most + np.abs(bias)
        exact = sums * np.asarray(unit, np.longdouble)
        error = most * np.asarray(unit, np.float64) * (depth + 4) * 2.0**-24
        if kind == "Conv":
            exact, error = (x.reshape(rows, columns, 1, 1) for x in (exact, error))
        return Real(self.b.op(kind, *given), exact, error)

    def leaf(self, shape: tuple[int, ...]) -> Real:
        """A dequantised input."""
        element, scale = self.r.choice(BYTES), self.scale()
        zero, array = self.zero(element), self.bytes(shape, element)
        name = self.b.op("DequantizeLinear", self.held(array, False), *self.grid(scale, element, zero))
        exact = (array.astype(np.int64) - zero) * np.longdouble(scale)
        return Real(name, exact, np.abs(exact).astype(np.float64) * 2.0**-23)

    def scaled(self, x: Real) -> Real:
        """A real tensor times, or divided by, a positive number."""
        op, number = self.r.choice(["Mul", "Div"]), self.scale(6)
        factor = np.longdouble(number) if op == "Mul" else 1 / np.longdouble(number)
        error = (x.error + np.abs(x.exact) * 2.0**-23) * factor
        name = self.b.op(op, x.name, self.b.constant(number, np.float32))
        return Real(name, x.exact * factor, error.astype(np.float64))

    def words(self, shape: tuple[int, ...]) -> Real:
        """A dequantised tensor of 32 bits, often at the ends of them."""
        scale, ends = self.scale(), self.rng.choice([MOST, -MOST - 1, MOST - 7, 0, 1], shape)
        array = ends if self.r.random() < 0.4 else self.limits(math.prod(shape), np.zeros(1)).reshape(shape)
        held = self.held(array.astype(np.int32), self.r.random() < 0.3)
        exact = array * np.longdouble(scale)
        name = self.b.op("DequantizeLinear", held, self.b.constant(scale, np.float32))
        return Real(name, exact, np.abs(exact).astype(np.float64) * 2.0**-23)

    def combined(self, op: str, x: Real, y: Real) -> Real:
        """The sum, difference or product of two real tensors."""
        exact = {"Add": np.add, "Sub": np.subtract, "Mul": np.multiply}[op](x.exact, y.exact)
        most = np.abs(x.exact) + np.abs(y.exact) if op != "Mul" else np.abs(exact)
        error = x.error + y.error if op != "Mul" else most * 2.0**-22
        return Real(self.b.op(op, x.name, y.name), exact, (error + most * 2.0**-23).astype(np.float64))

    def quantised(self, real: Real) -> tuple[str, Real, int, str]:
        """A real tensor on a grid on which it lies inside, at the end of, or far outside of the type."""
        if self.r.random() < 0.2:
            real = Real(self.b.op("Relu", real.name), np.maximum(real.exact, 0), real.error)
        greatest = float(np.abs(real.exact).max()) or 1.0
        scale = np.float32(np.clip(greatest * 2.0 ** self.r.uniform(-12, 4) / 128, 2.0**-100, 2.0**100))
        if self.r.random() < 0.4:
            scale = np.float32(2.0 ** round(np.log2(float(scale))))
        element = self.r.choice(BYTES)
        zero = self.zero(element)
        name = self.b.op("QuantizeLinear", real.name, *self.grid(scale, element, zero))
        steps = Real("", real.exact / np.longdouble(scale), real.error / float(scale))
        return name, steps, zero, element


Made = tuple[str, Real, int, str]


def _product(e: Extremes, kind: str) -> Made:
    return e.quantised(e.product(kind))


def _added(e: Extremes) -> Made:
    """Products that are added, or a product and a residual, before they are quantised."""
    columns = e.r.randint(1, 4)
    x = e.product("Gemm", columns)
    rows = x.exact.shape[0]
    if e.r.random() < 0.5:
        return e.quantised(e.combined(e.r.choice(["Add", "Sub"]), x, e.leaf((rows, columns))))
    y = e.product("Gemm", columns)
    while y.exact.shape != x.exact.shape:
        y = e.product("Gemm", columns)
    return e.quantised(e.combined(e.r.choice(["Add", "Sub"]), x, y))


def _float_bias(e: Extremes) -> Made:
    """A product times or plus float numbers: far smaller or greater than it, or nearly what it is."""
    x = e.product(e.r.choice(["MatMul", "Gemm"]))
    columns, greatest = x.exact.shape[-1], float(np.abs(x.exact).max()) or 1.0
    op, signs = e.r.choice(["Add", "Sub", "Mul"]), e.rng.choice([-1, 1], columns)
    values = signs * (1.0 if op == "Mul" else greatest) * 2.0 ** e.rng.uniform(-20, 20, columns)
    if op != "Mul" and e.r.random() < 0.3:
        values = -x.exact[0].astype(np.float64) * (1 + e.rng.uniform(-1e-3, 1e-3, columns))
    held = values.astype(np.float32)
    exact = np.broadcast_to(held.astype(np.longdouble), x.exact.shape)
    total = e.combined(op, x, Real(e.b.constant(held), exact, np.zeros(x.exact.shape)))
    more = x.error * np.abs(held) if op == "Mul" else 0.0
    return e.quantised(Real(total.name, total.exact, total.error + more))


def _elementwise(e: Extremes) -> Made:
    shape = (e.r.randint(1, 4), e.r.randint(1, 9))
    return e.quantised(e.combined(e.r.choice(["Add", "Sub", "Mul"]), e.leaf(shape), e.leaf(shape)))


def _words(e: Extremes) -> Made:
    """Sums of tensors of 32 and of 8 bits."""
    shape = (e.r.randint(1, 4), e.r.randint(1, 9))
    total = e.combined(e.r.choice(["Add", "Sub"]), e.words(shape), e.leaf(shape))
    while e.r.random() < 0.6:
        total = e.combined(e.r.choice(["Add", "Sub"]), total, e.words(shape))
    return e.quantised(total)


def _average(e: Extremes) -> Made:
    x = e.leaf((1, 2, e.r.choice([1, 7, 100, 3000]), 5))
    if e.r.random() < 0.4:
        x = e.scaled(x)
    exact = x.exact.mean(axis=(2, 3), keepdims=True)
    count = x.exact[0, 0].size
    error = np.abs(x.exact).mean(axis=(2, 3), keepdims=True).astype(np.float64) * (count + 2) * 2.0**-24
    error = error + x.error.mean(axis=(2, 3), keepdims=True)
    return e.quantised(Real(e.b.op("GlobalAveragePool", x.name), exact, error))


def _linear(e: Extremes, op: str) -> Made:
    """QLinearMatMul, QLinearConv and QGemm, whose sums are whole numbers."""
    rows, columns, depth = e.r.randint(1, 3), e.r.randint(1, 4), e.depth()
    types = "uint8", e.r.choice(BYTES)
    a, w = e.bytes((rows, depth), types[0]), e.bytes((depth, columns), types[1])
    zeros, scales = [e.zero(t) for t in types], [e.scale() for _ in types]
    sums = (a.astype(np.int64) - zeros[0]) @ (w.astype(np.int64) - zeros[1])
    bias = e.limits(columns, sums) if op != "QLinearMatMul" and e.r.random() < 0.8 else None
    sums = sums if bias is None else sums + bias
    unit = np.longdouble(np.float32(scales[0]) * np.float32(scales[1]))
    greatest = float(np.abs(sums).max() * unit) or 1.0
    scale, zero = np.float32(greatest * 2.0 ** e.r.uniform(-12, 4) / 128), e.zero("uint8")
    image = op == "QLinearConv"
    x = a.reshape(rows, depth, 1, 1) if image else a
    y = np.ascontiguousarray(w.T).reshape(columns, depth, 1, 1) if image else w
    grids = [e.grid(s, t, z) for s, t, z in zip(scales, types, zeros, strict=True)]
    given = [e.held(x, False), *grids[0], e.held(y, bias is not None or e.r.random() < 0.7), *grids[1]]
    held = [] if bias is None else [e.b.constant(bias, np.int32)]
    result = e.grid(scale, "uint8", zero)
    order = [*held, *result] if op == "QGemm" and held else [*([""] if op == "QGemm" else []), *result]
    name = e.b.op(
        op, *given, *(order if op == "QGemm" else [*result, *held]), domain=MICROSOFT if op == "QGemm" else ""
    )
    exact = sums * unit / np.longdouble(scale)
    exact = exact.reshape(rows, columns, 1, 1) if image else exact
    return name, Real("", exact, np.abs(exact).astype(np.float64) * 2.0**-21), zero, "uint8"


def _integer(e: Extremes) -> Made:
    """MatMulInteger, whose sums wrap."""
    rows, columns, depth = e.r.randint(1, 3), e.r.randint(1, 4), e.depth()
    types = e.r.choice([("uint8", "int8"), ("uint8", "uint8"), ("int8", "int8")])
    a, w = e.bytes((rows, depth), types[0]), e.bytes((depth, columns), types[1])
    zeros = [e.zero(t) for t in types]
    names = [e.b.constant(z, t) for z, t in zip(zeros, types, strict=True)]
    name = e.b.op("MatMulInteger", e.held(a, False), e.held(w, e.r.random() < 0.5), *names)
    sums = (a.astype(np.int64) - zeros[0]) @ (w.astype(np.int64) - zeros[1])
    return name, Real("", sums.astype(np.int32).astype(np.longdouble), np.zeros(sums.shape)), 0, "int32"


KINDS: dict[str, Callable[[Extremes], Made]] = {
    "MatMul": lambda e: _product(e, "MatMul"),
    "Gemm": lambda e: _product(e, "Gemm"),
    "Conv": lambda e: _product(e, "Conv"),
    "products added": _added,
    "two tensors": _elementwise,
    "32 bits": _words,
    "float bias": _float_bias,
    "average": _average,
    "QLinearMatMul": lambda e: _linear(e, "QLinearMatMul"),
    "QLinearConv": lambda e: _linear(e, "QLinearConv"),
    "QGemm": lambda e: _linear(e, "QGemm"),
    "MatMulInteger": _integer,
}


def judge(seed: str) -> Verdict:
    """What becomes of the model of a seed."""
    e = Extremes(seed)
    kind = e.r.choice(list(KINDS))
    found = Verdict(kind)
    name, steps, zero, element = KINDS[kind](e)
    model = e.b.model(name)
    try:
        network = import_model(model)
    except InputError as error:
        found.refused = str(error)
        return found
    ours = reference.run(network, e.inputs)[name].astype(np.int64)
    theirs = runtime(model, e.inputs)[name].astype(np.int64)
    found.elements, found.apart = ours.size, int((ours != theirs).sum())
    found.loose = int((steps.error > 0.5).sum())
    for what, array, error in (("ours", ours, NEAR), ("onnxruntime's", theirs, steps.error + NEAR)):
        outside = (array < _limited(steps.exact - error, zero, element)) | (
            array > _limited(steps.exact + error, zero, element)
        )
        if outside.any():
            at = tuple(int(i) for i in np.argwhere(outside)[0])
            found.failure = f"{what} is {array[at]} for {steps.exact[at]} and zero point {zero}"
            break
    return found


def _limited(steps: np.ndarray, zero: int, element: str) -> np.ndarray:
    limits = np.iinfo(element)
    return np.clip(np.rint(steps) + zero, limits.min, limits.max).astype(np.int64)


def table(found: list[Verdict]) -> Table:
    """A row per kind."""
    made = Table("kind", "models", "run", "refused", "elements", "not onnxruntime's", "differ")
    for kind in KINDS:
        own = [v for v in found if v.kind == kind]
        refused = sum(bool(v.refused) for v in own)
        numbers = (
            *(len(own), len(own) - refused, refused, sum(v.elements for v in own)),
            *(sum(v.apart for v in own), sum(bool(v.failure) for v in own)),
        )
        made.add_row(kind, *(f"{n:,}" for n in numbers))
    return made


@click.command()
@click.option("--count", default=100, show_default=True, help="Models.")
@click.option("--seed", default=0, show_default=True)
@click.option("--first", default=0, show_default=True, help="Number of the first model.")
def main(count: int, seed: int, first: int) -> None:
    """Prove or break what is said of sums that 32 bits do not hold."""
    found = []
    for number in range(first, first + count):
        one = judge(f"{seed}/{number}")
        found.append(one)
        if one.failure:
            click.echo(f"{seed}/{number} ({one.kind}): {one.failure}")
    Console(width=100).print(table(found))
    refused = Counter(
        re.sub(r"node \S+|[\d.]+(e[+-]?\d+)?", "...", v.refused)[:100] for v in found if v.refused
    )
    for text, times in refused.most_common():
        click.echo(f"refused {times}: {text}")
    click.echo(f"{sum(v.loose for v in found):,} elements of which float32 says less than one step")
    differ, run = sum(bool(v.failure) for v in found), sum(not v.refused for v in found)
    click.echo(f"{count} models: run {run}, refused {count - run}, differ {differ}")
    raise SystemExit(bool(differ))


if __name__ == "__main__":
    main()
