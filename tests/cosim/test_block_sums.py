"""Sums of the deepest blocks of the largest products: the array needs fewer than 32 bits for them."""

from __future__ import annotations

import numpy as np
import pytest

from cosim.backends import simulator
from cosim.compare import compare
from cosim.job import Job, Outcome, Region, Window
from cosim.models.cycle import predict
from cosim.settings import MemorySettings
from hw.assembly import assemble
from hw.rtl.gemm.widths import ACCUMULATOR_BITS, block_bits
from tests.machines import TEST

DEPTH = TEST.derived.buffer_a.columns
A, B, C = 0x1000, 0x2000, 0x3000

#: All elements and the zero point of A and of B; a negative element or zero point makes it int8.
EXTREMES = {
    "uint8": ((255, 0), (255, 0)),
    "int8": ((-128, 127), (-128, 127)),
    "mixed": ((-128, 127), (255, 0)),
    "above and below": ((0, 255), (127, -128)),
}


def is_signed(operand: tuple[int, int]) -> bool:
    return min(operand) < 0


def deepest(a: tuple[int, int], b: tuple[int, int]) -> Job:
    """One block of as many steps as the buffers have columns, then added to itself."""
    zeros = [value & 0xFF for _, value in (a, b)]
    text = f"""
        parami load_stride, {DEPTH}
        parami load_pitch, {DEPTH}
        li r1, {A}
        li r4, {DEPTH}
        li r5, 4
        load_a r1, r0, r5, r4
        li r1, {B}
        load_b r1, r0, r5, r4
        parami gemm_m, 4
        parami gemm_n, 4
        parami gemm_c_pitch, 1
        parami gemm_zero_a, {zeros[0]}
        parami gemm_zero_b, {zeros[1]}
        parami gemm_signed, {is_signed(a) + 2 * is_signed(b)}
        gemm r0, r0, r0, r4
        gemm_acc r0, r0, r0, r4
        li r1, {C}
        li r4, 16
        parami store_stride, 16
        parami store_pitch, 1
        store r1, r0, r5, r4
        halt
    """
    memory = tuple(
        (at, np.full(4 * DEPTH, element & 0xFF, np.uint8)) for at, (element, _) in ((A, a), (B, b))
    )
    windows = (Window(A, B + 4 * DEPTH - 1), Window(C, C + 63))
    words = assemble(text)
    return Job({0: words}, MemorySettings.of(TEST), windows, memory, (Region(C, 64),))


@pytest.fixture(scope="module")
def outcomes() -> dict[str, tuple[Job, Outcome]]:
    jobs = [deepest(*operands) for operands in EXTREMES.values()]
    return dict(zip(EXTREMES, zip(jobs, simulator(TEST, "verilator").run(jobs), strict=True), strict=True))


@pytest.mark.parametrize("name", EXTREMES)
def test_the_deepest_block_of_the_largest_products_is_right(
    name: str, outcomes: dict[str, tuple[Job, Outcome]]
) -> None:
    (a, zero_a), (b, zero_b) = EXTREMES[name]
    job, outcome = outcomes[name]
    assert compare(TEST, job, predict(TEST, job), outcome) is None
    assert set(outcome.outputs[0].view(np.int32)) == {2 * DEPTH * (a - zero_a) * (b - zero_b)}


def test_a_block_has_the_bits_that_its_sum_needs() -> None:
    most = DEPTH * 255 * 255
    bits = block_bits(TEST)
    assert most < 1 << bits - 1
    assert most >= 1 << bits - 2, "a bit less would not do"
    assert bits < ACCUMULATOR_BITS
