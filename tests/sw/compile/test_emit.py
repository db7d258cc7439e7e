"""Emitted tile programs: they are readable, and operands agree with the regions beside them."""

from __future__ import annotations

import random
from collections.abc import Iterator

import numpy as np
import pytest

from hw.config import load
from hw.errors import InputError
from sw.compile.array_tiles import LoweredProduct
from sw.compile.legal import legal
from sw.compile.memory import Allocation
from sw.compile.program import Group
from sw.compile.stages import Emit, Tile, TileProgram
from sw.convolution import Convolution
from sw.graph.problems import network_of
from sw.ir.expression import Expr, evaluate
from sw.ir.parse import parse_program
from sw.ir.program import Instruction, Program, Region
from sw.ir.roles import WarpRole
from sw.ir.split import share, warps
from sw.ir.walk import executions
from sw.patches import Axis
from sw.problem import Product
from tests.sw.functional import random_blocking

Box = tuple[tuple[int, int], ...]


def draw(r: random.Random) -> TileProgram | None:
    """A random product or convolution, on a random machine, with a random blocking."""
    config = load(r.choice(["test", "lean", "tiny"]))
    if r.random() < 0.5:
        a = r.choice([(), (), (3,), (2, 3)])
        problem: Product | Convolution = Product(
            r.randint(1, 60),
            r.randint(1, 300),
            r.randint(1, 60),
            transposed_a=r.random() < 0.4,
            transposed_b=r.random() < 0.4,
            batch_a=a,
            batch_b=r.choice([(), (1,), (3,)]),
        )
    else:
        axes = [
            Axis(r.randint(8, 14), r.randint(1, 3), r.randint(1, 3), r.randint(0, 3), r.randint(0, 3))
            for _ in "yx"
        ]
        g = r.choice([1, 2])
        problem = Convolution(r.randint(1, 2), g * r.randint(1, 5), *axes, g * r.randint(1, 9), groups=g)
    t = random_blocking(problem, config, r)
    network = legal(network_of(problem), config)
    try:
        return Emit()(Tile({"C": t})(Group(network, network.operators, config)))
    except InputError:
        return None


def plans(seed: str, count: int) -> Iterator[TileProgram]:
    r = random.Random(seed)
    while count:
        plan = draw(r)
        if plan is not None:
            count -= 1
            yield plan


def executed(program: Program) -> Iterator[tuple[Instruction, dict[str, int], dict[str, Box]]]:
    """Every instruction that happens, with its register operands and its regions in numbers."""
    values: dict[str, int] = {}
    for s, _ in executions(program.body, values):
        operands = {n: evaluate(e, values) for n, e in s.operands if isinstance(e, Expr)}
        boxes = {
            a.buffer: tuple((evaluate(i.start, values), evaluate(i.stop, values)) for i in a.box)
            for a in (*s.reads, *s.writes)
            if isinstance(a, Region)
        }
        yield s, operands, boxes


def count(span: tuple[int, int]) -> int:
    return max(0, span[1] - span[0])


def homes_of(plan: TileProgram) -> dict[str, Allocation]:
    """Addresses by the names of the program's buffers."""
    return {f"t{i}": home for i, home in enumerate(plan.tiled.memory.homes.values())}


def check_operands(plan: TileProgram, s: Instruction, o: dict[str, int], boxes: dict[str, Box]) -> None:
    """Registers and regions must tell of the same bytes."""
    part = plan.tiled.parts[0]
    assert isinstance(part, LoweredProduct)
    homes = homes_of(plan)
    (tensor,) = boxes.keys() & homes.keys() or {""}
    # What is loaded for a convolution, or of a transposed operand, counts as read whole: nothing writes it.
    exact = s.name == "store" or not (part.problem.extent.patches or s.name in ("load_a_t", "load_b"))
    if tensor and exact:
        home = homes[tensor]
        (row, _), (column, _) = boxes[tensor]
        assert o["memory"] == home.address + row * home.pitch + column * home.itemsize
        size = [o["rows"], o["bytes"] // 4] if s.name == "store" else [o["outer"], o["inner"]]
        assert [count(x) for x in boxes[tensor]] == size
    if s.name.startswith("load"):
        assert o["target"] == boxes["buffer_a" if s.warp == WarpRole.LOAD_A else "buffer_b"][0][0]
    if s.name.startswith("gemm"):
        assert o["a"] == boxes["buffer_a"][0][0]
        assert o["b"] == boxes["buffer_b"][0][0]
        assert count(boxes["accumulator"][0]) == o["gemm_m"] * o["gemm_c_pitch"]
        assert o["gemm_c_pitch"] * plan.config.cols >= o["gemm_n"]
    if "accumulator" in boxes:
        assert boxes["accumulator"][0][0] == o["source" if s.name == "store" else "c"]


@pytest.mark.parametrize("seed", range(4))
def test_operands_and_regions_mean_the_same(seed: int) -> None:
    for plan in plans(f"regions {seed}", 12):
        program = plan.source
        shape = {b.name: [evaluate(x, {}) for x in b.shape] for b in program.buffers}
        (result,) = (n for n, home in homes_of(plan).items() if home.tensor.name == "C")
        stored = np.zeros(shape[result], int)
        for s, operands, boxes in executed(program):
            for name, box in boxes.items():
                inside = all(lo >= 0 and hi <= n for (lo, hi), n in zip(box, shape[name], strict=True))
                assert inside or any(lo >= hi for lo, hi in box)
            check_operands(plan, s, operands, boxes)
            if s.name == "store":
                stored[tuple(slice(*x) for x in boxes[result])] += 1
        assert (stored == 1).all(), "every element of the result is stored once"


def test_the_text_reads_back() -> None:
    for plan in plans("text", 25):
        program = plan.source
        assert parse_program(str(program)) == program


def test_the_array_reads_what_loads_have_written() -> None:
    """In program order every column that a product reads was written by the last load into that place."""
    for plan in plans("order", 25):
        holds: dict[str, dict[int, Box]] = {"buffer_a": {}, "buffer_b": {}}
        for s, _, boxes in executed(plan.source):
            for name in holds.keys() & boxes.keys():
                columns = range(*boxes[name][0])
                if s.name.startswith("load"):
                    holds[name] |= dict.fromkeys(columns, boxes[name])
                else:
                    assert len({holds[name][c] for c in columns}) == 1


def flat(program: Program) -> list[tuple[str, dict[str, int]]]:
    return [(s.label, o) for s, o, _ in executed(program)]


def test_shares_of_the_warps_make_the_whole() -> None:
    for plan in plans("shares", 25):
        program = plan.source
        assert warps(program) == [WarpRole.LOAD_A, WarpRole.LOAD_B, WarpRole.GEMM, WarpRole.STORE]
        shares = [flat(share(program, w)) for w in warps(program)]
        whole = flat(program)
        assert sorted(map(str, whole)) == sorted(str(x) for part in shares for x in part)
        for part in shares:
            labels = {label for label, _ in part}
            assert part == [x for x in whole if x[0] in labels]
