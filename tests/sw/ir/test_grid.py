"""Launches of the CGRA state their accesses; one that keeps a configuration depends on what loaded it."""

from __future__ import annotations

import pytest

from sw.dependence import analyse
from sw.dependence.passes import DeadStore, RedundantLoad
from sw.ir.check import check
from sw.ir.errors import IRError
from sw.ir.intrinsics import effects
from sw.ir.parse import parse_program
from sw.ir.program import ANY, Program
from sw.ir.walk import instructions

BUFFERS = """
    c: Buffer[64, int32, scratch]
    x: Buffer[32, int32, scratch]
    y: Buffer[32, int32, out]
    g: Buffer[1, int8, grid]
    m: Buffer[32, int32, memory]
"""


def program(*lines: str) -> Program:
    body = "\n".join(f"    {line}" for line in lines)
    made = parse_program(f"@program\ndef p(n: int):{BUFFERS}{body}\n", "f.py")
    check(made)
    return made


BRING = "A = cgra(bitstream=c, iterations=0, live0=0, live1=0, write=g)"
KEEP = "B = cgra(bitstream=65535, iterations=4, live0=0, live1=0, read=[x, g], write=y)"
STORE = "S = store_out(source=y, memory=m)"


def test_a_launch_that_states_nothing_may_access_anything() -> None:
    (s,) = instructions(program("cgra(bitstream=c, iterations=4, live0=0, live1=0)"))
    reads, writes = effects(s)
    assert reads[1:] == (ANY,)
    assert writes == (ANY,)


def test_a_launch_that_keeps_depends_on_the_one_that_brings() -> None:
    made = program(BRING, KEEP, STORE)
    found = analyse(made)
    assert "A" in found.use_def["B"]
    assert DeadStore()(made) == made
    # The one in between brings another configuration, so the first is not needed.
    other = program(BRING, BRING.replace("A =", "O ="), KEEP, STORE)
    assert [s.label for s in instructions(DeadStore()(other))] == ["O", "B", "S"]


def test_a_launch_is_not_repeated_where_the_configuration_changed() -> None:
    again = KEEP.replace("B =", "D =")
    first = "A = cgra(bitstream=c[0:16], iterations=0, live0=0, live1=0, write=g)"
    second = "O = cgra(bitstream=c[16:32], iterations=0, live0=0, live1=0, write=g)"
    same = program(first, KEEP, again, STORE)
    assert [s.label for s in instructions(RedundantLoad()(same))] == ["A", "B", "S"]
    changed = program(first, KEEP, second, again, STORE)
    assert RedundantLoad()(changed) == changed


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([BRING, KEEP.replace(", g]", "]")], "a launch B that may keep the configuration"),
        ([BRING.replace(", write=g", ", write=y"), KEEP], "a launch A that may bring a configuration"),
        ([KEEP.replace("65535", "n").replace("write=y", "write=[y, g]").replace(", g]", "]")], "may keep"),
        ([KEEP.replace("65535", "n")], "may bring"),
    ],
)
def test_what_does_not_say_so_is_refused(lines: list[str], message: str) -> None:
    with pytest.raises(IRError, match=message):
        program(*lines)


def test_nothing_need_be_said_where_nothing_is_kept() -> None:
    launches = [
        BRING.replace(", write=g", ", write=y"),
        "cgra(bitstream=4, iterations=1, live0=0, live1=0, read=x)",
    ]
    assert len(instructions(program(*launches))) == 2
