"""Programs do not grow with the problem: those of large products differ only in numbers."""

from __future__ import annotations

import itertools
import random

import pytest

from cosim.refine import part_of
from heald.testing.problems import compile_problem
from hw.assembly import decode
from hw.config import MachineConfig, load
from sw.compile.stages import Compiled
from sw.convolution import Convolution
from sw.patches import Axis
from sw.problem import Product
from sw.tiling.blocking import Extent
from sw.tiling.candidates import candidates
from sw.tiling.estimate import Ports, refined
from sw.tiling.machine import best
from sw.tiling.uniform import STEPS, uniform
from tests.budget import sweep
from tests.sw.functional import extent_of

PRESETS = ("test", "tiny", "lean", "default", "large")
LAYOUTS = ((False, False), (True, False), (False, True), (True, True))
#: With a smaller instruction memory than any preset.
TEST = load("test").replace(imem_words=256)
#: Memory that holds the operands of the largest product.
SIZES = (512, 1024, 4096)
#: Presets on layouts that `make test` looks at: all layouts on one, and every preset.
KEPT = [*itertools.product(("test",), LAYOUTS), *zip(PRESETS[1:], LAYOUTS, strict=True)]


def names(kernel: Compiled) -> dict[int, list[str]]:
    """By warp the instructions of its program without what stands in their fields."""
    found: dict[int, list[str]] = {}
    for warp, words in kernel.programs.items():
        codes = [decode(word) for word in words]
        found[warp] = [c.spec.name for c in codes if c is not None]
        assert len(found[warp]) == len(words)
    return found


def cube(size: int, layout: tuple[bool, bool]) -> Product:
    """A product of equal sides, operands transposed as told."""
    return Product(size, size, size, transposed_a=layout[0], transposed_b=layout[1])


@pytest.mark.parametrize("cell", sweep(itertools.product(PRESETS, LAYOUTS), kept=KEPT), ids=str)
def test_large_products_have_the_same_instructions(cell: tuple[str, tuple[bool, bool]]) -> None:
    hw, layout = cell
    small, medium, large = (compile_problem(cube(n, layout), load(hw)) for n in SIZES)
    made = [part_of(program).nest.blocking for program in (small, medium, large)]
    assert made[0] == made[1] == made[2]
    assert names(small) == names(medium) == names(large)
    assert sorted(small.programs) == [0, 1, 2, 3]


@pytest.mark.parametrize("hw", sweep(PRESETS, kept=("test", "lean")))
def test_sides_need_not_be_equal_nor_powers_of_two(hw: str) -> None:
    config = load(hw)
    tiles = uniform(Extent(1 << 12, 1 << 12, 1 << 12), config)
    assert tiles is not None
    wanted = names(compile_problem(cube(512, LAYOUTS[0]), config))
    r = random.Random(hw)
    for _ in range(3):
        m, k, n = (
            min(r.choice([STEPS, r.randint(STEPS, 40)]) * tile, 4096)
            for tile in (tiles.partition_m, tiles.partition_k, tiles.partition_n)
        )
        assert names(compile_problem(Product(m, k, n), config)) == wanted, (m, k, n)


def estimate(problem: Product, config: MachineConfig) -> tuple[float, float]:
    """Estimated cycles of the tiles that are taken, and the least of the best others."""
    extent = extent_of(problem, config)
    found = best(extent, config, count=7)
    shared = uniform(extent, config)
    others = [c.estimate.cycles for c in found if c.blocking != shared]
    return found[0].estimate.cycles, others[0]


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
@pytest.mark.parametrize("hw", PRESETS)
def test_tiles_that_products_share_take_no_longer_than_their_best(hw: str, layout: tuple[bool, bool]) -> None:
    for n in SIZES:
        taken, other = estimate(cube(n, layout), load(hw))
        assert taken <= other


def test_tiles_that_take_longer_are_not_shared() -> None:
    # A port of one byte per cycle makes loads what all waits for: other tiles load less.
    config = load("default")
    extent = Extent(512, 512, 512)
    slow = {"load_a": 1, "load_b": 32, "store": 32}
    shared = uniform(extent, config)
    assert shared is not None
    ports = Ports(extent, config, slow)
    least = min(refined(ports, t).cycles for t in candidates(extent, config, single=False))
    assert least < refined(ports, shared).cycles
    assert best(extent, config, slow)[0].blocking != shared


@pytest.mark.parametrize(
    "extent",
    [
        Extent(511, 512, 512),
        Extent(512, 512, 500),
        Extent(192, 512, 512),
        Extent(512, 384, 512),
        Extent(512, 512, 384),
        Extent(512, 512, 512, batch=2),
    ],
)
def test_products_that_are_not_large_have_tiles_of_their_own(extent: Extent) -> None:
    # On `default` the shared tiles are 64 x 128 and 128 deep, and there must be four along each axis.
    config = load("default")
    shared = uniform(Extent(256, 512, 512), config)
    assert shared is not None
    assert (shared.partition_m, shared.partition_n, shared.partition_k) == (64, 128, 128)
    assert uniform(extent, config) is None


def shapes() -> list[Product | Convolution]:
    """Products and convolutions of all layouts, from one element to more than fits any buffer."""
    r = random.Random(1)
    found: list[Product | Convolution] = []
    for _ in range(24):
        m, k, n = (r.choice([r.randint(1, 9), r.randint(1, 100), r.randint(1, 1500), 512]) for _ in range(3))
        batch = r.choice([((), ()), ((3,), ()), ((), (2, 3)), ((2, 1), (3,)), ((5,), (5,))])
        a, b = (r.choice(["int8", "uint8"]) for _ in "ab")
        a_over, b_over = (r.random() < 0.5 for _ in "ab")
        found.append(Product(m, k, n, a, b, r.randint(0, 127), r.randint(0, 127), a_over, b_over, *batch))
    for _ in range(24):
        kernel, stride, groups = r.choice([1, 3, 5]), r.choice([1, 2, 3]), r.choice([1, 1, 2])
        rows, cols = (
            Axis(
                r.choice([kernel, r.randint(kernel, 40), r.randint(kernel, 100)]),
                kernel,
                stride,
                kernel // 2,
                0,
            )
            for _ in "rc"
        )
        channels, out = (groups * r.choice([1, 3, 16, 100]) for _ in "io")
        found.append(Convolution(r.choice([1, 2]), channels, rows, cols, out, groups=groups))
    return found


@pytest.mark.parametrize("problem", sweep(shapes(), kept=shapes()[::3]), ids=str)
def test_programs_of_every_shape_fit_the_smallest_instruction_memory(problem: Product | Convolution) -> None:
    assert TEST.imem_words == 256
    programs = compile_problem(problem, TEST).programs
    longest = max(len(words) for words in programs.values())
    assert longest <= 128  # half of it is left
