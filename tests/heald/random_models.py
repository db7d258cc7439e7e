"""Random quantised models, operator by operator, in both of ONNX's formats."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx

from tests.sw.quantised_models import Builder

MICROSOFT = "com.microsoft"
BYTES = ("int8", "uint8")
#: Most elements of a tensor, and multiplications of a product: a second of simulation at most.
MOST_ELEMENTS, MOST_MACS = 6_000, 200_000
#: Deviation of the elements of a type of 8 bits that is used as a whole.
_SPREAD = 74.0


@dataclass(frozen=True)
class Held:
    """A tensor of 8 bits: scale and zero point also as names of constants."""

    name: str
    shape: tuple[int, ...]
    element: str
    scale: float
    zero: int
    grid: tuple[str, str]

    @property
    def elements(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)


class UnfitError(Exception):
    """There is no operand for the operator."""


class Draw:
    """A model in the making: tensors that operators can read, and those that nobody has read yet."""

    def __init__(self, seed: str):
        self.r = random.Random(seed)
        self.b = Builder(self.r.randrange(1 << 32))
        self.pool: list[Held] = []
        self.unread: list[str] = []
        self.outputs: list[str] = []
        self.kinds: list[str] = []

    # Numbers

    def size(self, most: int = 200) -> int:
        """1 to 200."""
        most = max(1, most)
        return min(
            most, self.r.choice([self.r.randint(1, 12), self.r.randint(1, 64), self.r.randint(1, 200)])
        )

    def shape(self, rank: int) -> tuple[int, ...]:
        """A shape of few elements, sizes up to 200 anywhere."""
        left, sizes = MOST_ELEMENTS // 2, []
        for _ in range(rank):
            sizes.append(self.size(left))
            left //= sizes[-1]
        self.r.shuffle(sizes)
        return tuple(sizes)

    def chance(self, share: float) -> bool:
        """True with that probability."""
        return self.r.random() < share

    def element(self) -> str:
        """A type of 8 bits."""
        return self.r.choice(BYTES)

    def zero(self, element: str) -> int:
        """A zero point: mostly near the middle, sometimes at an end."""
        middle = 128 if element == "uint8" else 0
        return middle + self.r.choice([0, self.r.randint(-40, 40), self.r.randint(-40, 40), -128, 127])

    # Tensors

    def grid(self, element: str, scale: float, zero: int | None = None) -> tuple[float, int, tuple[str, str]]:
        """A scale and a zero point, as numbers and as constants."""
        zero = self.zero(element) if zero is None else zero
        names = self.b.constant(scale, np.float32), self.b.constant(zero, element)
        return float(np.float32(scale)), zero, names

    def input(self, shape: Sequence[int], element: str | None = None) -> Held:
        """An input of 8 bits, or of real numbers that are quantised first."""
        element = element or self.element()
        grid = self.grid(element, math.exp(self.r.uniform(-5, -1)))
        if self.chance(0.2):
            name = self.b.op("QuantizeLinear", self.b.input(shape, "float32"), *grid[2])
        else:
            name = self.b.input(shape, element)
        return self.keep(Held(name, tuple(shape), element, *grid))

    def constant(self, shape: Sequence[int], element: str | None = None) -> Held:
        """A constant of 8 bits."""
        element = element or self.element()
        limits = np.iinfo(element)
        values = self.b.rng.integers(limits.min, limits.max, shape, endpoint=True)
        return Held(
            self.b.constant(values, element),
            tuple(shape),
            element,
            *self.grid(element, math.exp(self.r.uniform(-5, -1))),
        )

    def keep(self, held: Held) -> Held:
        """Let later operators read a tensor."""
        self.pool.append(held)
        self.unread.append(held.name)
        return held

    def pick(self, fits: Callable[[Held], bool], make: Callable[[], Sequence[int]] | None = None) -> Held:
        """A tensor that fits, recent ones first, or a new input; raises `UnfitError` where there is none."""
        found = [h for h in self.pool if fits(h)]
        if found and (make is None or self.chance(0.9)):
            return found[-1] if self.chance(0.6) else self.r.choice(found)
        if make is None:
            raise UnfitError
        return self.input(make())

    def read(self, held: Held) -> str:
        """The name of a tensor that an operator reads."""
        if held.name in self.unread:
            self.unread.remove(held.name)
        return held.name

    def real(self, held: Held) -> str:
        """Its real numbers."""
        return self.b.op("DequantizeLinear", self.read(held), *held.grid)

    def out(self, shape: Sequence[int], scale: float, element: str | None = None) -> Held:
        """A result of QLinear operators: its name comes later."""
        element = element or self.element()
        return Held("", tuple(shape), element, *self.grid(element, scale))

    def quantised(self, real: str, shape: Sequence[int], scale: float, element: str | None = None) -> Held:
        """A real result on a grid."""
        held = self.out(shape, scale, element)
        return self.named(held, self.b.op("QuantizeLinear", real, *held.grid))

    def named(self, held: Held, name: str, shape: Sequence[int] | None = None) -> Held:
        """The same with a name, or another shape, for later operators."""
        shape = held.shape if shape is None else tuple(shape)
        return self.keep(Held(name, shape, held.element, held.scale, held.zero, held.grid))

    def weights(self, shape: Sequence[int], axis: int) -> tuple[Held, np.ndarray, dict[str, int]]:
        """Constant weights with one scale, or one for each element of an axis, and those scales."""
        held = self.constant(shape, self.r.choice(["int8", "int8", "uint8"]))
        if self.chance(0.5):
            return held, np.float32([held.scale]), {}
        scales = np.exp(self.b.rng.uniform(-6, -3, shape[axis])).astype(np.float32)
        zeros = np.full(scales.shape, 128 if held.element == "uint8" else 0)
        grid = self.b.constant(scales), self.b.constant(zeros, held.element)
        return (
            Held(held.name, held.shape, held.element, float(scales.mean()), 0, grid),
            scales,
            {"axis": axis},
        )

    def spread(self, depth: int, *scales: float) -> float:
        """A scale for sums of so many products, with which results fill most of a type or leave it."""
        return math.prod(scales) * _SPREAD**2 * math.sqrt(depth) / self.r.uniform(20, 100)

    def model(self) -> onnx.ModelProto:
        """The model: what nobody read is an output, and sometimes something else."""
        outputs = [*self.outputs, *self.unread]
        outputs += [h.name for h in self.pool if h.name not in outputs and self.chance(0.1)]
        given = {i.name for i in self.b.inputs}
        made = []
        for held in self.pool:
            if held.name in outputs and held.name not in given:
                real = self.chance(0.2)
                made.append(self.b.op("DequantizeLinear", held.name, *held.grid) if real else held.name)
        return self.b.model(*(o for o in self.outputs), *made)


Kind = Callable[[Draw], None]


def draw(
    seed: str, kinds: dict[str, Kind], least: int = 2, most: int = 8
) -> tuple[onnx.ModelProto, list[str]]:
    """A random model, and the kinds of its operators in order."""
    d = Draw(seed)
    names = list(kinds)
    wanted = d.r.randint(least, most)
    while len(d.kinds) < wanted:
        name = d.r.choice(names)
        try:
            kinds[name](d)
        except UnfitError:
            continue
        d.kinds.append(name)
    return d.model(), d.kinds


def linear(x: Held, w: Held) -> bool:
    """Whether onnxruntime's QLinear products take these types; the result has the first one's."""
    return x.element == "uint8" or w.element == "int8"


def integers(values: Sequence[int], b: Builder) -> str:
    """A constant of int64, for shapes and axes."""
    return b.constant(list(values), np.int64)


def numbers(d: Draw, shape: Sequence[int], low: float, high: float) -> Any:
    """Real constants."""
    return d.b.constant(d.b.rng.uniform(low, high, shape), np.float32)
