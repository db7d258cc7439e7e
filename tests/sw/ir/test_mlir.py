"""The export to MLIR: it parses and verifies, and has the same meaning."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import numpy as np
import pytest

from hw.semantics import wrap
from sw.ir.expression import Expr, evaluate
from sw.ir.intrinsics import effects
from sw.ir.mlir import to_mlir
from sw.ir.parse import parse_program
from sw.ir.program import Program
from sw.ir.walk import instructions
from tests.sw.ir.interpret import run
from tests.sw.random_tile_programs import random_program, sample_run

pytest.importorskip("xdsl", reason="the export is checked where xdsl is installed")

from xdsl.context import Context
from xdsl.dialects import arith, builtin, func, memref, scf
from xdsl.parser import Parser

from tests.budget import sweep


def verified(text: str) -> Any:
    context = Context()
    for dialect in (builtin.Builtin, func.Func, scf.Scf, arith.Arith, memref.MemRef):
        context.load_dialect(dialect)
    module = Parser(context, text).parse_module()
    module.verify()
    return module


COMPARE = {
    0: lambda a, b: a == b,
    1: lambda a, b: a != b,
    2: lambda a, b: a < b,
    3: lambda a, b: a <= b,
    4: lambda a, b: a > b,
    5: lambda a, b: a >= b,
}


def _rest(a: int, b: int) -> int:
    assert b != 0
    assert (a, b) != (-(1 << 31), -1), "undefined in arith"
    return int(np.fmod(a, b))


def _quotient(a: int, b: int) -> int:
    assert b != 0
    assert (a, b) != (-(1 << 31), -1), "undefined in arith"
    return a // b


def _amount(b: int) -> int:
    assert 0 <= b < 32, "undefined in arith"
    return b


BINARY = {
    "arith.addi": lambda a, b: a + b,
    "arith.subi": lambda a, b: a - b,
    "arith.muli": lambda a, b: a * b,
    "arith.andi": lambda a, b: a & b,
    "arith.ori": lambda a, b: a | b,
    "arith.xori": lambda a, b: a ^ b,
    "arith.minsi": min,
    "arith.maxsi": max,
    "arith.shli": lambda a, b: a << _amount(b),
    "arith.shrsi": lambda a, b: a >> _amount(b),
    "arith.remsi": _rest,
    "arith.floordivsi": _quotient,
    "arith.ceildivsi": lambda a, b: -(-a // b),
}


class Runner:
    """Executes a module: for every call its label, and the labels that wrote what it reads."""

    def __init__(self, program: Program, module: Any):
        self.reads = {i.label: len(effects(i)[0]) for i in instructions(program)}
        self.writes = {i.label: len(effects(i)[1]) for i in instructions(program)}
        self.module = module
        self.values: dict[Any, Any] = {}
        self.calls: list[tuple[str, Counter[str], list[int]]] = []

    def run(self, arguments: list[Any]) -> None:
        main = next(op for op in self.module.ops if op.body.blocks)
        self.block(main.body.blocks[0], arguments)

    def block(self, block: Any, arguments: list[Any]) -> list[Any]:
        """The operands of the terminator."""
        self.values.update(zip(block.args, arguments, strict=True))
        for op in block.ops:
            operands = [self.values[o] for o in op.operands]
            if op.name in ("scf.yield", "func.return", "scf.condition"):
                return operands
            results = self.op(op, operands)
            self.values.update(zip(op.results, results, strict=True))
        return []

    def op(self, op: Any, operands: list[Any]) -> list[Any]:
        name = op.name
        if name in BINARY:
            return [self.fit(BINARY[name](*operands), op.results[0].type)]
        if name == "arith.constant":
            value = op.value.value.data
            return [abs(value) if str(op.results[0].type) == "i1" else value]
        if name == "arith.cmpi":
            return [int(COMPARE[op.predicate.value.data](*operands))]
        if name == "arith.select":
            return [operands[1] if operands[0] else operands[2]]
        if name == "arith.index_cast":
            return [self.fit(operands[0], op.results[0].type)]
        if name == "memref.subview":
            array, rest = operands[0], operands[1:]
            n = len(rest) // 2
            return [array[tuple(slice(o, o + s) for o, s in zip(rest[:n], rest[n:], strict=True))]]
        if name == "func.call":
            return self.call(op, operands)
        return self.control(op, operands)

    def control(self, op: Any, operands: list[Any]) -> list[Any]:
        if op.name == "scf.if":
            region = op.regions[0 if operands[0] else 1]
            return self.block(region.blocks[0], []) if region.blocks else []
        if op.name == "scf.for":
            low, high, step, *carried = operands
            assert step > 0
            for value in range(low, high, step):
                carried = self.block(op.regions[0].blocks[0], [value, *carried])
            return carried
        assert op.name == "scf.while"
        while True:
            holds, *operands = self.block(op.regions[0].blocks[0], operands)
            if not holds:
                return operands
            operands = self.block(op.regions[1].blocks[0], operands)

    def call(self, op: Any, operands: list[Any]) -> list[Any]:
        label = op.attributes["label"].data
        sources: Counter[str] = Counter()
        read, written = self.reads[label], self.writes[label]
        for array in operands[:read]:
            sources.update(array.ravel().tolist())
        for array in operands[read : read + written]:
            array[...] = label
        self.calls.append((label, sources, operands[read + written :]))
        return []

    @staticmethod
    def fit(value: int, type_: Any) -> int:
        text = str(type_)
        return value & 1 if text == "i1" else wrap(value) if text == "i32" else value


def same(program: Program, values: dict[str, int], runner: Runner) -> bool:
    """Whether a run there has the same calls as one here, and they read what the same instructions wrote."""
    arguments: list[Any] = [values[p.name] for p in program.parameters]
    for b in program.buffers:
        shape = tuple(size.value if hasattr(size, "value") else values[str(size)] for size in b.shape)
        arguments.append(np.full(shape, "entry", dtype=object))
    runner.run(arguments)
    size = {b.name: {"int8": 1, "int32": 4}[b.element] for b in program.buffers}
    expected = run(program, values).reads
    if [label for label, _, _ in runner.calls] != [use.label for use in expected]:
        return False
    by_label = {i.label: i for i in instructions(program)}
    for (label, sources, _), (_, wanted) in zip(runner.calls, expected.items(), strict=True):
        widths = {size[r.buffer] for r in effects(by_label[label])[0]}  # type: ignore[union-attr]
        labels: Counter[str] = Counter()
        for source, count in wanted.items():
            labels[source.label] += count
        if len(widths) == 1:
            if {name: n * widths.copy().pop() for name, n in sources.items()} != labels:
                return False
        elif sources.keys() != labels.keys():
            return False
    return True


@pytest.mark.parametrize("seed", sweep(range(60), kept=range(24)))
def test_random_programs_mean_the_same_there(seed: int) -> None:
    rng = random.Random(seed)
    program = random_program(rng, instructions=6, unknown=0, whiles=0.2, scalars=0.3)
    module = verified(to_mlir(program))
    found = sample_run(rng, program)
    if found is not None:
        assert same(program, found[0], Runner(program, module))


def test_scalars_that_live_on_from_one_iteration_to_the_next() -> None:
    program = parse_program(
        """
@program
def f(n: int[0, 5], p: bool):
    a: Buffer[60]
    s = 0
    u = 5
    k = 0
    for i in range(4):
        t(write=a[s:s + 2])
        if p:
            s = s + 3
        for j in range(n, 0, -1):
            r(read=a[u:u + j], write=a[u])
            u = s + j
    while k < n:
        w(read=a[s:60], write=a[s])
        s = s + 1
        k = k + 1
    for i in range(3):
        v = 2 * i
    last(read=a[v:v + 9])
"""
    )
    module = verified(to_mlir(program))
    for n in range(5):
        for p in (0, 1):
            assert same(program, {"n": n, "p": p}, Runner(program, module))


EXPRESSIONS = (
    "x // y",
    "x % y",
    "x // 3 + x % 3 - x // -3 * (x % -3)",
    "x << y",
    "x >> y & 255 ^ 3 | 16",
    "x << 35",
    "min(x, y) * max(x, 7)",
    "x // y if y != 0 else -5",
    "1 if p and x // (y + 9) > 2 or y == 9 else 0 - x",
    "1 if (p or x % (y + 9) > 2) and not x <= y else 2",
    "x - 2147483647",
    "-2147483648 // (-1 if p else 2)",
    "3 if p == (x < y) else 4",
)


@pytest.mark.parametrize("text", EXPRESSIONS)
def test_expressions_mean_the_same_there(text: str) -> None:
    source = f"@program\ndef f(p: bool, x: int, y: int):\n    a: Buffer[4]\n    t(write=a[0], k={text})\n"
    program = parse_program(source)
    runner = Runner(program, verified(to_mlir(program)))
    (instruction,) = instructions(program)
    operand = instruction.operands[0][1]
    assert isinstance(operand, Expr)
    compared = 0
    for p in (0, 1):
        for x in (-(1 << 31), -7, -1, 0, 5, 64, (1 << 31) - 1):
            for y in (-40, -9, -1, 0, 1, 2, 33):
                values = {"p": p, "x": x, "y": y}
                try:
                    run(program, values)
                except ValueError:
                    continue
                runner.run([p, x, y, np.full(4, "entry", dtype=object)])
                assert runner.calls[-1][2] == [evaluate(operand, values)]
                compared += 1
    assert compared > 20


def test_functions_tell_reads_from_writes_and_names_do_not_collide() -> None:
    program = parse_program(
        """
@program
def touch(touch: int, é: int, c: int):
    u: Buffer[é, 4, int32, acc]
    b: Buffer[8]
    touch0 = touch(read=b[0:4])
    touch1 = touch(write=b[0:4], warp=2)
    touch2 = touch(read=b[c:4])
    touch3 = touch(read=ANY, k=b[0:2])
    touch4 = touch(write=u[0:2])
"""
    )
    text = to_mlir(program)
    verified(text)
    assert (
        "  // reads 1, writes 0\n  func.func private @touch.1(memref<?xi8, strided<[1], offset: ?>>)\n"
        in text
    )
    assert (
        "  // reads 0, writes 1\n  func.func private @touch.2(memref<?xi8, strided<[1], offset: ?>>)\n"
        in text
    )
    assert text.count("func.call @touch.1(") == 2
    assert 'memref<?x4xi32, "acc">' in text
    assert 'label = "touch1", warp = 2 : i32' in text
    assert "func.func @touch(%touch: i32, %u.e9: i32, %c: i32, %u: memref<" in text
