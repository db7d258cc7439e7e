"""Scalar expressions: constants, variables and operators, in 32-bit two's complement.

An expression is a tree of frozen nodes that compare by structure. Every node caches its hash, so expressions
are cheap dictionary keys.
"""

from __future__ import annotations

import contextlib
import enum
import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from hw.semantics import BITS, SEMANTICS, wrap
from sw.ir.types import BOOL, INT, Kind, Type

_I, _B = Kind.INT, Kind.BOOL


class Op(enum.Enum):
    """The operators. Precedences are Python's; functions bind closest."""

    SELECT = ("if", (_B, None, None), None, "select", 1)
    OR = ("or", (_B, _B), _B, "or", 2)
    AND = ("and", (_B, _B), _B, "and", 3)
    NOT = ("not", (_B,), _B, "not", 4)
    LT = ("<", (_I, _I), _B, "lt", 5)
    LE = ("<=", (_I, _I), _B, "le", 5)
    GT = (">", (_I, _I), _B, "gt", 5)
    GE = (">=", (_I, _I), _B, "ge", 5)
    EQ = ("==", (None, None), _B, "eq", 5)
    NE = ("!=", (None, None), _B, "ne", 5)
    BIT_OR = ("|", (_I, _I), _I, "or", 6)
    BIT_XOR = ("^", (_I, _I), _I, "xor", 7)
    BIT_AND = ("&", (_I, _I), _I, "and", 8)
    SHL = ("<<", (_I, _I), _I, "shl", 9)
    SHR = (">>", (_I, _I), _I, "shr", 9)
    ADD = ("+", (_I, _I), _I, "add", 10)
    SUB = ("-", (_I, _I), _I, "sub", 10)
    MUL = ("*", (_I, _I), _I, "mul", 11)
    DIV = ("//", (_I, _I), _I, "div", 11)
    MOD = ("%", (_I, _I), _I, "rem", 11)
    MIN = ("min", (_I, _I), _I, "min", 14)
    MAX = ("max", (_I, _I), _I, "max", 14)

    def __init__(
        self,
        text: str,
        arguments: tuple[Kind | None, ...],
        result: Kind | None,
        semantics: str,
        precedence: int,
    ) -> None:
        self.text = text
        #: Kinds of the arguments and of the result; None if they are all of one kind.
        self.arguments, self.result = arguments, result
        #: `meaning` computes the result from argument values; it may raise `ZeroDivisionError`.
        self.semantics = SEMANTICS[semantics]
        self.meaning = self.semantics.value
        self.precedence = precedence

    @property
    def arity(self) -> int:
        """Number of arguments."""
        return len(self.arguments)


COMPARISONS = (Op.LT, Op.LE, Op.GT, Op.GE, Op.EQ, Op.NE)
#: Operators that are associative and commutative.
ASSOCIATIVE = (Op.ADD, Op.MUL, Op.BIT_AND, Op.BIT_OR, Op.BIT_XOR, Op.MIN, Op.MAX, Op.AND, Op.OR)
_CALLS = (Op.MIN, Op.MAX)
_UNARY = 12


def _operator(op: Op) -> Callable[[Expr, Expr | int], Expr]:
    return lambda left, right: fold(op, left, right)


def _reflected(op: Op) -> Callable[[Expr, int], Expr]:
    return lambda right, left: fold(op, left, right)


class Expr:
    """A scalar expression; `str` gives text that reads back as the same expression."""

    _hash: int

    @property
    def kind(self) -> Kind:
        """Whether it is an integer or a truth value."""
        raise NotImplementedError

    @property
    def arguments(self) -> tuple[Expr, ...]:
        """Arguments of an operator; empty for constants and variables."""
        return ()

    def __str__(self) -> str:
        return _text(self, 0)

    def walk(self) -> Iterator[Expr]:
        """Yields the expression and all its subexpressions, outermost first."""
        stack: list[Expr] = [self]
        while stack:
            node = stack.pop()
            yield node
            stack.extend(reversed(node.arguments))

    def variables(self) -> list[Var]:
        """Its variables without duplicates, in text order."""
        return list(dict.fromkeys(node for node in self.walk() if isinstance(node, Var)))

    # Operators for programs that build expressions; constants are folded.

    __add__, __radd__ = _operator(Op.ADD), _reflected(Op.ADD)
    __sub__, __rsub__ = _operator(Op.SUB), _reflected(Op.SUB)
    __mul__, __rmul__ = _operator(Op.MUL), _reflected(Op.MUL)
    __floordiv__, __mod__ = _operator(Op.DIV), _operator(Op.MOD)


@dataclass(frozen=True, eq=True)
class Const(Expr):
    """A constant: a 32-bit two's complement integer, or a truth value as 0 or 1."""

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
        """Whether it is an integer or a truth value."""
        return self.type


@dataclass(frozen=True, eq=True)
class Var(Expr):
    """A parameter, loop variable or scalar, with the known range of its values."""

    name: str
    type: Type = INT
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_hash", hash((self.name, self.type.loop)))

    def __hash__(self) -> int:
        return self._hash

    @property
    def kind(self) -> Kind:
        """Whether it is an integer or a truth value."""
        return self.type.kind


@dataclass(frozen=True, eq=True)
class Apply(Expr):
    """An operator applied to arguments. Raises `TypeError` if their number or kinds do not fit."""

    op: Op
    args: tuple[Expr, ...]
    _kind: Kind = field(init=False, repr=False, compare=False)
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        op = self.op
        if len(self.args) != op.arity:
            raise TypeError(f"{op.text} takes {op.arity} arguments, not {len(self.args)}")
        free: Kind | None = None
        for wanted, argument in zip(op.arguments, self.args, strict=True):
            if wanted is None:
                wanted = free = free or argument.kind
            if argument.kind is not wanted:
                raise TypeError(f"{op.text} takes {wanted.value} here, not {argument.kind.value}")
        object.__setattr__(self, "_kind", op.result or free)
        object.__setattr__(self, "_hash", hash((self.op.name, self.args)))

    def __hash__(self) -> int:
        return self._hash

    @property
    def kind(self) -> Kind:
        """Whether it is an integer or a truth value."""
        return self._kind

    @property
    def arguments(self) -> tuple[Expr, ...]:
        """The operator's arguments."""
        return self.args


TRUE, FALSE = Const(1, Kind.BOOL), Const(0, Kind.BOOL)


def const(value: int) -> Const:
    """Makes an integer constant, modulo 2^32."""
    return Const(wrap(value))


def truth(value: object) -> Const:
    """Makes a truth value."""
    return TRUE if value else FALSE


def apply(op: Op, *arguments: Expr | int) -> Apply:
    """Applies an operator to expressions and integers."""
    return Apply(op, tuple(const(a) if isinstance(a, int) else a for a in arguments))


#: Neutral right operand of each operator; for some operators also neutral on the left.
_NEUTRAL = {Op.ADD: 0, Op.SUB: 0, Op.MUL: 1, Op.DIV: 1, Op.SHL: 0, Op.SHR: 0, Op.BIT_OR: 0, Op.BIT_XOR: 0}
_EITHER_SIDE = (Op.ADD, Op.MUL, Op.BIT_OR, Op.BIT_XOR)


def fold(op: Op, *arguments: Expr | int) -> Expr:
    """Applies an operator, folding constants and dropping neutral operands.

    Raises `TypeError` if the kinds do not fit.
    """
    made = apply(op, *arguments)
    args = made.args
    if all(isinstance(a, Const) for a in args):
        with contextlib.suppress(ZeroDivisionError):
            result = op.meaning(*(a.value for a in args if isinstance(a, Const)))
            return Const(result, made.kind)
    if op in _NEUTRAL and args[1] == Const(_NEUTRAL[op]):
        return args[0]
    if op in _EITHER_SIDE and args[0] == Const(_NEUTRAL[op]):
        return args[1]
    if op is Op.SELECT and isinstance(args[0], Const):
        return args[1] if args[0].value else args[2]
    return made


def evaluate(expr: Expr, values: Mapping[str, int]) -> int:
    """Evaluates an expression for given variable values; truth values are 0 and 1.

    Like Python, it evaluates only the chosen side of a conditional, and the second side of `and` and `or`
    only if it decides the result. Raises `ZeroDivisionError`, and `KeyError` for a variable without value.
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
    return op.meaning(first, *(evaluate(a, values) for a in args[1:]))


def substitute(expr: Expr, values: Mapping[str, Expr]) -> Expr:
    """Replaces variables by name; unchanged subexpressions are shared with the original."""
    if isinstance(expr, Var):
        return values.get(expr.name, expr)
    if not isinstance(expr, Apply):
        return expr
    args = tuple(substitute(a, values) for a in expr.args)
    return expr if all(a is b for a, b in zip(args, expr.args, strict=True)) else Apply(expr.op, args)


@functools.lru_cache(maxsize=1 << 16)
def names(expr: Expr) -> frozenset[str]:
    """The set of variable names in an expression."""
    if isinstance(expr, Var):
        return frozenset((expr.name,))
    return frozenset().union(*map(names, expr.arguments))


def _text(expr: Expr, outside: int) -> str:
    """Prints an expression inside an operator of precedence `outside`."""
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
    """The type of an expression by its kind alone, without a range."""
    return BOOL if expr.kind is Kind.BOOL else INT
