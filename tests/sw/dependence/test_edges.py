"""Edges of rolled programs: the analysis finds what executions show."""

from __future__ import annotations

import random
import textwrap
from collections.abc import Callable

import pytest

from cosim.session.warps import converted
from hw.config import MachineConfig, load
from hw.errors import InputError
from sw.dependence.edges import Edge, edges
from sw.graph.network import Network
from sw.graph.problems import network_of
from sw.ir.parameters import assignments
from sw.ir.parse import parse_program
from sw.ir.program import Program
from sw.ir.scope import retype
from sw.problem import Product
from tests.sw.compile.convolution_networks import drawn
from tests.sw.compile.sequential import Sequential, emitted
from tests.sw.dependence.brute_edges import compared
from tests.sw.warps import random_programs
from tests.sw.warps.samples import WORKED, program_of

USES = (("P", "produce(write", 0), ("C", "consume(read", 1))


def found(text: str) -> dict[str, set[tuple[int | str, ...]]]:
    """The edges of a program by "source->sink", resource edges with an arrow of their own."""
    return {
        f"{e.source}{'->' if e.data else '~>'}{e.sink}": set(e.distances)
        for e in edges(retype(parse_program(textwrap.dedent(text))))
    }


def assert_exact(program: Program) -> None:
    result = compared(program, [{}])
    assert (result.missing, result.extra) == ([], [])


def assert_exact_everywhere(network: Network, config: MachineConfig) -> None:
    sources = [step.source for step in emitted(network, config) if isinstance(step, Sequential)]
    assert sources
    for source in sources:
        assert_exact(retype(source))


def test_the_worked_example() -> None:
    program = program_of(WORKED)
    assert_exact(program)
    assert Edge("C4", "P7", False, frozenset({()})) in edges(program)


def test_double_buffers_are_two_iterations_apart() -> None:
    assert found(
        """
        @program
        def p(n: int[1, 1000000]):
            a: Buffer[64]
            for i in range(n):
                L = load(write=a[i % 2 * 32 : i % 2 * 32 + 32], warp=0)
                G = gemm(read=a[i % 2 * 32 : i % 2 * 32 + 32], warp=1)
        """
    ) == {"L->G": {(0,)}, "G~>L": {(2,)}}


def test_a_counter_of_nested_loops_carries_over() -> None:
    assert found(
        """
        @program
        def p():
            a: Buffer[64]
            for i in range(1000):
                for k in range(500):
                    L = load(write=a[(i * 500 + k) % 2 * 32 : (i * 500 + k) % 2 * 32 + 32], warp=0)
                    G = gemm(read=a[(i * 500 + k) % 2 * 32 : (i * 500 + k) % 2 * 32 + 32], warp=1)
        """
    ) == {"L->G": {(0, 0)}, "G~>L": {(0, 2), (1, -498)}}


def nest(*counts: int) -> Program:
    """Loops inside of each other around a producer and a consumer of a place that follows two of them."""
    loops = [f"{'    ' * (n + 1)}for i{n} in range({count}):" for n, count in enumerate(counts)]
    place = f"(i0 + i{len(counts) - 1}) % 16"
    lines = ["@program", "def p(n: int[1, 1000]):", "    a: Buffer[64]", *loops]
    for label, name, warp in USES:
        lines.append(f"{'    ' * len(loops)}    {label} = {name}=a[{place} : {place} + 4], warp={warp})")
    return program_of("\n".join(lines))


def test_distances_of_a_deep_nest_are_told_together() -> None:
    """Places chosen for each of thousands of distances take minutes; for any number they are as good."""
    program = nest(2, 2, 3, 3, 100)
    data, back = edges(program)
    assert data.distances == {(0,) * 5}
    assert len(back.distances) <= 256
    assert all(d[-1] == "*" for d in back.distances)
    assert converted(program, load("default")).verdict.ok


def test_a_nest_with_too_many_pairs_of_iterations_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sw.warps.demands._ALL_PAIRS", 1000)
    with pytest.raises(InputError, match=r"^.*: more than 1,000 pairs .* place waits: nest fewer loops$"):
        converted(nest(2, 2, 3, 3, 100), load("default"))


def test_a_predicate_of_an_iteration_is_followed() -> None:
    assert found(
        """
        @program
        def p():
            c: Buffer[1]
            for i in range(100):
                for k in range(100):
                    Z = zero(write=c[0:1], when=k == 0, warp=0)
                    A = add(read=c[0:1], write=c[0:1], when=k > 0, warp=1)
                S = store(read=c[0:1], warp=2)
        """
    ) == {"Z->A": {(0, 1)}, "A->S": {(0,)}, "S~>Z": {(1,)}}


def test_a_number_that_conditions_leave_one_value_is_no_contradiction() -> None:
    assert found(
        """
        @program
        def p(x: int[0, 4]):
            b: Buffer[3]
            n = 0
            W = write(write=b[0:3], warp=0)
            while n < x:
                if n <= 0:
                    R = read(read=b[2:3], when=n >= 0, warp=1)
                n = n + 1
        """
    ) == {"W->R": {()}}


def test_tiles_of_one_loop_meet_larger_ones_of_another() -> None:
    assert found(
        """
        @program
        def p():
            t: Buffer[4096, 4096]
            O = old(write=t[0:4096, 0:4096], warp=2)
            for i in range(128):
                for j in range(64):
                    W = write(write=t[32 * i : 32 * i + 32, 64 * j : 64 * j + 64], warp=0)
            for k in range(64):
                R = read(read=t[64 * k : 64 * k + 64, 0:4096], warp=1)
        """
    ) == {"O~>W": {()}, "W->R": {()}}


@pytest.mark.parametrize("hw", ["default", "tiny"])
@pytest.mark.parametrize("shape", [(64, 64, 64), (100, 70, 90)])
def test_products_have_the_edges_of_their_instances(hw: str, shape: tuple[int, int, int]) -> None:
    assert_exact_everywhere(network_of(Product(*shape)), load(hw))


@pytest.mark.parametrize("kind", [random_programs.nests, random_programs.control, random_programs.everything])
def test_nothing_is_missing_in_random_programs(kind: Callable[[random.Random], Program]) -> None:
    for seed in range(12):
        program = kind(random.Random(f"{kind.__name__} {seed}"))
        assert compared(program, assignments(program, 24)[0]).missing == []


@pytest.mark.parametrize("seed", [1, 2])
def test_convolutions_of_networks_have_the_edges_of_their_instances(seed: int) -> None:
    assert_exact_everywhere(drawn(seed), load("test", {"cgra": "torus4x4"}))
