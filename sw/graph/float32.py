"""Float32 arithmetic as expressions on 32-bit integers; results equal IEEE 754 bit for bit.

Each result is the exact one, rounded once, half to even. Numbers below 2^-126 count as 0, and zeros are
positive. Operands must be finite; results that are too large are infinite.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from sw.graph.expression import Apply, Expression, Lookup, Number, evaluate
from sw.graph.requantise import apply as applied

#: The sign bit, and all other bits.
SIGN, MAGNITUDE = -(1 << 31), (1 << 31) - 1
#: Stored bits of the mantissa, their mask, and the implicit leading bit.
_BITS, _FRACTION, _ONE = 23, (1 << 23) - 1, 1 << 23
_BIAS, _INFINITE = 127, 0x7F800000
#: Guard bits behind the mantissa of a summand; the lowest one is sticky.
_GUARD = 6
#: 48/17 and 32/17 with 29 fractional bits give the initial estimate of the reciprocal of a number from 0.5 to
#: 1. Three Newton steps leave an error below 2^-26. `_LESS` is subtracted so that the result is never too
#: large.
_START, _SLOPE, _STEPS, _LESS = round(48 / 17 * 2**29), round(32 / 17 * 2**29), 3, 8
#: 2^(-i/256), log2(e) and log(2), each with 30 fractional bits; and the largest exponent of e that counts.
_POWERS = tuple(min(round(2 ** (30 - i / 256)), (1 << 30) - 1) for i in range(256))
_LOG2_E, _LOG_2, _FAR = round(2**30 / math.log(2)), round(2**30 * math.log(2)), 80.0


def apply(operation: str, *operands: Expression | int) -> Expression:
    """An operation, folded if all operands are numbers."""
    found = applied(operation, *operands)
    if isinstance(found, Apply) and all(isinstance(x, Number) for x in found.operands):
        return Number(int(evaluate(found, [])))
    return found


def number(value: float | np.floating) -> Number:
    """A number, rounded to float32."""
    return Number(int(np.float32(value).view(np.int32)))


@dataclass(frozen=True)
class Parts:
    """Mantissa from 2^23 to 2^24 and biased exponent of a nonzero number.

    `inverse` is 2^53 over the mantissa, or less by at most a third of a 2^24th; only divisors need it.
    """

    mantissa: Expression
    exponent: Expression
    inverse: Expression = field(default_factory=lambda: Number(0))


def parts(x: Expression) -> Parts:
    """Mantissa and exponent of a number."""
    mantissa = apply("or", apply("and", x, _FRACTION), _ONE)
    return Parts(mantissa, apply("shr", apply("and", x, MAGNITUDE), _BITS))


def divisor(x: Expression) -> Parts:
    """Mantissa, exponent and inverse of a divisor."""
    found = parts(x)
    value = _inverse(apply("shl", found.mantissa, 30 - _BITS))
    return Parts(found.mantissa, found.exponent, apply("sub", value, _LESS))


def _inverse(high: Expression) -> Expression:
    """2^60 over a number from 2^30 to 2^31."""
    value = apply("sub", _START, apply("mul_shift_round", high, _SLOPE, 31))
    for _ in range(_STEPS):
        rest = apply("sub", 1 << 30, apply("mul_shift_round", high, value, 31))
        value = apply("mul_shift_round", value, rest, 29)
    return value


def _joined(mantissa: Expression, exponent: Expression, sign: Expression, some: Expression) -> Expression:
    """The number with a mantissa from 2^23 to 2^24 and an exponent minus 1; 0 if `some` is 0."""
    found = apply("add", mantissa, apply("shl", exponent, _BITS))
    found = apply("select", apply("gt", exponent, 253), _INFINITE, found)
    found = apply("or", found, apply("and", sign, SIGN))
    return apply("select", some, found, 0)


def _normal(exponent: Expression, *operands: Expression) -> Expression:
    """Whether an exponent minus 1 is that of a normal number, and the operands are not 0."""
    least = exponent
    for operand in operands:
        least = apply("min", least, apply("sub", operand, 1))
    return apply("ge", least, 0)


def converted(x: Expression) -> Expression:
    """A 32-bit integer as float32."""
    magnitude, zeros, high = _high(x)
    mantissa = apply("mul_shift_round_even", high, 1, 7)
    return _joined(mantissa, apply("sub", 157, zeros), x, magnitude)


def _high(x: Expression) -> tuple[Expression, Expression, Expression]:
    """The magnitude of an integer, its leading zeros, and it normalised to have bit 30 set."""
    magnitude = apply("abs", x)
    zeros = apply("clz", magnitude)
    return magnitude, zeros, apply("shr_logical", apply("shl", magnitude, zeros), 1)


def scale(x: Expression) -> Parts:
    """The parts of a scale that `scaled` needs; the scale is not negative."""
    found = parts(x)
    return Parts(apply("select", found.exponent, found.mantissa, 0), apply("add", found.exponent, 30))


def scaled(x: Expression, by: Parts) -> Expression:
    """An integer, rounded to float32, times a scale."""
    _, zeros, high = _high(x)
    mantissa = apply("mul_shift_round_even", high, 1, 7)
    above = apply("ge", apply("mul_shift_round_even", mantissa, by.mantissa, _BITS), 1 << _BITS + 1)
    found = apply("mul_shift_round_even", mantissa, by.mantissa, apply("add", above, _BITS))
    return _joined(found, apply("add", apply("sub", by.exponent, zeros), above), x, found)


def product(x: Expression, y: Expression) -> Expression:
    """The product."""
    a, b = parts(x), parts(y)
    above = apply("ge", apply("mul_shift_round_even", a.mantissa, b.mantissa, _BITS), 1 << _BITS + 1)
    mantissa = apply("mul_shift_round_even", a.mantissa, b.mantissa, apply("add", above, _BITS))
    exponent = apply("add", apply("add", a.exponent, b.exponent), apply("sub", above, _BIAS + 1))
    some = _normal(exponent, a.exponent, b.exponent)
    return _joined(mantissa, exponent, apply("xor", x, y), some)


def total(x: Expression, y: Expression) -> Expression:
    """The sum."""
    a, b = (apply("and", v, MAGNITUDE) for v in (x, y))
    high, low = apply("max", a, b), apply("min", a, b)
    exponent, less = apply("shr", high, _BITS), apply("shr", low, _BITS)
    apart = apply("min", apply("sub", exponent, less), 31)
    wide = apply("select", less, _wide(low), 0)
    shifted = apply("shr", wide, apart)
    shifted = apply("or", shifted, apply("ne", apply("shl", shifted, apart), wide))
    minus = apply("shr", apply("xor", x, y), 31)
    found = apply("add", _wide(high), apply("sub", apply("xor", shifted, minus), minus))
    zeros = apply("clz", found)
    mantissa = apply("mul_shift_round_even", apply("shr_logical", apply("shl", found, zeros), 1), 1, 7)
    exponent = apply("sub", apply("add", exponent, 1), zeros)
    sign = apply("select", apply("ge", a, b), x, y)
    # If nothing is left, there are 32 leading zeros; if both operands are 0, the exponent is too small.
    return _joined(mantissa, exponent, sign, apply("ge", apply("min", exponent, apply("sub", 31, zeros)), 0))


def _wide(magnitude: Expression) -> Expression:
    """The mantissa of a number, shifted left."""
    return apply("shl", apply("or", apply("and", magnitude, _FRACTION), _ONE), _GUARD)


def _divided(x: Parts, y: Parts) -> tuple[Expression, Expression]:
    """The quotient of mantissas times 2^24 (2^23 if it is at least 1); the second result says which."""
    above = apply("ge", x.mantissa, y.mantissa)
    found = apply("mul_shift_round_even", x.mantissa, y.inverse, apply("add", above, 29))
    rest = apply("sub", apply("shl", x.mantissa, apply("sub", 24, above)), apply("mul", found, y.mantissa))
    # The inverse may only be too small. A quotient of two mantissas is never exactly a half.
    return apply("add", found, apply("gt", rest, apply("shr", y.mantissa, 1))), above


def quotient(x: Expression, y: Parts, sign: Expression) -> Expression:
    """The quotient of x and y, which has that sign and is not 0."""
    a = parts(x)
    mantissa, above = _divided(a, y)
    exponent = apply("add", apply("sub", a.exponent, y.exponent), apply("add", above, _BIAS - 2))
    return _joined(mantissa, exponent, apply("xor", x, sign), _normal(exponent, a.exponent))


def steps(x: Expression, y: Parts) -> Expression:
    """The quotient of x and y rounded to an integer; y is positive, and at least a 512th of x."""
    a = parts(x)
    mantissa, above = _divided(a, y)
    shift = apply("sub", apply("sub", apply("add", y.exponent, 24), above), a.exponent)
    found, minus = apply("mul_shift_round_even", mantissa, 1, apply("min", shift, 31)), apply("shr", x, 31)
    return apply("sub", apply("xor", found, minus), minus)


def _power(x: Expression, doubled: int) -> tuple[Expression, Expression, Expression]:
    """Computes exp(-|x|) or exp(-2|x|): 30 fractional bits, a right shift, and the inverse of 1 plus it."""
    magnitude = apply("min", apply("and", x, MAGNITUDE), number(_FAR / (1 + doubled)))
    found = parts(magnitude)
    # Power of 2 with 24 fractional bits: the integer part is a shift, 8 bits a table look-up, 16 a
    # polynomial.
    shift = apply("min", apply("sub", 156 - doubled, found.exponent), 63)
    bits = apply("mul_shift_round", found.mantissa, _LOG2_E, shift)
    table = Lookup(_POWERS, apply("and", apply("shr", bits, 16), 255))
    rest = apply("mul_shift_round", apply("and", bits, 0xFFFF), _LOG_2, 22)
    less = apply("sub", rest, apply("mul_shift_round", rest, rest, 33))
    power = apply("sub", table, apply("mul_shift_round", table, less, 32))
    whole = apply("shr", bits, 24)
    half = apply("shr", power, apply("min", apply("add", whole, 1), 31))
    return power, whole, _inverse(apply("shl", apply("add", 1 << 29, half), 1))


def sigmoid(x: Expression) -> Expression:
    """1 / (1 + e^-x), with a relative error of at most 2^-23; x below -80 counts as -80."""
    power, shift, inverse = _power(x, 0)
    negative = apply("lt", x, 0)
    found = apply("select", negative, apply("mul_shift_round", power, inverse, 30), inverse)
    return _rounded(found, apply("select", negative, shift, 0))


def tanh(x: Expression) -> Expression:
    """The hyperbolic tangent, off by 2^-24 at most."""
    power, shift, inverse = _power(x, 1)
    less = apply("sub", 1 << 30, apply("shr", power, apply("min", shift, 31)))
    found = _rounded(apply("mul_shift_round", less, inverse, 30), Number(0))
    found = apply("or", found, apply("and", x, SIGN))
    return apply("select", apply("gt", apply("and", x, MAGNITUDE), number(2.0**-12)), found, x)


def _rounded(x: Expression, shift: Expression) -> Expression:
    """A positive number with 30 fractional bits, shifted to the right, in float32."""
    _, zeros, high = _high(x)
    mantissa = apply("mul_shift_round_even", high, 1, 7)
    return apply("add", mantissa, apply("shl", apply("sub", apply("sub", 127, zeros), shift), _BITS))
