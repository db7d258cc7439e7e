"""Programs do not grow with the problem: what depends on its size is how wide constants are."""

from __future__ import annotations

import random

import pytest

from hw.assembly import decode
from hw.config import load
from sw.convolution import Convolution
from sw.kernel import Kernel
from sw.lowering import lower
from sw.patches import Axis
from sw.problem import Product

TEST = load("test")
#: Memory that holds the operands of the largest product.
MEMORY = 1 << 28
SIZES = (512, 1024, 4096)


def without_constants(words: list[int]) -> int:
    """Words that do not bring a constant into a register; a wide constant takes two for that."""
    codes = [decode(word) for word in words]
    return sum(c is not None and c.spec.name not in ("li", "lih") for c in codes)


def cubes(hw: str, transposed_a: bool, transposed_b: bool) -> list[Kernel]:
    """The products of all sizes with the tiles that the largest takes."""
    config = load(hw)
    problems = [Product(n, n, n, transposed_a=transposed_a, transposed_b=transposed_b) for n in SIZES]
    blocking = lower(problems[-1], config, memory_bytes=MEMORY).blocking
    return [lower(p, config, memory_bytes=MEMORY, blocking=blocking) for p in problems]


@pytest.mark.parametrize(
    ("hw", "transposed"),
    [
        *((hw, (False, False)) for hw in ("test", "tiny", "lean", "default", "large")),
        ("test", (True, True)),
    ],
)
def test_with_equal_tiles_only_the_width_of_constants_differs(hw: str, transposed: tuple[bool, bool]) -> None:
    kernels = cubes(hw, *transposed)
    for warp in range(4):
        programs = [k.programs[warp] for k in kernels]
        small, medium, large = (without_constants(p) for p in programs)
        assert medium == large
        # The tiles of the preset `large` are too large for 512 to have all loops, or the same edges.
        assert small <= medium if hw == "large" else small == medium
        totals = [len(p) for p in programs[1:]]
        assert max(totals) - min(totals) <= 2


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


@pytest.mark.parametrize("problem", shapes(), ids=str)
def test_programs_of_every_shape_fit_the_smallest_instruction_memory(problem: Product | Convolution) -> None:
    assert TEST.imem_words == 256
    longest = max(len(words) for words in lower(problem, TEST, memory_bytes=MEMORY).programs.values())
    assert longest <= 128  # half of it is left
