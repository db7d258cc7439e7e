"""What an expression costs on the sequencer: what canonical form is written to keep small.

The table is that of docs/isa.md, with every part of an expression evaluated: 3 cycles per product, 36 per
quotient or remainder, 1 for everything else; powers of two are shifts and masks. A negation is free, since
predicates test both senses.
"""

from __future__ import annotations

import functools

from hw import isa
from sw.ir.expression import Apply, Const, Expr, Op

PRODUCT, QUOTIENT, STEP = (isa.INSTRUCTIONS[name].cycles for name in ("mul", "div", "add"))


@functools.lru_cache(maxsize=1 << 17)
def cycles(expr: Expr) -> int:
    """Cycles of an expression."""
    if not isinstance(expr, Apply):
        return 0
    return operator_cycles(expr) + sum(map(cycles, expr.args))


def operator_cycles(expr: Apply) -> int:
    """Cycles of the outermost operator."""
    if expr.op is Op.NOT:
        return 0
    shift = power_of_two(expr.args[0]) or power_of_two(expr.args[-1])
    if expr.op is Op.MUL:
        return STEP if shift else PRODUCT
    return QUOTIENT if expr.op in (Op.DIV, Op.MOD) and not shift else STEP


def power_of_two(expr: Expr) -> bool:
    """Whether it is a constant that a shift or a mask does for."""
    return isinstance(expr, Const) and expr.value > 0 and expr.value & (expr.value - 1) == 0
