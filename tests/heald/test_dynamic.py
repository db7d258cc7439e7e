"""Models quantised at run time: the machine's float32 equals onnxruntime's, to the bit."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import heald as hd
from cosim.session.onnxruntime_comparison import compare_model
from heald.testing.models import Builder
from hw.errors import InputError
from sw.frontend.network import import_model
from sw.graph.host import HostOperator
from sw.graph.reference import run
from tests.heald.test_operators import dynamic, scaled
from tests.machines import TEST
from tests.sw.quantised_models import runtime

Arrays = dict[str, np.ndarray]


def product(b: Builder, x: str, depth: int, columns: int) -> str:
    """Float32 times weights, quantised at run time."""
    whole, scale, zero = dynamic(b, x)
    weights = b.constant(b.rng.integers(-127, 128, (depth, columns), dtype=np.int8))
    return scaled(b, b.op("MatMulInteger", whole, weights, zero), scale)


def convolution(b: Builder, x: str, channels: int, filters: int, size: int = 3) -> str:
    """Images convolved with weights that have a zero point, and a bias."""
    whole, scale, zero = dynamic(b, x)
    weights = b.constant(b.rng.integers(0, 256, (filters, channels, size, size), dtype=np.uint8))
    total = b.op("ConvInteger", whole, weights, zero, b.constant(119, np.uint8), pads=[size // 2] * 4)
    return b.op("Add", scaled(b, total, scale), bias(b, 1, filters, 1, 1))


def bias(b: Builder, *shape: int) -> str:
    return b.constant(b.rng.normal(size=shape), np.float32)


def images(b: Builder) -> str:
    """Convolutions with a residual, functions, and movements in float32 between them."""
    x = b.input((1, 3, 5, 6), "float32")
    a = b.op("Relu", convolution(b, x, 3, 8))
    c = b.op("LeakyRelu", convolution(b, a, 8, 8, 1), alpha=0.1)
    d = b.op("Concat", b.op("Add", convolution(b, c, 8, 8), a), c, axis=1)
    e = b.op("Clip", convolution(b, d, 16, 4, 1), b.constant(0, np.float32), b.constant(6, np.float32))
    e = b.op("Reshape", b.op("Transpose", e, perm=[0, 2, 3, 1]), b.constant([6, -1], np.int64))
    return product(b, e, 20, 5)


def rows(b: Builder) -> str:
    """A tensor of more elements than a run, negative ones too, and one that Relu leaves."""
    x = product(b, b.input((4, 9), "float32"), 9, 300)
    hidden = b.op("Relu", b.op("Add", product(b, x, 300, 12), bias(b, 12)))
    return product(b, hidden, 12, 3)


def functions(b: Builder) -> str:
    """Every operator in float32 that is exact."""
    x = product(b, b.input((3, 16), "float32"), 16, 16)
    y = b.op("HardSigmoid", b.op("Div", x, b.constant(1.7, np.float32)), alpha=1 / 6, beta=0.5)
    y = b.op("Sub", b.op("Mul", x, y), b.op("PRelu", x, bias(b, 16)))
    y = b.op("Add", y, b.op("HardSwish", x))
    y = b.op("Max", b.op("Min", y, bias(b, 16)), bias(b, 1), b.op("Abs", b.op("Neg", y)))
    return product(b, b.op("Sum", y, x, bias(b, 16)), 16, 4)


def windows(b: Builder) -> str:
    """Maxima over windows with padding, of positive and of any numbers."""
    x = b.op("Relu", convolution(b, b.input((1, 3, 7, 6), "float32"), 3, 4))
    y = b.op("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[0, 0, 1, 1])
    y = b.op("MaxPool", convolution(b, y, 4, 4, 1), kernel_shape=[2, 3], strides=[1, 2], pads=[1, 1, 0, 0])
    return convolution(b, y, 4, 3, 1)


MODELS = [images, rows, functions, windows]
#: What inputs are multiplied with, and what is added to them.
RANGES = [(1, 0), (1e-6, 0), (1e4, 3e4), (1, -9), (0, 0), (0, 2), (0, -1e-3)]


@pytest.mark.parametrize("make", MODELS)
def test_results_are_those_of_onnxruntime(make: Callable[[Builder], str]) -> None:
    """Also of tensors that are constant, 0 (whose scale is 1), negative or positive."""
    b = Builder(5)
    made = b.model(make(b))
    network = import_model(made)
    assert all(o.edge for o in network.operators if isinstance(o, HostOperator))
    (name,) = network.inputs
    for factor, more in RANGES:
        shape = network.tensors[name].shape
        inputs = {name: (b.rng.normal(size=shape) * factor + more).astype(np.float32)}
        found, wanted = run(network, inputs), runtime(made, inputs)
        for output, array in wanted.items():
            assert np.array_equal(found[output], array), (output, factor, more)


def residual(b: Builder) -> str:
    """A sum of convolutions, maxima of it, and a product."""
    x = b.op("Relu", convolution(b, b.input((1, 3, 5, 6), "float32"), 3, 4))
    y = b.op("Relu", b.op("Add", convolution(b, x, 4, 4), x))
    y = product(b, b.op("MaxPool", y, kernel_shape=[2, 2], strides=[2, 2]), 3, 5)
    return b.op("Softmax", b.op("Flatten", b.op("GlobalAveragePool", y)))


@pytest.mark.parametrize("make", [residual, rows])
def test_the_chain_is_one_program_on_the_rtl(make: Callable[[Builder], str]) -> None:
    b = Builder(5)
    made = b.model(make(b))
    network = import_model(made)
    inputs = {n: b.rng.normal(size=network.tensors[n].shape).astype(np.float32) for n in network.inputs}
    ran = hd.compile(made, TEST).run(inputs, on="cpp")
    assert ran.verified, ran.failure
    assert len(ran.results) == 1
    for output, array in runtime(made, inputs).items():
        assert np.array_equal(ran.outputs[output], array)


def test_what_has_no_range_is_told() -> None:
    b = Builder(5)
    network = import_model(b.model(rows(b)))
    x = np.zeros((4, 9), np.float32)
    for wrong in ([np.inf], [np.nan], [3e38, -3e38]):
        x.flat[: len(wrong)] = wrong
        with pytest.raises(InputError, match=r"must be finite|'x0' must hold numbers, not NaN"):
            run(network, {"x0": x})


@pytest.mark.parametrize("include", [0, 1])
@pytest.mark.parametrize("scale", [1, 1e-9, 1e9])
def test_averages_are_as_exact_as_float32(include: int, scale: float) -> None:
    """Windows with padding, whole images: the sum is exact but for 2^-22 of the greatest magnitude."""
    b = Builder(5)
    x = convolution(b, b.op("Mul", b.input((1, 3, 7, 71), "float32"), b.constant(scale, np.float32)), 3, 4)
    how = {"kernel_shape": [2, 3], "pads": [1, 0, 0, 1], "strides": [1, 2]}
    part = b.op("AveragePool", x, **how, count_include_pad=include)
    mean = b.op("GlobalAveragePool", x)
    flat = b.op("ReduceMean", x, b.constant([2, 3], np.int64), keepdims=0)
    outputs = [*(convolution(b, y, 4, 3, 1) for y in (part, mean)), product(b, flat, 4, 3)]
    made = b.model(part, mean, flat, *outputs)
    network = import_model(made, allow_host=True)
    assert not {"AveragePool", "GlobalAveragePool", "ReduceMean"} & {
        o.op for o in network.operators if isinstance(o, HostOperator)
    }
    inputs = {"x0": b.rng.normal(size=(1, 3, 7, 71)).astype(np.float32)}
    found = run(network, inputs)
    pixels = runtime(b.model(x), inputs)[x].astype(np.float64)
    # What float32 adds up one by one is less exact.
    means = pixels.mean(axis=(2, 3), keepdims=True)
    wanted = {part: runtime(made, inputs)[part], mean: means, flat: means.reshape(1, 4)}
    for name, array in wanted.items():
        assert np.abs(found[name] - array).max() <= 2.0**-22 * np.abs(pixels).max(), name


def test_sigmoid_and_tanh_are_as_exact_as_float32() -> None:
    b = Builder(5)
    x = product(b, b.input((9, 16), "float32"), 16, 16)
    names = b.op("Mul", x, b.op("Sigmoid", x)), b.op("Tanh", x)
    made = b.model(*names, *(product(b, y, 16, 4) for y in names))
    network = import_model(made)
    inputs = {"x0": b.rng.normal(size=(9, 16)).astype(np.float32)}
    found, wanted = run(network, inputs), runtime(made, inputs)
    for name in names:
        assert np.allclose(found[name], wanted[name], rtol=2.0**-22, atol=2.0**-22)
    assert compare_model(made, import_model(made, fuse=False), inputs, {}).ok


def test_what_a_function_of_the_host_makes_is_quantised_there() -> None:
    b = Builder(3)
    y = product(b, b.op("Softplus", product(b, b.input((5, 9), "float32"), 9, 4)), 4, 3)
    made = b.model(y)
    with pytest.raises(InputError, match=r"DynamicQuantizeLinear\): its input 't5_0' is computed in float32"):
        import_model(made)
    network = import_model(made, allow_host=True)
    assert [o.edge for o in network.operators if o.op == "Softplus" and isinstance(o, HostOperator)] == [
        False
    ]
    inputs = {"x0": b.rng.normal(size=(5, 9)).astype(np.float32)}
    assert np.array_equal(run(network, inputs)[y], runtime(made, inputs)[y])
