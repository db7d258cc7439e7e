"""Products with only quantised weights, whose other operand is quantised at run time."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from heald.cli import call
from heald.testing.models import Builder
from hw.errors import InputError
from sw.frontend.network import import_model
from sw.frontend.weight_only import with_dynamic
from sw.graph.reference import run
from tests.sw.quantised_models import runtime


def weights(b: Builder, *shape: int, channel: int = -1) -> str:
    """Weights with a scale for each channel."""
    held = b.constant(b.rng.integers(-127, 127, shape, dtype=np.int8))
    scales = b.constant(b.rng.uniform(0.01, 0.02, shape[channel]), np.float32)
    return b.op("DequantizeLinear", held, scales, axis=channel)


def products(b: Builder) -> onnx.ModelProto:
    """Every kind of product, and both ways to write weights."""
    x, image = b.input((5, 9), "float32"), b.input((1, 3, 6, 6), "float32")
    hidden = b.op("Relu", b.op("Gemm", x, weights(b, 9, 6), b.constant(b.rng.normal(size=6), np.float32)))
    cast = b.op("Cast", b.constant(b.rng.integers(0, 255, (6, 4), dtype=np.uint8)), to=1)
    bias = b.constant(b.rng.normal(size=4), np.float32)
    return b.model(
        b.op("MatMul", hidden, b.op("Mul", cast, b.constant(0.01, np.float32))),
        b.op("Gemm", x, weights(b, 6, 9, channel=0), transB=1),
        b.op("Conv", image, weights(b, 4, 3, 3, 3, channel=0), bias, pads=[1, 1, 1, 1]),
    )


def test_products_are_what_onnxruntime_makes_of_them() -> None:
    b = Builder(3)
    model = products(b)
    made = with_dynamic(model, "model")
    onnx.checker.check_model(made)
    shapes = {"x0": (5, 9), "x1": (1, 3, 6, 6)}
    inputs = {name: b.rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    network = import_model(made, allow_host=True)
    assert sum(o.op in ("MatMulInteger", "ConvInteger") for o in network.operators) == 4
    found, same, near = run(network, inputs), runtime(made, inputs), runtime(model, inputs)
    for name, array in found.items():
        assert np.array_equal(array, same[name])
        assert np.abs(array - near[name]).max() < 0.02 * np.abs(near[name]).max()


def test_it_is_told_and_has_a_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    b = Builder(3)
    model = b.model(b.op("MatMul", b.input((5, 9), "float32"), weights(b, 9, 6)))
    onnx.save(model, tmp_path / "model.onnx")
    run_ = ["run", str(tmp_path / "model.onnx"), "--hw", "test", "--sim", "cpp"]
    assert call(run_) == 2
    assert "--dynamic quantises it at run time" in capsys.readouterr().err
    assert call([*run_, "--dynamic"]) == 0
    assert "MatMulInteger" in capsys.readouterr().out


def test_what_has_no_such_product_is_refused() -> None:
    b = Builder()
    model = b.model(b.op("Relu", b.input((2, 3), "float32")))
    with pytest.raises(InputError, match="no product has int8 or uint8 weights"):
        with_dynamic(model, "model")
    model.opset_import[0].version = 10
    with pytest.raises(InputError, match="opset must be 11 or newer"):
        with_dynamic(model, "model")


@pytest.mark.parametrize(
    ("shape", "scales", "how"),
    [((9,), (9,), {"axis": 0}), ((8, 6), (8, 2), {"axis": 1, "block_size": 3}), ((8, 6), (8,), {"axis": 0})],
    ids=["vector", "blocks", "depth"],
)
def test_scales_along_the_depth_stay(
    shape: tuple[int, ...], scales: tuple[int, ...], how: dict[str, int]
) -> None:
    b = Builder(3)
    held = b.constant(b.rng.integers(-127, 127, shape, dtype=np.int8))
    given = b.op("DequantizeLinear", held, b.constant(b.rng.uniform(0.01, 1, scales), np.float32), **how)
    model = b.model(b.op("MatMul", b.input((3, shape[0]), "float32"), given))
    with pytest.raises(InputError, match="no product has int8 or uint8 weights"):
        with_dynamic(model, "model")


def test_names_that_it_makes_up_are_those_of_no_tensor() -> None:
    b = Builder(3)
    x = b.input((5, 9), "float32")
    product = b.op("MatMul", x, weights(b, 9, 6))
    for name in (f"{product}.sum", f"{product}.scale", f"{x}.dynamic"):
        b.constants.append(numpy_helper.from_array(np.float32(2), name))
        product = b.op("Mul", product, name)
    model = b.model(product)
    inputs = {x: b.rng.normal(size=(5, 9)).astype(np.float32)}
    (near,) = runtime(model, inputs).values()
    (found,) = runtime(with_dynamic(model, "model"), inputs).values()
    assert np.abs(found - near).max() < 0.02 * np.abs(near).max()


def test_a_model_that_is_not_valid_is_refused() -> None:
    b = Builder(3)
    product = b.op("MatMul", b.input((5, 9), "float32"), weights(b, 9, 6))
    model = b.model(product)
    del model.graph.node[-1].input[1]
    with pytest.raises(InputError, match="model: not a valid ONNX model"):
        with_dynamic(model, "model")
