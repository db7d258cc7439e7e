"""The array's work for an operator: multiply-accumulates, and a lower bound of their cycles."""

from __future__ import annotations

import math
from fractions import Fraction

from hw.config import MachineConfig
from sw.compile.repeat import Repeated
from sw.graph.network import ImageConvolution, MatrixProduct, Operator
from sw.patches import Axis


def macs(operator: Operator | Repeated) -> int:
    """Multiply-accumulates of a matrix product or a convolution; 0 for other operators and for moves."""
    match operator:
        case Repeated():
            return operator.count * sum(map(macs, operator.body))
        case MatrixProduct():
            return 0 if operator.moves else operator.output.elements * operator.a.shape[-1]
        case ImageConvolution():
            return operator.output.elements * math.prod(operator.w.shape[1:])
    return 0


def array_cycles(operator: Operator | Repeated, config: MachineConfig) -> int:
    """Lower bound of the array's cycles for an operator, including idle rows and columns.

    In each cycle, every row holds an element of one operand, and every column one of the other. So an element
    of A that is multiplied with n elements of B occupies a row for n / columns cycles, rounded up, whatever
    else the array does; an element of B likewise. The operand that needs more gives the bound. For a
    convolution, weights are counted, and for a kernel of one pixel also the image's pixels. Multiplications
    with padding need no cycles.
    """
    match operator:
        case Repeated():
            return operator.count * sum(array_cycles(o, config) for o in operator.body)
        case MatrixProduct(output=output, a=a, b=b):
            *batch, m, n = output.shape
            count = 1
            for size, of_a, of_b in zip(batch, a.strides[:-2], b.strides[:-2], strict=True):
                if of_b == 0:
                    m *= size
                elif of_a == 0:
                    n *= size
                else:
                    count *= size
            depth = count * a.shape[-1]
            return math.ceil(depth * max(m * _share(n, config), n * _share(m, config)))
        case ImageConvolution(output=output, w=w, groups=groups):
            (images, channels, *_), axes = output.shape, (operator.rows, operator.cols)
            uses = [[_inside(axis, i) for i in range(axis.kernel)] for axis in axes]
            weights = sum(_share(images * r * c, config) for r in uses[0] for c in uses[1])
            needed = w.shape[1] * channels * weights
            if axes[0].kernel == axes[1].kernel == 1:
                pixels = images * uses[0][0] * uses[1][0] * w.shape[1] * groups
                needed = max(needed, pixels * _share(channels // groups, config))
            return math.ceil(needed)
    return 0


def _inside(axis: Axis, tap: int) -> int:
    """Number of outputs along an axis for which this kernel tap falls inside the image."""
    places = (i * axis.stride + tap * axis.dilation - axis.before for i in range(axis.outputs))
    return sum(0 <= place < axis.size for place in places)


def _share(partners: int, config: MachineConfig) -> Fraction:
    """Fraction of the array's cycles that an element needs to meet `partners` elements of the other operand.

    It may occupy a row for some of them and a column for others.
    """
    rows, columns = config.rows, config.cols
    return min(
        Fraction(i, rows) + Fraction(max(0, -(-(partners - i * columns) // rows)), columns)
        for i in range(-(-partners // columns) + 1)
    )
