"""Translates Python functions to kernels (docs/dfg.md). The text is parsed by `ast` and never executed."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from pathlib import Path

from hw.fabric.operations import LOADS, STORES
from sw.dfg.body import Body
from sw.dfg.graph import Value
from sw.dfg.kernel import Array, HostLoop, Kernel, Launch, Step, launches_in, prune
from sw.dfg.syntax import assigned, indexed, loops, trip
from sw.dfg.text import FunctionText
from sw.ir.syntax import is_docstring, whole


def from_function(path: str | Path, name: str) -> Kernel:
    """Translates a function in a file; raises `InputError` with file, line and column."""
    return kernel_of(FunctionText.from_file(path, name))


def parse_kernel(text: str, name: str, file: str = "<text>") -> Kernel:
    """Translates a function in a text; raises `InputError` with file, line and column."""
    return kernel_of(FunctionText.from_text(text, name, file))


def kernel_of(text: FunctionText) -> Kernel:
    """Translates a function; raises `InputError` with file, line and column."""
    return _Function(text).kernel()


class _Function:
    """Translates one function: straight-line code and loops become launches."""

    def __init__(self, text: FunctionText):
        self.where, self.function = text.where, text.function
        self.lanes = text.where.lanes(text.function)
        self.parameters = tuple(p.arg for p in text.parameters)
        subscripted = indexed(text.function)
        self.arrays = frozenset(p for p in self.parameters if p in subscripted)
        self.iterations: str | None = None
        #: Values of names between launches: a number, or the name under which the host keeps a scalar.
        self.values: dict[str, Value] = {p: p for p in self.parameters if p not in self.arrays}
        #: Names that may have no value, with the reason.
        self.unset: dict[str, str] = {}
        self.launched, self.pieces = 0, 0

    def kernel(self) -> Kernel:
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
        for launch in launches_in(body):
            for output in launch.graph.outputs:
                if output.source in launch.graph.wide:
                    found = (
                        f"{output.name!r} outside of the loop that sets it, where it differs between lanes"
                    )
                    raise self.where.error(
                        self.function, found, "a value computed from all lanes, like sum_lanes(v)"
                    )
        return Kernel(
            self.function.name,
            self.where.file,
            self._accesses(body),
            tuple(p for p in self.parameters if p not in self.arrays and p != self.iterations),
            self.iterations,
            body,
            returned,
        )

    def _parameter(self, node: ast.expr | None) -> str | None:
        return node.id if isinstance(node, ast.Name) and node.id in self.parameters else None

    def _accesses(self, body: tuple[Step, ...]) -> tuple[Array, ...]:
        nodes = (node for launch in launches_in(body) for node in launch.graph.nodes)
        used = {(node.op, node.memory.name) for node in nodes if node.memory}
        read, written = ({name for op, name in used if op in ops} for ops in (LOADS, STORES))
        return tuple(Array(n, n in read, n in written) for n in self.parameters if n in self.arrays)

    def steps(self, statements: Sequence[ast.stmt], inside: bool) -> list[Step]:
        """Translates straight-line code and loops; `inside` is set within a loop on the host."""
        found: list[Step] = []
        straight: list[ast.stmt] = []
        for statement in statements:
            if not isinstance(statement, ast.For) or (inside and not self._launches(statement)):
                straight.append(statement)
                continue
            found += self.straight(straight)
            straight = []
            found += self.loop(statement)
        return found + self.straight(straight)

    def _launches(self, *statements: ast.stmt) -> bool:
        """Whether the statements contain a loop that must be a launch, not one that is unrolled."""
        return any(self._counted(loop) for loop in loops(statements))

    def _counted(self, loop: ast.For) -> bool:
        """Whether the trip count of a loop is known only at launch."""
        stop = trip(loop)
        if not isinstance(stop, ast.Name):
            return False
        for outer in loops(self.function.body):
            if isinstance(outer.target, ast.Name) and outer.target.id == stop.id:
                return outer in self.function.body or self._counted(outer)
        held = self.values.get(stop.id)
        return isinstance(held, str) or (held is None and stop.id not in self.where.names)

    def straight(self, statements: Sequence[ast.stmt]) -> list[Step]:
        """Translates statements that run once."""
        if not statements:
            return []
        for statement in statements:
            for loop in loops([statement]):
                if self._counted(loop):
                    raise self.where.error(
                        loop, "a loop inside of an `if`", "a loop with constant bounds there"
                    )
        body = Body(self.where, self.arrays, self.values, self.unset, lanes=self.lanes)
        body.statements(statements)
        changed = assigned(statements)
        self.pieces += 1
        graph = body.graph(f"{self.function.name}.straight.{self.pieces}", changed)
        for name in changed:
            if name in body.names:
                number = body.values.constant(body.names[name])
                self.values[name] = name if number is None else number
                self.unset.pop(name, None)
        self._forget(changed, body.unset)
        return [Launch(graph, 1)]

    def loop(self, loop: ast.For) -> list[Step]:
        """Translates a loop to one launch, or to a loop on the host around inner launches."""
        variable, count = self._head(loop)
        if self._launches(*loop.body):
            return self.nest(loop, variable, count)
        changed = assigned(loop.body)
        if variable in changed:
            raise self.where.error(loop, f"a loop that sets its variable {variable!r}", "another name inside")
        new = [name for name in changed if name not in self.values]
        unset = self.unset | dict.fromkeys(new, "read before it is set, in the first iteration")
        body = Body(self.where, self.arrays, self.values, unset, variable, changed, self.lanes)
        body.statements(loop.body)
        self.launched += 1
        graph = body.graph(f"{self.function.name}.{self.launched}", changed)
        self.values |= {name: name for name in changed if name in self.values}
        self._forget([variable, *changed])
        return [Launch(graph, count)]

    def nest(self, loop: ast.For, variable: str, count: Value) -> list[Step]:
        changed = assigned([loop])
        # The host keeps what changes inside, even if it is a known number before.
        self.values |= {n: n for n in changed if n in self.values}
        outer = dict(self.values)
        new = [name for name in changed if name not in outer]
        self.unset |= dict.fromkeys(new, "read before it is set, in the first iteration")
        self.values[variable] = variable
        self.unset.pop(variable, None)
        steps = self.steps(loop.body, inside=True)
        self.values = outer
        self._forget(changed)
        return [HostLoop(variable, count, tuple(steps))]

    def _forget(self, names: Sequence[str], reasons: Mapping[str, str] | None = None) -> None:
        """Marks names that may have no value after a step."""
        for name in names:
            if name not in self.values:
                reason = "set in a loop that may not run" if reasons is None else reasons.get(name)
                self.unset[name] = reason or "not set before"

    def _head(self, loop: ast.For) -> tuple[str, Value]:
        variable, stop = self.where.variable(loop), trip(loop)
        if variable in self.values or variable in self.arrays:
            raise self.where.error(loop.target, f"{variable!r} a second time", "a name of the loop's own")
        number = whole(stop) if stop is not None else None
        if number is not None:
            return variable, number
        if not isinstance(stop, ast.Name):
            raise self.where.unexpected(loop.iter, "range() of a parameter or a number")
        body = Body(self.where, self.arrays, self.values, self.unset)
        held = body.values.items[body.expr(stop)].immediate
        assert held is not None
        return variable, held

    def returned(self, results: Sequence[ast.expr]) -> list[Step]:
        """Computes those results that are not plain names."""
        assignments: list[ast.stmt] = []
        for i, value in enumerate(results):
            target = ast.copy_location(ast.Name(f"return.{i}", ast.Store()), value)
            assignment = ast.Assign([target], value)
            assignments.append(ast.copy_location(assignment, value))
        return self.straight(assignments)

    def _result(self, index: int, value: ast.expr) -> Value:
        held = self.values[f"return.{index}"]
        if isinstance(value, ast.Name) and isinstance(held, str):
            return self.values[value.id]
        return held
