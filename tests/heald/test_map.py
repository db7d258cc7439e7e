"""`heald map` and `heald fabric`: loops mapped to checked bitstreams, and reasons for failure."""

from __future__ import annotations

import json
import tomllib
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from hw.fabric import Unit, from_values, load, to_toml
from hw.fabric.bitstream import parse
from sw.cgra.verify import verify
from sw.dfg.json import load_graph

DFG = Path(__file__).parents[1] / "data" / "dfg"
SVG = "{http://www.w3.org/2000/svg}"

TWO_LOOPS = """
def two(n, x, y, a):
    s = 0
    for i in range(n):
        s += x[i]
    for i in range(n):
        y[i] = (x[i] - s) * a + (x[i] >> 2)
    return s
"""


def words_of(path: Path) -> list[int]:
    data = path.read_bytes()
    return [int.from_bytes(data[i : i + 4], "little") for i in range(0, len(data), 4)]


def test_a_graph_is_mapped_encoded_and_verified(heald, tmp_path):
    path, picture = tmp_path / "x.bin", tmp_path / "x.svg"
    ended = heald("map", DFG / "atax.json", "-o", path, "--svg", picture, "--json")
    assert ended.code == 0, ended.err
    found = json.loads(ended.out)
    assert (found["mii"], found["res_mii"], found["rec_mii"]) == (4, 3, 4)
    assert "the recurrence 0 (select) -> 1 (add)" in found["why"]
    assert found["verified"] is True
    assert found["proved_minimal"] is (found["ii"] == 4)
    assert found["operators"] == 24 == len(found["placement"])
    assert found["utilization"] == round(24 / (16 * found["ii"]), 4)
    assert [refused["ii"] for refused in found["refused"]] == list(range(4, found["ii"]))
    taken = {(row, col, step % found["ii"]) for row, col, step in found["placement"].values()}
    assert len(taken) == 24
    graph, fabric = load_graph(DFG / "atax.json"), load("mesh4x4")
    for node in graph.nodes:
        row, col, _ = found["placement"][str(node.id)]
        needed = Unit.MEMORY if graph.operation(node).unit is Unit.MEMORY else Unit.ALU
        assert needed in fabric.kinds[4 * row + col].units
    words = words_of(path)
    places = {
        n.id: (4 * row + col, step) for n in graph.nodes for row, col, step in [found["placement"][str(n.id)]]
    }
    assert len(words) == found["bitstream_words"]
    assert verify(graph, words, fabric, places, scalars={}) == []
    assert parse(words, fabric).ii == found["ii"]
    drawn = ET.parse(picture).getroot()
    assert len(drawn.findall(f"{SVG}g")) == found["ii"]
    texts = [t.text for t in drawn.iter(f"{SVG}text")]
    for node in graph.nodes:
        assert f"{node.id}: {node.op}" in texts


def test_every_loop_of_a_function_is_mapped(heald, tmp_path):
    file, path = tmp_path / "k.py", tmp_path / "x.bin"
    file.write_text(TWO_LOOPS)
    ended = heald("map", f"{file}:two", "--fabric", "torus4x4", "-o", path, "--json")
    assert ended.code == 0, ended.err
    found = json.loads(ended.out)
    first, second = found.pop("launches")
    assert (first["ii"], second["ii"]) == (1, 1)
    assert found == second
    assert not path.exists()
    for number, launch in enumerate((first, second)):
        assert len(words_of(tmp_path / f"x.{number}.bin")) == launch["bitstream_words"]


def test_unrolled_loops_do_more_at_once(heald, tmp_path):
    file = tmp_path / "k.py"
    file.write_text("def double(n, x, y):\n    for i in range(n):\n        y[i] = 2 * x[i]\n")
    one, three = (
        json.loads(heald("map", f"{file}:double", "--json", "--unroll", times).out) for times in (1, 3)
    )
    assert three["operators"] == 3 * one["operators"]
    assert three["verified"]
    # Six accesses on four memory ports.
    assert (one["res_mii"], three["res_mii"]) == (1, 2)


def test_people_read_what_limits_the_interval_and_who_is_where(heald):
    ended = heald("map", DFG / "mults1.json")
    assert ended.code == 0, ended.err
    assert "mults1: the MII is 4: " in ended.out
    assert "the least possible" in ended.out
    assert "context 3" in ended.out
    assert "the bitstream, decoded, is the graph of 15 operators" in ended.out


def test_equal_seeds_give_equal_bitstreams(heald, tmp_path):
    written = []
    for name in ("a", "b"):
        path = tmp_path / name
        assert heald("map", DFG / "conv3.json", "--seed", 3, "-o", path).code == 0
        written.append(path.read_bytes())
    assert written[0] == written[1]


def test_no_mapping_says_what_limited_it(heald, tmp_path):
    path, file = tmp_path / "x.bin", tmp_path / "small.toml"
    file.write_text('preset = "mesh4x4"\ncontexts = 2\n')
    ended = heald("map", DFG / "2mm.json", "--fabric", file, "-o", path, "--json")
    assert ended.code == 1
    found = json.loads(ended.out)
    assert found["ii"] is None
    assert found["placement"] == {}
    assert found["verified"] is False
    for part in ("2mm", "small", "the MII is 4", "2 contexts"):
        assert part in ended.err
    assert not path.exists()


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["nothing"], ["GRAPH.json or FILE.py:FUNCTION", "'nothing'"]),
        (["missing.json"], ["missing.json", "No such file"]),
        (["missing.py:f"], ["missing.py", "No such file"]),
        ([DFG / "sum.json", "--grid", "4"], ["--grid", "'4'"]),
        ([DFG / "sum.json", "--grid", "0x4"], ["rows must be 1 to 64, not 0"]),
        ([DFG / "sum.json", "--fabric", "mash"], ["mesh4x4", "'mash'"]),
        ([DFG / "sum.json", "-o", "/nowhere/x.bin"], ["/nowhere", "does not exist"]),
        ([DFG / "sum.json", "--unroll", "65"], ["--unroll", "1<=x<=64"]),
        ([DFG / "sum.json", "--timeout", "0"], ["--timeout", "x>0"]),
    ],
)
def test_bad_input_is_one_line_and_exit_2(heald, arguments, parts):
    ended = heald("map", *arguments)
    assert ended.code == 2
    assert ended.out == ""
    assert len(ended.err.strip().splitlines()) == 1
    for part in parts:
        assert part in ended.err


def test_what_the_fabric_lacks_is_named(heald, tmp_path):
    file = tmp_path / "plain.toml"
    file.write_text('rows=1\ncols=2\nlinks=["mesh"]\ngrid=["p..."]\n[kinds.p]\nunits=["alu"]\n')
    ended = heald("map", DFG / "sum.json", "--fabric", file)
    assert ended.code == 2
    for part in ("sum", "memory", "plain"):
        assert part in ended.err


def test_too_many_scalars_are_counted(heald, tmp_path):
    file = tmp_path / "k.py"
    names = [f"a{i}" for i in range(15)]
    file.write_text(
        f"def f(n, y, {', '.join(names)}):\n    for i in range(n):\n        y[i] = {' + '.join(names)} + i\n"
    )
    ended = heald("map", f"{file}:f")
    assert ended.code == 2
    assert "scalars must be at most 14, not 15: a" in ended.err


def test_a_fabric_is_shown(heald, tmp_path):
    ended = heald("fabric", "mixed4x4", "--grid", "2x3", "--json")
    found = json.loads(ended.out)
    fabric = load("mixed2x3")
    assert (found["name"], found["rows"], found["cols"]) == ("mixed2x3", 2, 3)
    assert found["hash"] == f"{fabric.hash:08x}"
    assert [pe["kind"] for pe in found["pes"]] == [kind.name for kind in fabric.kinds]
    assert found["pes"][0]["links"] == [[0, 1], [1, 0]]
    assert found["context_words"] == sum(pe["words"] for pe in found["pes"])
    assert "multiplier" in heald("fabric", "mixed4x4").out


def test_a_fabric_is_written_and_drawn(heald, tmp_path):
    picture = tmp_path / "x.svg"
    ended = heald("fabric", "diagonal3x3", "--toml", "--svg", picture)
    assert ended.code == 0
    assert ended.out == to_toml(load("diagonal3x3"))
    assert from_values(tomllib.loads(ended.out)) == load("diagonal3x3")
    drawn = ET.parse(picture).getroot()
    group = drawn.find(f"{SVG}g")
    assert group is not None
    assert len(group.findall(f"{SVG}path")) == len(load("diagonal3x3").links)
    assert len(group.findall(f"{SVG}rect")) == 9


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["fabric", "nope"], "'nope'"),
        (["fabric", "mesh4x4", "--grid", "65x1"], "rows must be 1 to 64, not 65"),
        (["fabric", "mesh4x4", "--grid", "4x1"], "needs at least 2 columns, the grid has 1"),
        (["fabric", "--toml", "--json"], "must not be given together"),
    ],
)
def test_a_fabric_that_cannot_be_is_one_line_and_exit_2(heald, arguments, part):
    ended = heald(*arguments)
    assert ended.code == 2
    assert ended.out == ""
    assert len(ended.err.strip().splitlines()) == 1
    assert part in ended.err
