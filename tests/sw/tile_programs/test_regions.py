"""Operations on regions follow their regions; what a single operation cannot do is refused."""

from __future__ import annotations

import random

import numpy as np
import pytest

from cosim.models.functional import Memories, execute
from hw.config import MachineConfig, load
from hw.errors import InputError
from sw.ir.parse import parse_program
from sw.ir.program import Program
from sw.ir.walk import instructions
from sw.tile_programs import Bound, bind

TEST = load("test").replace(scratch_bytes=4096, cgra=None)

BUFFERS = """
    A: Buffer[24, 40, int8, memory]
    B: Buffer[40, 30, uint8, memory]
    C: Buffer[24, 30, int32, memory]
    T: Buffer[3, 24, 40, int8, memory]
    a: Buffer[16, 12, int8, A]
    b: Buffer[12, 16, uint8, B]
    c: Buffer[16, 16, int32, acc]
    s: Buffer[8, 20, int8, scratch]
    x: Buffer[60]
"""


def program(*lines: str) -> Program:
    body = "\n".join(f"    {line}" for line in lines)
    return parse_program(f"@program\ndef p(n: int[0, 9]):{BUFFERS}{body}\n", "f.py")


def run(bound: Bound, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The buffers in memory after a sequential execution."""
    memory = np.zeros(bound.size, np.uint8)
    for name, array in arrays.items():
        place = bound.memory[name]
        memory[place.address : place.address + place.size] = place.image(array)
    execute(bound.program, Memories(bound.config, memory, strict=True))
    return {n: p.extract(memory[p.address : p.address + p.size]) for n, p in bound.memory.items()}


def random_product(rng: random.Random) -> tuple[str, tuple[int, int, int]]:
    """A blocked product of random sizes and blocks, operands stored either way."""
    m, k, n = (rng.randint(1, 30) for _ in range(3))
    bm, bk, bn = (rng.choice((4, 8, 12)), rng.randint(1, 12), rng.choice((4, 8, 12)))
    left, right = rng.random() < 0.5, rng.random() < 0.5
    a_shape, b_shape = f"{m}, {k}" if left else f"{k}, {m}", f"{k}, {n}" if right else f"{n}, {k}"
    rows, depth, cols = (
        f"{b} * {v} : min({b} * {v} + {b}, {s})"
        for b, v, s in zip((bm, bk, bn), "ilj", (m, k, n), strict=True)
    )
    load_a = f"load_a(memory=A[{rows}, {depth}]" if left else f"load_a_t(memory=A[{depth}, {rows}]"
    load_b = f"load(memory=B[{depth}, {cols}]" if right else f"load_b(memory=B[{cols}, {depth}]"
    kind_a, kind_b = (rng.choice(("int8", "uint8")) for _ in range(2))
    zeros = f"gemm_zero_a={rng.randrange(256)}, gemm_zero_b={rng.randrange(256)}"
    text = f"""
@program
def product():
    A: Buffer[{a_shape}, {kind_a}, memory]
    B: Buffer[{b_shape}, {kind_b}, memory]
    C: Buffer[{m}, {n}, int32, memory]
    a: Buffer[2, {bm}, {bk}, {kind_a}, A]
    b: Buffer[2, {bk}, {bn}, {kind_b}, B]
    c: Buffer[{bm}, {bn}, int32, acc]
    for i in range({-(-m // bm)}):
        m = min({bm}, {m} - {bm} * i)
        for j in range({-(-n // bn)}):
            n = min({bn}, {n} - {bn} * j)
            for l in range({-(-k // bk)}):
                d = min({bk}, {k} - {bk} * l)
                {load_a}, target=a[l % 2, 0:m, 0:d])
                {load_b}, target=b[l % 2, 0:d, 0:n])
                gemm(a=a[l % 2, 0:m, 0:d], b=b[l % 2, 0:d, 0:n], c=c[0:m, 0:n], when=l == 0, {zeros})
                gemm_acc(a=a[l % 2, 0:m, 0:d], b=b[l % 2, 0:d, 0:n], c=c[0:m, 0:n], when=l > 0, {zeros})
            store(source=c[0:m, 0:n], memory=C[{rows}, {cols}])
"""
    return text, (m, k, n)


@pytest.mark.parametrize("seed", range(12))
def test_products_by_hand_are_products(seed: int) -> None:
    rng = random.Random(seed)
    text, _ = random_product(rng)
    bound = bind(parse_program(text), TEST if seed % 3 else load("lean"))
    draw = np.random.default_rng(seed)
    arrays = {}
    for name in "AB":
        place = bound.memory[name]
        arrays[name] = draw.integers(0, 256, place.shape).astype(np.uint8).view(place.dtype)
    found = run(bound, arrays)["C"]
    operands = dict(next(i for i in instructions(bound.program) if i.name == "gemm").operands)
    zero = {x: np.uint8(getattr(operands[f"gemm_zero_{x}"], "value", 0)) for x in "ab"}
    a, b = (arrays[name].astype(np.int64) - int(zero[name.lower()].view(arrays[name].dtype)) for name in "AB")
    a = a.T if "load_a_t" in text else a
    b = b.T if "load_b(" in text else b
    assert np.array_equal(found, a @ b)


def test_a_load_may_be_padded_where_it_says_with_what() -> None:
    bound = bind(
        program(
            "for i in range(4):",
            "    LA = load_a(memory=A[5 * i : 5 * i + 5 - i, 0 : 9 - i], target=a[0:8, 0:12], load_fill=1)",
            "    LB = load(memory=B[0:12, 0:16], target=b)",
            "    gemm(a=a[0:8, 0:12], b=b, c=c[0:8, 0:16])",
            "    store(source=c[0:5, 0:16], memory=C[5 * i : 5 * i + 5, 0:16])",
        ),
        TEST,
        {"n": 0},
    )
    rng = np.random.default_rng(2)
    a, b = rng.integers(-128, 128, (24, 40)).astype(np.int8), rng.integers(0, 256, (40, 30)).astype(np.uint8)
    found = run(bound, {"A": a, "B": b})["C"]
    for i in range(4):
        rows = np.ones((5, 12), np.int64)
        rows[: 5 - i, : 9 - i] = a[5 * i : 5 * i + 5 - i, : 9 - i]
        assert np.array_equal(found[5 * i : 5 * i + 5, :16], rows @ b[:12, :16].astype(np.int64)), i


def test_the_scratchpad_copies_rows_from_memory_to_memory() -> None:
    bound = bind(
        program(
            "for i in range(1, 8):",
            "    load(memory=T[2, i : 2 * i, 3 : 3 + n], target=s[0:i, 8 : 8 + n])",
            "    store(source=s[0:i, 8 : 8 + n], memory=T[i % 2, i : 2 * i, 0:n])",
        ),
        TEST,
        {"n": 7},
    )
    t = np.random.default_rng(0).integers(-128, 128, (3, 24, 40)).astype(np.int8)
    found, wanted = run(bound, {"T": t})["T"], t.copy()
    for i in range(1, 8):
        wanted[i % 2, i : 2 * i, 0:7] = t[2, i : 2 * i, 3:10]
    assert np.array_equal(found, wanted)


def test_empty_regions_do_nothing() -> None:
    bound = bind(
        program(
            "for i in range(5):",
            "    load(memory=A[0:i, 0 : 3 * i - 3], target=a[0:i, 0 : 3 * i - 3])",
            "    load(memory=B[0 : 3 * i - 3, 0:16], target=b[0 : 3 * i - 3, 0:16])",
            "    gemm(a=a[0:i, 0 : 3 * i - 3], b=b[0 : 3 * i - 3, 0:16], c=c[0:i, 0:16], when=i > 1)",
            "    gemm_acc(a=a[0:i, 0 : 3 * i - 3], b=b[0 : 3 * i - 3, 0:16], c=c[0:i, 0:16], when=i > 3)",
            "    store(source=c[0 : i - 1, 0:16], memory=C[i : 2 * i - 1, 0:16])",
        ),
        TEST,
        {"n": 0},
    )
    rng = np.random.default_rng(2)
    a, b = rng.integers(-128, 128, (24, 40)).astype(np.int8), rng.integers(0, 256, (40, 30)).astype(np.uint8)
    found = run(bound, {"A": a, "B": b})["C"]
    wanted = np.zeros((24, 30), np.int64)
    for i in range(2, 5):
        product = a[: i - 1, : 3 * i - 3].astype(np.int64) @ b[: 3 * i - 3, :16].astype(np.int64)
        wanted[i : 2 * i - 1, :16] = product * (1 + (i > 3))
    assert np.array_equal(found, wanted)
    named = {i.name: i.when is not None for i in instructions(bound.program)}
    assert named == {"load_a": True, "load_b_t": True, "gemm": True, "gemm_acc": True, "store": True}


def test_what_has_values_keeps_them_and_its_buffers_get_no_places() -> None:
    line = "load_a(memory=4096, target=5, outer=2, inner=n, read=A[0:2, 0:n], write=a[0:2, 0:n])"
    bound = bind(program(line, "store(source=c[0:4, 0:4], memory=C[0:4, 0:4])"), TEST, {"n": 7})
    operands = dict(instructions(bound.program)[0].operands)
    assert {n: str(v) for n, v in operands.items()} == {
        "memory": "4096",
        "target": "5",
        "outer": "2",
        "inner": "7",
    }
    assert "a" not in bound.places
    assert bound.places["c"].base == 0


def test_buffers_of_a_space_lie_one_after_the_other() -> None:
    text = """
@program
def p():
    M: Buffer[4, 24, int8, memory]
    N: Buffer[3, 7, int8, memory]
    a: Buffer[3, 9, 10, int8, A]
    aa: Buffer[4, 5, int8, A]
    b: Buffer[2, 10, 9, int8, B]
    s: Buffer[3, 9, int32, scratch]
    t: Buffer[5, int8, scratch]
    load_a(memory=M[0:4, 0:5], target=aa)
    load_a(memory=M[0:4, 0:10], target=a[1, 0:4, 0:10])
    load(memory=M[0:4, 0:4], target=b[1, 0:4, 0:4])
    load(memory=N[0, 0:5], target=t)
    f(read=s)
"""
    bound = bind(parse_program(text), TEST)
    found = {n: (p.base, p.strides) for n, p in bound.places.items()}
    assert found["a"] == (0, (30, 10, 1))
    assert found["aa"] == (90, (5, 1))
    # Blocks of a transposing load are an odd number of halves of a bank apart.
    assert found["b"] == (0, (36, 1, 12))
    assert found["s"] == (0, (72, 8))
    assert found["t"] == (216, (1,))
    assert bound.memory["M"].address == 4096
    assert (bound.memory["N"].address, bound.memory["N"].pitch) == (12288, 8)


def many(count: int, machine: MachineConfig) -> tuple[tuple[int, int, bool, bool], ...]:
    buffers = "".join(f"    M{n}: Buffer[8, int8, memory]\n" for n in range(count))
    moves = "".join(f"    load(memory=M{n}, target=s)\n" for n in range(count // 2))
    moves += "".join(f"    store(source=s, memory=M{n})\n" for n in range(count // 2, count))
    text = f"@program\ndef p():\n{buffers}    s: Buffer[8, int8, scratch]\n{moves}"
    return bind(parse_program(text), machine).windows()


def test_neighbours_share_windows_where_the_machine_has_too_few() -> None:
    step, machine = 8192, TEST.replace(windows=4)
    assert many(4, machine) == tuple((4096 + step * n, 4096 + step * n + 7, n < 2, n >= 2) for n in range(4))
    last = 4096 + 5 * step + 7
    windows = many(6, machine)
    assert len(windows) == machine.windows
    assert {w[2:] for w in windows} == {(True, False), (False, True)}
    assert many(6, machine.replace(windows=2))[1][1] == last
    assert many(6, machine.replace(windows=1)) == ((4096, last, True, True),)


LOAD = "load(memory=A[0:4, 0:12], target="


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (LOAD + "a[0:4, 0:11])", "found 12 elements in a row of A[0:4, 0:12] and 11 of a[0:4, 0:11]"),
        (
            LOAD + "a[2:6, 0:12])",
            "starts at 2 across the lanes, in load0, expected a start that is a multiple of 4",
        ),
        (LOAD + "c[0:4, 0:12])", "found c in space acc as target of load, expected one in A, B, scratch"),
        (
            LOAD.replace("(", "_a(") + "a[0:4, 0:10], load_fill=3)",
            "found 12 elements in a row of A[0:4, 0:12] for 10 of",
        ),
        (
            "load(memory=T[0:2, 0:4, 0:12], target=a[0:4, 0:12])",
            "found the region T[0:2, 0:4, 0:12], 2 x 4 x 12,",
        ),
        ("load(memory=C[0:4, 0:12], target=a[0:4, 0:12])", "found elements of int8 for int32, expected"),
        (
            "load(memory=a[0:4, 0:12], target=a[4:8, 0:12])",
            "found a in space A as memory of load_a, expected",
        ),
        ("load_a(memory=A[0:4, 0:12], target=b[0:4, 0:12])", "found b in space B as target of load_a"),
        ("load_a(memory=A[0:4, 0:12], target=7)", "found no region as target of load_a0, expected regions"),
        ("load(read=A, write=a)", "found load without regions, expected an operation of the machine"),
        ("load_b_conv(memory=A, target=b)", "found a region as operand of load_b_conv, expected values"),
        ("gemm(a=a[0:4, 0:12], b=b[0:12, 0:4], c=c[0:4, 0:5])", "found 4 columns of b[0:12, 0:4] and 5 of"),
        ("gemm(a=a[0:4, 0:12], b=b[0:11, 0:4], c=c[0:4, 0:4])", "found 12 steps of depth of a[0:4, 0:12]"),
        ("gemm(a=a[0:4, 0:0], b=b[0:0, 0:4], c=c[0:4, 0:4])", "found a product of nothing for c[0:4, 0:4]"),
        ("for i in range(3): store(source=c[0:4, 2*i:2*i+3], memory=C[0:4, 0:3])", "in store0[1], expected"),
        (
            "store(source=s[0:4, 4:8], memory=A[0:4, 0:4])",
            "which starts at byte 4 of a row, in store0, expected",
        ),
        (
            "store_out(source=3, memory=4, rows=1, bytes=1)",
            "found store_out, which needs a CGRA, expected",
        ),
        (
            "f(read=A[0:4, 0:4])",
            "found A in space memory as read= of the generic f, expected a buffer in the",
        ),
        ("f(read=ANY)", "found read=ANY of f0, expected a region, to run the program"),
        ("f(read=x[n : n + 60])", "f.py:12:12: found the region x[3:63] in f0, expected one inside of x["),
        ("f(read=x, warp=6)", "f.py:12:5: found warp 6 of f0, expected a warp of 0 to 5, the warps of test"),
        ("wait(3)", "f.py:12:5: found wait without warp=, expected the warp that executes it"),
    ],
)
def test_what_cannot_be_done_names_the_place_and_the_reason(line: str, message: str) -> None:
    with pytest.raises(InputError) as error:
        bind(program(line), TEST, {"n": 3})
    assert message in str(error.value)
    assert str(error.value).startswith("f.py:12:")


@pytest.mark.parametrize(
    ("declaration", "use", "message"),
    [
        (
            "a: Buffer[100, 44, int8, A]",
            "load(memory=A[0:4, 0:12], target=a[0:4, 0:12])",
            "found 1100 columns of buffers in space A (a 1100), expected at most 1024 (buffer_a_bytes",
        ),
        (
            "x: Buffer[513]",
            "f(read=x)",
            "found 4104 bytes of buffers in space scratch (x 4104), expected at most 4096 (scratch_bytes",
        ),
        (
            "c: Buffer[100, 100, int32, acc]",
            "store(source=c[0:4, 0:4], memory=C[0:4, 0:4])",
            "found 2500 words of buffers in space acc (c 2500), expected at most 256 (acc_bytes of test)",
        ),
        (
            "c: Buffer[4, 4, int8, acc]",
            "store(source=c, memory=C)",
            "found elements of int8 in the accumulator, expected int32",
        ),
        (
            "a: Buffer[4, 12, int32, A]",
            "load(memory=A, target=a)",
            "found elements of int32 in space A, expected int8 or uint8",
        ),
        (
            "m: Buffer[100000, 100000, int32, memory]",
            "wait(1, warp=0)",
            "found buffers in memory up to m of 40000000000 bytes that take",
        ),
    ],
)
def test_buffers_that_do_not_fit_are_refused(declaration: str, use: str, message: str) -> None:
    text = f"""@program
def p():
    A: Buffer[4, 12, int8, memory]
    C: Buffer[4, 4, int32, memory]
    {declaration}
    {use}
"""
    with pytest.raises(InputError) as error:
        bind(parse_program(text, "f.py"), TEST)
    assert str(error.value).startswith(f"f.py:5:5: {message}")


def test_parameters_need_values_in_their_range() -> None:
    with pytest.raises(InputError, match=r"f\.py:2:7: found no value of the parameter n"):
        bind(program("wait(1, warp=0)"), TEST, {})
    with pytest.raises(InputError, match=r"f\.py:2:7: found n = 9, expected a value of int.0,9."):
        bind(program("wait(1, warp=0)"), TEST, {"n": 9})


def test_reading_what_nothing_has_written_is_refused() -> None:
    bound = bind(program("S = store(source=c[0:4, 0:4], memory=C[0:4, 0:4])"), TEST, {"n": 0})
    with pytest.raises(InputError, match="found a read of the accumulator where nothing was written in S"):
        run(bound, {})
