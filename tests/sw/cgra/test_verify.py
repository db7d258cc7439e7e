"""The check of bitstreams: it accepts the mapper's, and detects every change that has an effect."""

from __future__ import annotations

import functools
import itertools
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from hw.fabric import Fabric, layout, load
from hw.fabric.bitstream import ArrayEntry, Configuration, Entry, Patch, encode
from hw.fabric.decode import decode
from sw.cgra.encode import configuration
from sw.cgra.search import map_graph
from sw.cgra.verify import opaque_number, verify
from sw.dfg.graph import Edge, Graph, Memory, Node, arrays_of
from sw.dfg.json import load_graph
from sw.dfg.python import parse_kernel
from sw.dfg.transform import fuse_constants, store_outputs
from tests.cosim.models.stepping_cgra import CgraAccess, CgraState, LaunchError
from tests.hw.fabric.flows import flows

DFG = Path(__file__).parents[2] / "data" / "dfg"
WORDS = 64

KERNELS = {
    # Recurrences with initial values that are scalars, a predicated store, several accesses.
    "filter": """
def filter(n, x, y, a, start):
    last = start
    before = 7
    for i in range(n):
        now = ((a * last) >> 3) - before + x[i]
        if now > 20:
            y[i] = now
        before = last
        last = now
    return last
""",
    # A table, a select, constants on both sides.
    "lookup": """
TABLE = (3, 1, 4, 1, 5, 9, 2, 6)


def lookup(n, x, y):
    for i in range(n):
        v = TABLE[x[i] & 7]
        y[i] = v if v > 2 else 100 - v
""",
    # Two operands of one operation that start with the same scalar.
    "twice": """
def twice(n, x, y, last):
    for i in range(n):
        y[i] = last + last
        last = x[i]
""",
    # An array that is read and written: order of accesses.
    "histogram": """
def histogram(n, x, counts):
    for i in range(n):
        counts[x[i] & 3] += 1
""",
}


class _Case:
    """A mapped graph and what it was encoded with."""

    def __init__(self, graph: Graph, fabric: Fabric):
        outcome = map_graph(graph, fabric)
        assert outcome.mapping is not None
        self.graph, self.fabric, self.places = outcome.prepared, fabric, outcome.mapping.places
        self.scalars = {name: i for i, name in enumerate(self.graph.scalars)}
        written = arrays_of(graph, "store")
        names = () if graph.opaque else arrays_of(graph, "load", "store")
        self.arrays = {
            name: ArrayEntry(2 if name in written else 1, 0, 4 * WORDS * i, WORDS)
            for i, name in enumerate(names)
        }
        self.configuration = configuration(outcome.mapping, self.arrays, self.scalars)

    def problems(self, changed: Configuration | None = None) -> list[str]:
        words = encode(changed or self.configuration)
        return verify(self.graph, words, self.fabric, self.places, arrays=self.arrays, scalars=self.scalars)


@functools.cache
def case(name: str, grid: str) -> _Case:
    if name in KERNELS:
        loop = parse_kernel(KERNELS[name], name).loops[0].graph
        graph = fuse_constants(store_outputs(loop, "results"))
    else:
        graph = load_graph(DFG / f"{name}.json")
    return _Case(graph, load(grid))


class _Memory:
    """The spaces as words; indices wrap at their end."""

    def __init__(self) -> None:
        rng = random.Random(5)
        self.words = [[rng.randrange(-50, 50) for _ in range(1024)] for _ in range(3)]

    def size(self, space: int) -> int:
        return 4 * len(self.words[space])

    def load(self, array: ArrayEntry, index: int) -> int:
        return self.words[array.space][array.base // 4 + index]

    def store(self, array: ArrayEntry, index: int, value: int) -> None:
        self.words[array.space][array.base // 4 + index] = value


Seen = tuple[LaunchError | None, list[tuple[int, tuple[CgraAccess, ...]]]]


def simulated(changed: Configuration) -> Seen:
    """All accesses of memory by step, with registers that hold anything at the start."""
    grid = CgraState(changed.fabric)
    rng = random.Random(6)
    for own in grid.registers:
        own.result = rng.randrange(1 << 20)
        own.file = [rng.randrange(1 << 20) for _ in own.file]
        own.links = [rng.randrange(1 << 20) for _ in own.links]
    grid.load(changed)
    seen: list[tuple[int, tuple[CgraAccess, ...]]] = []
    scalars = [rng.randrange(20) for _ in range(14)]
    error = grid.launch(9, scalars, _Memory(), lambda t, found: seen.append((t, tuple(found))))
    return error, seen


def field_changes(found: Configuration) -> Iterator[tuple[str, Configuration]]:
    """Every field of every entry that does something, set to other values."""
    for (pe, context), entry in found.entries.items():
        for field in layout(found.fabric, pe).fields:
            size = 1 << field.width
            # Of operations and stages the neighbours, and those a bit away.
            others = (
                range(size)
                if size <= 16
                else {entry[field.name] ^ 1 << bit for bit in range(field.width)} | {0, size - 1}
            )
            for value in others:
                if value != entry[field.name]:
                    fields = {**entry.fields, field.name: value}
                    changed = {**found.entries, (pe, context): replace(entry, fields=fields)}
                    what = f"PE {pe}, context {context}: {field.name} {value}"
                    yield what, replace(found, entries=changed)
        for name in ("const", "init"):
            for bit in (0, 1, 16, 31):
                other = {name: getattr(entry, name) ^ 1 << bit}
                changed = {**found.entries, (pe, context): replace(entry, **other)}
                yield f"PE {pe}, context {context}: {name} bit {bit}", replace(found, entries=changed)


def other_changes(found: Configuration) -> Iterator[tuple[str, Configuration]]:
    """Depth, arrays, patches and tables changed, entries that do nothing filled."""
    yield "deeper", replace(found, depth=found.depth + 1)
    if found.depth > 1:
        yield "less deep", replace(found, depth=found.depth - 1)
    for i, patch in enumerate(found.patches):
        rest = (*found.patches[:i], *found.patches[i + 1 :])
        yield f"without patch {i}", replace(found, patches=rest)
        yield (
            f"patch {i} by another scalar",
            replace(found, patches=(*rest, replace(patch, scalar=(patch.scalar + 1) % 14))),
        )
        yield (
            f"patch {i} of another kind",
            replace(found, patches=(*rest, replace(patch, what=1 - patch.what))),
        )
    for pe in range(found.fabric.size):
        for context in range(found.ii):
            if (pe, context) not in found.entries:
                entry = Entry({"op": 2 if found.fabric.kinds[pe].units else 63})
                yield (
                    f"more at {pe}, {context}",
                    replace(found, entries={**found.entries, (pe, context): entry}),
                )
            yield (
                f"patch at {pe}, {context}",
                replace(found, patches=(*found.patches, Patch(0, 3, pe, context))),
            )
    for pe, words in found.tables.items():
        for i in range(len(words)):
            other = (*words[:i], words[i] ^ 4, *words[i + 1 :])
            yield f"table word {i} of {pe}", replace(found, tables={**found.tables, pe: other})
    for i, array in enumerate(found.arrays):
        for name in ("space", "element", "base", "length"):
            other_array = replace(array, **{name: getattr(array, name) ^ 1})
            arrays = (*found.arrays[:i], other_array, *found.arrays[i + 1 :])
            yield f"{name} of array {i}", replace(found, arrays=arrays)


@pytest.mark.parametrize(
    ("name", "grid"),
    [
        *((name, grid) for name in KERNELS for grid in ("mesh2x2", "mixed4x4")),
        *((name, "mesh4x4") for name in ("sum", "mac", "conv3", "atax", "2mm")),
    ],
)
def test_what_the_mapper_makes_is_accepted(name, grid):
    assert case(name, grid).problems() == []


#: Every change, or one of eight.
EVERY = (pytest.param(1, marks=pytest.mark.slow, id="every"), pytest.param(8, id="some"))


def noticed_changes(made: _Case, step: int, effect: Callable[[Configuration], object]) -> int:
    """How many changes of a configuration are noticed; all others must leave the effect as it is."""
    right, noticed = effect(made.configuration), 0
    changes = [*field_changes(made.configuration), *other_changes(made.configuration)]
    for what, changed in changes[::step]:
        if made.problems(changed):
            noticed += 1
        else:
            assert effect(changed) == right, what
    return noticed


@pytest.mark.parametrize("step", EVERY)
@pytest.mark.parametrize("name", list(KERNELS))
def test_a_change_is_noticed_or_without_effect(name, step):
    made = case(name, "mesh2x2")
    right = simulated(made.configuration)
    assert right[0] is None
    assert any(access.stores for _, accesses in right[1] for access in accesses)
    assert noticed_changes(made, step, simulated) > 100 // step


@pytest.mark.parametrize("step", EVERY)
@pytest.mark.parametrize("name", ["mac", "conv3"])
def test_a_change_of_an_opaque_graph_is_noticed_or_decodes_to_the_same(name, step):
    made = case(name, "mesh4x4")

    def decoded(changed: Configuration) -> tuple[object, ...]:
        found = decode(changed)
        operations = [
            (o.pe, o.step, o.operation, o.entry.const, o.entry["negate"], o.initial) for o in found.operations
        ]
        return operations, flows(found), found.idle, changed.depth

    assert noticed_changes(made, step, decoded) > 100 // step


def test_what_differs_is_said_by_node_and_place():
    made = case("filter", "mesh2x2")
    node = next(n for n in made.graph.nodes if n.op == "mul")
    (place, entry), *_ = (
        (place, entry) for place, entry in made.configuration.entries.items() if entry["op"] == 32
    )
    changed = {**made.configuration.entries, place: replace(entry, fields={**entry.fields, "op": 33})}
    found = made.problems(replace(made.configuration, entries=changed))
    assert any(str(node) in line and "operation must be mul, not mul_shift" in line for line in found), found
    row, col = made.fabric.at(place[0])
    assert any(f"PE ({row},{col})" in line for line in found), found


def test_a_graph_that_differs_is_refused():
    made = case("filter", "mesh2x2")

    def with_node(op: str, **values: object) -> Graph:
        nodes = [
            replace(n, **values) if n.op == op and (op != "store" or n.memory) else n
            for n in made.graph.nodes
        ]
        return replace(made.graph, nodes=tuple(nodes))

    words = encode(made.configuration)
    arrays: Mapping[str, ArrayEntry] = made.arrays
    for wrong in (
        with_node("shr", const=4),
        with_node("load", memory=Memory("y")),
        replace(made.graph, edges=tuple(_swapped(made.graph))),
    ):
        assert wrong != made.graph
        assert verify(wrong, words, made.fabric, made.places, arrays=arrays, scalars=made.scalars)
    # Names of scalars that are exchanged.
    a, b, *_ = made.scalars
    other = {**made.scalars, a: made.scalars[b], b: made.scalars[a]}
    assert verify(made.graph, words, made.fabric, made.places, arrays=arrays, scalars=other)
    # One number for two scalars.
    one = [replace(p, scalar=0) for p in made.configuration.patches]
    words = encode(replace(made.configuration, patches=tuple(one)))
    assert verify(made.graph, words, made.fabric, made.places, scalars=made.scalars)


def _swapped(graph: Graph) -> Iterator[Edge]:
    """The operands of subtractions exchanged."""
    subs = {n.id for n in graph.nodes if n.op == "sub"}
    for edge in graph.edges:
        if edge.target in subs and edge.operand in ("I1", "I2"):
            yield replace(edge, operand="I2" if edge.operand == "I1" else "I1")
        else:
            yield edge


def test_an_access_that_comes_too_early_is_noticed():
    nodes = (
        Node(0, "const", const=3),
        Node(1, "store", const=1, memory=Memory("x")),
        Node(2, "store", const=2, memory=Memory("x")),
    )
    edges = (Edge(0, 1, 0, "I1"), Edge(0, 2, 0, "I1"), Edge(1, 2, 0, "M"), Edge(2, 1, 1, "M"))
    graph = Graph("ordered", nodes, edges)
    made = _Case(graph, load("mesh2x2"))
    assert made.problems() == []
    backwards = replace(graph, edges=(*edges[:2], Edge(2, 1, 0, "M"), Edge(1, 2, 1, "M")))
    found = verify(
        backwards, encode(made.configuration), made.fabric, made.places, arrays=made.arrays, scalars={}
    )
    assert any("order of 2 (store) and 1 (store)" in line for line in found), found


def test_equal_parts_are_told_apart_by_what_is_around_them():
    # Four times the same, in the same graph: any correspondence of the copies is right.
    nodes, edges = [], []
    for k in range(4):
        nodes += [Node(f"{k}.{i}", "add") for i in range(3)]
        edges += [Edge(f"{k}.{i}", f"{k}.{(i + 1) % 3}", int(i == 2)) for i in range(3)]
    made = _Case(Graph("copies", tuple(nodes), tuple(edges), opaque=True), load("mesh4x4"))
    assert made.problems() == []


def test_equal_parts_are_told_apart_by_the_order_of_their_accesses():
    # Six loads and stores that differ only in what they must come after.
    nodes = [Node("k", "const", const=3)]
    edges = []
    for k in range(6):
        nodes += [
            Node(f"load{k}", "load", memory=Memory("x")),
            Node(f"store{k}", "store", memory=Memory("x")),
        ]
        edges += [Edge("k", f"load{k}"), Edge("k", f"store{k}"), Edge(f"load{k}", f"store{k}", 0, "I2")]
    chain = [*range(5, 0, -2), *range(0, 6, 2)]
    orders = [Edge(f"store{a}", f"load{b}", 0, "M") for a, b in itertools.pairwise(chain)]
    back = Edge(f"store{chain[-1]}", f"load{chain[0]}", 1, "M")
    graph = Graph("updates", tuple(nodes), (*edges, *orders, back))
    made = _Case(graph, load("mesh4x4"))
    assert made.problems() == []


def test_operators_are_numbered_by_name_and_immediate():
    assert opaque_number(Node(1, "add")) == 0xFD1A73E7
    assert opaque_number(Node(1, "add", const=3)) != opaque_number(Node(1, "add", const=4))


def test_words_that_are_no_bitstream_are_said():
    made = case("mac", "mesh4x4")
    assert verify(made.graph, [1, 2, 3], made.fabric, made.places, scalars={}) == [
        "bitstream word 0: the mark must be 0x48430200, not 0x00000001"
    ]
