"""Elementwise loops produce their expression's value, by their graph and by their bitstream."""

from __future__ import annotations

import random
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cosim.models.functional import Memories
from hw.config import MachineConfig, load
from hw.fabric import load as load_fabric
from hw.fabric.bitstream import to_bytes
from hw.isa import INSTRUCTIONS
from hw.semantics import quantisation
from sw.graph.expression import Apply, Argument, Expression, Lookup, Number
from sw.kernels.access import TileAccess
from sw.kernels.choose import NEIGHBOURS
from sw.kernels.configuration import configure
from sw.kernels.elementwise import make
from sw.kernels.indices import Unrolling
from tests.budget import cases
from tests.sw.kernels.launching import launch
from tests.sw.kernels.random_elementwise import SIZES, Tile, tile

ACC, BYTE, OUT = TileAccess("acc", "int32"), TileAccess("scratch", "int8"), TileAccess("out", "int8")
ROW, COLUMN = (TileAccess("scratch", "int32", follows, record=True) for follows in ("row", "column"))
SUM = Argument(0)


def machine(fabric: str = "torus4x4") -> MachineConfig:
    """A machine with spaces of the tiles' sizes, and room for a configuration behind the scratchpad's."""
    sizes = {"acc_bytes": SIZES["acc"], "scratch_bytes": 2 * SIZES["scratch"], "out_bytes": SIZES["out"]}
    grid = load_fabric(fabric)
    sizes |= {"load_c_bytes": 32, "store_bytes": 16, "cols": max(4, grid.lanes)}
    return load("test", sizes).replace(cgra=grid)


def requantise(value: Expression, mantissa: Expression, shift: Expression) -> Expression:
    """Bytes of sums."""
    scaled = Apply("mul_shift_round_even", (value, mantissa, shift))
    shifted = Apply("add", (scaled, Number(-3)))
    return Apply("max", (Apply("min", (shifted, Number(127))), Number(-128)))


TABLE = tuple((i * 37) % 256 - 128 for i in range(256))
BIASED = requantise(Apply("add", (SUM, Argument(1))), Number(12_345_678), Number(39))
PACKED = requantise(SUM, Apply("shr", (Argument(1), Number(6))), Argument(1))
CASES: dict[str, tuple[Expression, list[TileAccess]]] = {
    "requantise": (requantise(SUM, Number(12_345_678), Number(39)), [ACC]),
    "bias per column": (BIASED, [ACC, COLUMN]),
    "scale per row": (PACKED, [ACC, ROW]),
    "residual": (Apply("add", (BIASED, Argument(2))), [ACC, COLUMN, BYTE]),
    "table": (Lookup(TABLE, Apply("and", (SUM, Number(255)))), [BYTE]),
}


@given(st.integers(0, 1 << 32))
@settings(max_examples=150)
def test_a_launch_leaves_what_the_expression_means(seed: int) -> None:
    found = tile(random.Random(seed))
    launch(found.made.kernel, found.spaces, found.scalars, found.iterations)
    assert np.array_equal(found.spaces["out"], found.expected), found.made.kernel.text


@given(st.integers(0, 1 << 32), st.sampled_from([2, 4, 8]))
@settings(max_examples=100)
def test_so_does_a_launch_with_lanes(seed: int, lanes: int) -> None:
    found = tile(random.Random(seed), lanes=lanes)
    launch(found.made.kernel, found.spaces, found.scalars, found.iterations)
    assert np.array_equal(found.spaces["out"], found.expected), found.made.kernel.text


@pytest.mark.parametrize("lanes", [2, 8])
def test_lanes_choose_between_a_number_of_a_row_and_an_element(lanes: int) -> None:
    """The number of the row is loaded for all lanes, whatever the first of them chooses."""
    for order in ((0, 1, 2), (0, 2, 1)):
        value = Apply("select", tuple(Argument(k) for k in order))
        for seed in range(8):
            found = tile(random.Random(seed), value, [BYTE, ROW, BYTE], lanes)
            launch(found.made.kernel, found.spaces, found.scalars, found.iterations)
            assert np.array_equal(found.spaces["out"], found.expected), found.made.kernel.text


@pytest.mark.parametrize("repeat", [2, 4, 8])
def test_elements_that_repeat_are_loaded_once(repeat: int) -> None:
    operands = [TileAccess("scratch", "int8", repeat=repeat), ROW, BYTE]
    value = Apply("add", (Apply("mul", (Argument(0), Argument(1))), Argument(2)))
    masks = [mask for mask in NEIGHBOURS if mask + 1 >= repeat]
    for seed in range(8):
        found = tile(random.Random(seed), value, operands, masks=masks)
        launch(found.made.kernel, found.spaces, found.scalars, found.iterations)
        assert np.array_equal(found.spaces["out"], found.expected), found.made.kernel.text
        loads = {
            load for line in found.made.kernel.text.split("\n") for load in re.findall(r"x0_\d\[.*?\]", line)
        }
        assert len(loads) == found.made.per_iteration // repeat
    assert np.array_equal(run_words(machine(), found), found.expected)


def test_columns_may_lie_side_by_side() -> None:
    operands = [TileAccess("scratch", "int8", row_gap=True, step=12), ROW, BYTE]
    value = Apply("add", (Apply("mul", (Argument(0), Argument(1))), Argument(2)))
    for seed in range(8):
        found = tile(random.Random(seed), value, operands, masks=NEIGHBOURS)
        launch(found.made.kernel, found.spaces, found.scalars, found.iterations)
        assert np.array_equal(found.spaces["out"], found.expected), found.made.kernel.text
    assert np.array_equal(run_words(machine(), found), found.expected)


def run_words(config: MachineConfig, found: Tile) -> np.ndarray:
    """The output buffer after a launch of the bitstream, by the sequential execution's grid."""
    made = configure(found.made.kernel, config)
    assert made.verified, made.differences
    memories = Memories(config, np.zeros(64, np.uint8))
    for name, held in (("acc", memories.acc), ("scratch", memories.scratch), ("out", memories.out)):
        held.reshape(-1).view(np.uint8)[: SIZES[name]] = found.spaces[name]
    words = np.frombuffer(to_bytes(made.words), np.uint8)
    memories.scratch[SIZES["scratch"] :][: len(words)] = words
    spec = INSTRUCTIONS["cgra"]
    names = ["live0", "live1", *(f"cgra_{i}" for i in range(12))]
    operands = dict.fromkeys([*(o.name for o in spec.operands), *spec.parameters], 0)
    operands |= {"bitstream": SIZES["scratch"] // 16, "iterations": found.iterations}
    operands |= dict(zip(names, (v & 0xFFFFFFFF for v in found.scalars.values()), strict=False))
    memories.perform("cgra", operands)
    return memories.out


@pytest.mark.drawn
@pytest.mark.parametrize("fabric", ["torus4x4", "mesh4x4", "vector3x4"])
@pytest.mark.parametrize("name", CASES)
def test_a_bitstream_leaves_what_the_expression_means(name: str, fabric: str) -> None:
    value, operands = CASES[name]
    config = machine(fabric)
    assert config.cgra is not None
    for seed in range(cases(1, 3)):
        found = tile(random.Random(seed), value, operands, config.cgra.lanes, config.cgra.lanes > 1)
        assert np.array_equal(run_words(config, found), found.expected), found.made.kernel.text


def test_products_that_become_bytes_are_operations_of_a_quantiser() -> None:
    made = {name: make(value, given, OUT, quantiser=True) for name, (value, given) in CASES.items()}
    texts = {name: kernel.kernel.text for name, kernel in made.items()}
    assert (
        texts["requantise"].count("requantise_even") == texts["scale per row"].count("requantise_even") == 1
    )
    assert "mul_shift" not in texts["residual"]
    assert "requantise_even" not in texts["table"]
    # Shift, zero point and limits are one number.
    assert set(made["requantise"].numbers.values()) == {12_345_678, quantisation(39, -3, -128, 127)}
    for low, high, zero in ((-129, 127, 0), (-1, 128, 0), (0, 255, 256), (5, 4, 0)):
        scaled = Apply("mul_shift_round", (SUM, Number(3), Number(2)))
        other = Apply(
            "max", (Apply("min", (Apply("add", (scaled, Number(zero))), Number(high))), Number(low))
        )
        assert "requantise" not in make(other, [ACC], OUT, quantiser=True).kernel.text


def test_random_bitstreams_leave_what_the_expression_means() -> None:
    for seed in range(12):
        found = tile(random.Random(1000 + seed))
        assert np.array_equal(run_words(machine(), found), found.expected), seed


def test_operators_that_differ_in_numbers_have_one_kernel() -> None:
    one, two = (make(requantise(SUM, Number(m), Number(s)), [ACC], OUT, mask=3) for m, s in ((5, 7), (6, 8)))
    assert one.kernel == two.kernel
    assert one.numbers != two.numbers
    assert set(one.numbers.values()) == {5, 7, -3}


def test_numbers_beyond_the_scalars_are_in_the_text() -> None:
    value: Expression = SUM
    for number in range(1000, 1020):
        value = Apply("xor", (Apply("mul", (value, Number(number))), SUM))
    made = make(value, [ACC], OUT)
    assert len(made.kernel.scalars) == 14
    assert len(made.numbers) == 12
    assert "1019" in made.kernel.text


def test_patches_have_room_in_a_configuration() -> None:
    value: Expression = SUM
    for number in range(1000, 1012):
        value = Apply("add", (Apply("mul", (value, Number(number))), SUM))
    made = make(value, [ACC], OUT, mask=7)
    assert configure(made.kernel, machine()).verified
    assert 0 < len(made.numbers) < 12


def test_the_elements_of_an_iteration() -> None:
    spread = Unrolling(0b1100)
    assert spread.offsets == (0, 4, 8, 12)
    assert (spread.copies, spread.block, spread.walks) == (4, 16, True)
    assert spread.sequence == (0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15)
    assert Unrolling(0b11).sequence == (0, 1, 2, 3)
    assert not Unrolling(0b11).walks


def test_the_index_of_a_table_is_read_as_unsigned() -> None:
    made = make(*CASES["table"], OUT)
    assert [stream.element for stream in made.kernel.streams] == ["uint8", "int8"]
    assert "255" not in made.kernel.text.splitlines()[-2]
