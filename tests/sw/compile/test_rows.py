"""Operators on rows: tiles, addresses of results, and configurations that do not all fit the scratchpad."""

from __future__ import annotations

import pytest

from hw.config import load
from hw.errors import InputError
from sw.compile.memory import plan_memory
from sw.compile.stages import Compiled
from sw.compiler import compile_network
from sw.ir.walk import instructions
from sw.operators.registry import LoweringContext, lower
from sw.operators.rows import LoweredRows, RowOperator
from tests.sw.compile.row_networks import Builder

TEST, DEFAULT = load("test", {"cgra": "torus4x4"}), load("default")


def made(builder: Builder, preset: str = "test", **settings: str) -> LoweredRows:
    """What the only operator becomes."""
    network = builder.network()
    config = load(preset, settings)
    (operator,) = builder.operators
    assert isinstance(operator, RowOperator)
    homes = plan_memory(network, builder.operators, {}, config).homes
    found = lower(operator, LoweringContext(config, homes, config.scratch_bytes * 3 // 8))
    assert isinstance(found, LoweredRows)
    return found


def softmax(*shape: int, preset: str = "test", **settings: str) -> LoweredRows:
    """Softmax of this shape."""
    builder = Builder()
    builder.softmax(shape)
    return made(builder, preset, **settings)


@pytest.mark.parametrize(
    ("columns", "preset", "apart"),
    [(100, "test", 104), (100, "default", 128), (72, "default", 96), (80, "default", 80), (5, "large", 64)],
)
def test_results_start_at_words_of_the_port_or_are_stored_as_one_row(
    columns: int, preset: str, apart: int
) -> None:
    part = softmax(3, columns, preset=preset)
    assert part.apart == apart
    assert ("next" in part.configured[-1].kernel.scalars) == (apart > -(-columns // 8) * 8)


def test_few_rows_are_one_tile_and_many_are_tiles_that_take_turns() -> None:
    few, many = softmax(20, 32, preset="default"), softmax(4000, 64, preset="default")
    assert (few.loops, few.places, few.slots) == ((), 1, 0)
    assert many.places == 2
    assert sum(loop.count for loop in many.loops) * many.rows >= 4000
    assert 2 * many.rows * 64 <= DEFAULT.scratch_bytes


def test_configurations_are_brought_by_turns_where_they_leave_no_room_for_rows() -> None:
    assert softmax(40, 256, cgra="torus4x4").slots == 2
    long = softmax(3, 9000)
    assert (long.rows, long.places, long.slots) == (1, 1, 1)


def test_every_launch_of_a_tile_brings_its_configuration_where_they_take_turns() -> None:
    builder = Builder()
    builder.softmax((40, 256))
    (stage,) = compile_network(builder.network(), TEST)
    assert isinstance(stage, Compiled)
    names = [i.name for i in instructions(stage.source)]
    # Rows, and the configuration of each of five launches.
    assert (names.count("load_c"), names.count("cgra"), names.count("store_out")) == (6, 5, 1)


def test_rows_that_do_not_fit_are_refused_with_what_is_needed() -> None:
    with pytest.raises(InputError, match="operator0: a row of 30000 elements, 0 bytes of constants"):
        softmax(2, 30000)
    builder = Builder()
    builder.normalisation((2, 3000))
    with pytest.raises(InputError, match="a row of 3000 elements, 24064 bytes of constants"):
        made(builder)


@pytest.mark.parametrize(
    ("fabric", "wanted"),
    [
        ("torus4x4", {"exponential_sums": (3, 3), "softmax_results": (5, 2)}),
        ("compact4x4", {"exponential_sums": (6, 2), "softmax_results": (10, 1)}),
    ],
)
def test_tables_are_in_as_few_elements_of_the_grid_as_the_interval_allows(
    fabric: str, wanted: dict[str, tuple[int, int]]
) -> None:
    kernels = {c.kernel.name: c for c in softmax(3, 40, cgra=fabric).configured}
    found = {}
    for name in ("exponential_sums", "softmax_results"):
        own = kernels[name]
        tables = {own.mapping.places[n.id].pe for n in own.graph.nodes if n.op == "table"}
        found[name] = own.ii, len(tables)
        assert own.verified
    # Eight elements of an iteration are looked up.
    assert found == wanted


@pytest.mark.parametrize(("columns", "pitch"), [(6625, 6656), (63604, 63608)])
def test_rows_that_fit_only_with_the_least_padding_have_that(columns: int, pitch: int) -> None:
    part = softmax(2, columns, preset="default")
    assert (part.pitch, part.tight) == (pitch, columns == 63604)
