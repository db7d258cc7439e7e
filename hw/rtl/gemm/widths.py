"""Bit widths of operands, products and sums, each derived from the previous one."""

from __future__ import annotations

from hw.config import MachineConfig
from hw.rtl.bits import log2

#: An element of a buffer, int8 or uint8; its zero point has the same type.
ELEMENT_BITS = 8
#: An element minus its zero point: -255 to 255 for either type.
OPERAND_BITS = ELEMENT_BITS + 1
#: A product of two operands: at most 255 * 255 < 2^16 in absolute value.
PRODUCT_BITS = 2 * ELEMENT_BITS + 1
#: An element of the accumulator.
ACCUMULATOR_BITS = 32


def block_bits(config: MachineConfig) -> int:
    """Width of the sum over a block, which cannot overflow.

    A block reads one column of each buffer per step and never reaches beyond the end of a buffer
    (`hw.rtl.gemm.control` refuses it). So it has at most as many steps as the smaller buffer has columns, a
    power of two.
    """
    steps = min(config.derived.buffer_a.columns, config.derived.buffer_b.columns)
    return min(ACCUMULATOR_BITS, PRODUCT_BITS + log2(steps))
