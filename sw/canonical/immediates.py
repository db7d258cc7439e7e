"""Constants that an instruction cannot hold, and which therefore need a register at each use."""

from __future__ import annotations

from sw.codegen.select import exponent
from sw.codegen.virtual import fits
from sw.ir.expression import Apply, Const, Op
from sw.ir.types import Kind


def in_register(expr: Apply, index: int, *, in_memory: bool = False) -> bool:
    """Whether the constant at that place of an operator has to be brought into a register.

    With `in_memory` every number that is added is: distances that are added to addresses.
    """
    constant = expr.args[index]
    assert isinstance(constant, Const)
    value = constant.value
    if value == 0 or constant.kind is Kind.BOOL:
        return False
    match expr.op:
        case Op.ADD:
            return in_memory or not (fits(value) or fits(-value))
        case Op.SUB:
            return in_memory or index == 0 or not (fits(value) or fits(-value))
        case Op.MUL:
            near = (value, value - 1, value + 1, -value)
            return not fits(value) and all(exponent(n) is None for n in near)
        case Op.DIV | Op.MOD:
            if index == 0:
                return True
            return exponent(value) is None and not fits(value)
        case Op.SHL | Op.SHR:
            return index == 0
        case Op.SELECT:
            return index > 0
    return not fits(value)
