"""What operators ask of the views that they read and write: copies where one cannot be moved as it lies.

Products take operands that are contiguous along one axis; operators on rows and pools take contiguous rows,
and all of them leave such. Elementwise operators take and leave whatever there is: copies are such operators.
Patches can be loaded of images whose rows and channels lie multiples of the port's word apart. A tensor of
such images has padding behind its rows (`lines`), or, where that would be in somebody's way, a copy has.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from hw.config import MachineConfig
from sw.compile.images import follows_of, joined, plain, product_of, spread
from sw.compile.memory import Lines
from sw.compile.pools import oriented
from sw.compile.writer import row_compatible
from sw.graph.expression import Operand
from sw.graph.host import HostOperator
from sw.graph.layernorm import LayerNormalisation
from sw.graph.network import (
    Elementwise,
    Epilogue,
    ImageConvolution,
    MatrixProduct,
    Network,
    Operator,
    Tensor,
    View,
    dense,
    whole,
)
from sw.graph.pool import Pool
from sw.graph.softmax import Softmax
from sw.graph.views import broadcast, transposed
from sw.kernels.pool import way
from sw.layout import round_up


def legal(network: Network, config: MachineConfig) -> Network:
    """The network with copies where they are needed, and convolutions that are products as products."""
    copied = _Copies(network, config).network()
    padded = {name for name, own in lines(copied, config).items() if own.pitch != _row(copied.tensors[name])}
    operators = tuple(
        (product_of(o, padded) or o) if isinstance(o, ImageConvolution) else o for o in copied.operators
    )
    return dataclasses.replace(copied, operators=operators)


def lines(network: Network, config: MachineConfig) -> dict[str, Lines]:
    """How the rows lie of images that patches are loaded of: what is not aligned has padding behind rows.

    The padding of a convolution before a row falls into the same word of the port, which saves a beat.
    """
    found: dict[str, Lines] = {}
    width = config.load_b_bytes
    for o in network.operators:
        if isinstance(o, ImageConvolution) and not plain(o):
            tensor = network.tensors[o.x.tensor]
            row = _row(tensor)
            known = found.get(tensor.name, Lines(row))
            pitch = max(known.pitch, row if _aligned(o.x, config) else round_up(row, width))
            found[tensor.name] = Lines(pitch, max(known.start, o.cols.before % width))
    return found


def _row(tensor: Tensor) -> int:
    """Bytes of a row."""
    return tensor.shape[-1] * np.dtype(tensor.element).itemsize


def _aligned(view: View, config: MachineConfig) -> bool:
    """Whether patches can be loaded of images in a tensor without padding."""
    _, row, channel = spread(view)
    whole_rows = row == 0 or channel % row == 0
    return row % config.load_b_bytes == 0 and channel % config.load_b_bytes == 0 and whole_rows


class _Copies:
    """The operators of a network one by one, with copies before and behind them."""

    def __init__(self, network: Network, config: MachineConfig) -> None:
        self.source, self.config = network, config
        self.tensors = dict(network.tensors)
        self.operators: list[Operator] = []
        self.uses: dict[str, list[tuple[Operator, View]]] = {}
        for operator in network.operators:
            for view in (*operator.inputs, operator.output):
                self.uses.setdefault(view.tensor, []).append((operator, view))

    def network(self) -> Network:
        """All of it."""
        for operator in self.source.operators:
            match operator:
                case ImageConvolution():
                    self._convolution(operator)
                case MatrixProduct():
                    a = operator.a if _line(operator.a) else self._copy(operator, operator.a, "A")
                    b = operator.b if _line(operator.b) else self._copy(operator, operator.b, "B")
                    self._appended(dataclasses.replace(operator, a=a, b=b), _rows(operator.output))
                case Softmax() | LayerNormalisation():
                    self._from_rows(operator, _rows(operator.x), _rows(operator.output))
                case Pool() if way(operator) == "rows":
                    self._from_rows(operator, _one_row(operator.x), _successive(operator.output))
                case Pool():
                    views = oriented(operator)
                    self._from_rows(operator, _rows(views.x), _rows(views.output))
                case _:
                    self.operators.append(operator)
        return dataclasses.replace(self.source, tensors=self.tensors, operators=tuple(self.operators))

    def _convolution(self, o: ImageConvolution) -> None:
        x = o.x if plain(o) or self._loadable(o.x) else self._copy(o, o.x, "images")
        w = o.w if _contiguous(o.w) else self._copy(o, o.w, "weights")
        made = dataclasses.replace(o, x=x, w=w)
        if o.epilogue is not None:
            operands = tuple(
                v if self._operand(v) else self._copy(o, v, f"operand {i + 1}")
                for i, v in enumerate(o.epilogue.operands)
            )
            made = dataclasses.replace(made, epilogue=Epilogue(o.epilogue.value, operands))
        self._appended(made, self._result(o.output))

    def _from_rows(self, o: Softmax | LayerNormalisation | Pool, loadable: bool, storable: bool) -> None:
        """An operator with one operand."""
        x = o.x if loadable else self._copy(o, o.x, "operand")
        self._appended(dataclasses.replace(o, x=x), storable)

    def _appended(self, o: Operator, storable: bool) -> None:
        """An operator, and a copy of its result where it cannot be stored as the output lies."""
        if storable:
            self.operators.append(o)
            return
        held = self._tensor(f"{o.name}, result", o.output)
        self.operators.append(dataclasses.replace(o, output=whole(held)))
        self._moved(o, o.output, whole(held))

    def _loadable(self, view: View) -> bool:
        """Whether patches can be loaded of a view, padding behind the rows of its tensor given."""
        if view.strides[3] != 1 and view.shape[3] > 1:
            return False
        if _aligned(view, self.config):
            return True
        tensor = self.source.tensors[view.tensor]
        rows, row, channel = tensor.shape[-1], *spread(view)[1:]
        if row % rows or channel % rows or (row and channel % row):
            return False
        return self._pads(view.tensor)

    def _pads(self, name: str) -> bool:
        """Whether all who touch a tensor can do with padding behind its rows."""
        row = self.source.tensors[name].shape[-1]
        return all(_pads(o, view, row) for o, view in self.uses[name])

    def _operand(self, view: View) -> bool:
        """Whether tiles of an operand of an epilogue can be loaded."""
        return follows_of(view) is not None

    def _result(self, view: View) -> bool:
        """Whether tiles of a result can be stored."""
        flat = joined(view)
        return flat is not None and (flat.strides[-1] == 1 or flat.shape[-1] == 1)

    def _copy(self, o: Operator, view: View, what: str) -> View:
        """The elements of a view in a tensor of their own; products have repeated matrices once."""
        shape = view.shape
        if isinstance(o, MatrixProduct):
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
        self.operators.append(Elementwise(f"{o.name}, copy", "Copy", o.nodes, target, Operand(0), (source,)))


def _pads(operator: Operator, view: View, row: int) -> bool:
    """Whether an operator can do with padding behind the rows of a tensor that it sees so."""
    match operator:
        case HostOperator():
            return True
        case ImageConvolution():
            # Operands of an epilogue: only whole images are loaded segment by segment.
            images = view in (operator.x, operator.output)
            return row_compatible(view, row) and (images or follows_of(view) == "full")
        case Elementwise():
            return (row > 1 or view.shape[-1] == 1) and row_compatible(view, row)
        case MatrixProduct():
            # Rows of one element would be taken for neighbours.
            return row > 1 and row_compatible(view, row)
        case _:
            return False


def _rows(view: View) -> bool:
    """Whether the last axis is contiguous."""
    return (view.shape[-1] == 1 or view.strides[-1] == 1) and min(view.strides) >= 0


def _line(view: View) -> bool:
    """Whether one of the last two axes is contiguous."""
    return _rows(view) or _rows(transposed(view, (*range(len(view.shape) - 2), -1, -2)))


def _one_row(view: View) -> bool:
    """Whether the pixels of an image are contiguous."""
    flat = joined(view)
    return flat is not None and _rows(flat)


def _successive(view: View) -> bool:
    """Whether results of one pixel follow each other along the last axis of images and channels."""
    axes = [a for a in (0, 1) if view.shape[a] > 1]
    return min(view.strides) >= 0 and (not axes or view.strides[axes[-1]] == 1)


def _contiguous(view: View) -> bool:
    """Whether the weights of every output channel follow each other, and so do output channels."""
    return all(
        own == wanted or size == 1
        for size, own, wanted in zip(view.shape, view.strides, dense(view.shape), strict=True)
    )
