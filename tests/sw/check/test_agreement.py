"""The checker against all schedules, one by one, and against the sequential interpreter."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from sw.check import check_binding, compile_all
from sw.check.binding import Limits
from sw.check.dependences import TooLargeError
from sw.check.streams import run
from sw.ir.parse import parse_program
from tests.sw.check.cases import oracle, random_case, replay
from tests.sw.check.execute import FullError, StuckError, execute, flatten, random_schedule, run_in_order
from tests.sw.ir.interpret import difference, seeded_choice
from tests.sw.ir.interpret import run as interpret


@pytest.mark.parametrize("block", range(10))
def test_verdicts_are_those_of_all_schedules(block: int) -> None:
    """Both ways: nothing wrong is accepted, nothing right is refused, and what is shown happens."""
    kinds: Counter[str | None] = Counter()
    for seed in range(60 * block, 60 * block + 60):
        rng = random.Random(seed)
        case = random_case(rng, shared=1.0 if seed % 5 == 0 else 0.0)
        depth = rng.choice((1, 2, 8))
        warps = compile_all(case.program, case.texts, Limits(depth=depth))
        found = check_binding(case.program, warps, {}, Limits(depth=depth))
        streams = {w: run(code, {}) for w, code in warps.items()}
        wanted = oracle(case.program, streams, {}, depth)
        assert found.ok == (wanted.kind is None), seed
        kinds[wanted.kind] += 1
        if found.ok:
            assert {c: flow.most for c, flow in found.channels.items()} == wanted.most, seed
            choice = seeded_choice(seed)
            sequential = interpret(case.program, {}, choice=choice, trace=False)
            for number in range(2):
                schedule = random_schedule(streams, depth, number)
                got = execute(case.program, streams, {}, schedule, choice=choice)
                assert difference(sequential, got) is None, seed
        else:
            happens = replay(case.program, streams, {}, depth, found.turns)
            assert happens, seed
            assert "deadlock" in happens or not found.deadlock, seed
    assert min(kinds[None], kinds["dependence"], kinds["deadlock"] + kinds["overflow"]) > 0


TEXT = """
@program
def p():
    a: Buffer[8]
    A = f(write=a[0:4], k=1, warp=0)
    B = f(read=a[2:6], write=a[5:8], k=2, warp=1)
    C = f(read=a[4:8], write=a[0:2], k=3, warp=0)
"""


def test_a_schedule_in_the_wrong_order_gives_another_result() -> None:
    program = parse_program(TEXT)
    all_ = list(flatten(program, {}))
    sequential = interpret(program, {}, trace=False)
    assert difference(sequential, run_in_order(program, {}, all_, [0, 1, 2])) is None
    for order in ([1, 0, 2], [0, 2, 1], [2, 1, 0]):
        assert difference(sequential, run_in_order(program, {}, all_, order)) is not None


def test_random_schedules_show_what_is_missing() -> None:
    program = parse_program(TEXT)
    right = {0: "op A\nsignal 0\nwait 1\nop C\nhalt", 1: "wait 0\nop B\nsignal 1\nhalt"}
    sequential = interpret(program, {}, trace=False)
    for texts, differs in ((right, False), (right | {1: "op B\nwait 0\nsignal 1\nhalt"}, True)):
        streams = {w: run(c, {}) for w, c in compile_all(program, texts, Limits()).items()}
        runs = [execute(program, streams, {}, random_schedule(streams, 8, seed)) for seed in range(20)]
        assert any(difference(sequential, r) is not None for r in runs) == differs


def test_schedules_that_stop_or_overflow() -> None:
    program = parse_program(TEXT)

    def schedule(first: str, second: str, depth: int) -> None:
        texts = {0: f"{first}\nhalt", 1: f"{second}\nhalt"}
        streams = {w: run(c, {}) for w, c in compile_all(program, texts, Limits()).items()}
        random_schedule(streams, depth, 0)

    with pytest.raises(StuckError, match="warp 1 at event 1"):
        schedule("op A\nsignal 0\nop C", "wait 0\nwait 0\nop B", 8)
    with pytest.raises(FullError, match="warp 0 signals channel 0, which holds 2 tokens already"):
        schedule("op A\nsignal 0\nsignal 0\nsignal 0\nop C", "op B", 2)


def test_the_search_ends_where_it_is_told_to() -> None:
    program = parse_program(TEXT)
    texts = {0: "op A\n" + "signal 0\n" * 20 + "op C\nhalt", 1: "op B\n" + "signal 1\n" * 20 + "halt"}
    streams = {w: run(c, {}) for w, c in compile_all(program, texts, Limits()).items()}
    with pytest.raises(TooLargeError, match="more than 50 states"):
        oracle(program.__class__(program.name, (), program.buffers, ()), streams, {}, 100, states=50)
