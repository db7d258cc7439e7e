"""Straight-line code that only computes scalars, as expressions that a warp evaluates."""

from __future__ import annotations

from collections.abc import Mapping

from hw.errors import InputError
from sw.dfg.graph import DATA, PREDICATE, Edge, Graph, Node, NodeId, Value
from sw.dfg.operations import OPERATIONS
from sw.ir.expression import Const, Expr, Op, const, fold
from sw.ir.types import Kind

#: Largest expression, in nodes; larger ones are computed by the CGRA.
LARGEST = 64
#: Operators of tile programs, by CGRA operation.
_OPERATORS = {op.semantics.name: op for op in Op if op not in (Op.SELECT, Op.OR, Op.AND, Op.NOT)}


def express(graph: Graph, scalars: Mapping[str, Expr]) -> dict[str, Expr] | None:
    """The outputs of straight-line code by name, for scalars that are expressions.

    None if a tile program lacks an operator, or if an expression becomes too large. Raises `InputError` for
    an index that is certainly outside a table.
    """
    if any(edge.distance for edge in graph.edges) or any(name not in scalars for name in graph.scalars):
        return None
    values: dict[NodeId, Expr] = {}

    def operand(given: Edge | Value) -> Expr:
        if isinstance(given, Edge):
            return values[given.source]
        return scalars[given] if isinstance(given, str) else const(given)

    for identity in graph.order:
        node = graph.by_id[identity]
        given = graph.operands(node)
        if node.op == "const":
            found: Expr | None = operand(node.immediate or 0)
        else:
            operands = [operand(given[name]) for name in DATA if name in given]
            if graph.operation(node).constant:
                operands.append(operand(node.immediate or 0))
            found = _applied(graph, node, operands)
        condition = given.get(PREDICATE)
        if found is not None and isinstance(condition, Edge):
            holds = fold(Op.EQ if condition.negated else Op.NE, values[condition.source], 0)
            found = fold(Op.SELECT, holds, found, 0)
        if found is None or sum(1 for _ in found.walk()) > LARGEST:
            return None
        values[identity] = found
    return {output.name: values[output.source] for output in graph.outputs}


def _applied(graph: Graph, node: Node, operands: list[Expr]) -> Expr | None:
    """An operation on expressions; None if a tile program has no operator for it."""
    numbers = [operand.value for operand in operands if isinstance(operand, Const)]
    meaning = OPERATIONS[node.op].meaning
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
