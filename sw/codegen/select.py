"""Instruction selection for scalar expressions: immediate forms, shifts, predicates, moves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from hw.semantics import BITS
from sw.codegen.operands import Growth
from sw.codegen.virtual import WIDE, ZERO, Emitter, Predicate, fits, pieces
from sw.ir.expression import TRUE, Apply, Const, Expr, Op, Var, apply
from sw.ir.ranges import bounds, divides_by_zero, may_trap
from sw.ir.types import HIGH, Kind

_NAMES = {
    Op.ADD: "add",
    Op.SUB: "sub",
    Op.MUL: "mul",
    Op.DIV: "div",
    Op.MOD: "rem",
    Op.MIN: "min",
    Op.MAX: "max",
    Op.BIT_AND: "and",
    Op.BIT_OR: "or",
    Op.BIT_XOR: "xor",
    Op.SHL: "shl",
    Op.SHR: "shr",
    Op.EQ: "eq",
    Op.NE: "ne",
    Op.LT: "lt",
    Op.LE: "le",
}
_COMMUTE = (Op.ADD, Op.MUL, Op.MIN, Op.MAX, Op.BIT_AND, Op.BIT_OR, Op.BIT_XOR, Op.EQ, Op.NE)
_SWAPPED = {Op.GT: Op.LT, Op.GE: Op.LE}
#: a < b is the negation of b <= a, and so on.
_NEGATED = {Op.LT: Op.LE, Op.LE: Op.LT, Op.EQ: Op.NE, Op.NE: Op.EQ}


class Selector:
    """Emits the instructions of expressions; `places` maps each variable to its register."""

    def __init__(self, emitter: Emitter, places: Mapping[str, int]):
        self.to = emitter
        self.places = places
        self.growth = Growth.NONE

    @contextmanager
    def growing(self, growth: Growth) -> Iterator[None]:
        """What is emitted inside uses the same instructions for any problem size.

        `WIDE` instructions load a constant, and an address increment is always in a register.
        """
        before, self.growth = self.growth, growth
        try:
            yield
        finally:
            self.growth = before

    def value(self, expr: Expr, target: int | None = None) -> int:
        """The register that holds the value (booleans as 0 and 1); `target`, if given.

        Only the last instructions write the target, after all variables have been read.
        """
        if isinstance(expr, Const):
            return self.to.constant(expr.value, target, least=1 if self.growth is Growth.NONE else WIDE)
        if isinstance(expr, Var):
            return self.to.copy(self.places[expr.name], target)
        assert isinstance(expr, Apply)
        op, args = expr.op, expr.args
        if op in _SWAPPED:
            op, args = _SWAPPED[op], (args[1], args[0])
        match op:
            case Op.SELECT:
                return self._select(args[0], args[1], args[2], target)
            case Op.NOT:
                return self._not(args[0], target)
            case Op.AND | Op.OR:
                return self._logical(op, args[0], args[1], target)
            case Op.EQ | Op.NE | Op.LT | Op.LE:
                return self._compare(op, args[0], args[1], target)
            case Op.DIV | Op.MOD if isinstance(args[1], Const):
                return self._divide(op, args[0], args[1].value, target)
            case Op.MUL:
                return self._multiply(args[0], args[1], target)
            case Op.SUB if isinstance(args[1], Const) and args[1].value != -HIGH:
                return self._binary(Op.ADD, args[0], Const(-args[1].value), target)
        return self._binary(op, args[0], args[1], target)

    def _binary(self, op: Op, left: Expr, right: Expr, target: int | None) -> int:
        """One instruction of two operands."""
        if isinstance(left, Const) and op in _COMMUTE:
            left, right = right, left
        if isinstance(right, Const):
            value = right.value
            if op in (Op.SHL, Op.SHR):
                value %= BITS
            if op in (Op.ADD, Op.BIT_OR, Op.BIT_XOR, Op.SHL, Op.SHR) and value == 0:
                return self.value(left, target)
            wide = self.growth is Growth.MEMORY and op is Op.ADD
            if fits(value) and not wide:
                a = self.value(left)
                return self._emit(_NAMES[op] + "i", target, (a,), value)
            if op is Op.ADD and fits(-value) and not wide:
                a = self.value(left)
                return self._emit("subi", target, (a,), -value)
        if op is Op.SUB and isinstance(left, Const) and left.value and fits(left.value):
            # As many instructions as loading the constant into a register, and one register less.
            opposite = self._emit("sub", None, (ZERO, self.value(right)))
            return self._emit("addi", target, (opposite,), left.value)
        a, b = self._pair(left, right)
        return self._emit(_NAMES[op], target, (a, b))

    def _emit(self, name: str, target: int | None, sources: tuple[int, ...], imm: int | None = None) -> int:
        target = self.to.register() if target is None else target
        self.to.emit(name, target, sources, imm)
        return target

    def _pair(self, left: Expr, right: Expr) -> tuple[int, int]:
        """Both operands; a repeated one is evaluated once."""
        a = self.value(left)
        return a, a if left == right else self.value(right)

    def _multiply(self, left: Expr, right: Expr, target: int | None) -> int:
        """A product; for a factor too large for an immediate, shifts and one addition are faster."""
        if isinstance(left, Const):
            left, right = right, left
        if not isinstance(right, Const):
            return self._binary(Op.MUL, left, right, target)
        factor = right.value
        if factor == 0:
            return self.to.constant(0, target)
        if factor == 1:
            return self.value(left, target)
        if power := exponent(factor):
            return self._emit("shli", target, (self.value(left),), power)
        if fits(factor):
            return self._binary(Op.MUL, left, right, target)
        for change, name in ((-1, "add"), (1, "sub")):
            if power := exponent(factor + change):
                a = self.value(left)
                return self._emit(name, target, (self._emit("shli", None, (a,), power), a))
        if factor < 0 and factor != -HIGH and (power := exponent(-factor)) is not None:
            a = self.value(left)
            shifted = self._emit("shli", None, (a,), power) if power else a
            return self._emit("sub", target, (ZERO, shifted))
        return self._binary(Op.MUL, left, right, target)

    def _divide(self, op: Op, left: Expr, divisor: int, target: int | None) -> int:
        """Division or remainder by a constant."""
        if divisor == 0:
            return self._emit(_NAMES[op] + "i", target, (self.value(left),), 0)
        power = exponent(divisor)
        if op is Op.DIV and power is not None:
            a = self.value(left)
            return self._emit("shri", target, (a,), power) if power else self.to.copy(a, target)
        if op is Op.MOD and power is not None:
            return (
                self._binary(Op.BIT_AND, left, Const(divisor - 1), target)
                if power
                else (self.to.constant(0, target))
            )
        low, high = bounds(left)
        if low >= 0 and high < abs(divisor) and divisor > 0:
            return self.to.constant(0, target) if op is Op.DIV else self.value(left, target)
        found = reciprocal(divisor, high) if low >= 0 and divisor > 0 else None
        if found is None:
            return self._binary(op, left, Const(divisor), target)
        factor, shift = found
        a = self.value(left)
        product = self._constant("mul", None, a, factor)
        if op is Op.DIV:
            return self._emit("shri", target, (product,), shift)
        quotient = self._emit("shri", None, (product,), shift)
        back = self._constant("mul", None, quotient, divisor)
        return self._emit("sub", target, (a, back))

    def _constant(self, name: str, target: int | None, left: int, value: int) -> int:
        """An instruction whose right operand is a constant."""
        if fits(value):
            return self._emit(name + "i", target, (left,), value)
        return self._emit(name, target, (left, self.to.constant(value)))

    def truth(self, expr: Expr) -> Predicate:
        """A register and a sense: the condition holds if (register != 0) == sense."""
        if isinstance(expr, Const):
            return ZERO, not expr.value
        if isinstance(expr, Var):
            return self.places[expr.name], True
        assert isinstance(expr, Apply)
        op, args = expr.op, expr.args
        if op in _SWAPPED:
            op, args = _SWAPPED[op], (args[1], args[0])
        match op:
            case Op.NOT:
                register, sense = self.truth(args[0])
                return register, not sense
            case Op.AND | Op.OR:
                return self._both(op, args[0], args[1])
            case Op.EQ | Op.NE:
                return self._equal(op, args[0], args[1])
            case Op.LT | Op.LE:
                return self._less(op, args[0], args[1])
        return self.value(expr), True

    def _equal(self, op: Op, left: Expr, right: Expr) -> Predicate:
        if isinstance(left, Const):
            left, right = right, left
        if isinstance(right, Const):
            if left.kind is Kind.BOOL:
                register, sense = self.truth(left)
                return register, sense == ((op is Op.EQ) == bool(right.value))
            if right.value == 0:
                return self.value(left), op is Op.NE
        return self._compare(op, left, right, None), True

    def _less(self, op: Op, left: Expr, right: Expr) -> Predicate:
        if isinstance(left, Const) and not isinstance(right, Const):
            # 0 < x is x if x is never negative. Otherwise the immediate form exists only for the negation.
            if op is Op.LT and left.value == 0 and bounds(right)[0] >= 0:
                return self.value(right), True
            if left.value != 0 and fits(left.value):
                return self._compare(_NEGATED[op], right, left, None), False
        return self._compare(op, left, right, None), True

    def _both(self, op: Op, left: Expr, right: Expr) -> Predicate:
        """A conjunction or disjunction of registers that are 0 or not."""
        (a, yes), (b, also) = self.truth(left), self.truth(right)
        if op is Op.OR:
            # Computed as the negation of the conjunction of the negated operands.
            yes, also = not yes, not also
        if yes and also:
            made, sense = self._emit("select", None, (a, b, ZERO)), True
        elif yes != also:
            first, second = (b, a) if yes else (a, b)
            made, sense = self._emit("select", None, (first, ZERO, second)), True
        else:
            made, sense = self._emit("or", None, (a, b)), False
        return made, sense == (op is Op.AND)

    def _compare(self, op: Op, left: Expr, right: Expr, target: int | None) -> int:
        """A comparison as 0 or 1."""
        if isinstance(left, Const) and op in (Op.EQ, Op.NE):
            left, right = right, left
        if right == Const(0) and op in (Op.EQ, Op.NE) and isinstance(left, Apply) and left.op is Op.SUB:
            left, right = left.args
        if isinstance(left, Const) and left.value == 1 and op is Op.LE:
            op, left = Op.LT, Const(0)
        if isinstance(left, Const) and left.value == 0:
            a = self.value(right)
            return self._emit(_NAMES[op], target, (ZERO, a))
        return self._binary(op, left, right, target)

    def _not(self, inner: Expr, target: int | None) -> int:
        if isinstance(inner, Apply):
            op, args = inner.op, inner.args
            if op in _SWAPPED:
                op, args = _SWAPPED[op], (args[1], args[0])
            if op in (Op.EQ, Op.NE):
                return self._compare(_NEGATED[op], args[0], args[1], target)
            if op in _NEGATED:
                return self._compare(_NEGATED[op], args[1], args[0], target)
        a = self.value(inner)
        return self._emit("xori", target, (a,), 1)

    def _logical(self, op: Op, left: Expr, right: Expr, target: int | None) -> int:
        if op is Op.AND:
            register, sense = self.truth(left)
            b = self.value(right)
            return self._emit("select", target, (register, b, ZERO) if sense else (register, ZERO, b))
        a, b = self._pair(left, right)
        return self._emit("or", target, (a, b))

    def _select(self, condition: Expr, then: Expr, other: Expr, target: int | None) -> int:
        """A choice; a side that differs from the target is moved by a predicated instruction."""
        if isinstance(condition, Const):
            return self.value(then if condition.value else other, target)
        (register, sense) = self.truth(condition)
        if not sense:
            then, other, sense = other, then, True
        for kept, moved, when in ((other, then, True), (then, other, False)):
            if target is not None and isinstance(kept, Var) and self.places[kept.name] == target:
                return self._move(moved, target, (register, when))
        constants = [a for a in (then, other) if isinstance(a, Const) and a.value != 0]
        if len(constants) == 2 and target != register:
            target = self.to.constant(other.value if isinstance(other, Const) else 0, target)
            return self._move(then, target, (register, True))
        a, b = self._pair(then, other)
        return self._emit("select", target, (register, a, b))

    def _move(self, value: Expr, target: int, predicate: Predicate) -> int:
        """Moves a value into a register that keeps its own value if the predicate is false."""
        if isinstance(value, Const) and len(pieces(value.value)) <= 1:
            self.to.constant(value.value, target, predicate)
            return target
        if (
            isinstance(value, Apply)
            and value.op in (Op.ADD, Op.SUB)
            and isinstance(value.args[1], Const)
            and fits(value.args[1].value)
        ):
            a = self.value(value.args[0])
            name = "addi" if value.op is Op.ADD else "subi"
            self.to.emit(name, target, (a,), value.args[1].value, predicate)
            return target
        self.to.emit("addi", target, (self.value(value),), 0, predicate)
        return target


def exponent(value: int) -> int | None:
    """The power of two that a number is, if it is one."""
    return value.bit_length() - 1 if value > 0 and value & value - 1 == 0 else None


def reciprocal(divisor: int, high: int) -> tuple[int, int] | None:
    """Factor f and shift s with x // divisor == x * f >> s for every x in 0 to `high`, below 2^31.

    The error of f over the exact reciprocal must stay below one step of the quotient.
    """
    for shift in range(BITS - 1):
        factor = -(-(1 << shift) // divisor)
        if high * factor >= HIGH:
            return None
        if high * (factor * divisor - (1 << shift)) < 1 << shift:
            return factor, shift
    return None


def guarded(expr: Expr, guard: Expr | None = None) -> Expr:
    """The expression with divisors that may be 0 replaced by 1 if the division is not evaluated.

    The machine computes both sides of a choice, and operands of operations that do not execute.
    """
    if not isinstance(expr, Apply) or not may_trap(expr):
        return expr
    args = expr.args
    if expr.op is Op.SELECT:
        condition = guarded(args[0], guard)
        both = (guarded(args[1], _and(guard, args[0])), guarded(args[2], _and(guard, _negation(args[0]))))
        return Apply(expr.op, (condition, *both))
    if expr.op in (Op.AND, Op.OR):
        inner = args[0] if expr.op is Op.AND else _negation(args[0])
        return Apply(expr.op, (guarded(args[0], guard), guarded(args[1], _and(guard, inner))))
    made = tuple(guarded(a, guard) for a in args)
    if guard is not None and divides_by_zero(expr):
        made = (made[0], apply(Op.SELECT, guarded(guard), made[1], 1))
    return Apply(expr.op, made)


def _negation(condition: Expr) -> Expr:
    return apply(Op.NOT, condition)


def _and(left: Expr | None, right: Expr) -> Expr:
    return right if left is None or left == TRUE else apply(Op.AND, left, right)
