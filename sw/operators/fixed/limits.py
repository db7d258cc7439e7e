"""The limits of fixed point: used for nodes that are otherwise refused, if the error stays small."""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from hw.errors import InputError
from sw.frontend.affine import affine
from sw.frontend.importer import Handler, Importer
from sw.frontend.node import OnnxNode
from sw.frontend.quantised import BYTES, on_grid
from sw.frontend.values import (
    RANGE,
    Constant,
    Dequantised,
    FixedPoint,
    Quantisation,
    Real,
    Reals,
    Stored,
    Structured,
    Value,
    is_real,
)
from sw.graph.accuracy import Accuracy
from sw.operators.fixed.bounds import Bound, bound, is_fixed, is_wide
from sw.operators.fixed.elements import CHOICES, aligned, base_of, bits_of, fixed
from sw.operators.fixed.products import LINEAR, linear
from sw.operators.fixed.rows import normalisation, reduced, softmax
from sw.operators.quantisation import parameters

#: Largest error before QuantizeLinear, in steps of its scale.
STEP = 2.0**-6
#: Operators on whole tensors, with their fixed-point form.
_ROWS: dict[str, Callable[[Importer, OnnxNode], Reals]] = {
    "Softmax": softmax,
    **dict.fromkeys(("LayerNormalization", "RMSNormalization"), normalisation),
    **dict.fromkeys(("ReduceMean", "ReduceSum", "ReduceMax", "GlobalAveragePool", "GlobalMaxPool"), reduced),
}

#: Inputs whose elements an operator combines in one tensor; empty means all.
_DATA: dict[str, tuple[int, ...]] = {
    "Concat": (),
    "Pad": (0,),
    **dict.fromkeys(("ScatterElements", "ScatterND"), (0, 2)),
}

#: Operators that select among quantised operands.
_CHOOSING = ("MaxPool", "GlobalMaxPool", "ReduceMax")


def extended(handler: Handler) -> Handler:
    """Extends a handler: fixed point for nodes it would refuse, and a check of the result's error."""

    def tried(importer: Importer, node: OnnxNode) -> Value | list[Value]:
        try:
            with _all_or_nothing(importer):
                found = handler(importer, node)
        except InputError:
            instead = _instead(importer, node, handler)
            if instead is None:
                raise
            found = instead
        every: list[Value] = list(found) if isinstance(found, Sequence) else [found]
        with _all_or_nothing(importer):
            return [_settled(importer, node, value, handler) for value in every]

    return tried


@contextlib.contextmanager
def _all_or_nothing(importer: Importer) -> Iterator[None]:
    """Undoes all additions if the block fails."""
    held: tuple[dict[Any, Any], ...] = (importer.points, importer.accuracy)
    operators, counts = len(importer.operators), [len(known) for known in held]
    try:
        yield
    except InputError:
        del importer.operators[operators:]
        for known, count in zip(held, counts, strict=True):
            for key in list(known)[count:]:
                del known[key]
        raise


def _instead(importer: Importer, node: OnnxNode, handler: Handler) -> Value | None:
    """The fixed-point form of a node that is otherwise refused; None if there is none."""
    values = [importer.value(node, i) for i, name in enumerate(node.inputs) if name]
    if not values or not all(is_real(v) or isinstance(v, Constant) for v in values[:1]):
        return None
    if node.op in LINEAR:
        return linear(importer, node, handler)
    if node.op in _ROWS:
        return _ROWS[node.op](importer, node)
    if node.op == "QuantizeLinear":
        return _quantised(importer, node, fixed(importer, node, values[0]))
    return None


def _quantised(importer: Importer, node: OnnxNode, value: Dequantised) -> Stored:
    scale, zero, element = parameters(importer, node, value.shape)
    if element not in BYTES:
        raise node.error(f"the result must be int8 or uint8, not {element}")
    grid = Quantisation(element, scale, zero, node)
    made = Stored(on_grid(importer, node, value, grid, node.outputs[0]), element)
    _check_end(importer, node, made, bound(value))
    return made


def _joined(importer: Importer, node: OnnxNode, handler: Handler) -> Reals:
    """Elements of several operands, which get the same fractional bits."""
    data = [i for i in _DATA[node.op] if i < len(node.inputs)] or range(len(node.inputs))
    parts = aligned(importer, node, [fixed(importer, node, importer.value(node, i)) for i in data])
    names = list(node.inputs)
    for i, part in zip(data, parts, strict=True):
        names[i] = f"{node.outputs[0]}.part{i}"
        importer.values[names[i]] = part
    found = handler(importer, dataclasses.replace(node, inputs=tuple(names)))
    assert isinstance(found, FixedPoint)
    return found


def _settled(importer: Importer, node: OnnxNode, value: Value, handler: Handler) -> Value:
    """A result as it is kept: in fixed point if it has no other use; its error is checked at an end."""
    match value:
        case Structured(fixed=None) if node.op in _ROWS:
            return dataclasses.replace(value, fixed=lambda: _ROWS[node.op](importer, node))
        case Structured(fixed=None) if node.op in _DATA:
            return dataclasses.replace(value, fixed=lambda: _joined(importer, node, handler))
        case Real() if _lasting(value):
            return fixed(importer, node, value)
        case Stored(view) if node.op == "QuantizeLinear" and view.tensor not in importer.accuracy:
            if (known := _known(importer, importer.value(node, 0))) is not None:
                _check_end(importer, node, value, known)
    return value


def _lasting(value: Real) -> bool:
    """Whether only fixed point can compute a value: a function of several operands that is not a sum."""
    if affine(value) is not None or value.op in CHOICES or base_of(value) is not value:
        return False
    wide = [x for x in value.inputs if is_wide(x)]
    return len(wide) > 1 or is_fixed(value) or any(affine(x) is None for x in wide)


def _known(importer: Importer, value: Value) -> Bound | None:
    """The bound of real numbers in fixed point, or of operators that choose among them; None for others."""
    if isinstance(value, Structured):
        if value.node.op not in (*_DATA, *_CHOOSING):
            return None
        read = [importer.value(value.node, i) for i in range(len(value.node.inputs))]
        parts = [b for v in read if (b := _known(importer, v)) is not None]
        if not parts:
            return None
        low, high = min(p.low for p in parts), max(p.high for p in parts)
        return Bound(low, high, max(p.error for p in parts))
    return bound(value) if not isinstance(value, Stored) and is_fixed(value) else None


def _check_end(importer: Importer, node: OnnxNode, value: Stored, known: Bound) -> None:
    """Checks that the error before a QuantizeLinear is small compared with its step."""
    scale, _, _ = parameters(importer, node, value.shape)
    step = float(scale.min())
    if known.error > STEP * step:
        raise _too_great(importer, node, known, step, "its step")
    found = Accuracy(node.place, known.low, known.high, known.error, step=step)
    importer.accuracy[value.view.tensor] = found


def _too_great(importer: Importer, node: OnnxNode, known: Bound, unit: float, what: str) -> InputError:
    importer.imprecise = True
    share, most = known.error / unit if unit else math.inf, STEP if "step" in what else RANGE
    return node.error(
        f"fixed point before it may be off by {known.error:.3g}, {share:.2g} of {what}; at most {most:.2g} "
        f"is allowed; QuantizeLinear and DequantizeLinear nearer to it are needed"
    )


def outputs(importer: Importer) -> None:
    """Outputs of the model that are real numbers, in fixed point."""
    for name in importer.model.outputs:
        value, node = importer.values.get(name), importer.producers.get(name)
        if node is None or not isinstance(value, Real | Structured | FixedPoint):
            continue
        try:
            with _all_or_nothing(importer):
                found = fixed(importer, node, value)
                if found.rough:
                    raise _too_great(importer, node, bound(found), found.extent, "its range")
            importer.values[name] = found
            ends = found.low, found.high, found.error, bits_of(found)
            importer.accuracy[name] = Accuracy(node.place, *ends)
        except InputError as error:
            importer.unfit[name] = str(error)
