"""How the accesses of a loop's body move from iteration to iteration."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sw.dependence.events import Array, Grid, evaluate
from sw.dependence.forms import Form, Symbol, Value, factor_of, fits
from sw.dependence.nest import Access, Level

#: Steps per iteration by dimension, and the factors of symbols that stay the same.
Motion = tuple[tuple[int, ...], tuple[tuple[tuple[int, int], ...], ...]]


@dataclass(eq=False)
class Event:
    """An access in the iterations of those loops further in that are told apart, and when it happens."""

    access: Access
    grid: Grid
    levels: tuple[Level, ...]
    times: Array
    depth: int

    def motion(self, symbol: Symbol) -> Motion | None:
        """How it moves, with what stays the same in all iterations; None where it has no one step."""
        if self.access.box is None:
            return None
        steps, fixed = [], []
        for start, stop in self.access.box:
            if isinstance(start, Form) and isinstance(stop, Form) and start.terms is stop.terms:
                if not (fits(start) and fits(stop)):
                    return None
                steps.append(factor_of(start, symbol))
                fixed.append(self.outer(start))
                continue
            if not (fits(start) and fits(stop)) or factor_of(start, symbol) != factor_of(stop, symbol):
                return None
            steps.append(factor_of(start, symbol))
            outer = self.outer(start)
            if outer != self.outer(stop):
                return None
            fixed.append(outer)
        return tuple(steps), tuple(fixed)

    def outer(self, value: Value) -> tuple[tuple[int, int], ...]:
        """The factors of the loops around, by their symbols' numbers."""
        factors = ((level.symbol.number, factor_of(value, level.symbol)) for level in self.outside())
        return tuple((n, f) for n, f in factors if f)

    def outside(self) -> tuple[Level, ...]:
        """The loops around the one whose iterations are compared."""
        return self.access.levels[: self.depth]

    def extents(self, symbol: Symbol) -> tuple[Array, Array, Array, Array]:
        """First and last place that it may, and that it surely touches, in the frame; (dimension, row)."""
        assert self.access.box is not None
        outer_low, outer_high, inner_low, inner_high = [], [], [], []
        for start, stop in self.access.box:
            low, late = self.row(self.inner(start, symbol))
            if isinstance(start, Form) and isinstance(stop, Form) and start.terms is stop.terms:
                length = stop.constant - start.constant
                early, high = low + length, late + length
            else:
                early, high = self.row(self.inner(stop, symbol))
            outer_low.append(low)
            outer_high.append(high)
            inner_low.append(late)
            inner_high.append(early)
        return np.array(outer_low), np.array(outer_high), np.array(inner_low), np.array(inner_high)

    def numbers(self, symbol: Symbol) -> list[tuple[int, int, int, int]]:
        """The same by dimension, of an event of one row."""
        assert self.access.box is not None
        found = []
        for start, stop in self.access.box:
            low, late = evaluate(self.inner(start, symbol), self.grid)
            if isinstance(start, Form) and isinstance(stop, Form) and start.terms is stop.terms:
                length = stop.constant - start.constant
                early, high = low + length, late + length
            else:
                early, high = evaluate(self.inner(stop, symbol), self.grid)
            found.append((low, high, late, early))
        return found  # type: ignore[return-value]

    def inner(self, value: Value, symbol: Symbol) -> Value:
        """What is left of a place in the frame."""
        if isinstance(value, int):
            return value
        known = (symbol, *(level.symbol for level in self.outside()))
        terms = tuple(term for term in value.terms if term[0] not in known)
        return Form(terms, value.constant) if terms else value.constant

    def row(self, value: Value) -> tuple[Array, Array]:
        """Smallest and largest value in every row."""
        low, high = evaluate(value, self.grid)
        return self._column(low), self._column(high)

    def _column(self, value: Array | int) -> Array:
        return value if isinstance(value, np.ndarray) else np.full(self.grid.rows, value, dtype=np.int64)
