"""Straight code that only computes scalars, as expressions that a warp evaluates."""

from __future__ import annotations

from collections.abc import Mapping

from hw.errors import InputError
from sw.dfg.graph import DATA, PREDICATE, Graph, Node, NodeId
from sw.dfg.operations import OPERATIONS
from sw.ir.expression import Const, Expr, Op, const, fold
from sw.ir.types import Kind

#: Nodes of an expression; what is larger is computed by the CGRA.
LARGEST = 64
#: The operators of tile programs by the operations that they are.
_OPERATORS = {op.semantics.name: op for op in Op if op not in (Op.SELECT, Op.OR, Op.AND, Op.NOT)}


def express(graph: Graph, scalars: Mapping[str, Expr]) -> dict[str, Expr] | None:
    """The outputs of straight code by name, for scalars that are expressions.

    None where a tile program has no operator for something, or where an expression grows too large. Raises
    `InputError` for an index that is surely outside of a table.
    """
    if any(edge.distance for edge in graph.edges) or any(name not in scalars for name in graph.scalars):
        return None
    values: dict[NodeId, Expr] = {}
    for identity in graph.order:
        node = graph.by_id[identity]
        edges = {e.operand: e for e in graph.incoming[identity] if e.routed}
        immediate = node.immediate
        given = scalars[immediate] if isinstance(immediate, str) else const(immediate or 0)
        names = DATA[: OPERATIONS[node.op].operands]
        found = _applied(
            graph, node, [values[edges[n].source] if n in edges else given for n in names], given
        )
        if found is not None and PREDICATE in edges:
            condition = edges[PREDICATE]
            holds = fold(Op.EQ if condition.negated else Op.NE, values[condition.source], 0)
            found = fold(Op.SELECT, holds, found, 0)
        if found is None or sum(1 for _ in found.walk()) > LARGEST:
            return None
        values[identity] = found
    return {output.name: values[output.source] for output in graph.outputs}


def _applied(graph: Graph, node: Node, operands: list[Expr], immediate: Expr) -> Expr | None:
    """An operation on expressions; None where a tile program has no operator for it."""
    numbers = [operand.value for operand in operands if isinstance(operand, Const)]
    meaning = OPERATIONS[node.op].meaning
    if node.op == "const":
        return immediate
    if node.op == "table":
        return _word(graph, node, numbers[0]) if numbers else None
    if node.op == "mov":
        return operands[0]
    if node.op == "select":
        condition, then, other = operands
        return fold(Op.SELECT, fold(Op.NE, condition, 0), then, other)
    if node.op in _OPERATORS:
        made = fold(_OPERATORS[node.op], *operands)
        return fold(Op.SELECT, made, 1, 0) if made.kind is Kind.BOOL else made
    if meaning is not None and len(numbers) == len(operands):
        return const(meaning(*numbers))
    if node.op == "abs":
        return fold(Op.SELECT, fold(Op.LT, operands[0], 0), fold(Op.SUB, 0, operands[0]), operands[0])
    return None


def _word(graph: Graph, node: Node, index: int) -> Expr:
    """A word of a table."""
    assert node.memory is not None
    words = dict(graph.tables)[node.memory.name]
    if not 0 <= index < len(words):
        raise InputError(
            f"graph {graph.name!r}: index of table {node.memory.name!r} must be 0 to {len(words) - 1}, "
            f"not {index}"
        )
    return const(words[index])
