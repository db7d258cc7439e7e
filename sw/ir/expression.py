"""Scalar expressions: constants, variables, and operators of a table, on two's complement of 32 bits.

An expression is a tree of frozen nodes that compare by structure. Every node knows its hash, so that
expressions are cheap as keys.
"""

from __future__ import annotations

import contextlib
import enum
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from sw.ir.types import BITS, BOOL, INT, Kind, Type, wrap


class ZeroDivisorError(ArithmeticError):
    """A division by zero at run time."""


@dataclass(frozen=True)
class _Spec:
    """What an operator is: kinds of arguments and result (None: that of the others), meaning, precedence."""

    text: str
    arguments: tuple[Kind | None, ...]
    result: Kind | None
    meaning: Callable[..., int]
    precedence: int


def _divide(a: int, b: int) -> int:
    if b == 0:
        raise ZeroDivisorError("division by zero")
    return wrap(a // b)


def _remainder(a: int, b: int) -> int:
    if b == 0:
        raise ZeroDivisorError("remainder of a division by zero")
    return a % b


_I, _B = Kind.INT, Kind.BOOL


class Op(enum.Enum):
    """The operators; precedences are Python's, functions of the text bind closest."""

    SELECT = _Spec("if", (_B, None, None), None, lambda c, a, b: a if c else b, 1)
    OR = _Spec("or", (_B, _B), _B, lambda a, b: a | b, 2)
    AND = _Spec("and", (_B, _B), _B, lambda a, b: a & b, 3)
    NOT = _Spec("not", (_B,), _B, lambda a: 1 - a, 4)
    LT = _Spec("<", (_I, _I), _B, lambda a, b: int(a < b), 5)
    LE = _Spec("<=", (_I, _I), _B, lambda a, b: int(a <= b), 5)
    GT = _Spec(">", (_I, _I), _B, lambda a, b: int(a > b), 5)
    GE = _Spec(">=", (_I, _I), _B, lambda a, b: int(a >= b), 5)
    EQ = _Spec("==", (None, None), _B, lambda a, b: int(a == b), 5)
    NE = _Spec("!=", (None, None), _B, lambda a, b: int(a != b), 5)
    BIT_OR = _Spec("|", (_I, _I), _I, lambda a, b: a | b, 6)
    BIT_XOR = _Spec("^", (_I, _I), _I, lambda a, b: a ^ b, 7)
    BIT_AND = _Spec("&", (_I, _I), _I, lambda a, b: a & b, 8)
    SHL = _Spec("<<", (_I, _I), _I, lambda a, b: wrap(a << b % BITS), 9)
    SHR = _Spec(">>", (_I, _I), _I, lambda a, b: a >> b % BITS, 9)
    ADD = _Spec("+", (_I, _I), _I, lambda a, b: wrap(a + b), 10)
    SUB = _Spec("-", (_I, _I), _I, lambda a, b: wrap(a - b), 10)
    MUL = _Spec("*", (_I, _I), _I, lambda a, b: wrap(a * b), 11)
    DIV = _Spec("//", (_I, _I), _I, _divide, 11)
    MOD = _Spec("%", (_I, _I), _I, _remainder, 11)
    MIN = _Spec("min", (_I, _I), _I, min, 14)
    MAX = _Spec("max", (_I, _I), _I, max, 14)

    @property
    def text(self) -> str:
        """How it is written."""
        return self.value.text

    @property
    def precedence(self) -> int:
        """How close it binds."""
        return self.value.precedence

    @property
    def arity(self) -> int:
        """How many arguments it takes."""
        return len(self.value.arguments)


COMPARISONS = (Op.LT, Op.LE, Op.GT, Op.GE, Op.EQ, Op.NE)
#: Operators for which the order and grouping of operands does not matter.
ASSOCIATIVE = (Op.ADD, Op.MUL, Op.BIT_AND, Op.BIT_OR, Op.BIT_XOR, Op.MIN, Op.MAX, Op.AND, Op.OR)
_CALLS = (Op.MIN, Op.MAX)
_UNARY = 12
_ATOM = 15


class Expr:
    """A scalar expression; `str` gives text that reads back as the same expression."""

    _hash: int

    @property
    def kind(self) -> Kind:
        """Integer or truth value."""
        raise NotImplementedError

    @property
    def arguments(self) -> tuple[Expr, ...]:
        """What an operator is applied to; nothing for constants and variables."""
        return ()

    def __str__(self) -> str:
        return _text(self, 0)

    def walk(self) -> Iterator[Expr]:
        """The expression and all its parts, from the outside in."""
        stack: list[Expr] = [self]
        while stack:
            node = stack.pop()
            yield node
            stack.extend(reversed(node.arguments))

    def variables(self) -> list[Var]:
        """Its variables without repetition, in the order of the text."""
        return list(dict.fromkeys(node for node in self.walk() if isinstance(node, Var)))

    # For programs that build expressions; constants are folded, so that none need a second look.

    def __add__(self, other: Expr | int) -> Expr:
        return fold(Op.ADD, self, other)

    def __radd__(self, other: int) -> Expr:
        return fold(Op.ADD, other, self)

    def __sub__(self, other: Expr | int) -> Expr:
        return fold(Op.SUB, self, other)

    def __rsub__(self, other: int) -> Expr:
        return fold(Op.SUB, other, self)

    def __mul__(self, other: Expr | int) -> Expr:
        return fold(Op.MUL, self, other)

    def __rmul__(self, other: int) -> Expr:
        return fold(Op.MUL, other, self)

    def __floordiv__(self, other: Expr | int) -> Expr:
        return fold(Op.DIV, self, other)

    def __mod__(self, other: Expr | int) -> Expr:
        return fold(Op.MOD, self, other)


@dataclass(frozen=True, eq=True)
class Const(Expr):
    """A constant: an integer of 32 bits in two's complement, or 0 and 1 as truth values."""

    value: int
    type: Kind = Kind.INT
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.type is Kind.INT and wrap(self.value) != self.value:
            raise ValueError(f"a constant must fit {BITS} bits, not {self.value}")
        object.__setattr__(self, "value", int(self.value))
        object.__setattr__(self, "_hash", hash((self.value, self.type is Kind.INT)))

    def __hash__(self) -> int:
        return self._hash

    @property
    def kind(self) -> Kind:
        """Integer or truth value."""
        return self.type


@dataclass(frozen=True, eq=True)
class Var(Expr):
    """A parameter, loop variable or scalar, with what is known of its values."""

    name: str
    type: Type = INT
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_hash", hash((self.name, self.type.loop)))

    def __hash__(self) -> int:
        return self._hash

    @property
    def kind(self) -> Kind:
        """Integer or truth value."""
        return self.type.kind


@dataclass(frozen=True, eq=True)
class Apply(Expr):
    """An operator and its arguments; raises `TypeError` where their number or kinds do not fit."""

    op: Op
    args: tuple[Expr, ...]
    _kind: Kind = field(init=False, repr=False, compare=False)
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        spec = self.op.value
        if len(self.args) != len(spec.arguments):
            raise TypeError(f"{spec.text} takes {len(spec.arguments)} arguments, not {len(self.args)}")
        free: Kind | None = None
        for wanted, argument in zip(spec.arguments, self.args, strict=True):
            if wanted is None:
                wanted = free = free or argument.kind
            if argument.kind is not wanted:
                raise TypeError(f"{spec.text} takes {wanted.value} here, not {argument.kind.value}")
        object.__setattr__(self, "_kind", spec.result or free)
        object.__setattr__(self, "_hash", hash((self.op.name, self.args)))

    def __hash__(self) -> int:
        return self._hash

    @property
    def kind(self) -> Kind:
        """Integer or truth value."""
        return self._kind

    @property
    def arguments(self) -> tuple[Expr, ...]:
        """What the operator is applied to."""
        return self.args


TRUE, FALSE = Const(1, Kind.BOOL), Const(0, Kind.BOOL)


def const(value: int) -> Const:
    """An integer constant, modulo 2^32."""
    return Const(wrap(value))


def truth(value: object) -> Const:
    """A truth value."""
    return TRUE if value else FALSE


def apply(op: Op, *arguments: Expr | int) -> Apply:
    """An operator on expressions and whole numbers."""
    return Apply(op, tuple(const(a) if isinstance(a, int) else a for a in arguments))


#: The operand that changes nothing when it stands on the right, by operator; on the left as well for some.
_NEUTRAL = {Op.ADD: 0, Op.SUB: 0, Op.MUL: 1, Op.DIV: 1, Op.SHL: 0, Op.SHR: 0, Op.BIT_OR: 0, Op.BIT_XOR: 0}
_EITHER_SIDE = (Op.ADD, Op.MUL, Op.BIT_OR, Op.BIT_XOR)


def fold(op: Op, *arguments: Expr | int) -> Expr:
    """An operator; computed now where all are constants, left out where it changes nothing.

    Raises `TypeError` where kinds do not fit.
    """
    made = apply(op, *arguments)
    args = made.args
    if all(isinstance(a, Const) for a in args):
        with contextlib.suppress(ZeroDivisorError):
            result = op.value.meaning(*(a.value for a in args if isinstance(a, Const)))
            return Const(result, made.kind)
    if op in _NEUTRAL and args[1] == Const(_NEUTRAL[op]):
        return args[0]
    if op in _EITHER_SIDE and args[0] == Const(_NEUTRAL[op]):
        return args[1]
    if op is Op.SELECT and isinstance(args[0], Const):
        return args[1] if args[0].value else args[2]
    return made


def evaluate(expr: Expr, values: Mapping[str, int]) -> int:
    """The value where the variables have these; truth values are 0 and 1.

    Only the chosen side of a conditional is evaluated, and the second side of `and` and `or` only if it
    decides, as in Python. Raises `ZeroDivisorError`, and `KeyError` for a variable without value.
    """
    if isinstance(expr, Const):
        return expr.value
    if isinstance(expr, Var):
        return values[expr.name]
    assert isinstance(expr, Apply)
    op, args = expr.op, expr.args
    if op is Op.SELECT:
        return evaluate(args[1] if evaluate(args[0], values) else args[2], values)
    first = evaluate(args[0], values)
    if op is Op.AND and not first:
        return 0
    if op is Op.OR and first:
        return 1
    result: int = op.value.meaning(first, *(evaluate(a, values) for a in args[1:]))
    return result


def substitute(expr: Expr, values: Mapping[str, Expr]) -> Expr:
    """The expression with variables replaced by name; shares what stays the same."""
    if isinstance(expr, Var):
        return values.get(expr.name, expr)
    if not isinstance(expr, Apply):
        return expr
    args = tuple(substitute(a, values) for a in expr.args)
    return expr if all(a is b for a, b in zip(args, expr.args, strict=True)) else Apply(expr.op, args)


def _text(expr: Expr, outside: int) -> str:
    """Text of an expression inside of an operator that binds as close as `outside`."""
    if isinstance(expr, Const):
        if expr.type is Kind.BOOL:
            return "True" if expr.value else "False"
        return f"({expr.value})" if expr.value < 0 and outside > _UNARY else str(expr.value)
    if isinstance(expr, Var):
        return expr.name
    assert isinstance(expr, Apply)
    op, args, own = expr.op, expr.args, expr.op.precedence
    if op in _CALLS:
        return f"{op.text}({', '.join(_text(a, 0) for a in args)})"
    if op is Op.SELECT:
        condition, then, other = args
        text = f"{_text(then, own + 1)} if {_text(condition, own + 1)} else {_text(other, own)}"
    elif op is Op.NOT:
        text = f"not {_text(args[0], own)}"
    else:
        left = own + 1 if op in COMPARISONS else own
        text = f"{_text(args[0], left)} {op.text} {_text(args[1], own + 1)}"
    return f"({text})" if own < outside else text


def type_of(expr: Expr) -> Type:
    """The kind of an expression as a type without range."""
    return BOOL if expr.kind is Kind.BOOL else INT
