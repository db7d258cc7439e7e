"""Images enlarged by whole factors, as products with a matrix that repeats columns.

The array makes all repetitions of a row at once, and the CGRA then works on contiguous results with all its
lanes. If rows are repeated as well, there is one product for each repetition.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

from sw.frontend.quantised import BYTES
from sw.graph.expression import Argument, Expression, Lookup, rewritten, walk
from sw.graph.network import Elementwise, Epilogue, MatrixProduct, View, whole
from sw.graph.requantise import apply
from sw.graph.views import broadcast
from sw.operators.copies import LEAST, Copies
from sw.operators.registry import legalise
from sw.operators.tiles import REPEATS

#: Most repetitions of rows, each of which is a product.
_ROWS = 4


@legalise.register
def _(o: Elementwise, copies: Copies) -> None:
    value = _of_sum(o, copies) if _quicker(o, copies) else None
    for made in (o,) if value is None else _products(o, value, copies):
        copies.append(made, True)


def _quicker(o: Elementwise, copies: Copies) -> bool:
    """Whether an operator enlarges images, and the array is quicker than loops that repeat elements."""
    out, cgra = o.output, copies.config.cgra
    if cgra is None or cgra.lanes == 1 or len(o.operands) != 1 or len(out.shape) < 3:
        return False
    (x,), (size, times) = o.operands, out.shape[-2:]
    again, kept = _axes(o)
    elements = {copies.tensors[v.tensor].element for v in (out, x)}
    return (
        times in REPEATS
        and out.strides[-2:] == (times, 1)
        and x.strides[-2:] == (1, 0)
        and min((*out.strides, *x.strides)) >= 0
        and elements <= set(BYTES)
        and size <= copies.most_steps
        and out.elements >= LEAST
        and len(kept) > 0
        and math.prod(out.shape[i] for i in again) <= _ROWS
    )


def _of_sum(o: Elementwise, copies: Copies) -> Expression | None:
    """The value for a sum of the array in place of a byte; None if a table may have to look up anything else.

    The array also makes results that nobody needs, up to whole blocks, from whatever its buffers hold.
    """
    byte = apply("and", Argument(0), 255)
    known: dict[Expression, Expression] = {}
    known |= {Argument(0): byte} if copies.tensors[o.operands[0].tensor].element == "uint8" else {}
    value = rewritten(o.value, known.get) if _indices(o.value) else o.value
    return value if all(index == byte for index in _indices(value)) else None


def _indices(value: Expression) -> list[Expression]:
    return [e.index for e in walk(value) if isinstance(e, Lookup)]


def _axes(o: Elementwise) -> tuple[list[int], list[int]]:
    """The axes before the last two along which the operand repeats, and those along which it does not."""
    (x,), axes = o.operands, [i for i, n in enumerate(o.output.shape[:-2]) if n > 1]
    return [i for i in axes if x.strides[i] == 0], [i for i in axes if x.strides[i]]


def _products(o: Elementwise, value: Expression, copies: Copies) -> Iterator[MatrixProduct]:
    """One product for each repetition of the rows, with the value as epilogue."""
    out, (x,), (size, times) = o.output, o.operands, o.output.shape[-2:]
    again, kept = _axes(o)
    a = _rows(x, kept, size, x.offset)
    b = broadcast(whole(copies.identity(size, times)), (*a.shape[:-2], size, size * times))
    for place in itertools.product(*(range(out.shape[i]) for i in again)):
        offset = out.offset + sum(p * out.strides[i] for p, i in zip(place, again, strict=True))
        c = _rows(out, kept, size * times, offset)
        yield MatrixProduct(o.name, o.op, o.nodes, c, a, b, epilogue=Epilogue(value), moves=True)


def _rows(view: View, axes: Sequence[int], columns: int, offset: int) -> View:
    """Some axes of a view, and contiguous columns."""
    shape, strides = [view.shape[i] for i in axes], [view.strides[i] for i in axes]
    return View(view.tensor, (*shape, columns), (*strides, 1), offset)
