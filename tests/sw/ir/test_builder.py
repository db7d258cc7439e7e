"""Programs built from Python, against their texts."""

from __future__ import annotations

import itertools

import pytest

from sw.ir import ANY, Const, IRError, Kind, Op, parse_program
from sw.ir.builder import ProgramBuilder, Value, choose, expression, fold, maximum, minimum
from sw.ir.expression import Apply, evaluate
from sw.ir.walk import fresh_names


def test_a_program_with_everything() -> None:
    b = ProgramBuilder("all")
    x, p = b.parameter("x", 0, 40), b.flag("p")
    a = b.buffer("a", 60)
    c = b.buffer("c", 8, x + 1, element="int32", space="acc")
    with b.loop(3, name="i") as i:
        b.instruction("produce", write=a[10 * i : 10 * i + 10], warp=0, label="P")
        with b.loop(i, 9, 2) as j:
            b.instruction("touch", read=[a[j], c[2:4]], when=(j > 3) & ~p)
    with b.branch(p | x.equals(3)):
        s = b.scalar(minimum(x, 5, 7), "s")
        b.assign(s, s + 1)
        b.instruction("touch", write=ANY, k=choose(p, s, -s))
    with b.otherwise():
        b.instruction("load", memory=a, target=c[0])
    with b.loop(2, name="i"):
        b.instruction("touch", read=c)
    t = b.scalar(0)
    with b.repeat(t < maximum(x, 4)):
        b.assign(t, t + 1)
    expected = parse_program(
        """
@program
def all(x: int[0, 40], p: bool):
    a: Buffer[60]
    c: Buffer[8, x + 1, int32, acc]
    for i in range(3):
        P = produce(write=a[10 * i:10 * i + 10], warp=0)
        for i0 in range(i, 9, 2):
            touch0 = touch(read=[a[i0], c[2:4]], when=i0 > 3 and not p)
    if p or x == 3:
        s = min(x, 5, 7)
        s = s + 1
        touch1 = touch(write=ANY, k=s if p else 0 - s)
    else:
        load0 = load(memory=a, target=c[0])
    for i in range(2):
        touch2 = touch(read=c)
    s0 = 0
    while s0 < max(x, 4):
        s0 = s0 + 1
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
            found = fold(op, x, y).expr
            if op in (Op.DIV, Op.MOD) and y == 0:
                assert found == plain
            else:
                assert isinstance(found, Const)
                assert (found.value, found.kind) == (evaluate(plain, {}), plain.kind)


def test_what_changes_nothing_is_left_out() -> None:
    b = ProgramBuilder("f")
    x = b.parameter("x")
    for value in (x + 0, 0 + x, x - 0, x * 1, 1 * x, x // 1, x << 0, x >> 0, x | 0, fold(Op.BIT_XOR, 0, x)):
        assert value.expr == x.expr
    assert choose(True, x, 3).expr == x.expr
    assert choose(False, x, 3).expr == Const(3)
    kept = ("0 - x", "x * 0", "1 // x", "x % 1", "x & 0")
    for value, text in zip((-x, x * 0, 1 // x, x % 1, x & 0), kept, strict=True):
        assert str(value.expr) == text
    assert expression(True).kind is Kind.BOOL


def test_mistakes() -> None:
    b = ProgramBuilder("f")
    x = b.parameter("x")
    a = b.buffer("a", 4, 4)
    with pytest.raises(ValueError, match="the name 'a' is taken"):
        b.buffer("a", 3)
    with pytest.raises(IndexError, match="a has 2 dimensions, not 3"):
        a[0, 0, 0]
    with pytest.raises(TypeError, match="an interval has no step"):
        a[0:4:2]
    with pytest.raises(TypeError, match="an index must be a scalar or a slice"):
        a["x"]
    with pytest.raises(TypeError, match="only scalars take values"):
        b.assign(x + 1, 3)
    with pytest.raises(TypeError, match="not known while the program is built"):
        bool(x < 3)
    with pytest.raises(ValueError, match="no branch just before"), b.otherwise():
        pass
    with pytest.raises(TypeError, match="and takes bool here, not int"):
        fold(Op.AND, x, True)
    with b.loop(3), pytest.raises(ValueError, match="still open"):
        b.build()
    with b.loop(5) as i:
        b.instruction("t", read=a[i])
    with pytest.raises(IRError, match="which is a\\[4:5, 0:4\\] where i1 = 4"):
        b.build()
    assert isinstance(x, Value)


def test_fresh_names_keep_off_those_of_a_program() -> None:
    text = "@program\ndef f(s0: int):\n    s1: Buffer[3]\n    s2 = t()\n    for s3 in range(2): s4 = 1\n"
    assert list(itertools.islice(fresh_names(parse_program(text), "s"), 2)) == ["s5", "s6"]
