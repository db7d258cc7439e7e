"""The checker: every message, and no refusal of anything that may be legal."""

from __future__ import annotations

import random

import pytest

from sw.ir.check import check, problems
from sw.ir.errors import IRError
from sw.ir.expression import Apply, Const, Expr, Op, Var
from sw.ir.linear import difference_bounds
from sw.ir.parse import parse_expr, parse_program
from sw.ir.program import Assign, For, Instruction, Parameter, Program, Statement, nesting
from sw.ir.scope import retype
from sw.ir.types import BOOL, INT, Kind
from tests.sw.random_tile_programs import random_program, sample_run


def program(body: str, buffers: str = "a: Buffer[60]") -> Program:
    head = f"@program\ndef f(p: bool, x: int, n: int[1, 10]):\n    {buffers}\n"
    return parse_program(head + "".join(f"    {line}\n" for line in body.split("\n")), "f.py")


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ("t(read=a[-1])", "4:12: found a[-1:0], which starts at -1, expected a region inside of a[0:60]"),
        ("t(write=a[0:70])", "4:13: found a[0:70], which ends at 70, expected a region inside of a[0:60]"),
        ("if p: t(write=a[0:70])", "4:19: found a[0:70], which ends at 70, expected a region inside"),
        ("t(write=a[n + 60])", "found a[n + 60:n + 60 + 1], which ends at n + 60 + 1, from 62 to 70"),
        (
            "for i in range(7): t(read=a[10*i:10*i + 10])",
            "4:31: found a[10 * i:10 * i + 10], which is a[60:70] where i = 6, expected a region inside",
        ),
        ("for i in range(4):\n    s = 20*i\n    t(read=a[s:s + 20])", "which is a[60:80] where i = 3"),
        ("for i in range(4): t(read=a[i - 1])", "which is a[-1:0] where i = 0"),
        ("for i in range(3):\n    for j in range(i, 60): t(read=a[i + j])", "a[61:62] where i = 2, j = 59"),
        ("load(memory=a[61], target=a[0])", "found a[61:62], which ends at 62"),
        ("while True: t(read=a)", "4:5: found while True, which always holds, expected a loop that can end"),
        ("s = 3\nwhile s < 4: t(read=a)", "5:5: found while s < 4, which always holds, expected a loop that"),
        ("while n == n: t(read=a)", "4:5: found while n == n, which always holds, expected a loop that can"),
        ("while n <= n + 1: t(read=a)", "which always holds"),
        ("while x // n >= x // n: t(read=a)", "which always holds"),
        ("t(read=a[2147483647])", "which starts at 2147483647, expected a region inside of a[0:60]"),
        ("if p: t(read=a[2147483647])", "which starts at 2147483647, expected a region inside of a[0:60]"),
        ("for i in range(2): t(read=a[2147483646 + i])", "expected a region inside of a[0:60]"),
        (
            "for i in range(0, 9, n // 16): pass",
            "4:5: found step n // 16 of the loop over 'i', which is zero, expected a loop that can end",
        ),
        ("s = x // 0", "4:5: found a division by zero, x // 0, expected a divisor other than zero"),
        ("t(read=a[0:x % (n // 16)])", "found a division by zero, x % (n // 16), expected a divisor"),
        (
            "if p: s = 1\nt(read=a[s])",
            "5:12: found scalar 's', which may have no value, expected an assignment on every path that",
        ),
        ("for i in range(x): s = 1\nu = s", "5:5: found scalar 's', which may have no value"),
        ("while p: s = 1\nu = s", "5:5: found scalar 's', which may have no value"),
        ("for i in range(3):\n    if i > 0: t(read=a[s])\n    s = i", "found unknown name 's'"),
    ],
)
def test_what_is_refused(body: str, text: str) -> None:
    with pytest.raises(IRError) as caught:
        check(program(body))
    assert str(caught.value).startswith("f.py:")
    assert text in str(caught.value)


@pytest.mark.parametrize(
    "body",
    [
        "t(read=a[70:x])",
        "t(read=a[x - 70:0])",
        "t(read=a[0:x])",
        "for i in range(7): t(read=a[10*i:10*i + 10], when=i < 6)",
        "for i in range(7):\n    if i < 6: t(read=a[10*i:10*i + 10])",
        "for i in range(n): t(read=a[10*i:10*i + 10])",
        "while p: t(read=a)",
        "while n != n: t(read=a)",
        "while x < x + 1: t(read=a)",
        "for i in range(x, 0, x): t(read=a)",
        "if p: s = 1\nelse: s = 2\nt(read=a[s])",
        "for i in range(n): s = 1\nt(read=a[s])",
        "for i in range(2): s = i\nt(read=a[s])",
        "s = 3 // x if x > 0 else 0",
        "s = 0\nwhile s < 4: s = s + 1",
        "for i in range(9, 0, -1): t(read=a[i - 1:60])",
        "t(read=a[99:70])",
    ],
)
def test_what_may_be_legal(body: str) -> None:
    assert problems(program(body)) == []


@pytest.mark.parametrize(
    ("buffers", "text"),
    [
        ("a: Buffer[0]", "3:5: found size 0 of 'a', expected a positive size"),
        ("a: Buffer[4, n - 30]", "3:5: found size n - 30 of 'a', expected a positive size"),
        ("a: Buffer[n // 0]", "3:5: found a division by zero"),
    ],
)
def test_buffers_that_are_refused(buffers: str, text: str) -> None:
    with pytest.raises(IRError) as caught:
        check(program("pass", buffers))
    assert text in str(caught.value)


def test_sizes_that_are_parameters() -> None:
    check(program("t(read=a[0:n])", "a: Buffer[n]"))
    with pytest.raises(IRError, match=r"which ends at n \+ 1, from 2 to 10"):
        check(program("t(read=a[0:n + 1])", "a: Buffer[n]"))


def test_what_nests_too_deep_to_be_read_again() -> None:
    x, p = Var("x", INT), Var("p", BOOL)

    def drawn(rng: random.Random, levels: int) -> Expr:
        made: Expr = p
        while nesting(made) < levels:
            if made.kind is Kind.INT:
                made = rng.choice(
                    (
                        lambda e: Apply(Op.ADD, (e, x)),
                        lambda e: Apply(Op.SUB, (Const(-3), e)),
                        lambda e: Apply(Op.MIN, (x, e)),
                        lambda e: Apply(Op.LE, (e, Const(-1))),
                    )
                )(made)
            else:
                made = rng.choice(
                    (
                        lambda e: Apply(Op.AND, (e, p)),
                        lambda e: Apply(Op.AND, (p, e)),
                        lambda e: Apply(Op.OR, (Apply(Op.OR, (p, p)), e)),
                        lambda e: Apply(Op.NOT, (e,)),
                        lambda e: Apply(Op.SELECT, (e, x, Const(-7))),
                    )
                )(made)
        return made

    refused = 0
    for seed in range(60):
        rng = random.Random(seed)
        value, loops = drawn(rng, rng.randint(92, 100)), rng.randint(0, 3)
        body: tuple[Statement, ...] = (Assign("s", value),)
        for i in range(loops):
            body = (For(f"i{i}", Const(0), Const(2), Const(1), body),)
        made = retype(Program("f", (Parameter("x", INT), Parameter("p", BOOL)), (), body))
        if problems(made):
            refused += 1
            with pytest.raises(IRError, match="nesting deeper than 100 levels"):
                check(made)
            with pytest.raises(IRError, match="nesting deeper than 100 levels"):
                parse_program(str(made))
        else:
            assert parse_program(str(made)) == made
    assert 10 < refused < 50


def test_all_problems_in_the_order_of_the_text() -> None:
    found = problems(program("t(read=a[-1])\nwhile True: s = 1 // 0\nu = s"))
    assert [e.where.line for e in found if e.where] == [4, 5, 5, 6]


def test_programs_that_run_everywhere_are_not_refused() -> None:
    # Without branches nothing is dead, so what runs is legal; with them the checker may refuse dead code.
    ran = 0
    for seed in range(150):
        rng = random.Random(seed)
        made = random_program(rng, instructions=8, branches=0, predicates=0, whiles=0)
        if all(isinstance(s, Instruction | Assign) or _runs(s) for s in made.body) and sample_run(rng, made):
            ran += 1
            assert problems(made) == []
    assert ran > 60


def _runs(s: object) -> bool:
    return (
        isinstance(s, For)
        and all(isinstance(e, Const) for e in (s.start, s.stop, s.step))
        and len(range(s.start.value, s.stop.value, s.step.value)) > 0  # type: ignore[attr-defined]
        and all(isinstance(t, Instruction | Assign) or _runs(t) for t in s.body)
    )


@pytest.mark.parametrize(
    ("a", "b", "low", "high"),
    [
        ("10*n + 10", "10*n", 10, 10),
        ("x + 1", "x", -(1 << 32) + 1, (1 << 32) - 1),
        ("n % 4 + 3", "n % 4", 3, 3),
        ("n - 2*m", "m + 3 - n", -1 - 9 * 3 + 0, 2 * 9 - 3 - 3),
        ("n * m", "n * m", 0, 0),
        ("n", "3", -2, 6),
    ],
)
def test_bounds_of_a_difference(a: str, b: str, low: int, high: int) -> None:
    types = {"x": "int32", "n": "int[1,10]", "m": "int[1,10]"}
    found = difference_bounds(parse_expr(a, types), parse_expr(b, types))
    assert found == (low, high)


def test_bounds_of_a_difference_hold() -> None:
    types = {"n": "int[1,10]", "m": "int[-3,4]"}
    texts = (
        "n",
        "m",
        "n*3 + m",
        "m - n",
        "n % 3",
        "n % 3 + 2*m",
        "7",
        "min(n, m) + 1",
        "min(n, m)",
        "4*(n + m)",
    )
    for a in texts:
        for b in texts:
            left, right = parse_expr(a, types), parse_expr(b, types)
            low, high = difference_bounds(left, right)
            for n in range(1, 10):
                for m in range(-3, 4):
                    values = {"n": n, "m": m}
                    assert low <= eval(a, {"min": min}, values) - eval(b, {"min": min}, values) <= high
    assert parse_expr("n", types).kind is Kind.INT
