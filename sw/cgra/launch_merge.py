"""Merges straight-line code after a loop into the loop, so that an outer loop needs one configuration.

A row of a matrix-vector product is a loop that accumulates, and a store of the sum. If every iteration stores
the sum so far, the last one stores the result, and the CGRA keeps its configuration from row to row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from hw.fabric.operations import LOADS, STORES
from sw.dfg.graph import DATA, PREDICATE, Graph, NodeId, arrays_of
from sw.dfg.kernel import HostLoop, Kernel, Launch, Step, launches_in, prune


def merge(kernel: Kernel, scalars: Mapping[str, int]) -> Kernel:
    """Merges straight-line code into the loop before it, inside host loops, if that is equivalent.

    `scalars` are the values of the kernel's scalars: a loop must run at least once.
    """
    fixed = {name: value for name, value in scalars.items() if name not in assigned(kernel.body)}
    body = tuple(_inside(step, fixed) if isinstance(step, HostLoop) else step for step in kernel.body)
    return replace(kernel, body=prune(body, kernel.results))


def assigned(body: Sequence[Step]) -> list[str]:
    """The names that launches in a body assign, in the order of the text."""
    return list(dict.fromkeys(o.name for launch in launches_in(body) for o in launch.graph.outputs))


def _inside(loop: HostLoop, scalars: Mapping[str, int]) -> HostLoop:
    made: list[Step] = []
    for step in loop.body:
        if isinstance(step, HostLoop):
            made.append(_inside(step, scalars))
            continue
        before = made[-1] if made else None
        together = _together(before, step, scalars) if isinstance(before, Launch) else None
        if together is not None:
            made.pop()
        made.append(together or step)
    return replace(loop, body=tuple(made))


def _together(loop: Launch, after: Launch, scalars: Mapping[str, int]) -> Launch | None:
    """One launch for a loop and the straight-line code after it; None if that is not equivalent."""
    if loop.once or not after.once or after.on_host:
        return None
    if (scalars.get(loop.count, 0) if isinstance(loop.count, str) else loop.count) < 1:
        return None
    outputs = {output.name: output for output in loop.graph.outputs}
    given = {n.id: outputs[n.scalar] for n in after.graph.nodes if n.scalar in outputs and n.scalar}
    if any(after.graph.by_id[node].op != "const" or after.graph.incoming[node] for node in given):
        return None
    if any(o.source in loop.graph.wide for o in given.values()):
        # The straight-line code would take lane 0 of the value, but the loop has all lanes.
        return None
    if not _same_if_repeated(loop.graph, after.graph, set(given)):
        return None
    # The loop may have been merged before; the number of its nodes makes the prefix unique.
    mark = f"after{len(loop.graph.nodes)}."
    names: dict[NodeId, NodeId] = {node.id: f"{mark}{node.id}" for node in after.graph.nodes}
    nodes = [replace(node, id=names[node.id]) for node in after.graph.nodes if node.id not in given]
    edges = []
    for edge in after.graph.edges:
        moved = replace(edge, source=names[edge.source], target=names[edge.target])
        if edge.source in given:
            o = given[edge.source]
            moved = replace(moved, source=o.source, distance=o.distance - 1, initial=o.initial[1:])
        edges.append(moved)
    own = tuple(replace(o, source=names[o.source]) for o in after.graph.outputs)
    kept = tuple(o for name, o in outputs.items() if name not in {o.name for o in own})
    tables = dict(loop.graph.tables) | dict(after.graph.tables)
    graph = Graph(
        loop.graph.name,
        (*loop.graph.nodes, *nodes),
        (*loop.graph.edges, *edges),
        outputs=(*kept, *own),
        tables=tuple(tables.items()),
        lanes=max(loop.graph.lanes, after.graph.lanes),
    )
    return Launch(graph, loop.count)


def _same_if_repeated(loop: Graph, after: Graph, given: set[NodeId]) -> bool:
    """Whether straight-line code has the same effect if it runs in every iteration.

    It must access the same elements each time, read nothing that it or the loop stores, and store nothing
    that the loop accesses. Its outputs must not be values that the loop only passes through.
    """
    if any(edge.distance for edge in after.edges) or any(o.source in given for o in after.outputs):
        return False
    loaded, stored = (set(arrays_of(after, *operations)) for operations in (LOADS, STORES))
    if stored & loaded or stored.intersection(arrays_of(loop, *LOADS, *STORES)):
        return False
    if loaded.intersection(arrays_of(loop, *STORES)):
        return False
    changing = set(given)
    for node in after.order:
        if any(e.routed and e.source in changing for e in after.incoming[node]):
            changing.add(node)
    # These edges decide which element a node accesses, and whether it does.
    deciding = (e for e in after.edges if e.operand in (DATA[0], PREDICATE) and after.by_id[e.target].memory)
    return not any(edge.source in changing for edge in deciding)
