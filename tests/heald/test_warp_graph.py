"""Pictures contain every instance and every edge, and nothing overlaps."""

import re
from xml.etree import ElementTree

import pytest

from cosim.session.warps import converted
from heald.report.warp_graph import LARGEST, Figure, figure, to_dot, to_svg
from hw.config import MachineConfig
from hw.errors import InputError
from sw.warps.channels import Channels
from sw.warps.reduce import Reduction
from tests.sw.warps.samples import WORKED, program_of

SVG = "{http://www.w3.org/2000/svg}"


def drawn(text: str, *how: Reduction | Channels) -> Figure:
    made = converted(program_of(text), MachineConfig(channels=64), *how, unroll=True)  # type: ignore[arg-type]
    return figure(made.nodes, made.entries, made.throttle, made.channels)


def test_svg_has_a_box_per_instance_in_columns_by_warp() -> None:
    root = ElementTree.fromstring(to_svg(drawn(WORKED, Reduction.OBTAINED, Channels.UNIQUE)))
    boxes = [
        tuple(float(r.get(k, "")) for k in ("x", "y", "width", "height")) for r in root.iter(f"{SVG}rect")
    ]
    texts = [t.text for t in root.iter(f"{SVG}text")]
    assert len(boxes) == 14
    assert len({box[0] for box in boxes}) == 2
    assert {"warp 0", "warp 1", "P[0]", "C4[2]", "C7"} <= set(texts)
    for n, (x, y, width, height) in enumerate(boxes):
        assert 0 <= x < x + width <= float(root.get("width", ""))
        assert 0 <= y < y + height <= float(root.get("height", ""))
        for other in boxes[n + 1 :]:
            apart = x + width <= other[0] or other[0] + other[2] <= x
            assert apart or y + height <= other[1] or other[1] + other[3] <= y


def test_svg_draws_edges_by_kind_with_their_channels() -> None:
    root = ElementTree.fromstring(to_svg(drawn(WORKED, Reduction.OBTAINED, Channels.UNIQUE)))
    kinds = [p.get("marker-end") for p in root.iter(f"{SVG}path") if p.get("marker-end")]
    count = {kind: kinds.count(f"url(#{kind})") for kind in ("control", "data", "resource", "dropped")}
    assert count == {"control": 12, "data": 7, "resource": 5, "dropped": 2}
    channels = [t.text for t in root.iter(f"{SVG}text") if t.get("class") == "channel"]
    assert sorted(map(str, channels)) == sorted("123123145456")
    dashed = [p for p in root.iter(f"{SVG}path") if p.get("marker-end") == "url(#resource)"]
    assert all(p.get("stroke-dasharray") for p in dashed)


def test_what_is_data_lies_in_one_row() -> None:
    root = ElementTree.fromstring(to_svg(drawn(WORKED)))
    rows = {t.text: t.get("y") for t in root.iter(f"{SVG}text") if t.get("class") == "name"}
    assert rows["P[0]"] == rows["C[0]"]
    assert rows["P7"] == rows["C7"]
    assert float(str(rows["P4[0]"])) > float(str(rows["C[2]"]))


def test_dot_has_a_cluster_per_warp_and_an_edge_per_line() -> None:
    text = to_dot(drawn(WORKED, Reduction.OBTAINED, Channels.UNIQUE))
    assert text.count("subgraph cluster_") == 2
    edges = re.findall(r'"(.+)" -> "(.+)" \[(.*)\];', text)
    assert len(edges) == 12 + 7 + 5 + 2
    found = {(a, b): style for a, b, style in edges}
    assert "style=dashed" in found["C[2]", "P4[0]"]
    assert 'label="5"' in found["C[2]", "P4[0]"]
    assert "gray" in found["C[0]", "P7"]


def test_a_throttle_is_drawn() -> None:
    text = """
        @program
        def p():
            a: Buffer[100]
            for i in range(10):
                P = f(write=a[10*i:10*i+10], warp=0)
                C = g(read=a[10*i:10*i+10], warp=1)
    """
    made = drawn(text)
    assert [(a.source, a.sink, a.text) for a in made.arrows if a.kind == "throttle"] == [
        ("C[0]", "P[8]", "1"),
        ("C[1]", "P[9]", "1"),
    ]
    assert "throttle" in to_svg(made)


def test_distances_stand_on_the_arrows() -> None:
    from sw.warps.listing import bounded_runs, rolled_edges

    program = program_of(WORKED)
    made = figure(
        [("P", 0), ("C", 1), ("P4", 0), ("C4", 1), ("P7", 0), ("C7", 1)], rolled_edges(bounded_runs(program))
    )
    assert ("P", "C", "") in [(a.source, a.sink, a.text) for a in made.arrows]
    nodes = [(n, w) for w, names in made.columns.items() for n in names]
    assert len(nodes) == 6


def test_pictures_have_a_size() -> None:
    with pytest.raises(InputError, match="at most 2,000 instances, not 2,001"):
        figure([(str(n), 0) for n in range(LARGEST + 1)], [])
