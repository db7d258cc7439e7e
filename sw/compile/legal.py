"""Legalisation: inserts a copy if an operator cannot read or write a view directly.

Products take operands that are contiguous along one axis. Operators on rows and pools take contiguous rows,
and all of these produce such results. Elementwise operators read and write any view; copies are elementwise
operators. Patches can be loaded from images whose rows and channels are multiples of a port's word apart. A
tensor of such images has padding after its rows (`lines`), or a copy of it has if another operator cannot
take padding. Rows of matrices start at words of the ports if no other operator objects (`layouts`).
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
    """The network with the copies that it needs, and with plain convolutions turned into products."""
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
    """The row layout of tensors that are not dense: images whose patches are loaded, and matrices.

    Only inputs, constants and sums that only products touch are laid out as matrices, and only if all of
    these products see the same rows.
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
    """Whether an operator's results are sums as the array leaves them."""
    return isinstance(o, MatrixProduct | ImageConvolution) and o.epilogue is None


def _row(o: Operator, view: View) -> int | None:
    """Number of contiguous elements in the matrices of a view; None if the view is not of that kind."""
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
    """Size of the contiguous one of the last two axes, if all other strides are multiples of it."""
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
    """Word sizes, in bytes, of the ports that access a tensor."""
    found = set()
    for o, view in uses:
        if isinstance(o, MatrixProduct | ImageConvolution):
            left = o.a if isinstance(o, MatrixProduct) else o.w
            port = "store" if view == o.output else "load_a" if view == left else "load_b"
            found.add(config.port_bytes(port))
    return found
