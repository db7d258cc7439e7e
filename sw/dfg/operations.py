"""Operations of data-flow graphs, also as Python functions, so that a kernel's file runs as Python.

The operations are those of a processing element (`hw.fabric.operations`).
"""

from __future__ import annotations

import re

from hw.fabric.operations import OPERATIONS as OF_PES
from hw.fabric.operations import PEOperation
from hw.semantics import SEMANTICS

#: All operations with known semantics, by name. Their operands in order are I1, I2, I3.
OPERATIONS = {name: operation for name, operation in OF_PES.items() if not operation.opaque}
_OPAQUE_MEMORY = re.compile(r"load|store|oload|ostore")


def opaque(name: str) -> PEOperation:
    """The PE operation of an operator known by name only; some such operators need a memory port."""
    return OF_PES["opaque_memory" if _OPAQUE_MEMORY.match(name) else "opaque"]


def mul_shift_round(a: int, b: int, shift: int) -> int:
    """Shifts the 64-bit product right and rounds half up: `(a * b + 2^(shift - 1)) >> shift`."""
    return SEMANTICS["mul_shift_round"].value(a, b, shift)


def mul_shift_round_even(a: int, b: int, shift: int) -> int:
    """Shifts the 64-bit product right and rounds half to even."""
    return SEMANTICS["mul_shift_round_even"].value(a, b, shift)


def requantise(a: int, b: int, packed: int) -> int:
    """Shifts the 64-bit product right, rounds half up, adds the zero point and clamps.

    `packed` holds shift, zero point and limits; `hw.semantics.quantisation` makes it.
    """
    return SEMANTICS["requantise"].value(a, b, packed)


def requantise_even(a: int, b: int, packed: int) -> int:
    """Like `requantise`, but rounds half to even."""
    return SEMANTICS["requantise_even"].value(a, b, packed)


def requantise_sum(a: int, b: int, c: int, packed: int) -> int:
    """`requantise(a + c, b, packed)`; on a CGRA, `packed` is a number or a scalar."""
    return SEMANTICS["requantise_sum"].value(a, b, c, packed)


def requantise_sum_even(a: int, b: int, c: int, packed: int) -> int:
    """As `requantise_sum`, halves to the even neighbour."""
    return SEMANTICS["requantise_sum_even"].value(a, b, c, packed)


def shift_right_logical(a: int, b: int) -> int:
    """Logical shift right; the amount counts modulo 32."""
    return SEMANTICS["shr_logical"].value(a, b)


def clz(a: int) -> int:
    """Number of leading zeros in 32 bits: 32 for 0, 0 for negative numbers."""
    return SEMANTICS["clz"].value(a)
