"""Requantisation and fixed-point sums give the exact result, rounded once."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sw.graph.expression import Apply, Argument, Lookup, Number, evaluate
from sw.graph.fixed_point import Term, exact_product, exact_sum
from sw.graph.requantise import apply, clamped, common_limit, multiplier, requantised, wrapped


def clip(value: int) -> int:
    return min(max(value, -128), 127)


SCALES = st.floats(-60, 28).map(lambda e: np.float32(2.0**e * 1.37)) | st.sampled_from(
    [np.float32(x) for x in (1, 0.5, 2.0**-31, 2.0**-70, 2.0**24, 1 / 3, 3, 1e30, 1e-38)]
)


@settings(max_examples=200, deadline=None)
@given(
    SCALES, st.lists(st.integers(-(1 << 31), (1 << 31) - 1), min_size=1, max_size=20), st.integers(-99, 99)
)
def test_the_product_with_a_scale_is_exact(scale: np.float32, sums: list[int], zero: int) -> None:
    # Values next to ties, too.
    near = [round((n + 0.5) / float(scale)) + d for n in (0, 7, -4) for d in (-1, 0, 1)]
    sums = [*sums, 0, 1, -1, -(1 << 31), *(n for n in near if abs(n) < 1 << 31)]
    found = multiplier(np.asarray(scale), 1 << 31)
    limit = common_limit(found)
    assert limit is not None
    value = clamped(Argument(0), -limit, limit) if limit < (1 << 31) - 1 else Argument(0)
    expression = requantised(
        value, Number(int(found.mantissa)), Number(int(found.shift)), Number(zero), -128, 127
    )
    expected = [clip(round(x * Fraction(float(scale))) + zero) for x in sums]
    assert evaluate(expression, [sums]).tolist() == expected


@settings(max_examples=100, deadline=None)
@given(st.lists(SCALES, min_size=2, max_size=6), st.integers(1, (1 << 31) - 1), st.integers(0, 1 << 30))
def test_scales_of_channels_are_exact(scales: list[np.float32], greatest: int, seed: int) -> None:
    found = multiplier(np.asarray(scales), greatest)
    sums = np.random.default_rng(seed).integers(-greatest, greatest, (8, len(scales)), endpoint=True)
    limited = np.clip(sums, -found.limit, found.limit)
    common = common_limit(found)
    if common is not None:
        limited = np.clip(sums, -common, common)
    expression = requantised(Argument(0), Argument(1), Argument(2), Number(3), -128, 127)
    result = evaluate(expression, [limited, found.mantissa, found.shift])
    for place in np.ndindex(sums.shape):
        exact = int(sums[place]) * Fraction(float(scales[place[1]]))
        assert result[place] == clip(round(exact) + 3)


def ratio(x: float, y: float) -> Fraction:
    return Fraction(float(np.float32(x))) / Fraction(float(np.float32(y)))


PAIRS = [
    (ratio(0.0213, 0.0311), ratio(0.017, 0.0311)),
    (Fraction(1, 2), Fraction(1, 4)),
    (Fraction(1, 6), Fraction(1, 3)),  # Ties that no binary fraction holds.
    (ratio(0.1, 0.3), ratio(0.2, 0.3)),  # Next to ties, by the rounding of the scales to float32.
    (ratio(0.011, 0.033), ratio(0.0055, 0.033)),
    (ratio(9.7, 0.3), ratio(0.003, 0.3)),
    (ratio(1e-4, 0.3), Fraction(1)),
    (-ratio(0.0213, 0.0311), ratio(0.017, 0.0311)),
]


@pytest.mark.parametrize("factors", PAIRS, ids=str)
@pytest.mark.parametrize("constant", [Fraction(0), Fraction(5, 7)])
def test_sums_of_two_are_exact(factors: tuple[Fraction, Fraction], constant: Fraction) -> None:
    zeros = (-7, 20)
    terms = [
        Term(apply("sub", Argument(i), z), -128 - z, 127 - z, f)
        for i, (z, f) in enumerate(zip(zeros, factors, strict=True))
    ]
    found = exact_sum(terms, constant, 3, -128, 127)
    assert found is not None
    x, y = np.meshgrid(np.arange(-128, 128, 3), np.arange(-128, 128), indexing="ij")
    result = evaluate(found, [x, y])
    for place in np.ndindex(x.shape):
        exact = (int(x[place]) + 7) * factors[0] + (int(y[place]) - 20) * factors[1] + constant
        assert result[place] == clip(round(exact) + 3)


@pytest.mark.parametrize("scale", [ratio(0.0123, 0.77), Fraction(1, 90), ratio(0.1, 9), Fraction(3, 128)])
def test_products_of_two_are_exact(scale: Fraction) -> None:
    a = Term(apply("sub", Argument(0), 5), -133, 122, scale)
    b = Term(Argument(1), 0, 255, Fraction(1))
    found = exact_product(a, b, -9, -128, 127)
    assert found is not None
    x, y = np.meshgrid(np.arange(-128, 128, 3), np.arange(256), indexing="ij")
    result = evaluate(found, [x, y])
    for place in np.ndindex(x.shape):
        exact = (int(x[place]) - 5) * int(y[place]) * scale
        assert result[place] == clip(round(exact) - 9)


def test_limits_of_limits_are_one() -> None:
    twice = clamped(clamped(Argument(0), -128, 127), 0, 200)
    assert twice == Apply("max", (Apply("min", (Argument(0), Number(127))), Number(0)))
    values = np.arange(-300, 300)
    for low, high in ((-5, 5), (130, 140), (-200, -150)):
        again = evaluate(clamped(clamped(Argument(0), -128, 127), low, high), [values])
        assert np.array_equal(again, np.clip(np.clip(values, -128, 127), low, high))


@pytest.mark.parametrize("element", ["int8", "uint8", "int32"])
def test_wrapping_is_that_of_a_store(element: str) -> None:
    values = np.array([-(1 << 31), -129, -128, -1, 0, 127, 128, 255, 256, (1 << 31) - 1])
    assert np.array_equal(evaluate(wrapped(Argument(0), element), [values]), values.astype(element))
    assert wrapped(Argument(0), "int32") == Argument(0)
    assert evaluate(Lookup((4, 5, 6), Argument(0)), [[2, 0]]).tolist() == [6, 4]
