"""What operators ask of the views that they read and write: copies where one cannot be moved as it lies.

Products take operands that are contiguous along one axis; operators on rows and pools take contiguous rows,
and all of them leave such. Elementwise operators take and leave whatever there is: copies are such operators.
Patches can be loaded of images whose rows and channels lie multiples of the port's word apart. A tensor of
such images has padding behind its rows (`lines`), or, where that would be in somebody's way, a copy has.
Rows of matrices start at words of the ports, where nobody else minds (`layouts`).
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from hw.config import MachineConfig
from hw.errors import InputError
from sw.compile.images import joined, product_of
from sw.compile.matrices import merged_view
from sw.compile.memory import Lines
from sw.compile.refused import OperatorsError
from sw.graph.host import HostOperator
from sw.graph.network import ImageConvolution, MatrixProduct, Network, Operator, View
from sw.layout import round_up
from sw.operators.convolutions import lines, row_bytes
from sw.operators.copies import Copies
from sw.operators.registry import legalise


def legal(network: Network, config: MachineConfig) -> Network:
    """The network with copies where they are needed, and convolutions that are products as products."""
    copies = Copies(network, config)
    refused = []
    for operator in network.operators:
        try:
            legalise(operator, copies)
        except InputError as error:
            refused.append((operator, str(error)))
    if refused:
        raise OperatorsError(refused)
    copied = dataclasses.replace(network, tensors=copies.tensors, operators=tuple(copies.operators))
    padded = {n for n, own in lines(copied, config).items() if own.pitch != row_bytes(copied.tensors[n])}
    operators = tuple(
        (product_of(o, padded) or o) if isinstance(o, ImageConvolution) else o for o in copied.operators
    )
    return dataclasses.replace(copied, operators=operators)


def layouts(network: Network, config: MachineConfig) -> dict[str, Lines]:
    """Rows of tensors that are not dense: images that patches are loaded of, and matrices.

    Only inputs, constants and sums that products alone touch are laid out as matrices, and only where all
    products see the same rows.
    """
    found = lines(network, config)
    uses: dict[str, list[tuple[Operator, View]]] = {}
    for operator in network.operators:
        for view in (*operator.inputs, operator.output):
            uses.setdefault(view.tensor, []).append((operator, view))
    written = {o.output.tensor for o in network.operators if not stores_sums(o)}
    for name, own in uses.items():
        if name in found or name in written:
            continue
        rows = {_row(o, view) for o, view in own if not isinstance(o, HostOperator)}
        row = rows.pop() if len(rows) == 1 else None
        tensor = network.tensors[name]
        if row is None or tensor.elements % row:
            continue
        size = row * np.dtype(tensor.element).itemsize
        found[name] = Lines(round_up(size, max(_widths(own, config), default=1)), row=row)
    return found


def stores_sums(o: Operator) -> bool:
    """Whether the results of an operator are sums as the array leaves them."""
    return isinstance(o, MatrixProduct | ImageConvolution) and o.epilogue is None


def _row(o: Operator, view: View) -> int | None:
    """Elements that follow each other in the matrices of a view; None where it is no such thing."""
    if isinstance(o, MatrixProduct) and view in (o.a, o.b, o.output):
        matrix: View | None = merged_view(o, view)
    elif isinstance(o, ImageConvolution) and view == o.w:
        shape = (view.shape[0], math.prod(view.shape[1:]))
        matrix = View(view.tensor, shape, (view.strides[0], 1), view.offset)
    elif isinstance(o, ImageConvolution) and view == o.output:
        matrix = joined(view)
    else:
        matrix = None
    return _contiguous(matrix) if matrix is not None else None


def _contiguous(view: View) -> int | None:
    """Elements of the contiguous one of the last two axes, where all else moves by so many."""
    for axis in (-1, -2):
        row = view.shape[axis]
        others = [
            (n, s)
            for i, (n, s) in enumerate(zip(view.shape, view.strides, strict=True))
            if i != len(view.shape) + axis
        ]
        fits = view.strides[axis] == 1 or row == 1
        if fits and view.offset % row == 0 and all(n == 1 or s % row == 0 for n, s in others):
            return row
    return None


def _widths(uses: list[tuple[Operator, View]], config: MachineConfig) -> set[int]:
    """Bytes of a word of the ports that a tensor goes through."""
    found = set()
    for o, view in uses:
        if isinstance(o, MatrixProduct | ImageConvolution):
            left = o.a if isinstance(o, MatrixProduct) else o.w
            port = "store" if view == o.output else "load_a" if view == left else "load_b"
            found.add(config.port_bytes(port))
    return found
