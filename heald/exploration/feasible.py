"""The points of a space that satisfy its constraints, decided exactly without enumerating all points.

Parameters that share no constraint are independent. Those that do are searched together, as boxes (some
values of each parameter). A box in which a constraint must fail is dropped, one in which all must hold is
kept, and any other is halved. The result is a list of boxes whose points can be counted, numbered and drawn.
"""

from __future__ import annotations

import bisect
import itertools
import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from heald.exploration.expression import FALSE, TRUE, Formula, Possible, Range, Value, exact
from hw.errors import InputError

Values = tuple[int | str, ...]
Box = Mapping[str, Values]
Parameters = dict[str, int | str]

#: Number of boxes after which a space counts as undecidable.
MOST_BOXES = 200_000


class UndecidedError(Exception):
    """Too many boxes were examined."""


@dataclass(frozen=True)
class Rules:
    """Constraints between names, and the formulas of names derived from parameters, in order.

    `fixed` are values of all other names. `sizes` are the numbers that belong to each value of `cgra`, the
    only parameter that is text.
    """

    constraints: tuple[Formula, ...]
    derived: Mapping[str, Formula]
    fixed: Mapping[str, Value]
    sizes: Mapping[str, Mapping[str, int]]

    def parameters_of(self, formula: Formula) -> set[str]:
        """The parameters that a formula depends on, directly or through derived names."""
        found: set[str] = set()
        waiting = set(formula.names)
        sizes = set().union(*self.sizes.values())
        while waiting:
            name = waiting.pop()
            if name in self.derived:
                waiting |= self.derived[name].names
            else:
                found.add("cgra" if name in sizes else name)
        return found

    def possible(self, box: Box) -> dict[str, Possible]:
        """The possible values of names in a box."""
        values: dict[str, Possible] = {n: exact(v) for n, v in self.fixed.items()}
        for name, held in box.items():
            values |= self._parameter(name, held)
        for name, formula in self.derived.items():
            if formula.names <= values.keys():
                values[name] = formula.possible(values)
        return values

    def _parameter(self, name: str, values: Values) -> dict[str, Possible]:
        """The possible values of a parameter, with the numbers that belong to them."""
        numbers = [v for v in values if not isinstance(v, str)]
        if len(numbers) == len(values):
            return {name: Range(min(numbers), max(numbers))}
        found: dict[str, Possible] = {name: frozenset(str(v) for v in values)}
        each = [self.sizes[str(v)] for v in values]
        for key in each[0]:
            found[key] = Range(min(s[key] for s in each), max(s[key] for s in each))
        return found

    def values(self, point: Mapping[str, int | str]) -> dict[str, Value]:
        """The values of all names that a point determines; raises `InputError` for an undefined formula."""
        values: dict[str, Value] = {**self.fixed, **point}
        for value in point.values():
            if isinstance(value, str):
                values |= self.sizes[value]
        for name, formula in self.derived.items():
            if formula.names <= values.keys():
                values[name] = formula.value(values)
        return values


@dataclass(frozen=True)
class Part:
    """Parameters joined by constraints, and the boxes in which all these constraints hold."""

    names: tuple[str, ...]
    boxes: tuple[Box, ...]

    @cached_property
    def ends(self) -> tuple[int, ...]:
        """Cumulative number of points, up to and including each box."""
        return tuple(itertools.accumulate(math.prod(len(v) for v in box.values()) for box in self.boxes))

    @property
    def size(self) -> int:
        """Number of points."""
        return self.ends[-1] if self.boxes else 0

    def point(self, number: int) -> Parameters:
        """The point with this number, which must be below `size`."""
        at = bisect.bisect_right(self.ends, number)
        rest = number - (self.ends[at - 1] if at else 0)
        found: Parameters = {}
        for name in reversed(self.names):
            values = self.boxes[at][name]
            rest, index = divmod(rest, len(values))
            found[name] = values[index]
        return found


@dataclass(frozen=True)
class Feasible:
    """All points of a space that satisfy its constraints; `names` are the parameters in their order."""

    names: tuple[str, ...]
    parts: tuple[Part, ...]

    @property
    def size(self) -> int:
        """Number of points."""
        return math.prod(part.size for part in self.parts)

    def point(self, number: int) -> Parameters:
        """The point with this number, below `size`; the last parameters change first."""
        found: Parameters = {}
        rest = number
        for part in reversed(self.parts):
            rest, index = divmod(rest, part.size)
            found |= part.point(index)
        return {name: found[name] for name in self.names}

    def draw(self, rng: random.Random) -> Parameters:
        """Draw a point uniformly."""
        return self.point(rng.randrange(self.size))

    def __iter__(self) -> Iterator[Parameters]:
        return (self.point(number) for number in range(self.size))


def decide(space: Mapping[str, Values], rules: Rules, place: str) -> Feasible:
    """The points that satisfy all constraints; raises `InputError` with the contradiction if there are none.

    Also raises it if this cannot be decided within `MOST_BOXES` boxes.
    """
    parts = []
    for names, constraints in _joined(space, rules):
        box = {name: space[name] for name in names}
        try:
            boxes = tuple(_boxes(box, constraints, rules))
        except UndecidedError:
            shown = ", ".join(repr(c.text) for c in constraints)
            raise InputError(
                f"{place}: constraints: which points satisfy {shown} cannot be decided by halving ranges "
                f"{MOST_BOXES:,} times: simpler constraints or fewer values are needed"
            ) from None
        except InputError as error:
            raise InputError(f"{place}: constraints: {error}") from None
        if not boxes:
            raise InputError(_contradiction(box, constraints, rules, place))
        parts.append(Part(names, boxes))
    return Feasible(tuple(space), tuple(parts))


def _joined(
    space: Mapping[str, Values], rules: Rules
) -> Iterator[tuple[tuple[str, ...], tuple[Formula, ...]]]:
    """Groups of joined parameters with their constraints; those without a parameter go with the first."""
    uses = [(c, rules.parameters_of(c) & space.keys()) for c in rules.constraints]
    groups: list[set[str]] = [{name} for name in space]
    for _, used in uses:
        touched = [g for g in groups if g & used]
        if len(touched) > 1:
            groups = [g for g in groups if g not in touched] + [set().union(*touched)]
    order = {name: i for i, name in enumerate(space)}
    groups.sort(key=lambda g: min(order[n] for n in g))
    for i, group in enumerate(groups):
        mine = tuple(c for c, used in uses if used & group or (not used and i == 0))
        yield tuple(sorted(group, key=order.__getitem__)), mine


def _boxes(box: Box, constraints: Sequence[Formula], rules: Rules) -> Iterator[Box]:
    """The boxes in which all constraints hold, in the order of the values."""
    waiting: list[tuple[Box, Sequence[Formula]]] = [(box, constraints)]
    looked = 0
    while waiting:
        box, constraints = waiting.pop()
        looked += 1
        if looked > MOST_BOXES:
            raise UndecidedError
        left = _open(box, constraints, rules)
        if left is None:
            continue
        if not left:
            yield box
            continue
        used = set().union(*(rules.parameters_of(c) for c in left)) & box.keys()
        name = max((n for n in box if n in used), key=lambda n: len(box[n]))
        middle = len(box[name]) // 2
        halves = box[name][:middle], box[name][middle:]
        waiting += [({**box, name: half}, left) for half in reversed(halves)]


def _open(box: Box, constraints: Sequence[Formula], rules: Rules) -> list[Formula] | None:
    """The constraints that a box leaves open; None if one fails everywhere."""
    values = rules.possible(box)
    left = []
    for constraint in constraints:
        found = constraint.possible(values)
        if found == FALSE:
            return None
        if found == TRUE:
            continue
        if any(len(box[n]) > 1 for n in rules.parameters_of(constraint) & box.keys()):
            left.append(constraint)
        elif not constraint.value(rules.values({n: v[0] for n, v in box.items() if len(v) == 1})):
            return None
    return left


def _contradiction(box: Box, constraints: Sequence[Formula], rules: Rules, place: str) -> str:
    """The error message, with a minimal set of contradicting constraints."""
    blamed = list(constraints)
    for constraint in constraints:
        fewer = [c for c in blamed if c is not constraint]
        try:
            if fewer and next(_boxes(box, fewer, rules), None) is None:
                blamed = fewer
        except (UndecidedError, InputError):
            pass  # without this one, the others cannot be decided
    used = set().union(*(rules.parameters_of(c) for c in blamed)) & box.keys()
    points = math.prod(len(box[name]) for name in used)
    shown = " and ".join(repr(c.text) for c in blamed)
    verb = "contradict each other" if len(blamed) > 1 else "fails everywhere"
    where = f"{points:,} combination{'s' * (points != 1)} of {', '.join(n for n in box if n in used)}"
    return f"{place}: constraints: {shown} {verb}: none of the {where if used else 'points'} satisfies " + (
        "all of them" if len(blamed) > 1 else "it"
    )
