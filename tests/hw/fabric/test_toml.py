"""Fabrics as TOML: presets of any size, patterns that stretch, single PEs and links, and every mistake."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hw.errors import InputError
from hw.fabric import Fabric, Link, PEKind, Unit, from_values, load, preset_names, to_toml

SMALL = """
rows = 2
cols = 3
links = ["mesh"]
grid = ["m p...", "..."]
[kinds.m]
units = ["alu", "memory"]
[kinds.p]
units = ["alu"]
registers = 2
"""


def made(text: str, grid: tuple[int, int] | None = None) -> Fabric:
    return from_values(tomllib.loads(text), "here.toml", grid)


def test_the_mesh_has_memory_left_and_tables_right():
    fabric = load("mesh4x4")
    assert fabric.having(Unit.MEMORY) == (0, 4, 8, 12)
    assert fabric.having(Unit.TABLE) == (3, 7, 11, 15)
    assert fabric.having(Unit.ALU) == fabric.having(Unit.MULTIPLIER) == tuple(range(16))
    assert {kind.registers for kind in fabric.kinds} == {4}
    assert len(fabric.links) == 2 * (4 * 3 + 4 * 3)
    assert (fabric.contexts, fabric.stages) == (32, 64)


def test_a_torus_has_four_links_from_every_pe_and_none_twice():
    assert all(len(out) == 4 for out in load("torus4x4").outgoing)
    # In a row of two, the neighbour on either side is the same PE.
    assert load("torus2x2").links == load("mesh2x2").links
    assert all(len(out) == 3 for out in load("torus2x3").outgoing)


def test_a_cylinder_is_closed_in_its_rows_alone():
    between = set(load("shared4x4").links) ^ set(load("mesh4x4").links)
    assert between == {Link(*ends) for row in range(0, 16, 4) for ends in ((row, row + 3), (row + 3, row))}


def test_diagonals_reach_eight_neighbours():
    fabric = load("diagonal4x4")
    assert [fabric.links[i].target for i in fabric.outgoing[5]] == [0, 1, 2, 4, 6, 8, 9, 10]


#: Sizes that are as small as the pattern of a preset allows, where two rows are too few.
SMALLEST = {"compact4x4": (3, 3)}


@pytest.mark.parametrize(
    ("name", "size"),
    [(name, size) for name in preset_names() for size in (None, SMALLEST.get(name, (2, 3)), (7, 5))],
    ids=str,
)
def test_what_is_written_is_read_back_equal(name, size, tmp_path):
    fabric = load(name, size)
    path = tmp_path / "some.toml"
    path.write_text(to_toml(fabric))
    assert load(str(path)) == fabric
    assert size is None or (fabric.rows, fabric.cols) == size


@st.composite
def fabrics(draw: st.DrawFn) -> Fabric:
    rows, cols = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    kinds = st.builds(
        lambda name, units, registers, words, without: PEKind(
            name,
            frozenset(units),
            registers,
            words if Unit.TABLE in units else 0,
            without if Unit.ALU in units else frozenset(),
        ),
        st.text(st.characters(codec="utf-8"), max_size=6),
        st.sets(st.sampled_from(sorted(set(Unit) - {Unit.LANES, Unit.QUANTISER}))),
        st.integers(0, 64),
        st.integers(1, 1 << 14),
        st.frozensets(st.sampled_from(["shl", "clz", "select"])),
    )
    size = rows * cols
    pairs = st.tuples(st.integers(0, size - 1), st.integers(0, size - 1)).filter(lambda p: p[0] != p[1])
    links = draw(st.sets(pairs, max_size=8)) if size > 1 else set()
    choice = draw(st.lists(kinds, min_size=1, max_size=3))
    return Fabric(
        draw(st.text(st.characters(codec="utf-8"), max_size=8)),
        rows,
        cols,
        tuple(draw(st.sampled_from(choice)) for _ in range(size)),
        tuple(sorted(Link(*pair) for pair in links)),
        draw(st.integers(1, 256)),
        draw(st.sampled_from([2, 64, 256])),
    )


@settings(max_examples=150, deadline=None)
@given(fabrics())
def test_any_fabric_is_read_back_equal(fabric):
    assert from_values(tomllib.loads(to_toml(fabric))) == fabric


def test_a_pattern_stretches_to_any_grid():
    assert [kind.name for kind in made(SMALL).kinds] == ["m", "p", "p"] * 2
    assert [kind.name for kind in made(SMALL, (1, 1)).kinds] == ["m"]
    assert [kind.name for kind in made(SMALL, (3, 4)).kinds] == ["m", "p", "p", "p"] * 3


def test_a_fabric_of_another_size_has_another_name():
    assert load("mesh4x4", (8, 8)).name == "mesh8x8" == load("mesh8x8").name
    assert made('name = "odd"\n' + SMALL, (8, 2)).name == "odd-8x2"
    assert load("mesh8x8").hash != load("mesh4x4").hash


def test_single_pes_and_links_are_changed():
    fabric = made(
        SMALL
        + """
        [[pe]]
        at = [0, 2]
        kind = "m"
        registers = 7
        [[pe]]
        at = [1, 0]
        units = ["table"]
        table_words = 16
        [[link]]
        from = [0, 0]
        to = [1, 2]
        both = true
        [[link]]
        from = [0, 0]
        to = [0, 1]
        remove = true
        """
    )
    assert fabric.kinds[2] == PEKind("m@0,2", frozenset({Unit.ALU, Unit.MEMORY}), 7)
    assert fabric.kinds[3] == PEKind("m@1,0", frozenset({Unit.TABLE}), 4, 16)
    assert {Link(0, 5), Link(5, 0), Link(1, 0)} <= set(fabric.links)
    assert Link(0, 1) not in fabric.links
    assert from_values(tomllib.loads(to_toml(fabric))) == fabric


def test_a_file_starts_from_a_preset(tmp_path):
    path = tmp_path / "own.toml"
    path.write_text('preset = "torus4x4"\ncontexts = 8\n[kinds.plain]\nunits = ["alu"]\n')
    fabric = load(str(path))
    assert (fabric.name, fabric.contexts, fabric.links) == ("own", 8, load("torus4x4").links)
    assert fabric.having(Unit.MULTIPLIER) == (0, 3, 4, 7, 8, 11, 12, 15)


@pytest.mark.parametrize(
    ("change", "parts"),
    [
        (("rows = 2", "rows = 0"), ["rows", "1 to 64", "not 0"]),
        (("rows = 2", ""), ["needs the key 'rows'"]),
        (("rows = 2", "rows = true"), ["rows", "not True"]),
        (("rows = 2", "rows = 2\nspeed = 3"), ["unknown key 'speed'", "contexts"]),
        (("rows = 2", "rows = 2\nstages = 3"), ["stages", "power of two", "not 3"]),
        (("rows = 2", "rows = 2\ncontexts = 257"), ["contexts", "1 to 256", "not 257"]),
        (("rows = 2", "rows = 2\npipelined = 1"), ["pipelined must be true or false, not 1"]),
        (("rows = 2", "rows = 2\nname = 3"), ["name must be text", "not 3"]),
        (("rows = 2", 'rows = 2\npreset = "no"'), ["preset", "mesh4x4", "not 'no'"]),
        (('"mesh"', '"ring"'), ["links", "mesh, cylinder, torus, diagonal", "'ring'"]),
        (('"m p...", "..."', '"m p..."'), ["grid", "1 rows", "the grid has 2"]),
        (('"m p...", "..."', '"m p", "..."'), ["grid row 'm p'", "2 columns", "the grid has 3"]),
        (('"m p...", "..."', '"m q...", "..."'), ["grid row", "kinds are m, p", "not 'q'"]),
        (('"m p...", "..."', '"...", "m p"'), ["grid", "after what it repeats"]),
        (('"m p...", "..."', '"m... p...", "..."'), ["grid row", "come once"]),
        (('"m p...", "..."', '"m p p m p...", "..."'), ["at least 4 columns", "the grid has 3"]),
        (('["m p...", "..."]', '"m"'), ["grid must be a list", "not 'm'"]),
        (('units = ["alu"]', 'units = ["fpu"]'), ["kinds.p", "units", "multiplier", "'fpu'"]),
        (('units = ["alu"]', ""), ["kinds.p", "needs the key 'units'"]),
        (("registers = 2", "registers = 65"), ["kinds.p", "registers", "0 to 64", "not 65"]),
        (("registers = 2", "table_words = 2"), ["kinds.p", "table unit", "table_words 2"]),
        (
            ("registers = 2", 'without = ["mul"]'),
            ["kinds.p", "operations of its ALU or multiplier", "not mul"],
        ),
        (("registers = 2", "without = 'shl'"), ["kinds.p", "a list of operations", "not 'shl'"]),
        (("registers = 2", "ports = 2"), ["kinds.p", "unknown key 'ports'"]),
        (("[kinds.p]", "[kinds.'p p']"), ["kinds.p p", "one word"]),
        (("registers = 2", "[[pe]]\nat = [2, 0]"), ["pe number 1", "2 rows and 3 columns", "not [2, 0]"]),
        (("registers = 2", "[[pe]]\nat = [0, 0]\nkind = 'x'"), ["pe number 1", "kind", "m, p", "'x'"]),
        (("registers = 2", "[[pe]]\nat = [0, 0]\nname = 'x'"), ["pe number 1", "unknown key 'name'"]),
        (("registers = 2", "[pe]\nat = [0, 0]"), ["pe must be tables", "[[pe]]"]),
        (
            ("registers = 2", "[[link]]\nfrom = [0, 0]\nto = [0, 1]"),
            ["link number 1", "a link from [0, 0] to [0, 1]"],
        ),
        (
            ("registers = 2", "[[link]]\nfrom = [0, 0]\nto = [1, 1]\nremove = true"),
            ["link number 1", "no link from [0, 0] to [1, 1]"],
        ),
        (("registers = 2", "[[link]]\nfrom = [0, 0]\nto = [0, 0]"), ["link number 1", "must differ"]),
        (
            ("registers = 2", "[[link]]\nfrom = [0, 0]\nto = [1, 1]\nboth = 1"),
            ["link number 1", "both must be true or false", "not 1"],
        ),
    ],
)
def test_every_mistake_says_file_key_found_and_needed(change, parts):
    text = SMALL.replace(*change)
    assert text != SMALL
    with pytest.raises(InputError) as error:
        made(text)
    assert str(error.value).startswith("here.toml: ")
    for part in parts:
        assert part in str(error.value)


def test_files_that_cannot_be_read_say_so(tmp_path):
    path = tmp_path / "x.toml"
    path.write_text("rows = ")
    with pytest.raises(InputError, match=r"x\.toml: not valid TOML"):
        load(str(path))
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(InputError, match=r"x\.toml: cannot be read"):
        load(str(path))
    path.write_text(f"rows = {'9' * 5000}")
    with pytest.raises(InputError, match=r"x\.toml: not valid TOML"):
        load(str(path))
    with pytest.raises(InputError, match=r"a preset \(.*mesh4x4.*\) or a TOML file, not 'mash4x4'"):
        load("mash4x4")
    for name in ("m" * 300, f"{'m' * 300}.toml"):
        with pytest.raises(InputError, match=r"^m.* cannot be read: File name too long; a fabric must be"):
            load(name)
    with pytest.raises(InputError, match="rows must be 1 to 64, not 65"):
        load("mesh65x4")


def test_the_example_of_the_page_is_a_fabric():
    page = (Path(__file__).parents[3] / "docs" / "cgra.md").read_text()
    fabric = made(page.split("```toml\n")[1].split("```")[0])
    assert fabric.name == "own4x4"
    assert fabric.kinds[1] == PEKind("plain@0,1", frozenset({Unit.ALU}), 8, without=frozenset({"shl", "clz"}))
    assert Link(0, 1) not in fabric.links
    assert {Link(0, 15), Link(15, 0), Link(0, 3), Link(0, 5)} <= set(fabric.links)
