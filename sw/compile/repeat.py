"""Turns repeated operators, such as the steps of a recurrent network, into a loop of the tile program.

`stacked` puts the tensors of successive steps into one tensor, so the addresses in a step are those of
the first step plus a multiple of the step number. `repeats` then finds the operators to emit once.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sw.graph.fuse import with_views
from sw.graph.host import HostOperator
from sw.graph.network import Epilogue, Network, Operator, Tensor, View

#: Fewest steps of a loop, and most operators of a step.
LEAST_STEPS, MOST_OPERATORS = 3, 512
#: Fields in which the operators of steps may differ.
_NAMES = ("name", "op", "nodes")
Tensors = Mapping[str, Tensor]


@dataclass(frozen=True)
class Repeated:
    """Operators that are executed `count` times; `moves` is each tensor's stride per step, in elements."""

    body: tuple[Operator, ...]
    count: int
    moves: Mapping[str, int]

    @property
    def name(self) -> str:
        """The name of the last of them."""
        return self.body[-1].name

    @property
    def op(self) -> str:
        """The number of repetitions, as text."""
        return f"{self.count} steps"

    @property
    def nodes(self) -> tuple[str, ...]:
        """The model's nodes that they compute."""
        return tuple(dict.fromkeys(name for o in self.body for name in o.nodes))

    @property
    def output(self) -> View:
        """The results of the last operator in all steps, with an axis for the steps."""
        return self._all_steps(self.body[-1].output)

    @property
    def inputs(self) -> tuple[View, ...]:
        """All other views, including those of results."""
        return tuple(self._all_steps(view) for o in self.body for view in views(o))

    def _all_steps(self, view: View) -> View:
        move = self.moves.get(view.tensor, 0)
        return dataclasses.replace(view, shape=(self.count, *view.shape), strides=(move, *view.strides))


def repeats(operators: Sequence[Operator], tensors: Tensors) -> tuple[Operator | Repeated, ...]:
    """The operators; those that repeat at constant distances become `Repeated`."""
    made: list[Operator | Repeated] = []
    done = 0
    for run in _runs(operators, tensors):
        # The first step may read, and the last one write, tensors that the others do not.
        for first, left_out in ((0, 0), (1, 0), (0, 1), (1, 1)):
            steps = run.steps(operators)[first : run.count - left_out]
            if len(steps) < LEAST_STEPS:
                break
            moves = _moves([[v for o in step for v in views(o)] for step in steps], tensors)
            if moves is not None:
                start = run.start + first * run.period
                made += [*operators[done:start], Repeated(tuple(steps[0]), len(steps), moves)]
                done = start + len(steps) * run.period
                break
    return (*made, *operators[done:])


def stacked(network: Network) -> Network:
    """The network with the results of repeated operators in tensors with an axis for the steps.

    Tensors that the host or the model's outputs use by name stay as they are.
    """
    operators, tensors = list(network.operators), dict(network.tensors)
    fixed = {*network.inputs, *network.outputs}
    fixed |= {v.tensor for o in operators if isinstance(o, HostOperator) for v in views(o)}
    places: dict[str, tuple[str, int]] = {}
    for run in _runs(operators, tensors):
        # The last result is often an output.
        for left_out in (0, 1):
            steps = run.steps(operators)[: run.count - left_out]
            families = _families(steps, tensors, fixed) if len(steps) >= LEAST_STEPS else None
            if families is not None:
                for family in families:
                    name = f"{family[0]}.steps"
                    while name in tensors:
                        name += "'"
                    first = tensors[family[0]]
                    tensors[name] = Tensor(name, (len(family), *first.shape), first.element)
                    places |= {old: (name, t * first.elements) for t, old in enumerate(family)}
                break

    def placed(view: View) -> View:
        if view.tensor not in places:
            return view
        name, start = places[view.tensor]
        return dataclasses.replace(view, tensor=name, offset=start + view.offset)

    if not places:
        return network
    left = {name: tensor for name, tensor in tensors.items() if name not in places}
    return dataclasses.replace(
        network, tensors=left, operators=tuple(with_views(o, placed) for o in operators)
    )


def views(operator: Operator) -> tuple[View, ...]:
    """All views that an operator reads, and the one that it writes."""
    return (*operator.inputs, operator.output)


@dataclass(frozen=True)
class _Run:
    """`count` times `period` operators that are equal except for names and addresses of tensors."""

    start: int
    period: int
    count: int

    def steps(self, operators: Sequence[Operator]) -> list[Sequence[Operator]]:
        """The operators of each step."""
        starts = range(self.start, self.start + self.count * self.period, self.period)
        return [operators[at : at + self.period] for at in starts]


def _runs(operators: Sequence[Operator], tensors: Tensors) -> list[_Run]:
    """Runs that do not overlap, in order; those that save the most operators are chosen first."""
    known: dict[Any, int] = {}
    forms = np.array([known.setdefault(_form(o, tensors), len(known)) for o in operators])
    found = sorted(_candidates(forms), key=lambda r: (-(r.count - 1) * r.period, r.period, r.start))
    taken = np.zeros(len(operators), bool)
    chosen = []
    for run in found:
        span = slice(run.start, run.start + run.count * run.period)
        if not taken[span].any():
            taken[span] = True
            chosen.append(run)
    return sorted(chosen, key=lambda run: run.start)


def _candidates(forms: np.ndarray) -> Iterator[_Run]:
    """The longest runs of every period."""
    for period in range(1, min(MOST_OPERATORS, len(forms) // LEAST_STEPS) + 1):
        same = np.concatenate(([False], forms[:-period] == forms[period:], [False]))
        edges = np.flatnonzero(same[1:] != same[:-1])
        for start, stop in zip(edges[::2], edges[1::2], strict=True):
            count = int(stop - start) // period + 1
            if count >= LEAST_STEPS:
                yield _Run(int(start), period, count)


def _form(item: Any, tensors: Tensors) -> Any:
    """The parts that repeated operators must share: all except names and addresses of computed tensors."""
    if isinstance(item, View):
        tensor = tensors[item.tensor]
        place = (tensor.element,) if tensor.constant is None else (item.tensor, item.offset)
        return item.shape, item.strides, place
    if isinstance(item, HostOperator):
        return id(item)
    if isinstance(item, Operator | Epilogue):
        fields = [f.name for f in dataclasses.fields(item) if f.name not in _NAMES]
        return type(item), tuple(_form(getattr(item, name), tensors) for name in fields)
    if isinstance(item, tuple):
        return tuple(_form(x, tensors) for x in item)
    return (str(item.dtype), item.shape, item.tobytes()) if isinstance(item, np.ndarray) else item


def _moves(steps: Sequence[Sequence[View]], tensors: Tensors) -> dict[str, int] | None:
    """Each tensor's stride per step, in elements; None if the steps differ in that."""
    moves: dict[str, int] = {}
    for seen in zip(*steps, strict=True):
        first = seen[0]
        move = seen[1].offset - first.offset
        held = tensors[first.tensor].constant is not None
        for t, view in enumerate(seen):
            if view.tensor != first.tensor or view.offset != first.offset + t * move:
                return None
        if moves.setdefault(first.tensor, move) != move or (held and move):
            return None
    return moves


def _families(
    steps: Sequence[Sequence[Operator]], tensors: Tensors, fixed: set[str]
) -> list[tuple[str, ...]] | None:
    """The tensors of one step, each with its counterparts in other steps; None without a loop."""
    seen = [[v for o in step for v in views(o)] for step in steps]
    rows = [tuple(view.tensor for view in row) for row in zip(*seen, strict=True)]
    outputs = [tuple(o.output.tensor for o in row) for row in zip(*steps, strict=True)]
    families = list(dict.fromkeys(row for row in outputs if len(set(row)) > 1))
    at = {name: (number, t) for number, family in enumerate(families) for t, name in enumerate(family)}
    if len(at) != sum(map(len, families)) or not fixed.isdisjoint(at):
        return None
    for family in families:
        if len({(tensors[n].shape, tensors[n].element) for n in family}) > 1:
            return None
    before: dict[int, str] = {}
    for row in rows:
        # The first step may read a tensor that existed before all steps.
        later = {(at[n][0], t - at[n][1]) if n in at else n for t, n in enumerate(row) if t}
        if len(later) > 1:
            return None
        if row[0] not in at and row[1] in at:
            before.setdefault(at[row[1]][0], row[0])
    for number, name in before.items():
        tensor, first = tensors[name], tensors[families[number][0]]
        alike = (tensor.shape, tensor.element, tensor.constant) == (first.shape, first.element, None)
        if alike and name not in fixed and list(before.values()).count(name) == 1:
            families[number] = (name, *families[number])
    return families
