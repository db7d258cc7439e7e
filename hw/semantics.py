"""Semantics of scalar operations on 32-bit two's complement.

Warps, tile programs and the CGRA share these definitions: the instruction table (`hw.isa`), the expressions
of tile programs (`sw.ir.expression`), data-flow graphs (`sw.dfg.operations`), and the models that compile
programs to Python text. So each operation is defined once, by its text.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

BITS = 32
MASK = (1 << BITS) - 1
_SIGN = 1 << BITS - 1


def wrap(value: int) -> int:
    """The low 32 bits of a value as a signed number."""
    return (value + _SIGN & MASK) - _SIGN


@dataclass(frozen=True)
class Semantics:
    """The meaning of one operation.

    `formula` is Python text with `{0}`, `{1}`, ... for the operands, which are signed 32-bit numbers; `wraps`
    says that its value may need more bits. `exact` computes the formula, `value` its low 32 bits as a signed
    number. A divisor of zero raises `ZeroDivisionError`.
    """

    name: str
    operands: int
    formula: str
    wraps: bool = False
    exact: Callable[..., Any] = field(init=False, repr=False, compare=False)
    value: Callable[..., int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        names = [f"x{n}" for n in range(self.operands)]
        exact = f"lambda {', '.join(names)}: {self.formula.format(*names)}"
        value = f"lambda {', '.join(names)}: {self.text(*names)}"
        # The text comes only from the table below.
        object.__setattr__(self, "exact", eval(exact))
        object.__setattr__(self, "value", eval(value))

    def text(self, *operands: str) -> str:
        """Python text of the value; operands are names, numbers, or parenthesised."""
        found = self.formula.format(*operands)
        return f"({found} + {_SIGN} & {MASK}) - {_SIGN}" if self.wraps else found


_SHIFT = "({2} & 63)"
#: Adding half minus 1, plus the lowest bit of the quotient, rounds a half up only from an odd quotient. A
#: shift of 0 adds nothing. If the shift is a number, Python's compiler leaves little besides the product.
_HALF_EVEN = (
    f"((w := {{0}} * {{1}}) + ((1 << {_SHIFT}) - 1 >> 1) + (w >> {_SHIFT} & -(-{_SHIFT} >> 6)) >> {_SHIFT})"
)

_HALF_UP = f"(({{0}} * {{1}} + (1 << {_SHIFT} >> 1)) >> {_SHIFT})"


def _quantised(rounded: str) -> str:
    """A rounded product as a byte: with a zero point, and within limits (`quantisation`).

    If the limits are in the wrong order, the result has the low eight bits of the formula and the sign of the
    value.
    """
    zero = "(({2} >> 6 & 511 ^ 256) - 256)"
    low, high = (
        f"(({{2}} >> {by} & 255) - (0 if {{2}} < 0 else ({{2}} >> {by} & 128) << 1))" for by in (15, 23)
    )
    value = f"({rounded} + {zero} + {_SIGN} & {MASK}) - {_SIGN}"
    # The texts of whole steps use one-letter names.
    byte = f"({high} if (sum_ := {value}) > {high} else {low} if sum_ < {low} else sum_) & 255"
    return f"(byte - 256 if (byte := {byte}) >= 0 > {low} and (sum_ < 0 or {high} < 0) else byte)"


def _of_sum(formula: str) -> str:
    """A formula of three operands, for the sum of the first and the third of four."""
    return formula.format(f"(({{0}} + {{2}} + {_SIGN} & {MASK}) - {_SIGN})", "{1}", "{3}")


def quantisation(shift: int, zero: int, low: int, high: int) -> int:
    """The third operand of `requantise`, as a signed 32-bit number.

    `shift` is 0 to 63, `zero` -256 to 255. `low` and `high` (not less than `low`) are bytes: signed, or
    unsigned if `high` is more than 127.
    """
    limits = (low & 255) << 15 | (high & 255) << 23 | (high > 127) << 31
    return wrap(shift & 63 | (zero & 511) << 6 | limits)


#: All operations by name. Shift amounts count modulo 32, those of products modulo 64.
SEMANTICS = {
    s.name: s
    for s in (
        Semantics("add", 2, "({0} + {1})", wraps=True),
        Semantics("sub", 2, "({0} - {1})", wraps=True),
        Semantics("mul", 2, "({0} * {1})", wraps=True),
        # Quotients are rounded down; only -2^31 / -1 wraps.
        Semantics("div", 2, "({0} // {1})", wraps=True),
        Semantics("rem", 2, "({0} % {1})"),
        Semantics("min", 2, "({0} if {0} < {1} else {1})"),
        Semantics("max", 2, "({0} if {0} > {1} else {1})"),
        Semantics("and", 2, "({0} & {1})"),
        Semantics("or", 2, "({0} | {1})"),
        Semantics("xor", 2, "({0} ^ {1})"),
        Semantics("shl", 2, "({0} << ({1} & 31))", wraps=True),
        Semantics("shr", 2, "({0} >> ({1} & 31))"),
        Semantics("eq", 2, "(1 if {0} == {1} else 0)"),
        Semantics("ne", 2, "(1 if {0} != {1} else 0)"),
        Semantics("lt", 2, "(1 if {0} < {1} else 0)"),
        Semantics("le", 2, "(1 if {0} <= {1} else 0)"),
        Semantics("select", 3, "({1} if {0} else {2})"),
        # For warps only: constants, 15 bits at a time.
        Semantics("li", 1, "{0}"),
        Semantics("lih", 2, f"({{0}} << 15 | {{1}} & {(1 << 15) - 1})", wraps=True),
        # For expressions and the CGRA.
        Semantics("gt", 2, "(1 if {0} > {1} else 0)"),
        Semantics("ge", 2, "(1 if {0} >= {1} else 0)"),
        # For truth values.
        Semantics("not", 1, "(1 - {0})"),
        # For the CGRA only.
        Semantics("mov", 1, "{0}"),
        Semantics("abs", 1, "abs({0})", wraps=True),
        Semantics("clz", 1, f"({BITS} - ({{0}} & {MASK}).bit_length())"),
        Semantics("shr_logical", 2, f"(({{0}} & {MASK}) >> ({{1}} & 31))", wraps=True),
        # The 64-bit product shifted right: halves rounded up, or to the even neighbour.
        Semantics("mul_shift_round", 3, _HALF_UP, wraps=True),
        Semantics("mul_shift_round_even", 3, _HALF_EVEN, wraps=True),
        # The same, reduced to a byte.
        Semantics("requantise", 3, _quantised(_HALF_UP)),
        Semantics("requantise_even", 3, _quantised(_HALF_EVEN)),
        # The same for the sum of the first and the third operand.
        Semantics("requantise_sum", 4, _of_sum(_quantised(_HALF_UP))),
        Semantics("requantise_sum_even", 4, _of_sum(_quantised(_HALF_EVEN))),
    )
}
