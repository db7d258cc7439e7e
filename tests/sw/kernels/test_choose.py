"""The chosen loop is the fastest of those that fit, and as fast as the machine's ports allow."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hw.cache import fingerprint
from hw.config import MachineConfig, load
from hw.errors import InputError
from hw.fabric import load as load_fabric
from hw.fabric.toml import from_values
from sw.cgra.bounds import bound
from sw.cgra.legal import prepare
from sw.graph.expression import Apply, Argument, Expression, Number
from sw.graph.requantise import clamped
from sw.kernels.access import TileAccess
from sw.kernels.choose import MASKS, NEIGHBOURS, Demand, choose
from sw.kernels.configuration import configure, graph_of
from sw.kernels.cost import cycles
from sw.kernels.elementwise import make
from tests.caches import forget_configurations
from tests.sw.kernels.test_elementwise import ACC, CASES, OUT

DEFAULT = load("default").replace(cgra=load_fabric("torus4x4"))
TWO_BANKS = load("test").replace(cgra=load_fabric("torus4x4"))


@pytest.mark.parametrize(
    ("name", "expected"),
    [("requantise", 0.5), ("bias per column", 0.75), ("scale per row", 0.625), ("table", 0.5)],
)
def test_a_loop_is_as_fast_as_its_ports(name: str, expected: float) -> None:
    found = choose(*CASES[name], OUT, DEFAULT, multiple=64)
    assert found.configured.verified
    assert found.cycles_per_element == expected


@pytest.mark.parametrize("multiple", [1, 2, 12, 16])
def test_the_block_divides_the_multiple(multiple: int) -> None:
    found = choose(*CASES["bias per column"], OUT, DEFAULT, multiple=multiple)
    assert multiple % found.elementwise.block == 0
    assert (
        found.elementwise.kernel
        == make(*CASES["bias per column"], OUT, mask=found.elementwise.unrolling.mask).kernel
    )


@pytest.mark.parametrize("machine", [DEFAULT, TWO_BANKS])
def test_no_other_mask_is_much_better(machine: MachineConfig) -> None:
    value, operands = CASES["residual"]
    found = choose(value, operands, OUT, machine, multiple=32)
    for mask in MASKS:
        made = make(value, operands, OUT, mask=mask)
        other = cycles(made, configure(made.kernel, machine), machine)
        assert found.cycles_per_element <= other / 0.94, f"{mask:b}"


def test_words_need_no_spreading() -> None:
    found = choose(Argument(0), [ACC], TileAccess("out", "int32"), DEFAULT, multiple=64)
    assert found.elementwise.unrolling.mask in NEIGHBOURS
    assert found.cycles_per_element == 0.5


@pytest.mark.parametrize("places", [lambda old: old[::-1], lambda old: [[99, 0]] * len(old)])
def test_a_forged_mapping_is_made_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, places) -> None:
    monkeypatch.setenv("HEALD_CACHE", str(tmp_path))
    forget_configurations()
    choose(*CASES["requantise"], OUT, TWO_BANKS, multiple=2)
    for path in (tmp_path / "mappings").iterdir():
        held = json.loads(path.read_text(encoding="utf-8").split("\n")[1])
        body = json.dumps(held | {"places": places(held["places"])})
        path.write_text(f"{fingerprint((body,))}\n{body}\n", encoding="utf-8")
    forget_configurations()
    found = choose(*CASES["requantise"], OUT, TWO_BANKS, multiple=2)
    assert found.configured.verified
    assert not found.configured.cached
    forget_configurations()


def test_what_cannot_be_chosen_is_one_message() -> None:
    with pytest.raises(InputError, match="the multiple must be at least 1, not 0"):
        choose(*CASES["table"], OUT, DEFAULT, multiple=0)
    with pytest.raises(InputError, match="must have a CGRA to run kernel elementwise"):
        choose(*CASES["table"], OUT, DEFAULT.replace(cgra=None), multiple=1)


def test_bytes_of_one_word_are_stored_in_different_steps() -> None:
    # Rows of 40 have no room for blocks whose elements lie in different words.
    value, operands = CASES["requantise"]
    machine = load("default")
    wide, narrow = (choose(value, operands, OUT, machine, multiple=m) for m in (64, 40))
    assert narrow.elementwise.block == 8
    assert narrow.cycles_per_element == wide.cycles_per_element


def test_gaps_of_rows_and_segments_delay_no_iteration() -> None:
    sums = TileAccess("acc", "int32", row_gap=True, segment_gap=True)
    machine = load("default")
    assert machine.cgra is not None
    graph = prepare(graph_of(make(Argument(0), [sums], OUT).kernel), machine.cgra)
    assert bound(graph, machine.cgra).mii <= 3


def test_lanes_are_taken_where_rows_are_multiples_of_them() -> None:
    config = load("default", {"cgra": "vector3x4"})
    value, operands = CASES["requantise"]
    assert choose(value, operands, OUT, config, multiple=16).elementwise.unrolling.lanes == 8
    assert choose(value, operands, OUT, config, multiple=16, aligned=4).elementwise.unrolling.lanes == 1
    # One quantiser with lanes makes loops of one lane wait: they take the multipliers.
    found = choose(*CASES["scale per row"], OUT, config, multiple=8, aligned=4)
    assert found.elementwise.unrolling.lanes == 1
    assert found.cycles_per_element <= 0.75


def test_a_residual_looks_up_what_follows_from_bytes_unless_the_array_is_slower_anyway() -> None:
    config = load("default", {"cgra": "vector3x4"})
    limited = clamped(Apply("mul_shift_round_even", (Argument(0), Number(1 << 20), Number(30))), -128, 127)
    parts = [(limited, 123456), (Argument(1), 98765)]
    one, other = (Apply("mul_shift_round", (part, Number(by), Number(12))) for part, by in parts)
    total = Apply("mul_shift_round_even", (Apply("add", (one, other)), Number(99), Number(9)))
    value, operands = clamped(total, -128, 127), [ACC, TileAccess("scratch", "int8")]
    few = Demand(elements=1 << 14, hidden=4.0)
    quick, small = (choose(value, operands, OUT, config, multiple=64, demand=d) for d in (Demand(), few))
    assert quick.cycles_per_element < small.cycles_per_element
    assert len(quick.configured.words) > len(small.configured.words)


@pytest.mark.parametrize("fabric", ["compact4x4", "vector3x4"])
def test_large_loops_of_elements_that_repeat_have_one_mapping_at_least(fabric: str) -> None:
    value: Expression = Argument(0)
    for number in range(33):
        value = Apply("mul_shift_round", (value, Number(1000 + number), Number(8)))
    operand = TileAccess("scratch", "int32", repeat=2)
    config = load("test", {"cols": 8, "cgra": fabric})
    found = choose(value, [operand], TileAccess("out", "int32"), config, multiple=16)
    assert found.elementwise.per_iteration == 2


def test_lanes_that_are_too_far_from_each_other_are_left_alone() -> None:
    kinds = {
        "port": {"units": ["memory"], "lanes": 4},
        "wide": {"units": ["alu"], "lanes": 4},
        "memory": {"units": ["alu", "memory"]},
        "plain": {"units": ["alu"]},
    }
    grid = ["port plain wide", "memory memory plain"]
    values = {"rows": 2, "cols": 3, "contexts": 8, "links": ["mesh"], "grid": grid, "kinds": kinds}
    config = load("test").replace(cgra=from_values(values))
    value = Apply("max", (Apply("add", (Argument(0), Number(5))), Number(0)))
    result = TileAccess("out", "int32")
    found = choose(value, [TileAccess("scratch", "int32")], result, config, multiple=16)
    assert found.elementwise.unrolling.lanes == 1
    assert found.configured.verified
