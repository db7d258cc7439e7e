"""MatMulInteger and ConvInteger as results of a model: their meaning, and what is refused."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

from hw.errors import InputError
from sw.convolution import Convolution
from sw.frontend.network import import_model
from sw.graph import reference
from sw.graph.host import HostOperator
from sw.graph.network import ImageConvolution, MatrixProduct
from sw.patches import Axis
from tests.sw.models import conv_integer, matmul_integer, model, save, value

ROWS, COLUMNS = [0, 255, 7, 128], [-128, 127, 3, 0, -1, 5]
ZERO = {"x0": np.array(130, np.uint8), "w0": np.array(-3, np.int8)}


def results(proto: Any, seed: int = 0) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Inputs of a model, and what its operators make of them."""
    network = import_model(proto)
    inputs = reference.random_inputs(network, np.random.default_rng(seed))
    return inputs, dict(reference.run(network, inputs))


@pytest.mark.parametrize(
    ("shape_a", "shape_b"),
    [
        ((4, 5), (5, 6)),
        ((5,), (5, 6)),
        ((4, 5), (5,)),
        ((5,), (5,)),
        ((3, 4, 5), (5, 6)),
        ((4, 5), (2, 3, 5, 6)),
        ((3, 1, 4, 5), (2, 5, 6)),
        ((5,), (2, 5, 6)),
        ((2, 4, 5), (5,)),
    ],
)
def test_shapes_follow_numpy_matmul(shape_a: tuple[int, ...], shape_b: tuple[int, ...]) -> None:
    inputs, found = results(matmul_integer(shape_a, shape_b))
    want = np.matmul(inputs["a0"].astype(np.int32), inputs["b0"].astype(np.int32))
    assert found["y0"].shape == want.shape
    assert np.array_equal(found["y0"], want)


@pytest.mark.parametrize(
    ("batch", "za", "zb"),
    [
        ((), np.array(9), np.array(COLUMNS)),
        ((), np.array(ROWS), np.array(-2)),
        ((), np.array(ROWS), np.array(COLUMNS)),
        ((), np.array([1, 2, 3, 3]), np.array([[4] * 6])),
        ((3,), np.arange(12).reshape(3, 4, 1), np.array(COLUMNS)),
        ((3,), np.array(0), np.arange(18).reshape(3, 1, 6)),
    ],
    ids=str,
)
def test_zero_points_per_row_and_column_need_the_array_alone(
    batch: tuple[int, ...], za: np.ndarray, zb: np.ndarray
) -> None:
    zeros = {"za": za.astype(np.uint8), "zb": zb.astype(np.int8)}
    proto = matmul_integer((*batch, 4, 5), (*batch, 5, 6), constants=zeros, zero_points=("za", "zb"))
    inputs, found = results(proto)
    rows = za.reshape(-1, 1) if za.ndim == 1 else za
    want = np.matmul(inputs["a0"].astype(np.int64) - rows, inputs["b0"].astype(np.int64) - zb)
    assert np.array_equal(found["y0"], want)
    kinds = {type(o) for o in import_model(proto).operators}
    assert kinds == {HostOperator, MatrixProduct}


def test_zero_points_that_are_equal_do_not_deepen_the_product() -> None:
    zeros = {"za": np.array([3] * 4, np.uint8), "zb": np.array([4] * 6, np.int8)}
    (operator,) = import_model(
        matmul_integer((4, 5), (5, 6), constants=zeros, zero_points=("za", "zb"))
    ).operators
    assert isinstance(operator, MatrixProduct)
    assert (operator.a.shape[-1], operator.zero_a, operator.zero_b) == (5, 3, 4)


CASES: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
    ((1, 1, 3, 3), (1, 1, 2, 2), {}),
    ((2, 3, 9, 8), (5, 3, 3, 2), {"strides": [2, 1], "pads": [1, 0, 2, 1]}),
    ((1, 3, 9, 8), (4, 3, 3, 3), {"dilations": [2, 1], "pads": [2, 1, 2, 1], "kernel_shape": [3, 3]}),
    ((1, 4, 7, 7), (6, 2, 3, 3), {"group": 2}),
    ((1, 6, 5, 5), (6, 1, 3, 3), {"group": 6, "pads": [1, 1, 1, 1]}),
    ((1, 2, 8, 9), (3, 2, 3, 4), {"auto_pad": "SAME_UPPER", "strides": [2, 3]}),
    ((1, 2, 8, 9), (3, 2, 2, 4), {"auto_pad": "SAME_LOWER"}),
    ((1, 2, 8, 9), (3, 2, 3, 4), {"auto_pad": "VALID", "strides": [3, 2]}),
    ((2, 3, 17), (4, 3, 5), {"strides": [2], "pads": [2, 1]}),
    ((1, 8, 6, 6), (5, 8, 1, 1), {}),
]


@pytest.mark.parametrize(("x", "w", "attributes"), CASES, ids=str)
@pytest.mark.parametrize("zero", [(), ("x0",), ("x0", "w0"), ("", "w0")], ids=str)
def test_a_convolution_means_what_onnx_says(
    x: tuple[int, ...], w: tuple[int, ...], attributes: dict[str, Any], zero: tuple[str, ...]
) -> None:
    proto = conv_integer(x, w, constants={n: ZERO[n] for n in zero if n}, zero_points=zero, **attributes)
    inputs, found = results(proto, len(x))
    (want,) = ReferenceEvaluator(proto).run(None, inputs)
    assert np.array_equal(found["y"], want)


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("zeros", [[5, -6, 7, 8], [-128, 127, 0, 1]], ids=str)
def test_zero_points_per_output_channel(groups: int, zeros: list[int]) -> None:
    def made(zero: np.ndarray) -> Any:
        return conv_integer(
            *((2, 4, 5, 6), (4, 4 // groups, 3, 2)),
            constants={"x0": ZERO["x0"], "w0": zero},
            zero_points=("x0", "w0"),
            group=groups,
            pads=[1, 0, 1, 2],
        )

    proto, plain = made(np.array(zeros, np.int8)), import_model(made(np.array(0, np.int8)))
    inputs, found = results(proto)
    # Subtracting a zero point from all weights of a channel takes so many sums of its patches away.
    sums = reference.run(plain, {**inputs, "w": np.ones_like(inputs["w"])})["y"]
    want = reference.run(plain, inputs)["y"] - np.array(zeros).reshape(1, -1, 1, 1) * sums
    assert np.array_equal(found["y"], want)
    assert {type(o) for o in import_model(proto).operators} == {HostOperator, ImageConvolution}


def test_zero_points_per_output_channel_of_groups_inside_of_a_model() -> None:
    zeros = np.array([5, -6, 7, 8, 0, 3], np.int8)
    weights = np.random.default_rng(4).integers(-128, 128, (6, 2, 3, 2)).astype(np.int8)
    nodes = [
        helper.make_node("ConvInteger", ["x", "w", "x0", "w0"], ["sums"], group=2, pads=[1, 0, 1, 2]),
        helper.make_node("Abs", ["sums"], ["y"]),
    ]
    given, output = [value("x", "uint8", (2, 4, 5, 6))], [value("y", "int32", (2, 6, 5, 7))]
    inputs, found = results(model(nodes, given, output, {**ZERO, "w": weights, "w0": zeros}))
    wide = Convolution(2, 4, Axis(5, 3, 1, 1, 1), Axis(6, 2, 1, 0, 2), 6, "int8", "uint8", 0, 130, 2)
    sums = wide.reference(np.ones_like(weights), inputs["x"])
    want = wide.reference(weights, inputs["x"]) - zeros.reshape(1, -1, 1, 1) * sums
    assert np.array_equal(found["y"], np.abs(want))


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: matmul_integer(("n", 5), (5, 6)), "fixed sizes of at least 1; .*: --dim n=1$"),
        (lambda: matmul_integer((0, 5), (5, 6)), r"fixed sizes of at least 1; .*: --dim a0\.0=1$"),
        (lambda: matmul_integer((1 << 40, 5), (5, 6)), "input 'a0' must have at most"),
        (lambda: matmul_integer((4, 5), (4, 6)), "shapes or types do not match"),
        (lambda: matmul_integer((2, 4, 5), (3, 5, 6)), "shapes or types do not match"),
        (lambda: conv_integer((1, 1, 2, 2), (1, 1, 3, 3)), "conv"),
        (lambda: conv_integer((1, 4, 4, 4), (3, 2, 2, 2), group=2), "conv"),
    ],
)
def test_what_is_no_product_is_refused(make: Any, text: str) -> None:
    with pytest.raises(InputError, match=text):
        import_model(make())


def test_mutated_and_truncated_files_are_refused_or_read_but_never_crash(tmp_path: Path) -> None:
    zeros = {"za": np.array(7, np.uint8), "zb": np.array([1], np.int8), "w": np.ones((5, 6), np.int8)}
    good = matmul_integer((4, 5), (5, 6), constants=zeros, zero_points=("za", "zb")).SerializeToString()
    pick = random.Random(5)
    path = save(tmp_path, matmul_integer((4, 5), (5, 6)))
    refused = 0
    for i in range(300):
        data = bytearray(good)
        if i % 3 == 0:
            del data[pick.randrange(len(data)) :]
        for _ in range(pick.randrange(1, 4)):
            if data:
                data[pick.randrange(len(data))] = pick.randrange(256)
        path.write_bytes(data)
        try:
            import_model(path)
        except InputError:
            refused += 1
    assert refused > 100


def test_a_missing_file_is_told() -> None:
    with pytest.raises(InputError, match=r"no-such\.onnx: no such file"):
        import_model(Path("no-such.onnx"))
