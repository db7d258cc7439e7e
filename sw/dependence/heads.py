"""Heads of loops: their bounds, the values of their variables, and whether there is another iteration."""

from __future__ import annotations

from dataclasses import dataclass

from sw.dependence.conditions import Truth, is_true
from sw.dependence.execute import Executor
from sw.dependence.forms import Value, add, fits, scale, whole
from sw.ir.expression import Op
from sw.ir.program import For, While

#: More iterations than any loop has.
ENDLESS = 1 << 40


@dataclass
class Head:
    """The bounds of a loop, evaluated once before it; `step` is None where unknown, and for `while`."""

    s: For | While
    start: Value = 0
    stop: Value = 0
    step: int | None = None

    @property
    def most(self) -> int:
        """The most iterations it can have."""
        if self.step is None:
            return ENDLESS
        span = add(self.stop, self.start, -1) if self.step > 0 else add(self.start, self.stop, -1)
        high = whole(span)[1]
        return max(0, -(-high // abs(self.step)))


def head_of(ex: Executor, s: For | While) -> Head:
    """Evaluate the bounds of a loop."""
    if isinstance(s, While):
        return Head(s)
    integer, facts = ex.state.evaluator.integer, ex.state.facts
    start, stop, step = integer(s.start, facts), integer(s.stop, facts), integer(s.step, facts)
    return Head(s, start, stop, step if isinstance(step, int) and step != 0 else None)


def value_at(ex: Executor, head: Head, number: Value) -> Value:
    """The loop's variable in an iteration."""
    assert isinstance(head.s, For)
    if head.step is None:
        return ex.state.evaluator.symbols.fresh(head.s.variable)
    return add(head.start, scale(number, head.step))


def goes_on(ex: Executor, head: Head, number: Value) -> Truth:
    """Whether the loop has an iteration of this number, given that it had all before."""
    evaluator, facts = ex.state.evaluator, ex.state.facts
    if isinstance(head.s, While):
        return evaluator.truth(head.s.condition, facts)
    if head.step is None:
        return is_true(evaluator.symbols.fresh("goes on", 0, 1))
    value = add(head.start, scale(number, head.step))
    if isinstance(value, int) and isinstance(head.stop, int) and isinstance(head.start, int):
        exact = head.start + number * head.step  # type: ignore[operator]
        return int(exact < head.stop if head.step > 0 else exact > head.stop)
    if not (fits(value) and fits(head.stop)):
        # The comparison is one of whole numbers, that of the program one modulo 2^32.
        return is_true(evaluator.symbols.fresh("goes on", 0, 1))
    return evaluator.compared(Op.LT if head.step > 0 else Op.GT, value, head.stop, facts)
