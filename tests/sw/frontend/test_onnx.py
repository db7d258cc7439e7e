"""ONNX import: what is supported means what NumPy and the ONNX suite say, the rest is refused by name."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from hw.errors import InputError
from sw.frontend import onnx
from tests.sw.models import matmul_integer, model, save, value


def results(path: Path, inputs: dict[str, np.ndarray] | None = None) -> dict[str, np.ndarray]:
    """NumPy's results of a model's products."""
    parsed = onnx.read(path)
    given = onnx.random_inputs(parsed, np.random.default_rng(0)) if inputs is None else inputs
    return {x.output: x.problem.reference(x.a, x.b).reshape(x.shape) for x in onnx.bind(parsed, given)}


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
def test_shapes_follow_numpy_matmul(
    tmp_path: Path, shape_a: tuple[int, ...], shape_b: tuple[int, ...]
) -> None:
    path = save(tmp_path, matmul_integer(shape_a, shape_b))
    rng = np.random.default_rng(1)
    a = rng.integers(0, 256, shape_a).astype(np.uint8)
    b = rng.integers(-128, 128, shape_b).astype(np.int8)
    got = results(path, {"a0": a, "b0": b})["y0"]
    want = np.matmul(a.astype(np.int32), b.astype(np.int32))
    assert got.shape == want.shape
    assert np.array_equal(got, want)


@pytest.mark.parametrize("shape", [(), (1,)])
def test_zero_points_are_scalars_or_one_element(tmp_path: Path, shape: tuple[int, ...]) -> None:
    zeros = {"za": np.full(shape, 7, np.uint8), "zb": np.full(shape, -3, np.int8)}
    proto = matmul_integer((4, 5), (5, 6), constants=zeros, zero_points=("za", "zb"))
    (bound,) = onnx.bind(
        parsed := onnx.read(save(tmp_path, proto)), onnx.random_inputs(parsed, np.random.default_rng())
    )
    assert (bound.problem.zero_a, bound.problem.zero_b) == (7, -3)


ROWS, COLUMNS = [0, 255, 7, 128], [-128, 127, 3, 0, -1, 5]


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
def test_zero_points_per_row_and_column(
    tmp_path: Path, batch: tuple[int, ...], za: np.ndarray, zb: np.ndarray
) -> None:
    zeros = {"za": za.astype(np.uint8), "zb": zb.astype(np.int8)}
    proto = matmul_integer((*batch, 4, 5), (*batch, 5, 6), constants=zeros, zero_points=("za", "zb"))
    parsed = onnx.read(save(tmp_path, proto))
    arrays = onnx.random_inputs(parsed, np.random.default_rng(1))
    (bound,) = onnx.bind(parsed, arrays)
    rows = za.reshape(-1, 1) if za.ndim == 1 else za
    want = np.matmul(arrays["a0"].astype(np.int64) - rows, arrays["b0"].astype(np.int64) - zb)
    assert np.array_equal(bound.problem.reference(bound.a, bound.b), want)


def test_zero_points_that_are_equal_do_not_deepen_the_product(tmp_path: Path) -> None:
    zeros = {"za": np.array([3] * 4, np.uint8), "zb": np.array([4] * 6, np.int8)}
    proto = matmul_integer((4, 5), (5, 6), constants=zeros, zero_points=("za", "zb"))
    parsed = onnx.read(save(tmp_path, proto))
    (bound,) = onnx.bind(parsed, onnx.random_inputs(parsed, np.random.default_rng(0)))
    assert (bound.problem.k, bound.problem.zero_a, bound.problem.zero_b) == (5, 3, 4)


def test_zero_points_of_a_wrong_shape_are_refused(tmp_path: Path) -> None:
    zeros = {"za": np.array(0, np.uint8), "zb": np.arange(5, dtype=np.int8)}
    proto = matmul_integer((4, 5), (5, 6), constants=zeros, zero_points=("za", "zb"))
    parsed = onnx.read(save(tmp_path, proto))
    with pytest.raises(
        InputError, match=r"node product0 .* b_zero_point must be one value, a vector of 6 or"
    ):
        onnx.bind(parsed, onnx.random_inputs(parsed, np.random.default_rng(0)))


def test_a_transpose_of_the_last_axes_becomes_the_layout(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Transpose", ["k"], ["kt"], perm=[0, 2, 1]),
        helper.make_node("Identity", ["kt"], ["kti"]),
        helper.make_node("MatMulInteger", ["q", "kti"], ["y"]),
    ]
    inputs = [value("q", "uint8", (3, 4, 5)), value("k", "int8", (3, 6, 5))]
    path = save(tmp_path, model(nodes, inputs, [value("y", "int32", (3, 4, 6))], {}))
    parsed = onnx.read(path)
    arrays = onnx.random_inputs(parsed, np.random.default_rng(0))
    (bound,) = onnx.bind(parsed, arrays)
    assert bound.problem.transposed_b
    assert bound.b.shape == (3, 6, 5)
    want = np.matmul(arrays["q"].astype(np.int32), arrays["k"].swapaxes(1, 2).astype(np.int32))
    assert np.array_equal(results(path, arrays)["y"], want)


def test_constants_may_be_nodes_or_initialisers(tmp_path: Path) -> None:
    weights = np.arange(30, dtype=np.int8).reshape(5, 6)
    tensor = helper.make_tensor("w", TensorProto.INT8, (5, 6), weights.tobytes(), raw=True)
    nodes = [
        helper.make_node("Constant", [], ["w"], value=tensor),
        helper.make_node("MatMulInteger", ["a", "w"], ["y"]),
        helper.make_node("MatMulInteger", ["a", "v"], ["z"]),
    ]
    outputs = [value("y", "int32", (4, 6)), value("z", "int32", (4, 6))]
    path = save(tmp_path, model(nodes, [value("a", "int8", (4, 5))], outputs, {"v": weights}))
    got = results(path)
    assert np.array_equal(got["y"], got["z"])


def _other_operator() -> Any:
    nodes = [helper.make_node("Neg", ["a"], ["y"], name="clip")]
    return model(nodes, [value("a", "int32", (4, 5))], [value("y", "int32", (4, 5))], {})


def _result_as_operand() -> Any:
    nodes = [
        helper.make_node("MatMulInteger", ["a", "b"], ["y"], name="first"),
        helper.make_node("Transpose", ["y"], ["z"], perm=[1, 0], name="turn"),
    ]
    return model(
        nodes,
        [value("a", "int8", (4, 5)), value("b", "int8", (5, 6))],
        [value("z", "int32", (6, 4))],
        {},
    )


def _wrong_perm() -> Any:
    nodes = [
        helper.make_node("Transpose", ["a"], ["t"], perm=[1, 0, 2], name="heads"),
        helper.make_node("MatMulInteger", ["t", "b"], ["y"]),
    ]
    inputs = [value("a", "int8", (4, 3, 5)), value("b", "int8", (5, 6))]
    return model(nodes, inputs, [value("y", "int32", (3, 4, 6))], {})


def _no_product() -> Any:
    nodes = [helper.make_node("Identity", ["a"], ["y"])]
    return model(nodes, [value("a", "int8", (4, 5))], [value("y", "int8", (4, 5))], {})


@pytest.mark.parametrize(
    ("proto", "text"),
    [
        (_other_operator, r"node clip \(Neg\): the operator is not supported, only MatMulInteger"),
        (_result_as_operand, r"node turn \(Transpose\): 'y' is the result of node first"),
        (
            _wrong_perm,
            r"node heads \(Transpose\): perm must exchange the last two axes, \[0, 2, 1\], not \[1, 0, 2\]",
        ),
        (_no_product, "must hold a MatMulInteger or ConvInteger node, none was"),
        (
            lambda: matmul_integer(("batch", 5), (5, 6)),
            "axis 0 must have a fixed size of at least 1, not 'batch'",
        ),
        (lambda: matmul_integer((0, 5), (5, 6)), "axis 0 must have a fixed size of at least 1, not 0"),
        (lambda: matmul_integer((1 << 40, 5), (5, 6)), "input 'a0' must have at most 67108864 elements"),
        (lambda: matmul_integer((4, 5), (4, 6)), "shapes or types do not match"),
        (lambda: matmul_integer((2, 4, 5), (3, 5, 6)), "shapes or types do not match"),
        (
            lambda: matmul_integer((4, 5), (5, 6), type_a="int32"),
            "shapes or types do not match|must be a tensor of",
        ),
    ],
)
def test_what_is_not_supported_is_refused_by_name(tmp_path: Path, proto: Any, text: str) -> None:
    path = save(tmp_path, proto())
    with pytest.raises(InputError, match=text):
        onnx.read(path)


def test_inputs_must_be_the_models(tmp_path: Path) -> None:
    parsed = onnx.read(save(tmp_path, matmul_integer((4, 5), (5, 6))))
    a, b = np.zeros((4, 5), np.uint8), np.zeros((5, 6), np.int8)
    with pytest.raises(InputError, match="input 'b0' is needed and was not given"):
        onnx.bind(parsed, {"a0": a})
    with pytest.raises(InputError, match=r"input 'c' is not one of the model's inputs \(a0, b0\)"):
        onnx.bind(parsed, {"a0": a, "b0": b, "c": b})
    with pytest.raises(InputError, match=r"input 'a0' must be uint8 of shape \[4, 5\], not int8 of \[5, 6\]"):
        onnx.bind(parsed, {"a0": b, "b0": b})


def test_mutated_and_truncated_files_are_refused_or_read_but_never_crash(tmp_path: Path) -> None:
    zeros = {"za": np.array(7, np.uint8), "zb": np.array([1], np.int8), "w": np.ones((5, 6), np.int8)}
    good = matmul_integer((4, 5), (5, 6), constants=zeros, zero_points=("za", "zb")).SerializeToString()
    pick = random.Random(5)
    path = tmp_path / "mutated.onnx"
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
            parsed = onnx.read(path)
            onnx.bind(parsed, onnx.random_inputs(parsed, np.random.default_rng(0)))
        except InputError:
            refused += 1
    assert refused > 100


def test_a_missing_file_is_told() -> None:
    with pytest.raises(InputError, match=r"no-such\.onnx: no such file"):
        onnx.read(Path("no-such.onnx"))
