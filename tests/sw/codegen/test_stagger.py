"""Warps write their parameters in different cycles; any order of their first instructions does the same."""

from __future__ import annotations

import pytest

from cosim.jobs import job_of
from cosim.models.cycle import predict
from cosim.settings import MemorySettings
from heald.testing.problems import compile_problem
from hw.assembly import encode
from hw.config import MachineConfig, load
from sw.canonical.hoist import Strategy, optimise
from sw.codegen.allocate import allocate
from sw.codegen.generate import compiled, instructions
from sw.codegen.lower import lower
from sw.codegen.stagger import PARAMETERS, stagger
from sw.ir.parse import parse_program
from sw.problem import Product
from tests.sw.codegen.programs import Draw
from tests.sw.codegen.trace import program_trace, words_trace

LOADER = """@program
def p():
    for m in range(8):
        for k in range(5):
            w1 = wait(channel=1)
            LA = load_a(memory=4096 + 65536*m + 64*k, target=(m*5 + k) % 2 * 512, outer=16, inner=64,
                        load_stride=1024, load_pitch=64, load_fill=1)
"""


@pytest.mark.parametrize("taken", [set(), {0}, {2, 3}, {1, 2, 4, 5, 6}, set(range(40))])
def test_parameters_are_written_early_and_in_no_cycle_that_is_taken(taken: set[int]) -> None:
    program = optimise(parse_program(LOADER), 16)
    busy = set(taken)
    code, allocation = compiled(program, MachineConfig(registers=16), "p", busy=busy)
    writes = [i for i, o in enumerate(code.operations) if o.name in PARAMETERS]
    mine = sorted(busy - taken)
    assert len(mine) == len(writes) == 3
    assert busy == taken | set(mine)
    # Between the writes it computes, and waits only where nothing is left to compute.
    loop = next(i for i, o in enumerate(code.operations) if o.name == "loop")
    assert mine == writes or (writes[-1] == loop - 1 and mine[0] >= 40)
    words = [encode(i) for i in instructions(code, allocation)]
    assert words_trace(words, MachineConfig(registers=16)).events == program_trace(program)


def test_an_operation_without_a_loop_takes_its_cycle() -> None:
    text = "@program\ndef p():\n    L = load_a(memory=4096, target=0, outer=1, inner=1, load_stride=64)\n"
    busy: set[int] = set()
    code, _ = compiled(parse_program(text), MachineConfig(), "p", busy=busy)
    assert {code.operations[cycle].name for cycle in busy} == {"parami", "load_a"}


@pytest.mark.parametrize("seed", range(12))
def test_random_programs_do_the_same_in_any_order(seed: int) -> None:
    program = parse_program(Draw(seed, depth=2, size=4, nesting=1).text())
    try:
        want = program_trace(program)
    except ArithmeticError:
        return  # a program that divides by zero
    code = lower(optimise(program, 32, Strategy.EVERYTHING), exact=True)
    before = sorted(map(repr, code.operations))
    allocation = allocate(code)
    stagger(code, allocation, set(range(seed, 60, 2)))
    assert sorted(map(repr, code.operations)) == before
    config = MachineConfig(registers=max(32, allocation.count), imem_words=4096)
    assert words_trace([encode(i) for i in instructions(code, allocation)], config).events == want


def test_no_warp_is_held_by_another_one_before_its_first_loop() -> None:
    config = load("default").replace(registers=8)
    program = compile_problem(Product(384, 1024, 1024), config)
    events = predict(config, job_of(program, {}, MemorySettings.of(config)), values=False).events
    for warp in program.programs:
        cycles = sorted(e.cycle for e in events if e.warp == warp and e.kind.name == "ISSUE")[:10]
        assert cycles == list(range(10)), warp
