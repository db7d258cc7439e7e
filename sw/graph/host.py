"""Operators executed by the host: the edges of a model, and what the machine cannot do."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from hw.errors import InputError
from sw.graph.network import Operator, View

if TYPE_CHECKING:
    from onnx import NodeProto

#: Our attribute: onnxruntime adds the products in 32 bits, so sums wrap when they overflow.
SUMS = "sums_of_32_bits"
#: Our attributes, unknown to ONNX.
_OURS = ("opset", SUMS)
#: IR version of models for onnxruntime: the newest that the oldest supported release reads.
_IR_VERSION = 10
#: Most sessions kept. A small one takes about 100 KB and 0.3 ms to create.
_SESSIONS = 1024
#: Operators that draw random numbers, so two runs could not be compared.
_RANDOM = (
    "RandomNormal",
    "RandomNormalLike",
    "RandomUniform",
    "RandomUniformLike",
    "Multinomial",
    "Bernoulli",
)
#: The largest range that can be quantised at run time.
_WIDEST = 2.0**128
#: Log level of onnxruntime's own messages: its errors are reported as ours.
_FATAL = 4


@dataclass(frozen=True)
class HostOperator(Operator):
    """A node of the model, computed by onnxruntime on arrays.

    `node` is the serialised `NodeProto`. Its inputs are named `i0`, `i1`, ... for `operands` (an empty name
    for a missing optional input), and its outputs `o0`, `o1`, ...; `result` selects the output that this
    operator returns. `edge` marks quantisation of a model input and dequantisation of a model output, which
    are part of passing tensors in and out. For other nodes, `reason` says why the machine does not execute
    them.
    """

    operands: tuple[View, ...]
    node: bytes = field(repr=False)
    opset: int
    result: int = 0
    edge: bool = False
    reason: str = field(default="", compare=False)

    @property
    def inputs(self) -> tuple[View, ...]:
        """The operands."""
        return self.operands

    def reference(self, arrays: Sequence[np.ndarray]) -> np.ndarray:
        """Computes the result for arrays of the operands.

        Raises `InputError` if onnxruntime fails, or if the shape differs from the one inferred at import.
        """
        from onnx import NodeProto

        node, given = NodeProto.FromString(self.node), {f"i{i}": a for i, a in enumerate(arrays)}
        found = run_node(node, self.opset, given, self.name)[self.result]
        if found.shape != self.output.shape:
            raise InputError(
                f"{self.name} ({self.op}): onnxruntime gives a result of shape {list(found.shape)} where the "
                f"model has {list(self.output.shape)}"
            )
        return found


def node_of(
    op: str,
    present: Sequence[bool],
    attributes: Mapping[str, Any] = MappingProxyType({}),
    results: int = 1,
    domain: str = "",
) -> NodeProto:
    """The `NodeProto` of an operator; `present` says which inputs it has."""
    numbers = itertools.count()
    names = [f"i{next(numbers)}" if here else "" for here in present]
    return named_node(op, names, [f"o{i}" for i in range(results)], attributes, domain)


def named_node(
    op: str, inputs: Sequence[str], outputs: Sequence[str], attributes: Mapping[str, Any], domain: str = ""
) -> NodeProto:
    """The `NodeProto` of an operator, with names for its inputs and outputs."""
    from onnx import AttributeProto, defs, helper

    made: NodeProto = helper.make_node(op, inputs, outputs, domain=domain)
    known = defs.get_schema(op).attributes if not domain and defs.has(op) else {}
    for name, value in attributes.items():
        if name in _OURS:
            continue
        # An empty list does not tell the type of its elements.
        empty = isinstance(value, Sequence) and not len(value) and not isinstance(value, str)
        kind = int(known[name].type.value) if name in known else AttributeProto.INTS
        made.attribute.append(helper.make_attribute(name, value, attr_type=kind if empty else None))
    return made


def known_opset(op: str, opset: int, attributes: Iterable[str]) -> int:
    """The nearest opset that has an operator with these attributes, newer ones first.

    Nodes made by the importer may be newer than their model, or written for newer or older opsets.
    """
    from onnx import defs

    needed = set(attributes) - {*_OURS}
    for version in (opset, *range(opset + 1, defs.onnx_opset_version() + 1), *range(opset - 1, 0, -1)):
        schema = defs.get_schema(op, version, "") if version > 0 and defs.has(op, version) else None
        if schema is not None and not schema.deprecated and needed <= schema.attributes.keys():
            return int(version)
    return opset


def run_node(node: NodeProto, opset: int, arrays: Mapping[str, np.ndarray], name: str) -> list[np.ndarray]:
    """All results of one `NodeProto` from onnxruntime; raises `InputError` if it fails."""
    if node.op_type == "QuantizeLinear" and np.isnan(arrays["i0"]).any():
        raise InputError(f"{name}: values to quantise must be numbers, not NaN")
    if node.op_type == "DynamicQuantizeLinear" and not np.ptp(arrays["i0"].astype(np.float64)) < _WIDEST:
        raise InputError(f"{name}: values to quantise must be finite, their range one that float32 holds")
    kinds = tuple((n, str(a.dtype)) for n, a in arrays.items())
    made = _session(node.SerializeToString(), opset, kinds, name)
    try:
        found = made.run(None, {n: np.asarray(a, order="C") for n, a in arrays.items()})
    except Exception as error:  # the library raises errors of many types
        raise InputError(f"{name}: onnxruntime cannot compute it: {_reason(error)}") from None
    for x in found:
        if not isinstance(x, np.ndarray | np.generic):
            raise InputError(f"{name}: its results must be tensors, not sequences or nothing")
    return [np.asarray(x) for x in found]


def check_node(node: NodeProto, opset: int, elements: Sequence[str], result: str, name: str) -> None:
    """Raises `InputError` if onnxruntime cannot execute a node with these types of operands and result."""
    for element in (*elements, result):
        strings = np.dtype(element).kind == "O"
        if strings or np.dtype(element).isbuiltin != 1:
            raise InputError(
                f"{name}: tensors of {'strings' if strings else element} cannot be handed to onnxruntime, "
                f"which runs the host's operators; convert the model to float32, float16 or whole numbers of "
                f"8 bits and more"
            )
    kinds = tuple((f"i{i}", element) for i, element in enumerate(elements))
    _session(node.SerializeToString(), opset, kinds, name)


@functools.lru_cache(maxsize=_SESSIONS)
def _session(node: bytes, opset: int, kinds: tuple[tuple[str, str], ...], name: str) -> Any:
    """An onnxruntime session for the node as a model of its own, not rewritten, with open shapes."""
    from onnx import NodeProto, helper

    proto = NodeProto.FromString(node)
    if proto.op_type in _RANDOM:
        raise InputError(f"{name}: its result changes from run to run; make it an input of the model")
    try:
        inputs = [
            helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(np.dtype(kind)), None)
            for n, kind in kinds
        ]
        outputs = [helper.make_empty_tensor_value_info(o) for o in proto.output if o]
        graph = helper.make_graph([proto], "node", inputs, outputs)
        versions = {"": opset, **({proto.domain: 1} if proto.domain else {})}
        opsets = [helper.make_opsetid(*version) for version in versions.items()]
        return session(helper.make_model(graph, opset_imports=opsets))
    except Exception as error:
        types = ", ".join(dict.fromkeys(kind for _, kind in kinds))
        raise InputError(
            f"{name}: onnxruntime, which runs the host's operators, has none of opset {opset} for {types} "
            f"({_reason(error)}); convert the model to opset 13 or newer, or to other types"
        ) from None


def session(model: Any) -> Any:
    """A single-threaded onnxruntime session for a model, not rewritten; raises the library's errors."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = _FATAL
    model.ir_version = min(model.ir_version, _IR_VERSION)
    return onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )


def _reason(error: Exception) -> str:
    """The message of onnxruntime as one short line, without its numbers."""
    lines = [line for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    return lines[0].removeprefix("[ONNXRuntimeError] : ").partition(" : ")[2][:110] or lines[0][:110]
