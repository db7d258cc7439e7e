"""A short slice of `python -m tests.fuzz.extreme_models`, and that it finds what is wrong."""

from __future__ import annotations

import numpy as np
import pytest

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
