"""Cost of an expression on the sequencer; canonical form is written to minimise it.

The costs are those of docs/isa.md, with every subexpression evaluated: 36 turns per quotient or remainder, 1
for everything else. Quotients and remainders by powers of two are shifts and masks. A negation is free, since
predicates test both senses. A product of variables counts twice: of two forms of about the same cost, the one
without it is canonical, because more is known about its parts.
"""

from __future__ import annotations

import functools

from hw import isa
from sw.ir.expression import Apply, Const, Expr, Op

QUOTIENT, STEP = (isa.INSTRUCTIONS[name].turns for name in ("div", "add"))


@functools.lru_cache(maxsize=1 << 17)
def turns(expr: Expr) -> int:
    """Turns to evaluate an expression."""
    if not isinstance(expr, Apply):
        return 0
    return operator_turns(expr) + sum(map(turns, expr.args))


def operator_turns(expr: Apply) -> int:
    """Turns of the outermost operator."""
    if expr.op is Op.NOT:
        return 0
    if expr.op is Op.MUL and not any(isinstance(a, Const) for a in expr.args):
        return 2 * STEP
    return QUOTIENT if expr.op in (Op.DIV, Op.MOD) and not power_of_two(expr.args[-1]) else STEP


def power_of_two(expr: Expr) -> bool:
    """Whether it is a constant for which a shift or a mask suffices."""
    return isinstance(expr, Const) and expr.value > 0 and expr.value & (expr.value - 1) == 0
