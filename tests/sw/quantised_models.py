"""Quantised models for tests, and onnxruntime as a second opinion on them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper

from sw.graph.network import Network

#: Places of the second factor and of its zero point among the operands of integer products.
_FACTORS = {
    "MatMulInteger": (1, 3),
    "ConvInteger": (1, 3),
    "DynamicQuantizeMatMul": (1, 3),
    "MatMulIntegerToFloat": (1, 5),
    "QLinearMatMul": (3, 5),
    "QLinearConv": (3, 5),
    "QGemm": (3, 5),
    "QAttention": (1, 7),
}


def _unsigned(model: onnx.ModelProto) -> onnx.ModelProto:
    """The same model with unsigned second factors where the first may be unsigned (constants and inputs).

    Without VNNI, onnxruntime adds pairs of products of uint8 and int8 in 16 bits, which saturate
    (255 * 127 + 255 * 127). A factor and its zero point that are both 128 more mean the same.
    """
    made = onnx.ModelProto()
    made.CopyFrom(model)
    graph = made.graph
    constants = {i.name: i for i in graph.initializer}
    elements = {i.name: i.type.tensor_type.elem_type for i in graph.input}
    elements |= {name: i.data_type for name, i in constants.items()}
    added: dict[str, onnx.TensorProto] = {}
    front: dict[str, list[onnx.NodeProto]] = {}

    def raised(name: str) -> str:
        result = f"{name}_raised"
        if name in elements and name not in constants:
            added["offset"] = numpy_helper.from_array(np.int32(128), "offset")
            front[name] = [
                helper.make_node("Cast", [name], [f"{name}_wide"], to=onnx.TensorProto.INT32),
                helper.make_node("Add", [f"{name}_wide", "offset"], [f"{name}_more"]),
                helper.make_node("Cast", [f"{name}_more"], [result], to=onnx.TensorProto.UINT8),
            ]
        else:
            array = numpy_helper.to_array(constants[name]).astype(np.int16) + 128 if name else np.int16(128)
            added[result] = numpy_helper.from_array(np.uint8(array), result)
        return result

    for node in graph.node:
        if node.op_type in _FACTORS:
            factor, zero = _FACTORS[node.op_type]
            node.input.extend([""] * (zero + 1 - len(node.input)))
            signed = onnx.TensorProto.INT8
            both = node.op_type.startswith(("QLinear", "QGemm")) and elements.get(node.input[2]) == signed
            if elements.get(node.input[factor]) == signed and not both:
                node.input[factor], node.input[zero] = raised(node.input[factor]), raised(node.input[zero])
    graph.initializer.extend(added.values())
    nodes = [*(node for group in front.values() for node in group), *graph.node]
    del graph.node[:]
    graph.node.extend(nodes)
    return made


def session(model: onnx.ModelProto, optimised: bool = False) -> Any:
    """The model in onnxruntime, as it is or with all its rewriting; sums of products never saturate."""
    options = onnxruntime.SessionOptions()
    levels = onnxruntime.GraphOptimizationLevel
    options.graph_optimization_level = levels.ORT_ENABLE_ALL if optimised else levels.ORT_DISABLE_ALL
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    if not any(node.op_type in _FACTORS for node in model.graph.node):
        # onnxruntime then does the same as `_unsigned` with products that it makes itself as it rewrites.
        options.add_session_config_entry("session.x64quantprecision", "1")
    return onnxruntime.InferenceSession(
        _unsigned(model).SerializeToString(), options, providers=["CPUExecutionProvider"]
    )


def runtime(
    model: onnx.ModelProto, inputs: dict[str, np.ndarray], optimised: bool = False
) -> dict[str, np.ndarray]:
    """The outputs of a model by onnxruntime."""
    made = session(model, optimised)
    return dict(zip([o.name for o in made.get_outputs()], made.run(None, inputs), strict=True))


def operator_results(
    model: onnx.ModelProto, network: Network, inputs: dict[str, np.ndarray], optimised: bool
) -> tuple[dict[str, np.ndarray], list[np.ndarray | None]]:
    """All tensors of onnxruntime by name, and what our operators make of them, one after the other.

    Tensors that onnxruntime does not have are what our operators make of its tensors; operators that write
    these have None.
    """
    wider = onnx.ModelProto()
    wider.CopyFrom(model)
    have = {o.name for o in wider.graph.output}
    made = {name for node in wider.graph.node for name in node.output}
    for name in network.tensors:
        if name in made and name not in have:
            wider.graph.output.append(helper.make_empty_tensor_value_info(name))
    theirs = runtime(wider, inputs, optimised)
    arrays = {n: t.constant for n, t in network.tensors.items() if t.constant is not None}
    arrays |= inputs | theirs
    found: list[np.ndarray | None] = []
    for operator in network.operators:
        tensor = network.tensors[operator.output.tensor]
        result = operator.reference([v.of(arrays[v.tensor]) for v in operator.inputs]).astype(tensor.element)
        if tensor.name in theirs:
            found.append(result)
        else:
            found.append(None)
            array = arrays.setdefault(tensor.name, np.zeros(tensor.shape, tensor.element))
            operator.output.write(array, result)
    return theirs, found


def operator_differences(
    model: onnx.ModelProto, network: Network, inputs: dict[str, np.ndarray], optimised: bool
) -> dict[str, tuple[int, int, float]]:
    """By operator, given onnxruntime's operands: elements that differ, elements, greatest difference."""
    theirs, results = operator_results(model, network, inputs, optimised)
    found = {}
    for operator, result in zip(network.operators, results, strict=True):
        if result is not None:
            shape = network.tensors[operator.output.tensor].shape
            expected = operator.output.of(theirs[operator.output.tensor].reshape(shape))
            apart = np.abs(expected.astype(np.float64) - result)
            found[operator.name] = (int((apart > 1e-5).sum()), apart.size, float(apart.max()))
    return found


class _Samples:
    """What the quantiser takes its ranges from."""

    def __init__(self, shape: Sequence[int], rng: np.random.Generator):
        self.left = [{"x": rng.standard_normal(shape).astype(np.float32)} for _ in range(4)]

    def get_next(self) -> dict[str, np.ndarray] | None:
        return self.left.pop() if self.left else None


def quantise(
    model: onnx.ModelProto, folder: Path, *, qdq: bool, per_channel: bool, element: str, symmetric: bool
) -> onnx.ModelProto:
    """The model as onnxruntime's static quantiser leaves it."""
    from onnxruntime.quantization import QuantFormat, QuantType, quantize_static

    shape = [d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim]
    onnx.save(model, folder / "float.onnx")
    quantize_static(
        folder / "float.onnx",
        folder / "quantised.onnx",
        _Samples(shape, np.random.default_rng(7)),
        quant_format=QuantFormat.QDQ if qdq else QuantFormat.QOperator,
        per_channel=per_channel,
        activation_type=QuantType.QInt8 if element == "int8" else QuantType.QUInt8,
        weight_type=QuantType.QInt8,
        extra_options={"ActivationSymmetric": symmetric},
    )
    return onnx.load(folder / "quantised.onnx")


class _Floats:
    """A float model: nodes with names, weights drawn."""

    def __init__(self, seed: int):
        self.rng = np.random.default_rng(seed)
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def held(self, array: Any) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def weights(self, *shape: int) -> str:
        fan = np.prod(shape[1:]) if len(shape) == 4 else shape[0]
        return self.held((self.rng.standard_normal(shape) / np.sqrt(fan)).astype(np.float32))

    def op(self, op: str, *inputs: str, **attributes: Any) -> str:
        name = f"{op.lower()}{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [f"{name}_out"], name=name, **attributes))
        return f"{name}_out"

    def model(self, output: str, shape: Sequence[int], result: Sequence[int]) -> onnx.ModelProto:
        graph = helper.make_graph(
            self.nodes,
            "test",
            [helper.make_tensor_value_info("x", 1, list(shape))],
            [helper.make_tensor_value_info(output, 1, list(result))],
            self.constants,
        )
        made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])
        made.ir_version = 10
        return made


def encoder(steps: int = 8, width: int = 16, heads: int = 2, inner: int = 32) -> onnx.ModelProto:
    """A layer of a transformer's encoder, in float32."""
    m = _Floats(1)

    def linear(x: str, inputs: int, outputs: int) -> str:
        return m.op("Add", m.op("MatMul", x, m.weights(inputs, outputs)), m.weights(outputs))

    def norm(x: str) -> str:
        gamma = m.held(m.rng.uniform(0.5, 1.5, width).astype(np.float32))
        return m.op("LayerNormalization", x, gamma, m.weights(width), axis=-1)

    apart, flat = m.held(np.array([1, steps, heads, width // heads])), m.held(np.array([1, steps, width]))
    parts = [m.op("Reshape", linear("x", width, width), apart) for _ in range(3)]
    q, k, v = (
        m.op("Transpose", part, perm=order)
        for part, order in zip(parts, ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3]), strict=True)
    )
    scores = m.op("Div", m.op("MatMul", q, k), m.held(np.float32(np.sqrt(width // heads))))
    context = m.op("MatMul", m.op("Softmax", scores, axis=-1), v)
    joined = m.op("Reshape", m.op("Transpose", context, perm=[0, 2, 1, 3]), flat)
    x = norm(m.op("Add", linear(joined, width, width), "x"))
    hidden = linear(m.op("Gelu", linear(x, width, inner)), inner, width)
    return m.model(norm(m.op("Add", hidden, x)), (1, steps, width), (1, steps, width))


def bottleneck(size: int = 16) -> onnx.ModelProto:
    """The start of a residual network and one of its blocks, in float32."""
    m = _Floats(2)

    def conv(x: str, inputs: int, outputs: int, kernel: int, **attributes: Any) -> str:
        shape = (outputs, inputs, kernel, kernel)
        return m.op("Conv", x, m.weights(*shape), m.weights(outputs), **attributes)

    x = m.op("Relu", conv("x", 3, 8, 7, strides=[2, 2], pads=[3, 3, 3, 3]))
    x = m.op("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    y = m.op("Relu", conv(x, 8, 4, 1))
    y = m.op("Relu", conv(y, 4, 4, 3, strides=[2, 2], pads=[1, 1, 1, 1]))
    total = m.op("Relu", m.op("Add", conv(y, 4, 16, 1), conv(x, 8, 16, 1, strides=[2, 2])))
    flat = m.op("Flatten", m.op("GlobalAveragePool", total))
    result = m.op("Gemm", flat, m.weights(10, 16), m.weights(10), transB=1)
    return m.model(result, (1, 3, size, size), (1, 10))
