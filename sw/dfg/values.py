"""Value numbering of a loop body during translation: merges equal values and folds constants."""

from __future__ import annotations

from dataclasses import dataclass

from hw.semantics import BITS, wrap
from sw.dfg.graph import Value
from sw.dfg.operations import OPERATIONS
from sw.ir.linear import Linear

#: Values that are no operations: the loop variable, and a name's value before the iteration. An operation
#: `const` with an immediate is a number or a scalar.
COUNTER, CARRIED = "counter", "carried"
_OPPOSITE = {"lt": "ge", "ge": "lt", "gt": "le", "le": "gt", "eq": "ne", "ne": "eq"}
#: The neutral second operand.
_NEUTRAL = {"add": 0, "sub": 0, "shl": 0, "shr": 0, "shr_logical": 0, "or": 0, "xor": 0, "mul": 1, "and": -1}
#: The absorbing second operand, which is also the result.
_ABSORBING = {"mul": 0, "and": 0, "or": -1}
#: Result of an operation with two equal operands; None stands for that operand.
_EQUAL = {"sub": 0, "xor": 0, "and": None, "or": None, "min": None, "max": None}
_EQUAL |= {"lt": 0, "gt": 0, "ne": 0, "le": 1, "ge": 1, "eq": 1}

#: A condition, and whether it is negated.
Guard = tuple[int, bool]


@dataclass(frozen=True)
class Item:
    """A value: operation, operands by number, immediate or name, and the memory it accesses.

    `version` separates accesses that differ only in their time of execution.
    """

    op: str
    args: tuple[int, ...] = ()
    immediate: Value | None = None
    memory: str | None = None
    guard: Guard | None = None
    version: int = 0


class Values:
    """All values of a body by number; `lanes` is the number of lanes of lane operations."""

    def __init__(self, lanes: int = 1) -> None:
        self.lanes = lanes
        self.items: list[Item] = []
        self._numbers: dict[Item, int] = {}
        self._linear: dict[int, Linear[int]] = {}

    def add(self, item: Item) -> int:
        """Returns the number of a value; equal values share a number."""
        if item not in self._numbers:
            self._numbers[item] = len(self.items)
            self.items.append(item)
        return self._numbers[item]

    def number(self, value: int) -> int:
        """A constant, modulo 2^32."""
        return self.add(Item("const", immediate=wrap(value)))

    def immediate(self, value: Value) -> int:
        """A constant, or a scalar that is known when the loop starts."""
        return self.number(value) if isinstance(value, int) else self.add(Item("const", immediate=value))

    def constant(self, value: int) -> int | None:
        """The number if a value is constant, else None."""
        found = self.items[value].immediate
        return found if self.items[value].op == "const" and isinstance(found, int) else None

    def is_truth(self, value: int) -> bool:
        """Whether a value is always 0 or 1."""
        item = self.items[value]
        if item.op in ("and", "or", "xor"):
            return all(self.is_truth(a) for a in item.args)
        if item.op == "select":
            return self.is_truth(item.args[1]) and self.is_truth(item.args[2])
        if item.op == "const":
            return self.constant(value) in (0, 1)
        return item.op in OPERATIONS and OPERATIONS[item.op].truth

    def truth(self, value: int) -> int:
        """1 if a value is nonzero, else 0."""
        return value if self.is_truth(value) else self.apply("ne", value, self.number(0))

    def opposite(self, value: int) -> int:
        """1 if a value is 0, else 0."""
        if not self.is_truth(value):
            return self.apply("eq", value, self.number(0))
        return self.apply("xor", value, self.number(1))

    def both(self, guard: Guard | None, condition: int, negated: bool = False) -> Guard:
        """The conjunction of a guard and a condition (or its negation)."""
        if guard is None:
            return condition, negated
        left = self.opposite(guard[0]) if guard[1] else self.truth(guard[0])
        right = self.opposite(condition) if negated else self.truth(condition)
        return self.apply("and", left, right), False

    def apply(self, op: str, *args: int) -> int:
        """Applies an operation; folds it or replaces it by a cheaper one if possible."""
        operation = OPERATIONS[op]
        numbers = [self.constant(a) for a in args]
        if operation.meaning and None not in numbers:
            return self.number(operation.meaning(*numbers))
        if operation.commutative and (numbers[0] is not None or (numbers[1] is None and args[0] > args[1])):
            args, numbers = args[::-1], numbers[::-1]
        simpler = self._simpler(op, args, numbers)
        return self.add(Item(op, args)) if simpler is None else simpler

    def _simpler(self, op: str, args: tuple[int, ...], numbers: list[int | None]) -> int | None:
        """An equal value that does not need this operation, or None."""
        if op == "select":
            return self._simpler_select(args, numbers)
        if op == "abs" and self.items[args[0]].op == "abs":
            return args[0]
        if len(args) != 2:
            return None
        first, second = args[0], numbers[1]
        if op in _EQUAL and args[0] == args[1]:
            found = _EQUAL[op]
            return first if found is None else self.number(found)
        if second is None:
            return None
        if op in ("shl", "shr", "shr_logical"):
            second %= BITS
        if _NEUTRAL.get(op) == second:
            return first
        if _ABSORBING.get(op) == second:
            return args[1]
        return self._simpler_with(op, first, second)

    def _simpler_with(self, op: str, first: int, second: int) -> int | None:
        """The same for an operation whose second operand is a known number."""
        item = self.items[first]
        if op == "sub":
            return self.apply("add", first, self.number(-second))
        if op == "add" and item.op == "add" and (inner := self.constant(item.args[1])) is not None:
            return self.apply("add", item.args[0], self.number(inner + second))
        if op == "mul" and second == -1:
            return self.apply("sub", self.number(0), first)
        if op == "mul" and second > 0 and second & (second - 1) == 0:
            return self.apply("shl", first, self.number(second.bit_length() - 1))
        if op == "xor" and second == 1:
            if item.op in _OPPOSITE:
                return self.apply(_OPPOSITE[item.op], *item.args)
            if item.op == "xor" and self.constant(item.args[1]) == 1:
                return item.args[0]
        if self.is_truth(first) and (op, second) in (("ne", 0), ("eq", 1), ("and", 1)):
            return first
        if self.is_truth(first) and (op, second) in (("eq", 0), ("ne", 1)):
            return self.opposite(first)
        return None

    def _simpler_select(self, args: tuple[int, ...], numbers: list[int | None]) -> int | None:
        condition, then, other = args
        if numbers[0] is not None:
            return then if numbers[0] else other
        if then == other:
            return then
        if numbers[1:] == [1, 0]:
            return self.truth(condition)
        if numbers[1:] == [0, 1]:
            return self.opposite(condition)
        item = self.items[condition]
        if item.op == "ne" and self.constant(item.args[1]) == 0:
            return self.apply("select", item.args[0], then, other)
        return None

    def linear(self, value: int) -> Linear[int]:
        """A value as a linear form of other values, modulo 2^32."""
        if value not in self._linear:
            self._linear[value] = self._as_linear(value).wrapped()
        return self._linear[value]

    def _as_linear(self, value: int) -> Linear[int]:
        item = self.items[value]
        match item.op:
            case "const" if isinstance(item.immediate, int):
                return Linear({}, item.immediate)
            case "add":
                return self.linear(item.args[0]) + self.linear(item.args[1])
            case "sub":
                return self.linear(item.args[0]) - self.linear(item.args[1])
            case "mul" | "shl":
                factor = self.constant(item.args[1])
                if factor is not None:
                    return self.linear(item.args[0]) * (factor if item.op == "mul" else 1 << factor % BITS)
        return Linear({value: 1})

    def difference(self, a: int, b: int) -> int | None:
        """Difference of two values in the same iteration, or None if unknown."""
        return (self.linear(a) - self.linear(b)).wrapped().number

    def elements(self, access: Item) -> int:
        """Number of neighbouring elements that an access reads or writes."""
        return self.lanes if OPERATIONS[access.op].of_lanes else 1

    def invariant(self, value: int) -> bool:
        """Whether a value is the same in every iteration, judged by its form alone."""
        return self.items[value].op == "const"
