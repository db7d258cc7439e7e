"""Matrix products: operands are contiguous along one of their axes."""

from __future__ import annotations

import dataclasses

from sw.compile.parts import product_part
from sw.compile.writer import row_compatible
from sw.graph.network import MatrixProduct, View
from sw.operators.copies import Copies, matrix_contiguous, rows_contiguous
from sw.operators.registry import LoweredOperator, LoweringContext, legalise, lower, takes_padding


@legalise.register
def _(operator: MatrixProduct, copies: Copies) -> None:
    a, b = (
        view if matrix_contiguous(view) else copies.copy(operator, view, what, matrices=True)
        for view, what in ((operator.a, "A"), (operator.b, "B"))
    )
    copies.append(dataclasses.replace(operator, a=a, b=b), rows_contiguous(operator.output))


@takes_padding.register
def _(operator: MatrixProduct, view: View, row: int) -> bool:
    # Rows of one element would be taken for neighbours.
    return row > 1 and row_compatible(view, row)


@lower.register
def _(operator: MatrixProduct, context: LoweringContext) -> LoweredOperator:
    return product_part(operator, context.homes, context.config, context.room)
