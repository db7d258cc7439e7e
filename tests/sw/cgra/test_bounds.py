"""Lower bounds of the initiation interval, and what limits them."""

from __future__ import annotations

from hw.fabric import load
from sw.cgra.bounds import MII, bound
from sw.dfg.graph import Graph, Node
from sw.dfg.json import load_graph
from tests.sw.dfg.test_graph import FILES, GRAPHS

MESH = load("mesh4x4")
#: ResMII and RecMII on 16 PEs with 4 memory ports.
BOUNDS = {
    "2mm": (3, 4),
    "accumulate": (2, 1),
    "adpcm_decoder": (6, 7),
    "aes_encrypt": (9, 9),
    "array_add": (2, 4),
    "atax": (3, 4),
    "bicg_unroll3": (6, 3),
    "cap": (2, 1),
    "compare_neighbours": (6, 3),
    "conv2": (1, 1),
    "conv3": (2, 1),
    "dct": (6, 3),
    "final_sad": (4, 4),
    "fix_fft": (4, 1),
    "gemm_nt": (4, 6),
    "mac": (1, 1),
    "mac2": (2, 1),
    "matrixmultiply": (1, 1),
    "mults1": (1, 4),
    "mults2": (2, 1),
    "needwun": (4, 14),
    "pedometer": (4, 4),
    "sum": (1, 1),
}


def test_the_bounds_of_the_benchmark_graphs() -> None:
    found = {path.stem: bound(load_graph(path), MESH) for path in FILES}
    assert {name: (mii.res_mii, mii.rec_mii) for name, mii in found.items()} == BOUNDS


def test_what_limits_is_named() -> None:
    assert bound(load_graph(GRAPHS / "dct.json"), MESH).why == "88 operations on 16 PEs"
    assert bound(load_graph(GRAPHS / "bicg_unroll3.json"), MESH).why == "21 operations on 4 PEs with memory"
    graph = load_graph(GRAPHS / "mults1.json")
    assert "the recurrence " in bound(graph, MESH).why
    assert "of 4 steps over 1 iteration" in bound(graph, MESH).why
    assert bound(Graph("g", (Node(0, "const", 1),), ()), MESH) == MII(1, 1, "nothing")
