"""Elementwise operators on images whose rows have padding in memory: loads pack the rows."""

from __future__ import annotations

import numpy as np
import pytest

from cosim.session.network import compile_model
from cosim.settings import MemorySettings
from heald.model_run import run_model
from heald.testing.models import Builder
from hw.config import load
from sw.frontend.network import import_model
from sw.graph import reference
from sw.graph.network import Network
from sw.operators.elementwise.lower import LoweredElementwise
from tests.heald.conftest import Quick
from tests.heald.test_lanes import SETTINGS


def network(
    shape: tuple[int, ...], *, half: bool = False, sums: bool = False, after: bool = False
) -> Network:
    """An image that a convolution reads in patches, and that is also the first part of a concatenation.

    `half` of its channels are; or its `sums` with another image are; or a convolution reads the result
    `after` it, so that its rows have padding as well.
    """
    b = Builder(sum(shape))
    channels = shape[1]
    x = b.real(b.input(shape), "int8", 0.05)
    weights = b.real(b.constant(b.rng.integers(-9, 9, (8, channels, 3, 3)), np.int8), "int8", 0.01)
    patches = b.quantised(b.op("Conv", x, weights, pads=[1] * 4), "int8", 0.2)
    part = b.ops("Split", x, count=2, axis=1, num_outputs=2)[1] if half else x
    if sums:
        other = b.real(b.input(shape), "int8", 0.03)
        part = b.real(b.quantised(b.op("Add", x, other), "int8", 0.04), "int8", 0.04)
    joined = b.quantised(b.op("Concat", part, b.real(b.input(shape), "int8", 0.04), axis=1), "int8", 0.06)
    if not after:
        return import_model(b.model(patches, joined))
    channels = channels * 2 if not half else channels // 2 + channels
    weights = b.real(b.constant(b.rng.integers(-9, 9, (8, channels, 3, 3)), np.int8), "int8", 0.01)
    last = b.op("Conv", b.real(joined, "int8", 0.06), weights, pads=[1] * 4)
    return import_model(b.model(patches, b.quantised(last, "int8", 0.9)))


def packed(made: Network, machine: str, **settings: object) -> tuple[int, bool]:
    """Number of operands whose rows are packed, and whether the program's results are right."""
    config = load(machine, settings)
    inputs = reference.random_inputs(made, np.random.default_rng(3))
    program = compile_model(made, config)
    parts = [p for s in program.programs if s.compiled for p in s.compiled.parts]
    count = sum(s.packed > 0 for p in parts if isinstance(p, LoweredElementwise) for s in p.sources.values())
    settings_of = MemorySettings.of(config)
    return count, run_model(program, inputs, settings_of, lambda: Quick(config)).correct


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ((1, 12, 5, 5), 1),
        ((1, 64, 10, 10), 1),
        ((1, 6, 3, 13), 1),
        ((1, 40, 7, 50), 1),
        ((1, 4, 1, 6), 1),
        # A batch is two rows of results; rows of whole words have no padding.
        ((2, 12, 5, 5), 0),
        ((1, 12, 4, 16), 0),
    ],
)
def test_rows_are_packed_for_a_result_without_padding(shape: tuple[int, ...], expected: int) -> None:
    assert packed(network(shape), "test", cgra="vector3x4", **SETTINGS) == (expected, True)


def test_parts_of_an_image_and_several_operands() -> None:
    assert packed(network((1, 12, 5, 5), half=True), "test") == (1, True)
    assert packed(network((1, 12, 5, 5), sums=True), "test")[1]


def test_a_result_with_padding_keeps_the_rows_apart() -> None:
    assert packed(network((1, 12, 5, 5), after=True), "test") == (0, True)
