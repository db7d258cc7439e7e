"""Valid graphs, messages for invalid ones, and JSON."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from hw.errors import InputError
from sw.dfg.graph import Edge, Graph, Memory, Node, Output
from sw.dfg.json import format_graph, load_graph, parse_graph

GRAPHS = Path(__file__).parents[2] / "data" / "dfg"
FILES = sorted(GRAPHS.glob("*.json"))


def test_all_graphs_load_and_read_back() -> None:
    assert len(FILES) == 23
    for path in FILES:
        graph = load_graph(path)
        data = json.loads(path.read_text())
        assert graph.opaque
        assert graph.name == path.stem
        assert [n.op for n in graph.nodes] == [n["op"] for n in data["nodes"]]
        given = [str(n["id"]) for n in data["nodes"]]
        assert [str(n.id).removesuffix(f".{n.op}") for n in graph.nodes] == given
        assert len(graph.by_id) == len(graph.nodes)
        assert len(graph.edges) == len(data["edges"])
        assert sum(e.negated for e in graph.edges) == sum(e.get("negated", False) for e in data["edges"])
        assert dict(graph.notes)["license"] == "MIT"
        again = parse_graph(format_graph(graph))
        assert again == graph
        assert again.notes == graph.notes


def test_nodes_of_the_end_mark_that_share_an_id_are_told_from_those_of_the_body() -> None:
    split = {}
    for path in FILES:
        graph = load_graph(path)
        for node in graph.nodes:
            if node.op == "storeb" and node.const == 4094 and graph.incoming[node.id]:
                into = {e.operand: graph.by_id[e.source].op for e in graph.incoming[node.id]}
                assert into == {"I1": "movc", "P": "loadb"}
                assert all(e.source != node.id for e in graph.edges)
            if isinstance(node.id, str):
                split.setdefault(graph.name, []).append(node.id)
                body = graph.by_id[int(node.id.partition(".")[0])]
                assert body.op == "cmerge"
                assert sorted(e.operand for e in graph.incoming[body.id]) == ["I1", "P"]
                assert sum(e.source == body.id for e in graph.edges) == 1
    assert split == {
        "adpcm_decoder": ["88.storeb"],
        "aes_encrypt": ["114.storeb"],
        "compare_neighbours": ["44.storeb"],
        "dct": ["88.storeb"],
        "final_sad": ["37.storeb"],
        "gemm_nt": ["52.storeb"],
        "needwun": ["63.movc", "62.storeb"],
    }


def test_dependences_of_distance_0_go_forwards_in_the_order() -> None:
    for path in FILES:
        graph = load_graph(path)
        place = {node: i for i, node in enumerate(graph.order)}
        assert len(place) == len(graph.nodes)
        assert all(place[e.source] < place[e.target] for e in graph.dependences if e.distance == 0)


NODES = (Node("a", "const", const=1), Node("b", "add"), Node("c", "add"))
EDGES = (Edge("a", "b", 0, "I1"), Edge("a", "b", 0, "I2"), Edge("b", "c", 0, "I1"), Edge("b", "c", 0, "I2"))
GOOD = Graph("g", NODES, EDGES)


@pytest.mark.parametrize(
    ("nodes", "edges", "message"),
    [
        ((*NODES, Node("a", "add")), EDGES, "'a' appears twice"),
        (NODES, (*EDGES, Edge("x", "b", 0, "I1")), "edge x to b: there is no node 'x'"),
        (NODES, (*EDGES, Edge("b", "y", 0, "I1")), "there is no node 'y'"),
        (NODES, (*EDGES, Edge("a", "c", 0, "I1")), "node c (add): operand I1 must be given once"),
        (NODES, EDGES[:3], "node c (add): needs I2"),
        (NODES, (*EDGES, Edge("a", "c", 0, "I3")), "takes 2 data operands, there is I3 as well"),
        (NODES, (*EDGES[:3], Edge("c", "c", 1, "I2")), "distance 1 needs as many initial values, not 0"),
        (NODES, (*EDGES, Edge("a", "c", 0, "I4")), "must be one of I1, I2, I3, P, PS, M, not 'I4'"),
        (NODES, (*EDGES, Edge("a", "c", -1, "P")), "distance must be at least 0, not -1"),
        (NODES, (replace(EDGES[0], negated=True), *EDGES[1:]), "only a predicate (P) can be negated"),
        ((*NODES, Node("d", "divide")), EDGES, "node d (divide): the operation must be one of add, sub"),
        ((*NODES, Node("d", "const")), EDGES, "node d (const): needs an immediate"),
        ((*NODES, Node("d", "add", const=1)), EDGES, "must be the one open operand, I1 and I2 are"),
        ((*NODES[:2], Node("c", "add", const=3)), EDGES, "must be the one open operand, none is open"),
        ((*NODES, Node("d", "const", 1, "x")), EDGES, "a number or a scalar, not both"),
        ((*NODES, Node("d", "load", 1)), EDGES, "needs the name of its memory"),
        ((*NODES, Node("d", "table", 1, memory=Memory("T"))), EDGES, "there is no table 'T'"),
        (
            (*NODES, Node("d", "store", 1, memory=Memory("x"))),
            (*EDGES, Edge("a", "d", 0, "I2"), Edge("d", "b", 0, "P")),
            "a store gives no value",
        ),
    ],
)
def test_what_is_no_graph_is_refused(nodes, edges, message: str) -> None:
    with pytest.raises(InputError) as error:
        Graph("g", nodes, edges)
    assert message in str(error.value)
    assert "graph 'g'" in str(error.value)


def test_a_cycle_without_distance_is_named() -> None:
    edges = (EDGES[0], Edge("c", "b", 0, "I2"), *EDGES[2:])
    with pytest.raises(InputError, match=r"this one has 0: (b -> c -> b|c -> b -> c)"):
        Graph("g", NODES, edges)


def test_hints_may_close_a_cycle() -> None:
    graph = Graph("g", NODES, (*EDGES, Edge("c", "a", 0, "PS")))
    assert graph.order == ("a", "b", "c")
    assert len(graph.dependences) == 4


def test_outputs_need_a_source_and_a_value_per_iteration_back() -> None:
    with pytest.raises(InputError, match="output 's': there is no node 'z'"):
        replace(GOOD, outputs=(Output("s", "z", 1, (0,)),))
    with pytest.raises(InputError, match="needs a value per iteration back"):
        replace(GOOD, outputs=(Output("s", "c", 2, (0,)),))


def test_scalars_are_all_names_that_the_start_needs() -> None:
    nodes = (Node(0, "const", scalar="p"), Node(1, "add", scalar="q"))
    graph = Graph("g", nodes, (Edge(1, 1, 1, "I1", initial=("r",)),), outputs=(Output("s", 1, 1, ("r",)),))
    assert graph.scalars == ("p", "q", "r")


TEXT = format_graph(GOOD)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.pop("nodes"), "nodes must be a list, not null"),
        (lambda d: d.pop("name"), "name must be a text, not null"),
        (lambda d: d.update(extra=1), "a name in the graph must be one of name, nodes"),
        (lambda d: d["nodes"].append(3), "nodes[3] must be an object, not 3"),
        (lambda d: d["nodes"][1].pop("id"), "nodes[1].id must be a whole number or a text, not null"),
        (lambda d: d["nodes"][1].update(id=True), "nodes[1].id must be a whole number or a text, not true"),
        (lambda d: d["nodes"][1].update(op=""), "nodes[1].op must be a text, not ''"),
        (
            lambda d: d["nodes"][0].update(const=1 << 31),
            "nodes[0].const must be a whole number of -2147483648 to",
        ),
        (lambda d: d["nodes"][0].update(const=1.5), "nodes[0].const must be a whole number"),
        (lambda d: d["nodes"][0].update(memory={"bytes": 4}), "nodes[0].memory.name must be a text"),
        (
            lambda d: d["edges"][2].update(operand="I9"),
            "edges[2].operand must be one of I1, I2, I3, P, PS, M",
        ),
        (lambda d: d["edges"][2].update(operand=[]), "edges[2].operand must be one of"),
        (
            lambda d: d["edges"][2].update(distance="1"),
            "edges[2].distance must be a whole number of 0 to 65535",
        ),
        (lambda d: d["edges"][2].update(negated=1), "edges[2].negated must be true or false, not 1"),
        (lambda d: d["edges"][2].update(src=7), "edge 7 to c: there is no node 7"),
        (lambda d: d["edges"][2].update(weight=7), "a name in edges[2] must be one of src, dst"),
        (lambda d: d.update(tables={"T": [1, "x"]}), "tables.T[1] must be a whole number"),
        (
            lambda d: d.update(outputs=[{"name": "s", "src": "c"}]),
            "outputs[0].distance must be a whole number",
        ),
    ],
)
def test_json_that_is_no_graph_is_refused(change, message: str) -> None:
    data = json.loads(TEXT)
    change(data)
    with pytest.raises(InputError) as error:
        parse_graph(json.dumps(data), "g.json")
    assert str(error.value).startswith("g.json: ")
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "g.json:1:1: found Expecting value, expected JSON"),
        ('{"name":\n x}', "g.json:2:2: found"),
        ("[]", "the graph must be an object"),
        ("[" * 100000, "g.json: must be JSON, not a text nested too deep"),
        ('{"name": "a", "name": "b"}', "'name' must be given once"),
        ('{"name": NaN}', "JSON, which has no NaN"),
        ('{"name": "a", "nodes": [{"id": 1, "op": "x", "const": ' + "9" * 5000 + "}]}", "must be"),
    ],
)
def test_a_text_that_is_no_json_is_refused(text: str, message: str) -> None:
    with pytest.raises(InputError) as error:
        parse_graph(text, "g.json")
    assert message in str(error.value)


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        load_graph(tmp_path / "none.json")
