"""The interpreter: hand-written cases, expressions against Python's, when two programs mean the same."""

from __future__ import annotations

import ast
import random

import numpy as np
import pytest

from hw.errors import InputError
from hw.semantics import wrap
from sw.ir.errors import IRError
from sw.ir.expression import Expr, evaluate
from sw.ir.parse import parse_expr, parse_program
from sw.ir.program import Program
from sw.ir.types import HIGH, LOW, Kind
from sw.ir.walk import expressions, statements
from tests.sw.ir.interpret import (
    ENTRY,
    EndlessError,
    Execution,
    Instance,
    OutsideError,
    difference,
    run,
    seeded_choice,
)
from tests.sw.random_tile_programs import random_expr, random_program, sample_run


def program(body: str, parameters: str = "p: bool, x: int[0, 61]") -> Program:
    lines = "".join(f"    {line}\n" for line in body.strip("\n").splitlines())
    return parse_program(f"@program\ndef f({parameters}):\n    a: Buffer[60]\n{lines}")


def ran(body: str, p: int = 1, x: int = 7, **options: int) -> Execution:
    return run(program(body), {"p": p, "x": x}, **options)  # type: ignore[arg-type]


# Expressions


class Word(int):
    """An integer of 32 bits with Python's operators."""

    def __new__(cls, value: int) -> Word:
        return super().__new__(cls, wrap(value))


for _name in ("add", "sub", "mul", "floordiv", "mod", "and", "or", "xor"):
    _method = f"__{_name}__"
    setattr(Word, _method, lambda a, b, m=_method: Word(getattr(int, m)(a, b)))
Word.__neg__ = lambda a: Word(-int(a))  # type: ignore[method-assign,assignment]
Word.__lshift__ = lambda a, b: Word(int(a) << int(b) % 32)  # type: ignore[method-assign,assignment]
Word.__rshift__ = lambda a, b: Word(int(a) >> int(b) % 32)  # type: ignore[method-assign,assignment]


class _Words(ast.NodeTransformer):
    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        if isinstance(node.value, bool):
            return node
        return ast.Call(ast.Name("Word", ast.Load()), [node], [])


def by_python(expr: Expr, values: dict[str, int]) -> int | None:
    """The value of the printed text as Python computes it; None for a division by zero."""
    tree = ast.fix_missing_locations(_Words().visit(ast.parse(str(expr), mode="eval")))
    names = {n: bool(v) if n in "pq" else Word(v) for n, v in values.items()}
    try:
        return int(eval(compile(tree, "", "eval"), {"Word": Word, "min": min, "max": max}, names))
    except ZeroDivisionError:
        return None


def test_expressions_mean_what_python_computes_on_words() -> None:
    types = {"x": "int32", "y": "int[-3,64]", "p": "bool", "q": "bool"}
    variables = parse_expr("p and q and x + y < 0", types).variables()
    zeros = 0
    for seed in range(3000):
        rng = random.Random(seed)
        expr = random_expr(rng, variables, 4, rng.choice(list(Kind)))
        edges = (LOW, HIGH - 1, -1, 0, 1, rng.randrange(-40, 40), rng.randrange(LOW, HIGH))
        values = {"x": rng.choice(edges), "y": rng.randrange(-3, 64), "p": seed & 1, "q": seed >> 1 & 1}
        try:
            found: int | None = evaluate(expr, values)
        except ZeroDivisionError:
            found, zeros = None, zeros + 1
        assert found == by_python(expr, values), (expr, values)
    assert 50 < zeros < 1500


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("-7 // 2", -4),
        ("-7 % 2", 1),
        ("7 % -2", -1),
        ("-2147483648 // -1", LOW),
        ("2147483647 + 1", LOW),
        ("1 << 33", 2),
        ("-8 >> 1", -4),
        ("65536 * 65536", 0),
        ("3 if p else 1 // 0", 3),
        ("1 if p or 1 // 0 == 0 else 2", 1),
    ],
)
def test_expressions_by_hand(text: str, value: int) -> None:
    assert evaluate(parse_expr(text, {"p": "bool"}), {"p": 1}) == value


# Memory and where its bytes come from


def test_differences_may_be_looked_for_in_some_spaces_only() -> None:
    text = "@program\ndef f():\n    a: Buffer[4]\n    c: Buffer[4, int8, acc]\n    {}\n"
    none, some = (run(parse_program(text.format(body))) for body in ("pass", "t(write=c[2])"))
    assert difference(none, some) == "c[2]"
    assert difference(none, some, {"acc"}) == "c[2]"
    assert difference(none, some, {None, "memory"}) is None


def test_bytes_come_from_the_last_write_or_from_entry() -> None:
    found = ran(
        """
w1 = t(write=a[0:32])
r1 = t(read=a[0:32])
w2 = t(write=a[0:16])
r2 = t(read=a[0:32])
w3 = t(write=a[16:32])
r3 = t(read=a[0:60])
"""
    )
    assert found.use_def == {
        "w1": set(),
        "r1": {"w1"},
        "w2": set(),
        "r2": {"w1", "w2"},
        "w3": set(),
        "r3": {"w2", "w3", "entry"},
    }
    assert found.def_use["entry"] == {"r3"}
    assert found.def_use["w1"] == {"r1", "r2"}
    assert found.reads[Instance("r3")] == {Instance("w2"): 16, Instance("w3"): 16, ENTRY: 28}
    assert found.distances == {}


def test_distances_count_iterations_whatever_the_step() -> None:
    found = ran(
        """
for i in range(20, 0, -5):
    w = t(write=a[i:i + 5])
    r = t(read=a[i + 10:i + 11])
    n = t(read=a[i - 5:i - 4])
for j in range(2):
    for k in range(3):
        v = t(write=a[3*j + k])
        u = t(read=a[0:60])
"""
    )
    assert found.distances["w->r"] == {2}
    assert "w->n" not in found.distances
    assert found.distances["v->u"] == {(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2), (1, -1), (1, -2)}
    assert "w->u" not in found.distances
    assert found.reads[Instance("r", (2,))] == {Instance("w", (0,)): 1}
    assert str(Instance("u", (1, 2))) == "u[1, 2]"


def test_loops_of_one_name_side_by_side_have_nothing_in_common() -> None:
    found = ran("for i in range(2): w = t(write=a[i])\nfor i in range(2): r = t(read=a[i])")
    assert found.use_def["r"] == {"w"}
    assert found.distances == {}


def test_boxes_of_two_dimensions_and_wide_elements() -> None:
    made = parse_program(
        """
@program
def f():
    c: Buffer[4, 6, int32]
    w = t(write=c[1:3, 2:4])
    r = t(read=c[2:4, 3:6])
"""
    )
    found = run(made)
    assert found.memory["c"].shape == (4, 6, 4)
    assert found.reads[Instance("r")] == {Instance("w"): 4, ENTRY: 20}
    start = run(parse_program("@program\ndef f():\n    c: Buffer[4, 6, int32]\n"))
    changed = (start.memory["c"] != found.memory["c"]).all(axis=-1)
    assert changed.tolist() == [[1 <= i < 3 and 2 <= j < 4 for j in range(6)] for i in range(4)]
    assert len(np.unique(start.memory["c"])) == 96


def test_predicates_branches_and_empty_intervals_do_nothing() -> None:
    empty = ran("pass").memory["a"]
    for body in (
        "t(write=a, when=not p)",
        "if not p: t(write=a)",
        "t(write=a[5:5])",
        "t(write=a[70:3])",
        "for i in range(5, 2): t(write=a)",
        "t(read=a)",
    ):
        assert np.array_equal(ran(body).memory["a"], empty), body
    assert not np.array_equal(ran("t(write=a[0:x])").memory["a"], empty)


def test_what_is_written_depends_on_name_operands_data_and_place_but_not_on_label() -> None:
    base = ran("P = t(read=a[0:4], write=a[8:12], k=x)")
    same = ("Q = t(read=a[0:4], write=a[8:12], k=x)", "Q = t(read=a[0:4], write=a[8:12], k=7, warp=3)")
    for body in same:
        assert difference(base, ran(body)) is None
    others = (
        "P = u(read=a[0:4], write=a[8:12], k=x)",
        "P = t(read=a[1:5], write=a[8:12], k=x)",
        "P = t(read=a[0:4], write=a[8:12], k=x + 1)",
        "P = t(read=a[0:4], write=a[8:12], j=x)",
        "P = t(read=[a[0:4], a[0:4]], write=a[8:12], k=x)",
    )
    for body in others:
        assert difference(base, ran(body)) == "a[8]"
    assert difference(base, ran("P = t(read=a[0:4], write=a[9:13], k=x)")) == "a[8]"
    assert difference(base, ran("P = t(read=a[0:4], write=a[8:12], k=x)", seed=1)) == "a[0]"


def test_instructions_read_before_they_write_and_later_writes_win() -> None:
    both = ran("P = t(read=a[0:4], write=[a[0:4], a[2:6]])")
    assert both.use_def["P"] == {"entry"}
    memory = both.memory["a"][:6, 0]
    assert len(set(memory.tolist())) == 6
    again = ran("P = t(read=a[0:4], write=a[0:2])\nQ = t(read=a[0:6])\nR = t(write=a[0])\nS = t(read=a[0:2])")
    assert again.use_def == {"P": {"entry"}, "Q": {"P", "entry"}, "R": set(), "S": {"P", "R"}}


def test_intrinsics_read_and_write_the_regions_that_they_declare() -> None:
    found = ran("L = load(memory=a[0:4], target=a[8:12])\nr = t(read=a[8:12])\nM = load(a[0:4], a[20:24])")
    assert found.use_def == {"L": {"entry"}, "r": {"L"}, "M": {"entry"}}
    # Equal loads of equal bytes give equal bytes, wherever they go.
    assert np.array_equal(found.memory["a"][8:12], found.memory["a"][20:24])


def test_unknown_addresses_are_chosen_by_the_caller() -> None:
    made = program("w = t(write=ANY)\nr = t(read=a[0:10])\nu = t(read=ANY)")
    with pytest.raises(IRError, match="found ANY in 'w', expected a choice"):
        run(made, {"p": 0, "x": 0})
    seen = []

    def choice(unknown: object) -> tuple[str, tuple[tuple[int, int], ...]] | None:
        seen.append(unknown)
        return None if len(seen) == 2 else ("a", ((3, 5),))

    found = run(made, {"p": 0, "x": 0}, choice=choice)  # type: ignore[arg-type]
    assert found.reads[Instance("r")] == {Instance("w"): 2, ENTRY: 8}
    assert found.reads[Instance("u")] == {}
    assert [(u.instruction.label, u.writes, u.shapes) for u in seen] == [  # type: ignore[attr-defined]
        ("w", True, {"a": (60,)}),
        ("u", False, {"a": (60,)}),
    ]


def test_seeded_choices_belong_to_the_label_and_its_occurrence() -> None:
    one = run(program("w = t(write=ANY)\nv = t(write=ANY)"), {"p": 0, "x": 0}, choice=seeded_choice(3, 0))
    two = run(program("t(read=a)\nv = t(write=ANY)"), {"p": 0, "x": 0}, choice=seeded_choice(3, 0))
    both = (one.memory["a"] == two.memory["a"]).all()
    start = ran("pass").memory["a"]
    assert not both
    v = [i for i in range(60) if two.memory["a"][i] != start[i]]
    assert v
    assert all(one.memory["a"][i] == two.memory["a"][i] for i in v)


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ("t(read=a[x - 8:3])", "f.py:4:12: found the region a[-1:3], expected one inside of a[0:60]"),
        ("t(write=a[0:x + 54])", "f.py:4:13: found the region a[0:61], expected one inside of a[0:60]"),
        ("for i in range(9): P = t(read=a[i*x:i*x + 8])", "a[56:64] in iteration P[8], expected"),
        ("s = x // (x - 7)", "f.py:4:5: found a division by zero in x // (x - 7), expected a divisor"),
        ("if x % (x - 7) == 0: pass", "a division by zero in x % (x - 7) == 0, expected"),
        ("for i in range(0, 9, x - 7): pass", "f.py:4:5: found step x - 7 = 0, expected a step other than"),
        ("if not p: s = 3\nt(read=a[s])", "f.py:5:12: found 's' before it has a value, expected an"),
        ("while p: pass", "f.py:4:5: found a loop that goes on and on, expected an end within"),
        ("for i in range(2000000000): pass", "f.py:4:5: found a loop that goes on and on, expected an end"),
    ],
)
def test_errors_of_a_run_have_a_place(body: str, text: str) -> None:
    lines = "".join(f"    {line}\n" for line in body.splitlines())
    made = parse_program(f"@program\ndef f(p: bool, x: int):\n    a: Buffer[60]\n{lines}", "f.py")
    kind = OutsideError if "region" in text or "iteration" in text else IRError
    with pytest.raises(EndlessError if "on and on" in text else kind) as caught:
        run(made, {"p": 1, "x": 7}, steps=1000)
    assert text in str(caught.value)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"p": 1}, "parameter 'x' must be given"),
        ({"p": 1, "x": 3, "y": 3}, "f has no parameter 'y', only p, x"),
        ({"p": 1, "x": 61}, "parameter 'x' must be int[0,61], not 61"),
        ({"p": 2, "x": 0}, "parameter 'p' must be bool, not 2"),
        ({"p": 1, "x": 1.5}, "parameter 'x' must be int[0,61], not 1.5"),
    ],
)
def test_parameters_that_do_not_fit(given: dict[str, int], text: str) -> None:
    with pytest.raises(InputError) as caught:
        run(program("pass"), given)
    assert str(caught.value) == text


@pytest.mark.parametrize(("size", "text"), [("x", "size x = 0 of 'a'"), ("1 << 30", "1073741824 bytes")])
def test_buffers_that_cannot_be_made(size: str, text: str) -> None:
    made = parse_program(f"@program\ndef f(x: int):\n    a: Buffer[{size}]\n")
    with pytest.raises(IRError) as caught:
        run(made, {"x": 0})
    assert text in str(caught.value)


def test_random_programs_run_and_agree_with_a_plain_walk_of_their_provenance() -> None:
    ended = 0
    for seed in range(60):
        rng = random.Random(seed)
        made = random_program(rng, instructions=8)
        found = sample_run(rng, made)
        if found is None:
            continue
        values, execution = found
        ended += 1
        read = {v.name for s in statements(made.body) for e in expressions(s) for v in e.variables()}
        assert read & {p.name for p in made.parameters} <= set(values)
        for use, sources in execution.reads.items():
            assert all(source is ENTRY or source in execution.reads for source in sources), use
        assert sum(map(len, execution.use_def.values())) == sum(map(len, execution.def_use.values()))
        assert run(made, values, choice=seeded_choice(0), trace=False).reads == {}
    assert ended > 45
