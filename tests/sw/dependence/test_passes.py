"""Removal of dead stores and redundant loads: the final memory stays the same."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from sw.dependence.passes import LASTING, DeadStore, RedundantLoad
from sw.ir.errors import IRError
from sw.ir.parse import parse_program
from sw.ir.program import Program
from sw.ir.walk import instructions
from sw.passes import run as run_passes
from tests.budget import cases
from tests.sw.ir.interpret import run, seeded_choice
from tests.sw.random_tile_programs import Knobs, random_program, sample_parameters


def labels(program: Program) -> list[str]:
    return [i.label for i in instructions(program)]


def test_a_store_that_is_overwritten_before_it_is_read_is_removed() -> None:
    program = parse_program("""
@program
def p():
    a: Buffer[8]
    dead = f(write=a)
    b = f(write=a[0:4])
    c = f(write=a[4:8])
""")
    assert labels(DeadStore()(program)) == ["b", "c"]


def test_what_only_dead_stores_read_is_dead_too() -> None:
    program = parse_program("""
@program
def p():
    a: Buffer[8]
    s: Buffer[8, int8, scratch]
    t: Buffer[8, int8, scratch]
    one = f(write=s)
    two = f(read=s, write=t)
    three = f(read=a, write=a)
    stays = f(read=a)
""")
    assert labels(DeadStore()(program)) == ["three", "stays"]


def test_a_launch_may_leave_what_lay_there_before() -> None:
    program = parse_program("""
@program
def p():
    a: Buffer[8]
    o: Buffer[8, int8, out]
    first = cgra(write=o)
    second = cgra(write=o)
    store = f(read=o, write=a)
""")
    assert labels(DeadStore()(program)) == ["first", "second", "store"]


def test_a_store_of_rows_with_gaps_leaves_what_lies_between() -> None:
    def stored(region: str, rows: int) -> list[str]:
        return labels(
            DeadStore()(
                parse_program(f"""
@program
def p():
    t: Buffer[14, 4, int8, memory]
    o: Buffer[64, int8, out]
    first = store_out(read=o[0:4], write=t[0:14, 0:4], rows=2, bytes=4, store_stride=28, store_pitch=4)
    last = store_out(read=o[0:48], write=t[{region}], rows={rows}, bytes=24, store_stride=28, store_pitch=24)
""")
            )
        )

    assert stored("0:14, 0:4", 2) == ["first", "last"]
    assert stored("0:6, 0:4", 1) == ["first", "last"]
    program = parse_program("""
@program
def p():
    t: Buffer[8, int8, memory]
    o: Buffer[8, int8, out]
    first = store_out(read=o, write=t, rows=1, bytes=8)
    last = store_out(read=o, write=t, rows=2, bytes=4)
""")
    assert labels(DeadStore()(program)) == ["last"]


def test_a_store_that_is_read_in_a_later_iteration_stays() -> None:
    program = parse_program("""
@program
def p():
    a: Buffer[16]
    s: Buffer[16, int8, scratch]
    for i in range(1000000):
        r = f(read=s[0:8], write=a[0:8])
        w = f(write=s[0:8])
        d = f(write=s[8:16])
""")
    assert labels(DeadStore()(program)) == ["r", "w"]


@pytest.mark.parametrize(
    ("between", "removed"),
    [
        ("", True),
        ("m = f(write=a[0:1])", False),
        ("m = f(write=b[7:8])", False),
        ("m = f(write=a[8:9])", True),
        ("m = f(write=ANY)", False),
        ("m = f(write=a[x:x + 1])", False),
    ],
)
def test_an_equal_instruction_is_removed_if_its_bytes_did_not_change(between: str, removed: bool) -> None:
    program = parse_program(f"""
@program
def p(x: int):
    a: Buffer[16]
    b: Buffer[8]
    one = f(read=a[0:8], write=b)
    {between or "pass"}
    two = f(read=a[0:8], write=b)
""")
    assert ("two" in labels(RedundantLoad()(program))) is not removed


def test_what_may_not_have_happened_makes_nothing_redundant() -> None:
    program = parse_program("""
@program
def p(q: bool, n: int):
    a: Buffer[16]
    b: Buffer[8]
    one = f(read=a[0:8], write=b, when=q)
    two = f(read=a[0:8], write=b)
    three = f(read=a[0:8], write=b, when=q)
    for i in range(n):
        four = f(read=a[8:16], write=b)
    five = f(read=a[8:16], write=b)
    six = f(read=b, write=b)
    seven = f(read=b, write=b)
""")
    assert labels(RedundantLoad()(program)) == ["one", "two", "four", "five", "six", "seven"]


def test_what_happened_on_one_side_of_a_branch_under_a_predicate_makes_nothing_redundant() -> None:
    program = parse_program("""
@program
def p(q: bool, r: bool):
    a: Buffer[8]
    b: Buffer[8]
    if q:
        one = f(read=a, write=b, when=r)
    else:
        two = f(read=a, write=b)
    three = f(read=a, write=b)
    if q:
        four = f(read=b, write=a)
    else:
        five = f(read=b, write=a)
    six = f(read=b, write=a)
""")
    assert labels(RedundantLoad()(program)) == ["one", "two", "three", "four", "five"]


@pytest.mark.drawn
@pytest.mark.parametrize("step", [DeadStore(), RedundantLoad()], ids=lambda s: s.name)
def test_memory_is_the_same(step: Callable[[Program], Program]) -> None:
    removed = compared = 0
    count = cases(60, 150)
    for seed in range(count):
        rng = random.Random(seed)
        program = random_program(rng, Knobs(instructions=8, repeated=0.4))
        values = sample_parameters(rng, program)
        if values is None:
            continue
        after = run_passes([step], program)  # type: ignore[list-item]
        removed += len(labels(program)) - len(labels(after))
        choice = seeded_choice(seed)
        try:
            expected = run(program, values, choice=choice, steps=2000)
        except IRError:
            continue
        got = run(after, values, choice=choice, steps=2000)
        compared += 1
        for buffer in program.buffers:
            if buffer.space in LASTING:
                same = (expected.memory[buffer.name] == got.memory[buffer.name]).all()
                assert same, f"seed {seed}: {buffer.name}\n{program}\n{after}"
    assert compared > 0.6 * count
    assert removed > count * 12 // 150
