"""Float32 arithmetic on bits: equal to NumPy's float32, to the bit."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest

from sw.graph import float32
from sw.graph.expression import Argument, Expression, Number, evaluate, operations

X, Y = Argument(0), Argument(1)
COUNT = 200_000
#: The least number that does not count as 0.
LEAST = np.float32(2.0**-126)
Floats = npt.NDArray[np.float32]


def drawn(seed: int, low: int, high: int) -> Floats:
    """Numbers with exponents of a range, as they are written, zeros, and mantissas with long runs of bits."""
    rng = np.random.default_rng(seed)
    mantissa = rng.integers(0, 1 << 23, COUNT)
    kind = rng.integers(0, 4, COUNT)
    mantissa = np.select(
        [kind == 0, kind == 1], [mantissa & ~0xFFFF, (1 << 23) - 1 - (mantissa & 3)], mantissa
    )
    bits = rng.integers(0, 2, COUNT) << 31 | rng.integers(low, high, COUNT) << 23 | mantissa
    bits[rng.integers(0, 50, COUNT) == 0] = 0
    return bits.astype(np.uint32).view(np.float32)


def check(value: Expression, wanted: Floats, *operands: npt.NDArray[np.generic]) -> None:
    """Results equal what is wanted where that is not next to 0; there they are 0 or the least number."""
    found = evaluate(value, operands).view(np.float32)
    small = np.abs(wanted) <= LEAST
    assert np.array_equal(found[~small], wanted[~small])
    assert np.all(np.isin(np.abs(found[small]), [0, LEAST]))
    assert np.all(found[np.abs(wanted) < LEAST / 2] == 0)


Function = Callable[[Floats, Floats], Floats]


@pytest.mark.parametrize(("low", "high"), [(1, 255), (110, 140), (126, 129)])
@pytest.mark.parametrize(
    ("value", "function"),
    [
        (float32.total(X, Y), lambda x, y: x + y),
        (float32.product(X, Y), lambda x, y: x * y),
        (float32.quotient(X, float32.divisor(Y), Y), lambda x, y: x / y),
    ],
    ids=["total", "product", "quotient"],
)
def test_sums_products_and_quotients(value: Expression, function: Function, low: int, high: int) -> None:
    x, y = drawn(0, low, high), drawn(1, low, high)
    x, y = x[y != 0], y[y != 0]
    with np.errstate(all="ignore"):
        check(value, function(x, y), x, y)


def test_sums_that_cancel() -> None:
    x = drawn(0, 40, 255)
    for y in (-x, np.nextafter(-x, np.float32(0)), -x * np.float32(0.5), -x * np.float32(2.0**-24)):
        with np.errstate(all="ignore"):
            check(float32.total(X, Y), x + y, x, y)


def test_whole_numbers_and_scales() -> None:
    rng = np.random.default_rng(0)
    whole = (rng.integers(-(1 << 31), 1 << 31, COUNT) >> rng.integers(0, 31, COUNT)).astype(np.int32)
    whole[:3] = -(1 << 31), (1 << 31) - 1, 0
    check(float32.converted(X), whole.astype(np.float32), whole)
    scale = np.abs(drawn(1, 1, 250))
    with np.errstate(over="ignore"):
        check(float32.scaled(X, float32.scale(Y)), whole.astype(np.float32) * scale, whole, scale)


def test_steps_are_rounded_twice_as_float32_has_them() -> None:
    """Next to a tie the quotient in float32 is the tie."""
    rng = np.random.default_rng(0)
    scale = np.maximum(np.abs(drawn(1, 40, 230)), LEAST)
    ties = rng.integers(-255, 255, COUNT) + 0.5
    steps = np.where(rng.integers(0, 2, COUNT), ties, rng.uniform(-255, 255, COUNT))
    x = (steps * scale).astype(np.float32)
    x = np.where(rng.integers(0, 2, COUNT), np.nextafter(x, np.float32(np.inf)), x)
    x[np.abs(x) < LEAST] = 0
    found = evaluate(float32.steps(X, float32.divisor(Y)), [x, scale])
    assert np.array_equal(found, np.rint(x / scale))


def test_sigmoid_and_tanh() -> None:
    rng = np.random.default_rng(0)
    parts = [
        rng.normal(size=COUNT) * 5,
        rng.uniform(-90, 90, COUNT),
        rng.normal(size=COUNT) * 1e-3,
        [0, 80, -1e30],
    ]
    x = np.concatenate(parts).astype(np.float32)
    exact = x.astype(np.float64)
    wanted = 1 / (1 + np.exp(-np.maximum(exact, -80)))
    found = evaluate(float32.sigmoid(X), [x]).view(np.float32)
    assert np.abs(found / wanted - 1).max() < 2.0**-23
    found = evaluate(float32.tanh(X), [x]).view(np.float32)
    assert np.abs(found - np.tanh(exact)).max() < 2.0**-24


def test_operations_on_numbers_are_done_at_once() -> None:
    assert float32.total(float32.number(1.5), float32.number(2.25)) == float32.number(3.75)
    assert isinstance(float32.divisor(float32.number(255.0)).inverse, Number)
    assert operations(float32.product(X, float32.number(3.0))) < operations(float32.product(X, Y))
