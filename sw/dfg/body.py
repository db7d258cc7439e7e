"""Translates the statements of one loop body to operations; conditions become selects and predicates."""

from __future__ import annotations

import ast
import contextlib
import copy
import functools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from hw.fabric import Unit
from hw.semantics import BITS
from sw.dfg.build import Builder
from sw.dfg.graph import Graph, Value
from sw.dfg.operations import OPERATIONS
from sw.dfg.syntax import BINARY, CALLS, COMPARE, LANES, OF_LANES, RESERVED, SEVERAL, KernelText
from sw.ir.syntax import is_docstring, short, source, whole
from sw.ir.types import HIGH, LOW

#: Most operations that unrolling the inner loops may produce.
LARGEST = 1 << 12
#: Accepted bounds of a loop in a body.
_BOUND = "a number; or range() of only a parameter, or of only a scalar that is set before the loops"
_EXPRESSION = "an integer, a name, + - * & | ^ << >>, a comparison, and, or, not, `v if c else w`, a call"
_FUNCTIONS = ", ".join(("min", "max", *CALLS))


class Body:
    """Translates statements to operations of a builder.

    `names` are the names known before the body, each as a number or as the host's name for the scalar.
    `unset` maps names that may have no value yet to the reason. If the body is a loop with this `variable`,
    the names in `changed` are loop-carried.
    """

    def __init__(
        self,
        text: KernelText,
        arrays: Collection[str],
        names: Mapping[str, Value],
        unset: Mapping[str, str],
        variable: str | None = None,
        changed: Collection[str] = (),
        lanes: int = 1,
    ):
        self.text, self.arrays, self.error = text, arrays, text.error
        self.build = Builder(variable is not None, lanes)
        self.values = self.build.values
        #: Current value of each name.
        self.names: dict[str, int] = {}
        self.unset = dict(unset)
        #: Tables used so far, by name.
        self.tables: dict[str, tuple[int, ...]] = {}
        self._reading: tuple[str, ...] = ()
        for name, value in names.items():
            carried = name in changed
            self.names[name] = self.build.carried(name, value) if carried else self.values.immediate(value)
        if variable is not None:
            self.names[variable] = self.build.counter()

    def graph(self, name: str, changed: Iterable[str]) -> Graph:
        """Returns the graph of all statements; `changed` are the names they set."""
        return self.build.graph(name, {n: self.names[n] for n in changed if n in self.names}, self.tables)

    def statements(self, statements: Sequence[ast.stmt]) -> None:
        """Translates statements in order."""
        for statement in statements:
            self.statement(statement)
            if len(self.values.items) > LARGEST:
                found = f"more than {LARGEST} operations"
                raise self.text.limit(statement, found, "a smaller body, or loops with fewer iterations")

    def statement(self, statement: ast.stmt) -> None:
        """Translates one statement."""
        match statement:
            case ast.Pass():
                pass
            case ast.Expr() if is_docstring(statement):
                pass
            case ast.Expr(
                value=ast.Call(func=ast.Name(id="store_lanes" as name), args=args, keywords=[]) as call
            ):
                self.across(call, name, args)
            case ast.Assign(targets=targets, value=value):
                self.assign(targets, value)
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                self.set(target, self.expr(value))
            case ast.AugAssign(target=target, op=op, value=value):
                self.augmented(statement, target, op, value)
            case ast.If(test=test, body=body, orelse=orelse):
                self.branch(test, body, orelse)
            case ast.For():
                self.unroll(statement)
            case _:
                expected = "an assignment, `if`, `for` or `pass`"
                raise self.text.unexpected(statement, expected)

    def assign(self, targets: Sequence[ast.expr], value: ast.expr) -> None:
        """`a = v`, `a = b = v`, `a, b = v, w`: the values first, then the targets from left to right."""
        if len(targets) == 1 and isinstance(targets[0], ast.Tuple) and isinstance(value, ast.Tuple):
            parts = targets[0].elts
            if len(parts) != len(value.elts):
                raise self.error(value, f"{len(value.elts)} values", f"{len(parts)}, one per target")
            for target, number in zip(parts, [self.expr(v) for v in value.elts], strict=True):
                self.set(target, number)
            return
        number = self.expr(value)
        for target in targets:
            self.set(target, number)

    def augmented(self, at: ast.stmt, target: ast.expr, op: ast.operator, value: ast.expr) -> None:
        """`a op= v`, `x[i] op= v`; the index is computed once."""
        if isinstance(target, ast.Subscript):
            array, index = self.element(target)
            before = self.build.load(array, index)
            self.build.store(array, index, self.binary(at, op, before, self.expr(value)))
            return
        if not isinstance(target, ast.Name):
            raise self.text.unexpected(target, "a name or an element of an array")
        before = self.name(target)
        self.set(target, self.binary(at, op, before, self.expr(value)))

    def set(self, target: ast.expr, value: int) -> None:
        """Sets a name or an array element."""
        match target:
            case ast.Name(id=name):
                if name in self.arrays or name in RESERVED or (self.build.lanes > 1 and name in OF_LANES):
                    what = "array" if name in self.arrays else "function"
                    raise self.error(target, f"an assignment to the {what} {name!r}", "another name")
                self.names[name] = value
                self.unset.pop(name, None)
            case ast.Subscript():
                array, index = self.element(target)
                self.build.store(array, index, value)
            case _:
                raise self.text.unexpected(target, "a name or an element of an array")

    def branch(self, test: ast.expr, body: Sequence[ast.stmt], orelse: Sequence[ast.stmt]) -> None:
        """Translates both sides under their conditions; names then hold what the side taken has set."""
        condition = self.expr(test)
        known = self.values.constant(condition)
        if known is not None:
            self.statements(body if known else orelse)
            return
        before, unset = dict(self.names), dict(self.unset)
        with self.under(condition):
            self.statements(body)
        then, then_unset = self.names, self.unset
        self.names, self.unset = before, unset
        with self.under(condition, True):
            self.statements(orelse)
        self.unset = then_unset | self.unset
        for name in [*then, *(n for n in self.names if n not in then)]:
            if name in then and name in self.names:
                both = (condition, then[name], self.names[name])
                self.names[name] = self.values.apply("select", *both)
            else:
                self.names.pop(name, None)
                self.unset[name] = "set on one side of an `if` only"

    @contextlib.contextmanager
    def under(self, condition: int, negated: bool = False) -> Iterator[None]:
        """Adds a condition (or its negation) to the current predicate."""
        guard = self.build.guard
        self.build.guard = self.values.both(guard, condition, negated)
        yield
        self.build.guard = guard

    def unroll(self, loop: ast.For) -> None:
        """Unrolls a loop with constant bounds."""
        self.text.variable(loop)
        match loop.iter:
            case ast.Call(func=ast.Name(id="range"), args=[_, *_] as args, keywords=[]) if len(args) <= 3:
                bounds = [self.constant(a, _BOUND) for a in args]
            case _:
                raise self.text.unexpected(loop.iter, "range()")
        if len(bounds) == 3 and bounds[2] == 0:
            raise self.error(args[2], "a step of 0", "a step that is not 0")
        numbers = range(*bounds)
        if len(numbers) > LARGEST:
            found = f"{len(numbers)} iterations"
            raise self.text.limit(loop, found, f"at most {LARGEST} of a loop in a body")
        for number in numbers:
            self.set(loop.target, self.values.number(number))
            self.statements(loop.body)

    def constant(self, node: ast.expr, expected: str = "a number that is known before the loop runs") -> int:
        """Evaluates an expression that must be known at compile time."""
        found = self.values.constant(self.expr(node))
        if found is None:
            raise self.text.unexpected(node, expected)
        return found

    def expr(self, node: ast.expr) -> int:
        """Translates an expression to a value."""
        number = whole(node)
        if number is not None:
            if not LOW <= number < HIGH:
                raise self.error(node, short(number), f"a number of {BITS} bits, {LOW} to {HIGH - 1}")
            return self.values.number(number)
        match node:
            case ast.Constant(value=bool() as value):
                return self.values.number(int(value))
            case ast.Name():
                return self.name(node)
            case ast.Subscript():
                return self.read(node)
            case ast.UnaryOp(op=op, operand=operand):
                return self.unary(op, self.expr(operand))
            case ast.BinOp(left=left, op=op, right=right):
                return self.binary(node, op, self.expr(left), self.expr(right))
            case ast.BoolOp(op=op, values=values):
                return self.logic(isinstance(op, ast.And), values)
            case ast.Compare():
                return self.comparison(node)
            case ast.IfExp(test=test, body=body, orelse=orelse):
                return self.choice(test, body, orelse)
            case ast.Call(func=ast.Name(id=name), args=args, keywords=[]):
                return self.call(node, name, args)
        raise self.text.unexpected(node, _EXPRESSION)

    def name(self, node: ast.Name) -> int:
        """Value of a name."""
        name = node.id
        if name in self.arrays:
            raise self.error(node, f"the array {name!r} as a whole", f"an element, {name}[...]")
        if name in self.names:
            return self.names[name]
        if name in self.unset:
            raise self.error(node, f"{name!r}, {self.unset[name]}", "a value on every path to here")
        if name in self._reading:
            raise self.error(node, f"{name!r}, set to itself", "a number")
        if name in self.text.names:
            return self.values.number(self.outside(self.text.names[name], name))
        raise self.error(node, f"unknown name {name!r}", "a parameter, or a name that is set before")

    def outside(self, node: ast.expr, name: str) -> int:
        """A module-level integer, used in the expression or name `name`."""
        body = copy.copy(self)
        body.arrays, body.names, body.unset = (), {}, {}
        body._reading = (*self._reading, name)
        return body.constant(node)

    def read(self, node: ast.Subscript) -> int:
        """Reads an array element or a word of a table."""
        base = node.value
        if isinstance(base, ast.Name) and base.id not in self.arrays and base.id not in self.names:
            table = self.text.names.get(base.id)
            if isinstance(table, ast.Tuple | ast.List) and table.elts:
                if base.id not in self.tables:
                    self.tables[base.id] = tuple(self.outside(word, "") for word in table.elts)
                return self.lookup(node, base.id, self.index(node))
        array, index = self.element(node)
        return self.build.load(array, index)

    def lookup(self, node: ast.Subscript, table: str, index: int) -> int:
        """Reads a word of a table; a constant index gives a constant."""
        words, known = self.tables[table], self.values.constant(index)
        if known is None:
            return self.build.table(table, index)
        if not 0 <= known < len(words):
            raise self.error(node, f"index {known}", f"0 to {len(words) - 1}")
        return self.values.number(words[known])

    def element(self, node: ast.Subscript) -> tuple[str, int]:
        """The array and the index of a subscript."""
        if not isinstance(node.value, ast.Name) or node.value.id not in self.arrays:
            expected = "an element of an array that is a parameter, or of a table set outside of the function"
            raise self.text.unexpected(node, expected)
        return node.value.id, self.checked(node, self.index(node), "at least 0")

    def checked(self, node: ast.expr, index: int, expected: str, multiple: int = 1) -> int:
        """Returns the index, or raises an error if it is known to be invalid."""
        known = self.values.constant(index)
        if known is not None and (known < 0 or known % multiple):
            raise self.error(node, f"index {known}", expected)
        return index

    def index(self, node: ast.Subscript) -> int:
        """The single index of a subscript."""
        if isinstance(node.slice, ast.Tuple | ast.Slice):
            raise self.text.unexpected(node, "one index: arrays have one dimension")
        return self.expr(node.slice)

    def unary(self, op: ast.unaryop, value: int) -> int:
        """`-v`, `+v`, `~v`, `not v`."""
        match op:
            case ast.USub():
                return self.values.apply("sub", self.values.number(0), value)
            case ast.Invert():
                return self.values.apply("xor", value, self.values.number(-1))
            case ast.Not():
                return self.values.opposite(value)
        return value

    def binary(self, node: ast.expr | ast.stmt, op: ast.operator, left: int, right: int) -> int:
        """Arithmetic. Division is only by powers of two and becomes a shift or a mask."""
        if type(op) in BINARY:
            return self.values.apply(BINARY[type(op)], left, right)
        if isinstance(op, ast.FloorDiv | ast.Mod):
            divisor = self.values.constant(right)
            if divisor is not None and divisor > 0 and divisor & (divisor - 1) == 0:
                if isinstance(op, ast.Mod):
                    return self.values.apply("and", left, self.values.number(divisor - 1))
                return self.values.apply("shr", left, self.values.number(divisor.bit_length() - 1))
            raise self.error(node, f"a division: {source(node)}", "a divisor that is a power of two")
        raise self.text.unexpected(node, "one of + - * & | ^ << >> // %")

    def logic(self, both: bool, operands: Sequence[ast.expr]) -> int:
        """`and` and `or` return the deciding operand; later ones access memory only if evaluated."""
        value = self.expr(operands[0])
        if len(operands) == 1:
            return value
        known = self.values.constant(value)
        if known is not None:
            return self.logic(both, operands[1:]) if bool(known) is both else value
        with self.under(value, not both):
            rest = self.logic(both, operands[1:])
        if self.values.is_truth(value) and self.values.is_truth(rest):
            return self.values.apply("and" if both else "or", value, rest)
        return self.values.apply("select", value, *((rest, value) if both else (value, rest)))

    def comparison(self, node: ast.Compare) -> int:
        """A comparison; a chain is the conjunction of its links and reads its operands only as needed."""
        guard, left = self.build.guard, self.expr(node.left)
        result: int | None = None
        for op, term in zip(node.ops, node.comparators, strict=True):
            if type(op) not in COMPARE:
                raise self.text.unexpected(node, "< <= > >= == !=")
            if result is not None and self.values.constant(result) is None:
                self.build.guard = self.values.both(guard, result)
            right = self.expr(term)
            link = self.values.apply(COMPARE[type(op)], left, right)
            result = link if result is None else self.values.apply("and", result, link)
            left = right
        self.build.guard = guard
        assert result is not None
        return result

    def choice(self, test: ast.expr, body: ast.expr, orelse: ast.expr) -> int:
        """`v if c else w`; only the side chosen accesses memory."""
        condition = self.expr(test)
        known = self.values.constant(condition)
        if known is not None:
            return self.expr(body if known else orelse)
        with self.under(condition):
            then = self.expr(body)
        with self.under(condition, True):
            other = self.expr(orelse)
        return self.values.apply("select", condition, then, other)

    def call(self, node: ast.Call, name: str, args: Sequence[ast.expr]) -> int:
        """A call of an integer function."""
        if name in ("min", "max"):
            if len(args) < 2:
                raise self.error(node, f"{len(args)} arguments of {name}", "at least 2")
            values = [self.expr(a) for a in args]
            return functools.reduce(functools.partial(self.values.apply, name), values)
        if name in OF_LANES and name != "store_lanes":
            return self.across(node, name, args)
        if name not in CALLS:
            raise self.error(node, f"a call of {name!r}", f"one of {_FUNCTIONS}")
        operation = OPERATIONS[CALLS[name]]
        wanted = operation.arguments
        if len(args) != wanted:
            raise self.error(node, f"{len(args)} arguments of {name}", str(wanted))
        values = [self.expr(a) for a in args]
        if operation.constant and self.values.items[values[-1]].op != "const":
            raise self.text.unexpected(args[-1], "a number, or a parameter that the loop does not change")
        return self.values.apply(operation.name, *values)

    def across(self, node: ast.Call, name: str, args: Sequence[ast.expr]) -> int:
        """A call of a function on lanes. A store returns a value that nothing may use."""
        lanes, operation = self.build.lanes, OPERATIONS[name]
        if lanes == 1:
            expected = f"{LANES} = {', '.join(map(str, SEVERAL))}, set outside of the kernel"
            raise self.error(node, f"a call of {name!r} without a number of lanes", expected)
        accesses = operation.unit is Unit.MEMORY
        wanted = operation.operands + accesses
        if len(args) != wanted:
            raise self.error(node, f"{len(args)} arguments of {name}", str(wanted))
        if not accesses:
            return self.values.apply(name, *(self.expr(a) for a in args))
        array = args[0]
        if not isinstance(array, ast.Name) or array.id not in self.arrays:
            raise self.text.unexpected(array, "an array that is a parameter")
        index = self.checked(args[1], self.expr(args[1]), f"a multiple of {lanes}, at least 0", lanes)
        if name == "load_lanes":
            return self.build.load(array.id, index, name)
        value = self.expr(args[2])
        self.build.store(array.id, index, value, name)
        return value
