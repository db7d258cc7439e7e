"""Counts of programs equal the counts of their generated instructions."""

from __future__ import annotations

import pytest

from hw.config import MachineConfig
from sw.canonical.count import count
from sw.codegen import generate
from sw.ir.parse import parse_program
from tests.sw.codegen.programs import Draw
from tests.sw.codegen.trace import program_trace, words_trace

NEST = """@program
def p():
    for i in range(4):
        for j in range(3):
            w = wait(channel=0)
            L = load_a(memory=i*100 + j, target=0, outer=i, inner=j // 5, load_pitch=i)
            s = signal(channel=1)
"""


def test_counts_of_a_nest() -> None:
    config = MachineConfig()
    words = generate(parse_program(NEST), config, "p")
    run = words_trace(words, config)
    counts = count(parse_program(NEST))
    assert counts.as_dict() == {
        "instructions": len(words),
        "scalar_static": len(words) - 4,
        "scalar_executed": run.scalar_operations,
        "scalar_turns": run.scalar_turns,
        "registers": run.registers,
    }


@pytest.mark.parametrize("seed", range(40))
def test_counts_are_exact_where_nothing_depends_on_data(seed: int) -> None:
    text = Draw(seed, depth=2, size=4).text()
    if "if " in text or " range(i" in text:
        return
    program, config = parse_program(text), MachineConfig(imem_words=4096)
    try:
        program_trace(program)
    except ArithmeticError:
        return
    counts = count(program)
    if counts.registers > config.registers:
        return
    run = words_trace(generate(program, config, "p"), config)
    assert (counts.scalar_executed, counts.scalar_turns) == (run.scalar_operations, run.scalar_turns)
    assert counts.registers >= run.registers


def test_parameters_and_generic_instructions_are_counted() -> None:
    text = "@program\ndef p(x: int[0, 9], c: bool):\n    a: Buffer[64]\n"
    text += "    for i in range(x):\n        t = touch(read=a[2*i : 2*i + 4])\n"
    text += "        if c:\n            u = touch(write=a[0:1])\n"
    counts = count(parse_program(text))
    # c, the counter and both ends of the interval beside r0; x makes room when the loop has begun.
    assert counts.registers == 5
    # (0 to 8 steps: 4 on average) loop count and first value, then 2*i, its sum with 4, and the step.
    assert counts.scalar_executed == 2 + 4 * 4
    assert counts.instructions == counts.scalar_static + 3
