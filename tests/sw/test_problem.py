"""The reference product equals NumPy's int32 product, and invalid products are refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hw.errors import InputError
from sw.problem import Product


def test_reference_is_the_product_in_int32() -> None:
    problem = Product(4, 50, 6, "uint8", "int8", 200, -7, batch_a=(2, 1), batch_b=(3,))
    a, b = problem.random(np.random.default_rng(0))
    want = np.matmul(a.astype(np.int32) - 200, b.astype(np.int32) + 7)
    got = problem.reference(a, b)
    assert got.dtype == np.int32
    assert got.shape == problem.shape_c == (2, 3, 4, 6)
    assert np.array_equal(got, want)


def test_transposed_operands_are_stored_the_other_way_round() -> None:
    problem = Product(4, 5, 6, transposed_a=True, transposed_b=True)
    a, b = problem.random(np.random.default_rng(0))
    assert (a.shape, b.shape) == ((5, 4), (6, 5))
    assert np.array_equal(problem.reference(a, b), a.T.astype(np.int32) @ b.T.astype(np.int32))


def test_sums_wrap_at_32_bits() -> None:
    problem = Product(1, 40000, 1, "uint8", "uint8")
    a, b = np.full((1, 40000), 255, np.uint8), np.full((40000, 1), 255, np.uint8)
    assert problem.reference(a, b)[0, 0] == 40000 * 255 * 255 - (1 << 32)


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"m": 0}, "m of a matrix product must be at least 1, not 0"),
        ({"type_a": "int16"}, "type of A must be int8 or uint8, not 'int16'"),
        ({"zero_b": 128}, r"zero point of B \(int8\) must be -128 to 127, not 128"),
        ({"type_a": "uint8", "zero_a": -1}, r"zero point of A \(uint8\) must be 0 to 255, not -1"),
        ({"batch_a": (2,), "batch_b": (3,)}, r"must broadcast, \[2\] and \[3\] do not"),
        ({"batch_a": (0,)}, r"batches must be at least 1, not \[0\]"),
    ],
)
def test_bad_products_are_refused(values: dict[str, Any], text: str) -> None:
    with pytest.raises(InputError, match=text):
        Product(**{"m": 1, "k": 1, "n": 1} | values)
