"""Parses programs and expressions. The text is valid Python syntax, parsed by `ast` and never executed."""

from __future__ import annotations

import ast
import functools
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from hw.semantics import BITS
from sw.dtypes import ELEMENTS
from sw.ir.errors import IRError, Location
from sw.ir.expression import Apply, Const, Expr, Op, Var, truth, type_of
from sw.ir.intrinsics import INTRINSICS
from sw.ir.program import (
    ANY,
    SPACES,
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
from sw.ir.scope import loop_type, retype
from sw.ir.syntax import (
    Place,
    SourceText,
    byte_lines,
    check_depth,
    is_docstring,
    paused_collector,
    python_tree,
    short,
    source,
    whole,
)
from sw.ir.types import BOOL, HIGH, INT, LOW, Kind, Type

BINARY = {
    ast.Add: Op.ADD,
    ast.Sub: Op.SUB,
    ast.Mult: Op.MUL,
    ast.FloorDiv: Op.DIV,
    ast.Mod: Op.MOD,
    ast.BitAnd: Op.BIT_AND,
    ast.BitOr: Op.BIT_OR,
    ast.BitXor: Op.BIT_XOR,
    ast.LShift: Op.SHL,
    ast.RShift: Op.SHR,
}
COMPARE = {
    ast.Lt: Op.LT,
    ast.LtE: Op.LE,
    ast.Gt: Op.GT,
    ast.GtE: Op.GE,
    ast.Eq: Op.EQ,
    ast.NotEq: Op.NE,
}
_CALLS = {"min": Op.MIN, "max": Op.MAX}
_TYPE = re.compile(r"(?:(int32|int)|loop(\d{1,6}))(?:\[\s*(-?\d{1,12})\s*,\s*(-?\d{1,12})\s*\])?")
#: Words of the language, which cannot be names.
RESERVED = frozenset({"ANY", "Buffer", "int", "bool", "min", "max", "range", "program"} | ELEMENTS.keys())
#: The label that stands for a buffer's contents at program start.
ENTRY = "entry"
_OPERATORS = "+ - * // % & | ^ << >> min max, comparisons, and, or, not, `v if c else w`"


def parse_type(text: str) -> Type:
    """Parses a type: `int32` or `int`, `bool`, `int[0,64]`, `loop0[0,16]` (depth 0; ranges are half open).

    Raises `IRError`.
    """
    if text.strip() == "bool":
        return BOOL
    match = _TYPE.fullmatch(text.strip())
    if match is None or (match[2] is not None and match[3] is None):
        raise IRError(None, f"type {text!r}", "int32, bool, int[low, high] or loop<depth>[low, high]")
    loop = None if match[2] is None else int(match[2])
    if match[3] is None:
        return INT
    return _ranged(int(match[3]), int(match[4]), loop, None)


def _ranged(low: int, high: int, loop: int | None, where: Location | None) -> Type:
    if not LOW <= low < high <= HIGH:
        found = f"range [{short(low)}, {short(high)}]"
        raise IRError(where, found, f"low below high, both within {BITS} bits, half open")
    return Type(Kind.INT, low, high, loop)


def parse_expr(text: str, types: Mapping[str, str | Type]) -> Expr:
    """Parses one expression; `types` gives the type of each name in the form that `parse_type` reads.

    Raises `IRError` with line and column.
    """
    known = {name: t if isinstance(t, Type) else parse_type(t) for name, t in types.items()}
    text = text.strip()
    reader = _ProgramReader("<expression>", byte_lines(text), {n: Var(n, t) for n, t in known.items()})
    tree = python_tree(text, "<expression>", "eval")
    assert isinstance(tree, ast.Expression)
    check_depth(tree.body, "<expression>")
    return reader.expr(tree.body)


@paused_collector()
def parse_program(text: str, file: str = "<text>") -> Program:
    """Parses a program. Checks names, kinds and syntax; `sw.ir.check` checks ranges and regions.

    Raises `IRError` with file, line and column.
    """
    tree = python_tree(text, file, "exec")
    assert isinstance(tree, ast.Module)
    functions = [s for s in tree.body if not is_docstring(s) and not _is_import(s)]
    if len(functions) != 1 or not isinstance(functions[0], ast.FunctionDef):
        odd = next((s for s in functions if not isinstance(s, ast.FunctionDef)), None)
        extra = odd or (functions[1] if functions else None)
        where = Location(file, extra.lineno, extra.col_offset + 1) if extra else Location(file, 1, 1)
        found = "nothing" if not functions else "another statement beside it"
        raise IRError(where, found, "one function with the decorator @program")
    return retype(_ProgramReader(file, byte_lines(text), {}).program(functions[0]))


def _is_import(statement: ast.stmt) -> bool:
    """Whether a statement only imports names so that Python tools know them; it has no effect here."""
    return isinstance(statement, ast.ImportFrom) and statement.module in ("__future__", "heald.lang")


@dataclass
class _ProgramReader(SourceText):
    """The reader's state: everything declared so far."""

    names: dict[str, Var]
    buffers: dict[str, Buffer] = field(default_factory=dict)
    parameters: set[str] = field(default_factory=set)
    labels: set[str] = field(default_factory=set)
    loops: list[str] = field(default_factory=list)
    #: Names that occur anywhere in the text; generated labels avoid them.
    used: set[str] = field(default_factory=set)
    #: Number of generated labels per stem.
    counts: Counter[str] = field(default_factory=Counter)

    def program(self, function: ast.FunctionDef) -> Program:
        self.used = check_depth(function, self.file)
        decorators = [source(d) for d in function.decorator_list]
        if decorators != ["program"]:
            found = ", ".join(f"@{d}" for d in decorators) or "no decorator"
            raise self.error(function, found, "the decorator @program")
        a = function.args
        if a.vararg or a.kwarg or a.kwonlyargs or a.posonlyargs or a.defaults:
            raise self.error(function, "a special kind of parameter", "parameters like x: int or p: bool")
        if function.returns or getattr(function, "type_params", None):
            raise self.error(function.returns or function, "a type of the program itself", "no type")
        parameters = tuple(self.parameter(arg) for arg in a.args)
        body = [s for s in function.body if not is_docstring(s)]
        count = next((i for i, s in enumerate(body) if not isinstance(s, ast.AnnAssign)), len(body))
        buffers = tuple(self.buffer(s) for s in body[:count] if isinstance(s, ast.AnnAssign))
        rest = self.body(body[count:])
        return Program(function.name, parameters, buffers, rest, self.at(function))

    def fresh(self, node: Place, name: str) -> None:
        """Checks that a name may be declared."""
        if name in RESERVED:
            raise self.error(node, f"the name {name!r}, which is a word of the language", "another name")
        if name in self.names or name in self.buffers or name in self.labels:
            raise self.error(node, f"the name {name!r} a second time", "a name that is not in use")

    def parameter(self, arg: ast.arg) -> Parameter:
        self.fresh(arg, arg.arg)
        if arg.annotation is None:
            raise self.error(arg, f"parameter {arg.arg!r} without a type", "int, bool or int[low, high]")
        kind = self.type(arg.annotation)
        self.names[arg.arg] = Var(arg.arg, kind)
        self.parameters.add(arg.arg)
        return Parameter(arg.arg, kind, self.at(arg))

    def type(self, node: ast.expr) -> Type:
        match node:
            case ast.Name(id="bool"):
                return BOOL
            case ast.Name(id="int" | "int32"):
                return INT
            case ast.Subscript(value=ast.Name(id="int" | "int32"), slice=ast.Tuple(elts=[low, high])):
                values = [whole(low), whole(high)]
                if values[0] is not None and values[1] is not None:
                    return _ranged(values[0], values[1], None, self.at(node))
        raise self.error(node, f"type {source(node)}", "int, bool or int[low, high]")

    def buffer(self, s: ast.AnnAssign) -> Buffer:
        """Reads a buffer declaration: sizes, element type, space."""
        form = "name: Buffer[size, ..., element type, space]"
        if not isinstance(s.target, ast.Name) or s.value is not None:
            raise self.error(s, source(s), form)
        self.fresh(s, s.target.id)
        match s.annotation:
            case ast.Subscript(value=ast.Name(id="Buffer"), slice=ast.Tuple(elts=[*items])):
                inside = items
            case ast.Subscript(value=ast.Name(id="Buffer"), slice=item):
                inside = [item]
            case _:
                raise self.error(s.annotation, source(s.annotation), form)
        space, element = None, "int8"
        if inside and self._word(inside[-1]) in SPACES and self._word(inside[-1]) not in self.names:
            space = self._word(inside.pop())
        if inside and self._word(inside[-1]) in ELEMENTS:
            element = str(self._word(inside.pop()))
        if not inside:
            raise self.error(s.annotation, "no size", form)
        shape = tuple(self.expr(item, Kind.INT) for item in inside)
        buffer = Buffer(s.target.id, shape, element, space, self.at(s))
        self.buffers[buffer.name] = buffer
        return buffer

    @staticmethod
    def _word(node: ast.expr) -> str | None:
        return node.id if isinstance(node, ast.Name) else None

    def body(self, body: Sequence[ast.stmt]) -> tuple[Statement, ...]:
        found = [self.statement(s) for s in body if not isinstance(s, ast.Pass) and not is_docstring(s)]
        return tuple(found)

    def statement(self, s: ast.stmt) -> Statement:
        match s:
            case ast.For(target=ast.Name(id=variable), iter=ast.Call(func=ast.Name(id="range"))):
                if s.orelse:
                    raise self.error(s.orelse[0], "else after a loop", "no else")
                return self.loop(s, variable)
            case ast.If():
                condition = self.expr(s.test, Kind.BOOL)
                return If(condition, self.body(s.body), self.body(s.orelse), self.at(s))
            case ast.While(orelse=[]):
                condition = self.expr(s.test, Kind.BOOL)
                return While(condition, self.body(s.body), self.at(s))
            case ast.Expr(value=ast.Call() as call):
                return self.instruction(s, None, call)
            case ast.Assign(targets=[ast.Name(id=name) as target], value=value):
                if isinstance(value, ast.Call) and not self._is_function(value):
                    return self.instruction(target, name, value)
                return self.assign(target, name, value)
            case ast.AnnAssign():
                raise self.error(s, "a buffer after the first statement", "buffers before everything else")
        text = source(s)
        raise self.error(s, text, "label = name(...), scalar = expression, for, if or while")

    @staticmethod
    def _is_function(call: ast.Call) -> bool:
        return isinstance(call.func, ast.Name) and call.func.id in _CALLS

    def loop(self, s: ast.For, variable: str) -> For:
        call = s.iter
        assert isinstance(call, ast.Call)
        if call.keywords or not 1 <= len(call.args) <= 3:
            raise self.error(call, source(call), "range(stop), range(start, stop) or with a step")
        given = [self.expr(a, Kind.INT) for a in call.args]
        start, stop = (Const(0), given[0]) if len(given) == 1 else (given[0], given[1])
        step = given[2] if len(given) == 3 else Const(1)
        self.fresh(s.target, variable)
        self.names[variable] = Var(variable, loop_type(start, stop, step, len(self.loops)))
        self.loops.append(variable)
        body = self.body(s.body)
        self.loops.pop()
        del self.names[variable]
        return For(variable, start, stop, step, body, self.at(s))

    def assign(self, target: ast.Name, name: str, value: ast.expr) -> Assign:
        expr = self.expr(value)
        known = self.names.get(name)
        if known is None:
            self.fresh(target, name)
            self.names[name] = Var(name, type_of(expr))
        elif name in self.parameters or name in self.loops:
            what = "a parameter" if name in self.parameters else "the variable of a loop"
            raise self.error(target, f"an assignment to {what}, {name!r}", "a scalar of its own")
        elif known.kind is not expr.kind:
            raise self.error(value, f"{name!r} of kind {expr.kind.value}", known.kind.value)
        return Assign(name, expr, self.at(target))

    def instruction(self, place: ast.stmt | ast.expr, label: str | None, call: ast.Call) -> Instruction:
        """Reads a call of an intrinsic or generic instruction."""
        if not isinstance(call.func, ast.Name):
            raise self.error(call.func, source(call.func), "the name of an instruction")
        name = call.func.id
        if name in RESERVED:
            raise self.error(call.func, f"{name!r}, which is no instruction", "the name of an instruction")
        if label is None:
            label = self.unused(name)
        self.fresh(place, label)
        if label == ENTRY:
            raise self.error(
                place, f"the label {ENTRY!r}, which is what buffers hold at the start", "another"
            )
        self.labels.add(label)
        reads: tuple[Access, ...] = ()
        writes: tuple[Access, ...] = ()
        warp: int | None = None
        when: Expr | None = None
        operands: dict[str, Expr | Region] = {}
        for key, value in self._arguments(call, name):
            match key:
                case "read":
                    reads = self.accesses(value)
                case "write":
                    writes = self.accesses(value)
                case "warp":
                    warp = self._number(value, "the number of a warp")
                case "when":
                    when = self.expr(value, Kind.BOOL)
                case _:
                    operands[key] = self.operand(name, key, value)
        return Instruction(label, name, reads, writes, warp, when, tuple(operands.items()), self.at(place))

    def unused(self, stem: str) -> str:
        """Generates a label that does not occur in the text."""
        while True:
            label = f"{stem}{self.counts[stem]}"
            self.counts[stem] += 1
            if label not in self.used:
                self.used.add(label)
                return label

    def _arguments(self, call: ast.Call, name: str) -> list[tuple[str, ast.expr]]:
        """Returns the arguments by name; an intrinsic also takes positional arguments."""
        intrinsic = INTRINSICS.get(name)
        wanted = intrinsic.operands if intrinsic else ()
        if len(call.args) > len(wanted):
            raise self.error(call.args[len(wanted)], "an argument without a name", "read=, write=, name=")
        found: dict[str, ast.expr] = dict(zip(wanted, call.args, strict=False))
        common = {"read", "write", "warp", "when"}
        for keyword in call.keywords:
            if keyword.arg is None:
                raise self.error(keyword, "**", "arguments by name")
            if keyword.arg in found:
                raise self.error(keyword, f"{keyword.arg}= a second time", "every argument once")
            if intrinsic and keyword.arg not in common and keyword.arg not in wanted:
                listed = ", ".join((*sorted(common), *wanted))
                raise self.error(keyword, f"{keyword.arg}= of {name}", f"one of {listed}")
            found[keyword.arg] = keyword.value
        return list(found.items())

    def operand(self, name: str, key: str, node: ast.expr) -> Expr | Region:
        """Reads an additional argument: a region of a buffer, or an expression."""
        base = node.value if isinstance(node, ast.Subscript) else node
        if isinstance(base, ast.Name) and base.id in self.buffers:
            intrinsic = INTRINSICS.get(name)
            if intrinsic is not None and key not in intrinsic.reads | intrinsic.writes:
                raise self.error(node, f"a region as {key} of {name}", "an expression")
            return self.region(node)
        return self.expr(node)

    def _number(self, node: ast.expr, what: str) -> int:
        expr = self.expr(node, Kind.INT)
        if not isinstance(expr, Const) or expr.value < 0:
            raise self.error(node, source(node), f"{what}: a whole number of at least 0")
        return expr.value

    def accesses(self, node: ast.expr) -> tuple[Access, ...]:
        items = node.elts if isinstance(node, ast.List | ast.Tuple) else [node]
        return tuple(
            ANY if isinstance(item, ast.Name) and item.id == "ANY" else self.region(item) for item in items
        )

    def region(self, node: ast.expr) -> Region:
        """Reads a region; missing bounds and indices default to the whole dimension."""
        base = node.value if isinstance(node, ast.Subscript) else node
        if not isinstance(base, ast.Name) or base.id not in self.buffers:
            raise self.error(node, source(node), "a region of a buffer, like a[0:16], or ANY")
        buffer = self.buffers[base.id]
        indices: list[ast.expr] = []
        if isinstance(node, ast.Subscript):
            indices = list(node.slice.elts) if isinstance(node.slice, ast.Tuple) else [node.slice]
        if len(indices) > len(buffer.shape):
            found = f"{len(indices)} indices of {buffer.name!r}"
            raise self.error(node, found, f"at most {len(buffer.shape)}")
        box = [self.interval(index, size) for index, size in zip(indices, buffer.shape, strict=False)]
        box += [Interval(Const(0), size) for size in buffer.shape[len(indices) :]]
        return Region(buffer.name, tuple(box), self.at(node))

    def interval(self, node: ast.expr, size: Expr) -> Interval:
        if not isinstance(node, ast.Slice):
            start = self.expr(node, Kind.INT)
            return Interval(start, start + 1)
        if node.step is not None:
            raise self.error(node.step, "a step in a slice", "start:stop")
        start = Const(0) if node.lower is None else self.expr(node.lower, Kind.INT)
        return Interval(start, size if node.upper is None else self.expr(node.upper, Kind.INT))

    def expr(self, node: ast.expr, kind: Kind | None = None) -> Expr:
        """Reads an expression, which must be of `kind` if given."""
        found = self._expr(node)
        if kind is not None and found.kind is not kind:
            raise self.error(node, f"{source(node)} of kind {found.kind.value}", kind.value)
        return found

    def _expr(self, node: ast.expr) -> Expr:
        match node:
            case ast.Constant(value=bool() as value):
                return truth(value)
            case ast.Constant(value=int() as value):
                return self.constant(node, value)
            case ast.Name(id=name):
                if name not in self.names:
                    raise self.error(node, self._what(name), "a parameter, loop variable or scalar")
                return self.names[name]
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() as value)):
                if not isinstance(value, bool):
                    return self.constant(node, -value)
            case ast.UnaryOp(op=ast.UAdd(), operand=operand):
                return self.expr(operand, Kind.INT)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return Apply(Op.NOT, (self.expr(operand, Kind.BOOL),))
            case ast.BinOp(left=left, op=op, right=right) if type(op) in BINARY:
                return Apply(BINARY[type(op)], (self.expr(left, Kind.INT), self.expr(right, Kind.INT)))
            case ast.BoolOp(op=op, values=values):
                word = Op.AND if isinstance(op, ast.And) else Op.OR
                return self._fold(word, [self.expr(v, Kind.BOOL) for v in values])
            case ast.Compare():
                return self.comparison(node)
            case ast.IfExp(test=test, body=body, orelse=orelse):
                condition, then = self.expr(test, Kind.BOOL), self.expr(body)
                return Apply(Op.SELECT, (condition, then, self.expr(orelse, then.kind)))
            case ast.Call(func=ast.Name(id="min" | "max" as name), args=[_, _, *_] as args, keywords=[]):
                return self._fold(_CALLS[name], [self.expr(a, Kind.INT) for a in args])
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            return Apply(Op.SUB, (Const(0), self.expr(node.operand, Kind.INT)))
        raise self.error(node, source(node), f"an expression of integers, names and {_OPERATORS}")

    def _what(self, name: str) -> str:
        if name in self.buffers:
            return f"the buffer {name!r}"
        return f"the label {name!r}" if name in self.labels else f"unknown name {name!r}"

    def constant(self, node: ast.expr, value: int) -> Const:
        if not LOW <= value < HIGH:
            raise self.error(node, short(value), f"a number of {BITS} bits, {LOW} to {HIGH - 1}")
        return Const(value)

    @staticmethod
    def _fold(op: Op, values: list[Expr]) -> Expr:
        return functools.reduce(lambda result, value: Apply(op, (result, value)), values)

    def comparison(self, node: ast.Compare) -> Expr:
        """Reads a comparison; a chain is the conjunction of its links."""
        terms = [self.expr(e) for e in (node.left, *node.comparators)]
        links: list[Expr] = []
        for i, op in enumerate(node.ops):
            if type(op) not in COMPARE:
                raise self.error(node, source(node), "< <= > >= == !=")
            word, left, right = COMPARE[type(op)], terms[i], terms[i + 1]
            wanted = left.kind if word in (Op.EQ, Op.NE) else Kind.INT
            for side, place in ((left, [node.left, *node.comparators][i]), (right, node.comparators[i])):
                if side.kind is not wanted:
                    raise self.error(place, f"{source(place)} of kind {side.kind.value}", wanted.value)
            links.append(Apply(word, (left, right)))
        return self._fold(Op.AND, links)
