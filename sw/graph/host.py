"""Operators that the host executes: the edges of a model, and what the machine cannot do."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from hw.errors import InputError
from sw.graph.network import Operator, View

if TYPE_CHECKING:
    from onnx import NodeProto

#: Attributes of ours that ONNX does not know.
_OURS = ("opset",)
#: Units from which on every type of 8 bits saturates, whatever its zero point, and int32 does not overflow.
_SURE = 1 << 29


@dataclass(frozen=True)
class HostOperator(Operator):
    """A node of the model on arrays, as `onnx.reference` computes it.

    `node` is the serialised `NodeProto`, whose inputs are named `i0`, `i1`, ... for `operands` (an empty name
    where an optional input is missing) and whose outputs are `o0`, `o1`, ...; `result` says which of them
    this operator gives. `edge` marks quantisation of an input and dequantisation of an output of the model,
    which belong to handing tensors in and out.
    """

    operands: tuple[View, ...]
    node: bytes = field(repr=False)
    opset: int
    result: int = 0
    edge: bool = False

    @property
    def inputs(self) -> tuple[View, ...]:
        """The operands."""
        return self.operands

    def reference(self, arrays: Sequence[np.ndarray]) -> np.ndarray:
        """The result for arrays of the operands; raises `InputError` where the library cannot compute it."""
        from onnx import NodeProto

        return run_node(
            NodeProto.FromString(self.node), self.opset, {f"i{i}": a for i, a in enumerate(arrays)}, self.name
        )[self.result]


def node_of(op: str, present: Sequence[bool], results: int = 1, **attributes: Any) -> NodeProto:
    """The `NodeProto` of an operator; `present` says which inputs it has."""
    from onnx import helper

    numbers = itertools.count()
    names = [f"i{next(numbers)}" if here else "" for here in present]
    kept = {name: value for name, value in attributes.items() if name not in _OURS}
    made: NodeProto = helper.make_node(op, names, [f"o{i}" for i in range(results)], **kept)
    return made


def run_node(node: NodeProto, opset: int, arrays: dict[str, np.ndarray], name: str) -> list[np.ndarray]:
    """All results of one `NodeProto` by `onnx.reference`; raises `InputError` where it fails."""
    from onnx import helper
    from onnx.reference import ReferenceEvaluator

    arrays = _saturating(arrays, name) if node.op_type == "QuantizeLinear" else arrays
    inputs = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), list(a.shape))
        for n, a in arrays.items()
    ]
    outputs = [helper.make_empty_tensor_value_info(o) for o in node.output]
    try:
        graph = helper.make_graph([node], "node", inputs, outputs)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
        found = ReferenceEvaluator(model).run(None, arrays)
    except Exception as error:  # the library raises errors of any type
        text = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
        raise InputError(f"{name}: the host cannot compute it: {text[:200]}") from None
    return [np.asarray(x) for x in found]


def _saturating(arrays: dict[str, np.ndarray], name: str) -> dict[str, np.ndarray]:
    """Operands of a quantisation, values that surely saturate made smaller: the library casts to int32."""
    values, scales = arrays["i0"], arrays["i1"]
    if values.dtype.kind != "f":
        return arrays
    if np.isnan(values).any():
        raise InputError(f"{name}: values to quantise must be numbers, not NaN")
    most = values.dtype.type(_SURE * float(np.abs(scales).min(initial=np.inf)))
    return {**arrays, "i0": np.clip(values, -most, most)}
