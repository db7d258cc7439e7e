"""Integers that track the parameters: computed for one choice of values, valid for a box around it.

They overload Python's operators, so that code for integers also runs on them: expressions of the program, and
the compiled texts of warps. A run for certain values decides comparisons, trip counts and roundings. Each
decision is recorded as a condition on the values nearby, and the box is cut down until the condition holds in
all of it. For every value in the remaining box, the run takes the same path.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from sw.ir.linear import Linear

#: By parameter, the smallest and largest value, both inclusive.
Box = dict[str, tuple[int, int]]


@dataclass
class Around:
    """The chosen values, and the box around them in which all decisions so far are the same."""

    values: dict[str, int]
    box: Box
    parameters: dict[str, Number] = field(init=False)

    def __post_init__(self) -> None:
        self.values, self.box = dict(self.values), dict(self.box)
        self.parameters = {
            name: v if self.box[name] == (v, v) else self.number(Linear({name: 1}))
            for name, v in self.values.items()
        }

    def number(self, form: Linear[str]) -> Number:
        """The value of a form."""
        return Affine(self, form) if form.factors else form.constant

    def at_least(self, a: Number, low: int) -> None:
        """Keeps the values for which a number is at least a limit, as it is for the chosen ones."""
        slack = value(a) - low
        assert slack >= 0
        for name, factor in form_of(a).factors.items():
            first, last = self.box[name]
            chosen = self.values[name]
            if factor > 0:
                first = max(first, chosen - slack // factor)
                slack -= factor * (chosen - first)
            else:
                last = min(last, chosen + slack // -factor)
                slack += factor * (last - chosen)
            self.box[name] = first, last

    def quotient(self, a: Affine, by: int) -> Number:
        """The quotient of a division with remainder; the box keeps the quotient of the chosen values."""
        quotient = a.value // by
        # The remainder has the sign of the divisor.
        rest = a - quotient * by
        low, high = (0, by - 1) if by > 0 else (by + 1, 0)
        self.at_least(rest, low)
        self.at_least(-rest, -high)
        return quotient

    def range(self, a: Number) -> tuple[int, int]:
        """The smallest and the largest value in the box, both included."""
        return form_of(a).bounds(self.box.__getitem__)


@dataclass(frozen=True, eq=False)
class Affine:
    """A linear sum of parameters.

    Its operators compute over the integers, like Python. Decisions are recorded in `around` if a result
    is not such a sum: comparisons, the quotient of a division, and the value itself if it is used for
    anything else.
    """

    around: Around
    form: Linear[str]

    @property
    def value(self) -> int:
        """The value for the chosen values."""
        return self.form.bounds(lambda name: (self.around.values[name],) * 2)[0]

    def __index__(self) -> int:
        """The value, which the box then keeps."""
        self.around.at_least(self, self.value)
        self.around.at_least(-self, -self.value)
        return self.value

    def __bool__(self) -> bool:
        return self != 0

    def __lt__(self, other: Number) -> bool:
        difference = other - self
        if value(difference) > 0:
            self.around.at_least(difference, 1)
            return True
        self.around.at_least(self - other, 0)
        return False

    def __gt__(self, other: Number) -> bool:
        return -self < -other

    def __le__(self, other: Number) -> bool:
        return not self > other

    def __ge__(self, other: Number) -> bool:
        return not self < other

    def __eq__(self, other: object) -> bool:
        assert isinstance(other, Number)
        difference = self - other
        if isinstance(difference, int):
            return difference == 0
        if difference.value == 0:
            difference.__index__()
            return True
        return not (difference < 0 or difference > 0)

    __hash__ = None  # type: ignore[assignment]

    def _plus(self, other: Number, times: int = 1) -> Number:
        return self.around.number(self.form.plus(form_of(other), times))

    def __neg__(self) -> Number:
        return self * -1

    def __add__(self, other: Number) -> Number:
        return self._plus(other)

    def __sub__(self, other: Number) -> Number:
        return self._plus(other, -1)

    def __rsub__(self, other: int) -> Number:
        return -self + other

    def __mul__(self, other: Number) -> Number:
        return self.around.number(self.form * int(other))

    __radd__, __rmul__ = __add__, __mul__

    def __floordiv__(self, other: Number) -> Number:
        by, form = int(other), self.form
        if by == 0:
            raise ZeroDivisionError
        if not any(f % by for f in form.factors.values()):
            return self.around.number(
                Linear({n: f // by for n, f in form.factors.items()}, form.constant // by)
            )
        return self.around.quotient(self, by)

    def __mod__(self, other: Number) -> Number:
        by = int(other)
        return self - self // by * by

    def __lshift__(self, other: Number) -> Number:
        return self * (1 << int(other))

    def __rshift__(self, other: Number) -> Number:
        return self // (1 << int(other))

    def __and__(self, other: Number) -> Number:
        """A mask of low bits, computed as a remainder."""
        if isinstance(other, int) and other >= 0 and other & (other + 1) == 0:
            return self % (other + 1)
        return int(self) & int(other)

    def __or__(self, other: Number) -> int:
        return int(self) | int(other)

    def __xor__(self, other: Number) -> int:
        return int(self) ^ int(other)

    __rand__, __ror__, __rxor__ = __and__, __or__, __xor__

    # The second operand of these is fixed.

    def __rfloordiv__(self, other: int) -> int:
        return other // int(self)

    def __rmod__(self, other: int) -> int:
        return other % int(self)

    def __rlshift__(self, other: int) -> int:
        return other << int(self)

    def __rrshift__(self, other: int) -> int:
        return other >> int(self)


Number = int | Affine


def value(a: Number) -> int:
    """The value for the chosen values."""
    return a if isinstance(a, int) else a.value


def form_of(a: Number) -> Linear[str]:
    """The number as a linear sum of parameters."""
    return Linear({}, a) if isinstance(a, int) else a.form
