"""The program builder gives programs that the machine takes, and refuses what it cannot."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hw.assembly import assemble, disassemble_words
from hw.config import load
from hw.errors import InputError
from sw.builder import Builder
from tests.sw.functional import Machine

TEST = load("test")


def result(b: Builder, name: str) -> int:
    """Value of a register after the program."""
    machine = Machine(b.config, {0: b.words()}, np.zeros(16, np.uint8))
    machine.run()
    return machine.warps[0].registers[b.register(name).index]


@given(st.integers(-(1 << 31), (1 << 32) - 1))
def test_any_32_bit_constant(value: int) -> None:
    b = Builder(TEST)
    b.set(b.register("x"), value)
    assert result(b, "x") & 0xFFFFFFFF == value & 0xFFFFFFFF
    assert len(b.codes) <= 3


@given(st.integers(-(1 << 31), (1 << 31) - 1), st.integers(-(1 << 31), (1 << 31) - 1))
def test_adding_any_constant_wraps_at_32_bits(x: int, y: int) -> None:
    b = Builder(TEST)
    b.set(b.register("x"), x)
    b.add(b.register("x"), y)
    assert result(b, "x") & 0xFFFFFFFF == (x + y) & 0xFFFFFFFF


def test_loops_that_would_end_together_are_kept_apart() -> None:
    b = Builder(TEST)
    x = b.register("x")
    with b.loop(3), b.loop(4), b.loop(5):
        b.add(x, 1)
    assert result(b, "x") == 60
    assert assemble("\n".join(disassemble_words(b.words()))) == b.words()
    assert [c.name for c in b.codes].count("nop") == 2


def test_an_empty_loop_is_filled() -> None:
    b = Builder(TEST)
    with b.loop(3):
        pass
    assert result(b, "x") == 0


def test_a_loop_may_be_counted_by_a_register() -> None:
    b = Builder(TEST)
    x, n = b.register("x"), b.register("n")
    b.set(n, 0)
    with b.loop(n):
        b.add(x, 1)
    b.set(n, 7)
    with b.loop(n):
        b.add(x, 1)
    assert result(b, "x") == 7


@pytest.mark.parametrize("sense", [True, False])
def test_predicates(sense: bool) -> None:
    b = Builder(TEST)
    x, p = b.register("x"), b.register("p")
    b.set(p, 5)
    with b.when(p, sense):
        b.set(x, 9)
    assert result(b, "x") == (9 if sense else 0)


def test_a_predicated_loop_is_refused_because_its_body_would_be_executed_once() -> None:
    b = Builder(TEST)
    with pytest.raises(ValueError, match="must not be predicated"), b.when(b.register("p")), b.loop(2):
        pass


def test_limits_of_the_machine_are_named() -> None:
    b = Builder(TEST.replace(registers=8), "warp x")
    for i in range(7):
        b.register(f"r{i}")
    with pytest.raises(InputError, match=r"warp x: registers must be at least 9 \(for 'r7'\), not 8"):
        b.register("r7")

    b = Builder(TEST.replace(imem_words=32))
    for _ in range(32):
        b.emit("nop")
    with pytest.raises(InputError, match="imem_words must be at least 33, not 32"):
        b.words()

    b = Builder(TEST.replace(loop_depth=1))
    with pytest.raises(InputError, match="loop_depth must be at least 2, not 1"), b.loop(2), b.loop(2):
        pass

    b = Builder(TEST.replace(imem_words=4096))
    with pytest.raises(InputError, match="at most 1023 instructions, not 1024"), b.loop(2):
        for _ in range(1024):
            b.emit("nop")

    with pytest.raises(InputError, match="channels must be at least 17, not 16"):
        Builder(TEST).wait(16)
    with pytest.raises(InputError, match="gemm_m must be 0 to 65535, not 65536"):
        Builder(TEST).param("gemm_m", 65536)


def test_operands_go_by_name() -> None:
    b = Builder(TEST)
    r = {name: b.register(name) for name in ("memory", "target", "outer", "inner")}
    b.engine("load_a", inner=r["inner"], outer=r["outer"], target=r["target"], memory=r["memory"])
    assert disassemble_words(b.words())[0] == "load_a r1, r2, r3, r4"
    with pytest.raises(ValueError, match="load_a takes memory, target, outer, inner"):
        b.engine("load_a", memory=r["memory"])


def test_parameters_take_constants_of_any_width() -> None:
    b = Builder(TEST)
    b.param("load_stride", 0x12345678)
    b.param("gemm_m", 7)
    machine = Machine(TEST, {0: b.words()}, np.zeros(16, np.uint8))
    machine.run()
    assert machine.warps[0].parameters["load_stride"] == 0x12345678
    assert machine.warps[0].parameters["gemm_m"] == 7


def test_constants_use_registers_only_while_there_are_plenty() -> None:
    b = Builder(TEST.replace(registers=8))
    found = [b.constant(100_000 + i) for i in range(6)]
    assert sum(not isinstance(value, int) for value in found) == 3  # with r0, half of 8
    assert b.constant(5) == 5
