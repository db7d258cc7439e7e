"""Reads an ONNX file: checked, with fixed shapes, nodes in order, constants by name."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hw.errors import InputError
from sw.frontend.contrib import expanded
from sw.frontend.node import OnnxNode

#: Tensors of a model must not be larger; the machine addresses less.
MOST_ELEMENTS = 1 << 31
#: The default domain of ONNX, under both its names.
DEFAULT_DOMAINS = ("", "ai.onnx")


@dataclass(frozen=True)
class OnnxModel:
    """What a file holds: inputs with type and shape, constants, nodes in an executable order, outputs."""

    name: str
    opset: int
    inputs: dict[str, tuple[np.dtype, tuple[int, ...]]]
    constants: dict[str, np.ndarray]
    nodes: tuple[OnnxNode, ...]
    outputs: tuple[str, ...]


def load(source: Path | str | Any, place: str = "model") -> OnnxModel:
    """Read a file, or an `onnx.ModelProto` that messages call `place`.

    Raises `InputError` for what is not a valid model.
    """
    if isinstance(source, str | Path):
        return _model(read_file(Path(source)), str(source))
    return _model(source, place)


def read_file(path: Path) -> Any:
    """The `onnx.ModelProto` of a file, not checked; raises `InputError` for what cannot be read."""
    try:
        if path.is_dir():
            raise InputError(f"{path}: must be a model file, not a directory")
        if not path.is_file():
            raise InputError(f"{path}: no such file")
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None
    import onnx

    try:
        # The file is not trusted: the library raises errors of a dozen unrelated types for broken ones.
        return onnx.load(str(path))
    except Exception as error:
        raise InputError(f"{path}: not a valid ONNX model: {first_line(error)}") from None


def first_line(error: Exception) -> str:
    """What an exception says, in one line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if not lines:
        return type(error).__name__
    # What a colon announces is in the next line.
    return (" ".join(lines[:2]) if lines[0].endswith(":") else lines[0])[:300]


def _model(proto: Any, place: str) -> OnnxModel:
    import onnx

    try:
        onnx.checker.check_model(proto)
    except Exception as error:
        raise InputError(f"{place}: not a valid ONNX model: {first_line(error)}") from None
    try:
        # Finds operands that do not match; operators of other domains are not looked into.
        onnx.shape_inference.infer_shapes(proto, check_type=True, strict_mode=True)
    except Exception as error:
        raise InputError(f"{place}: shapes or types do not match: {first_line(error)}") from None
    graph = proto.graph
    if not graph.output:
        raise InputError(f"{place}: a model must have an output, it has none")
    if graph.sparse_initializer:
        raise InputError(f"{place}: constants must be dense, sparse ones are not supported")
    constants = {t.name: array(t, f"{place}: constant {t.name!r}") for t in graph.initializer}
    inputs = {v.name: typed(v, place) for v in graph.input if v.name not in constants}
    opset = next((o.version for o in proto.opset_import if o.domain in DEFAULT_DOMAINS), 0)
    nodes: list[OnnxNode] = []
    for number, item in enumerate(graph.node):
        domain, node = _node(item, number, place)
        if node.op == "Constant" and not domain:
            constants[node.outputs[0]] = _constant(node)
        else:
            nodes += expanded(node, domain, constants)
    outputs = tuple(v.name for v in graph.output)
    return OnnxModel(str(graph.name), int(opset), inputs, constants, tuple(nodes), outputs)


def _constant(node: OnnxNode) -> np.ndarray:
    """The array of a Constant."""
    for name, value in node.attributes.items():
        if name == "value":
            return array(value, node.place)
        if name.startswith(("value_float", "value_int")):
            return np.asarray(value, np.float32 if name.startswith("value_float") else np.int64)
    raise node.error(f"a constant must hold numbers, not {', '.join(node.attributes) or 'nothing'}")


def array(tensor: Any, what: str) -> np.ndarray:
    """The elements of a `TensorProto`."""
    from onnx import numpy_helper

    try:
        # Data that does not match the shape raises errors of several types.
        return np.asarray(numpy_helper.to_array(tensor))
    except Exception as error:
        raise InputError(f"{what} cannot be read: {first_line(error)}") from None


def typed(value: Any, place: str) -> tuple[np.dtype, tuple[int, ...]]:
    """Type and shape of an input; raises `InputError` for what is no tensor of a fixed shape."""
    from onnx import helper

    what = f"{place}: input {value.name!r}"
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
    if math.prod(sizes) > MOST_ELEMENTS:
        raise InputError(f"{what} must have at most {MOST_ELEMENTS} elements, not {math.prod(sizes)}")
    try:
        return np.dtype(helper.tensor_dtype_to_np_dtype(tensor.elem_type)), tuple(sizes)
    except KeyError:
        raise InputError(f"{what}: unknown element type {tensor.elem_type}") from None


def _node(proto: Any, number: int, place: str) -> tuple[str, OnnxNode]:
    """The domain of a node, and the node; names that are missing are the number of the node."""
    from onnx import helper

    attributes = {}
    for attribute in proto.attribute:
        value = helper.get_attribute_value(attribute)
        if isinstance(value, bytes):
            value = value.decode(errors="replace")
        attributes[attribute.name] = value
    name = proto.name or f"#{number}"
    domain = "" if proto.domain in DEFAULT_DOMAINS else str(proto.domain)
    return domain, OnnxNode(name, str(proto.op_type), tuple(proto.input), tuple(proto.output), attributes)
