"""The lowering: correct results in any order that the channels permit, and programs that do not grow."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cosim.refine import part_of
from heald.testing.problems import bounds, compile_problem
from hw.assembly import assemble, decode, disassemble_words, illegal
from hw.config import MachineConfig, load
from hw.errors import InputError
from sw.problem import Product
from sw.tiling.machine import best
from tests.budget import cases, sweep
from tests.sw.functional import execute, extent_of, random_blocking

TEST = load("test")


PROBLEMS = [
    Product(1, 1, 1),
    Product(4, 4, 4),
    Product(5, 7, 9, type_a="uint8", zero_a=200, zero_b=-3),
    Product(33, 70, 41, transposed_a=True),
    Product(33, 70, 41, transposed_b=True),
    Product(33, 70, 41, transposed_a=True, transposed_b=True, type_b="uint8", zero_b=255),
    Product(40, 300, 50, type_a="uint8", zero_a=128),
    Product(6, 5, 7, batch_a=(3, 1), batch_b=(4,)),
    Product(6, 5, 7, batch_a=(2, 3), batch_b=(2, 3)),
    Product(6, 5, 7, batch_a=(3,), batch_b=()),
    Product(6, 5, 7, batch_a=(), batch_b=(2, 3), transposed_a=True),
    Product(6, 5, 7, batch_a=(3,), batch_b=(1,), transposed_a=True),
]


@pytest.mark.parametrize("hw", sweep(["test", "lean", "tiny"], kept=("test",)))
@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
def test_result_is_numpys_whatever_the_order_of_events(problem: Product, hw: str) -> None:
    got, want, _ = execute(problem, load(hw), seed=problem.m + problem.k)
    assert got.dtype == np.int32
    assert np.array_equal(got, want)


@st.composite
def machines(draw: st.DrawFn) -> MachineConfig:
    """Small machines with unequal edges, ports and buffers."""
    size = st.sampled_from([2, 4, 8])
    rows, cols = draw(size), draw(size)
    return MachineConfig(
        name="drawn",
        rows=rows,
        cols=cols,
        load_a_bytes=draw(st.sampled_from([4, 8, 16])),
        load_b_bytes=draw(st.sampled_from([4, 8, 16])),
        store_bytes=min(draw(st.sampled_from([4, 8, 16])), 4 * cols),
        buffer_a_bytes=draw(st.sampled_from([256, 512, 4096])),
        buffer_b_bytes=draw(st.sampled_from([256, 512, 4096])),
        acc_bytes=draw(st.sampled_from([1024, 2048, 8192])),
        acc_banks=draw(st.sampled_from([1, 2, 4])),
    )


@st.composite
def products(draw: st.DrawFn) -> Product:
    """Products of any layout and type, up to 70 a side."""
    side = st.integers(1, 70)
    kinds = st.sampled_from(["int8", "uint8"])
    a, b = draw(kinds), draw(kinds)
    zero = {"int8": st.integers(-128, 127), "uint8": st.integers(0, 255)}
    batch = draw(st.sampled_from([((), ()), ((2,), ()), ((), (3,)), ((2, 1), (3,)), ((2, 2), (2, 2))]))
    return Product(
        draw(side),
        draw(side),
        draw(side),
        a,
        b,
        draw(zero[a]),
        draw(zero[b]),
        draw(st.booleans()),
        draw(st.booleans()),
        *batch,
    )


@pytest.mark.drawn
@settings(max_examples=cases(15, 60), deadline=None)
@given(products(), machines(), st.integers(0, 1000))
def test_any_product_on_any_machine(problem: Product, config: MachineConfig, seed: int) -> None:
    got, want, _ = execute(problem, config, seed)
    assert np.array_equal(got, want)


@pytest.mark.drawn
@settings(max_examples=cases(6, 80), deadline=None)
@given(products(), machines(), st.integers(0, 1 << 30))
def test_any_blocking_of_any_product(problem: Product, config: MachineConfig, seed: int) -> None:
    config = config.replace(channel_depth=8)
    t = random_blocking(problem, config, random.Random(seed))
    got, want, _ = execute(problem, config, seed, t)
    assert np.array_equal(got, want), t


@pytest.mark.parametrize(
    "hw", sweep(["test", "tiny", "default", "lean", "large"], kept=("test", "default", "large"))
)
def test_program_size_does_not_depend_on_the_shape(hw: str) -> None:
    config = load(hw)
    for problem in (
        *PROBLEMS,
        Product(512, 1024, 1024),
        Product(4999, 1, 3),
        Product(1, 65537, 2),
        Product(3, 2, 70001),
    ):
        for warp, words in compile_problem(problem, config).programs.items():
            assert len(words) <= 80, f"warp {warp} of {problem}"
            assert assemble("\n".join(disassemble_words(words))) == words
            assert not any(illegal(decode(w), config) for w in words)


def test_512x1024x1024_reuses_tiles_enough_to_keep_the_array_busy() -> None:
    config = load("default")
    problem = Product(512, 1024, 1024)
    kernel = compile_problem(problem, config)
    bound = max(bounds(problem, kernel).values())
    assert bound == 2097152
    assert best(part_of(kernel).problem.extent, config)[0].estimate.cycles < 1.002 * bound


def test_bound_is_the_slowest_of_array_and_ports() -> None:
    problem = Product(128, 16, 128)
    kernel = compile_problem(problem, load("default"))
    assert bounds(problem, kernel) == {"gemm": 1024, "load_a": 64, "load_b": 64, "store": 2048}
    assert max(bounds(problem, kernel, {"load_a": 1}).values()) == 2048
    assert max(bounds(problem, kernel, {"load_b": 1, "store": 4}).values()) == 16384


def test_broadcast_operands_count_once_in_the_bound() -> None:
    problem = Product(4, 8, 4, batch_a=(5,), transposed_a=True)
    slow = bounds(problem, compile_problem(problem, TEST), dict.fromkeys(("load_a", "load_b", "store"), 1))
    assert {p: slow[p] for p in ("load_a", "load_b", "store")} == {"load_a": 160, "load_b": 32, "store": 320}


def test_an_operand_that_stays_is_loaded_once() -> None:
    _, _, machine = execute(Product(200, 4, 4, batch_a=(3,)), TEST)
    assert machine.performed["load_b_t"] == 1
    assert machine.performed["load_a"] > 1


LACKING = [
    ({"warps": 3}, "warps must be at least 4, not 3"),
    ({"channels": 5}, "channels must be at least 6, not 5"),
    ({"windows": 1}, "windows must be at least 2, not 1"),
    ({"loop_depth": 1}, "loop_depth must be at least"),
    ({"imem_words": 32}, "imem_words must be at least"),
]


@pytest.mark.parametrize(("change", "text"), LACKING)
def test_a_machine_that_lacks_something_is_refused_by_name(change: dict[str, int], text: str) -> None:
    config, problem = TEST.replace(**change), Product(33, 301, 41)
    with pytest.raises(InputError, match=text):
        compile_problem(problem, config, blocking=best(extent_of(problem, TEST), TEST)[0].blocking)


@pytest.mark.parametrize("lacking", sweep(LACKING, kept=LACKING[:3]))
def test_what_no_blocking_helps_is_refused_by_name(lacking: tuple[dict[str, int], str]) -> None:
    change, text = lacking
    with pytest.raises(InputError, match=text):
        compile_problem(Product(33, 301, 41), TEST.replace(**change))


@pytest.mark.parametrize("registers", [14, 16, 18])
def test_a_machine_with_few_registers_gets_a_simpler_program(registers: int) -> None:
    config = load("tiny").replace(registers=registers)
    for problem in (Product(100, 70, 130), Product(45, 300, 77, transposed_b=True)):
        got, want, _ = execute(problem, config)
        assert np.array_equal(got, want)


def test_a_product_larger_than_memory_is_refused() -> None:
    with pytest.raises(InputError, match="must fit 65536 bytes of memory"):
        compile_problem(Product(300, 300, 300), TEST, memory=range(4096, 65536))
