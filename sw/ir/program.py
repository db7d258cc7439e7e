"""Tile programs: buffers, instructions that read and write regions of them, scalars, loops and branches.

Everything is a frozen dataclass. Equality ignores source locations. `print_program` writes the text, and
`sw.ir.parse` reads it back as the same program.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from sw.dtypes import ELEMENTS
from sw.ir.errors import Location
from sw.ir.expression import Apply, Const, Expr, Op
from sw.ir.types import HIGH, LOW, Kind, Type

#: Memory spaces of buffers (docs/ir.md); None if a buffer states no space.
SPACES = ("memory", "A", "B", "acc", "scratch", "out", "grid")


@dataclass(frozen=True)
class Parameter:
    """A parameter of the program; its type may bound the value."""

    name: str
    type: Type
    where: Location | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True)
class Buffer:
    """A named, separate piece of memory: two buffers never alias. `shape` is in elements."""

    name: str
    shape: tuple[Expr, ...]
    element: str = "int8"
    space: str | None = None
    where: Location | None = field(default=None, compare=False, repr=False)

    @property
    def element_bytes(self) -> int:
        """Size of an element in bytes."""
        return ELEMENTS[self.element].bytes

    @property
    def whole(self) -> Region:
        """The region that covers the whole buffer."""
        return Region(self.name, tuple(Interval(Const(0), size) for size in self.shape))


@dataclass(frozen=True)
class Interval:
    """The elements `start` to `stop` - 1; empty if `stop` <= `start`."""

    start: Expr
    stop: Expr


@dataclass(frozen=True)
class Region:
    """A box in a buffer: one interval per dimension."""

    buffer: str
    box: tuple[Interval, ...]
    where: Location | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True)
class _Any:
    """An access to an unknown address, which may be in any buffer."""

    def __repr__(self) -> str:
        return "ANY"


ANY = _Any()
Access = Region | _Any


@dataclass(frozen=True)
class Instruction:
    """An instruction: what it reads and writes, its warp, its predicate and its additional operands.

    `operands` are the additional arguments by name, expressions or regions. `sw.ir.intrinsics` says what an
    intrinsic does with them; `sw.ir.intrinsics.effects` takes that into account. `reads` and `writes` hold
    only what the text states with `read=` and `write=`.
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
    """Assigns the value of an expression to a scalar."""

    target: str
    value: Expr
    where: Location | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True)
class For:
    """A loop over `range(start, stop, step)`; the bounds are evaluated once, before the first iteration."""

    variable: str
    start: Expr
    stop: Expr
    step: Expr
    body: tuple[Statement, ...]
    where: Location | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True)
class If:
    """Executes one of two bodies."""

    condition: Expr
    body: tuple[Statement, ...]
    orelse: tuple[Statement, ...] = ()
    where: Location | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True)
class While:
    """Repeats the body while the condition holds. For analysis only; the machine has no such loops."""

    condition: Expr
    body: tuple[Statement, ...]
    where: Location | None = field(default=None, compare=False, repr=False)


Statement = Instruction | Assign | For | If | While


@dataclass(frozen=True)
class Program:
    """A program; parameters and buffers are declared before all statements."""

    name: str
    parameters: tuple[Parameter, ...] = ()
    buffers: tuple[Buffer, ...] = ()
    body: tuple[Statement, ...] = ()
    where: Location | None = field(default=None, compare=False, repr=False)

    def __str__(self) -> str:
        return print_program(self)

    def buffer(self, name: str) -> Buffer:
        """Returns the buffer with this name. Raises `KeyError` if there is none."""
        for buffer in self.buffers:
            if buffer.name == name:
                return buffer
        raise KeyError(name)


_INDENT = "    "


def print_program(program: Program) -> str:
    """Returns the program as text with a final newline."""
    parameters = ", ".join(_parameter(p) for p in program.parameters)
    lines = ["@program", f"def {program.name}({parameters}):"]
    inner = [_buffer(b) for b in program.buffers] + list(_body(program.body))
    lines += [_INDENT + line for line in inner or ["pass"]]
    return "\n".join(lines) + "\n"


def print_statement(statement: Statement) -> str:
    """Returns the text of a statement and its nested statements."""
    return "\n".join(_statement(statement))


def print_access(access: Access) -> str:
    """Returns the text of a region, or ANY."""
    if not isinstance(access, Region):
        return "ANY"
    return f"{access.buffer}[{', '.join(f'{i.start}:{i.stop}' for i in access.box)}]"


def nesting(expr: Expr) -> int:
    """Nesting depth of an expression's text, as counted by `sw.ir.syntax.check_depth`."""
    deepest = 0
    stack: list[tuple[Expr, int]] = [(expr, 0)]
    while stack:
        node, depth = stack.pop()
        if isinstance(node, Apply):
            inner = list(node.args)
            depth += 1
            while node.op in (Op.AND, Op.OR) and isinstance(first := inner[0], Apply) and first.op is node.op:
                # Without parentheses this is one chain: each of its operators adds a level to all operands.
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
