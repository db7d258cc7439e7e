"""Copies before and after operators that cannot read or write a view directly."""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from hw.config import MachineConfig
from sw.frontend.quantised import BYTES
from sw.graph.expression import Argument
from sw.graph.network import Elementwise, Epilogue, MatrixProduct, Network, Operator, Tensor, View, whole
from sw.graph.views import broadcast, transposed

#: Fewest elements that the array moves; fewest rows and columns that it transposes; most steps per result.
LEAST, _FEWEST, _MOST = 1024, 8, 64
#: Below this many results of the array per cycle, a copy is as fast.
_QUICKER = 4


class Copies:
    """The operators of a network so far, with the copies that they need."""

    def __init__(self, network: Network, config: MachineConfig) -> None:
        self.source, self.config = network, config
        self.tensors = dict(network.tensors)
        self.operators: list[Operator] = []
        self.identities: dict[tuple[int, int], Tensor] = {}
        self.uses: dict[str, list[tuple[Operator, View]]] = {}
        for operator in network.operators:
            for view in (*operator.inputs, operator.output):
                self.uses.setdefault(view.tensor, []).append((operator, view))

    def append(self, o: Operator, storable: bool) -> None:
        """Appends an operator, and a copy of its result if it cannot be stored in the output's layout."""
        if storable:
            self.operators.append(o)
            return
        held = self._tensor(f"{o.name}, result", o.output)
        self.operators.append(dataclasses.replace(o, output=whole(held)))
        self._moved(o, o.output, whole(held))

    def copy(self, o: Operator, view: View, what: str, matrices: bool = False) -> View:
        """Copies the elements of a view to a tensor of their own; repeated `matrices` are copied once."""
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
        known = (f"{o.name}, copy", "Copy", o.nodes)
        views = _transposition(target, source, self.most_steps)
        if self.config.cgra is None or views is None or self.tensors[source.tensor].element not in BYTES:
            self.operators.append(Elementwise(*known, target, Argument(0), (source,)))
            return
        output, a = views
        size = a.shape[-1]
        b = broadcast(whole(self.identity(size)), (*output.shape[:-2], size, size))
        self.operators.append(MatrixProduct(*known, output, a, b, epilogue=Epilogue(Argument(0)), moves=True))

    @property
    def most_steps(self) -> int:
        """Most steps of the array per result for which it moves elements faster than the CGRA."""
        return min(_MOST, self.config.macs_per_cycle // _QUICKER)

    def identity(self, size: int, times: int = 1) -> Tensor:
        """The identity matrix with every column repeated, once for all operators."""
        if (size, times) not in self.identities:
            name = f"identity {size}" + f", columns {times} times" * (times > 1)
            while name in self.tensors:
                name += "'"
            words = np.repeat(np.eye(size, dtype=np.int8), times, axis=1)
            self.identities[size, times] = self.tensors[name] = Tensor(name, words.shape, "int8", words)
        return self.identities[size, times]


def _transposition(target: View, source: View, most: int) -> tuple[View, View] | None:
    """A target and a source as C and A of a product with the identity, or None if a copy is as fast.

    A copy loads a column of the source element by element, the array loads a word at a time. Columns of the
    target are cut into groups of at most `most`, which is the number of steps per result.
    """
    axes = [i for i, n in enumerate(target.shape) if n > 1]
    columns = [i for i in axes if target.strides[i] == 1]
    rows = [i for i in axes if source.strides[i] == 1]
    strides = [v.strides[i] for v in (target, source) for i in axes]
    if math.prod(target.shape) < LEAST or len(columns) != 1 or len(rows) != 1 or min(strides) < 1:
        return None
    (column,), (row,) = columns, rows
    sizes = [n for n in range(_FEWEST, most + 1) if target.shape[column] % n == 0]
    if row == column or not sizes or target.shape[row] < _FEWEST:
        return None
    size, others = sizes[-1], [i for i in axes if i not in (row, column)]

    def split(view: View) -> View:
        order = (*others, column, row, column)
        shape = [target.shape[i] for i in order]
        steps = [view.strides[i] for i in order]
        shape[-3:] = target.shape[column] // size, target.shape[row], size
        steps[-3] *= size
        return View(view.tensor, tuple(shape), tuple(steps), view.offset)

    return split(target), split(source)


def rows_contiguous(view: View) -> bool:
    """Whether the last axis is contiguous."""
    return (view.shape[-1] == 1 or view.strides[-1] == 1) and min(view.strides) >= 0


def matrix_contiguous(view: View) -> bool:
    """Whether one of the last two axes is contiguous."""
    axes = range(len(view.shape) - 2)
    return rows_contiguous(view) or rows_contiguous(transposed(view, (*axes, -1, -2)))
