"""Sizes of axes that a model leaves open, and shape inference from known sizes."""

from __future__ import annotations

import difflib
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from hw.errors import InputError, whole_number
from sw.frontend.node import OnnxNode, fresh
from sw.graph.host import known_opset, named_node

#: Type and shape of a tensor.
Kind = tuple[np.dtype, tuple[int, ...]]
#: Largest constant shown to shape inference; larger ones say nothing about shapes.
_SHOWN = 1 << 12


def parse_sizes(texts: Sequence[str]) -> dict[str, int]:
    """Sizes by name from `NAME=SIZE`; raises `InputError` for other texts and for conflicting sizes."""
    found: dict[str, int] = {}
    for text in texts:
        name, _, size = text.rpartition("=")
        if not name or not re.fullmatch(r"[0-9]{1,10}", size):
            example = f"--dim {shlex.quote(f'{name or text:.40}')}=1"
            raise InputError(f"--dim must be NAME=SIZE with a whole number, as {example}, not {text!r:.80}")
        if found.setdefault(name, int(size)) != int(size):
            raise InputError(f"--dim {name!r:.60} must have one size, not {found[name]} and {size}")
    return found


def with_sizes(proto: Any, sizes: Mapping[str, int], place: str) -> Any:
    """A copy of a model with these sizes for open axes of its inputs.

    A size is given by the name of a dimension, or by INPUT.AXIS. Raises `InputError` for names that the model
    does not have, for sizes below 1, and for two sizes of an axis.
    """
    if not sizes:
        return proto
    made = type(proto)()
    made.CopyFrom(proto)
    axes = list(_axes(made))
    opened = [(axis, names) for axis, names in axes if _open(axis)]
    for name, size in sizes.items():
        whole_number(f"size of {name!r}", size, 1)
        if not any(name in names for _, names in opened):
            fixed = next((axis.dim_value for axis, names in axes if name in names), None)
            raise InputError(f"{place}: {_not_open(name, fixed, [names for _, names in opened])}")
    for axis, names in opened:
        given = {name: sizes[name] for name in names if name in sizes}
        if len(set(given.values())) > 1:
            both = " and ".join(f"{name}={size}" for name, size in given.items())
            raise InputError(f"{place}: --dim {both} are one axis, which must have one size")
        for size in given.values():
            axis.dim_value = size
    # The types of intermediate tensors were inferred for open sizes.
    del made.graph.value_info[:]
    for value in made.graph.output:
        for axis in value.type.tensor_type.shape.dim:
            if axis.dim_param:
                axis.Clear()
    return made


def _not_open(name: str, fixed: int | None, opened: Sequence[tuple[str, ...]]) -> str:
    """Why a size cannot be set."""
    known = ", ".join(dict.fromkeys(names[-1] for names in opened))
    near = "".join(f"did you mean {n!r}? " for n in difflib.get_close_matches(name, sum(opened, ()), 1))
    what = f"no axis {name!r:.60} is open"
    if fixed is not None:
        what, near = f"axis {name!r:.60} has the fixed size {fixed}", ""
    return f"{what}; " + (
        f"{near}open are {known:.150}" if known else "the model has no open sizes: omit --dim"
    )


def _axes(proto: Any) -> Iterator[tuple[Any, tuple[str, ...]]]:
    """The axes of inputs, each with its possible names, INPUT.AXIS first.

    Names without a letter or digit, such as `?`, stand for different sizes and do not count.
    """
    held = {t.name for t in proto.graph.initializer}
    for value in proto.graph.input:
        if value.name in held or not value.type.HasField("tensor_type"):
            continue
        for number, axis in enumerate(value.type.tensor_type.shape.dim):
            named = re.search(r"\w", axis.dim_param)
            yield axis, (f"{value.name}.{number}", *([axis.dim_param] if named else []))


def _open(axis: Any) -> bool:
    return bool(axis.WhichOneof("value") != "dim_value" or axis.dim_value < 1)


def check_sizes(proto: Any, place: str) -> None:
    """Raises an `InputError` that lists all open sizes with the options that set them."""
    found: dict[str, str] = {}
    for axis, names in _axes(proto):
        if _open(axis):
            found.setdefault(names[-1], "1" if names[0].endswith(".0") else "N")
    if found:
        options = " ".join(f"--dim {shlex.quote(name)}={size}" for name, size in found.items())
        chosen = " (N: a whole number of your choice)" if "N" in found.values() else ""
        told = f"inputs must have fixed sizes of at least 1; give those that are open: {options}{chosen}"
        raise InputError(f"{place}: {told}")


def inferred(node: OnnxNode, opset: int, operands: Mapping[str, Kind | np.ndarray]) -> list[Kind | None]:
    """Types and shapes of a node's outputs, by ONNX's shape inference; None if they are open.

    `operands` has the inputs of the node by name. Raises `InputError` if they do not match.
    """
    from onnx import helper, numpy_helper, shape_inference

    given, held = [], []
    for name, operand in operands.items():
        if isinstance(operand, np.ndarray) and operand.size <= _SHOWN:
            held.append(numpy_helper.from_array(np.asarray(operand, order="C"), name))
            continue
        dtype, shape = (operand.dtype, operand.shape) if isinstance(operand, np.ndarray) else operand
        kind = helper.np_dtype_to_tensor_dtype(dtype)
        given.append(helper.make_tensor_value_info(name, kind, list(shape)))
    outputs = [name or fresh(f"unread.{i}", node.inputs) for i, name in enumerate(node.outputs)]
    proto = named_node(node.op, node.inputs, outputs, node.attributes)
    results = [helper.make_empty_tensor_value_info(name) for name in outputs]
    graph = helper.make_graph([proto], "node", given, results, held)
    version = helper.make_opsetid("", known_opset(node.op, opset, node.attributes))
    model = helper.make_model(graph, opset_imports=[version])
    try:
        found = shape_inference.infer_shapes(model, strict_mode=True, data_prop=True)
    except Exception as error:  # the library raises errors of many types
        raise node.error(f"shapes or types do not match: {str(error).splitlines()[0]:.200}") from None
    return [_kind(value) for value in found.graph.output]


def _kind(value: Any) -> Kind | None:
    from onnx import helper

    tensor = value.type.tensor_type
    known = tensor.HasField("shape") and all(d.WhichOneof("value") == "dim_value" for d in tensor.shape.dim)
    if not tensor.elem_type or not known:
        return None
    return np.dtype(helper.tensor_dtype_to_np_dtype(tensor.elem_type)), tuple(
        d.dim_value for d in tensor.shape.dim
    )
