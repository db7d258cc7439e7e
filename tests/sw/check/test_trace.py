"""Traces equal what the interpreter executes."""

import random
import textwrap

import numpy as np
import pytest

from sw.check.trace import TooLongError, Trace, trace
from sw.ir.errors import IRError
from sw.ir.expression import evaluate
from sw.ir.parameters import assignments
from sw.ir.parse import parse_program
from sw.ir.program import Program
from sw.ir.types import Kind
from sw.ir.vector import evaluate_rows
from tests.sw.ir.interpret import ENTRY, loops_around, run
from tests.sw.random_expressions import expression, values, variables
from tests.sw.random_tile_programs import Knobs, random_program, sample_parameters


def program_of(text: str) -> Program:
    """A program from indented text."""
    return parse_program(textwrap.dedent(text))


def instances(made: Trace) -> list[tuple[str, tuple[int, ...]]]:
    """Label and iteration of all instances by time."""
    found: list[tuple[str, tuple[int, ...]] | None] = [None] * made.count
    for rows in made.rows:
        for t, numbers in zip(rows.time.tolist(), rows.iteration.T.tolist(), strict=True):
            assert found[t] is None
            found[t] = rows.instruction.label, tuple(numbers)
    assert None not in found
    return [f for f in found if f is not None]


def sources(made: Trace, shapes: dict[str, tuple[int, ...]]) -> list[set[int]]:
    """By time, the instances that wrote what each instance reads; -1 for what was there before."""
    writers = {name: np.full(shape, -1) for name, shape in shapes.items()}
    found: list[set[int]] = [set() for _ in range(made.count)]
    order = sorted((t, n, i) for n, rows in enumerate(made.rows) for i, t in enumerate(rows.time.tolist()))
    for t, n, i in order:
        for boxes, writes in ((made.rows[n].reads, False), (made.rows[n].writes, True)):
            for b in boxes:
                assert b is not None
                box = [*zip(b.start[:, i].tolist(), b.stop[:, i].tolist(), strict=True)]
                if any(high <= low for low, high in box):
                    continue
                index = tuple(slice(low, high) for low, high in box)
                if writes:
                    writers[b.buffer][index] = t
                else:
                    found[t] |= set(writers[b.buffer][index].ravel().tolist())
    return found


@pytest.mark.parametrize("seed", range(150))
def test_instances_and_regions_are_those_of_a_run(seed: int) -> None:
    rng = random.Random(seed)
    program = random_program(rng, Knobs(whiles=0, unknown=0, scalars=0.2))
    given = sample_parameters(rng, program)
    if given is None:
        pytest.skip("no run without an error was found")
    execution = run(program, given)
    made = trace(program, given)
    executed = list(execution.reads)
    assert instances(made) == [(i.label, i.iteration) for i in executed]
    shapes = {b.name: tuple(evaluate(e, given) for e in b.shape) for b in program.buffers}
    by_time = [ENTRY, *executed]
    for seen, expected in zip(sources(made, shapes), execution.reads.values(), strict=True):
        assert {by_time[t + 1] for t in seen} == set(expected)
    loops = loops_around(program)
    assert all(len(r.loops) == len(loops[r.instruction.label]) for r in made.rows)


def test_regions_of_a_ragged_nest() -> None:
    made = trace(
        program_of(
            """
            @program
            def ragged(n: int[0, 100], p: bool):
                a: Buffer[100]
                for i in range(0, n, 4):
                    for j in range(i // 4):
                        R = f(read=a[i : min(i + 4, n)], write=a[j : j + 1], when=p or j != 1)
                S = g(read=a[0:n])
            """
        ),
        {"n": 10, "p": 0},
    )
    r, s = made.rows
    assert [made.name(t) for t in range(made.count)] == ["R[1, 0]", "R[2, 0]", "S"]
    assert r.time.tolist() == [0, 1]
    assert s.time.tolist() == [2]
    read, write = r.reads[0], r.writes[0]
    assert read is not None
    assert write is not None
    assert read.start.tolist() == [[4, 8]]
    assert read.stop.tolist() == [[8, 10]]
    assert write.stop.tolist() == [[1, 1]]
    assert r.loops == (0, 1)


def test_scalars_handed_on_between_iterations() -> None:
    program = program_of(
        """
        @program
        def carried(n: int[0, 9]):
            a: Buffer[100]
            x = 1
            for i in range(n):
                if i % 2 == 0:
                    x = x * 3
                I = f(read=a[x : x + 1])
            L = f(read=a[x : x + 1])
        """
    )
    inner, last = trace(program, {"n": 6}).rows
    read, end = inner.reads[0], last.reads[0]
    assert read is not None
    assert end is not None
    assert read.start.tolist() == [[3, 3, 9, 9, 27, 27]]
    assert end.start.tolist() == [[27]]
    none = trace(program, {"n": 0})
    assert [r.time.size for r in none.rows] == [0, 1]


def test_a_long_run_is_refused_before_it_is_followed() -> None:
    program = program_of(
        """
        @program
        def long():
            a: Buffer[16]
            for i in range(100000):
                for j in range(100000):
                    I = f(read=a[j % 16 : j % 16 + 1])
                J = f(read=a[0:1])
        """
    )
    with pytest.raises(TooLongError, match="more than 5,000 instances"):
        trace(program, most=5000)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("for i in range(0, 4, x):\n        I = f(read=a[0:1])", "step x = 0"),
        ("for i in range(4):\n        I = f(read=a[i // x : 4])", "a division by zero in i // x"),
        ("for i in range(4):\n        I = f(read=a[i : i + 98])", "the region a[3:101] in iteration I[3]"),
        ("if x == 0:\n        y = 1\n    else:\n        z = 1\n    I = f(read=a[0:z])", "'z' before"),
        ("while x == 0:\n        I = f(read=a[0:1])", "a while loop"),
    ],
)
def test_what_fails_at_run_time(text: str, found: str) -> None:
    program = parse_program(f"@program\ndef bad(x: int[0, 2]):\n    a: Buffer[100]\n    {text}\n".strip())
    with pytest.raises(IRError) as error:
        trace(program, {"x": 0})
    assert found in str(error.value)


@pytest.mark.parametrize("seed", range(200))
def test_expressions_of_arrays(seed: int) -> None:
    rng = random.Random(seed)
    known = variables(rng)
    expr = expression(rng, known, 4, rng.choice((Kind.INT, Kind.BOOL)))
    rows = [values(rng, known) for _ in range(20)]
    columns = {v.name: np.array([row[v.name] for row in rows]) for v in known}
    found, wrong = (np.broadcast_to(x, 20) for x in evaluate_rows(expr, columns))
    for n, row in enumerate(rows):
        try:
            assert found[n] == evaluate(expr, row)
            assert not wrong[n]
        except ZeroDivisionError:
            assert wrong[n]


def test_all_values_of_few_parameters_and_some_of_many() -> None:
    few = parse_program("@program\ndef few(p: bool, n: int[2, 5]):\n    a: Buffer[4]\n")
    found, complete = assignments(few, 6)
    assert complete
    assert found == [{"p": p, "n": n} for p in range(2) for n in range(2, 5)]
    found, complete = assignments(few, 5)
    assert not complete
    assert {"p": 0, "n": 2} in found
    assert len(found) <= 5
    endless = parse_program("@program\ndef endless(n: int):\n    a: Buffer[4]\n")
    assert not assignments(endless, 1000)[1]
