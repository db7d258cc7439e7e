"""Layer and RMS normalisation of 8-bit numbers in integers: exact sums, an inverse square root per row.

The steps and their error bounds are in docs/operators.md.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from hw.errors import InputError
from hw.semantics import quantisation
from sw.frontend.importer import Importer
from sw.frontend.node import OnnxNode
from sw.frontend.quantised import row_operand
from sw.frontend.values import Quantisation, Structured, Value
from sw.graph.expression import Integers, operate
from sw.graph.network import View
from sw.graph.requantise import LIMITS
from sw.graph.views import reshaped
from sw.kernels.passes import GROUP, Pass, Span, packing
from sw.kernels.passes import Value as Scalar
from sw.operators import wide_rows
from sw.operators.elementwise.reals import held
from sw.operators.normalisation import loops
from sw.operators.registry import imports
from sw.operators.rows import Array, RowOperator, RowTile

#: Most elements of a row, so that the sum of their squares fits a signed word.
MOST_COLUMNS = 1 << 15
_MOST_ROUNDING, _LEAST_ROUNDING = 20, 4
#: Beyond this exponent, epsilon is negligible, or dominates.
_MOST_EXPONENT = 80


@dataclass(frozen=True)
class Normalisation(RowOperator):
    """(x - mean) / sqrt(variance + epsilon) * gamma + beta over the last axis of `x`, requantised.

    Without `mean` it is RMS normalisation: x / sqrt(mean of squares + epsilon) * gamma. Then x is an element
    less the zero point `x_zero`; otherwise the zero point does not matter and `x_zero` is 0.

    With n columns, s the sum of a row (0 without `mean`) and v = n * (sum of squares) - s^2, the normalised
    element is (n x - s) / sqrt(v + e), e = epsilon * n^2 / input scale^2 = `epsilon` * 2^`exponent`. It is
    computed with `fraction` fractional bits, times `factors[c]`, shifted right by `shift`, plus `offsets[c]`;
    of the sum, `rounding` bits are rounded off, half to even, before `zero` is added.
    """

    mean: bool
    x_zero: int
    epsilon: int
    exponent: int
    fraction: int
    factors: tuple[int, ...]
    offsets: tuple[int, ...]
    shift: int
    rounding: int
    zero: int
    result: str

    @property
    def fill(self) -> int:
        """A padding value that adds nothing to the sums."""
        return self.x_zero

    def parameters(self, pitch: int, lanes: int = 1) -> npt.NDArray[np.int32]:
        """Factor and offset of every column, with padding; for as many columns at a time as lanes."""
        found = np.zeros((pitch, loops.PARAMETERS), np.int32)
        found[: self.columns, 0] = self.factors
        found[: self.columns, 1] = self.offsets
        return found.reshape(-1, lanes, loops.PARAMETERS).swapaxes(1, 2).reshape(-1)

    def on_rows(self, x: Array) -> Array:
        """The results of rows."""
        values = x.astype(np.int64) - self.x_zero
        total = values.sum(axis=1, keepdims=True) * self.mean
        squares = (values * values).sum(axis=1, keepdims=True)
        slope, start = self.row_factors(total, squares)
        normalised = operate("add", operate("mul", values, slope), start)
        product = operate("mul_shift_round", normalised, np.asarray(self.factors), self.shift)
        scaled = operate("add", product, np.asarray(self.offsets))
        rounded = operate("mul_shift_round_even", scaled, 1, self.rounding) + self.zero
        return np.clip(rounded, *LIMITS[self.result]).astype(self.result)

    def row_factors(self, total: Integers, squares: Integers) -> tuple[Integers, Integers]:
        """Factors n / sqrt(v + e) and -s / sqrt(v + e), with `fraction` fractional bits; 0 if v is 0."""
        variance, exponent = _variance(self.columns, total, squares)
        root, shift = self._inverse_root(variance, exponent)
        # This shift gives 0.
        shift = np.where(variance != 0, shift, 63)
        return (
            operate("mul_shift_round", root, self.columns, shift),
            operate("mul_shift_round", root, -total, shift),
        )

    def _inverse_root(self, variance: Integers, exponent: Integers) -> tuple[Integers, Integers]:
        """1 / sqrt(v + e) with 29 fractional bits, from 1 to sqrt(8), and its right shift."""
        rounded = functools.partial(operate, "mul_shift_round")
        # Odd, so that the sum is d * 2^(exponent + 31) with d from 1/8 to 1 and an even exponent.
        common = np.maximum(exponent, self.exponent) | 1
        total = operate("shr", variance, np.minimum(common - exponent, 31)) + operate(
            "shr", self.epsilon, np.minimum(common - self.exponent, 31)
        )
        root = loops.START - rounded(total, loops.SLOPE, 31)
        for _ in range(loops.STEPS):
            ratio = rounded(rounded(total, root, 31), root, 29)
            root = rounded(root, (3 << 29) - ratio, 30)
        return root, np.minimum(((common + 31) >> 1) + 29 - self.fraction, 63)

    def choices(self, tile: RowTile, parameters: Scalar) -> tuple[tuple[Pass, ...], ...]:
        """Sums, variances, inverse square roots, results."""
        low, high = LIMITS[self.result]
        row, groups, last = tile.records // 4, tile.groups(GROUP), tile.last(GROUP)
        end = loops.PARAMETERS * (tile.pitch - loops.COPIES)
        scalars: dict[str, Scalar] = {
            **dict.fromkeys(("row", "late", *loops.AGAIN), row),
            "x": tile.x // 4,
            "y": tile.out // 4,
            "left": end,
            "last": end,
            "end": parameters // 4 + end,
            "next": 1 + tile.gap,
            "columns": self.columns,
            "zero": self.x_zero,
            "before": -self.x_zero,
            "epsilon": self.epsilon,
            "exponent": self.exponent,
            "base": 29 - self.fraction,
            "shift": self.shift,
            "rounding": self.rounding,
            "least": low - self.zero,
            "most": high - self.zero,
            **packing(self.zero, self.result),
        }
        bytes_ = {**scalars, "x": tile.x, "left": last, "last": last}
        state, x = (tile.state,), (tile.input,)
        numbers = Span("scratch", parameters, 4 * loops.PARAMETERS * tile.pitch)
        results = loops.results(self.element, tile.gap > 0)
        every = (*x, *state, numbers)
        wide = self._with_lanes(tile, bytes_, parameters, every)
        return (
            (Pass(loops.sums(self.element, self.mean), groups, bytes_, x, state), *wide[0]),
            (Pass(loops.variances(self.mean), tile.rows, scalars, state, state),),
            (Pass(loops.roots(self.mean), tile.rows, scalars, state, state),),
            (Pass(results, tile.groups(loops.COPIES), scalars, every, (tile.results,)), *wide[1]),
        )

    def _with_lanes(
        self, tile: RowTile, scalars: dict[str, Scalar], parameters: Scalar, every: tuple[Span, ...]
    ) -> tuple[list[Pass], list[Pass]]:
        """Loops that use lanes: for the sums, the results."""
        low, high = LIMITS[self.result]
        found: tuple[list[Pass], list[Pass]] = ([], [])
        for block in tile.blocks:
            shape, groups, last = (tile.lanes, block), tile.groups(block), tile.last(block)
            sums = wide_rows.sums(self.element, self.mean, *shape)
            own = {**scalars, "left": last, "last": last}
            found[0].append(Pass(sums, groups, own, (tile.input,), (tile.state,)))
            # There are not enough arrays for larger blocks.
            if block > 2 * tile.lanes:
                continue
            end = loops.PARAMETERS * (tile.pitch - block)
            own = {
                **scalars,
                "y": tile.out,
                "left": end,
                "last": end,
                "end": parameters // 4 + end,
                "next": block + 4 * tile.gap,
                "how": quantisation(self.rounding, self.zero, low, high),
            }
            results = wide_rows.results(self.element, self.result, *shape, tile.gap > 0)
            found[1].append(Pass(results, groups, own, every, (tile.results,)))
        return found


def normalisation(
    name: str,
    op: str,
    nodes: tuple[str, ...],
    output: View,
    x: View,
    *,
    element: str,
    x_scale: float,
    x_zero: int | None = None,
    gamma: npt.ArrayLike = 1.0,
    beta: npt.ArrayLike = 0.0,
    epsilon: float,
    y_scale: float,
    y_zero: int,
    result: str,
) -> Normalisation:
    """The operator for rows of `element` with a scale: RMS normalisation with `x_zero`, else layer.

    `gamma` and `beta` have one number per column, or one for all. Raises `InputError` for numbers for which
    the arithmetic does not suffice.
    """
    columns = x.shape[-1]
    if not 1 <= columns <= MOST_COLUMNS:
        what = "layer normalisation" if x_zero is None else "RMS normalisation"
        raise InputError(f"{name}: {what} takes rows of 1 to {MOST_COLUMNS} elements, not {columns}")
    if not 0 <= epsilon < math.inf:
        raise InputError(f"{name}: epsilon must be a number from 0 on, not {epsilon:g}")
    factor = np.broadcast_to(np.asarray(gamma, np.float64), columns) / float(y_scale)
    offset = np.broadcast_to(np.asarray(beta, np.float64), columns) / float(y_scale)
    # The largest normalised element: one element differs from all others in its row.
    most = math.sqrt(max(columns - 1, 1) if x_zero is None else columns)
    greatest = float(np.abs(factor).max())
    reach = greatest * most + float(np.abs(offset).max()) + 1
    if not math.isfinite(reach):
        raise InputError(f"{name}: gamma and beta must be finite numbers")
    rounding = min(_MOST_ROUNDING, 30 - math.frexp(reach)[1])
    if rounding < _LEAST_ROUNDING:
        raise InputError(
            f"{name}: gamma and beta are too large for the output scale: results reach {reach:g} steps, "
            f"at most {2.0 ** (30 - _LEAST_ROUNDING):g} are possible"
        )
    # The largest factor of an element is n / most, in a row that is not constant.
    fraction = min(29, 31 - math.frexp(columns / most * 1.0001)[1])
    bits = 30 - math.frexp(greatest)[1] if greatest else 0
    bits = min(bits, 62 + rounding - fraction)
    mantissa, exponent = _small(epsilon, columns, x_scale)
    factors = tuple(int(v) for v in np.rint(factor * 2.0**bits))
    offsets = tuple(int(v) for v in np.rint(offset * 2.0**rounding))
    shift = fraction + bits - rounding
    return Normalisation(
        *(name, op, nodes, output, x, element, x_zero is None, x_zero or 0, mantissa, exponent),
        *(fraction, factors, offsets, shift, rounding, y_zero, result),
    )


def _small(epsilon: float, columns: int, x_scale: float) -> tuple[int, int]:
    """Mantissa of 30 bits and exponent of epsilon * n^2 / scale^2."""
    exact = Fraction(float(epsilon)) * columns**2 / Fraction(float(x_scale)) ** 2
    if exact == 0:
        return 0, -_MOST_EXPONENT
    exponent = exact.numerator.bit_length() - exact.denominator.bit_length() - 30
    mantissa = round(exact / Fraction(2) ** exponent)
    if mantissa >= 1 << 30:
        mantissa, exponent = mantissa >> 1, exponent + 1
    if exponent < -_MOST_EXPONENT:
        return 0, -_MOST_EXPONENT
    return mantissa, min(exponent, _MOST_EXPONENT)


def _variance(columns: int, total: Integers, squares: Integers) -> tuple[Integers, Integers]:
    """Computes n * squares - total^2 as a 30-bit mantissa (or 0) and an exponent."""
    high = operate("mul_shift_round", columns, squares, loops.LOW_BITS) - operate(
        "mul_shift_round", total, total, loops.LOW_BITS
    )
    low = operate("sub", operate("mul", columns, squares), operate("mul", total, total))
    low = operate("sub", low, operate("shl", high, loops.LOW_BITS))
    high = high + (low >> loops.LOW_BITS)
    low = low & ((1 << loops.LOW_BITS) - 1)
    upper, lower = np.where(high != 0, high, low), np.where(high != 0, low, 0)
    zeros = operate("clz", upper)
    tail = operate("shr_logical", operate("shl", lower, 30 - loops.LOW_BITS), 32 - zeros)
    return operate("shl", upper, zeros - 2) + tail, np.where(high != 0, 2 + loops.LOW_BITS, 2) - zeros


@imports("LayerNormalization", "RMSNormalization")
def _import(importer: Importer, node: OnnxNode) -> Value:
    value = row_operand(importer, node)
    if any(node.outputs[1:]):
        raise node.error("mean and deviation as outputs are not supported")
    axis = node.axis(int(node.attributes.get("axis", -1)), len(value.shape))
    shape = value.shape[axis:]
    parameters = []
    for index, neutral in ((1, 1.0), (2, 0.0)):
        array = held(importer, importer.value(node, index)) if node.optional(index) else np.asarray(neutral)
        if array is None:
            raise node.error("scale and bias must be constants")
        while array.ndim > len(shape) and array.shape[0] == 1:
            array = array[0]
        parameters.append(np.broadcast_to(array, shape).reshape(-1))
    flat = (*value.shape[:axis], math.prod(shape))
    view = importer.reshaped(node, value.view, flat)

    def make(name: str, grid: Quantisation) -> View:
        output = importer.tensor(name, value.shape, grid.element)
        rows = reshaped(output, flat)
        assert rows is not None
        operator = normalisation(
            *(node.name, node.op, grid.nodes(node), rows, view),
            x_zero=int(value.zero.item()) if node.op == "RMSNormalization" else None,
            gamma=parameters[0],
            beta=parameters[1],
            epsilon=float(node.attributes.get("epsilon", 1e-5)),
            **grid.scales(value),
        )
        importer.operators.append(operator)
        return output

    return Structured(node, value.shape, make)
