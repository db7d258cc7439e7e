"""All parameter values: checked one by one, in classes, or reported as not covered."""

from __future__ import annotations

import contextlib
import random
from typing import Any

import numpy as np
import pytest

from sw.check import Verdict, check, check_binding, compile_all
from sw.check.affine import Around, Box, form_of, value
from sw.check.binding import Limits
from sw.check.boxes import DecisionRun, FailsError, middle, whole, without
from sw.check.dependences import pairs
from sw.check.streams import run
from sw.check.trace import TooLongError, trace
from sw.ir.errors import IRError
from sw.ir.expression import Var, evaluate
from sw.ir.parse import parse_program
from sw.ir.types import HIGH, INT, LOW, Kind
from tests.sw.random_tile_programs import random_expr

PRODUCER = "arg r1, n\nloop r1, A\nop P\nsignal 0\nA:\nhalt"
CONSUMER = "arg r1, n\nloop r1, A\nwait 0\nop C\nA:\nhalt"
RIGHT = {0: PRODUCER, 1: CONSUMER}
LATE = {0: PRODUCER, 1: CONSUMER.replace("wait 0\nop C", "op C\nwait 0")}


def program(type_: str, size: str = "60") -> str:
    return f"""
@program
def p(n: {type_}):
    a: Buffer[{size}]
    for i in range(n):
        P = f(write=a[10*i : 10*i + 10], warp=0)
        C = f(read=a[10*i : 10*i + 10], warp=1)
"""


def checked(text: str, texts: dict[int, str], **options: Any) -> Verdict:
    return check(parse_program(text), texts, channels=8, depth=8, pending_signals=8, **options)


def test_few_values_are_taken_one_by_one() -> None:
    found = checked(program("int[0, 5]"), RIGHT)
    assert (found.ok, found.method, found.bindings) == (True, "exact", 5)
    assert found.instances == 2 * (0 + 1 + 2 + 3 + 4)
    assert found.channels[0].tokens == 4


def test_values_for_which_the_program_fails_do_not_count() -> None:
    assert checked(program("int[0, 20]"), RIGHT).bindings == 7


def test_all_values_of_32_bits_in_classes() -> None:
    """Up to 0 there is nothing to do, 1 to 6 fit the buffer, the rest fails."""
    found = checked(program("int"), RIGHT)
    assert (found.ok, found.method, found.bindings) == (True, "exact", 7)
    bad = checked(program("int"), LATE)
    assert not bad.ok
    assert bad.values["n"] > 0


def test_an_unknown_end_of_a_region() -> None:
    text = """
@program
def p(x: int, q: bool):
    a: Buffer[60]
    P = f(write=a[0:20], warp=0)
    C = f(read=a[20:x], when=q, warp=1)
    D = f(write=a[x:60], warp=0)
"""
    texts = {0: "op P\nwait 0\nop D\nhalt", 1: "arg r1, q\n@r1 op C\nsignal 0\nhalt"}
    found = checked(text, texts)
    assert (found.ok, found.method) == (True, "exact")
    # D starts where C ends, so C need not come first.
    assert checked(text, {0: "op P\nop D\nhalt", 1: texts[1].replace("signal 0\n", "")}).ok
    bad = checked(text.replace("a[x:60]", "a[x-1:60]"), {0: "op P\nop D\nhalt", 1: texts[1]})
    assert not bad.ok
    assert bad.values["x"] > 20
    assert bad.values["q"] == 1


def test_loops_without_bound_cannot_be_shown_for_all() -> None:
    """Two channels keep the warps together, so that none overflows however long the loop."""
    text = program("int[1, 10000]", "10*n")
    texts = {
        0: "arg r1, n\nloop r1, A\nwait 1\nop P\nsignal 0\nA:\nhalt",
        1: "signal 1\narg r1, n\nloop r1, A\nwait 0\nop C\nsignal 1\nA:\nhalt",
    }
    strict, lenient = checked(text, texts), checked(text, texts, samples_suffice=True)
    assert (strict.ok, strict.method, lenient.ok, lenient.method) == (False, "sampled", True, "sampled")
    assert strict.reason.startswith("cannot be shown for all values of the parameters: too many steps")
    assert strict.reason.endswith("that were tried")
    bad = checked(text, RIGHT, samples_suffice=True)
    assert (bad.ok, bad.method, dict(bad.values)) == (False, "exact", {"n": 9})
    assert "can overflow" in bad.reason


def test_a_program_that_runs_for_no_value() -> None:
    text = "@program\ndef p(x: int[9, 4000]):\n    a: Buffer[8]\n    A = f(write=a[0:x], warp=0)\n"
    with pytest.raises(IRError, match=r"the region a\[0:9\]"):
        checked(text, {0: "op A\nhalt"})


def test_a_run_that_is_too_long_says_nothing_of_the_program() -> None:
    loop = "    for i in range(n):\n        A = f(read=a[i - n:8], warp=0)\n"
    text = f"@program\ndef p(n: int):\n    a: Buffer[8]\n{loop}"
    with pytest.raises(TooLongError, match="found a program of more than 50,000,000 instances"):
        trace(parse_program(text), {"n": 60_000_000})
    with pytest.raises(IRError, match=r"the region a\[-3:8\]") as found:
        trace(parse_program(text), {"n": 3})
    assert not isinstance(found.value, TooLongError)


def facts(text: str, texts: dict[int, str], values: dict[str, int]) -> object:
    """Streams and dependences for some values; None where the program fails."""
    parsed = parse_program(text)
    try:
        made = trace(parsed, values)
    except IRError:
        return None
    linked: set[tuple[int, int]] = set()
    for a, b in pairs(made):
        linked.update(zip(a.tolist(), b.tolist(), strict=True))
    warps = compile_all(parsed, texts, Limits())
    streams = {w: run(code, values) for w, code in warps.items()}
    return linked, {w: (s.events.tolist(), _rows(s.values)) for w, s in streams.items()}


def _rows(values: Any) -> dict[int, list[list[int]]]:
    return {site: rows.shape for site, rows in values.items()}


def inside(rng: random.Random, box: Box) -> dict[str, int]:
    """Values within a box, often at its corners."""
    return {name: rng.choice((low, high, rng.randint(low, high))) for name, (low, high) in box.items()}


TEXT = """
@program
def p(n: int, x: int, q: bool):
    a: Buffer[40]
    c: Buffer[20, 8]
    y = x // 3 + 1
    for i in range(n):
        P = f(write=a[min(5*i, x) : 5*i + 5], warp=0)
        if 2*i < x or q:
            C = f(read=[a[y : x + i], c[i, 0 : x - y]], warp=1)
        else:
            D = f(write=c[x % 5 : 10], when=x > n, warp=1)
"""
TEXTS = {
    0: "arg r1, n\nloop r1, A\nop P\nsignal 0\nA:\nhalt",
    1: """arg r1, n
arg r2, x
arg r3, q
loop r1, A
wait 0
shli r5, r4, 1
lt r5, r5, r2
or r5, r5, r3
@r5 op C
lt r6, r1, r2
select r6, r0, r5, r6
@r6 op D
addi r4, r4, 1
A:
halt""",
}


def test_ends_of_regions_are_told_apart() -> None:
    text = """
@program
def p(x: int, y: int):
    a: Buffer[60]
    P = f(write=a[0 : x], warp=0)
    C = f(read=a[{}], warp=1)
"""
    apart = {0: "op P\nhalt", 1: "op C\nhalt"}
    found = checked(text.format("x : 60"), apart)
    assert (found.ok, found.method, found.dependences) == (True, "exact", 0)
    assert found.bindings > 1
    bad = checked(text.format("x - 1 : 60"), apart)
    assert not bad.ok
    assert bad.values["x"] > 0


def random_program(rng: random.Random) -> tuple[str, dict[int, str]]:
    """A few instructions at places that depend on a parameter, and waits and signals between some of them."""
    lines, rows = ["    y = x // 3"], {w: ["arg r1, q"] for w in range(3)}
    owner = [rng.randrange(3) for _ in range(rng.randint(2, 5))]
    for n, w in enumerate(owner):
        ends = [rng.choice(("0", "4", "x", "y", "x - 9", "y + 3", "min(x, 8)", "12")) for _ in range(2)]
        side, when = rng.choice(("read", "write", "write")), rng.random() < 0.3
        lines.append(f"    I{n} = f({side}=a[{ends[0]} : {ends[1]}], warp={w}{', when=q' if when else ''})")
        if n and owner[n - 1] != w and rng.random() < 0.8:
            channel = 3 * owner[n - 1] + w
            rows[owner[n - 1]].append(f"signal {channel}")
            rows[w].append(f"wait {channel}")
        rows[w].append(f"{'@r1 ' if when else ''}op I{n}")
    head = "@program\ndef p(x: int[0, 40], q: bool):\n    a: Buffer[12]\n"
    return head + "\n".join(lines) + "\n", {w: "\n".join([*r, "halt"]) for w, r in rows.items()}


@pytest.mark.parametrize("seed", range(40))
def test_classes_give_what_every_value_gives(seed: int) -> None:
    text, texts = random_program(random.Random(seed))
    parsed, limits = parse_program(text), Limits(9, 8)
    warps = compile_all(parsed, texts, limits)
    wanted = {}
    for x in range(40):
        for q in range(2):
            with contextlib.suppress(IRError):
                wanted[x, q] = check_binding(parsed, warps, {"x": x, "q": q}, limits).ok
    found = check(parsed, texts, channels=9, depth=8, pending_signals=8)
    assert found.method == "exact"
    assert found.ok == all(wanted.values())
    assert found.ok or not wanted[found.values["x"], found.values["q"]]


def test_all_of_a_class_is_alike() -> None:
    """Random values, and for the box around each, its corners and values from within."""
    parsed = parse_program(TEXT)
    warps = compile_all(parsed, TEXTS, Limits())
    rng = random.Random(1)
    alike = 0
    for _ in range(60):
        values = {"n": rng.randint(-2, 9), "x": rng.randint(-5, 45), "q": rng.randrange(2)}
        around = Around(values, whole(parsed))
        walk = DecisionRun(around, 10_000)
        wanted = facts(TEXT, TEXTS, values)
        try:
            walk.program(parsed)
        except FailsError:
            assert wanted is None
        else:
            assert wanted is not None
            for code in warps.values():
                walk.warp(code)
        for _ in range(6):
            other = inside(rng, around.box)
            if other["n"] < 1000:
                assert facts(TEXT, TEXTS, other) == wanted
                alike += other != values
    assert alike > 50


def test_numbers_follow_the_parameters() -> None:
    """In all of the box that is left, an expression has the value that its form says."""
    rng = random.Random(2)
    variables = [Var("x", INT), Var("y", INT)]
    wide = 0
    for _ in range(600):
        expr = random_expr(rng, variables, 3, rng.choice((Kind.INT, Kind.BOOL)))
        values = {"x": rng.choice((rng.randint(-9, 70), LOW, HIGH - 1)), "y": rng.randint(-9, 70)}
        around = Around(values, {"x": (LOW, HIGH - 1), "y": (LOW, HIGH - 1)})
        try:
            found = evaluate(expr, around.parameters)
        except ZeroDivisionError:
            with pytest.raises(ZeroDivisionError):
                evaluate(expr, values)
            continue
        assert value(found) == evaluate(expr, values)
        for _ in range(8):
            other = inside(rng, around.box)
            there = form_of(found).bounds(lambda name, at=other: (at[name], at[name]))  # type: ignore[misc]
            assert set(there) == {evaluate(expr, other)}, (str(expr), values, other)
            wide += other != values
    assert wide > 1000


def test_boxes_are_taken_apart_without_rest() -> None:
    rng = np.random.default_rng(3)
    for _ in range(50):
        box = {name: (0, int(rng.integers(1, 8))) for name in "xyz"}
        part = {n: tuple(sorted(rng.integers(0, high + 1, 2).tolist())) for n, (_, high) in box.items()}
        pieces = [*without(box, part), part]
        points = [
            sum(all(low <= v <= high for v, (low, high) in zip(at, p.values(), strict=True)) for p in pieces)
            for at in np.ndindex(*(high + 1 for _, high in box.values()))
        ]
        assert set(points) == {1}
        assert all(
            low <= v <= high for v, (low, high) in zip(middle(box).values(), box.values(), strict=True)
        )
