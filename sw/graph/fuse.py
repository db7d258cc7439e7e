"""Operator fusion: epilogues of products, chains of elementwise operators, copies."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from sw.graph.expression import Apply, Argument, Expression, Lookup, Number, changed, operations, size, walk
from sw.graph.network import (
    Elementwise,
    Epilogue,
    ImageConvolution,
    MatrixProduct,
    Network,
    Operator,
    Tensor,
    View,
)
from sw.graph.requantise import apply, clamped
from sw.graph.tabulate import tabulated
from sw.graph.views import covers, descending, repeats, reshaped, same_places, transposed

#: Most operands, operations and tables of one operator; if more, the operators stay separate.
MOST_OPERANDS = 5
MOST_OPERATIONS = 64
#: The same with repeated operations counted each time. A value that is doubled n times has 2^n; a sum in
#: float32 has some 500.
MOST_SIZE = 1 << 14
MOST_TABLES = 2


def fused(network: Network) -> Network:
    """The network with elementwise operators fused into producers whose result nothing else reads."""
    operators: list[Operator | None] = [*_renamed(list(network.operators), network)]
    uses = _Uses(operators)
    for place, operator in enumerate(operators):
        while operator is not None and (found := _into_producer(operator, uses, network)) is not None:
            producer, operator = found
            # The merged operator takes the position of the later one.
            uses.replace(producer, None)
            uses.replace(place, operator)
    made = [_tabulated(operator, network) for operator in operators if operator is not None]
    return _pruned(network, made)


def _tabulated(operator: Operator, network: Network) -> Operator:
    """The operator with functions of one byte as tables."""
    match operator:
        case Elementwise(value=value, operands=operands):
            made = tabulated(value, _elements(operands, network), _constants(operands, network))
            return dataclasses.replace(operator, value=made)
        case (
            MatrixProduct(epilogue=Epilogue(value, operands))
            | ImageConvolution(epilogue=Epilogue(value, operands))
        ):
            elements, constants = _elements(operands, network), _constants(operands, network)
            made = tabulated(value, ["int32", *elements], [None, *constants])
            return dataclasses.replace(operator, epilogue=Epilogue(made, operands))
    return operator


def _elements(views: Sequence[View], network: Network) -> list[str]:
    return [network.tensors[v.tensor].element for v in views]


def _constants(views: Sequence[View], network: Network) -> list[np.ndarray | None]:
    """The values of constant integers among operands."""
    constants = [network.tensors[v.tensor].constant for v in views]
    return [
        v.of(c) if c is not None and c.dtype.kind in "iu" else None
        for v, c in zip(views, constants, strict=True)
    ]


class _Uses:
    """The operators, and the positions of those that write and read each tensor."""

    def __init__(self, operators: list[Operator | None]):
        self.operators = operators
        self.writers: defaultdict[str, set[int]] = defaultdict(set)
        self.readers: defaultdict[str, set[int]] = defaultdict(set)
        for place in range(len(operators)):
            self._note(place, set.add)

    def replace(self, place: int, operator: Operator | None) -> None:
        """Replaces the operator at a position, or removes it."""
        self._note(place, set.discard)
        self.operators[place] = operator
        self._note(place, set.add)

    def _note(self, place: int, change: Callable[[set[int], int], None]) -> None:
        operator = self.operators[place]
        if operator is not None:
            change(self.writers[operator.output.tensor], place)
            for view in operator.inputs:
                change(self.readers[view.tensor], place)

    def producer(self, name: str, network: Network) -> int | None:
        """The only operator that writes a tensor with only one reader."""
        fixed = name in network.inputs or name in network.outputs
        alone = len(self.writers[name]) == len(self.readers[name]) == 1
        return min(self.writers[name]) if alone and not fixed else None


def _into_producer(operator: Operator, uses: _Uses, network: Network) -> tuple[int, Operator] | None:
    """The position of a producer that can absorb an elementwise operator, and both as one."""
    if not isinstance(operator, Elementwise):
        return None
    candidates = []
    for name, view in {view.tensor: view for view in operator.operands}.items():
        place = uses.producer(name, network)
        if place is not None and all(same_places(v, view) for v in operator.operands if v.tensor == name):
            product = isinstance(uses.operators[place], MatrixProduct | ImageConvolution)
            candidates.append((product, place, view))
    for _, place, view in sorted(candidates, key=lambda c: (c[0], c[1]), reverse=True):
        before = uses.operators[place]
        assert before is not None
        merged = _merged(before, operator, view, network.tensors)
        if merged is not None:
            return place, merged
    return None


def _merged(
    producer: Operator, reader: Elementwise, view: View, tensors: Mapping[str, Tensor]
) -> Operator | None:
    """Both as one operator, with elements in the producer's order; None if views cannot express that."""
    aligned = _aligned(reader, view, producer.output, tensors[view.tensor])
    if aligned is None:
        return None
    output, views = aligned
    nodes = tuple(dict.fromkeys((*producer.nodes, *reader.nodes)))
    if reader.value == Argument(0) and tensors[output.tensor].element == tensors[view.tensor].element:
        return dataclasses.replace(producer, output=output, nodes=nodes)
    match producer:
        case Elementwise(value=first, operands=operands):
            value, known = _substituted(reader, view, views, first, operands, 0)
            # A copy is named after its user, everything else after the first operator.
            named = reader if first == Argument(0) else producer
            merged: Operator = Elementwise(named.name, named.op, nodes, output, value, known)
        case MatrixProduct(epilogue=epilogue) | ImageConvolution(epilogue=epilogue):
            before = epilogue or Epilogue(Argument(0))
            value, known = _substituted(reader, view, views, before.value, before.operands, 1)
            merged = dataclasses.replace(
                producer, nodes=nodes, output=output, epilogue=Epilogue(value, known)
            )
        case _:
            return None
    return merged if _small_enough(value, known) else None


def _aligned(
    reader: Elementwise, view: View, written: View, tensor: Tensor
) -> tuple[View, dict[View, View]] | None:
    """The reader's output and operands with the axes of the producer's output."""
    if repeats(view) or view.elements != written.elements:
        return None
    if same_places(view, written):
        return reader.output, {v: v for v in reader.operands}
    # Both cover the whole tensor: bring their axes to its order, then to the producer's.
    order, back = descending(view), descending(written)
    flat = transposed(written, back)
    if not (covers(transposed(view, order), tensor.shape) and covers(flat, tensor.shape)):
        return None
    places = tuple(back.index(axis) for axis in range(len(back)))
    moved: dict[View, View] = {}
    for other in (reader.output, *reader.operands):
        found = reshaped(transposed(other, order), flat.shape)
        if found is None:
            return None
        moved[other] = transposed(found, places)
    return moved[reader.output], moved


def _substituted(
    reader: Elementwise,
    view: View,
    moved: Mapping[View, View],
    first: Expression,
    operands: Sequence[View],
    shift: int,
) -> tuple[Expression, tuple[View, ...]]:
    """The reader's expression with the producer's substituted for the tensor between, and all operands."""
    known = list(operands)
    replacement: dict[int, Expression] = {}
    for index, operand in enumerate(reader.operands):
        if operand.tensor == view.tensor:
            replacement[index] = first
            continue
        found = moved[operand]
        if found not in known:
            known.append(found)
        replacement[index] = Argument(known.index(found) + shift)
    return substitute(reader.value, replacement), tuple(known)


def substitute(value: Expression, replacement: Mapping[int, Expression]) -> Expression:
    """An expression with its operands replaced by expressions; a table of a table becomes one."""
    known: dict[Expression, Expression] = {}

    def made(e: Expression) -> Expression:
        if isinstance(e, Argument):
            return replacement[e.index]
        if e not in known:
            found = changed(e, made)
            known[e] = _joined(found) if isinstance(found, Apply) else found
        return known[e]

    return made(value)


def _joined(value: Apply) -> Expression:
    """A requantised value minus its zero point, without adding it first; two limits as one."""
    match value:
        case Apply("max", (Apply("max", (inner, Number(one))), Number(other))):
            return apply("max", inner, max(one, other))
        case Apply("min", (Apply("min", (inner, Number(one))), Number(other))):
            return apply("min", inner, min(one, other))
        case Apply("sub", (Apply("max", (Apply("min", (sum_, Number(high))), Number(low))), Number(less))):
            match sum_:
                case Apply("add", (Apply("mul_shift_round_even") as scaled, Number(zero))) if low <= high:
                    # Scaled sums are far from the limits of 32 bits, so nothing wraps.
                    return clamped(apply("add", scaled, zero - less), low - less, high - less)
    return value


def _small_enough(value: Expression, operands: Sequence[View]) -> bool:
    if size(value) > MOST_SIZE:
        return False
    tables = {e.table for e in walk(value) if isinstance(e, Lookup)}
    few = operations(value) <= MOST_OPERATIONS and len(tables) <= MOST_TABLES
    return few and len(operands) <= MOST_OPERANDS


def _renamed(operators: list[Operator], network: Network) -> list[Operator]:
    """Removes copies of whole tensors: writers and readers of the copied tensor use the copy."""
    fixed = {*network.inputs, *network.outputs}
    for place in range(len(operators) - 1, -1, -1):
        copy = operators[place]
        if not (isinstance(copy, Elementwise) and copy.value == Argument(0)):
            continue
        source, target = network.tensors[copy.operands[0].tensor], network.tensors[copy.output.tensor]
        alone = sum(o.output.tensor == target.name for o in operators) == 1
        if (
            source.element != target.element
            or source.constant is not None
            or source.name in fixed
            or not covers(copy.operands[0], source.shape)
            or not covers(copy.output, target.shape)
            or not alone
        ):
            continue
        del operators[place]
        operators = [with_tensor(o, source.name, target.name) for o in operators]
    return operators


def with_tensor(operator: Operator, old: str, new: str) -> Operator:
    """The operator with one tensor replaced by another of the same layout."""
    return with_views(operator, lambda v: dataclasses.replace(v, tensor=new) if v.tensor == old else v)


def with_views(operator: Operator, change: Callable[[View], View]) -> Operator:
    """The operator with all its views changed."""

    def changed(item: object) -> object:
        if isinstance(item, View):
            return change(item)
        if isinstance(item, tuple):
            return tuple(changed(v) for v in item)
        if isinstance(item, Operator | Epilogue):
            fields: dict[str, Any] = {
                f.name: changed(getattr(item, f.name)) for f in dataclasses.fields(item)
            }
            return dataclasses.replace(item, **fields)
        return item

    made = changed(operator)
    assert isinstance(made, Operator)
    return made


def _pruned(network: Network, operators: Sequence[Operator]) -> Network:
    """Removes operators whose results are never read, and unused tensors."""
    wanted, kept = set(network.outputs), []
    for operator in reversed(operators):
        if operator.output.tensor in wanted:
            kept.append(operator)
            wanted.update(view.tensor for view in operator.inputs)
    wanted.update(network.inputs)
    tensors = {name: tensor for name, tensor in network.tensors.items() if name in wanted}
    return dataclasses.replace(network, tensors=tensors, operators=tuple(reversed(kept)))
