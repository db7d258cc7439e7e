"""Copies before and after operators that cannot read or write a view directly."""

from __future__ import annotations

import dataclasses

import numpy as np

from hw.config import MachineConfig
from sw.graph.expression import Argument
from sw.graph.network import Elementwise, Network, Operator, Tensor, View, whole
from sw.graph.views import broadcast, transposed


class Copies:
    """The operators of a network so far, with the copies that they need."""

    def __init__(self, network: Network, config: MachineConfig) -> None:
        self.source, self.config = network, config
        self.tensors = dict(network.tensors)
        self.operators: list[Operator] = []
        self.uses: dict[str, list[tuple[Operator, View]]] = {}
        for operator in network.operators:
            for view in (*operator.inputs, operator.output):
                self.uses.setdefault(view.tensor, []).append((operator, view))

    def append(self, o: Operator, storable: bool) -> None:
        """Append an operator, and a copy of its result if it cannot be stored in the output's layout."""
        if storable:
            self.operators.append(o)
            return
        held = self._tensor(f"{o.name}, result", o.output)
        self.operators.append(dataclasses.replace(o, output=whole(held)))
        self._moved(o, o.output, whole(held))

    def copy(self, o: Operator, view: View, what: str, matrices: bool = False) -> View:
        """Copy the elements of a view to a tensor of their own; repeated `matrices` are copied once."""
        shape = view.shape
        if matrices:
            batch = tuple(n if s else 1 for n, s in zip(shape[:-2], view.strides[:-2], strict=True))
            view = dataclasses.replace(view, shape=(*batch, *shape[-2:]))
        constant = self.source.tensors[view.tensor].constant
        tensor = self._tensor(f"{o.name}, {what}", view)
        if constant is not None:
            tensor = dataclasses.replace(tensor, constant=np.ascontiguousarray(view.of(constant)))
            self.tensors[tensor.name] = tensor
        else:
            self._moved(o, whole(tensor), view)
        return broadcast(whole(tensor), shape)

    def _tensor(self, name: str, view: View) -> Tensor:
        while name in self.tensors:
            name += "'"
        tensor = Tensor(name, view.shape, self.source.tensors[view.tensor].element)
        self.tensors[name] = tensor
        return tensor

    def _moved(self, o: Operator, target: View, source: View) -> None:
        self.operators.append(Elementwise(f"{o.name}, copy", "Copy", o.nodes, target, Argument(0), (source,)))


def rows_contiguous(view: View) -> bool:
    """Whether the last axis is contiguous."""
    return (view.shape[-1] == 1 or view.strides[-1] == 1) and min(view.strides) >= 0


def matrix_contiguous(view: View) -> bool:
    """Whether one of the last two axes is contiguous."""
    axes = range(len(view.shape) - 2)
    return rows_contiguous(view) or rows_contiguous(transposed(view, (*axes, -1, -2)))
