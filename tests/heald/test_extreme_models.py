"""A short run of `python -m tests.fuzz.extreme_models`, and a check that it finds errors."""

from __future__ import annotations

import numpy as np
import pytest

import heald as hd
from heald.testing.models import Builder
from sw.graph import reference
from tests.fuzz import extreme_models


def test_extreme_models_are_exact_and_onnxruntimes() -> None:
    found = [extreme_models.judge(f"test/{number}") for number in range(20)]
    assert not [v.failure for v in found if v.failure]
    assert sum(not v.refused for v in found) >= 15
    assert len({v.kind for v in found}) >= 6


def test_a_sum_that_wraps_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    right = reference.run

    def wrapped(*given: object, **options: object) -> dict[str, np.ndarray]:
        """Results on the other side of the middle of their type."""
        return {n: ~a for n, a in right(*given, **options).items()}  # type: ignore[arg-type]

    monkeypatch.setattr(reference, "run", wrapped)
    found = [extreme_models.judge(f"test/{number}") for number in range(20)]
    assert sum(bool(v.failure) for v in found) == sum(not v.refused for v in found)


@pytest.mark.parametrize("scale", [2.0**14, 2.0**25])
def test_a_bias_near_the_end_of_32_bits_on_the_rtl(scale: float) -> None:
    b = Builder()
    grids = [
        (b.constant(s, np.float32), b.constant(0, t)) for s, t in ((1, "uint8"), (1, "int8"), (scale, "int8"))
    ]
    weights = b.rng.integers(-128, 128, (9, 3))
    x = b.op("DequantizeLinear", b.input((5, 9), "uint8"), *grids[0])
    w = b.op("DequantizeLinear", b.constant(weights, np.int8), *grids[1])
    limits = np.array([2**31 - 1, -(2**31), 2**31 - 9])
    bias = b.op("DequantizeLinear", b.constant(limits, np.int32), b.constant(1, np.float32))
    name = b.op("QuantizeLinear", b.op("Gemm", x, w, bias), *grids[2])
    given = np.full((5, 9), 255, np.uint8)
    run = hd.compile(b.model(name), "test").run(given, on="cpp")
    exact = (given.astype(np.int64) @ weights + limits) / scale
    assert np.array_equal(run.outputs[name], np.clip(np.rint(exact), -128, 127))
    run.compare_reference()
    assert run.verified
