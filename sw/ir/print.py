"""Writes programs as text; `sw.ir.parse` reads it back as the same program."""

from __future__ import annotations

from collections.abc import Iterator

from sw.ir.expression import Apply, Const, Expr, Op
from sw.ir.program import (
    Access,
    Assign,
    Buffer,
    For,
    If,
    Instruction,
    Interval,
    Parameter,
    Program,
    Region,
    Statement,
    While,
)
from sw.ir.types import HIGH, LOW, Kind

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
    return f"{access.buffer}[{', '.join(_interval(i) for i in access.box)}]"


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


def _interval(interval: Interval) -> str:
    return f"{interval.start}:{interval.stop}"


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
