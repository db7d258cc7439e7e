"""Whether a bitstream means a graph: the graph is rebuilt from the words alone and compared with the source.

Nothing of the mapper or the encoder is used here. Both sides get one form (`sw.cgra.meaning`), and the
correspondence of nodes and operations is searched for (`sw.cgra.match`); that it is one is the proof.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence

from hw.errors import InputError
from hw.fabric import Fabric
from hw.fabric.bitstream import ArrayEntry, parse
from hw.fabric.decode import Decoded, decode
from sw.cgra.match import Before, match, nearest
from sw.cgra.meaning import Meaning, Name, Vertex, of_configuration, of_graph, opaque_number
from sw.dfg.graph import ORDER, Graph

__all__ = ["compare", "opaque_number", "verify"]


def verify(
    graph: Graph,
    words: Sequence[int],
    fabric: Fabric,
    *,
    arrays: Mapping[str, ArrayEntry] | None = None,
    scalars: Mapping[str, int] | None = None,
) -> list[str]:
    """What is wrong with a bitstream that should mean a graph: nothing where the list is empty.

    `graph` is the one that was mapped (`sw.cgra.legal.prepare`). `arrays` and `scalars` are what the words
    were made with; without them names and numbers only have to stand for one another. Patches of base
    and length of arrays are for the launch, and not looked at.
    """
    try:
        decoded = decode(parse(words, fabric))
    except InputError as error:
        return [str(error)]
    return compare(graph, decoded, arrays=arrays, scalars=scalars)


def compare(
    graph: Graph,
    decoded: Decoded,
    *,
    arrays: Mapping[str, ArrayEntry] | None = None,
    scalars: Mapping[str, int] | None = None,
) -> list[str]:
    """What differs between a graph and a configuration that was decoded."""
    numbers = None if arrays is None else {name: i for i, name in enumerate(arrays)}
    asked = of_graph(graph, numbers, scalars)
    done = of_configuration(decoded, numbers is not None, scalars is not None)
    found = [
        f"PE {_at(decoded, pe)}, context {context}: {why}" for (pe, context), why in decoded.idle.items()
    ]
    found += _mismatch(graph, decoded, asked, done)
    return [*found, *_depth(decoded), *_arrays(decoded, arrays)]


def _mismatch(graph: Graph, decoded: Decoded, asked: Meaning, done: Meaning) -> list[str]:
    """Where no nodes and operations correspond; nothing where there is a correspondence."""
    one, other = asked.shape(), done.shape()
    steps = [executed.step for executed in decoded.operations]
    if match(one, other, _befores(graph, decoded), steps) is not None:
        return []
    pairs = match(one, other)
    if pairs is not None:
        # Nothing but the order differs.
        return _order(graph, decoded, pairs)
    pairs = nearest(one, other, (_operation, type))
    differing = _differences(asked, done, pairs) + _order(graph, decoded, pairs)
    return differing or ["no correspondence of nodes and operations was found"]


def _operation(label: Hashable) -> Hashable:
    """What a vertex is without its numbers."""
    return label.op if isinstance(label, Vertex) else label.what if isinstance(label, Name) else label


def _at(decoded: Decoded, pe: int) -> str:
    row, col = decoded.configuration.fabric.at(pe)
    return f"({row},{col})"


def _befores(graph: Graph, decoded: Decoded) -> list[Before]:
    """The order of accesses of memory that a correspondence must have."""
    place = {node.id: i for i, node in enumerate(graph.nodes)}
    ii = decoded.configuration.ii
    return [
        Before(place[edge.source], place[edge.target], edge.distance * ii)
        for edge in graph.edges
        if edge.operand == ORDER
    ]


def _order(graph: Graph, decoded: Decoded, pairs: Mapping[int, int]) -> list[str]:
    """Accesses of memory that do not come after the one that they must come after."""
    place = {node.id: i for i, node in enumerate(graph.nodes)}
    found = []
    for edge in graph.edges:
        ends = pairs.get(place[edge.source]), pairs.get(place[edge.target])
        if edge.operand != ORDER or ends[0] is None or ends[1] is None:
            continue
        source, target = (decoded.operations[end] for end in ends if end is not None)
        later = target.step + edge.distance * decoded.configuration.ii
        if later <= source.step:
            found.append(
                f"order of {graph.by_id[edge.source]} and {graph.by_id[edge.target]}: the second must start "
                f"after step {source.step}, not in step {later}"
            )
    return found


def _depth(decoded: Decoded) -> list[str]:
    """The depth is one more than the last step in which an operation starts."""
    configuration = decoded.configuration
    needed = max((e.step for e in decoded.operations), default=0) + 1
    if configuration.depth == needed:
        return []
    return [f"the depth must be {needed}, not {configuration.depth}"]


def _arrays(decoded: Decoded, arrays: Mapping[str, ArrayEntry] | None) -> list[str]:
    """Arrays other than those that were asked for."""
    if arrays is None:
        return []
    given = decoded.configuration.arrays
    found = [
        f"array {i} ({name!r}) must be {wanted}, not {entry}"
        for i, ((name, wanted), entry) in enumerate(zip(arrays.items(), given, strict=False))
        if entry != wanted
    ]
    if len(given) != len(arrays):
        found.append(f"there must be {len(arrays)} arrays, not {len(given)}")
    return found


# What differs, in words


def _differences(asked: Meaning, done: Meaning, pairs: Mapping[int, int]) -> list[str]:
    found = []
    into = _into(asked), _into(done)
    taken = {target: source for source, target in pairs.items()}
    for vertex in range(asked.operations):
        if vertex not in pairs:
            found.append(f"{asked.texts[vertex]}: no operation of the configuration stands for it")
            continue
        own = pairs[vertex]
        where = f"{asked.texts[vertex]}, {done.texts[own]}"
        found += [f"{where}: {text}" for text in _differ(asked.vertices[vertex], done.vertices[own])]
        wanted, given = into[0].get(vertex, {}), into[1].get(own, {})
        for label in dict.fromkeys([*wanted, *given]):
            one, other = wanted.get(label), given.get(label)
            if one is None:
                found.append(f"{where}: {_label(label)} must not be there, it is {done.texts[other or 0]}")
            elif other is None or pairs.get(one) != other:
                is_ = "missing" if other is None else done.texts[other]
                found.append(f"{where}: {_label(label)} must be {asked.texts[one]}, it is {is_}")
    for vertex in range(done.operations):
        if vertex not in taken:
            found.append(f"{done.texts[vertex]}: stands for no node of the graph")
    for vertex, own in pairs.items():
        if vertex >= asked.operations and asked.vertices[vertex] != done.vertices[own]:
            found.append(f"{asked.texts[vertex]}: its number must not be that of {done.texts[own]}")
    return found


def _into(meaning: Meaning) -> dict[int, dict[Hashable, int]]:
    """By vertex and label: where an edge comes from."""
    found: dict[int, dict[Hashable, int]] = defaultdict(dict)
    for source, target, label in meaning.edges:
        found[target][label] = source
    return found


def _label(label: Hashable) -> str:
    if isinstance(label, tuple):
        return f"operand {label[0]} from {label[1]} iterations before"
    return f"the {label}" if label in ("array", "init", "const") else f"operand {label}"


def _differ(asked: object, done: object) -> list[str]:
    """What differs between two operations themselves."""
    if not (isinstance(asked, Vertex) and isinstance(done, Vertex)) or asked == done:
        return []
    found = []
    for what, one, other in (
        ("operation", asked.op, done.op),
        ("negated predicate", asked.negated, done.negated),
        ("numbers", dict(asked.numbers), dict(done.numbers)),
        ("initial values (operand, iterations, value)", asked.initial, done.initial),
    ):
        if one != other:
            found.append(f"{what} must be {one}, not {other}")
    if asked.words != done.words:
        found.append("the words of the table must be those of the graph")
    return found
