"""The operations of data-flow graphs, and functions of their names: a kernel's file runs as Python.

The operations are those of a processing element (`hw.fabric.operations`).
"""

from __future__ import annotations

import re

from hw.fabric.operations import OPERATIONS as OF_PES
from hw.fabric.operations import PEOperation
from hw.semantics import SEMANTICS

#: All operations of known meaning by name. Operands in order are I1, I2, I3.
OPERATIONS = {name: operation for name, operation in OF_PES.items() if not operation.opaque}
_OPAQUE_MEMORY = re.compile(r"load|store|oload|ostore")


def opaque(name: str) -> PEOperation:
    """What a PE executes for an operator of which only the name is known: some need a memory port."""
    return OF_PES["opaque_memory" if _OPAQUE_MEMORY.match(name) else "opaque"]


def mul_shift_round(a: int, b: int, shift: int) -> int:
    """The 64-bit product shifted right, halves rounded up: `(a * b + 2^(shift - 1)) >> shift`."""
    return SEMANTICS["mul_shift_round"].value(a, b, shift)


def mul_shift_round_even(a: int, b: int, shift: int) -> int:
    """The 64-bit product shifted right, rounded to the nearest, halves to the even neighbour."""
    return SEMANTICS["mul_shift_round_even"].value(a, b, shift)


def requantise(a: int, b: int, packed: int) -> int:
    """The 64-bit product shifted right, halves rounded up, with a zero point and within limits.

    `packed` comes from `hw.semantics.quantisation`.
    """
    return SEMANTICS["requantise"].value(a, b, packed)


def requantise_even(a: int, b: int, packed: int) -> int:
    """As `requantise`, halves to the even neighbour."""
    return SEMANTICS["requantise_even"].value(a, b, packed)


def shift_right_logical(a: int, b: int) -> int:
    """A shift to the right that brings in zeros; amounts count modulo 32."""
    return SEMANTICS["shr_logical"].value(a, b)


def clz(a: int) -> int:
    """The zeros above the highest one of the 32 bits: 32 for 0, 0 for negative numbers."""
    return SEMANTICS["clz"].value(a)
