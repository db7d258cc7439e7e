"""The printed output of passes is read and checked again, also for programs that must fail at run time."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from sw.ir.check import check, problems
from sw.ir.errors import IRError
from sw.ir.expression import Apply, Const, Expr, Op, Var, apply
from sw.ir.parse import parse_program
from sw.ir.program import For, If, Parameter, Program, Statement, While
from sw.ir.scope import retype
from sw.ir.types import INT, Kind
from sw.ir.walk import map_expressions
from sw.passes import PASSES, named
from sw.passes import run as run_passes
from tests.sw.ir.interpret import difference, run, seeded_choice
from tests.sw.random_tile_programs import random_program, sample_parameters

#: Zeros that the checker does not see through.
ZEROS: tuple[Callable[[Var], Expr], ...] = (
    lambda v: apply(Op.SUB, v, v),
    lambda v: apply(Op.BIT_XOR, v, v),
    lambda v: apply(Op.MUL, v, 0),
    lambda v: apply(Op.SUB, apply(Op.ADD, v, 3), apply(Op.ADD, 3, v)),
    lambda v: apply(Op.MOD, apply(Op.MUL, v, 2), 2),
    lambda v: apply(Op.SUB, apply(Op.MIN, v, v), v),
    lambda v: Apply(Op.SELECT, (apply(Op.LT, v, v), Const(1), Const(0))),
)
#: What becomes of an expression, given a zero: most of it fails, or makes a loop endless.
NUMBERS: tuple[Callable[[Expr, Expr], Expr], ...] = (
    lambda e, zero: zero,
    lambda e, zero: apply(Op.ADD, e, zero),
    lambda e, zero: apply(Op.DIV, e, zero),
    lambda e, zero: apply(Op.MOD, e, zero),
    lambda e, zero: apply(Op.DIV, e, e),
    lambda e, zero: apply(Op.ADD, e, apply(Op.ADD, zero, 1000)),
    lambda e, zero: apply(Op.SUB, apply(Op.SUB, e, zero), 1000),
)
TRUTHS: tuple[Callable[[Expr, Expr], Expr], ...] = (
    lambda e, zero: apply(Op.EQ, zero, 0),
    lambda e, zero: apply(Op.NE, zero, 0),
    lambda e, zero: apply(Op.OR, e, apply(Op.EQ, zero, 0)),
    lambda e, zero: apply(Op.AND, e, apply(Op.EQ, apply(Op.DIV, 1, zero), 0)),
)


def failing(rng: random.Random) -> Program | None:
    """A random program with expressions that fail and endless loops; None where the reader refuses it."""
    program = random_program(rng, instructions=4)
    share = rng.choice((0.03, 0.06, 0.15))
    whole = [Var(p.name, p.type) for p in program.parameters if p.type.kind is Kind.INT]
    if not whole:
        program = replace(program, parameters=(*program.parameters, Parameter("z", INT)))
        whole = [Var("z", INT)]

    def change(expr: Expr) -> Expr:
        if rng.random() > share:
            return expr
        zero = rng.choice(ZEROS)(rng.choice(whole))
        return rng.choice(NUMBERS if expr.kind is Kind.INT else TRUTHS)(expr, zero)

    def statement(s: Statement) -> Statement:
        s = map_expressions(s, change)
        if isinstance(s, If):
            return replace(s, body=tuple(map(statement, s.body)), orelse=tuple(map(statement, s.orelse)))
        return replace(s, body=tuple(map(statement, s.body))) if isinstance(s, For | While) else s

    buffers = tuple(replace(b, shape=tuple(map(change, b.shape))) for b in program.buffers)
    made = retype(replace(program, buffers=buffers, body=tuple(map(statement, program.body))))
    return None if problems(made) else parse_program(str(made))


CASES = {"canonicalize": 120, "hoist": 24, "strength-reduce": 24, "dead-store": 60, "redundant-load": 60}


def test_every_pass_has_its_case() -> None:
    assert CASES.keys() == PASSES.keys()


@pytest.mark.parametrize("name", CASES)
def test_what_a_pass_makes_is_read_again(name: str) -> None:
    read = 0
    for seed in range(CASES[name]):
        program = failing(random.Random(seed))
        if program is None:
            continue
        read += 1
        made = run_passes(named([name], registers=16), program)
        again = parse_program(str(made))
        check(again)
        assert again == made
    assert read >= CASES[name] / 3


def test_canonical_form_is_read_again_after_hoisting_and_the_other_way_round() -> None:
    for seed in range(100, 108):
        program = failing(random.Random(seed))
        for names in (["canonicalize", "hoist"], ["hoist", "canonicalize"]):
            made = program and run_passes(named(names, registers=16), program)
            assert made is None or problems(parse_program(str(made))) == []


def test_canonicalising_twice_and_meaning_where_something_stays_as_it_was() -> None:
    compared = 0
    for seed in range(120):
        rng = random.Random(seed)
        program = failing(rng)
        if program is None:
            continue
        made = run_passes(named(["canonicalize"]), program)
        assert run_passes(named(["canonicalize"]), made) == made
        values = sample_parameters(rng, program, tries=3)
        if values is not None:
            first, second = (run(p, values, choice=seeded_choice(seed), steps=5000) for p in (program, made))
            assert difference(first, second) is None
            compared += 1
    assert compared > 10


@pytest.mark.parametrize(
    ("body", "kept"),
    [
        ("s = x // (y - y) + (4 - 1)", "s = x // (y - y) + (4 - 1)"),
        ("s = y - y\nt = x // s", "s = y - y"),
        ("for i in range(0, 4 + x, y - y): t(o=2 + x)", "for i in range(0, 4 + x, y - y):"),
        ("while x - x == y - y: t(read=a)", "while x - x == y - y:"),
        (
            "t(read=a[60 + (x - x) * y], o=1 + x)",
            "t0 = t(read=a[60 + (x - x) * y:60 + (x - x) * y + 1], o=1 + x)",
        ),
        ("for i in range(7 + x - x): t(read=a[10*i:10*i + 10])", "for i in range(7 + x - x):"),
        (
            "if p == p:\n    t(read=a[x - x + y - y + 61])",
            "t0 = t(read=a[x - x + y - y + 61:x - x + y - y + 61 + 1])",
        ),
    ],
)
def test_what_would_be_refused_stays_as_it_was(body: str, kept: str) -> None:
    text = "@program\ndef f(p: bool, x: int, y: int):\n    a: Buffer[60]\n    c: Buffer[60 + x * 0]\n"
    text += "".join(f"    {line}\n" for line in [*body.split("\n"), "last = t(o=y + 3 + x, read=c)"])
    made = run_passes(named(["canonicalize"]), parse_program(text))
    assert kept in [line.strip() for line in str(made).splitlines()]
    assert problems(parse_program(str(made))) == []
    # Only what is concerned: everything else is in canonical form.
    assert "c: Buffer[60]" in str(made)
    assert "o=3 + x + y" in str(made)


def test_a_size_that_cannot_be_positive_stays_as_it_was() -> None:
    made = run_passes(
        named(["canonicalize"]),
        parse_program("@program\ndef f(x: int):\n    a: Buffer[x - x, 2 + 1]\n    t(o=x + 1)\n"),
    )
    assert str(made) == "@program\ndef f(x: int):\n    a: Buffer[x - x, 2 + 1]\n    t0 = t(o=1 + x)\n"


def test_places_in_the_text_are_kept() -> None:
    text = "@program\ndef f(x: int):\n    a: Buffer[x - x]\n    for i in range(3): t(read=a[i + 0])\n"
    program = parse_program(text, "f.py")
    made = run_passes(named(["canonicalize"]), program)
    (loop,), (before,) = made.body, program.body
    assert isinstance(loop, For)
    assert isinstance(before, For)
    assert str(made.buffers[0].where) == "f.py:3:5"
    for s, t in ((loop, before), (loop.body[0], before.body[0])):
        assert str(s.where) == str(t.where)
    with pytest.raises(IRError, match=r"^f.py:4:31: found"):
        check(replace(made, buffers=(replace(made.buffers[0], shape=(Const(1),)),)))
