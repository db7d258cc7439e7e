"""Programs: buffers, instructions that read and write regions of them, scalars, loops and branches.

Everything is a frozen dataclass. Equality ignores where in a text something stood. The text of a program
(`print_program`) is what `sw.ir.parse` reads back as the same program.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from sw.dtypes import ELEMENTS
from sw.ir.errors import Location
from sw.ir.expression import Apply, Const, Expr, Op
from sw.ir.types import HIGH, LOW, Kind, Type

#: Spaces a buffer may lie in (docs/ir.md); None where none is stated.
SPACES = ("memory", "A", "B", "acc", "scratch", "out", "grid")


@dataclass(frozen=True)
class Parameter:
    """A value given to the whole program: its type may bound it."""

    name: str
    type: Type
    where: Location | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True)
class Buffer:
    """A named piece of memory of its own: two buffers never alias. `shape` counts elements."""

    name: str
    shape: tuple[Expr, ...]
    element: str = "int8"
    space: str | None = None
    where: Location | None = field(default=None, compare=False, repr=False)

    @property
    def element_bytes(self) -> int:
        """Bytes of an element."""
        return ELEMENTS[self.element].bytes

    @property
    def whole(self) -> Region:
        """All of it."""
        return Region(self.name, tuple(Interval(Const(0), size) for size in self.shape))


@dataclass(frozen=True)
class Interval:
    """Elements from `start` up to, not including, `stop`; empty where `stop` is not above `start`."""

    start: Expr
    stop: Expr


@dataclass(frozen=True)
class Region:
    """A box of a buffer: one interval per dimension."""

    buffer: str
    box: tuple[Interval, ...]
    where: Location | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True)
class _Any:
    """Bytes at an unknown address: it may be any buffer."""

    def __repr__(self) -> str:
        return "ANY"


ANY = _Any()
Access = Region | _Any


@dataclass(frozen=True)
class Instruction:
    """A call: what it reads and writes, which warp it runs on, whether it happens, and what else it takes.

    `operands` are the further arguments by name, expressions or regions; what an intrinsic of the machine
    does with them is in `sw.ir.intrinsics`, which `sw.ir.intrinsics.effects` takes into account. `reads` and
    `writes` hold what the text states by `read=` and `write=`.
    """

    label: str
    name: str
    reads: tuple[Access, ...] = ()
    writes: tuple[Access, ...] = ()
    warp: int | None = None
    when: Expr | None = None
    operands: tuple[tuple[str, Expr | Region], ...] = ()
    where: Location | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True)
class Assign:
    """A scalar takes the value of an expression."""

    target: str
    value: Expr
    where: Location | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True)
class For:
    """The body for every value of `range(start, stop, step)`; the bounds are evaluated once, before."""

    variable: str
    start: Expr
    stop: Expr
    step: Expr
    body: tuple[Statement, ...]
    where: Location | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True)
class If:
    """One of two bodies."""

    condition: Expr
    body: tuple[Statement, ...]
    orelse: tuple[Statement, ...] = ()
    where: Location | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True)
class While:
    """The body as long as the condition holds; for analysis only, the machine has no such loops."""

    condition: Expr
    body: tuple[Statement, ...]
    where: Location | None = field(default=None, compare=False, repr=False)


Statement = Instruction | Assign | For | If | While


@dataclass(frozen=True)
class Program:
    """A whole program; parameters and buffers come before everything else."""

    name: str
    parameters: tuple[Parameter, ...] = ()
    buffers: tuple[Buffer, ...] = ()
    body: tuple[Statement, ...] = ()
    where: Location | None = field(default=None, compare=False, repr=False)

    def __str__(self) -> str:
        return print_program(self)

    def buffer(self, name: str) -> Buffer:
        """The buffer of that name; raises `KeyError`."""
        for buffer in self.buffers:
            if buffer.name == name:
                return buffer
        raise KeyError(name)


_INDENT = "    "


def print_program(program: Program) -> str:
    """The program as text, ended by a line break."""
    parameters = ", ".join(_parameter(p) for p in program.parameters)
    lines = ["@program", f"def {program.name}({parameters}):"]
    inner = [_buffer(b) for b in program.buffers] + list(_body(program.body))
    lines += [_INDENT + line for line in inner or ["pass"]]
    return "\n".join(lines) + "\n"


def print_statement(statement: Statement) -> str:
    """One statement with what is nested in it."""
    return "\n".join(_statement(statement))


def print_access(access: Access) -> str:
    """A region, or ANY."""
    if not isinstance(access, Region):
        return "ANY"
    return f"{access.buffer}[{', '.join(f'{i.start}:{i.stop}' for i in access.box)}]"


def nesting(expr: Expr) -> int:
    """How many levels the text of an expression nests, as `sw.ir.syntax.check_depth` counts them."""
    deepest = 0
    stack: list[tuple[Expr, int]] = [(expr, 0)]
    while stack:
        node, depth = stack.pop()
        if isinstance(node, Apply):
            inner = list(node.args)
            depth += 1
            while node.op in (Op.AND, Op.OR) and isinstance(first := inner[0], Apply) and first.op is node.op:
                # Without parentheses this is one chain, which counts once per operator for all its operands.
                inner[:1] = first.args
                depth += 1
            stack += [(e, depth) for e in inner]
        elif isinstance(node, Const) and node.value < 0:
            depth += 1
        deepest = max(deepest, depth)
    return deepest


def _parameter(parameter: Parameter) -> str:
    kind, low, high = parameter.type.kind, parameter.type.low, parameter.type.high
    if kind is Kind.BOOL or (low, high) == (LOW, HIGH):
        return f"{parameter.name}: {kind.value}"
    return f"{parameter.name}: int[{low}, {high}]"


def _buffer(buffer: Buffer) -> str:
    inside = [str(size) for size in buffer.shape]
    if buffer.element != "int8" or buffer.space:
        inside.append(buffer.element)
    if buffer.space:
        inside.append(buffer.space)
    return f"{buffer.name}: Buffer[{', '.join(inside)}]"


def _body(body: tuple[Statement, ...]) -> Iterator[str]:
    for statement in body:
        yield from _statement(statement)


def _block(head: str, body: tuple[Statement, ...]) -> Iterator[str]:
    yield head
    for line in _body(body) if body else ["pass"]:
        yield _INDENT + line


def _statement(statement: Statement) -> Iterator[str]:
    match statement:
        case Instruction():
            yield _instruction(statement)
        case Assign(target, value):
            yield f"{target} = {value}"
        case For(variable, start, stop, step, body):
            if step != Const(1):
                bounds = f"{start}, {stop}, {step}"
            else:
                bounds = f"{stop}" if start == Const(0) else f"{start}, {stop}"
            yield from _block(f"for {variable} in range({bounds}):", body)
        case While(condition, body):
            yield from _block(f"while {condition}:", body)
        case If():
            yield from _if("if", statement)


def _if(word: str, statement: If) -> Iterator[str]:
    yield from _block(f"{word} {statement.condition}:", statement.body)
    match statement.orelse:
        case ():
            return
        case (If() as other,):
            yield from _if("elif", other)
        case _:
            yield from _block("else:", statement.orelse)


def _accesses(accesses: tuple[Access, ...]) -> str:
    texts = [print_access(a) for a in accesses]
    return texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"


def _instruction(i: Instruction) -> str:
    arguments = []
    if i.reads:
        arguments.append(f"read={_accesses(i.reads)}")
    if i.writes:
        arguments.append(f"write={_accesses(i.writes)}")
    for name, operand in i.operands:
        arguments.append(f"{name}={print_access(operand) if isinstance(operand, Region) else operand}")
    if i.warp is not None:
        arguments.append(f"warp={i.warp}")
    if i.when is not None:
        arguments.append(f"when={i.when}")
    return f"{i.label} = {i.name}({', '.join(arguments)})"
