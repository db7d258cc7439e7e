"""The shared table of scalar semantics, against Python's own arithmetic."""

from __future__ import annotations

import operator
import random
from collections.abc import Callable

import pytest

from hw import isa
from hw.semantics import SEMANTICS, quantisation, wrap

#: Limits, and amounts around which shifts begin again.
EDGES = (0, 1, 2, -1, -2, 31, 32, 33, 63, 64, 65, -128, 127, -(2**31), 2**31 - 1)


def _half_up(a: int, b: int, shift: int) -> int:
    return (2 * a * b // 2 ** (shift % 64) + 1) // 2 if shift % 64 else a * b


def _half_even(a: int, b: int, shift: int) -> int:
    quotient, rest = divmod(a * b, 2 ** (shift % 64))
    return quotient + (2 * rest + quotient % 2 > 2 ** (shift % 64))


MEANING: dict[str, Callable[..., int]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "div": operator.floordiv,
    "rem": operator.mod,
    "min": min,
    "max": max,
    "and": operator.and_,
    "or": operator.or_,
    "xor": operator.xor,
    "shl": lambda a, b: a * 2 ** (b % 32),
    "shr": lambda a, b: a // 2 ** (b % 32),
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
    "select": lambda c, a, b: a if c != 0 else b,
    "li": lambda a: a,
    "lih": lambda a, b: a * 2**15 + b % 2**15,
    "not": lambda a: 1 - a,
    "mov": lambda a: a,
    "abs": abs,
    "clz": lambda a: f"{a % 2**32:032b}1".find("1"),
    "shr_logical": lambda a, b: a % 2**32 // 2 ** (b % 32),
    "mul_shift_round": _half_up,
    "mul_shift_round_even": _half_even,
    "requantise": lambda a, b, c: _byte(wrap(_half_up(a, b, c)), c),
    "requantise_even": lambda a, b, c: _byte(wrap(_half_even(a, b, c)), c),
    "requantise_sum": lambda a, b, c, d: _byte(wrap(_half_up(wrap(a + c), b, d)), d),
    "requantise_sum_even": lambda a, b, c, d: _byte(wrap(_half_even(wrap(a + c), b, d)), d),
}


def _byte(value: int, packed: int) -> int:
    bits = f"{packed % 2**32:032b}"
    unsigned, high, low, zero = (int(bits[a:b], 2) for a, b in ((0, 1), (1, 9), (9, 17), (17, 26)))
    if not unsigned:
        low, high = (x - 256 if x > 127 else x for x in (low, high))
    value = wrap(value + (zero - 512 if zero > 255 else zero))
    byte = (high if value > high else max(value, low)) % 256
    return byte - 256 if low < 0 and min(value, high) < 0 else byte


@pytest.mark.parametrize(("low", "high"), [(-128, 127), (0, 255), (3, 100), (0, 127)])
def test_requantise_is_rounding_zero_point_and_limits(low: int, high: int) -> None:
    rng = random.Random(low)
    for _ in range(2000):
        a, b, shift, zero = (
            rng.randrange(-9999, 9999),
            rng.randrange(1 << 31),
            rng.randint(20, 45),
            rng.randint(-128, 255),
        )
        packed = quantisation(shift, zero, low, high)
        expected = min(max(wrap(_half_even(a, b, shift)) + zero, low), high)
        assert SEMANTICS["requantise_even"].value(a, b, packed) == expected


@pytest.mark.parametrize("name", SEMANTICS)
def test_value_and_text_are_the_low_32_bits_of_the_arithmetic(name: str) -> None:
    of, rng = SEMANTICS[name], random.Random(name)
    names = "abcd"[: of.operands]
    by_names = eval(f"lambda {', '.join(names)}: {of.text(*names)}")
    edges = (0, 1) if name == "not" else EDGES
    for number in range(3000):
        operands = [rng.choice(edges) for _ in names]
        if number % 2 and name != "not":
            operands = [rng.randrange(-(2**31), 2**31) for _ in names]
        if name in ("div", "rem") and operands[1] == 0:
            with pytest.raises(ZeroDivisionError):
                of.value(*operands)
            continue
        wanted = int(MEANING[name](*operands))
        assert of.exact(*operands) == wanted, operands
        assert of.value(*operands) == by_names(*operands) == wrap(wanted), operands
        assert of.wraps or wrap(wanted) == wanted, operands
        if number < 300:  # operands may be numbers, or chosen in parentheses
            assert eval(of.text(*map(str, operands))) == wrap(wanted), operands
            chosen = [f"({operand} if 1 else 0)" for operand in operands]
            assert eval(of.text(*chosen)) == wrap(wanted), operands


def test_instructions_that_write_a_register_have_a_meaning() -> None:
    for i in isa.INSTRUCTIONS.values():
        assert (i.semantics is not None) == ("rd" in isa.layout(i.name)), i.name
        if i.semantics is not None:
            assert len(i.sources) == i.semantics.operands, i.name
