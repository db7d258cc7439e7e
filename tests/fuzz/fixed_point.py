"""Random islands of real numbers in fixed point against float64, within the stated error.

    python -m tests.fuzz.fixed_point --count 1000 --seed 0

Prints what was refused, and why; exit code 1 if a result is further from exact arithmetic than stated.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import click
import numpy as np

from heald.testing.models import Builder
from hw.errors import InputError
from sw.frontend.model import with_fixed_point
from sw.frontend.network import import_model
from sw.graph.reference import run

Array = Any
Arrays = Mapping[str, Array]
_erf = np.vectorize(math.erf, otypes=[np.float64])
FUNCTIONS: dict[str, Callable[[Array], Array]] = {
    "Sigmoid": lambda x: 1 / (1 + np.exp(-np.clip(x, -700, 700))),
    "Tanh": np.tanh,
    "Erf": _erf,
    "Relu": lambda x: np.maximum(x, 0),
    "Gelu": lambda x: 0.5 * x * (1 + _erf(x * math.sqrt(0.5))),
    "Softplus": lambda x: np.logaddexp(0, x),
    "Neg": np.negative,
    "Abs": np.abs,
    "Exp": np.exp,
    "HardSigmoid": lambda x: np.clip(float(np.float32(0.2)) * x + 0.5, 0, 1),
    "HardSwish": lambda x: x * np.clip(x / 6 + 0.5, 0, 1),
    "Elu": lambda x: np.where(x < 0, np.expm1(np.minimum(x, 0)), x),
    "Mish": lambda x: x * np.tanh(np.logaddexp(0, x)),
    "Sqrt": np.sqrt,
    "Reciprocal": lambda x: 1 / x,
    "Softsign": lambda x: x / (1 + np.abs(x)),
    "Cos": np.cos,
}
PAIRS: dict[str, Callable[[Array, Array], Array]] = {
    **{"Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Div": np.divide},
    **{"Max": np.maximum, "Min": np.minimum},
}
REDUCTIONS: dict[str, Callable[..., Array]] = {
    "ReduceMean": np.mean,
    "ReduceSum": np.sum,
    "ReduceMax": np.max,
}


@dataclass(frozen=True)
class Drawn:
    """A tensor of the model: its name, what it is in float64 for inputs of the model, its shape."""

    name: str
    exact: Callable[[Arrays], Array]
    shape: tuple[int, ...]


@dataclass
class Islands:
    """A model of float32 operators behind dequantised inputs, one after the other."""

    seed: int
    found: list[Drawn] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.b, self.rng = Builder(self.seed), np.random.default_rng(self.seed)
        for _ in range(self.rng.integers(1, 3)):
            self.found.append(self._input())
        for _ in range(self.rng.integers(1, 7)):
            ways = (self._function, self._pair, self._number, self._product, self._rows, self._moved)
            choice = self.rng.choice(len(ways), p=[0.25, 0.2, 0.15, 0.15, 0.15, 0.1])
            drawn = ways[choice](self.found[self.rng.integers(max(0, len(self.found) - 4), len(self.found))])
            if drawn is not None:
                self.found.append(drawn)

    def _input(self) -> Drawn:
        scale = float(np.float32(np.exp(self.rng.uniform(-6, -2))))
        element = str(self.rng.choice(["int8", "uint8"]))
        zero = int(self.rng.integers(-20, 20)) + (128 if element == "uint8" else 0)
        name = self.b.input((4, 8), element)
        grid = self.b.constant(scale, np.float32), self.b.constant(zero, element)
        real = self.b.op("DequantizeLinear", name, *grid)
        return Drawn(real, lambda given: (given[name].astype(np.float64) - zero) * scale, (4, 8))

    def _constant(self, array: Array) -> tuple[str, Array]:
        held = np.asarray(array, np.float32)
        return self.b.constant(held), held.astype(np.float64)

    def _function(self, x: Drawn) -> Drawn:
        op = str(self.rng.choice(list(FUNCTIONS)))
        return Drawn(self.b.op(op, x.name), lambda given: FUNCTIONS[op](x.exact(given)), x.shape)

    def _pair(self, x: Drawn) -> Drawn:
        others = [d for d in self.found if d.shape == x.shape]
        y, op = others[self.rng.integers(len(others))], str(self.rng.choice(list(PAIRS)))
        name = self.b.op(op, x.name, y.name)
        return Drawn(name, lambda given: PAIRS[op](x.exact(given), y.exact(given)), x.shape)

    def _number(self, x: Drawn) -> Drawn:
        op = str(self.rng.choice(list(PAIRS)))
        array = self.rng.normal(size=() if self.rng.random() < 0.5 else x.shape[-1:])
        array = array * self.rng.choice([0.1, 1, 3])
        name, held = self._constant(np.where(np.abs(array) < 0.05, 1, array) if op == "Div" else array)
        return Drawn(self.b.op(op, x.name, name), lambda given: PAIRS[op](x.exact(given), held), x.shape)

    def _product(self, x: Drawn) -> Drawn:
        if self.rng.random() < 0.5:
            array = self.rng.normal(size=(x.shape[-1], int(self.rng.choice([4, 8]))))
            name, held = self._constant(array * self.rng.choice([0.1, 0.5]))
            shape = (*x.shape[:-1], array.shape[1])
            return Drawn(self.b.op("MatMul", x.name, name), lambda given: x.exact(given) @ held, shape)
        others = [d for d in self.found if d.shape[-1] == x.shape[-1]]
        y = others[self.rng.integers(len(others))]
        name = self.b.op("MatMul", x.name, self.b.op("Transpose", y.name, perm=[1, 0]))
        return Drawn(name, lambda given: x.exact(given) @ y.exact(given).T, (x.shape[0], y.shape[0]))

    def _rows(self, x: Drawn) -> Drawn:
        axis, op = int(self.rng.choice([0, 1])), str(self.rng.choice(["Softmax", "norm", *REDUCTIONS]))
        if op == "Softmax":
            name = self.b.op("Softmax", x.name, axis=axis)
            return Drawn(name, lambda given: _softmax(x.exact(given), axis), x.shape)
        if op == "norm":
            op = str(self.rng.choice(["LayerNormalization", "RMSNormalization"]))
            gamma, held = self._constant(self.rng.uniform(0.5, 1.5, x.shape[-1]))
            name = self.b.op(op, x.name, gamma, epsilon=1e-3)
            return Drawn(name, lambda given: _norm(x.exact(given), op[0] == "L") * held, x.shape)
        name = self.b.op(op, x.name, self.b.constant([axis], np.int64))
        name = self.b.op("Add", name, x.name)

        def exact(given: Arrays) -> Array:
            array = x.exact(given)
            return REDUCTIONS[op](array, axis=axis, keepdims=True) + array

        return Drawn(name, exact, x.shape)

    def _moved(self, x: Drawn) -> Drawn | None:
        others = [d for d in self.found if d.shape[0] == x.shape[0]]
        y = others[self.rng.integers(len(others))]
        if self.rng.random() < 0.5 or x.shape[1] + y.shape[1] > 24:
            turned = self.b.op("Transpose", x.name, perm=[1, 0])
            return Drawn(turned, lambda given: x.exact(given).T, x.shape[::-1])
        name, shape = self.b.op("Concat", x.name, y.name, axis=1), (x.shape[0], x.shape[1] + y.shape[1])
        return Drawn(name, lambda given: np.concatenate([x.exact(given), y.exact(given)], 1), shape)

    def inputs(self, way: int) -> dict[str, Array]:
        """Inputs: any, the ends of the types, equal ones, mostly equal ones."""
        found = {}
        for held in self.b.inputs:
            kind = held.type.tensor_type
            limits = np.iinfo(np.int8 if kind.elem_type == 3 else np.uint8)
            low, high, shape = limits.min, limits.max, [d.dim_value for d in kind.shape.dim]
            array = self.rng.integers(low, high + 1, shape)
            if way == 1:
                array = self.rng.choice([low, high], shape)
            elif way == 2:
                array = np.full(shape, self.rng.integers(low, high + 1))
            elif way == 3:
                array = np.where(self.rng.random(shape) < 0.1, array, self.rng.integers(low, high + 1))
            found[str(held.name)] = array.astype(limits.dtype)
        return found


def _softmax(x: Array, axis: int) -> Array:
    powers = np.exp(x - x.max(axis, keepdims=True))
    return powers / powers.sum(axis, keepdims=True)


def _norm(x: Array, mean: bool) -> Array:
    x = x - x.mean(-1, keepdims=True) * mean
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + float(np.float32(1e-3)))


def judge(seed: int) -> tuple[str, str]:
    """What becomes of the islands of a seed: `run`, `wrong` or `refused`, and why."""
    islands = Islands(seed)
    last = islands.found[-1]
    with np.errstate(all="ignore"):
        first = last.exact(islands.inputs(0))
        step = float(np.float32(np.abs(first).max() / 100)) if seed % 2 else 0.0
        if step and (not math.isfinite(step) or not 1e-9 < step < 1e6):
            return "refused", "no scale"
        name = last.name
        if step:
            grid = islands.b.constant(step, np.float32), islands.b.constant(0, np.int8)
            name = islands.b.op("QuantizeLinear", name, *grid)
        try:
            network = import_model(with_fixed_point(islands.b.model(name, opset=23)))
        except InputError as error:
            return "refused", str(error)
        (output,) = network.outputs
        accuracy = network.accuracy.get(output)
        for way in range(8):
            given = islands.inputs(way % 4)
            ours, exact = run(network, given)[output].astype(np.float64), last.exact(given)
            error = 0.0 if accuracy is None else accuracy.error
            if step:
                # One rounding, and what docs/network.md states for exact forms.
                exact = np.clip(exact / step, -128, 127)
                allowed = 0.5 + 2.0**-12 + 2.0**-17 * float(np.abs(exact).max()) + error / step
            else:
                # The host's float32, also of functions of 8 bits.
                allowed = error + 2.0 ** (-22 if accuracy is None else -24) * np.abs(exact)
            worst = float((np.abs(ours - exact) - allowed).max())
            if not worst <= 1e-12:
                return "wrong", f"seed {seed}: {worst:.3g} more than is stated, {accuracy}"
    return "run", ""


@click.command()
@click.option("--count", default=1000)
@click.option("--seed", default=0)
def main(count: int, seed: int) -> None:
    """Judge the islands of some seeds."""
    found = [judge(number) for number in range(seed, seed + count)]
    for verdict, number in Counter(verdict for verdict, _ in found).items():
        click.echo(f"{number:>6} {verdict}")
    for verdict, text in found:
        if verdict == "wrong":
            click.echo(text)
    raise SystemExit(any(verdict == "wrong" for verdict, _ in found))


if __name__ == "__main__":
    main()
