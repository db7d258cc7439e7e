"""Single operators against onnxruntime: equal, or closer to the exact result."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from onnx import helper, numpy_helper

from heald.testing.models import Builder
from sw.frontend.network import import_model
from sw.graph.reference import random_inputs, run
from tests.sw.quantised_models import runtime

MICROSOFT = "com.microsoft"
BYTES = ("int8", "uint8")


def results(model: Any, seed: int = 0) -> tuple[dict[str, np.ndarray], ...]:
    """Inputs, our outputs, those of onnxruntime; types and shapes must be equal."""
    network = import_model(model)
    inputs = random_inputs(network, np.random.default_rng(seed))
    ours, theirs = run(network, inputs), runtime(model, inputs)
    assert list(ours) == list(theirs)
    for name, array in ours.items():
        assert array.dtype == theirs[name].dtype
        assert array.shape == theirs[name].shape
    return inputs, ours, theirs


def farthest(model: Any) -> int:
    """By how much our outputs differ from onnxruntime's at most."""
    _, ours, theirs = results(model)
    return max(int(np.abs(array.astype(np.int64) - theirs[name]).max()) for name, array in ours.items())


UNARY = (
    "Relu Sigmoid Tanh Erf LeakyRelu HardSwish Exp Neg Abs Gelu Elu Softplus HardSigmoid Selu Softsign Sign"
)


@pytest.mark.parametrize("element", BYTES)
@pytest.mark.parametrize("op", UNARY.split())
def test_functions_of_one_value_are_onnxruntimes(op: str, element: str) -> None:
    b = Builder(3)
    x = b.input((3, 400), element)
    assert farthest(b.model(b.quantised(b.op(op, b.real(x, element)), element))) == 0


def test_a_chain_of_functions_is_one_table() -> None:
    b = Builder()
    real = b.real(b.input((2, 500)), "int8")
    erf = b.op("Erf", b.op("Div", real, b.constant(np.sqrt(2), np.float32)))
    half = b.op(
        "Mul", b.constant(0.5, np.float32), b.op("Mul", real, b.op("Add", erf, b.constant(1, np.float32)))
    )
    model = b.model(b.quantised(b.op("Sqrt", b.op("Abs", half)), "uint8"))
    assert len(import_model(model).operators) == 1
    assert farthest(model) == 0


def rounded(value: Fraction, zero: int, element: str) -> int:
    limits = np.iinfo(element)
    return min(max(round(value) + zero, limits.min), limits.max)


@pytest.mark.parametrize(
    ("op", "domain"),
    [(op, "") for op in ("Add", "Sub", "Mul", "Max", "Min")] + [("Add", MICROSOFT), ("Mul", MICROSOFT)],
)
@pytest.mark.parametrize("element", BYTES)
def test_two_values_give_the_exact_result_rounded_once(op: str, domain: str, element: str) -> None:
    b = Builder(5)
    names = b.input((20, 30), element), b.input((30,), element)
    grids = [b.grid(element) for _ in names]
    values = {c.name: c for c in b.constants}
    scales = [_number(values[g[0]]) for g in grids]
    out = b.grid(element, float(scales[0] * scales[1] * 90 if op == "Mul" else max(scales) * Fraction(5, 3)))
    if domain:
        given = [part for n, g in zip(names, grids, strict=True) for part in (n, *g)]
        result = b.op(f"QLinear{op}", *given, *out, domain=domain)
    else:
        reals = [b.op("DequantizeLinear", n, *g) for n, g in zip(names, grids, strict=True)]
        result = b.op("QuantizeLinear", b.op(op, *reals), *out)
    inputs, ours, theirs = results(b.model(result))
    numbers = {c.name: _number(c) for c in b.constants}
    combine: Callable[[Fraction, Fraction], Fraction] = {
        "Add": lambda x, y: x + y,
        "Sub": lambda x, y: x - y,
        "Mul": lambda x, y: x * y,
        "Max": max,
        "Min": min,
    }[op]
    a, c = np.broadcast_arrays(*(inputs[n] for n in names))
    for place in np.ndindex(a.shape):
        x, y = (
            (int(array[place]) - numbers[g[1]]) * numbers[g[0]]
            for array, g in zip((a, c), grids, strict=True)
        )
        exact = combine(x, y) / numbers[out[0]]
        assert ours[result][place] == rounded(exact, int(numbers[out[1]]), element)
        if ours[result][place] != theirs[result][place]:
            # Only its rounding to float32 can make onnxruntime differ, and only next to a tie.
            assert abs(abs(exact - round(exact)) - Fraction(1, 2)) < Fraction(1, 1 << 12)


def _number(tensor: Any) -> Fraction:
    return Fraction(float(numpy_helper.to_array(tensor).item()))


@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("element", BYTES)
@pytest.mark.parametrize("kind", ["QLinearMatMul", "QLinearConv", "QGemm"])
def test_sums_are_scaled_exactly(kind: str, element: str, per_channel: bool) -> None:
    b = Builder(11)
    rng = b.rng
    count = 8
    x_scale, x_zero = b.grid(element)
    scales = np.exp(rng.uniform(-6, -4, count if per_channel else 1)).astype(np.float32)
    scales = scales if per_channel else scales.reshape(())
    y_scale, y_zero = b.grid(element, float(_number(b.constants[0])) * float(scales.max()) * 431.7)
    w_scale, w_zero = b.constant(scales), b.constant(np.zeros(scales.shape, np.int8))
    bias = rng.integers(-9999, 9999, count, dtype=np.int32)
    if kind == "QLinearConv":
        x = b.input((1, 4, 12, 11), element)
        w = rng.integers(-127, 128, (count, 2, 3, 3), dtype=np.int8)
        attributes = {"strides": [2, 1], "pads": [1, 0, 2, 1], "dilations": [1, 2], "group": 2}
        given = (x, x_scale, x_zero, b.constant(w), w_scale, w_zero, y_scale, y_zero, b.constant(bias))
        result = b.op(kind, *given, **attributes)
    else:
        x = b.input((50, 30), element)
        w = rng.integers(-127, 128, (30, count), dtype=np.int8)
        given = (x, x_scale, x_zero, b.constant(w), w_scale, w_zero)
        more = (b.constant(bias),) if kind == "QGemm" else ()
        domain = MICROSOFT if kind == "QGemm" else ""
        result = b.op(kind, *given, *more, y_scale, y_zero, domain=domain)
    inputs, ours, theirs = results(b.model(result))
    xs, zx, ys, zy = (
        _number(next(c for c in b.constants if c.name == n)) for n in (x_scale, x_zero, y_scale, y_zero)
    )
    # In the order in which onnxruntime rounds.
    scale = np.float32(float(xs)) * scales / np.float32(float(ys))
    total = _sums(kind, inputs[x].astype(np.int64) - int(zx), w.astype(np.int64), bias)
    axis = (count, 1, 1) if kind == "QLinearConv" else (count,)
    scale = np.broadcast_to(scale.reshape(axis) if per_channel else scale, total.shape)
    for place in np.ndindex(total.shape):
        exact = int(total[place]) * Fraction(float(scale[place]))
        assert ours[result][place] == rounded(exact, int(zy), element)
        if ours[result][place] != theirs[result][place]:
            assert abs(abs(exact - round(exact)) - Fraction(1, 2)) < Fraction(1, 1 << 12)


def _sums(kind: str, x: np.ndarray, w: np.ndarray, bias: np.ndarray) -> np.ndarray:
    if kind != "QLinearConv":
        return x @ w + (bias if kind == "QGemm" else 0)
    padded = np.pad(x, ((0, 0), (0, 0), (1, 2), (0, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 5), (2, 3))[:, :, ::2, :, :, ::2]
    halves = [
        np.einsum("ncrskl,ockl->nors", windows[:, 2 * g : 2 * g + 2], w[4 * g : 4 * g + 4]) for g in (0, 1)
    ]
    return np.concatenate(halves, 1) + bias.reshape(-1, 1, 1)


@pytest.mark.parametrize("element", BYTES)
def test_products_of_whole_numbers(element: str) -> None:
    b = Builder(1)
    rng = b.rng
    other = "uint8" if element == "int8" else "int8"
    x, w = b.input((3, 9, 17), element), b.input((17, 6), other)
    flat = b.input((9, 17), element)
    zero, columns = b.constant(7, element), b.constant(rng.integers(0, 100, 6), other)
    model = b.model(
        b.op("MatMulInteger", x, w, zero, b.constant(3, other)),
        b.op("MatMulInteger", x, w),
        b.op("MatMulInteger", flat, w, zero, columns),
    )
    assert farthest(model) == 0
    # onnxruntime takes no zero points of rows, so this is compared with the definition.
    b = Builder(1)
    flat, w = b.input((9, 17), element), b.input((17, 6), other)
    rows_array, columns_array = rng.integers(0, 100, 9), rng.integers(0, 100, 6)
    rows, columns = b.constant(rows_array, element), b.constant(columns_array, other)
    name = b.op("MatMulInteger", flat, w, rows, columns)
    graph = helper.make_graph(
        b.nodes, "rows", b.inputs, [helper.make_tensor_value_info(name, 6, [9, 6])], b.constants
    )
    network = import_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)]))
    inputs = random_inputs(network, rng)
    left = inputs[flat].astype(np.int64) - rows_array[:, None]
    assert np.array_equal(run(network, inputs)[name], left @ (inputs[w].astype(np.int64) - columns_array))


@pytest.mark.parametrize("scheme", ["one", "each"])
def test_convolutions_of_whole_numbers(scheme: str) -> None:
    b = Builder(2)
    x, w = b.input((2, 4, 9, 8), "uint8"), b.input((6, 4, 3, 2), "uint8")
    zeros = b.constant(11 if scheme == "one" else b.rng.integers(0, 255, 6), "uint8")
    result = b.op("ConvInteger", x, w, b.constant(130, "uint8"), zeros, pads=[1, 0, 1, 1], strides=[1, 2])
    if scheme == "one":
        assert farthest(b.model(result)) == 0
        return
    info = helper.make_tensor_value_info(result, 6, [2, 6, 9, 4])
    graph = helper.make_graph(b.nodes, "each", b.inputs, [info], b.constants)
    network = import_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)]))
    inputs = random_inputs(network, b.rng)
    found = run(network, inputs)[result]
    padded = np.pad(inputs[x].astype(np.int64) - 130, ((0, 0), (0, 0), (1, 1), (0, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 2), (2, 3))[:, :, :, ::2]
    each = numpy_helper.to_array(b.constants[0]).astype(np.int64).reshape(-1, 1, 1, 1)
    assert np.array_equal(found, np.einsum("ncrskl,ockl->nors", windows, inputs[w].astype(np.int64) - each))


def test_real_products_with_biases() -> None:
    b = Builder(4)
    rng = b.rng
    x = b.real(b.input((2, 9, 20)), "int8", 0.02)
    scales = np.exp(rng.uniform(-6, -4, 6)).astype(np.float32)
    weights = b.constant(rng.integers(-127, 128, (20, 6)), np.int8)
    w = b.op("DequantizeLinear", weights, b.constant(scales), b.constant(np.zeros(6, np.int8)), axis=1)
    floats = b.constant(rng.normal(0, 1, 6).astype(np.float32))
    outputs = [
        b.quantised(b.op("Relu", b.op("Add", b.op("MatMul", x, w), floats)), "uint8", 0.011),
        b.quantised(b.op("Clip", b.op("MatMul", x, w), "", b.constant(0.3, np.float32)), "int8", 0.0123),
        b.quantised(b.op("Mul", b.op("MatMul", x, w), b.constant(-0.37, np.float32)), "int8", 0.0123),
    ]
    assert farthest(b.model(*outputs)) == 0


def test_a_product_with_a_residual_is_one_operator() -> None:
    b = Builder(4)
    x = b.real(b.input((8, 16)), "int8", 0.02)
    w = b.real(b.constant(b.rng.integers(-127, 128, (16, 16)), np.int8), "int8", 0.003)
    hidden = b.real(b.quantised(b.op("MatMul", x, w), "int8", 0.017), "int8", 0.017)
    model = b.model(b.quantised(b.op("Relu", b.op("Add", hidden, x)), "int8", 0.0219))
    network = import_model(model)
    assert [operator.op for operator in network.operators] == ["MatMul"]
    assert len(network.operators[0].nodes) == 5
    assert farthest(model) == 0


@pytest.mark.parametrize("element", BYTES)
def test_operators_on_whole_numbers(element: str) -> None:
    b = Builder()
    x, y = b.input((3, 5, 4), "int32"), b.input((5, 1), "int32")
    outputs = [b.op(op, x, y) for op in ("Add", "Sub", "Mul", "Max", "Min")]
    u, v = b.input((3, 5, 4), element), b.input((5, 1), element)
    outputs += [b.op(op, u, v) for op in ("Max", "Min", "BitwiseAnd", "BitwiseOr", "BitwiseXor")]
    outputs += [b.op("BitwiseNot", u), b.op("Abs", x), b.op("Neg", x), b.op("Sign", x), b.op("Relu", x)]
    outputs += [b.op("Clip", u, b.constant(9, element), b.constant(77, element))]
    outputs += [b.op("Cast", x, to=3), b.op("Cast", x, to=2), b.op("Cast", u, to=6)]
    outputs += [b.op("Where", b.constant([[True], [False], [True], [True], [False]]), u, v)]
    assert farthest(b.model(*outputs)) == 0


@pytest.mark.parametrize("element", BYTES)
def test_moving_elements(element: str) -> None:
    b = Builder()
    x = b.input((2, 6, 4), element)
    turned = b.op("Reshape", b.op("Transpose", x, perm=[2, 0, 1]), b.constant([4, -1]))
    parts = b.ops("Split", turned, b.constant([5, 7]), count=2, axis=1)
    back = [b.constant([-1]), b.constant([-5]), b.constant([0]), b.constant([-2])]
    outputs = [
        turned,
        b.op("Slice", turned, *back),
        b.op("Concat", parts[0], parts[1], parts[0], axis=1),
        b.op("Pad", turned, b.constant([1, 0, 2, 3]), b.constant(7, element)),
        b.op("Expand", b.op("Gather", x, b.constant(1), axis=1), b.constant([3, 2, 4])),
        b.op("Gather", x, b.constant([1, 3, 5]), axis=1),
        b.op("Flatten", x, axis=2),
        b.op("Squeeze", b.op("Unsqueeze", x, b.constant([0, 3]))),
        b.op("Reshape", b.op("Transpose", x, perm=[1, 0, 2]), b.constant([0, -1])),
    ]
    image = b.input((1, 8, 4, 6), element)
    outputs += [b.op("DepthToSpace", image, blocksize=2, mode=mode) for mode in ("DCR", "CRD")]
    outputs += [b.op("SpaceToDepth", image, blocksize=2)]
    assert farthest(b.model(*outputs)) == 0


@pytest.mark.parametrize("element", BYTES)
def test_real_numbers_that_move(element: str) -> None:
    b = Builder(9)
    x, y = b.input((2, 5, 14), element), b.input((2, 3, 14), element)
    concat = b.op("Concat", b.real(x, element), b.real(y, element), axis=1)
    chosen = b.op(
        "Where", b.constant(b.rng.integers(0, 2, (5, 1)) > 0), b.real(x, element), b.real(x, element)
    )
    padded = b.op("Pad", b.real(x, element), b.constant([0, 1, 0, 0, 0, 2]))
    reshaped = b.op("Reshape", b.op("Add", b.real(x, element), b.real(x, element)), b.constant([10, 14]))
    assert farthest(b.model(*(b.quantised(v, element) for v in (concat, chosen, padded, reshaped)))) == 0


@pytest.mark.parametrize("element", BYTES)
def test_rows_and_windows(element: str) -> None:
    b = Builder(6)
    x, image = b.input((2, 5, 40), element), b.input((2, 3, 11, 13), element)
    rng = b.rng
    gamma, beta = (
        b.constant(rng.uniform(0.5, 2, 40), np.float32),
        b.constant(rng.normal(0, 1, 40), np.float32),
    )
    one, scale = b.constant(1, np.float32), 0.0271
    real, last = b.real(x, element, scale), b.constant([-1])
    centred = b.op("Sub", real, b.op("ReduceMean", real, last))
    variance = b.op("ReduceMean", b.op("Pow", centred, b.constant(2, np.float32)), last)
    deviation = b.op("Sqrt", b.op("Add", variance, b.constant(1e-5, np.float32)))
    composed = b.op("Add", b.op("Mul", b.op("Div", centred, deviation), gamma), beta)
    squares = b.op("ReduceMean", b.op("Mul", real, real), last)
    inverse = b.op("Reciprocal", b.op("Sqrt", b.op("Add", squares, b.constant(1e-5, np.float32))))
    channels = b.constant(rng.uniform(0.5, 2, (3, 11, 13)), np.float32)
    pixels = b.real(image, element, scale)
    windows = {"kernel_shape": [3, 4], "strides": [2, 3], "pads": [1, 2, 1, 1]}
    values = [
        (b.op("Softmax", real, axis=-1), 1 / 256),
        (b.op("Softmax", real, axis=1), 1 / 256),
        (b.op("LayerNormalization", real, gamma, beta), 0.0312),
        (composed, 0.0312),
        (b.op("Mul", b.op("Mul", real, inverse), gamma), 0.0312),
        (b.op("RMSNormalization", real, gamma), 0.0312),
        (b.op("RMSNormalization", pixels, channels, axis=1), 0.03),
        (b.op("RMSNormalization", pixels, b.constant([1.5], np.float32), axis=-2, epsilon=0.5), 0.03),
        (b.op("AveragePool", pixels, ceil_mode=1, **windows), 0.0213),
        (b.op("AveragePool", pixels, count_include_pad=1, **windows), 0.0213),
        (b.op("GlobalAveragePool", pixels), 0.0093),
        (b.op("ReduceMean", pixels, b.constant([1, 3]), keepdims=0), 0.0093),
        (b.op("MaxPool", b.op("Mul", pixels, one), ceil_mode=1, **windows), 0.0213),
    ]
    outputs = [b.quantised(value, element, size) for value, size in values]
    outputs.append(b.op("MaxPool", image, **windows))
    model = b.model(*outputs, opset=23)
    found = [o.op for o in import_model(model).operators]
    assert (found.count("LayerNormalization"), found.count("RMSNormalization")) == (2, 4)
    assert farthest(model) <= 1


def test_sigmoids_and_concatenations_of_the_quantiser() -> None:
    b = Builder(8)
    x, y = b.input((4, 6)), b.input((4, 9))
    grids = [b.grid("int8") for _ in range(3)]
    outputs = [
        b.op("QLinearSigmoid", x, *grids[0], *b.grid("int8", 1 / 256), domain=MICROSOFT),
        b.op("QLinearLeakyRelu", x, *grids[0], *grids[1], domain=MICROSOFT, alpha=0.1),
        b.op("QLinearConcat", *grids[2], x, *grids[0], y, *grids[1], domain=MICROSOFT, axis=1),
    ]
    assert farthest(b.model(*outputs)) == 0
