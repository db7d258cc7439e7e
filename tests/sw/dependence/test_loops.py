"""Loops: iterations that do not overlap, distances, loops that cover an interval, rotating buffers."""

from __future__ import annotations

import pytest

from sw.dependence import Dependences, analyse
from sw.ir.parse import parse_program


def deps(parameters: str, *lines: str) -> Dependences:
    """The dependences of a program of these lines."""
    inner = "\n".join("    " + line for line in lines)
    return analyse(parse_program(f"@program\ndef p({parameters}):\n{inner}\n"))


@pytest.mark.parametrize("count", ["7", "100000", "n"])
def test_iterations_that_do_not_overlap_have_distance_0(count: str) -> None:
    found = deps(
        "n: int",
        "a: Buffer[1000000]",
        f"for i in range({count}):",
        "    P = produce(write=a[10*i : 10*i + 10])",
        "    C = consume(read=a[10*i : 10*i + 10])",
    )
    assert found.use_def["C"] == ["P"]
    assert found.distance == {"P->C": [0]}


@pytest.mark.parametrize("count", [7, 100000])
def test_a_loop_that_covers_an_interval_kills_it(count: int) -> None:
    found = deps(
        "",
        f"a: Buffer[{10 * count + 10}]",
        "old = f(write=a)",
        f"for i in range({count}):",
        "    W = f(write=a[10*i : 10*i + 10])",
        f"R = f(read=a[0:{10 * count}])",
        f"S = f(read=a[0:{10 * count + 1}])",
    )
    assert found.use_def["R"] == ["W"]
    assert found.use_def["S"] == ["W", "old"]


def test_a_loop_of_unknown_length_covers_what_its_length_says() -> None:
    found = deps(
        "n: int[0, 90000]",
        "a: Buffer[1000000]",
        "for i in range(n):",
        "    W = f(write=a[10*i : 10*i + 10])",
        "R = f(read=a[0 : 10*n])",
        "S = f(read=a[10*n : 10*n + 10])",
    )
    assert found.use_def["R"] == ["W"]
    assert found.use_def["S"] == ["entry"]


def test_gaps_between_iterations_keep_what_was_before() -> None:
    found = deps(
        "",
        "a: Buffer[1000000]",
        "for i in range(100000):",
        "    W = f(write=a[10*i : 10*i + 9])",
        "R = f(read=a)",
    )
    assert found.use_def["R"] == ["W", "entry"]


@pytest.mark.parametrize("count", ["20", "1000000", "n"])
@pytest.mark.parametrize("turns", [2, 3, 4])
def test_a_rotating_buffer_is_reused_after_its_turns(count: str, turns: int) -> None:
    found = deps(
        "n: int",
        f"a: Buffer[{16 * turns}]",
        f"for i in range({count}):",
        f"    R = f(read=a[(i % {turns})*16 : (i % {turns})*16 + 16])",
        f"    W = f(write=a[(i % {turns})*16 : (i % {turns})*16 + 16])",
    )
    assert found.distance == {"W->R": [turns]}


@pytest.mark.parametrize("count", ["9", "100000", "n"])
def test_a_read_of_the_iteration_before_has_distance_1(count: str) -> None:
    found = deps(
        "n: int",
        "a: Buffer[1000010]",
        f"for i in range({count}):",
        "    R = f(read=a[10*i : 10*i + 10])",
        "    W = f(write=a[10*i + 10 : 10*i + 20])",
    )
    assert found.use_def["R"] == ["W", "entry"]
    assert found.distance == {"W->R": [1]}


def test_distances_of_a_nest_are_lists_outermost_first() -> None:
    found = deps(
        "",
        "c: Buffer[64, 64]",
        "for i in range(4):",
        "    for j in range(4):",
        "        R = f(read=c[8*i : 8*i + 8, 8*j : 8*j + 8])",
        "        W = f(write=c[8*i + 8 : 8*i + 16, 8*j : 8*j + 8])",
    )
    assert found.distance == {"W->R": [[1, 0]]}


def test_a_large_nest_is_as_precise() -> None:
    found = deps(
        "",
        "c: Buffer[8008, 8000]",
        "for i in range(1000):",
        "    for j in range(1000):",
        "        W = f(write=c[8*i : 8*i + 8, 8*j : 8*j + 8])",
        "        R = f(read=c[8*i : 8*i + 8, 8*j : 8*j + 8])",
    )
    assert found.use_def["R"] == ["W"]
    assert found.distance == {"W->R": [[0, 0]]}


def test_a_loop_that_may_not_run_kills_nothing() -> None:
    found = deps(
        "n: int[0, 3]",
        "a: Buffer[8]",
        "for i in range(n):",
        "    W = f(write=a)",
        "R = f(read=a)",
    )
    assert found.use_def["R"] == ["W", "entry"]


def test_an_unbounded_distance_is_any() -> None:
    found = deps(
        "n: int, x: int",
        "a: Buffer[8]",
        "for i in range(n):",
        "    R = f(read=a)",
        "    W = f(write=a, when=i % 70 == x)",
    )
    assert "*" in found.distance["W->R"]


def test_a_write_of_every_seventh_iteration_is_at_most_seven_iterations_old() -> None:
    found = deps(
        "n: int",
        "a: Buffer[8]",
        "for i in range(n):",
        "    R = f(read=a)",
        "    W = f(write=a, when=i % 7 == 3)",
    )
    assert found.distance["W->R"] == [1, 2, 3, 4, 5, 6, 7]


def test_a_predicate_that_holds_for_both_is_certain() -> None:
    found = deps(
        "p: bool, q: bool",
        "a: Buffer[8]",
        "W = f(write=a, when=p)",
        "V = f(write=a, when=not p)",
        "R = f(read=a, when=p)",
        "S = f(read=a)",
        "T = f(read=a, when=q)",
    )
    assert found.use_def["R"] == ["W"]
    assert found.use_def["S"] == found.use_def["T"] == ["V", "W"]


def test_a_while_loop_reads_what_any_iteration_wrote() -> None:
    found = deps(
        "x: int",
        "a: Buffer[64]",
        "k = 0",
        "while k < x:",
        "    R = f(read=a[0:8])",
        "    W = f(write=a[0:8])",
        "    k = k + 1",
        "S = f(read=a[0:8])",
    )
    assert set(found.use_def["R"]) == set(found.use_def["S"]) == {"W", "entry"}
    assert found.distance == {"W->R": [1]}


def test_a_product_in_tiles_accumulates_from_the_iteration_before() -> None:
    tile = "c[16*i : 16*i + 16, 16*j : 16*j + 16]"
    found = deps(
        "",
        "c: Buffer[4096, 4096]",
        "for i in range(256):",
        "    for j in range(256):",
        f"        Z = zero(write={tile})",
        "        for k in range(64):",
        f"            G = gemm_like(read={tile}, write={tile})",
        f"        S = store_like(read={tile})",
        "E = end(read=c)",
    )
    assert found.use_def == {"Z": [], "G": ["G", "Z"], "S": ["G"], "E": ["G"]}
    assert found.distance == {"G->G": [[0, 0, 1]], "Z->G": [[0, 0]], "G->S": [[0, 0]]}


def test_an_earlier_write_of_an_iteration_may_outlive_a_later_one_that_moves() -> None:
    # In the last iteration V moves on to a[1:26], so a[0:1] is W's.
    found = deps(
        "n: int",
        "a: Buffer[26]",
        "k = 0",
        "while k < n:",
        "    for i in range(2):",
        "        W = f(write=a[0:26])",
        "        V = f(write=a[i : i + 25])",
        "    k = k + 1",
        "R = f(read=a[0:1])",
    )
    assert set(found.use_def["R"]) >= {"W", "entry"}


def test_a_large_body_has_exact_distances() -> None:
    lines = ["a: Buffer[1000000]", "c: Buffer[64]", "for i in range(n):"]
    for k in range(4000):
        lines.append(f"    I{k} = f(read=c[{k % 64}:{k % 64 + 1}], write=c[{k % 64}:{k % 64 + 1}])")
    lines += ["    R = f(read=a[4*i : 4*i + 4])", "    W = f(write=a[4*i + 12 : 4*i + 16])"]
    lines += ["    Q = f(write=a[4*i + 8 : 4*i + 10], when=p)"]
    found = deps("n: int[0, 1000], p: bool", *lines)
    assert found.use_def["R"] == ["Q", "W", "entry"]
    assert found.distance["W->R"] == [3]
    assert found.distance["Q->R"] == [2]
    assert found.use_def["I64"] == ["I0"]
    assert found.distance["I0->I64"] == [0]
    assert found.use_def["I0"] == ["I3968", "entry"]
    assert found.distance["I3968->I0"] == [1]


def test_writes_of_an_inner_loop_are_told_apart_in_the_order_of_the_text() -> None:
    # R, W and V move by different steps in j; V is after W, and covers it in every iteration.
    found = deps(
        "",
        "a: Buffer[30]",
        "for i in range(0, 6, 3):",
        "    for j in range(1):",
        "        Q = f(read=a[1:8])",
        "        R = f(read=a[2*j : 2*j + 2])",
        "        W = f(write=a[14*j : 14*j + 6])",
        "        for k in range(i, 4, 2):",
        "            V = f(write=a[0:9])",
    )
    assert found.use_def["R"] == ["V", "entry"]


def test_distances_that_are_far_apart() -> None:
    found = deps(
        "n: int[0, 100000], p: bool",
        "a: Buffer[1000000]",
        "for i in range(n):",
        "    R = f(read=a[4*i : 4*i + 4])",
        "    P = f(write=a[4*i + 2000 : 4*i + 2004], when=p)",
        "    W = f(write=a[4*i + 4000 : 4*i + 4004])",
    )
    assert found.distance == {"P->R": [500], "W->R": [1000]}


def test_iterations_with_predicates_are_told_apart() -> None:
    # One tile after the other goes through two places in turn; products are added up along k.
    place = "s[(m*6 + k) % 2 * 8 : (m*6 + k) % 2 * 8 + min(10 - m*4, 4)]"
    sums = "c[0 : min(10 - m*4, 4)]"
    found = deps(
        "",
        "s: Buffer[16, int8, scratch]",
        "c: Buffer[8, int32, acc]",
        "for m in range(3):",
        "    for k in range(6):",
        "        L = load_like(write=s[(m*6 + k) % 2 * 8 : (m*6 + k) % 2 * 8 + 4])",
        f"        G = gemm(read={place}, write={sums}, when=k == 0)",
        f"        A = gemm_acc(read=[{place}, {sums}], write={sums}, when=k != 0)",
        f"    S = store_like(read={sums})",
    )
    assert found.use_def == {"L": [], "G": ["L"], "A": ["A", "G", "L"], "S": ["A"]}
    assert found.distance["A->A"] == [[0, 1]]
    assert found.distance["L->G"] == found.distance["L->A"] == [[0, 0]]


def test_a_branch_within_known_iterations_is_exact() -> None:
    found = deps(
        "",
        "a: Buffer[20]",
        "for i in range(10):",
        "    if i % 3 == 1:",
        "        W = f(write=a[2*i : 2*i + 2])",
        "    else:",
        "        V = f(write=a[2*i : 2*i + 2])",
        "R = f(read=a[8:10])",
        "S = f(read=a[10:14])",
    )
    assert (found.use_def["R"], found.use_def["S"]) == (["W"], ["V"])


@pytest.mark.parametrize("least", [-(1 << 31), -100])
def test_a_limit_at_the_end_of_32_bits_loses_no_case(least: int) -> None:
    """The difference of the limit's arguments is beyond 32 bits."""
    place = f"min(max(7*i + {least}, 0), 1)"
    found = deps(
        "n: int",
        "a: Buffer[7, int8, A]",
        "for m in range(n):",
        "    for i in range(m):",
        f"        U = f(read=a[{place} : {place} + 6], write=a[0:7])",
        "    W = f(write=a[3:6])",
    )
    assert found.use_def["U"] == ["U", "W", "entry"]
