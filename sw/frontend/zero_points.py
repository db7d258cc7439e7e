"""Zero points that differ from row to row, on an array that subtracts one from the whole operand.

The sum over k of (a_k - z_m) * b_k, with z_m the row's own zero point, equals the sum of (a_k - z) * b_k
plus that of (c_m - z) * b_k, where c_m = 2 z - z_m: the operand gets as many steps of depth again, filled
with c_m, and the other operand is repeated. There is a z for which every c_m fits the type, except where the
zero points differ by the whole range of it; then two such fills share the difference.
"""

from __future__ import annotations

import numpy as np


def common_zero(zeros: np.ndarray, dtype: np.dtype) -> tuple[int, list[np.ndarray]]:
    """One zero point for the whole operand, and the fills that make up for it.

    `zeros` are the zero points of the rows, of the operand's type `dtype` (int8 or uint8); the fills have
    their shape and type. There are none where all zero points are equal.
    """
    values = zeros.astype(np.int64)
    low, high = int(values.min()), int(values.max())
    if low == high:
        return low, []
    limits = np.iinfo(dtype)
    for count in (1, 2):
        # count fills c with sum(c) = (count + 1) * z - z_m, each within the type.
        least = -(-(count * limits.min + high) // (count + 1))
        most = (count * limits.max + low) // (count + 1)
        if least <= most:
            break
    zero = min(max(least, limits.min), most)
    left = (count + 1) * zero - values
    fills = []
    for i in range(count, 0, -1):
        part = left // i
        fills.append(part.astype(dtype))
        left = left - part
    return zero, fills


def deepened(
    operand: np.ndarray, axis: int, other: np.ndarray, other_axis: int, fills: list[np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """Both operands with the steps of depth that the fills add; `fills` broadcast to the operand."""
    parts = [operand, *(np.broadcast_to(fill, operand.shape) for fill in fills)]
    return np.concatenate(parts, axis), np.concatenate([other] * len(parts), other_axis)
