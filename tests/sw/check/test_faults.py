"""Hand-written warps: correct ones, and each kind of fault with its counterexample."""

from __future__ import annotations

from typing import Any

import pytest

from hw.errors import InputError
from sw.check import Verdict, check, compile_all
from sw.check.binding import Limits
from sw.check.streams import run
from sw.ir.errors import IRError
from sw.ir.parse import parse_program
from tests.sw.check.cases import replay

#: The worked example: three phases, all producers on warp 0, all consumers on warp 1.
PHASES = """
@program
def phases():
    a: Buffer[60]
    for i in range(3):
        P = produce(write=a[10*i : 10*i + 10], warp=0)
        C = consume(read=a[10*i : 10*i + 10], warp=1)
    for j in range(3):
        Q = produce(write=a[15*j + 15 : 15*j + 30], warp=0)
        D = consume(read=a[15*j + 15 : 15*j + 30], warp=1)
    R = produce(write=a[0:50], warp=0)
    E = consume(read=a[0:50], warp=1)
"""
PRODUCER = """
li r1, 3
loop r1, A
op P
signal 0
A:
wait 1
loop r1, B
op Q
signal 0
B:
wait 1
op R
signal 0
halt"""
CONSUMER = """
li r1, 3
loop r1, A
wait 0
op C
A:
signal 1
loop r1, B
wait 0
op D
B:
signal 1
wait 0
op E
halt"""
RIGHT = {0: PRODUCER, 1: CONSUMER}


def checked(text: str, texts: dict[int, str], depth: int = 8, **options: Any) -> Verdict:
    return check(parse_program(text), texts, channels=8, depth=depth, pending_signals=8, **options)


def broken(text: str, texts: dict[int, str], depth: int = 8) -> tuple[Verdict, set[str]]:
    """The verdict, which must not be right, and what its schedule does, step by step."""
    found = checked(text, texts, depth)
    assert not found.ok
    assert found.schedule
    program = parse_program(text)
    warps = compile_all(program, texts, Limits(8, depth))
    streams = {w: run(code, found.values) for w, code in warps.items()}
    return found, replay(program, streams, found.values, depth, found.turns)


def without(text: str, number: int) -> str:
    """A text without one of its lines; the lines keep their numbers."""
    lines = text.split("\n")
    lines[number - 1] = ""
    return "\n".join(lines)


def test_the_worked_example_is_right() -> None:
    assert checked(PHASES, RIGHT).as_dict() == {
        "ok": True,
        "method": "exact",
        # 7 from producer to consumer; C[1] and C[2] to Q[0], and of R all that it overwrites.
        "dependences": 7 + 2 + 5,
        "instances": 14,
        "bindings": 1,
        "channels": {
            "0": {"from": 0, "to": 1, "tokens": 7, "most": 3},
            "1": {"from": 1, "to": 0, "tokens": 2, "most": 1},
        },
        "deadlock": False,
    }


SYNCS = [
    (w, n)
    for w, text in RIGHT.items()
    for n, line in enumerate(text.split("\n"), 1)
    if line.startswith(("wait", "signal"))
]


@pytest.mark.parametrize(("warp", "line"), SYNCS)
def test_no_wait_and_no_signal_can_be_left_out(warp: int, line: int) -> None:
    found, happens = broken(PHASES, RIGHT | {warp: without(RIGHT[warp], line)})
    assert happens
    assert found.deadlock == ("deadlock" in happens)


def test_an_overwritten_range_that_is_still_read() -> None:
    found, happens = broken(PHASES, RIGHT | {0: without(PRODUCER, 7)})
    assert happens == {"dependence"}
    assert found.reason == (
        "Q[0] (warp 0, line 9) can run too early: it overwrites a[15:20] that C[1] (warp 1, line 5) "
        "has not read yet"
    )
    runs = "; ".join(f"runs P[{i}] (line 4); gives token {i + 1} of channel 0 (line 5)" for i in range(3))
    assert found.schedule == (
        f"warp 0: {runs}",
        "warp 0: runs Q[0] (line 9), which overwrites a[15:20] that C[1] (warp 1, line 5) has not read yet",
    )


def test_a_range_that_is_read_before_it_is_written() -> None:
    found, happens = broken(PHASES, RIGHT | {1: without(CONSUMER, 4)})
    assert happens == {"dependence"}
    assert found.schedule == (
        "warp 1: runs C[0] (line 5), which reads a[0:10] that P[0] (warp 0, line 4) has not written yet",
    )


def test_a_token_that_never_comes() -> None:
    found, happens = broken(PHASES, RIGHT | {1: without(CONSUMER, 7)})
    assert found.deadlock
    assert happens == {"deadlock"}
    assert found.schedule[-2:] == (
        "warp 0: waits in line 7 for token 1 of channel 1, which warp 1 gives later, in line 12",
        "warp 1: waits in line 9 for token 4 of channel 0, which warp 0 gives later, in line 10",
    )


def test_two_warps_that_wait_for_each_other() -> None:
    text = "@program\ndef p():\n    a: Buffer[4]\n    A = f(write=a, warp=0)\n    B = f(read=a, warp=1)\n"
    crossed = {0: "wait 1\nop A\nsignal 0\nhalt", 1: "wait 0\nop B\nsignal 1\nhalt"}
    found, happens = broken(text, crossed)
    assert (found.deadlock, happens) == (True, {"deadlock"})
    assert found.reason == (
        "the warps deadlock: warp 0: waits in line 1 for token 1 of channel 1, which warp 1 gives "
        "later, in line 3; warp 1: waits in line 1 for token 1 of channel 0, which warp 0 gives later, "
        "in line 3"
    )
    assert checked(text, {0: "wait 1\nop A\nsignal 0\nhalt", 1: "signal 1\nwait 0\nop B\nhalt"}).ok


def test_more_tokens_than_a_channel_holds() -> None:
    found, happens = broken(PHASES, RIGHT, depth=2)
    assert happens == {"overflow"}
    assert found.schedule[-1] == "warp 0: signals channel 0 (line 5), which already holds 2 tokens"
    assert checked(PHASES, RIGHT, depth=3).ok


def test_operations_that_are_not_those_of_the_program() -> None:
    for change, said in (
        (("op D", "op C"), "operation 4 of warp 1 must be D[0], not op C in line 10"),
        (("op E", "nop"), "operation 7 of warp 1 must be E, and the warp ends before"),
        (("op E", "op E\nop E"), "warp 1 must have 7 operations, not op E in line 15"),
        (("li r1, 3", "li r1, 2"), "operation 3 of warp 1 must be C[2], not op D in line 10"),
    ):
        found = checked(PHASES, RIGHT | {1: CONSUMER.replace(*change)})
        assert not found.ok
        assert (found.reason, found.schedule) == (said, (said,))


def test_a_warp_without_text_does_nothing() -> None:
    found = checked(PHASES, {0: PRODUCER})
    assert found.reason == "operation 1 of warp 1 must be C[0], and the warp ends before"


MACHINE = """
@program
def p(n: int[1, 4]):
    m: Buffer[64, int8, memory]
    b: Buffer[32, 16, int8, A]
    for i in range(n):
        L = load_a(64*i - 32, 8*i, 1, 16, load_stride=n, write=b[8*i : 8*i + 8], warp=0)
"""
LOADS = """arg r2, n
param load_stride, r2
li r3, -32
li r4, 0
li r5, 1
li r6, 16
loop r2, A
load_a r3, r4, r5, r6
addi r3, r3, 64
addi r4, r4, 8
A:
halt"""


def test_operands_and_parameter_registers_of_the_machine_are_compared() -> None:
    assert checked(MACHINE, {0: LOADS}).ok
    for change, said in (
        (("r3, r3, 64", "r3, r3, 65"), "must be L[1]; in line 8 its memory = 33, not 32"),
        (("li r6, 16", "li r6, 17"), "must be L[0]; in line 8 its inner = 17, not 16"),
        (("param load_stride, r2", "nop"), "must be L[0]; in line 8 its load_stride = 0, not 1"),
        (
            ("li r3, -32", "li r3, -32\nparami load_fill, 7"),
            "must be L[0]; in line 9 its load_fill = 7, not 0",
        ),
        (("load_a r3", "load_b r3"), "must be L[0], not load_b in line 8"),
    ):
        found = checked(MACHINE, {0: LOADS.replace(*change)})
        assert not found.ok
        assert said in found.reason


SHARED = """
@program
def p():
    a: Buffer[8]
    A = f(write=a[0:4], warp=0)
    B = f(write=a[4:8], warp=1)
    C = f(read=a, warp=2)
"""


def test_a_channel_that_two_warps_signal_is_explored() -> None:
    texts = {
        0: "op A\nsignal 0\nsignal 1\nhalt",
        1: "wait 1\nop B\nsignal 0\nhalt",
        2: "wait 0\nwait 0\nop C\nhalt",
    }
    found = checked(SHARED, texts)
    assert (found.ok, found.method) == (True, "explored")
    assert found.as_dict()["channels"]["0"] == {"from": [0, 1], "to": 2, "tokens": 2, "most": 2}
    found, happens = broken(SHARED, texts | {2: "wait 0\nop C\nwait 0\nhalt"})
    assert (found.method, happens) == ("explored", {"dependence"})
    found, happens = broken(SHARED, texts | {2: "wait 0\nwait 0\nwait 0\nop C\nhalt"})
    assert (found.deadlock, happens) == (True, {"deadlock"})


def test_two_warps_must_not_use_one_side_of_a_channel_at_once() -> None:
    texts = {0: "op A\nsignal 0\nhalt", 1: "op B\nsignal 0\nhalt", 2: "wait 0\nwait 0\nop C\nhalt"}
    found, happens = broken(SHARED, texts)
    assert happens == {"conflict"}
    said = "warp 0 (line 2) and warp 1 (line 2) signal channel 0 in any order"
    assert (found.schedule[-1], found.reason) == (said, f"{said}: their order is undefined")
    texts = {0: "op A\nwait 0\nhalt", 1: "op B\nwait 0\nhalt", 2: "signal 0\nsignal 0\nop C\nhalt"}
    text = SHARED.replace("read=a", "read=a[0:0]")
    found, happens = broken(text, texts)
    assert happens == {"conflict"}
    assert "(line 2) take a token of channel 0 in any order" in found.reason


def test_a_shared_channel_with_too_many_schedules_is_refused() -> None:
    def many(channel: int) -> str:
        return f"li r1, 400\nloop r1, A\nsignal {channel}\nA:\nhalt"

    texts = {
        0: f"op A\nsignal 0\nsignal 1\n{many(2)}",
        1: f"wait 1\nop B\nsignal 0\n{many(3)}",
        2: "wait 0\nwait 0\nop C\nhalt",
    }
    found = checked(SHARED, texts, depth=2000)
    assert (found.ok, found.method) == (False, "explored")
    assert found.reason == (
        "cannot be shown: channel 0 is signalled by warp 0 and warp 1, so it is unknown which warp "
        "gave a token, and there are more than 100,000 states of the warps"
    )


UNKNOWN = """
@program
def p():
    a: Buffer[8]
    c: Buffer[8]
    A = f(write=a[0:4], warp=0)
    X = f(write=ANY, warp=1)
    C = f(read=c, warp=2)
"""


def test_an_unknown_address_depends_on_everything() -> None:
    right = {0: "op A\nsignal 0\nhalt", 1: "wait 0\nop X\nsignal 1\nhalt", 2: "wait 1\nop C\nhalt"}
    assert checked(UNKNOWN, right).dependences == 2
    found, _ = broken(UNKNOWN, right | {1: "op X\nsignal 1\nwait 0\nhalt"})
    assert "X (warp 1, line 1) can run too early: it writes what may be a[0:4] before A" in found.reason
    found, _ = broken(UNKNOWN, right | {2: "op C\nwait 1\nhalt"})
    assert "it reads what may be c[0:8] that X (warp 1, line 2) has not written yet" in found.reason


def test_elements_of_boxes_with_strides_are_told_apart() -> None:
    text = """
@program
def p():
    a: Buffer[16, 16]
    for i in range(4):
        W = f(write=a[4*i : 4*i + 4, 0:8], warp=0)
    R = f(read=a[{}], warp=1)
"""
    texts = {0: "li r1, 4\nloop r1, A\nop W\nA:\nhalt", 1: "op R\nhalt"}
    assert checked(text.format("0:16, 8:16"), texts).dependences == 0
    assert not checked(text.format("5:7, 7:9"), texts).ok
    late = {0: "op W\nop W\nsignal 0\nop W\nop W\nhalt", 1: "wait 0\nop R\nhalt"}
    assert checked(text.format("5:7, 7:9"), late).dependences == 1
    assert not checked(text.format("7:9, 7:9"), late).ok


def test_programs_that_cannot_be_checked() -> None:
    head = "@program\ndef p():\n    a: Buffer[8]\n"
    with pytest.raises(InputError, match="instruction A must have a warp"):
        checked(f"{head}    A = f(write=a)\n", {})
    with pytest.raises(InputError, match="a sequential program must have no wait"):
        checked(f"{head}    wait(0, warp=0)\n", {})
    with pytest.raises(InputError, match="while loop"):
        checked(f"{head}    x = 0\n    while x < 3:\n        x = x + 1\n        A = f(write=a, warp=0)\n", {})
    with pytest.raises(IRError, match=r"the region a\[0:9\]"):
        program = "@program\ndef p(x: int[9, 10]):\n    a: Buffer[8]\n    A = f(write=a[0:x], warp=0)\n"
        checked(program, {0: "op A\nhalt"})
    with pytest.raises(InputError, match="warp 0, line 2: division by zero"):
        checked(f"{head}    A = f(write=a, warp=0)\n", {0: "op A\ndivi r1, r1, 0\nhalt"})
    with pytest.raises(InputError, match="depth must be at least 1"):
        checked(f"{head}    A = f(write=a, warp=0)\n", {0: "op A\nhalt"}, depth=0)
