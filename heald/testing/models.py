"""Random quantised models, operator by operator, in both of ONNX's formats."""

from __future__ import annotations

import contextlib
import math
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

MICROSOFT = "com.microsoft"
BYTES = ("int8", "uint8")
#: Limits on elements of a tensor and multiplications of a product: at most a second of simulation.
MOST_ELEMENTS, MOST_MACS = 6_000, 200_000
#: Standard deviation of elements that use the full range of an 8-bit type.
_SPREAD = 74.0


#: ONNX's numbers of element types, by onnxruntime's names.
_TYPES = {
    **{"tensor(float)": 1, "tensor(uint8)": 2, "tensor(int8)": 3, "tensor(int32)": 6},
    **{"tensor(bool)": 9, "tensor(uint32)": 12},
}


class Builder:
    """Builds a quantised model node by node; every node, constant and input gets its own name."""

    def __init__(self, seed: int = 0):
        self.rng = np.random.default_rng(seed)
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self.inputs: list[Any] = []

    def constant(self, array: Any, dtype: Any = None) -> str:
        """Add a constant; returns its name."""
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(array, dtype), name))
        return name

    def input(self, shape: Sequence[int], element: str = "int8") -> str:
        """Add an input; returns its name."""
        name = f"x{len(self.inputs)}"
        kind = helper.np_dtype_to_tensor_dtype(np.dtype(element))
        self.inputs.append(helper.make_tensor_value_info(name, kind, list(shape)))
        return name

    def ops(self, op: str, *inputs: str, count: int, domain: str = "", **attributes: Any) -> list[str]:
        """Add a node with several results; returns their names."""
        number = len(self.nodes)
        names = [f"t{number}_{i}" for i in range(count)]
        self.nodes.append(helper.make_node(op, inputs, names, name=f"n{number}", domain=domain, **attributes))
        return names

    def op(self, op: str, *inputs: str, domain: str = "", **attributes: Any) -> str:
        """Add a node; returns the name of its result."""
        return self.ops(op, *inputs, count=1, domain=domain, **attributes)[0]

    def grid(self, element: str, scale: float | None = None) -> tuple[str, str]:
        """Add a scale and a zero point; random if not given."""
        scale = float(np.exp(self.rng.uniform(-5, -1))) if scale is None else scale
        zero = self.rng.integers(-40, 40) + (128 if element == "uint8" else 0)
        return self.constant(scale, np.float32), self.constant(zero, element)

    def real(self, name: str, element: str, scale: float | None = None) -> str:
        """Dequantise a tensor."""
        return self.op("DequantizeLinear", name, *self.grid(element, scale))

    def quantised(self, name: str, element: str, scale: float | None = None) -> str:
        """Quantise a real tensor."""
        return self.op("QuantizeLinear", name, *self.grid(element, scale))

    def model(self, *outputs: str, opset: int = 21) -> onnx.ModelProto:
        """The model; onnxruntime infers types and shapes of its outputs."""
        import onnxruntime

        empty = [helper.make_empty_tensor_value_info(o) for o in outputs]
        graph = helper.make_graph(self.nodes, "test", self.inputs, empty, self.constants)
        opsets = [helper.make_opsetid("", opset), helper.make_opsetid(MICROSOFT, 1)]
        made = helper.make_model(graph, opset_imports=opsets)
        made.ir_version = 10
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        session = onnxruntime.InferenceSession(made.SerializeToString(), options)
        for output, found in zip(made.graph.output, session.get_outputs(), strict=True):
            output.CopyFrom(helper.make_tensor_value_info(output.name, _TYPES[found.type], found.shape))
        return made


@dataclass(frozen=True)
class Held:
    """An 8-bit tensor, or weights whose `scales` may be one per element of an `axis`.

    `grid` are the names of scale and zero point; `scale` is the largest scale.
    """

    name: str
    shape: tuple[int, ...]
    element: str
    scale: float
    grid: tuple[str, str]
    scales: tuple[float, ...] = ()
    axis: dict[str, Any] = field(default_factory=dict)

    @property
    def elements(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)


class UnfitError(Exception):
    """No operand fits the operator."""


class Draw:
    """A model under construction: tensors that operators can read, and those not yet read."""

    def __init__(self, seed: str):
        self.r = random.Random(seed)
        self.b = Builder(self.r.randrange(1 << 32))
        self.pool: list[Held] = []
        self.unread: list[str] = []
        self.outputs: list[str] = []
        self.kinds: list[str] = []

    # Numbers

    def size(self, most: int) -> int:
        """A random size from 1 to 200, at most `most`."""
        return min(most, self.r.choice([self.r.randint(1, x) for x in (12, 64, 200)]))

    def shape(self, rank: int) -> tuple[int, ...]:
        """A random shape with few elements; any axis may have up to 200."""
        left, sizes = MOST_ELEMENTS // 2, []
        for _ in range(rank):
            sizes.append(self.size(left))
            left //= sizes[-1]
        self.r.shuffle(sizes)
        return tuple(sizes)

    def chance(self, share: float) -> bool:
        """True with this probability."""
        return self.r.random() < share

    def spread(self, depth: int, *factors: Held) -> float:
        """A scale for sums of `depth` products, with which results fill most of a type or exceed it."""
        scale = math.prod(x.scale for x in factors)
        return scale * _SPREAD**2 * math.sqrt(depth) / self.r.uniform(20, 100)

    # Tensors

    def out(self, shape: Iterable[int], scale: float | None = None, element: str | None = None) -> Held:
        """A tensor without a name yet; what is not given is random."""
        element = element or self.r.choice(BYTES)
        scale = math.exp(self.r.uniform(-5, -1)) if scale is None else scale
        # Mostly near the middle, sometimes at an end.
        zero = self.r.choice([0, self.r.randint(-40, 40), self.r.randint(-40, 40), -128, 127])
        zero += 128 if element == "uint8" else 0
        grid = self.b.constant(scale, np.float32), self.b.constant(zero, element)
        return Held("", tuple(shape), element, float(np.float32(scale)), grid)

    def named(self, held: Held, name: str, shape: Iterable[int] | None = None) -> Held:
        """The tensor with a name, and maybe another shape, made available to later operators."""
        made = replace(held, name=name, shape=held.shape if shape is None else tuple(shape))
        self.pool.append(made)
        self.unread.append(name)
        return made

    def input(self, shape: Sequence[int]) -> Held:
        """An 8-bit input, or a real one that is quantised first."""
        held = self.out(shape)
        if self.chance(0.2):
            return self.named(held, self.b.op("QuantizeLinear", self.b.input(shape, "float32"), *held.grid))
        return self.named(held, self.b.input(shape, held.element))

    def constant(self, shape: Sequence[int], element: str | None = None) -> Held:
        """An 8-bit constant."""
        held = self.out(shape, element=element)
        limits = np.iinfo(held.element)
        values = self.b.rng.integers(limits.min, limits.max, shape, endpoint=True)
        return replace(held, name=self.b.constant(values, held.element))

    def weights(self, shape: Sequence[int], axis: int) -> Held:
        """Constant weights with one scale, or one for each element of an axis."""
        held = self.constant(shape, self.r.choice(["int8", "int8", "uint8"]))
        if self.chance(0.5):
            return replace(held, scales=(held.scale,))
        scales = np.exp(self.b.rng.uniform(-6, -3, shape[axis])).astype(np.float32)
        zeros = np.full(scales.shape, 128 if held.element == "uint8" else 0)
        grid = self.b.constant(scales), self.b.constant(zeros, held.element)
        several = tuple(scales.tolist())
        return replace(held, scale=max(several), grid=grid, scales=several, axis={"axis": axis})

    def numbers(self, shape: Sequence[int], low: float, high: float) -> str:
        """Random real constants."""
        return self.b.constant(self.b.rng.uniform(low, high, shape), np.float32)

    def integers(self, count: int, most: int) -> str:
        """Random 32-bit constants."""
        return self.b.constant(self.b.rng.integers(-most, most, count), np.int32)

    def pick(self, fits: Callable[[Held], bool], make: Callable[[], Sequence[int]]) -> Held:
        """A tensor that fits, preferably recent, or a new input with the shape from `make`."""
        found = [h for h in self.pool if fits(h)]
        if found and self.chance(0.9):
            return found[-1] if self.chance(0.6) else self.r.choice(found)
        return self.input(make())

    def ranked(self, least: int) -> Held:
        """A tensor with at least `least` axes."""
        return self.pick(
            lambda h: len(h.shape) >= least, lambda: self.shape(self.r.randint(max(1, least), 4))
        )

    # Nodes

    def read(self, held: Held) -> str:
        """Mark a tensor as read; returns its name."""
        if held.name in self.unread:
            self.unread.remove(held.name)
        return held.name

    def real(self, held: Held) -> str:
        """Dequantise a tensor; it counts as read."""
        return self.b.op("DequantizeLinear", self.read(held), *held.grid, **held.axis)

    def bias(self, name: str, x: Held, w: Held) -> str:
        """Dequantise an integer constant that is added to products of two tensors."""
        scales = np.float32(x.scale) * np.array(w.scales, np.float32)
        axis: dict[str, Any] = {"axis": 0} if len(scales) > 1 else {}
        scale = self.b.constant(scales if axis else scales[0], np.float32)
        return self.b.op("DequantizeLinear", name, scale, **axis)

    def quantised(self, real: str, shape: Iterable[int], scale: float) -> Held:
        """Quantise a real result with this scale."""
        held = self.out(shape, scale)
        return self.named(held, self.b.op("QuantizeLinear", real, *held.grid))

    def linear(self, op: str, result: Held, *operands: Held | str, **attributes: Any) -> Held:
        """Add a QLinear operator and name `result`; `operands` are tensors (with their grids) or names."""
        given: list[str] = []
        for x in operands:
            given += [x] if isinstance(x, str) else [self.read(x), *x.grid]
        return self.named(result, self.b.op(op, *filter(None, given), **attributes))

    def view(self, op: str, x: Held, shape: Iterable[int], *lists: Iterable[int], **attributes: Any) -> Held:
        """Add an operator that moves elements of a tensor; `lists` are further inputs."""
        given = [self.b.constant(list(values), np.int64) for values in lists]
        return self.named(x, self.b.op(op, self.read(x), *given, **attributes), shape)

    def model(self) -> onnx.ModelProto:
        """The model: tensors that nothing read are outputs, and sometimes others."""
        outputs = [*self.outputs, *self.unread]
        outputs += [h.name for h in self.pool if h.name not in outputs and self.chance(0.1)]
        given = {i.name for i in self.b.inputs}
        made = []
        for held in self.pool:
            if held.name in outputs and held.name not in given:
                real = self.chance(0.2)
                made.append(self.b.op("DequantizeLinear", held.name, *held.grid) if real else held.name)
        return self.b.model(*self.outputs, *made)


Kind = Callable[[Draw], None]


def draw(
    seed: str, kinds: dict[str, Kind], least: int = 2, most: int = 8
) -> tuple[onnx.ModelProto, list[str]]:
    """A random model, and the kinds of its operators in order."""
    d = Draw(seed)
    wanted = d.r.randint(least, most)
    while len(d.kinds) < wanted:
        name = d.r.choice(list(kinds))
        with contextlib.suppress(UnfitError):
            kinds[name](d)
            d.kinds.append(name)
    return d.model(), d.kinds


def need(fits: bool) -> None:
    """Raise `UnfitError` unless the operands fit."""
    if not fits:
        raise UnfitError


def linear(x: Held, w: Held) -> bool:
    """Whether onnxruntime's QLinear products support these types; the result has the first one's."""
    return x.element == "uint8" or w.element == "int8"
