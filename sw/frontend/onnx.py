"""Reads ONNX models of MatMulInteger and ConvInteger nodes by the `onnx` package.

Supported are any number of these nodes on inputs and constants, with zero points for the tensor, for rows
of A, columns of B or output channels, and on the way to them Identity and, for products, a Transpose of the
last two axes, which becomes the operand's layout.
Everything else is refused with the node's name.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hw.errors import InputError
from sw.convolution import Convolution
from sw.frontend.zero_points import common_zero, deepened
from sw.layout import MEMORY_BYTES
from sw.patches import Axis
from sw.problem import TYPES, Product

SUPPORTED = "MatMulInteger, ConvInteger, Identity, Constant and Transpose of the last two axes"


@dataclass(frozen=True)
class Source:
    """Where an operand comes from: an input or constant by name, its last two axes swapped or not."""

    name: str
    swapped: bool = False


@dataclass(frozen=True)
class MatMulNode:
    """One MatMulInteger: operands, zero points where there are any, and the name of its result."""

    name: str
    a: Source
    b: Source
    zero_a: Source | None
    zero_b: Source | None
    output: str


@dataclass(frozen=True)
class ConvNode:
    """One ConvInteger: images, weights, zero points where there are any, name of the result, attributes."""

    name: str
    x: Source
    w: Source
    zero_x: Source | None
    zero_w: Source | None
    output: str
    attributes: dict[str, Any]


Node = MatMulNode | ConvNode


@dataclass(frozen=True)
class Model:
    """What a file holds: inputs with type and shape, constants, and products in the file's order."""

    name: str
    inputs: dict[str, tuple[np.dtype, tuple[int, ...]]]
    constants: dict[str, np.ndarray]
    nodes: tuple[Node, ...]


@dataclass(frozen=True)
class Bound:
    """A product or convolution with its operands as stored, and the shape that the model gives its result."""

    name: str
    op: str
    output: str
    problem: Product | Convolution
    a: np.ndarray
    b: np.ndarray
    shape: tuple[int, ...]


def read(path: Path) -> Model:
    """Read a model file; raises `InputError` for what cannot be read or is not supported."""
    return from_proto(_load(path), str(path))


def _load(path: Path) -> Any:
    if path.is_dir():
        raise InputError(f"{path}: must be a model file, not a directory")
    if not path.is_file():
        raise InputError(f"{path}: no such file")
    import onnx

    try:
        # The file is not trusted: the library raises errors of a dozen unrelated types for broken ones.
        proto = onnx.load(str(path))
        onnx.checker.check_model(proto, full_check=False)
    except Exception as error:
        raise InputError(f"{path}: not a valid ONNX model: {_first_line(error)}") from None
    return proto


def from_proto(proto: Any, place: str = "model") -> Model:
    """The products of a model in memory (`onnx.ModelProto`); see `read`."""
    import onnx

    try:
        # Also finds operands that do not match; errors of many types, as above.
        graph = onnx.shape_inference.infer_shapes(proto, check_type=True, strict_mode=True).graph
    except Exception as error:
        raise InputError(f"{place}: shapes or types do not match: {_first_line(error)}") from None
    reader = _Reader(place, graph)
    if not reader.nodes:
        raise InputError(f"{place}: the model must hold a MatMulInteger or ConvInteger node, none was found")
    return Model(str(graph.name), reader.inputs, reader.constants, tuple(reader.nodes))


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0][:300] if lines else type(error).__name__


class _Reader:
    """Follows the nodes of a graph in order, remembering where every tensor comes from."""

    def __init__(self, place: str, graph: Any):
        self.place = place
        self.inputs: dict[str, tuple[np.dtype, tuple[int, ...]]] = {}
        self.constants: dict[str, np.ndarray] = {}
        self.sources: dict[str, Source] = {}
        self.ranks: dict[str, int] = {}
        self.nodes: list[Node] = []
        for tensor in graph.initializer:
            self._constant(tensor.name, tensor)
        for value in graph.input:
            if value.name not in self.constants:
                self._input(value)
        for number, node in enumerate(graph.node):
            self._node(node, f"node {node.name or f'#{number}'} ({node.op_type})", node.name or f"#{number}")

    def _constant(self, name: str, tensor: Any) -> None:
        from onnx import numpy_helper

        try:
            # Data that does not match the shape raises errors of several types.
            array = np.asarray(numpy_helper.to_array(tensor))
        except Exception as error:
            raise InputError(
                f"{self.place}: constant {name!r} cannot be read: {_first_line(error)}"
            ) from None
        self.constants[name] = array
        self.sources[name], self.ranks[name] = Source(name), array.ndim

    def _input(self, value: Any) -> None:
        from onnx import helper

        what = f"{self.place}: input {value.name!r}"
        if not value.type.HasField("tensor_type"):
            raise InputError(f"{what} must be a tensor, not {value.type.WhichOneof('value') or 'untyped'}")
        tensor = value.type.tensor_type
        if not tensor.HasField("shape"):
            raise InputError(f"{what} must have a fixed shape, it has none")
        sizes = []
        for axis, size in enumerate(tensor.shape.dim):
            if size.WhichOneof("value") != "dim_value" or size.dim_value < 1:
                found = size.dim_param or size.dim_value if size.WhichOneof("value") else "nothing"
                raise InputError(f"{what}: axis {axis} must have a fixed size of at least 1, not {found!r}")
            sizes.append(int(size.dim_value))
        if math.prod(sizes) > MEMORY_BYTES:
            raise InputError(
                f"{what} must fit {MEMORY_BYTES} bytes of memory, not hold {math.prod(sizes)} elements"
            )
        try:
            dtype = np.dtype(helper.tensor_dtype_to_np_dtype(tensor.elem_type))
        except KeyError:
            raise InputError(f"{what}: unknown element type {tensor.elem_type}") from None
        self.inputs[value.name] = (dtype, tuple(sizes))
        self.sources[value.name], self.ranks[value.name] = Source(value.name), len(sizes)

    def _node(self, node: Any, what: str, name: str) -> None:
        from onnx import helper

        what = f"{self.place}: {what}"
        if node.domain not in ("", "ai.onnx"):
            raise InputError(
                f"{what}: operators of domain {node.domain!r} are not supported, only {SUPPORTED}"
            )
        if node.op_type == "Constant":
            if len(node.attribute) != 1 or node.attribute[0].name != "value":
                raise InputError(f"{what}: a constant must be given by attribute 'value'")
            self._constant(node.output[0], node.attribute[0].t)
        elif node.op_type == "Identity":
            source = self._source(node.input[0], what)
            self.sources[node.output[0]], self.ranks[node.output[0]] = source, self.ranks[node.input[0]]
        elif node.op_type == "Transpose":
            self._transpose(node, what)
        elif node.op_type in ("MatMulInteger", "ConvInteger"):
            given = [self._source(i, what) if i else None for i in node.input]
            a, b, zero_a, zero_b = (*given, None, None)[:4]
            if a is None or b is None:
                raise InputError(f"{what}: both operands are needed")
            if node.op_type == "MatMulInteger":
                self.nodes.append(MatMulNode(name, a, b, zero_a, zero_b, node.output[0]))
            else:
                attributes = {x.name: helper.get_attribute_value(x) for x in node.attribute}
                self.nodes.append(ConvNode(name, a, b, zero_a, zero_b, node.output[0], attributes))
        else:
            raise InputError(f"{what}: the operator is not supported, only {SUPPORTED}")

    def _transpose(self, node: Any, what: str) -> None:
        source, rank = self._source(node.input[0], what), self.ranks[node.input[0]]
        order = next((list(a.ints) for a in node.attribute if a.name == "perm"), list(range(rank))[::-1])
        swap = [*range(rank - 2), rank - 1, rank - 2] if rank >= 2 else [0]
        if order not in (swap, list(range(rank))):
            raise InputError(f"{what}: perm must exchange the last two axes, {swap}, not {order}")
        swapped = source.swapped ^ (order == swap and rank >= 2)
        self.sources[node.output[0]], self.ranks[node.output[0]] = Source(source.name, swapped), rank

    def _source(self, name: str, what: str) -> Source:
        if name not in self.sources:
            made = next((n.name for n in self.nodes if n.output == name), None)
            kind = f"the result of node {made}" if made else "unknown"
            raise InputError(f"{what}: {name!r} is {kind}; it must be an input or a constant of the model")
        return self.sources[name]


def random_inputs(model: Model, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Inputs over the whole range of their types, the same for the same seed."""
    arrays: dict[str, np.ndarray] = {}
    for name, (dtype, shape) in model.inputs.items():
        if dtype.kind not in "iu":
            raise InputError(f"input {name!r} must be of a whole-number type, not {dtype}")
        limits = np.iinfo(dtype)
        arrays[name] = rng.integers(limits.min, limits.max, shape, dtype, endpoint=True)
    return arrays


def bind(model: Model, inputs: Mapping[str, np.ndarray]) -> list[Bound]:
    """The products of a model for given inputs; raises `InputError` for arrays that do not fit."""
    values = dict(model.constants)
    for name, array in inputs.items():
        if name not in model.inputs:
            known = ", ".join(model.inputs) or "none"
            raise InputError(f"input {name!r} is not one of the model's inputs ({known})")
        dtype, shape = model.inputs[name]
        if array.dtype != dtype or array.shape != shape:
            raise InputError(
                f"input {name!r} must be {dtype} of shape {list(shape)}, "
                f"not {array.dtype} of {list(array.shape)}"
            )
        values[name] = array
    missing = [name for name in model.inputs if name not in values]
    if missing:
        raise InputError(f"input {missing[0]!r} is needed and was not given")
    return [
        _bind(node, values) if isinstance(node, MatMulNode) else _bind_convolution(node, values)
        for node in model.nodes
    ]


def _bind(node: MatMulNode, values: Mapping[str, np.ndarray]) -> Bound:
    what = f"node {node.name} (MatMulInteger)"
    a, b = values[node.a.name], values[node.b.name]
    vector_a, vector_b = a.ndim == 1, b.ndim == 1
    a, b = (a[None, :] if vector_a else a), (b[:, None] if vector_b else b)
    for name, array in (("A", a), ("B", b)):
        if array.ndim < 2 or str(array.dtype) not in TYPES:
            raise InputError(
                f"{what}: {name} must be a tensor of {' or '.join(TYPES)}, "
                f"not {array.dtype} of {list(array.shape)}"
            )
    swapped_a, swapped_b = node.a.swapped and not vector_a, node.b.swapped and not vector_b
    m, k = a.shape[-2:][:: -1 if swapped_a else 1]
    depth, n = b.shape[-2:][:: -1 if swapped_b else 1]
    if depth != k:
        raise InputError(f"{what}: depths of A and B must be equal, not {k} and {depth}")
    zeros_a = _zero_points(node.zero_a, values, a.dtype, f"{what}: a_zero_point", (*a.shape[:-2], m, 1), -2)
    zeros_b = _zero_points(node.zero_b, values, b.dtype, f"{what}: b_zero_point", (*b.shape[:-2], 1, n), -1)
    (zero_a, fills_a), (zero_b, fills_b) = common_zero(zeros_a, a.dtype), common_zero(zeros_b, b.dtype)
    if fills_a or fills_b:
        a, b = (a.swapaxes(-1, -2) if swapped_a else a), (b.swapaxes(-1, -2) if swapped_b else b)
        swapped_a = swapped_b = False
        a, b = deepened(a, -1, b, -2, fills_a)
        b, a = deepened(b, -2, a, -1, fills_b)
    try:
        problem = Product(
            int(m),
            a.shape[-2 if swapped_a else -1],
            int(n),
            str(a.dtype),
            str(b.dtype),
            zero_a,
            zero_b,
            swapped_a,
            swapped_b,
            a.shape[:-2],
            b.shape[:-2],
        )
    except InputError as error:
        raise InputError(f"{what}: {error}") from None
    core = ((m,) if not vector_a else ()) + ((n,) if not vector_b else ())
    return Bound(node.name, "MatMulInteger", node.output, problem, a, b, (*problem.batch, *core))


def _bind_convolution(node: ConvNode, values: Mapping[str, np.ndarray]) -> Bound:
    what = f"node {node.name} (ConvInteger)"
    x, w = values[node.x.name], values[node.w.name]
    if node.x.swapped or node.w.swapped:
        raise InputError(f"{what}: a Transpose before a convolution is not supported")
    for name, array in (("x", x), ("w", w)):
        if array.ndim not in (3, 4) or array.ndim != x.ndim or str(array.dtype) not in TYPES:
            raise InputError(
                f"{what}: {name} must be a tensor of {' or '.join(TYPES)} with one or two axes besides "
                f"images and channels, not {array.dtype} of {list(array.shape)}"
            )
    axes = [
        _axis(node.attributes, i, x.ndim - 2, x.shape[2 + i], w.shape[2 + i], what) for i in range(x.ndim - 2)
    ]
    shape = [axis.outputs for axis in axes]
    if x.ndim == 3:
        x, w, axes = x[:, :, None], w[:, :, None], [Axis(1, 1), *axes]
    groups = int(node.attributes.get("group", 1))
    if groups < 1 or w.shape[1] * groups != x.shape[1]:
        raise InputError(
            f"{what}: channels of x must be group ({groups}) times those of w ({w.shape[1]}), "
            f"not {x.shape[1]}"
        )
    out = w.shape[0]
    zeros_w = _zero_points(node.zero_w, values, w.dtype, f"{what}: w_zero_point", (out, 1, 1, 1), 0)
    zeros_x = _zero_points(node.zero_x, values, x.dtype, f"{what}: x_zero_point", (1, 1, 1, 1), None)
    zero_w, fills = common_zero(zeros_w, w.dtype)
    if fills:
        apart = x.reshape(x.shape[0], groups, -1, *x.shape[2:])
        w, apart = deepened(w, 1, apart, 2, fills)
        x = apart.reshape(x.shape[0], -1, *x.shape[2:])
    try:
        problem = Convolution(
            x.shape[0],
            x.shape[1],
            axes[0],
            axes[1],
            out,
            str(w.dtype),
            str(x.dtype),
            zero_w,
            int(zeros_x.flat[0]),
            groups,
        )
    except InputError as error:
        raise InputError(f"{what}: {error}") from None
    return Bound(node.name, "ConvInteger", node.output, problem, w, x, (x.shape[0], w.shape[0], *shape))


def _axis(attributes: Mapping[str, Any], i: int, count: int, size: int, kernel: int, what: str) -> Axis:
    """One axis of a convolution from the attributes of its node."""

    def given(name: str, default: int, length: int) -> list[int]:
        values = [int(v) for v in attributes.get(name) or [default] * length]
        if len(values) != length:
            raise InputError(f"{what}: {name} must hold {length} numbers, not {len(values)}")
        return values

    stride, dilation = given("strides", 1, count)[i], given("dilations", 1, count)[i]
    pads = given("pads", 0, 2 * count)
    before, after = pads[i], pads[count + i]
    if given("kernel_shape", kernel, count)[i] != kernel:
        raise InputError(f"{what}: kernel_shape must be that of w, not {attributes['kernel_shape']}")
    mode = attributes.get("auto_pad", b"NOTSET").decode()
    if mode in ("SAME_UPPER", "SAME_LOWER") and stride > 0:
        outputs = -(-size // stride)
        total = max(0, (outputs - 1) * stride + (kernel - 1) * dilation + 1 - size)
        small, large = total // 2, total - total // 2
        before, after = (small, large) if mode == "SAME_UPPER" else (large, small)
    elif mode == "VALID":
        before = after = 0
    elif mode != "NOTSET":
        raise InputError(f"{what}: auto_pad must be NOTSET, VALID, SAME_UPPER or SAME_LOWER, not {mode}")
    return Axis(size, kernel, stride, before, after, dilation)


def _zero_points(
    source: Source | None,
    values: Mapping[str, np.ndarray],
    dtype: np.dtype,
    what: str,
    shape: tuple[int, ...],
    axis: int | None,
) -> np.ndarray:
    """The zero points of an operand, of that shape or one for all; a vector lies along `axis`."""
    if source is None:
        return np.zeros(1, dtype)
    array = values[source.name]
    if array.dtype != dtype:
        raise InputError(f"{what} must be {dtype} like its operand, not {array.dtype}")
    if array.size == 1:
        return array.reshape(1)
    if array.shape == shape:
        return array
    if axis is None or array.shape != (shape[axis],):
        vector = f", a vector of {shape[axis]}" if axis is not None else ""
        raise InputError(
            f"{what} must be one value{vector} or of shape {list(shape)}, not {list(array.shape)}"
        )
    return array.reshape([-1 if i == axis % len(shape) else 1 for i in range(len(shape))])
