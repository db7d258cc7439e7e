"""Induction variables take the value of their expression in every step of their loops."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sw.canonical.hoist import reduce_strength
from sw.canonical.induction import SELF, Induction, induction
from sw.ir.expression import Expr, evaluate
from sw.ir.parse import parse_expr, parse_program
from sw.ir.program import Assign, For, Program
from sw.ir.walk import statements
from tests.sw.codegen.trace import program_trace

Bounds = tuple[int, int, int]
NAMES = "ijk"


def loops(bounds: tuple[Bounds, ...]) -> list[For]:
    """Loops one inside the other, variables i, j, k."""
    text = "@program\ndef p():\n"
    for depth, (name, (start, stop, step)) in enumerate(zip(NAMES, bounds, strict=False)):
        text += "    " * (depth + 1) + f"for {name} in range({start}, {stop}, {step}):\n"
    text += "    " * (len(bounds) + 1) + "signal(channel=0)\n"
    return [s for s in statements(parse_program(text).body) if isinstance(s, For)]


def expression(text: str, nest: list[For]) -> Expr:
    types = {f.variable: f"loop{d}[-100,100]" for d, f in enumerate(nest)}
    for d, f in enumerate(nest):
        values = range(*(e.value for e in (f.start, f.stop, f.step)))  # type: ignore[attr-defined]
        types[f.variable] = f"loop{d}[{min(values)},{max(values) + 1}]"
    return parse_expr(text, types)


def values(how: Induction, nest: list[For]) -> Iterator[tuple[dict[str, int], int]]:
    """The loop variables and the kept value, step by step."""
    kept = evaluate(how.start, {})

    def run(depth: int, at: dict[str, int]) -> Iterator[tuple[dict[str, int], int]]:
        nonlocal kept
        if depth == len(nest):
            yield at, kept
            return
        loop = nest[depth]
        for v in range(*(evaluate(e, {}) for e in (loop.start, loop.stop, loop.step))):
            yield from run(depth + 1, at | {loop.variable: v})
            update = how.updates[depth]
            kept = kept if update is None else evaluate(update, {SELF: kept})

    yield from run(0, {})


CASES = [
    ("4096 + 65536*i + 64*k", ((0, 3, 1), (0, 4, 1), (0, 5, 1))),
    ("i*20 + j*5 + k", ((0, 3, 1), (0, 4, 1), (0, 5, 1))),
    ("300 - 64*j", ((0, 3, 1), (0, 5, 1))),
    ("7*i - 3*j", ((5, -4, -3), (1, 9, 2))),
    ("(i*15 + j*5 + k) % 2 * 512", ((0, 3, 1), (0, 3, 1), (0, 5, 1))),
    ("(i*15 + j*5 + k) % 2 == 0", ((0, 3, 1), (0, 3, 1), (0, 5, 1))),
    ("(i*3 + j*2 - 1 & 1) * 64", ((0, 5, 1), (0, 4, 1))),
    ("(7 - i*4 - j) % 2 * 3", ((0, 5, 1), (0, 4, 1))),
    ("min(160, 300 - 160*j)", ((0, 3, 1), (0, 2, 1))),
    ("j == 1", ((0, 3, 1), (0, 2, 1))),
    ("j == 0", ((0, 3, 1), (1, -3, -2))),
    ("(i << 3) + (j << 1)", ((0, 3, 1), (0, 2, 1))),
    ("2147483647*i + 2000000000*j", ((0, 5, 1), (0, 4, 1))),
    ("(2000000001*i) % 2", ((0, 4, 1),)),
]


@pytest.mark.parametrize(("text", "bounds"), CASES)
def test_kept_value_is_that_of_the_expression(text: str, bounds: tuple[Bounds, ...]) -> None:
    nest = loops(bounds)
    expr = expression(text, nest)
    how = induction(expr, nest)
    assert how is not None
    steps = list(values(how, nest))
    assert len(steps) > 3
    for at, kept in steps:
        assert kept == evaluate(expr, at), at


@pytest.mark.parametrize(
    "text", ["i*j", "i // 2", "min(i, j)", "i % 3 + j % 2", "(i*i) % 2", "i % 3 * j", "i % 3"]
)
def test_what_no_constant_step_describes_is_not_kept(text: str) -> None:
    nest = loops(((0, 4, 1), (0, 3, 1)))
    assert induction(expression(text, nest), nest) is None


def test_one_counter_runs_through_both_loops() -> None:
    nest = loops(((0, 3, 1), (0, 4, 1)))
    how = induction(expression("i*4 + j", nest), nest)
    assert how is not None
    assert [update is not None for update in how.updates] == [False, True]


def test_an_invariant_factor_becomes_the_step() -> None:
    text = "@program\ndef p(N: int[0, 100], lo: int[0, 9]):\n"
    text += "    for i in range(lo, 9):\n        for j in range(4):\n"
    text += "            S = store(memory=i*N + j, source=N*j, rows=1, bytes=1)\n"
    program = parse_program(text)
    kept = reduce_strength(program)
    for n in (0, 3, 99):
        at = {"N": n, "lo": 2}
        assert program_trace(kept, at) == program_trace(program, at)
    products = [s for s in statements(kept.body) if "*" in str(getattr(s, "value", ""))]
    assert all(s in kept.body for s in products), "no product inside of a loop"


def updates(program: Program) -> list[str]:
    return [f"{s.target} = {s.value}" for s in statements(program.body) if isinstance(s, Assign)]


def test_halves_change_by_a_bit_and_pointers_by_a_constant() -> None:
    text = "@program\ndef p():\n    for m in range(4):\n        for k in range(5):\n            "
    text += "L = load_a(memory=64*k + 4096*m, target=(m*5 + k) % 2 * 256, outer=1, inner=1)\n"
    found = updates(reduce_strength(parse_program(text)))
    assert "target = target ^ 256" in found
    assert "memory = memory + 64" in found
    assert "memory = memory + 3776" in found
