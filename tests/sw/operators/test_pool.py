"""Maxima over windows equal onnxruntime's, including windows that take several loops."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sw.frontend.network import import_model
from sw.graph.network import View, dense
from sw.graph.reference import run as reference
from sw.graph.requantise import LIMITS
from sw.operators.pools.operator import MaxPool, steps
from sw.patches import Axis
from tests.sw.graph.onnx_nodes import executed, model


def attributes(rows: Axis, cols: Axis) -> dict[str, Any]:
    """The axes of a window as ONNX states them."""
    return {
        "kernel_shape": [rows.kernel, cols.kernel],
        "strides": [rows.stride, cols.stride],
        "pads": [rows.before, cols.before, rows.after, cols.after],
        "dilations": [rows.dilation, cols.dilation],
    }


@pytest.mark.parametrize("element", ["int8", "uint8"])
@pytest.mark.parametrize(
    ("rows", "cols"),
    [
        (Axis(14, 3, 2, 1, 1), Axis(13, 2, 2, 1, 0)),
        (Axis(9, 3, 1, 1, 1, 2), Axis(9, 3, 1, 1, 1, 2)),
        (Axis(8, 8), Axis(5, 5)),
        (Axis(40, 40), Axis(5, 1)),
        (Axis(9, 9, 1, 4, 4), Axis(30, 25, 1, 12, 12)),
    ],
)
def test_maxima_are_those_of_onnxruntime(rows: Axis, cols: Axis, element: str) -> None:
    low, high = LIMITS[element]
    x = np.random.default_rng(5).integers(low, high + 1, (2, 6, rows.size, cols.size)).astype(element)
    made = model("MaxPool", x, 0.1, 3, 0.1, 3, element, **attributes(rows, cols))
    (found,) = reference(import_model(made), {"x": x}).values()
    assert np.array_equal(found, executed(made, x))


@given(st.integers(0, 1 << 30))
@settings(max_examples=100)
def test_large_windows_are_windows_of_windows(seed: int) -> None:
    rng = random.Random(seed)

    def axis() -> Axis:
        kernel, dilation = rng.randint(1, 60), rng.choice((1, 1, 3))
        pad = rng.randint(0, kernel // 2)
        reach = (kernel - 1) * dilation + 1
        return Axis(reach + rng.randint(0, 9), kernel, rng.choice((1, 2, 3, 5)), pad, pad, dilation)

    rows, cols = axis(), axis()
    image = np.random.default_rng(seed).integers(-128, 128, (1, 1, rows.size, cols.size)).astype(np.int8)
    wanted = pool(rows, cols).reference([image])
    for one in steps(rows, cols):
        assert one[1].kernel <= 13
        assert one[0].kernel * one[1].kernel <= 36
        image = pool(*one).reference([image])
    assert np.array_equal(image, wanted)


def pool(rows: Axis, cols: Axis, element: str = "int8", channels: int = 1) -> MaxPool:
    """The greatest pixel of every window of one image."""
    shape, outputs = (1, channels, rows.size, cols.size), (1, channels, rows.outputs, cols.outputs)
    x, y = View("x", shape, dense(shape)), View("y", outputs, dense(outputs))
    return MaxPool("p", "MaxPool", (), y, x, element, rows, cols)
