"""ConvInteger from ONNX: what a node means, checked against the reference implementation of `onnx`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator

from hw.errors import InputError
from sw.convolution import Convolution
from sw.frontend import onnx
from tests.sw import models

ZERO = {"x0": np.array(130, np.uint8), "w0": np.array(-3, np.int8)}

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
def test_a_node_means_what_onnx_says(
    x: tuple[int, ...], w: tuple[int, ...], attributes: dict[str, Any], zero: tuple[str, ...]
) -> None:
    proto = models.conv_integer(
        x, w, constants={n: ZERO[n] for n in zero if n}, zero_points=zero, **attributes
    )
    parsed = onnx.from_proto(proto)
    arrays = onnx.random_inputs(parsed, np.random.default_rng(len(x)))
    (bound,) = onnx.bind(parsed, arrays)
    assert isinstance(bound.problem, Convolution)
    assert bound.op == "ConvInteger"
    got = bound.problem.reference(bound.a, bound.b).reshape(bound.shape)
    (want,) = ReferenceEvaluator(proto).run(None, arrays)
    assert np.array_equal(got, want)


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("zeros", [[5, -6, 7, 8], [-128, 127, 0, 1]], ids=str)
def test_zero_points_per_output_channel(groups: int, zeros: list[int]) -> None:
    constants = {"x0": ZERO["x0"], "w0": np.array(zeros, np.int8)}
    proto = models.conv_integer(
        (2, 4, 5, 6),
        (4, 4 // groups, 3, 2),
        constants=constants,
        zero_points=("x0", "w0"),
        group=groups,
        pads=[1, 0, 1, 2],
    )
    parsed = onnx.from_proto(proto)
    arrays = onnx.random_inputs(parsed, np.random.default_rng(3))
    (bound,) = onnx.bind(parsed, arrays)
    assert isinstance(bound.problem, Convolution)
    plain = Convolution(
        2, 4, bound.problem.rows, bound.problem.cols, 4, "int8", "uint8", 0, 130, groups=groups
    )
    x, w = arrays["x"], arrays["w"]
    # Subtracting a zero point from all weights of a channel takes so many sums of its patches away.
    sums = plain.reference(np.ones_like(w), x)
    want = plain.reference(w, x) - np.array(zeros).reshape(1, -1, 1, 1) * sums
    assert np.array_equal(bound.problem.reference(bound.a, bound.b), want)


@pytest.mark.parametrize(
    ("made", "text"),
    [
        (
            lambda: models.conv_integer((1, 1, 3, 3, 3), (1, 1, 2, 2, 2)),
            "x must be a tensor of int8 or uint8 with one or two axes",
        ),
        (
            lambda: models.conv_integer(
                (1, 1, 4, 4),
                (2, 1, 2, 2),
                constants={"x0": ZERO["x0"], "w0": np.array([1, 2, 3], np.int8)},
                zero_points=("x0", "w0"),
            ),
            "w_zero_point must be one value, a vector of 2 or of shape",
        ),
        (lambda: models.conv_integer((1, 1, 2, 2), (1, 1, 3, 3)), "conv"),
        (lambda: models.conv_integer((1, 4, 4, 4), (3, 2, 2, 2), group=2), "conv"),
    ],
)
def test_what_is_not_supported_is_refused_by_name(made: Any, text: str) -> None:
    with pytest.raises(InputError, match=text):
        parsed = onnx.from_proto(made())
        onnx.bind(parsed, onnx.random_inputs(parsed, np.random.default_rng(0)))
