"""Operators of the host: quantisation at the edges of a model saturates, whatever is given."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

from hw.errors import InputError
from sw.graph.host import run_node


def quantised(values: list[float], scale: float) -> list[int]:
    node = helper.make_node("QuantizeLinear", ["i0", "i1", "i2"], ["o0"])
    arrays = {
        "i0": np.array(values, np.float32),
        "i1": np.array(scale, np.float32),
        "i2": np.array(3, np.int8),
    }
    found: list[int] = run_node(node, 19, arrays, "edge")[0].tolist()
    return found


def test_what_is_too_large_saturates() -> None:
    assert quantised([1e10, -1e30, np.inf, -np.inf, 0.25, -0.75], 0.5) == [127, -128, 127, -128, 3, 1]


def test_what_is_no_number_is_refused() -> None:
    with pytest.raises(InputError, match="edge: values to quantise must be numbers, not NaN"):
        quantised([np.nan], 0.5)
