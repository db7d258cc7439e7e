"""Bit widths of operands, products and sums, each derived from the one before."""

from __future__ import annotations

from hw.config import MachineConfig
from hw.rtl.bits import log2

#: An element of a buffer, int8 or uint8; a zero point is of the same type.
ELEMENT_BITS = 8
#: An element less its zero point: -255 to 255 for either type.
OPERAND_BITS = ELEMENT_BITS + 1
#: A product of two operands: at most 255 * 255 < 2^16 in absolute value.
PRODUCT_BITS = 2 * ELEMENT_BITS + 1
#: An element of the accumulator.
ACCUMULATOR_BITS = 32


def block_bits(config: MachineConfig) -> int:
    """Bits of the sum of a block's products: no block overflows them.

    A block reads one column of each buffer in a step and never reaches beyond a buffer's end (`GemmControl`
    refuses it), so it has at most as many steps as the smaller number of columns, a power of two.
    """
    steps = min(config.derived.buffer_a.columns, config.derived.buffer_b.columns)
    return min(ACCUMULATOR_BITS, PRODUCT_BITS + log2(steps))
