"""Networks of convolutions for tests, random or with given sizes."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from sw.graph.expression import Apply, Argument, Expression, Number
from sw.graph.network import (
    Elementwise,
    Epilogue,
    ImageConvolution,
    Network,
    Operator,
    Tensor,
    View,
    whole,
)
from sw.graph.requantise import LIMITS
from sw.graph.views import broadcast
from sw.patches import Axis


def requantised(value: Expression, factor: int, shift: int, zero: int, element: str) -> Expression:
    """The product, shifted and rounded, in the range of a type."""
    low, high = LIMITS[element]
    value = Apply("mul_shift_round_even", (value, Number(factor), Number(shift)))
    value = Apply("add", (value, Number(zero)))
    return Apply("max", (Apply("min", (value, Number(high))), Number(low)))


@dataclass
class Builder:
    """A network that grows; tensors are named by number."""

    rng: np.random.Generator
    tensors: dict[str, Tensor] = field(default_factory=dict)
    operators: list[Operator] = field(default_factory=list)
    inputs: list[str] = field(default_factory=list)

    def tensor(self, shape: tuple[int, ...], element: str, constant: np.ndarray | None = None) -> Tensor:
        """A new tensor."""
        made = Tensor(f"t{len(self.tensors)}", shape, element, constant)
        self.tensors[made.name] = made
        return made

    def input(self, shape: tuple[int, ...], element: str = "int8") -> Tensor:
        """A new input."""
        made = self.tensor(shape, element)
        self.inputs.append(made.name)
        return made

    def constant(self, shape: tuple[int, ...], element: str) -> Tensor:
        """A new constant; int32 is not large."""
        low, high = LIMITS[element] if element != "int32" else (-2000, 2000)
        array = self.rng.integers(low, high + 1, shape).astype(element)
        return self.tensor(shape, element, array)

    def convolution(
        self,
        x: Tensor,
        channels: int,
        rows: Axis,
        cols: Axis,
        *,
        groups: int = 1,
        zeros: tuple[int, int] = (0, 0),
        types: tuple[str, str] = ("int8", "int8"),
        residual: Tensor | None = None,
        epilogue: bool = True,
    ) -> Tensor:
        """A convolution with bias and factors per channel; types are those of weights and result."""
        w = self.constant((channels, x.shape[1] // groups, rows.kernel, cols.kernel), types[0])
        shape = (x.shape[0], channels, rows.outputs, cols.outputs)
        y = self.tensor(shape, types[1] if epilogue else "int32")
        name = f"conv{len(self.operators)}"
        after = self._epilogue(shape, types[1], residual) if epilogue else None
        self.operators.append(
            ImageConvolution(
                name, "Conv", (name,), whole(y), whole(x), whole(w), rows, cols, groups, *zeros, after
            )
        )
        return y

    def _epilogue(self, shape: tuple[int, ...], element: str, residual: Tensor | None) -> Epilogue:
        value: Expression = Apply("add", (Argument(0), Argument(1)))
        zero = 0 if element == "int8" else 128
        value = requantised(value, int(self.rng.integers(1 << 22, 1 << 24)), 31, zero, element)
        operands = [channel_wise(self.constant(shape[1:2], "int32"), shape)]
        if residual is not None:
            operands.append(whole(residual))
            value = Apply("add", (value, Argument(2)))
            value = Apply("max", (Apply("min", (value, Number(LIMITS[element][1]))), Number(zero)))
        return Epilogue(value, tuple(operands))

    def doubled(self, x: Tensor) -> Tensor:
        """Every element times 1.5, rounded, as an operator of its own."""
        y = self.tensor(x.shape, x.element)
        value = requantised(Argument(0), 3 << 22, 23, 0, x.element)
        name = f"scale{len(self.operators)}"
        self.operators.append(Elementwise(name, "Scale", (name,), whole(y), value, (whole(x),)))
        return y

    def network(self, *outputs: Tensor) -> Network:
        """All of it."""
        names = tuple(t.name for t in outputs)
        return Network("convolutions", self.tensors, tuple(self.operators), tuple(self.inputs), names)


def channel_wise(tensor: Tensor, shape: tuple[int, ...]) -> View:
    """One element per channel as images."""
    return broadcast(View(tensor.name, (shape[1], 1, 1), (1, 0, 0)), shape)


def axis(rng: np.random.Generator, size: int, most: int = 5) -> Axis:
    """An axis of some kernel that has outputs."""
    while True:
        kernel, dilation = int(rng.integers(1, most + 1)), int(rng.integers(1, 3))
        stride = int(rng.integers(1, 4))
        before, after = (int(p) for p in rng.integers(0, kernel, 2))
        made = Axis(size, kernel, stride, before, after, dilation)
        if made.outputs >= 1:
            return made


def same(size: int, kernel: int, stride: int = 1) -> Axis:
    """An axis with padding on both sides."""
    return Axis(size, kernel, stride, kernel // 2, kernel // 2)


def drawn(seed: int) -> Network:
    """One to three convolutions with what may lie between them."""
    rng = np.random.default_rng(seed)
    b = Builder(rng)
    images, channels = int(rng.integers(1, 4)), int(rng.choice([1, 2, 3, 4, 6, 8]))
    height, width = (int(s) for s in rng.integers(3, 20, 2))
    first = x = b.input((images, channels, height, width), str(rng.choice(["int8", "uint8"])))
    for _ in range(int(rng.integers(1, 4))):
        plain = rng.random() < 0.3
        divisors = [g for g in (1, 1, 2, 3, 4, 8) if x.shape[1] % g == 0]
        groups = int(rng.choice(divisors))
        out = groups * int(rng.integers(1, 6))
        keep = plain or rng.random() < 0.4
        kernel = 1 if plain else int(rng.choice([1, 3, 5]))
        rows, cols = (same(n, kernel) if keep else axis(rng, n) for n in x.shape[2:])
        types = str(rng.choice(["int8", "uint8"])), str(rng.choice(["int8", "uint8"]))
        shape = (images, out, rows.outputs, cols.outputs)
        candidates = [t for t in b.tensors.values() if t.shape == shape and t.constant is None]
        residual = candidates[int(rng.integers(len(candidates)))] if candidates else None
        if residual is None and rng.random() < 0.3:
            residual = b.input(shape, types[1])
        zeros = tuple(int(rng.integers(LIMITS[t][0], LIMITS[t][1] + 1)) for t in (x.element, types[0]))
        x = b.convolution(
            *(x, out, rows, cols),
            groups=groups,
            zeros=(zeros[0], zeros[1]),
            types=types,
            residual=residual,
        )
        if rng.random() < 0.3:
            x = b.doubled(x)
    if rng.random() < 0.15:
        return b.network(x, b.convolution(x, 3, same(x.shape[2], 3), same(x.shape[3], 3), epilogue=False))
    assert first.name in b.inputs
    return b.network(x)
