"""Functions of one byte become table look-ups, and nothing else does."""

from __future__ import annotations

import numpy as np
import pytest

from sw.graph.expression import Apply, Argument, Expression, Lookup, Number, evaluate, operations, walk
from sw.graph.requantise import apply, clamped, lookup_of
from sw.graph.tabulate import tabulated, with_tables
from sw.kernels.body import with_quantiser

SUM = Apply("mul_shift_round_even", (Argument(0), Number(1 << 20), Number(30)))
TABLE = np.arange(256) % 97 - 40


def swish(zero: int) -> Expression:
    """A requantised sum times a table of it; less its zero point the sum is limited elsewhere."""
    stored = clamped(apply("add", SUM, zero), -128, 127)
    factor = apply("sub", clamped(SUM, -128 - zero, 127 - zero), 0)
    product = apply("mul", factor, apply("add", lookup_of(TABLE, stored, "int8"), 128))
    product = Apply("mul_shift_round_even", (product, Number(12345), Number(20)))
    return clamped(apply("add", product, -7), -128, 127)


def tables(value: Expression) -> int:
    return sum(isinstance(e, Lookup) for e in walk(value))


@pytest.mark.parametrize("zero", [0, 25, -128, 127])
def test_a_swish_of_a_requantised_sum_is_one_table(zero: int) -> None:
    value = swish(zero)
    made = tabulated(value, ["int32"])
    # The index is the sum limited to 0 to 255: no mask, and one step of a quantiser.
    assert (operations(made), tables(made)) == (4 if zero == -128 else 5, 1)
    assert isinstance(made, Lookup)
    assert operations(with_quantiser(made.index)) == 1
    assert operations(value) >= 11
    sums = np.random.default_rng(zero + 128).integers(-(1 << 31), 1 << 31, 4096).astype(np.int32)
    sums[:2048] >>= 13
    assert np.array_equal(evaluate(made, [sums]), evaluate(value, [sums]))


def hard_swish(scaled: Expression) -> Expression:
    """A requantised sum plus 19 times a table of it: the table's index and the factor are limited apart."""
    index = clamped(apply("add", scaled, 112), 0, 255)
    factor = clamped(apply("add", scaled, 3), -109, 146)
    product = apply("mul", factor, Lookup(tuple(TABLE.tolist()), index))
    return clamped(Apply("mul_shift_round_even", (product, Number(12345), Number(12))), -128, 127)


def sums_of(seed: int) -> np.ndarray:
    sums = np.random.default_rng(seed).integers(-(1 << 31), 1 << 31, 4096).astype(np.int32)
    sums[:2048] >>= 13
    return sums


def test_limits_that_differ_by_a_constant_are_one_byte() -> None:
    value = hard_swish(SUM)
    made = tabulated(value, ["int32"])
    assert isinstance(made, Lookup)
    assert (operations(made), operations(with_quantiser(made.index))) == (5, 1)
    sums = sums_of(1)
    assert np.array_equal(evaluate(made, [sums]), evaluate(value, [sums]))


@pytest.mark.parametrize(("greatest", "whole"), [(1 << 20, True), (1 << 30, False)])
def test_scales_of_channels_must_be_known_to_keep_sums_from_wrapping(greatest: int, whole: bool) -> None:
    value = hard_swish(Apply("mul_shift_round_even", (Argument(0), Argument(1), Argument(2))))
    rng = np.random.default_rng(2)
    # One channel has a larger shift: only pairs of factor and shift tell what a result can be.
    factors = rng.integers(-greatest, greatest, (64, 1)).astype(np.int32)
    factors[0] = greatest
    shifts = np.where(np.abs(factors) > 1 << 18, 29, 24).astype(np.int32)
    elements = ["int32"] * 3
    assert tabulated(value, elements) == value
    views = [np.broadcast_to(a, (64, 4096)) for a in (factors, shifts)]
    made = tabulated(value, elements, [None, *views])
    assert isinstance(made, Lookup) == whole
    given = [sums_of(3), *views]
    assert np.array_equal(evaluate(made, given), evaluate(value, given))


def test_bytes_of_an_operand_are_told_apart_by_their_type() -> None:
    for element, low in (("int8", -128), ("uint8", 0)):
        looked = apply("add", lookup_of(TABLE, Argument(0), element), 3)
        value = clamped(apply("mul", looked, Argument(0)), -128, 127)
        made = tabulated(value, [element])
        assert tables(made) == 1
        assert operations(made) == (2 if element == "int8" else 1)
        given = np.arange(low, low + 256).astype(element)
        assert np.array_equal(evaluate(made, [given]), evaluate(value, [given]))


def test_what_other_operands_follow_stays() -> None:
    residual = apply("add", swish(3), Argument(1))
    made = tabulated(residual, ["int32", "int8"])
    assert isinstance(made, Apply)
    assert made.operands[1] == Argument(1)
    assert operations(made) == 6


def test_what_has_no_table_gets_none() -> None:
    value = clamped(apply("mul", clamped(SUM, 0, 255), 3), 0, 255)
    assert tabulated(value, ["int32"]) == value


def test_a_table_that_others_need_too_stays_the_only_one() -> None:
    looked = lookup_of(TABLE, clamped(SUM, -128, 127), "int8")
    value = apply("add", apply("mul", looked, Argument(1)), apply("mul", looked, 3))
    assert tables(tabulated(value, ["int32", "int32"])) == 1


@pytest.mark.parametrize("zero", [0, 25, -128, 127])
@pytest.mark.parametrize("element", ["int8", "uint8"])
def test_products_of_bytes_are_looked_up(zero: int, element: str) -> None:
    """A residual: a requantised sum and a byte, both to a common scale, are two words and their sum."""
    limited = clamped(SUM, -128 - zero, 127 - zero)
    scaled = Apply("mul_shift_round", (limited, Number(123456), Number(12)))
    other = Apply("mul_shift_round", (apply("sub", Argument(1), zero), Number(-98765), Number(10)))
    value = apply("add", scaled, other)
    made = with_tables(value, ["int32", element])
    # No mask behind the sum's limits, and one of an int8, which is read as uint8.
    assert tables(made) == 2
    assert not [e for e in walk(made) if isinstance(e, Apply) and e.operation == "mul_shift_round"]
    assert sum(isinstance(e, Apply) and e.operation == "and" for e in walk(made)) == (element == "int8")
    sums = np.random.default_rng(zero + 128).integers(-(1 << 31), 1 << 31, 4096).astype(np.int32)
    sums[:2048] >>= 13
    given = [sums, np.arange(4096).astype(element)]
    assert np.array_equal(evaluate(made, given), evaluate(value, given))


def test_products_of_several_operands_are_not_looked_up() -> None:
    value = apply("add", apply("mul", Argument(0), Argument(1)), apply("add", Argument(1), 3))
    assert with_tables(value, ["int8", "int8"]) == value


def test_a_limited_sum_that_may_wrap_is_looked_up_by_its_lowest_bits() -> None:
    large = Apply("mul_shift_round_even", (Argument(0), Number((1 << 31) - 1), Number(31)))
    value = apply("mul", clamped(large, -100, 27), 5)
    made = with_tables(value, ["int32"])
    assert tables(made) == 1
    sums = np.array([-(1 << 31), -(1 << 31) + 1, -101, -1, 0, 27, 28, (1 << 31) - 1], np.int32)
    assert np.array_equal(evaluate(made, [sums]), evaluate(value, [sums]))
    added = clamped(apply("add", large, -128), -128, 127)
    value = apply("add", apply("mul", added, 5), apply("mul", large, 0))
    made = with_tables(value, ["int32"])
    assert np.array_equal(evaluate(made, [sums]), evaluate(value, [sums]))
    made = with_tables(apply("mul", clamped(large, -100, 27), 5), ["int32"])
    # In front of the mask no number is added, which would wrap.
    assert not [e for e in walk(made) if isinstance(e, Apply) and e.operation == "add"]
