"""Random functions in the supported subset of Python, and a way to run them with 32-bit arithmetic."""

from __future__ import annotations

import ast
import random
from typing import Any

from hw.semantics import wrap
from sw.dfg.operations import clz, mul_shift_round, mul_shift_round_even, shift_right_logical

#: Elements of the arrays `a` and `b`; most iterations, such that all indices are inside.
SIZE, MOST = 48, 9
TABLE = (3, -1, 4, 1, -5, 9, 2, 6)
_NAMES = ("s", "t", "u")
_NUMBERS = (0, 1, 2, 3, -1, 5, 8, 31, 1000003, 2147483647, -2147483648)


class Int(int):
    """An integer that wraps at 32 bits."""

    def __new__(cls, value: int) -> Int:
        return super().__new__(cls, wrap(int(value)))


def _wrapping(name: str) -> Any:
    def operation(self: int, *others: int) -> Int:
        # Shift amounts count modulo 32.
        if name in ("__lshift__", "__rshift__"):
            others = (others[0] % 32,)
        return Int(getattr(int, name)(int(self), *(int(o) for o in others)))

    return operation


_BINARY = ("add", "sub", "mul", "and", "or", "xor", "lshift", "rshift")
for _name in (*_BINARY, "neg", "pos", "abs", "invert", "radd", "rsub", "rmul"):
    setattr(Int, f"__{_name}__", _wrapping(f"__{_name}__"))


_FUNCTIONS = (clz, mul_shift_round, mul_shift_round_even, shift_right_logical)


def _whole(function: Any) -> Any:
    """The function on plain integers: products inside must not wrap."""
    return lambda *args: Int(function(*(int(a) for a in args)))


class _Wrapped(ast.NodeTransformer):
    """Numbers of the text as integers that wrap, loops' variables and comparisons too."""

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        return ast.Call(ast.Name("Int", ast.Load()), [node], [])

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        self.generic_visit(node)
        return ast.Call(ast.Name("Int", ast.Load()), [node], [])

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        self.generic_visit(node)
        return ast.Call(ast.Name("Int", ast.Load()), [node], [])

    def visit_For(self, node: ast.For) -> ast.AST:
        assert isinstance(node.target, ast.Name)
        self.generic_visit(node)
        name = node.target.id
        node.body.insert(0, ast.parse(f"{name} = Int({name})").body[0])
        return node


def run_python(text: str, arguments: dict[str, Any]) -> tuple[int, ...]:
    """Run the function `f` of a text as Python on wrapping integers; changes lists in place."""
    tree = ast.fix_missing_locations(_Wrapped().visit(ast.parse(text)))
    names: dict[str, Any] = {"Int": Int} | {function.__name__: _whole(function) for function in _FUNCTIONS}
    exec(compile(tree, "<random>", "exec"), names)  # the test's own text
    for name, value in arguments.items():
        arguments[name] = [Int(v) for v in value] if isinstance(value, list) else Int(value)
    result: tuple[int, ...] = names["f"](**arguments)
    return result


class Writer:
    """Writes one function."""

    def __init__(self, rng: random.Random):
        self.rng = rng
        self.loops = ["i"]

    def function(self) -> str:
        """A function with one loop that may hold small ones, or a nest."""
        rng = self.rng
        lines = [f"T = {TABLE}", "def f(n, m, a, b, p, q):"]
        lines += [f"    {name} = {rng.choice(('0', '7', 'p', 'q - 3', '-1'))}" for name in _NAMES]
        lines.append("    for i in range(n):")
        if rng.random() < 0.25:
            lines += self.block(2, 2)
            lines.append("        for k in range(m):")
            self.loops.append("k")
            lines += self.block(3, 3)
            self.loops.pop()
            lines += self.block(2, 1)
        else:
            lines += self.block(2, rng.randint(2, 6))
        lines.append("    " + rng.choice(("s = s + t", "b[0] = u", "pass")))
        lines.append("    return s, t, u")
        return "\n".join(lines) + "\n"

    def block(self, indent: int, count: int) -> list[str]:
        """Statements."""
        found: list[str] = []
        for _ in range(count):
            found += self.statement(indent)
        return found

    def statement(self, indent: int) -> list[str]:
        rng, pad = self.rng, "    " * indent
        kind = rng.random()
        if kind < 0.35:
            return [f"{pad}{rng.choice(_NAMES)} {rng.choice(('=', '=', '+=', '^='))} {self.expr(2)}"]
        if kind < 0.7:
            return [f"{pad}{self.element()} {rng.choice(('=', '=', '+=', '-='))} {self.expr(2)}"]
        if kind < 0.78:
            return [f"{pad}{rng.choice(('s, t = t, s', 's, t, u = t, u, s', 'u = s', 't, u = u, p'))}"]
        if kind < 0.93 and indent < 5:
            found = [f"{pad}if {self.expr(2)}:", *self.block(indent + 1, rng.randint(1, 2))]
            if rng.random() < 0.5:
                found += [f"{pad}else:", *self.block(indent + 1, rng.randint(1, 2))]
            return found
        if indent < 4 and len(self.loops) < 3:
            variable = f"j{len(self.loops)}"
            self.loops.append(variable)
            found = [f"{pad}for {variable} in range({rng.choice(('2', '3', '1, 4, 2'))}):"]
            found += self.block(indent + 1, rng.randint(1, 2))
            self.loops.pop()
            return found
        return [f"{pad}u = {self.expr(1)}"]

    def element(self) -> str:
        """An element; all indices are inside."""
        rng = self.rng
        loop = rng.choice(self.loops)
        plain = (
            f"{loop}",
            f"{loop} + 1",
            f"{loop} + {rng.randint(0, 4)}",
            f"2 * {loop} + {rng.randint(0, 3)}",
        )
        wild = (f"{rng.choice(_NAMES)} & 7", str(rng.randint(0, 9)), f"(i + {rng.choice(_NAMES)}) & 15")
        return f"{rng.choice('ab')}[{rng.choice((*plain, *wild))}]"

    def expr(self, depth: int) -> str:
        """An expression."""
        rng = self.rng
        if depth == 0 or rng.random() < 0.15:
            leaf = rng.random()
            if leaf < 0.35:
                return self.element()
            if leaf < 0.75:
                return rng.choice((*_NAMES, "p", "q", *self.loops))
            return str(rng.choice(_NUMBERS))
        x, y = self.expr(depth - 1), self.expr(depth - 1)
        forms = (
            f"({x} + {y})",
            f"({x} - {y})",
            f"({x} * {y})",
            f"({x} {rng.choice('&|^')} {y})",
            f"({x} {rng.choice(('<<', '>>'))} ({y} & 31))",
            f"({x} {rng.choice(('<', '<=', '>', '>=', '==', '!='))} {y})",
            f"({x} < {y} <= {self.expr(0)})",
            f"({x} {rng.choice(('and', 'or'))} {y})",
            f"({x} if {self.expr(depth - 1)} else {y})",
            f"{rng.choice(('min', 'max'))}({x}, {y})",
            f"{rng.choice(('abs', 'clz', '-', '~'))}({x})",
            f"(not {x})",
            f"T[{x} & 7]",
            f"{rng.choice(('mul_shift_round', 'mul_shift_round_even'))}({x}, {y}, {rng.randint(0, 40)})",
            f"shift_right_logical({x}, {y} & 31)",
        )
        return rng.choice(forms)
