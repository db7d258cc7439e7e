"""Exports tile programs as MLIR text: func, scf, arith and memref. There is no importer (docs/ir.md, "MLIR").

Parameters and buffers become arguments of one function. An instruction becomes a call of a private function
whose arguments are what it reads, what it writes and its other operands, in this order. Regions become
subviews; an unknown address becomes all buffers, whole. Scalars that change become results of the loops and
branches that change them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from hw.semantics import BITS
from sw.ir.expression import COMPARISONS, FALSE, TRUE, Apply, Const, Expr, Op, Var, fold
from sw.ir.intrinsics import effects
from sw.ir.program import (
    Access,
    Assign,
    Buffer,
    For,
    If,
    Instruction,
    Program,
    Region,
    Statement,
    While,
)
from sw.ir.ranges import bounds, may_trap
from sw.ir.types import LOW, Kind
from sw.ir.walk import bodies, expressions, statements, uses

_TYPES = {Kind.INT: "i32", Kind.BOOL: "i1"}
_ARITH = {
    Op.ADD: "addi",
    Op.SUB: "subi",
    Op.MUL: "muli",
    Op.BIT_AND: "andi",
    Op.BIT_OR: "ori",
    Op.BIT_XOR: "xori",
    Op.SHL: "shli",
    Op.SHR: "shrsi",
    Op.MIN: "minsi",
    Op.MAX: "maxsi",
    Op.AND: "andi",
    Op.OR: "ori",
}
_PREDICATES = {Op.LT: "slt", Op.LE: "sle", Op.GT: "sgt", Op.GE: "sge", Op.EQ: "eq", Op.NE: "ne"}
_INDENT = "  "


def to_mlir(program: Program) -> str:
    """Returns the program as an MLIR module with a final newline. It must be well formed (`check`)."""
    return _MlirWriter(program).module()


#: Key of a declared function: the instruction, its numbers of arguments read and written, all argument types.
_Signature = tuple[str, int, int, tuple[str, ...]]


@dataclass
class _MlirWriter:
    """The text written so far, and the SSA value of every scalar."""

    program: Program
    lines: list[str] = field(default_factory=list)
    depth: int = 2
    count: int = 0
    values: dict[str, str] = field(default_factory=dict)
    constants: dict[tuple[int, str], str] = field(default_factory=dict)
    #: Declared functions, and the number of functions of each name.
    functions: dict[_Signature, str] = field(default_factory=dict)
    symbols: Counter[str] = field(default_factory=Counter)
    uses: Counter[str] = field(default_factory=Counter)
    buffers: dict[str, Buffer] = field(default_factory=dict)

    def module(self) -> str:
        p = self.program
        self.buffers = {b.name: b for b in p.buffers}
        self.symbols[p.name] = 1
        self.uses = uses(p.body)
        arguments = []
        for parameter in p.parameters:
            self.values[parameter.name] = _ssa(parameter.name)
            arguments.append(f"{_ssa(parameter.name)}: {_TYPES[parameter.type.kind]}")
        arguments += [f"{_ssa(b.name)}: {_memref(b)}" for b in p.buffers]
        self.body(p.body)
        head = [
            f"{_INDENT}// reads {reads}, writes {writes}\n"
            f"{_INDENT}func.func private {symbol}({', '.join(types)})"
            for (_, reads, writes, types), symbol in self.functions.items()
        ]
        head.append(f"{_INDENT}func.func @{_symbol(p.name)}({', '.join(arguments)}) {{")
        for (value, type_), name in self.constants.items():
            literal = str(bool(value)).lower() if type_ == "i1" else f"{value} : {type_}"
            head.append(f"{_INDENT * 2}{name} = arith.constant {literal}")
        tail = [f"{_INDENT * 2}func.return", f"{_INDENT}}}", "}"]
        return "\n".join(["module {", *head, *self.lines, *tail]) + "\n"

    def say(self, text: str) -> None:
        self.lines.append(_INDENT * self.depth + text)

    def new(self) -> str:
        self.count += 1
        return f"%{self.count - 1}"

    def emit(self, text: str) -> str:
        name = self.new()
        self.say(f"{name} = {text}")
        return name

    @contextmanager
    def block(self, close: str) -> Iterator[None]:
        self.depth += 1
        yield
        self.depth -= 1
        self.say(close)

    def constant(self, value: int, type_: str = "i32") -> str:
        """A constant, defined at the start of the function. No program name has the dot in its name."""
        minus = "m" if value < 0 else ""
        name = f"%c.{minus}{abs(value)}_{type_}"
        return self.constants.setdefault((value, type_), name)

    def expr(self, e: Expr) -> str:
        if isinstance(e, Const):
            return self.constant(e.value, _TYPES[e.type])
        if isinstance(e, Var):
            return self.values[e.name]
        assert isinstance(e, Apply)
        if e.op is Op.SELECT:
            return self.select(e)
        if e.op in (Op.AND, Op.OR) and may_trap(e.args[1]):
            first, second = e.args
            sides = (second, FALSE) if e.op is Op.AND else (TRUE, second)
            return self.select(Apply(Op.SELECT, (first, *sides)))
        if e.op in (Op.DIV, Op.MOD):
            return self.division(e)
        operands = e.args
        if e.op in (Op.SHL, Op.SHR):
            low, high = bounds(operands[1])
            if low < 0 or high >= BITS:
                operands = operands[0], fold(Op.BIT_AND, operands[1], BITS - 1)
        args = [self.expr(a) for a in operands]
        if e.op is Op.NOT:
            return self.emit(f"arith.xori {args[0]}, {self.constant(1, 'i1')} : i1")
        if e.op in COMPARISONS:
            type_ = _TYPES[e.args[0].kind]
            return self.emit(f"arith.cmpi {_PREDICATES[e.op]}, {args[0]}, {args[1]} : {type_}")
        return self.emit(f"arith.{_ARITH[e.op]} {args[0]}, {args[1]} : {_TYPES[e.kind]}")

    def select(self, e: Apply) -> str:
        """A select. Sides that may divide by zero are evaluated only if chosen."""
        condition, then, other = e.args
        type_ = _TYPES[e.kind]
        chosen = self.expr(condition)
        if may_trap(then) or may_trap(other):
            name = self.new()
            self.say(f"{name} = scf.if {chosen} -> ({type_}) {{")
            for side, close in ((then, "} else {"), (other, "}")):
                with self.block(close):
                    self.say(f"scf.yield {self.expr(side)} : {type_}")
            return name
        left, right = self.expr(then), self.expr(other)
        return self.emit(f"arith.select {chosen}, {left}, {right} : {type_}")

    def division(self, e: Apply) -> str:
        """Floor division or modulo, also defined for -2^31 divided by -1."""
        a, b = (self.expr(x) for x in e.args)
        (low, _), (small, large) = bounds(e.args[0]), bounds(e.args[1])
        minus = ""
        if low == LOW and small <= -1 <= large:
            # arith leaves this case undefined. Divide by 1 instead of -1: the remainder is 0 too, the
            # quotient is -a.
            minus = self.emit(f"arith.cmpi eq, {b}, {self.constant(-1)} : i32")
            b = self.emit(f"arith.select {minus}, {self.constant(1)}, {b} : i32")
        quotient = self.emit(f"arith.floordivsi {a}, {b} : i32")
        if e.op is Op.MOD:
            whole = self.emit(f"arith.muli {quotient}, {b} : i32")
            return self.emit(f"arith.subi {a}, {whole} : i32")
        if not minus:
            return quotient
        negated = self.emit(f"arith.subi {self.constant(0)}, {a} : i32")
        return self.emit(f"arith.select {minus}, {negated}, {quotient} : i32")

    def index(self, e: Expr) -> str:
        if isinstance(e, Const):
            return self.constant(e.value, "index")
        return self.emit(f"arith.index_cast {self.expr(e)} : i32 to index")

    def body(self, body: tuple[Statement, ...]) -> None:
        for s in body:
            match s:
                case Assign(target, value):
                    self.values[target] = self.expr(value)
                case Instruction():
                    self.instruction(s)
                case If():
                    self.branch(s)
                case For():
                    self.loop(s)
                case While():
                    self.while_(s)

    def instruction(self, i: Instruction) -> None:
        """A call, under its predicate."""
        if i.when is None:
            self.call(i)
            return
        self.say(f"scf.if {self.expr(i.when)} {{")
        with self.block("}"):
            self.call(i)

    def call(self, i: Instruction) -> None:
        """A call of the function for this instruction and these types."""
        reads, writes = effects(i)
        moved = {id(a) for a in (*reads, *writes)}
        arguments = [x for access in reads for x in self.access(access)]
        read = len(arguments)
        arguments += [x for access in writes for x in self.access(access)]
        written = len(arguments) - read
        for _, operand in i.operands:
            if isinstance(operand, Expr):
                arguments.append((self.expr(operand), _TYPES[operand.kind]))
            elif id(operand) not in moved:
                arguments.append(self.subview(operand))
        types = tuple(type_ for _, type_ in arguments)
        signature = i.name, read, written, types
        symbol = self.functions.get(signature) or self.function(signature)
        attributes = f'label = "{i.label}"' + ("" if i.warp is None else f", warp = {i.warp} : i32")
        values = ", ".join(value for value, _ in arguments)
        self.say(f"func.call {symbol}({values}) {{{attributes}}} : ({', '.join(types)}) -> ()")

    def function(self, signature: _Signature) -> str:
        """Declares a function; further functions of the same name are numbered."""
        name = symbol = signature[0]
        while self.symbols[symbol]:
            symbol = f"{name}.{self.symbols[name]}"
            self.symbols[name] += 1
        self.symbols[symbol] += 1
        return self.functions.setdefault(signature, f"@{_symbol(symbol)}")

    def access(self, access: Access) -> list[tuple[str, str]]:
        """Values and types of a subview, or of all buffers for an unknown address."""
        if isinstance(access, Region):
            return [self.subview(access)]
        return [(_ssa(b.name), _memref(b)) for b in self.program.buffers]

    def subview(self, r: Region) -> tuple[str, str]:
        b = self.buffers[r.buffer]
        offsets, sizes = [], []
        for interval in r.box:
            start, stop = interval.start, interval.stop
            offsets.append(self.index(start))
            if isinstance(start, Const) and isinstance(stop, Const):
                sizes.append(self.constant(max(0, stop.value - start.value), "index"))
                continue
            size = self.emit(f"arith.subi {self.index(stop)}, {offsets[-1]} : index")
            sizes.append(self.emit(f"arith.maxsi {size}, {self.constant(0, 'index')} : index"))
        ones = ", ".join("1" for _ in r.box)
        type_ = _memref(b, view=True)
        made = f"memref.subview {_ssa(b.name)}[{', '.join(offsets)}] [{', '.join(sizes)}] [{ones}]"
        return self.emit(f"{made} : {_memref(b)} to {type_}"), type_

    # Control flow: scalars that a body changes and later code needs become results

    def changed(self, s: If | For | While) -> dict[str, str]:
        """Scalars that a statement changes for later code or its next iteration, with their types."""
        inner = [x for b in bodies(s) for x in b]
        kinds = {a.target: a.value.kind for a in statements(inner) if isinstance(a, Assign)}
        inside = uses(inner)
        needed = {name for name in kinds if self.uses[name] > inside[name]}
        if not isinstance(s, If):
            needed |= _exposed(s.body, set())
        return {name: _TYPES[kind] for name, kind in kinds.items() if name in needed}

    def present(self, changed: dict[str, str]) -> list[str]:
        """Current values of scalars; one without a value gets an arbitrary one, since nothing reads it."""
        return [self.values.get(name) or self.constant(0, type_) for name, type_ in changed.items()]

    @contextmanager
    def scope(self, close: str, changed: dict[str, str], given: Sequence[str] = ()) -> Iterator[None]:
        """Writes a body whose scalars start with the values `given`, and yields their values at its end."""
        known = dict(self.values)
        self.values.update(zip(changed, given, strict=False))
        with self.block(close):
            yield
            if changed:
                self.say(f"scf.yield {', '.join(self.present(changed))} : {', '.join(changed.values())}")
        self.values = known

    def results(self, changed: dict[str, str]) -> tuple[str, list[str]]:
        """Fresh result names, and the text in front of the operation."""
        names = [self.new() for _ in changed]
        return f"{', '.join(names)} = " if names else "", names

    def branch(self, s: If) -> None:
        changed = self.changed(s)
        condition = self.expr(s.condition)
        front, names = self.results(changed)
        types = f" -> ({', '.join(changed.values())})" if changed else ""
        self.say(f"{front}scf.if {condition}{types} {{")
        two = bool(s.orelse or changed)
        with self.scope("} else {" if two else "}", changed):
            self.body(s.body)
        if two:
            with self.scope("}", changed):
                self.body(s.orelse)
        self.values.update(zip(changed, names, strict=True))

    def loop(self, s: For) -> None:
        """A loop. scf requires a positive step, so other loops count iterations."""
        changed = self.changed(s)
        start, stop, step = (self.index(e) for e in (s.start, s.stop, s.step))
        counted = bounds(s.step)[0] <= 0
        low, high, by = start, stop, step
        if counted:
            zero = self.constant(0, "index")
            up = self.emit(f"arith.cmpi sgt, {step}, {zero} : index")
            forth = self.emit(f"arith.subi {stop}, {start} : index")
            back = self.emit(f"arith.subi {start}, {stop} : index")
            span = self.emit(f"arith.select {up}, {forth}, {back} : index")
            opposite = self.emit(f"arith.subi {zero}, {step} : index")
            size = self.emit(f"arith.select {up}, {step}, {opposite} : index")
            low, by = zero, self.constant(1, "index")
            high = self.emit(f"arith.ceildivsi {span}, {size} : index")
        front, names = self.results(changed)
        variable = self.new()
        carried = [self.new() for _ in changed]
        arguments = ""
        if changed:
            arguments = f" iter_args({self.bound(carried, changed)}) -> ({', '.join(changed.values())})"
        self.say(f"{front}scf.for {variable} = {low} to {high} step {by}{arguments} {{")
        with self.scope("}", changed, carried):
            if counted:
                moved = self.emit(f"arith.muli {variable}, {step} : index")
                variable = self.emit(f"arith.addi {start}, {moved} : index")
            self.values[s.variable] = self.emit(f"arith.index_cast {variable} : index to i32")
            self.body(s.body)
        self.values.update(zip(changed, names, strict=True))

    def bound(self, arguments: list[str], changed: dict[str, str]) -> str:
        """Loop-carried arguments, bound to their initial values."""
        pairs = zip(arguments, self.present(changed), strict=True)
        return ", ".join(f"{argument} = {value}" for argument, value in pairs)

    def while_(self, s: While) -> None:
        changed = self.changed(s)
        front, names = self.results(changed)
        tested, carried = [self.new() for _ in changed], [self.new() for _ in changed]
        types = ", ".join(changed.values())
        arguments = f" ({self.bound(tested, changed)})" if changed else ""
        self.say(f"{front}scf.while{arguments} : ({types}) -> ({types}) {{")
        known = dict(self.values)
        with self.block("} do {"):
            self.values.update(zip(changed, tested, strict=True))
            condition = self.expr(s.condition)
            passed = f" {', '.join(tested)} : {types}" if changed else ""
            self.say(f"scf.condition({condition}){passed}")
        self.values = known
        if changed:
            inner = ", ".join(f"{c}: {type_}" for c, type_ in zip(carried, changed.values(), strict=True))
            self.say(f"^bb0({inner}):")
        with self.scope("}", changed, carried):
            self.body(s.body)
            if not changed:
                self.say("scf.yield")
        self.values.update(zip(changed, names, strict=True))


def _exposed(body: tuple[Statement, ...], assigned: set[str]) -> set[str]:
    """Scalars that a body may read before it assigns them; adds to `assigned` what it surely assigns."""
    found: set[str] = set()
    for s in body:
        found |= {v.name for e in expressions(s) for v in e.variables()} - assigned
        after = []
        for inner in bodies(s):
            after.append(set(assigned))
            found |= _exposed(inner, after[-1])
        if isinstance(s, Assign):
            assigned.add(s.target)
        elif isinstance(s, If):
            assigned |= after[0] & after[1]
    return found


def _ssa(name: str) -> str:
    """The SSA name of a parameter or buffer; MLIR names are ASCII."""
    return f"%{name}" if name.isascii() else "%u." + "_".join(f"{ord(c):x}" for c in name)


def _symbol(name: str) -> str:
    """The symbol of a function, quoted if it is not ASCII."""
    return name if name.isascii() else f'"{name}"'


def _memref(b: Buffer, *, view: bool = False) -> str:
    """The type of a buffer, or of a region: sizes and offset are dynamic, strides are static if known."""
    known = [size.value if isinstance(size, Const) else None for size in b.shape]
    sizes = "x".join("?" if view or size is None else str(size) for size in known)
    parts = [f"{sizes}xi{8 * b.element_bytes}"]
    if view:
        strides: list[int | None] = [1]
        for size in reversed(known[1:]):
            strides.insert(0, size and strides[0] and size * strides[0])
        shown = ", ".join("?" if stride is None else str(stride) for stride in strides)
        parts.append(f"strided<[{shown}], offset: ?>")
    if b.space:
        parts.append(f'"{b.space}"')
    return f"memref<{', '.join(parts)}>"
