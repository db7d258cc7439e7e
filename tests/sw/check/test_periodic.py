"""Unbounded loops: what is proved for all numbers of iterations holds, and near misses are not proved."""

from __future__ import annotations

import dataclasses
import random
from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest

from hw.config import MachineConfig
from hw.errors import InputError
from sw.check import Limits, Verdict, check, check_binding, compile_all
from sw.check.checker import WrongError
from sw.check.repeated_loops import UnlikeError
from sw.check.streams import run
from sw.check.symbolic import Symbolic
from sw.ir.expression import Expr, Op, evaluate, fold
from sw.ir.parse import parse_program
from sw.ir.program import For, Instruction, Program, Region
from sw.ir.types import HIGH
from sw.ir.walk import instructions
from sw.warps.convert import convert
from sw.warps.text import warp_assembly
from tests.sw.check.cases import Case
from tests.sw.check.endless import Endless
from tests.sw.random_tile_programs import random_expr
from tests.sw.warps.samples import values_of

ROTATION = """
@program
def p(n: {type}):
    a: Buffer[40]
    for i in range({bound}):
        P = f(write=a[{place} : {place} + 10], warp=0)
        C = f(read=a[{place} : {place} + 10], warp=1)
"""
SECOND = """
    for i in range(m):
        Q = f(write=a[(i % 4)*10 : (i % 4)*10 + 10], warp=0)
        R = f(read=a[(i % 4)*10 : (i % 4)*10 + 10], warp=1)
"""
PRODUCER = "arg r1, n\nloop r1, A\nwait 1\nop P\nsignal 0\nA:\nhalt"
CONSUMER = "arg r1, n\nloop r1, A\nwait 0\nop C\nsignal 1\nA:\nhalt"


def rotation(type_: str = "int", bound: str = "n", place: str = "(i % 4)*10") -> str:
    return ROTATION.format(type=type_, bound=bound, place=place)


def texts(lead: int = 4) -> dict[int, str]:
    return {0: PRODUCER, 1: "signal 1\n" * lead + CONSUMER}


def argument(program: Program, given: Mapping[int, str] | None = None) -> Symbolic:
    """The argument for the parameter `n`, by default without warps."""
    limits = Limits(16, 8)
    warps = {} if given is None else compile_all(program, given, limits)
    return Symbolic.of(program, warps, ["n"], {}, limits.depth)


def checked(text: str, given: Mapping[int, str], depth: int = 8) -> Verdict:
    return check(parse_program(text), given, channels=16, depth=depth, pending_signals=8)


@pytest.mark.parametrize("type_", ["int", "int[0, 100000]", "int[-5, 100000]", "int[70, 9999]"])
def test_a_rotation_without_bound(type_: str) -> None:
    found = checked(rotation(type_), texts())
    assert (found.ok, found.method, found.reason) == (True, "symbolic", "")
    assert {c: flow.most for c, flow in found.channels.items()} == {0: 4, 1: 4}


def test_what_heald_makes_of_it() -> None:
    text = """
@program
def p(n: int, q: bool):
    a: Buffer[40]
    b: Buffer[20]
    for o in range(2):
        for i in range(n):
            P = f(write=a[(i % 4)*10 : (i % 4)*10 + 10], warp=0)
            for j in range(2):
                C = f(read=a[(i % 4)*10 : (i % 4)*10 + 10], write=b[(i % 2)*10 : (i % 2)*10 + 10], warp=1)
    if q:
        E = f(read=b[0:20], warp=2)
    for i in range(n):
        Q = f(write=b[(i % 2)*10 : (i % 2)*10 + 10], warp=0)
        R = f(read=b[(i % 2)*10 : (i % 2)*10 + 10], warp=2)
"""
    config = MachineConfig()
    source = parse_program(text)
    program = convert(source, config, values=values_of(source)).program
    made = {w: warp_assembly(program, w, config, "p") for w in range(3)}
    found = checked(text, made)
    assert (found.ok, found.method) == (True, "symbolic")


def test_two_parameters() -> None:
    text = rotation("int[0, 5000], m: int") + SECOND
    made = {
        0: PRODUCER.replace("halt", "arg r2, m\nloop r2, B\nwait 1\nop Q\nsignal 0\nB:\nhalt"),
        1: CONSUMER.replace("halt", "arg r2, m\nloop r2, B\nwait 0\nop R\nsignal 1\nB:\nhalt"),
    }
    # The second loop begins with the first place again, wherever the first loop ended.
    found = checked(text, {0: made[0], 1: "signal 1\n" + made[1]})
    assert (found.ok, found.method) == (True, "symbolic")
    bad = checked(text, {0: made[0], 1: "signal 1\n" * 2 + made[1]})
    assert not bad.ok
    assert dict(bad.values) == {"n": 1, "m": 1}
    more = made[1].replace("arg r2", "signal 1\n" * 4 + "arg r2")
    late = checked(text, {0: made[0], 1: "signal 1\n" + more})
    assert not late.ok
    assert late.values["m"] == 5


def test_wrong_leads_have_a_counterexample() -> None:
    for lead in (5, 6, 8):
        bad = checked(rotation(), texts(lead))
        assert (bad.ok, bad.method, dict(bad.values)) == (False, "exact", {"n": 5})
        assert bad.reason.startswith("P[4] (warp 0, line 4) can run too early: it overwrites a[0:10]")
    stops = checked(rotation(), texts(0))
    assert (stops.deadlock, dict(stops.values)) == (True, {"n": 1})
    full = checked(rotation(), texts(4), depth=3)
    assert "can overflow" in full.reason


NESTED = """
@program
def p(n: int):
    a: Buffer[8]
    for i in range(n):
        for j in range(n):
            P = f(write=a[0:8], warp=0)
"""
SMALL = "int[0, 9000]"


@pytest.mark.parametrize(
    "text",
    [
        # Where: the place rises, a product wraps at 2^32, the parameter itself.
        rotation(place="i").replace("40]", "100000]"),
        rotation(place="(i*7 % 3)*10"),
        rotation(SMALL, place="((i + n) % 4)*10"),
        rotation(SMALL).replace("40]", "40 + n]"),
        # How often: other steps, factors, two loops in each other, a sum that wraps.
        rotation(SMALL, "0, n, 2"),
        rotation(SMALL, "2*n"),
        rotation(SMALL, "min(n, 7)"),
        rotation("int", "n + 1"),
        NESTED,
        # Whether: a decision by the number of the iteration, or by the parameter.
        rotation(SMALL).replace("warp=1", "when=i > 3, warp=1"),
        rotation(SMALL).replace("warp=1", "when=n > 3, warp=1"),
        # What is handed on, to the next iteration or behind the loop.
        rotation(SMALL, place="x").replace("    for", "    x = 0\n    for") + "        x = (x + 10) % 40\n",
        rotation(SMALL) + "        x = i % 4\n    E = f(write=a[x : 40], warp=0)\n",
    ],
)
def test_programs_that_depend_on_more_than_the_number(text: str) -> None:
    with pytest.raises(UnlikeError):
        argument(parse_program(text))


def test_programs_that_do_not() -> None:
    for text, period in (
        (rotation(), 4),
        (rotation(SMALL, "1, n + 3"), 4),
        (rotation(place="(i*7 % 4)*10"), 4),
        (rotation(SMALL, place="(i*7 % 3)*10"), 3),
        (rotation(place="(i // 3 % 2)*10"), 6),
        (rotation(place="(i & 3)*10").replace("warp=1", "when=i % 3 == 0, warp=1"), 12),
    ):
        assert argument(parse_program(text)).period == period, text


@pytest.mark.parametrize(
    "text",
    [
        "arg r1, n\nloop r1, A\naddi r2, r2, 1\n@r2 op P\nA:\nhalt",
        "arg r1, n\nloop r1, A\n@r2 op P\nli r2, 1\nA:\nhalt",
        "arg r1, n\nloop r1, A\nop P\naddi r2, r2, 1\nA:\n@r2 signal 0\nhalt",
        "arg r1, n\nloop r1, A\naddi r2, r2, 1\nloop r2, B\nop P\nB:\nA:\nhalt",
        "arg r1, n\nloop r1, A\nxori r2, r2, 1\n@r2 jump C\nop P\nC:\nA:\nhalt",
        "arg r1, n\nloop r1, A\nop P\naddi r2, r2, 1\ndiv r3, r1, r2\nA:\nhalt",
        "arg r1, n\nloop r1, A\naddi r2, r2, 1\nparam load_fill, r2\nA:\nhalt",
        "arg r1, n\nloop r1, A\nloop r1, B\nop P\nB:\nA:\nhalt",
        "arg r1, n\nloop r1, A\nop P\nhalt\nA:\nhalt",
        "arg r1, n\n@r1 loop r1, A\nop P\nA:\nhalt",
        "arg r1, n\nmuli r1, r1, 2\nloop r1, A\nop P\nA:\nhalt",
        "arg r1, n\n@r1 op P\nhalt",
        "arg r1, n\nlti r1, r1, 5\n@r1 op P\nhalt",
        "arg r1, n\nloop r1, A\nli r2, 1\nA:\n@r1 li r2, 0\n@r2 op P\nhalt",
        "li r4, 2\narg r1, n\nloop r4, B\nloop r1, A\nop P\nA:\naddi r1, r1, 1\nB:\nhalt",
        "arg r1, n\naddi r1, r1, 1\nloop r1, A\nop P\nA:\nhalt",
    ],
)
def test_warps_that_depend_on_more_than_the_number(text: str) -> None:
    with pytest.raises(UnlikeError):
        argument(parse_program(rotation()), {0: text})


def test_warps_that_do_not() -> None:
    program = parse_program(rotation("int[0, 900]"))
    for text, offsets in (
        ("addi r1, r1, 3\nsubi r1, r1, 4\nloop r1, A\nli r2, 1\n@r2 op P\nA:\n@r2 op P", [-1]),
        ("add r2, r1, r0\nloop r2, A\naddi r4, r4, 1\nop P\nA:\nloop r1, B\nop P\nB:", [0, 0]),
        ("li r4, 3\nloop r4, B\nloop r1, A\nop P\nA:\naddi r5, r5, 1\n@r5 op P\nB:", [0, 0, 0]),
    ):
        made = {0: f"arg r1, n\n{text}\nhalt"}
        found = argument(program, made)
        stream = found.found[(found.full["n"],)].warps[0]
        assert [offset for *_, offset in stream.loops] == offsets
        for n in range(found.full["n"], 20):
            whole = run(compile_all(program, made, Limits())[0], {"n": n})
            assert stream.run({"n": n}, [])[0].events.tolist() == whole.events.tolist()


def test_bodies_repeat_after_their_period() -> None:
    """Random places: what is said to repeat does."""
    rng = random.Random(4)
    shown = 0
    for _ in range(1500):
        head = f"@program\ndef p(n: int[0, {rng.choice((9000, 2**31 - 9))}]):\n    a: Buffer[{HIGH - 1}]\n"
        place = f"a[i:{HIGH - 1}]"
        program = parse_program(f"{head}    for i in range(n):\n        P = f(write={place}, warp=0)\n")
        (loop,) = program.body
        assert isinstance(loop, For)
        (access,) = instructions(program)[0].writes
        assert isinstance(access, Region)
        variable = access.box[0].start.variables()[0]
        expr = random_expr(rng, [variable], rng.randint(1, 3), variable.kind)
        if rng.random() < 0.8:
            expr = fold(rng.choice((Op.MUL, Op.ADD, Op.DIV)), expr, rng.randint(1, 7)) % rng.randint(2, 9)
        if not expr.variables():
            continue
        try:
            found = argument(_at(program, expr))
        except UnlikeError:
            continue
        shown += 1
        last = program.parameters[0].type.high - 1 - found.period
        for _ in range(20):
            i = rng.choice((rng.randrange(40), rng.randrange(last), last - rng.randrange(40)))
            assert _value(expr, i) == _value(expr, i + found.period), str(expr)
    assert shown > 100


def _value(expr: Expr, i: int) -> int | None:
    """The value, None for a division by zero."""
    try:
        return evaluate(expr, {"i": i})
    except ZeroDivisionError:
        return None


def _at(program: Program, expr: Expr) -> Program:
    """The program with another place of its instruction."""
    (loop,) = program.body
    assert isinstance(loop, For)
    (s,) = loop.body
    assert isinstance(s, Instruction)
    (access,) = s.writes
    assert isinstance(access, Region)
    box = (dataclasses.replace(access.box[0], start=expr),)
    made = dataclasses.replace(s, writes=(dataclasses.replace(access, box=box),))
    return dataclasses.replace(program, body=(dataclasses.replace(loop, body=(made,)),))


def test_faults_of_a_warp_are_told() -> None:
    text = rotation() + "    E = gemm(0, 0, 0, 0, read=a[0:1], warp=1)\n"
    for change, said in (
        ("arg r1, m", "warp 1: the program has no parameter m"),
        ("li r2, -1\ngemm r2, r0, r0, r0", "gemm: a must fit 20 bits, not 4294967295"),
        ("div r2, r0, r3", "division by zero"),
    ):
        with pytest.raises(InputError, match=said):
            checked(text, {**texts(), 1: texts()[1].replace("halt", f"{change}\nhalt")})


@pytest.mark.parametrize("block", range(4))
def test_what_is_shown_holds_for_more_iterations(block: int) -> None:
    """Random programs and waits and signals: no run that is longer is wrong."""
    kinds: Counter[str] = Counter()
    for seed in range(45 * block, 45 * block + 45):
        rng = random.Random(f"endless {seed}")
        case, depth = Endless(rng).case(rng.choice((0, 0, 0, 1, 2))), rng.choice((1, 2, 4, 8))
        kinds[shown(case, depth, rng)] += 1
    assert min(kinds["right"], kinds["wrong"]) > 2
    assert kinds["later"] == 0


def shown(case: Case, depth: int, rng: random.Random) -> str:
    """What the argument says of a case; "later" where a longer run shows that it is mistaken."""
    limits = Limits(16, depth)
    warps = compile_all(case.program, case.texts, limits)
    tried: list[int] = []

    def one(values: Mapping[str, int]) -> None:
        tried.append(values["n"])
        found = check_binding(case.program, warps, values, limits)
        if not found.ok:
            raise WrongError(found)

    try:
        Symbolic.of(case.program, warps, ["n"], {}, limits.depth).show(one)
    except UnlikeError:
        return "refused"
    except WrongError:
        return "wrong"
    last = tried[-1]
    more: list[Any] = [*range(last + 1, last + 12), rng.randint(3 * last, 10 * last)]
    try:
        for n in more:
            one({"n": n})
    except WrongError:
        return "later"
    return "right"
