"""Programs built from Python, against their texts."""

from __future__ import annotations

import itertools

import pytest

from sw.ir.builder import ProgramBuilder
from sw.ir.errors import IRError
from sw.ir.expression import Apply, Const, Op, evaluate, fold
from sw.ir.parse import parse_program
from sw.ir.program import ANY
from sw.ir.types import Kind
from sw.ir.walk import fresh_names


def test_a_program_with_everything() -> None:
    b = ProgramBuilder("all")
    x = b.parameter("x", 0, 40)
    a = b.buffer("a", 60)
    c = b.buffer("c", 8, x + 1, element="int32", space="acc")
    with b.loop(3, name="i") as i:
        b.instruction("produce", write=a[10 * i : 10 * i + 10], warp=0, label="P")
        with b.loop(i) as j:
            b.instruction("touch", read=[a[j], c[2:4]], when=fold(Op.GT, j, 3))
    s = b.assign("s", x % 8)
    b.assign("s", s + 1)
    b.instruction("touch", write=ANY, k=s)
    b.instruction("load", memory=a, target=c[0])
    with b.loop(2, name="i"):
        b.instruction("touch", read=c, k=True)
    expected = parse_program(
        """
@program
def all(x: int[0, 40]):
    a: Buffer[60]
    c: Buffer[8, x + 1, int32, acc]
    for i in range(3):
        P = produce(write=a[10 * i:10 * i + 10], warp=0)
        for i0 in range(i):
            touch0 = touch(read=[a[i0], c[2:4]], when=i0 > 3)
    s = x % 8
    s = s + 1
    touch1 = touch(write=ANY, k=s)
    load0 = load(memory=a, target=c[0])
    for i in range(2):
        touch2 = touch(read=c, k=True)
"""
    )
    built = b.build()
    assert built == expected
    assert parse_program(str(built)) == built


def test_constants_are_folded_as_they_are_evaluated() -> None:
    numbers = (0, 1, -1, 7, -2147483648, 2147483647, 33)
    for op in Op:
        if op in (Op.SELECT, Op.NOT, Op.AND, Op.OR):
            continue
        for x, y in itertools.product(numbers, numbers):
            plain = Apply(op, (Const(x), Const(y)))
            found = fold(op, x, y)
            if op in (Op.DIV, Op.MOD) and y == 0:
                assert found == plain
            else:
                assert isinstance(found, Const)
                assert (found.value, found.kind) == (evaluate(plain, {}), plain.kind)


def test_what_changes_nothing_is_left_out() -> None:
    x = ProgramBuilder("f").parameter("x")
    for value in (x + 0, 0 + x, x - 0, x * 1, 1 * x, x // 1, fold(Op.SHL, x, 0), fold(Op.BIT_XOR, 0, x)):
        assert value == x
    assert fold(Op.SELECT, Const(1, Kind.BOOL), x, 3) == x
    assert fold(Op.SELECT, Const(0, Kind.BOOL), x, 3) == Const(3)
    kept = ("0 - x", "x * 0", "x % 1", "x & 0")
    for value, text in zip((0 - x, x * 0, x % 1, fold(Op.BIT_AND, x, 0)), kept, strict=True):
        assert str(value) == text


def test_mistakes() -> None:
    b = ProgramBuilder("f")
    x = b.parameter("x")
    a = b.buffer("a", 4, 4)
    with pytest.raises(IndexError, match="a has 2 dimensions, not 3"):
        a[0, 0, 0]
    with pytest.raises(TypeError, match="an interval has no step"):
        a[0:4:2]
    with pytest.raises(TypeError, match="an index must be a scalar or a slice"):
        a["x"]
    with pytest.raises(TypeError, match="and takes bool here, not int"):
        fold(Op.AND, x, 1)
    with b.loop(3), pytest.raises(ValueError, match="still open"):
        b.build()
    with b.loop(5) as i:
        b.instruction("t", read=a[i])
    with pytest.raises(IRError, match="which is a\\[4:5, 0:4\\] where i1 = 4"):
        b.build()
    b.buffer("a", 3)
    with pytest.raises(IRError, match="the name 'a' a second time"):
        b.build()


def test_fresh_names_keep_off_those_of_a_program() -> None:
    text = "@program\ndef f(s0: int):\n    s1: Buffer[3]\n    s2 = t()\n    for s3 in range(2): s4 = 1\n"
    assert list(itertools.islice(fresh_names(parse_program(text), "s"), 2)) == ["s5", "s6"]
