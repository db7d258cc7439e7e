"""Verifies that a bitstream implements a graph: decodes the graph from the words alone and compares it.

It uses nothing of the mapper or the encoder. The caller says where it placed each node; this is only a hint,
since a wrong place shows as a difference.
"""

from __future__ import annotations

import zlib
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

from hw.errors import InputError
from hw.fabric import Fabric
from hw.fabric.bitstream import PATCHED, ArrayEntry, parse
from hw.fabric.decode import Decoded, Executed, decode
from hw.fabric.layout import OPERAND_FIELDS
from hw.fabric.operations import LOADS, STORES
from sw.dfg.graph import DATA, ORDER, PREDICATE, Edge, Graph, Node, NodeId, Value, arrays_of

_MASK = (1 << 32) - 1
_FIELD = dict(zip((*DATA, PREDICATE), OPERAND_FIELDS, strict=True))
#: The operand mux of the predicate.
_P = OPERAND_FIELDS[-1]

#: Named properties of an operation.
Facts = dict[str, Hashable]


@dataclass(frozen=True)
class Scalar:
    """A scalar of the launch by its number; None if it has none."""

    number: int | None

    def __str__(self) -> str:
        return f"scalar {self.number}"


@dataclass(frozen=True)
class Flow:
    """The value of a node, or of an operation (its number) that implements none, some iterations ago.

    `lanes` is how many of its lanes arrive; None if all are the same.
    """

    node: NodeId | None
    operation: int | None
    distance: int
    lanes: int | None = None

    def __str__(self) -> str:
        source = f"operation {self.operation}" if self.node is None else f"node {self.node}"
        lanes = "" if self.lanes is None else f", with lanes = {self.lanes}"
        return f"{source}, {self.distance} iterations before{lanes}"


def verify(
    graph: Graph,
    words: Sequence[int],
    fabric: Fabric,
    places: Mapping[NodeId, tuple[int, int]],
    *,
    arrays: Mapping[str, ArrayEntry] | None = None,
    scalars: Mapping[str, int],
) -> list[str]:
    """The errors of a bitstream that should implement a graph; an empty list if there are none.

    `graph` is the mapped graph (`sw.cgra.legal.prepare`), and `places` the PE and step of each node.
    `scalars` and `arrays` are those with which the words were made; without these, arrays are numbered in
    order of use and may be anywhere. Patches of base and length concern the launch and are not checked.
    """
    try:
        decoded = decode(parse(words, fabric))
    except InputError as error:
        return [str(error)]
    named = arrays_of(graph, *LOADS, *STORES) if arrays is None else arrays
    numbers = _Numbers({name: i for i, name in enumerate(named)}, scalars)
    ii = decoded.configuration.ii
    at = {(e.pe, e.step % ii): number for number, e in enumerate(decoded.operations)}
    known = {node: (pe, step % ii) for node, (pe, step) in places.items() if node in graph.by_id}
    own = {node: at[place] for node, place in known.items() if place in at}
    found = [f"PE {fabric.at(pe)}, context {context}: {why}" for (pe, context), why in decoded.idle.items()]
    found += _differences(graph, decoded, own, numbers)
    return [
        *found,
        *_order(graph, decoded, own),
        *_depth(decoded),
        *_stages(decoded),
        *_arrays(decoded, arrays),
    ]


@dataclass(frozen=True)
class _Numbers:
    """The numbers of arrays and scalars in the configuration."""

    arrays: Mapping[str, int]
    scalars: Mapping[str, int]

    def value(self, value: Value) -> Hashable:
        """A number as stored, or a scalar of the launch."""
        return Scalar(self.scalars.get(value)) if isinstance(value, str) else value & _MASK


def _differences(graph: Graph, decoded: Decoded, own: Mapping[NodeId, int], numbers: _Numbers) -> list[str]:
    """The differences between nodes and the operations at their positions."""
    owner: dict[int, NodeId] = {}
    for identity, number in own.items():
        owner.setdefault(number, identity)
    patches = {(PATCHED[p.what], p.pe, p.at): p.scalar for p in decoded.configuration.patches if p.what < 2}
    found = []
    for node in graph.nodes:
        if node.id not in own or owner[own[node.id]] != node.id:
            found.append(f"node {node}: no operation of the configuration stands for it")
            continue
        executed = decoded.operations[own[node.id]]
        where = f"node {node}, {_text(decoded, executed)}"
        asked, done = _asked(graph, node, numbers), _done(graph, decoded, executed, owner, patches)
        for what in dict.fromkeys([*asked, *done]):
            if what not in asked:
                found.append(f"{where}: {what} must not be there, it is {_shown(done[what])}")
            elif what not in done:
                found.append(f"{where}: {what} must be {_shown(asked[what])}, it is missing")
            elif asked[what] != done[what]:
                found.append(f"{where}: {what} must be {_shown(asked[what])}, not {_shown(done[what])}")
    spare = (e for i, e in enumerate(decoded.operations) if i not in owner)
    return found + [f"{_text(decoded, executed)}: stands for no node of the graph" for executed in spare]


def _text(decoded: Decoded, executed: Executed) -> str:
    row, col = decoded.configuration.fabric.at(executed.pe)
    return f"{executed.operation.name} in PE ({row},{col}), step {executed.step}"


def _shown(fact: Hashable) -> str:
    return f"({', '.join(map(_shown, fact))})" if isinstance(fact, tuple) else str(fact)


# What a graph requires


def opaque_number(node: Node) -> int:
    """The number in a configuration for an operator known by name only."""
    text = node.op if node.immediate is None else f"{node.op}:{node.immediate}"
    return zlib.crc32(text.encode())


def _asked(graph: Graph, node: Node, numbers: _Numbers) -> Facts:
    """The required properties of the operation that implements a node."""
    facts: Facts = {"operation": graph.operation(node).name, "negated predicate": False}
    for operand, given in graph.operands(node).items():
        name = _FIELD[operand]
        if not isinstance(given, Edge):
            facts[f"operand {name}"] = numbers.value(given)
            continue
        lanes = graph.lanes if given.source in graph.wide else None
        facts[f"operand {name}"] = Flow(given.source, None, given.distance, lanes)
        if given.negated:
            facts["negated predicate"] = True
        if given.initial and not graph.opaque:
            values = tuple(numbers.value(v) for v in dict.fromkeys(given.initial))
            facts[f"initial value of {name}, with its iterations"] = (*values, given.distance)
    if graph.opaque:
        return facts | {"const": opaque_number(node)}
    if graph.operation(node).of_lanes:
        facts["lanes"] = graph.lanes
    own = node.op == "const" or graph.operation(node).constant
    if own and node.immediate is not None:
        facts["const"] = numbers.value(node.immediate)
    if node.op == "table" and node.memory is not None:
        facts["table"] = tuple(word & _MASK for word in dict(graph.tables)[node.memory.name])
    elif node.memory is not None:
        facts["array"] = numbers.arrays.get(node.memory.name)
    return facts


# What a configuration does


def _done(
    graph: Graph,
    decoded: Decoded,
    executed: Executed,
    owner: Mapping[int, NodeId],
    patches: Mapping[tuple[str, int, int], int],
) -> Facts:
    """The properties of an operation in a configuration."""
    place = executed.pe, executed.step % decoded.configuration.ii
    opaque = executed.operation.opaque
    const: Hashable = executed.entry.const & _MASK
    init: Hashable = executed.entry.init & _MASK
    if ("const", *place) in patches:
        const = Scalar(patches["const", *place])
    if ("init", *place) in patches:
        init = Scalar(patches["init", *place])
    facts: Facts = {"operation": executed.operation.name, "negated predicate": bool(executed.entry["negate"])}
    for name, operand in executed.operands.items():
        if operand.why:
            facts[f"operand {name}"] = operand.why
        elif operand.source is not None:
            stray, source = None if operand.source in owner else operand.source, owner.get(operand.source)
            lanes = operand.lanes if source in graph.wide else None
            facts[f"operand {name}"] = Flow(source, stray, operand.distance, lanes)
        elif name == _P:
            if operand.value != 1:
                facts[f"operand {name}"] = operand.value
        elif not opaque:
            # `const` is the second source of each data operand's mux.
            facts[f"operand {name}"] = const if executed.entry[name] == 1 else (operand.value or 0) & _MASK
        if executed.initial >> OPERAND_FIELDS.index(name) & 1:
            facts[f"initial value of {name}, with its iterations"] = (init, executed.entry["first"])
    if opaque or executed.operation.name == "const" or executed.operation.constant:
        facts["const"] = const
    if executed.operation.name == "table":
        facts |= _table(decoded, executed, const)
    if executed.operation.name in (*LOADS, *STORES):
        facts["array"] = executed.entry["array"]
    if executed.operation.of_lanes:
        facts["lanes"] = decoded.configuration.fabric.kinds[executed.pe].lanes
    return facts


def _table(decoded: Decoded, executed: Executed, const: Hashable) -> Facts:
    """The words that a table operation may read; its constant is their offset."""
    if isinstance(const, Scalar):
        return {"const": const}
    start, count = executed.entry.const & 0xFFFF, (executed.entry.const & _MASK) >> 16
    words = decoded.configuration.tables.get(executed.pe, ())[start : start + count]
    return {"table": tuple(word & _MASK for word in words) if len(words) == count else "beyond its memory"}


# Checks that concern the whole configuration


def _order(graph: Graph, decoded: Decoded, own: Mapping[NodeId, int]) -> list[str]:
    """Memory accesses that do not follow the access that they must follow."""
    found = []
    for edge in graph.edges:
        if edge.operand != ORDER or edge.source not in own or edge.target not in own:
            continue
        source, target = (decoded.operations[own[end]] for end in (edge.source, edge.target))
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


def _stages(decoded: Decoded) -> list[str]:
    """The hardware counts iterations up to the number of stages, those with initial values included."""
    stages = decoded.configuration.fabric.stages
    late = [e for e in decoded.operations if e.entry["stage"] + (e.initial and e.entry["first"]) >= stages]
    return [f"{_text(decoded, e)}: its stage and first iterations must be below {stages}" for e in late]


def _arrays(decoded: Decoded, arrays: Mapping[str, ArrayEntry] | None) -> list[str]:
    """Arrays other than those required."""
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
