"""SPACE.toml: its meaning, and every possible mistake."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heald.cli.messages import shortened
from heald.exploration.expression import parse
from heald.exploration.feasible import Rules, decide
from heald.exploration.space import beyond, read
from hw.config import load
from hw.errors import InputError

Write = Callable[[str], Path]


def test_a_space_with_everything(space: Write) -> None:
    found = read(
        space("""
base = "default"
constraints = ["buffer_a_bytes >= 512 * rows", "cgra_pes == 0 or rows <= cols"]
limits = ["luts <= 80000"]
[parameters]
rows = [32, 8, 16]
cols = { from = 8, to = 32 }
buffer_a_bytes = [8192, 65536]
load_a_latency = { from = 10, to = 40, step = 10 }
cgra = ["vector3x4", "none"]
imem_words = 8192
[derived]
acc_bytes = "max(65536, 4 * rows * cols * 32)"
load_b_bytes = "load_a_bytes"
[objectives]
cycles = "minimize"
fmax_mhz = "maximize"
""")
    )
    assert found.values["rows"] == (8, 16, 32)
    assert found.values["cols"] == (8, 16, 32)
    assert found.values["load_a_latency"] == (10, 20, 30, 40)
    assert found.objectives == {"cycles": "minimize", "fmax_mhz": "maximize"}
    every = [dict(zip(found.values, v, strict=True)) for v in itertools.product(*found.values.values())]
    good = [p for p in every if all(c.value(found.rules.values(p)) for c in found.constraints)]
    assert sorted(map(str, found.feasible)) == sorted(map(str, good))
    machine = found.machine(good[-1])
    assert (machine.rows, machine.cols, machine.imem_words) == (32, 32, 8192)
    assert machine.acc_bytes == 4 * 32 * 32 * 32
    assert machine.load_b_bytes == machine.load_a_bytes
    assert machine.cgra is None
    assert found.machine(good[0]).cgra == load("default").cgra


def test_a_fabric_and_a_base_may_be_files_beside_the_space(folder: Path) -> None:
    (folder / "parts").mkdir()
    (folder / "parts/grid.toml").write_text('preset = "mesh4x4"\nname = "mine"\nrows = 2\n')
    (folder / "parts/base.toml").write_text('preset = "tiny"\nstore_latency = 77\n')
    path = folder / "parts/space.toml"
    path.write_text('base = "./base.toml"\n[parameters]\nrows = [4, 8]\ncgra = ["./grid.toml", "none"]\n')
    found = read(path)
    machine = found.machine({"rows": 4, "cgra": "./grid.toml"})
    assert machine.store_latency == 77
    assert machine.cgra is not None
    assert (machine.cgra.name, machine.cgra.rows) == ("mine", 2)


@pytest.mark.parametrize(
    ("name", "values", "told"),
    [
        ("mine", '["./a.toml", "./b.toml"]', '"./b.toml" and "./a.toml" are different fabrics'),
        ("mesh2x2", '["mesh2x2", "./a.toml"]', '"./a.toml" and "mesh2x2" are different fabrics'),
        ("vector3x4", '["./a.toml", "none"]', '"./a.toml" and the fabric of the base are different fabrics'),
        ("none", '["./a.toml", "none"]', '"./a.toml" and "none" are different fabrics'),
        ("none", '["./a.toml", "mesh2x2"]', '"./a.toml" and "none" are different fabrics'),
    ],
)
def test_different_grids_must_not_have_one_name(
    space: Write, folder: Path, name: str, values: str, told: str
) -> None:
    for file, rows in (("a", 2), ("b", 4)):
        (folder / f"{file}.toml").write_text(f'preset = "mesh4x4"\nname = "{name}"\nrows = {rows}\n')
    with pytest.raises(InputError) as error:
        read(space(f"[parameters]\nrows = [4, 8]\ncgra = {values}"))
    assert f"other.toml: [parameters] cgra: {told} named {name!r}: each needs its own" in str(error.value)


def test_equal_grids_may_have_one_name(space: Write, folder: Path) -> None:
    for file in "ab":
        (folder / f"{file}.toml").write_text('preset = "mesh4x4"\nname = "mine"\nrows = 2\n')
    found = read(space('[parameters]\nrows = [4, 8]\ncgra = ["./a.toml", "./b.toml", "torus4x4"]'))
    assert found.feasible.size == 6


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('base = "tset"\n[parameters]\nrows = [4]', "base: it must be a preset"),
        ("base = 3\n[parameters]\nrows = [4]", "base must be a preset or the path of a TOML file, not 3"),
        (
            "[parameters]\nrowz = [4]",
            "[parameters] rowz: unknown field 'rowz'; did you mean 'rows'? `heald config show",
        ),
        (
            "[parameters]\nload_bytes = [4]",
            "did you mean 'load_c_bytes' or 'load_b_bytes' or 'load_a_bytes'? ",
        ),
        ("[parameters]\nname = ['a']", "[parameters] name: unknown field"),
        ("[parameters]\nrows = [4, 5]", "[parameters] rows: must be a power of two from 2 to 64, not 5"),
        ("[parameters]\nrows = ['4']", "must be a power of two from 2 to 64, not '4'"),
        ("[parameters]\nrows = [true, 4]", "not True"),
        ("[parameters]\nload_a_latency = [0]", "must be a whole number from 1 to 500, not 0"),
        ("[parameters]\nconvolutions = [1]", "must be true or false, not 1"),
        ("[parameters]\nrows = [4, 4]", "[parameters] rows: 4 appears twice"),
        ("[parameters]\nrows = []", "[parameters] rows: the list is empty"),
        ("[parameters]", "the space is empty: at least one list or range is needed"),
        ("[parameters]\nrows = 4", "the space is empty"),
        ("base = 'test'", "needs a table [parameters], not none"),
        ("[parameters]\nrows = { from = 9, to = 15 }", "no power of two from 9 to 15"),
        ("[parameters]\nwarps = { from = 9, to = 8 }", "the range is empty: from 9 to 8"),
        ("[parameters]\nwarps = { from = 6 }", "a range needs 'to'"),
        ("[parameters]\nwarps = { from = 6, to = 8, by = 1 }", "unknown range key 'by'; valid are"),
        ("[parameters]\nwarps = { from = 6, to = 8, step = 0 }", "step must be 1 or more, not 0"),
        ("[parameters]\nwarps = { from = 6, to = 'x' }", "to must be a whole number, not 'x'"),
        (
            "[parameters]\nrows = [4]\ncgra = ['tours4x4', 'none']",
            "[parameters] cgra: a fabric must be a preset",
        ),
        ("[parameters]\ncgra = [4, 8]", 'must hold names of fabrics or "none", not 4'),
        ("foo = 1\n[parameters]\nrows = [4]", "unknown key 'foo'; valid are base, parameters"),
        ("[parameters]\nrows = [4]\n[derived]\nrowz = '4'", "[derived] rowz: unknown field"),
        ("[parameters]\nrows = [4]\n[derived]\nrows = '4'", "[derived] rows: is also a parameter"),
        ("[parameters]\nrows = [4]\n[derived]\ncols = 'rowz'", "[derived] cols: unknown name 'rowz'"),
        (
            "[parameters]\nrows = [4]\n[derived]\ncols = 'acc_bytes'\nacc_bytes = 'cols'",
            "[derived]: cols, acc_bytes depend on each other in a cycle",
        ),
        (
            "constraints = ['rowz > 3']\n[parameters]\nrows = [4]",
            "constraints: unknown name 'rowz'; did you mean 'rows'? valid are",
        ),
        ("constraints = 'rows > 3'\n[parameters]\nrows = [4]", "constraints must be a list of formulas"),
        ("constraints = ['rows + 3']\n[parameters]\nrows = [4]", "must compare something"),
        (
            "limits = ['rows < 3']\n[parameters]\nrows = [4]",
            "limits: unknown name 'rows'; valid are cycles",
        ),
        ("limits = ['luts == 3']\n[parameters]\nrows = [4]", 'must be one comparison as "luts <= 80000"'),
        (
            "[parameters]\nrows = [4]\n[objectives]\nlutz = 'minimize'",
            "[objectives]: unknown metric 'lutz'; did you mean 'luts'? valid are",
        ),
        (
            "[parameters]\nrows = [4]\n[objectives]\nluts = 'less'",
            'must be "minimize" or "maximize", not \'less\'',
        ),
        ("constraints = ['rows > 8']\n[parameters]\nrows = [4, 8]", "'rows > 8' fails everywhere"),
        (
            "constraints = ['rows > 9', 'cols // (rows - 8) > 0']\n[parameters]\nrows = [4, 8]\ncols = [4]",
            "constraints: 'rows > 9' fails everywhere: none of the 2 combinations of rows satisfies it",
        ),
        (
            "constraints = ['cols // (rows - 8) > 0']\n[parameters]\nrows = [4, 8]\ncols = [4, 8]",
            "constraints: 'cols // (rows - 8) > 0' has no value where cols = 4, rows = 8: ",
        ),
        (
            "limits = ['luts <= \"a\"']\n[parameters]\nrows = [4]",
            "limits: must compare numbers, not the text 'a' in 'luts <= \"a\"'",
        ),
        (
            'limits = [\'luts <= (1 if "a" == "a" else 2)\']\n[parameters]\nrows = [4]',
            "limits: must compare numbers, not the text 'a'",
        ),
        (
            f"limits = ['luts <= max({'1, ' * 200}1)']\n[parameters]\nrows = [4]",
            "limits: must have at most 400 characters, not 614",
        ),
        (f"[parameters]\nrows = [4]\ncgra = ['{'a' * 300}', 'none']", "File name too long"),
        (f"[parameters]\nrows = [4]\ncgra = ['./{'a' * 300}.toml', 'none']", "File name too long"),
        (f"base = './{'a' * 300}.toml'\n[parameters]\nrows = [4]", "File name too long"),
        ("rows = [", "not valid TOML"),
        ("rows = 1" + "0" * 5000, "not valid TOML"),
        ("rows = " + "[" * 3000, "not valid TOML"),
    ],
)
def test_every_mistake_is_told_with_file_key_found_and_needed(space: Write, text: str, told: str) -> None:
    with pytest.raises(InputError) as error:
        read(space(text))
    assert "other.toml: " in str(error.value)
    assert told in str(error.value)


def test_of_contradictory_constraints_only_those_are_blamed(space: Write) -> None:
    with pytest.raises(InputError) as error:
        read(
            space("""
constraints = ["warps >= 3", "rows > 8", "rows < cols", "cols < 9"]
[parameters]
rows = [4, 8, 16]
cols = [4, 8, 16]
warps = [2, 6]
""")
        )
    assert (
        "'rows > 8' and 'rows < cols' contradict each other: none of the 9 combinations of rows, cols"
        in str(error.value)
    )


@pytest.mark.parametrize(
    "text",
    [
        "[parameters]\nrowz = [4]",
        "[parameters]\nquite_something_else = [4]",
        "[parameters]\nrows = [4]\n[derived]\nquite_something_else = '4'",
        "constraints = ['quite_something_else > 3']\n[parameters]\nrows = [4, 8]",
    ],
)
def test_a_message_about_an_unknown_name_is_whole(space: Write, text: str) -> None:
    with pytest.raises(InputError) as error:
        read(space(text))
    message = str(error.value)
    assert message == shortened(message)


def test_a_switch_is_a_parameter(space: Write) -> None:
    found = read(space("[parameters]\nconvolutions = [true, false]"))
    assert found.feasible.size == 2
    assert {found.machine(point).convolutions for point in found.feasible} == {True, False}


def test_a_space_of_billions_is_decided(space: Write) -> None:
    ports = "\n".join(
        f"{p}_latency = {{ from = 1, to = 500 }}" for p in ("load_a", "load_b", "load_c", "store")
    )
    total = " + ".join(f"{p}_latency" for p in ("load_a", "load_b", "load_c", "store"))
    text = f'constraints = ["{total} {{}}"]\n[parameters]\n'
    assert read(space(text.format(">= 1999") + ports)).feasible.size == 5
    with pytest.raises(InputError, match=r"none of the 62,500,000,000 combinations"):
        read(space(text.format("> 2000") + ports))


_PARTS = ["a", "b", "c", "2", "5", "9"]
_CONSTRAINTS = st.tuples(
    st.sampled_from(_PARTS), st.sampled_from(["+", "*", "-", "//", "%"]), st.sampled_from(_PARTS[:3]),
    st.sampled_from(["<", "<=", ">", ">=", "==", "!="]), st.sampled_from(_PARTS),
).map(lambda t: " ".join(t))  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(
    st.lists(_CONSTRAINTS, max_size=4),
    st.lists(st.lists(st.integers(0, 30), min_size=1, max_size=6, unique=True), min_size=3, max_size=3),
)
def test_boxes_hold_exactly_the_points_that_satisfy_everything(
    texts: list[str], lists: list[list[int]]
) -> None:
    space = {name: tuple(sorted(values)) for name, values in zip("abc", lists, strict=True)}
    constraints = tuple(parse(t, "abc", "place", comparison=True) for t in texts)
    points = [dict(zip("abc", p, strict=True)) for p in itertools.product(*space.values())]
    try:
        truths = [[c.value(p) for c in constraints] for p in points]
    except InputError:
        return  # a division by zero
    good = [p for p, found in zip(points, truths, strict=True) if all(found)]
    rules = Rules(constraints, {}, {}, {})
    if not good:
        with pytest.raises(InputError, match="satisfies"):
            decide(space, rules, "place")
        return
    found = decide(space, rules, "place")
    assert sorted(map(tuple, map(dict.values, found))) == sorted(map(tuple, map(dict.values, good)))
    assert found.size == len(good)
    drawn = [found.draw(random.Random(i)) for i in range(20)]
    assert all(p in good for p in drawn)


def test_how_far_beyond_a_limit() -> None:
    limit = parse("luts <= 80000", ("luts",), "place")
    assert beyond(limit, {"luts": 80_000}) <= 0
    assert beyond(limit, {"luts": 100_000}) == pytest.approx(0.2)
    strict = parse("fmax_mhz > 60", ("fmax_mhz",), "place")
    assert beyond(strict, {"fmax_mhz": 60}) > 0
    assert beyond(strict, {"fmax_mhz": 61}) <= 0


@pytest.mark.parametrize(
    "text", ["cycles / utilization <= 9", "cycles <= 9 / utilization", "cycles * 1e38 < 9"]
)
def test_a_limit_may_have_no_value(text: str) -> None:
    limit = parse(text, ("cycles", "utilization"), "place")
    with pytest.raises(InputError, match="has no value where cycles = 8"):
        beyond(limit, {"cycles": 8, "utilization": 0.0})
