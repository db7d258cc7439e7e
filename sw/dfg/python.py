"""Kernels from Python functions (docs/dfg.md). The text is read by `ast`, never executed."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from sw.dfg.body import Body, Scope
from sw.dfg.build import Builder
from sw.dfg.graph import Value
from sw.dfg.kernel import Array, HostLoop, Kernel, Launch, Step, prune
from sw.dfg.syntax import RESERVED, KernelText, assigned, indexed, loops, module_names, trip
from sw.ir.errors import IRError, Location
from sw.ir.load import read_text
from sw.ir.syntax import check_depth, is_docstring, python_tree, whole


def from_function(path: str | Path, name: str) -> Kernel:
    """The kernel that a function of a file is; raises `InputError` with file, line and column."""
    return parse_kernel(read_text(path, str(path)), name, str(path))


def parse_kernel(text: str, name: str, file: str = "<text>") -> Kernel:
    """The kernel that a function of a text is; raises `InputError` with file, line and column."""
    module = python_tree(text, file, "exec")
    assert isinstance(module, ast.Module)
    functions = {s.name: s for s in module.body if isinstance(s, ast.FunctionDef)}
    if name not in functions:
        listed = ", ".join(functions) or "one, there is none"
        raise IRError(Location(file, 1, 1), f"no function {name!r}", f"a function of the file: {listed}")
    where = KernelText(file, text, module_names(module))
    for outside in where.names.values():
        check_depth(outside, file)
    return _Function(where, functions[name]).kernel()


@dataclass
class _Names:
    """What names hold between launches: a number, or what the host keeps under a name."""

    values: dict[str, Value] = field(default_factory=dict)
    unset: dict[str, str] = field(default_factory=dict)


class _Function:
    """One function: straight code and loops as launches."""

    def __init__(self, where: KernelText, function: ast.FunctionDef):
        self.where, self.function = where, function
        check_depth(function, where.file)
        self.parameters = self._parameters()
        subscripted = indexed(function)
        self.arrays = frozenset(p for p in self.parameters if p in subscripted)
        self.iterations: str | None = None
        self.names = _Names({p: p for p in self.parameters if p not in self.arrays})
        self.launched, self.pieces = 0, 0

    def kernel(self) -> Kernel:
        """The whole function."""
        statements = [s for s in self.function.body if not is_docstring(s)]
        outermost = [s for s in statements if isinstance(s, ast.For)]
        if not outermost:
            expected = "a loop `for i in range(n):` at the level of the function"
            raise self.where.error(self.function, f"no loop in {self.function.name!r}", expected)
        results: tuple[ast.expr, ...] = ()
        if isinstance(last := statements[-1], ast.Return):
            statements.pop()
            value = last.value
            results = tuple(value.elts) if isinstance(value, ast.Tuple) else (value,) if value else ()
        self.iterations = next((n for loop in outermost if (n := self._parameter(trip(loop)))), None)
        steps = self.steps(statements, inside=False)
        steps += self.returned(results)
        returned = tuple(self._result(i, value) for i, value in enumerate(results))
        body = prune(tuple(steps), returned)
        return Kernel(
            self.function.name,
            self.where.file,
            self._accesses(body),
            tuple(p for p in self.parameters if p not in self.arrays and p != self.iterations),
            self.iterations,
            body,
            returned,
        )

    def _parameters(self) -> tuple[str, ...]:
        arguments = self.function.args
        odd = arguments.vararg or arguments.kwarg
        if odd:
            raise self.where.error(odd, f"the parameter *{odd.arg}", "parameters by name")
        if arguments.defaults or any(arguments.kw_defaults):
            raise self.where.error(self.function, "a default value of a parameter", "parameters without one")
        found = (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)
        for argument in found:
            if argument.arg in RESERVED:
                raise self.where.error(
                    argument, f"the parameter {argument.arg!r}", "a name that is no function"
                )
        return tuple(argument.arg for argument in found)

    def _parameter(self, node: ast.expr | None) -> str | None:
        return node.id if isinstance(node, ast.Name) and node.id in self.parameters else None

    def _accesses(self, body: tuple[Step, ...]) -> tuple[Array, ...]:
        launches = Kernel("", "", (), (), None, body, ()).launches
        used = {(n.op, n.memory.name) for launch in launches for n in launch.graph.nodes if n.memory}
        return tuple(
            Array(name, ("load", name) in used, ("store", name) in used)
            for name in self.parameters
            if name in self.arrays
        )

    # Steps

    def steps(self, statements: Sequence[ast.stmt], inside: bool) -> list[Step]:
        """Straight code and loops; `inside`: of a loop on the host."""
        found: list[Step] = []
        straight: list[ast.stmt] = []
        for statement in statements:
            if not isinstance(statement, ast.For) or (inside and self._unrolls(statement)):
                straight.append(statement)
                continue
            found += self.straight(straight)
            straight = []
            found += self.loop(statement)
        return found + self.straight(straight)

    def _unrolls(self, loop: ast.For) -> bool:
        """Whether a loop inside of another is unrolled: its own bounds and those inside are no parameters."""
        return not any(self._counted(inner) for inner in loops([loop]))

    def _counted(self, loop: ast.For) -> bool:
        """Whether only the launch knows how often a loop runs."""
        stop = trip(loop)
        if not isinstance(stop, ast.Name):
            return False
        for outer in loops(self.function.body):
            if isinstance(outer.target, ast.Name) and outer.target.id == stop.id:
                return outer in self.function.body or self._counted(outer)
        held = self.names.values.get(stop.id)
        return isinstance(held, str) or (held is None and stop.id not in self.where.names)

    def straight(self, statements: Sequence[ast.stmt]) -> list[Step]:
        """Statements that run once."""
        if not statements:
            return []
        for statement in statements:
            for loop in loops([statement]):
                if self._counted(loop):
                    raise self.where.error(
                        loop, "a loop inside of an `if`", "a loop with constant bounds there"
                    )
        builder = Builder(loop=False)
        scope = Scope(self.where, self.arrays, {}, dict(self.names.unset))
        scope.values = {name: builder.values.immediate(v) for name, v in self.names.values.items()}
        Body(scope, builder).statements(statements)
        finals = {n: scope.values[n] for n in assigned(statements) if n in scope.values}
        self.pieces += 1
        title = f"{self.function.name}.straight.{self.pieces}"
        graph = builder.graph(title, finals, scope.tables)
        for name, value in finals.items():
            number = builder.values.constant(value)
            self.names.values[name] = name if number is None else number
            self.names.unset.pop(name, None)
        self._forget(assigned(statements), scope)
        return [Launch(graph, 1)]

    def loop(self, loop: ast.For) -> list[Step]:
        """A loop: one launch, or a loop on the host around what is inside."""
        variable, count = self._head(loop)
        if any(self._counted(inner) for inner in loops(loop.body)):
            return self.nest(loop, variable, count)
        builder = Builder(loop=True)
        scope = Scope(self.where, self.arrays, {}, dict(self.names.unset))
        changed = assigned(loop.body)
        if variable in changed:
            raise self.where.error(loop, f"a loop that sets its variable {variable!r}", "another name inside")
        for name, value in self.names.values.items():
            carried = name in changed
            scope.values[name] = builder.carried(name, value) if carried else builder.values.immediate(value)
        for name in changed:
            if name not in scope.values:
                scope.unset[name] = "read before it is set, in the first iteration"
        scope.values[variable] = builder.counter()
        Body(scope, builder).statements(loop.body)
        finals = {n: scope.values[n] for n in changed if n in scope.values}
        self.launched += 1
        graph = builder.graph(f"{self.function.name}.{self.launched}", finals, scope.tables)
        for name in changed:
            if name in self.names.values:
                self.names.values[name] = name
        self._forget([variable, *changed], None)
        return [Launch(graph, count)]

    def nest(self, loop: ast.For, variable: str, count: Value) -> list[Step]:
        """A loop on the host."""
        changed = assigned([loop])
        # The host keeps what changes inside, even where it is a known number before.
        kept = [n for n in changed if n in self.names.values and n != variable]
        for name in kept:
            self.names.values[name] = name
        outer = dict(self.names.values)
        for name in changed:
            if name not in outer:
                self.names.unset[name] = "read before it is set, in the first iteration"
        self.names.values[variable] = variable
        self.names.unset.pop(variable, None)
        steps = self.steps(loop.body, inside=True)
        self.names.values = {n: n if n in kept else v for n, v in outer.items() if n != variable}
        self._forget([variable, *changed], None)
        return [HostLoop(variable, count, tuple(steps))]

    def _forget(self, names: Sequence[str], scope: Scope | None) -> None:
        """Names that have no value for sure after a step."""
        for name in names:
            if name not in self.names.values:
                reason = scope.unset.get(name) if scope else "set in a loop that may not run"
                self.names.unset[name] = reason or "not set before"

    def _head(self, loop: ast.For) -> tuple[str, Value]:
        """Variable and number of iterations."""
        if loop.orelse:
            raise self.where.error(loop, "a `for` with `else`", "a plain `for`")
        if not isinstance(loop.target, ast.Name):
            raise self.where.unexpected(loop.target, "a name")
        variable, stop = loop.target.id, trip(loop)
        if variable in self.names.values or variable in self.arrays:
            raise self.where.error(loop.target, f"{variable!r} a second time", "a name of the loop's own")
        number = whole(stop) if stop is not None else None
        if number is not None:
            return variable, number
        if not isinstance(stop, ast.Name):
            raise self.where.unexpected(loop.iter, "range() of a parameter or a number")
        builder = Builder(loop=False)
        values = {name: builder.values.immediate(v) for name, v in self.names.values.items()}
        found = Body(Scope(self.where, self.arrays, values, dict(self.names.unset)), builder).expr(stop)
        held = builder.values.items[found].immediate
        assert held is not None
        return variable, held

    # Results

    def returned(self, results: Sequence[ast.expr]) -> list[Step]:
        """Computes the results that are not plain names."""
        assignments: list[ast.stmt] = []
        for i, value in enumerate(results):
            target = ast.copy_location(ast.Name(f"return.{i}", ast.Store()), value)
            assignment = ast.Assign([target], value)
            assignments.append(ast.copy_location(assignment, value))
        return self.straight(assignments)

    def _result(self, index: int, value: ast.expr) -> Value:
        held = self.names.values[f"return.{index}"]
        if isinstance(value, ast.Name) and isinstance(held, str):
            return self.names.values[value.id]
        return held
