"""Reads an ONNX file: validated, with fixed shapes, nodes in order, and constants by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from hw.errors import InputError
from sw.frontend.fold import Folding
from sw.frontend.node import OnnxNode
from sw.frontend.protos import (
    DEFAULT_DOMAINS,
    array,
    first_line,
    form,
    in_order,
    names,
    tensors,
    typed,
)
from sw.frontend.sizes import Kind, check_sizes

#: Metadata key: real numbers without an exact form are computed in fixed point.
_FIXED_POINT = "heald.fixed_point"


#: The oldest opset supported, as in onnxruntime.
_OPSET = 7


@dataclass(frozen=True)
class OnnxModel:
    """The contents of a file: inputs with type and shape, constants, nodes in executable order, outputs.

    Nodes are the standard ones that outputs need and that do not follow from constants. `shapes` are those of
    averaged tensors, as far as known. `fixed_point` says whether real numbers without an exact form are
    computed in fixed point. `form` says how the model is quantised (`sw.frontend.protos.form`). `origins`
    maps a node's name to its operator in the file, and to the If whose branch contains it.
    """

    name: str
    opset: int
    inputs: dict[str, Kind]
    constants: dict[str, np.ndarray]
    nodes: tuple[OnnxNode, ...]
    outputs: tuple[str, ...]
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    fixed_point: bool = False
    form: str = "float"
    origins: Mapping[str, tuple[str, str]] = field(default_factory=dict)


def with_fixed_point(proto: Any) -> Any:
    """A copy of a model that allows fixed point, which it keeps wherever it is written."""
    made = type(proto)()
    made.CopyFrom(proto)
    if not any(p.key == _FIXED_POINT for p in made.metadata_props):
        made.metadata_props.add(key=_FIXED_POINT, value="true")
    return made


def load(source: Path | str | Any, place: str = "model") -> OnnxModel:
    """Reads a file, or an `onnx.ModelProto` that messages call `place`.

    Raises `InputError` if it is not a valid model.
    """
    if isinstance(source, str | Path):
        return _model(read_file(Path(source)), str(source))
    return _model(source, place)


def read_file(path: Path) -> Any:
    """The unchecked `onnx.ModelProto` of a file; raises `InputError` if it cannot be read."""
    try:
        if path.is_dir():
            raise InputError(f"{path}: must be a model file, not a directory")
        if not path.is_file():
            raise InputError(f"{path}: no such file")
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None
    import onnx

    try:
        # Do not trust the file: for broken ones, the library raises errors of a dozen unrelated types.
        found = onnx.load(str(path))
    except Exception as error:
        raise InputError(f"{path}: not a valid ONNX model: {_unreadable(error)}") from None
    if not found.ByteSize():
        raise InputError(f"{path}: not a valid ONNX model: the file is empty; export or copy it again")
    return found


def _unreadable(error: Exception) -> str:
    """Why a file cannot be read: the library's message, unless that only says that parsing failed."""
    if type(error).__name__ == "DecodeError":
        return "it is of another kind, or cut off; export or copy it again"
    return first_line(error)


def parsed(data: bytes, place: str) -> Any:
    """The unchecked `onnx.ModelProto` in the bytes of a file; raises `InputError` if there is none."""
    import onnx

    try:
        return onnx.load_model_from_string(data)
    except Exception as error:
        # The protocol buffer parser has errors of its own.
        raise InputError(f"{place}: not a valid ONNX model: {_unreadable(error)}") from None


def _model(proto: Any, place: str) -> OnnxModel:
    proto = _checked(proto, place)
    graph = proto.graph
    if not graph.output:
        raise InputError(f"{place}: a model must have an output, it has none")
    if graph.sparse_initializer:
        raise InputError(f"{place}: constants must be dense, sparse ones are not supported")
    constants = {t.name: array(t, f"{place}: constant {t.name!r}") for t in graph.initializer}
    inputs = {v.name: typed(v, place) for v in graph.input if v.name not in constants}
    opset = int(next((o.version for o in proto.opset_import if o.domain in DEFAULT_DOMAINS), 0))
    if opset < _OPSET:
        raise InputError(
            f"{place}: opset must be {_OPSET} or newer, where operands broadcast as in NumPy, not {opset}; "
            f"convert the model (onnx.version_converter)"
        )
    outputs = tuple(v.name for v in graph.output)
    folding = Folding(opset, inputs, constants, names(graph))
    folding.graph(graph.node)
    nodes = folding.result(outputs)
    averaged = {node.inputs[0]: folding.kind(node.inputs[0]) for node in nodes if node.op == "ReduceMean"}
    shapes = {name: kind[1] for name, kind in averaged.items() if kind is not None}
    fixed = any(p.key == _FIXED_POINT for p in proto.metadata_props)
    told = (form(graph), folding.origins)
    return OnnxModel(str(graph.name), opset, inputs, constants, nodes, outputs, shapes, fixed, *told)


def valid(proto: Any, place: str) -> Any:
    """A model that passes ONNX's checker, with nodes in order and its functions inlined.

    Raises `InputError` for one that does not.
    """
    import onnx

    for tensor in tensors(proto.graph):
        if tensor.data_location == tensor.EXTERNAL:
            raise InputError(
                f"{place}: constant {tensor.name!r} is in another file, which can only be found from the "
                "path of the model: give the path, or the result of onnx.load"
            )
    proto = in_order(proto)
    try:
        onnx.checker.check_model(proto)
        if proto.functions:
            from onnx import inliner

            # Inlining converts functions of another opset to the model's, which needs types.
            known = onnx.shape_inference.infer_shapes(proto)
            proto = inliner.inline_local_functions(known, convert_version=True)
    except Exception as error:
        raise InputError(f"{place}: not a valid ONNX model: {first_line(error)}") from None
    return proto


def _checked(proto: Any, place: str) -> Any:
    """A valid model with fixed sizes."""
    import onnx

    proto = valid(proto, place)
    check_sizes(proto, place)
    try:
        # Finds operands that do not match; it ignores operators of other domains.
        onnx.shape_inference.infer_shapes(proto, check_type=True, strict_mode=True)
    except Exception as error:
        raise InputError(f"{place}: shapes or types do not match: {first_line(error)}") from None
    return proto
