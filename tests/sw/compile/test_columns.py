"""Softmax by columns: its tiles, and where rows are taken instead."""

from __future__ import annotations

import pytest

from hw.config import MachineConfig, load
from hw.errors import InputError
from sw.compile.memory import plan_memory
from sw.compile.stages import Compiled
from sw.compiler import compile_network
from sw.graph.network import Operator
from sw.ir.walk import instructions
from sw.kernels import stalls
from sw.operators.column_softmax import ColumnSoftmax
from sw.operators.columns import LoweredColumns
from sw.operators.registry import LoweringContext, lower
from tests.sw.compile.row_networks import Builder

DEFAULT = load("default")
#: Eight columns for eight lanes.
VECTOR = load("test", {"cols": 8, "scratch_bytes": 32768, "cgra": "vector3x4"})


@pytest.fixture(autouse=True)
def one_mapping(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tiles do not depend on how often accesses wait, and six mappings of each loop take long."""
    monkeypatch.setattr(stalls, "SEEDS", 1)


def lowered(shape: tuple[int, int, int, int], config: MachineConfig = DEFAULT) -> LoweredColumns:
    """What a softmax becomes that works on columns."""
    builder = Builder()
    builder.column_softmax(shape)
    (operator,) = builder.operators
    assert isinstance(operator, ColumnSoftmax)
    homes = plan_memory(builder.network(), builder.operators, {}, config).homes
    found = lower(operator, LoweringContext(config, homes, config.scratch_bytes * 3 // 8))
    assert isinstance(found, LoweredColumns)
    return found


def compiled(shape: tuple[int, int, int, int], config: MachineConfig, moved: bool = False) -> Compiled:
    """The program of one softmax."""
    builder = Builder()
    builder.column_softmax(shape, moved=moved)
    (stage,) = compile_network(builder.network(), config)
    assert isinstance(stage, Compiled)
    return stage


def kinds(shape: tuple[int, int, int, int], config: MachineConfig) -> list[str]:
    """The operators of the program of one softmax."""
    return [o.op for o in compiled(shape, config).operators if isinstance(o, Operator)]


def test_planes_are_one_tile_if_they_fit() -> None:
    part = lowered((1, 4, 16, 525))
    assert (part.cut.planes, part.cut.columns, part.loops) == (4, 525, ())
    # Rows of results start at words of the port; neighbouring rows of operands are in different banks.
    assert (part.cut.near, part.cut.apart) == (67 * 8, 17 * 32)
    assert all(own.verified for own in part.configured)


@pytest.mark.parametrize(
    ("shape", "loops"),
    [
        ((1, 40, 16, 525), ["planes"]),
        ((1, 3, 16, 9000), ["planes", "columns"]),
        ((1, 1, 16, 9000), ["columns"]),
    ],
)
def test_others_are_cut_to_tiles_that_take_turns(shape: tuple[int, int, int, int], loops: list[str]) -> None:
    part = lowered(shape)
    cut, rows = part.cut, shape[2]
    assert [loop.name for loop in part.loops] == loops
    assert 2 * cut.planes * rows * cut.near <= DEFAULT.scratch_bytes
    assert 2 * cut.planes * (rows + 5) * cut.apart <= DEFAULT.out_bytes
    counts = {loop.name: loop.count for loop in part.loops}
    assert counts.get("planes", 1) * cut.planes >= shape[1]
    assert counts.get("columns", 1) * cut.columns >= shape[3]
    assert cut.columns == shape[3] or cut.columns % part.unit == 0


def test_each_configuration_is_loaded_once_for_all_planes_of_a_tile() -> None:
    program = compiled((1, 4, 16, 100), VECTOR, moved=True).source
    names = [i.name for i in instructions(program)]
    # Three passes have a loop over planes, and before it a launch that only loads the configuration.
    assert (names.count("load_c"), names.count("cgra"), names.count("store_out")) == (1 + 4, 3 + 4, 1)


def test_rows_are_taken_where_they_are_quicker_or_lanes_are_missing() -> None:
    copied = ["Copy", "Softmax", "Copy"]
    assert kinds((1, 1, 16, 525), VECTOR) == ["Softmax"]
    assert kinds((20, 9, 16, 3), VECTOR) == copied
    assert kinds((1, 1, 16, 525), load("test", {"cgra": "torus4x4"})) == copied
    # A launch has all its rows on the chip.
    assert kinds((1, 1, 250, 64), VECTOR.replace(scratch_bytes=16384)) == copied


def test_columns_that_do_not_fit_are_refused_with_what_is_needed() -> None:
    message = (
        "operator0: 32 columns of 250 elements, twice, and [0-9]* bytes of configurations must fit 16384"
    )
    with pytest.raises(InputError, match=message):
        lowered((1, 1, 250, 64), VECTOR.replace(scratch_bytes=16384))


def test_rows_too_long_for_a_load_are_cut_and_few_elements_go_by_rows() -> None:
    large = DEFAULT.replace(scratch_bytes=1 << 20, out_bytes=1 << 20)
    part = lowered((1, 1, 2, 90000), large)
    assert [loop.name for loop in part.loops] == ["columns"]
    assert part.cut.columns < 1 << 16
    assert kinds((1, 1, 16, 15), VECTOR) == ["Copy", "Softmax", "Copy"]
