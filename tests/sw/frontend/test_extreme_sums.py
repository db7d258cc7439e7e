"""Sums that exceed 32 bits: computed like onnxruntime's float sums, or refused with their numbers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from heald.testing.models import MICROSOFT, Builder
from hw.errors import InputError
from sw.frontend.network import import_model
from sw.graph.network import MatrixProduct
from sw.graph.reference import run
from tests.sw.quantised_models import runtime

MOST = 2**31 - 1


class Case:
    """A model in the making, its inputs, and its exact result before it is rounded, limited to 8 bits."""

    def __init__(self) -> None:
        self.b = Builder()
        self.inputs: dict[str, np.ndarray] = {}

    def grid(self, element: str, scale: float, zero: int = 0) -> tuple[str, str]:
        return self.b.constant(scale, np.float32), self.b.constant(zero, element)

    def operand(self, array: np.ndarray, scale: float = 1.0, constant: bool = False) -> str:
        element = str(array.dtype)
        name = self.b.constant(array) if constant else self.b.input(array.shape, element)
        if not constant:
            self.inputs[name] = array
        return self.b.op("DequantizeLinear", name, *self.grid(element, scale))

    def bias(self, values: list[int], scale: float = 1.0) -> str:
        return self.b.op(
            "DequantizeLinear", self.b.constant(values, np.int32), self.b.constant(scale, np.float32)
        )

    def found(self, real: str, scale: float) -> tuple[np.ndarray, np.ndarray]:
        """Our result and onnxruntime's for a real tensor that is quantised."""
        model = self.b.model(self.b.op("QuantizeLinear", real, *self.grid("int8", scale)))
        network = import_model(model)
        (name,) = network.outputs
        return run(network, self.inputs)[name], runtime(model, self.inputs)[name]


def rounded(exact: np.ndarray, scale: float) -> np.ndarray:
    """Whole numbers on a grid; scales are powers of two, so that nothing is lost."""
    return np.clip(np.rint(exact / scale), -128, 127)


def drawn(shape: tuple[int, ...], element: str, seed: int = 0) -> np.ndarray:
    limits = np.iinfo(element)
    return np.random.default_rng(seed).integers(limits.min, limits.max, shape, element, endpoint=True)


@pytest.mark.parametrize("scale", [2.0**14, 2.0**21, 2.0**22, 2.0**24, 2.0**26])
@pytest.mark.parametrize("op", ["Gemm", "Conv"])
def test_a_bias_near_the_end_of_32_bits_keeps_its_sign(op: str, scale: float) -> None:
    c, bias = Case(), [MOST, -MOST - 1, MOST - 4000, 5]
    a, w = drawn((3, 16), "uint8"), drawn((16, 4), "int8", 1)
    exact = a.astype(np.int64) @ w + np.array(bias)
    if op == "Gemm":
        real = c.b.op(op, c.operand(a), c.operand(w, constant=True), c.bias(bias))
    else:
        images, kernel = a.reshape(3, 16, 1, 1), np.ascontiguousarray(w.T).reshape(4, 16, 1, 1)
        real = c.b.op(op, c.operand(images), c.operand(kernel, constant=True), c.bias(bias))
        exact = exact.reshape(3, 4, 1, 1)
    ours, theirs = c.found(real, scale)
    assert np.array_equal(ours, rounded(exact, scale))
    assert np.abs(ours.astype(int) - theirs).max() <= 1


@pytest.mark.parametrize("bias", [None, [MOST, -MOST]])
@pytest.mark.parametrize("scale", [2.0**15, 2.0**25])
def test_sums_of_70000_products_are_split(bias: list[int] | None, scale: float) -> None:
    c, depth = Case(), 70_000
    a, w = np.full((2, depth), 255, np.uint8), np.full((depth, 2), 255, np.uint8)
    a[1], w[: depth // 2 - 7, 1] = drawn((depth,), "uint8"), 3
    exact = a.astype(np.int64) @ w + np.array(bias or 0)
    given = [c.operand(a), c.operand(w)]
    real = c.b.op("Gemm", *given, c.bias(bias)) if bias else c.b.op("MatMul", *given)
    ours, theirs = c.found(real, scale)
    assert np.array_equal(ours, rounded(exact, scale))
    # onnxruntime adds 70,000 numbers in float32.
    assert np.abs(ours.astype(int) - theirs).max() <= 1


@pytest.mark.parametrize("bias", [MOST, 5_000_000])
def test_one_bias_against_sums_that_are_split(bias: int) -> None:
    c, depth = Case(), 66_000
    a, w = np.full((1, depth), 255, np.uint8), np.full((depth, 1), 127, np.int8)
    w[: depth // 2] = -128
    w[-20_000:] = -128
    real = c.b.op("Gemm", c.operand(a), c.operand(w, constant=True), c.bias([bias]))
    exact = a.astype(np.int64) @ w + bias
    ours, theirs = c.found(real, 2.0**23)
    assert np.array_equal(ours, rounded(exact, 2.0**23))
    assert np.abs(ours.astype(int) - theirs).max() <= 1


def test_products_of_two_tensors_far_beyond_their_type_are_refused() -> None:
    c = Case()
    x, y = (c.operand(drawn((4,), "int8", seed), 2.0**20) for seed in (1, 2))
    with pytest.raises(InputError, match="no product in fixed point is exact for these scales"):
        c.found(c.b.op("Mul", x, y), 1.5)


def test_a_convolution_of_many_channels_is_split() -> None:
    c, channels = Case(), 34_000
    x, w = np.full((1, channels, 1, 2), 255, np.uint8), np.full((1, channels, 1, 1), 255, np.uint8)
    x[0, :, 0, 1] = drawn((channels,), "uint8")
    exact = (x.astype(np.int64) * 255).sum(axis=1, keepdims=True)
    ours, theirs = c.found(c.b.op("Conv", c.operand(x), c.operand(w, constant=True)), 2.0**24)
    assert np.array_equal(ours, rounded(exact, 2.0**24))
    assert np.abs(ours.astype(int) - theirs).max() <= 1


@pytest.mark.parametrize("other", [1.0, 2.0])
def test_products_that_are_added_before_they_are_quantised_cancel(other: float) -> None:
    c = Case()
    a, w, v = drawn((6, 24), "int8"), drawn((24, 5), "int8", 1), drawn((24, 5), "int8", 2)
    w[:, 0], v[:, 0] = 127, -63
    one = c.b.op("MatMul", c.operand(a), c.operand(w, constant=True))
    two = c.b.op("MatMul", c.operand(a), c.operand(v, other, constant=True))
    ours, theirs = c.found(c.b.op("Add", one, two), 64.0)
    exact = a.astype(np.int64) @ (w + v.astype(np.int64) * int(other))
    assert np.array_equal(ours, rounded(exact, 64.0))
    assert np.array_equal(ours, theirs)


def test_a_limit_that_is_computed_is_kept() -> None:
    c = Case()
    x = drawn((4, 9), "int8")
    limits = [c.operand(np.array(value, np.int8), 0.5) for value in (-30, 40)]
    ours, theirs = c.found(c.b.op("Clip", c.operand(x), *limits), 1.0)
    assert np.array_equal(ours, np.clip(x, -15, 20))
    assert np.array_equal(ours, theirs)


def test_a_limit_in_float32_is_refused_with_its_name() -> None:
    c = Case()
    x, limit = c.operand(drawn((4, 9), "int8")), c.b.input((), "float32")
    with pytest.raises(InputError, match=r"node n1 \(Clip\): 'x1' is not quantised: a QuantizeLinear"):
        c.found(c.b.op("Clip", x, "", limit), 1.0)


def q_gemm(c: Case) -> str:
    a, w, bias = c.b.input((2, 4)), c.b.constant(drawn((4, 2), "int8")), c.b.constant([MOST, 5], np.int32)
    one = c.grid("int8", 1.0)
    return c.b.op("QGemm", a, *one, w, *one, bias, *one, domain=MICROSOFT)


def q_linear_conv(c: Case) -> str:
    x, w = c.b.input((1, 4, 2, 2)), c.b.constant(drawn((2, 4, 1, 1), "int8"))
    one = c.grid("int8", 1.0)
    return c.b.op("QLinearConv", x, *one, w, *one, *one, c.b.constant([5, -MOST], np.int32))


def q_linear_mat_mul(c: Case) -> str:
    one = c.grid("uint8", 1.0)
    return c.b.op(
        "QLinearMatMul", *(x for s in ((1, 40_000), (40_000, 1)) for x in (c.b.input(s, "uint8"), *one)), *one
    )


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (q_gemm, r"node n0 \(Gemm\): .* the bias 2147483647, together more than 2147483647, where"),
        (q_linear_conv, r"node n0 \(Conv\): .* the bias 2147483647, together more than 2147483647, where"),
        (q_linear_mat_mul, r"node n0 \(MatMul\): sums of products reach 2601000000, more than 2147483647"),
    ],
)
def test_sums_that_wrap_in_onnxruntime_are_refused(make: Callable[[Case], str], text: str) -> None:
    c = Case()
    with pytest.raises(InputError, match=text):
        import_model(c.b.model(make(c)))


def test_int32_results_wrap_as_onnx_allows() -> None:
    b = Builder()
    w = np.full((70_000, 1), -128, np.int8)
    model = b.model(b.op("MatMulInteger", b.input((1, 70_000), "uint8"), b.constant(w)))
    network, inputs = import_model(model), {"x0": np.full((1, 70_000), 255, np.uint8)}
    (name,) = network.outputs
    assert isinstance(network.operators[0], MatrixProduct)
    assert run(network, inputs)[name].item() == runtime(model, inputs)[name].item() == 2_010_167_296
