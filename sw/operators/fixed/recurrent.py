"""LSTM, GRU and RNN in fixed point: step after step, with one range for the states of all steps.

Each step starts with the state of the one before. The error of one step is determined, and the errors of all
steps are added. Weights that amplify differences of states also amplify errors, as they do in float32.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence

from hw.errors import InputError
from sw.frontend.importer import Importer
from sw.frontend.node import OnnxNode
from sw.frontend.recurrent import Known, written_out
from sw.frontend.values import RANGE, Constant, Dequantised, FixedPoint, Real, Value
from sw.graph.expression import Argument
from sw.graph.requantise import apply
from sw.operators.fixed.bounds import Bound, bound
from sw.operators.fixed.elements import aligned, bits_of, fixed, number

#: Returns the values of a node.
Read = Callable[[Importer, OnnxNode], Sequence[Value | None]]
#: Operators that only move elements, or whose sums are added to later.
_LAZY = ("Gather", "Reshape", "Transpose", "Concat", "ReverseSequence", "MatMul")
#: Margin for the errors of all steps, as a fraction of a state's range.
_ROOM = 1 / 16


def layer(read: Read, importer: Importer, node: OnnxNode) -> list[Value]:
    """Imports a layer as the smaller operators that it consists of.

    Raises `InputError` if the errors of all steps are too large for the range of a state.
    """
    x, r = importer.value(node, 0), importer.value(node, 2)
    parts = written_out(node, x.shape, r.shape[-1], importer.model.constants)
    starts, errors = [_start(importer, node, index) for index in (5, 6)], [0.0, 0.0]
    for count, part in enumerate(parts.nodes, 1):
        _read(read, importer, part)
        for i, (name, known) in enumerate(parts.ends.get(count, ())):
            value = fixed(importer, part, importer.values[name])
            if known is not Known.NOTHING:
                reach = {Known.ONE: 1.0, Known.MEAN: max(starts[i], 1.0), Known.SUM: starts[i] + parts.steps}
                value = _limited(importer, part, value, reach[known] * (1 + _ROOM))
            errors[i] = max(errors[i], value.error)
            if parts.steps * errors[i] > RANGE * (value.high - value.low):
                raise _too_great(importer, node, value, errors[i], parts.steps)
            importer.values[name] = dataclasses.replace(value, error=0.0)
    found: dict[str, Value] = {}
    for name, error in zip(node.outputs, (errors[0], errors[0], errors[1]), strict=False):
        if name:
            value = fixed(importer, node, importer.values[name])
            found[name] = dataclasses.replace(value, error=parts.steps * error)
    # An output without a name is never read.
    return [found.get(name, next(iter(found.values()))) for name in node.outputs]


def _read(read: Read, importer: Importer, part: OnnxNode) -> None:
    """Imports one of the nodes that a layer consists of."""
    if part.op == "Concat":
        rows = [importer.values.get(name) for name in part.inputs]
        points = [row for row in rows if isinstance(row, FixedPoint)]
        if len(points) == len(rows):
            importer.values.update(zip(part.inputs, aligned(importer, part, points), strict=True))
    importer.values.update(
        {n: v for n, v in zip(part.outputs, read(importer, part), strict=True) if v is not None}
    )
    value = importer.values[part.outputs[0]]
    if isinstance(value, Real) and part.op not in _LAZY:
        importer.values[part.outputs[0]] = fixed(importer, part, value)


def _start(importer: Importer, node: OnnxNode, index: int) -> float:
    """The largest magnitude of a state before the first step; raises `InputError` if it is not known."""
    if not node.optional(index):
        return 0.0
    value = importer.value(node, index)
    if not isinstance(value, Constant | Dequantised | Real) or not math.isfinite(bound(value).reach):
        raise node.error(f"the range of its first state is not known ({node.inputs[index]!r})")
    return bound(value).reach


def _limited(importer: Importer, part: OnnxNode, value: FixedPoint, reach: float) -> FixedPoint:
    """A state with the common range of all steps, and no more fractional bits than that range allows."""
    known = Bound(-reach, reach, value.error)
    drop = bits_of(value) - known.bits
    if drop > 0:
        bits = known.bits
        rounded = apply("mul_shift_round", Argument(0), 1, drop)
        known = dataclasses.replace(known, error=value.error + 2.0 ** -(bits + 1))
        return number(importer, part, rounded, [value.view], value.shape, known, bits, "state")
    words = math.ceil((reach + value.error) * 2.0 ** bits_of(value)) + 1
    return dataclasses.replace(value, low=-reach, high=reach, reach=min(words, 1 << 30))


def _too_great(importer: Importer, node: OnnxNode, value: FixedPoint, error: float, steps: int) -> InputError:
    importer.imprecise = True
    return node.error(
        f"the fixed-point error of a state may grow by {error:.3g} in each of {steps} steps, together by "
        f"more than {RANGE:g} of its range ({value.high - value.low:.4g}); fewer steps are needed"
    )


def refused(node: OnnxNode) -> InputError:
    """Why the machine cannot execute a layer without fixed point."""
    return node.error("its gates are real numbers, which need --fixed-point")
