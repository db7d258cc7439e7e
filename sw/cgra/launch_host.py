"""Straight code that only computes scalars, as expressions that a warp evaluates."""

from __future__ import annotations

from collections.abc import Mapping

from hw.errors import InputError
from sw.dfg.graph import DATA, PREDICATE, Edge, Graph, Node, Value
from sw.dfg.operations import OPERATIONS
from sw.ir.expression import Const, Expr, Op, const, fold
from sw.ir.types import Kind

#: Nodes of an expression; what is larger is computed by the grid.
LARGEST = 64
#: The operators of tile programs by the operations that they are.
_OPERATORS = {
    "add": Op.ADD,
    "sub": Op.SUB,
    "mul": Op.MUL,
    "shl": Op.SHL,
    "shr": Op.SHR,
    "and": Op.BIT_AND,
    "or": Op.BIT_OR,
    "xor": Op.BIT_XOR,
    "min": Op.MIN,
    "max": Op.MAX,
    "lt": Op.LT,
    "le": Op.LE,
    "gt": Op.GT,
    "ge": Op.GE,
    "eq": Op.EQ,
    "ne": Op.NE,
}


def express(graph: Graph, scalars: Mapping[str, Expr]) -> dict[str, Expr] | None:
    """The outputs of straight code by name, for scalars that are expressions.

    None where a tile program has no operator for something, or where an expression grows too large. Raises
    `InputError` for an index that is surely outside of a table.
    """
    if any(edge.distance for edge in graph.edges) or any(name not in scalars for name in graph.scalars):
        return None
    values: dict[object, Expr] = {}
    for identity in graph.order:
        found = _node(graph, graph.by_id[identity], values, scalars)
        if found is None or sum(1 for _ in found.walk()) > LARGEST:
            return None
        values[identity] = found
    return {output.name: values[output.source] for output in graph.outputs}


def _node(
    graph: Graph, node: Node, values: Mapping[object, Expr], scalars: Mapping[str, Expr]
) -> Expr | None:
    """What a node gives."""
    edges = {e.operand: e for e in graph.incoming[node.id] if e.routed}
    immediate = None if node.immediate is None else _value(node.immediate, scalars)
    if node.op == "const":
        assert immediate is not None
        value: Expr | None = immediate
    else:
        operands = []
        for name in DATA[: OPERATIONS[node.op].operands]:
            operand = values[edges[name].source] if name in edges else immediate
            assert operand is not None
            operands.append(operand)
        value = _table(graph, node, operands) if node.op == "table" else _apply(node.op, operands)
    if value is None or PREDICATE not in edges:
        return value
    return fold(Op.SELECT, _holds(edges[PREDICATE], values), value, 0)


def _value(value: Value, scalars: Mapping[str, Expr]) -> Expr:
    return const(value) if isinstance(value, int) else scalars[value]


def _holds(edge: Edge, values: Mapping[object, Expr]) -> Expr:
    return fold(Op.EQ if edge.negated else Op.NE, values[edge.source], 0)


def _table(graph: Graph, node: Node, operands: list[Expr]) -> Expr | None:
    """A word of a table, where the index is a number."""
    assert node.memory is not None
    (index,) = operands
    if not isinstance(index, Const):
        return None
    words = dict(graph.tables)[node.memory.name]
    if not 0 <= index.value < len(words):
        raise InputError(
            f"graph {graph.name!r}: index of table {node.memory.name!r} must be 0 to {len(words) - 1}, "
            f"not {index.value}"
        )
    return const(words[index.value])


def _apply(op: str, operands: list[Expr]) -> Expr | None:
    """An operation on expressions."""
    if op == "select":
        condition, then, other = operands
        return fold(Op.SELECT, fold(Op.NE, condition, 0), then, other)
    if op == "mov":
        return operands[0]
    if op in _OPERATORS:
        made = fold(_OPERATORS[op], *operands)
        return fold(Op.SELECT, made, 1, 0) if made.kind is Kind.BOOL else made
    meaning = OPERATIONS[op].meaning
    numbers = [operand.value for operand in operands if isinstance(operand, Const)]
    if meaning is not None and len(numbers) == len(operands):
        return const(meaning(*numbers))
    if op == "abs":
        (operand,) = operands
        return fold(Op.SELECT, fold(Op.LT, operand, 0), fold(Op.SUB, 0, operand), operand)
    return None
