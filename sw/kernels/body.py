"""Writes expressions as statements of a loop's text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from hw.semantics import quantisation
from sw.dfg.syntax import CALLS
from sw.graph.expression import SIGNS, Apply, Argument, Expression, Lookup, Number, parts_of, rewritten, walk

#: Function names in a kernel's text, by operation.
_CALLS = {operation: name for name, operation in CALLS.items()} | {"min": "min", "max": "max"}
#: Operations whose second operand belongs to the structure: shift amounts and masks.
_STRUCTURE = ("shl", "shr", "shr_logical", "and", "or", "xor")
#: Limits of the 8-bit types, to which results are clamped.
_ENDS = (-128, 0, 127, 255)


def literal(operation: str, place: int, value: int) -> bool:
    """Whether a number is a literal of the text: many operators share shifts, masks and type limits."""
    return (operation in _STRUCTURE and place == 1) or (operation in ("min", "max") and value in _ENDS)


def numbers(value: Expression) -> tuple[int, ...]:
    """The numbers in which operators of the same kind differ, in order of use, without duplicates."""
    found: dict[int, None] = {}
    seen: set[Expression] = set()

    def visit(e: Expression) -> None:
        if e in seen:
            return
        seen.add(e)
        if isinstance(e, Lookup):
            visit(e.index)
        if not isinstance(e, Apply):
            return
        for place, operand in enumerate(e.operands):
            if not isinstance(operand, Number):
                visit(operand)
            elif not literal(e.operation, place, operand.value):
                found.setdefault(operand.value)

    visit(value)
    return tuple(found)


def bytes_as_unsigned(value: Expression, signed: Sequence[bool]) -> tuple[Expression, frozenset[int]]:
    """Removes byte masks from operands that are used only masked, and returns these operands.

    They are to be read as uint8, because they are table indices. `signed` says for each operand whether it is
    int8.
    """
    masks = {Apply("and", (Argument(k), Number(255))): Argument(k) for k, own in enumerate(signed) if own}
    none: dict[Expression, Expression] = dict.fromkeys(masks, Number(0))
    elsewhere = set(walk(rewritten(value, none.get)))
    chosen: dict[Expression, Argument] = {mask: byte for mask, byte in masks.items() if byte not in elsewhere}
    return rewritten(value, chosen.get), frozenset(byte.index for byte in chosen.values())


#: Quantiser operations, by the rounded product that they clamp to a byte; then those that add first.
_QUANTISED = {"mul_shift_round": "requantise", "mul_shift_round_even": "requantise_even"}
_OF_SUMS = {"requantise": "requantise_sum", "requantise_even": "requantise_sum_even"}


def with_quantiser(value: Expression) -> Expression:
    """An expression in which rounded products clamped to a byte become quantiser operations."""
    return rewritten(value, _quantised)


def with_sums(value: Expression) -> Expression:
    """An expression in which quantiser operations add first, where a sum is nothing but their operand."""
    uses = Counter(part for e in walk(value) for part in parts_of(e))

    def made(e: Expression) -> Expression | None:
        match e:
            case Apply(name, (Apply("add", (a, b)) as total, factor, Number() as packed)) if name in _OF_SUMS:
                if uses[total] == 1:
                    return Apply(_OF_SUMS[name], tuple(rewritten(x, made) for x in (a, factor, b, packed)))
        return None

    return rewritten(value, made)


def _quantised(value: Expression) -> Expression | None:
    """A rounded product with zero point and clamp as one operation; None for anything else."""
    match value:
        case Apply("max", (Apply("min", (inner, Number(high))), Number(low))):
            zero = 0
            match inner:
                case Apply("add", (Apply() as product, Number(zero))):
                    pass
                case product:
                    pass
        case _:
            return None
    if not isinstance(product, Apply) or product.operation not in _QUANTISED:
        return None
    bytes_ = -128 <= low <= high <= 127 or 0 <= low <= high <= 255
    if not bytes_ or not -256 <= zero <= 255:
        return None
    total, factor, shift = product.operands
    third: Expression
    if isinstance(shift, Number):
        third = Number(quantisation(shift.value, zero, low, high))
    else:
        # The shift of a product counts modulo 64.
        third = Apply("or", (Apply("and", (shift, Number(63))), Number(quantisation(0, zero, low, high))))
    return Apply(_QUANTISED[product.operation], (with_quantiser(total), with_quantiser(factor), third))


@dataclass
class LoopText:
    """Statements that evaluate expressions; common subexpressions of an element are evaluated once.

    `scalars` names the numbers that the launch supplies; others are literals. `tables` are those used, by
    name.
    """

    scalars: Mapping[int, str]
    tables: dict[tuple[int, ...], str] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)
    used: int = 0
    #: Whether values may differ between lanes.
    wide: bool = False

    def value(self, e: Expression, operands: Sequence[str]) -> str:
        """The text of an expression's value, after statements for its parts; `operands` are names."""
        known: dict[Expression, str] = {Argument(k): name for k, name in enumerate(operands)}
        return self._value(e, known)

    def _value(self, e: Expression, known: dict[Expression, str]) -> str:
        if isinstance(e, Number):
            return self.scalars.get(e.value) or str(e.value)
        found = known.get(e)
        if found is None:
            text = self._text(e, known)
            found = known[e] = f"v{self.used}"
            self.used += 1
            self.lines.append(f"{found} = {text}")
        return found

    def _before(self, e: Expression, text: str) -> str:
        """An operand of a choice. If lanes choose, it is loaded before: no load is for some lanes only."""
        if not self.wide or not isinstance(e, Argument):
            return text
        self.lines.append(f"v{self.used} = {text}")
        self.used += 1
        return f"v{self.used - 1}"

    def _text(self, e: Expression, known: dict[Expression, str]) -> str:
        if isinstance(e, Lookup):
            name = self.tables.setdefault(e.table, f"TABLE{len(self.tables)}")
            return f"{name}[{self._value(e.index, known)}]"
        assert isinstance(e, Apply)
        texts = [
            str(x.value)
            if isinstance(x, Number) and literal(e.operation, place, x.value)
            else self._value(x, known)
            for place, x in enumerate(e.operands)
        ]
        if e.operation == "select":
            texts[1:] = [self._before(x, t) for x, t in zip(e.operands[1:], texts[1:], strict=True)]
            return f"{texts[1]} if {texts[0]} else {texts[2]}"
        if e.operation == "mov":
            return texts[0]
        if e.operation in SIGNS:
            return f"{texts[0]} {SIGNS[e.operation]} {texts[1]}"
        return f"{_CALLS[e.operation]}({', '.join(texts)})"
