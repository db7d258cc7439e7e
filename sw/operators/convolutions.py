"""Convolutions: which images patches can be loaded of, and what they become on the machine."""

from __future__ import annotations

import dataclasses

import numpy as np

from hw.config import MachineConfig
from sw.compile.convolutions import convolution_part
from sw.compile.images import follows_of, joined, plain, spread
from sw.compile.memory import Lines
from sw.compile.writer import row_compatible
from sw.graph.network import Epilogue, ImageConvolution, Network, Tensor, View, dense
from sw.layout import round_up
from sw.operators.copies import Copies
from sw.operators.registry import LoweredOperator, LoweringContext, legalise, lower, takes_padding


def lines(network: Network, config: MachineConfig) -> dict[str, Lines]:
    """How the rows lie of images that patches are loaded of: what is not aligned has padding behind rows.

    The padding of a convolution before a row falls into the same word of the port, which saves a beat.
    """
    found: dict[str, Lines] = {}
    width = config.load_b_bytes
    for o in network.operators:
        if isinstance(o, ImageConvolution) and not plain(o):
            tensor = network.tensors[o.x.tensor]
            row = row_bytes(tensor)
            known = found.get(tensor.name, Lines(row))
            pitch = max(known.pitch, row if _aligned(o.x, config) else round_up(row, width))
            found[tensor.name] = Lines(pitch, max(known.start, o.cols.before % width))
    return found


def row_bytes(tensor: Tensor) -> int:
    """Bytes of a row."""
    return tensor.shape[-1] * np.dtype(tensor.element).itemsize


def _aligned(view: View, config: MachineConfig) -> bool:
    """Whether patches can be loaded of images in a tensor without padding."""
    _, row, channel = spread(view)
    whole_rows = row == 0 or channel % row == 0
    return row % config.load_b_bytes == 0 and channel % config.load_b_bytes == 0 and whole_rows


@legalise.register
def _(o: ImageConvolution, copies: Copies) -> None:
    x = o.x if plain(o) or _loadable(o.x, copies) else copies.copy(o, o.x, "images")
    w = o.w if _contiguous(o.w) else copies.copy(o, o.w, "weights")
    made = dataclasses.replace(o, x=x, w=w)
    if o.epilogue is not None:
        operands = tuple(
            v if follows_of(v) is not None else copies.copy(o, v, f"operand {i + 1}")
            for i, v in enumerate(o.epilogue.operands)
        )
        made = dataclasses.replace(made, epilogue=Epilogue(o.epilogue.value, operands))
    flat = joined(o.output)
    copies.append(made, flat is not None and (flat.strides[-1] == 1 or flat.shape[-1] == 1))


def _loadable(view: View, copies: Copies) -> bool:
    """Whether patches can be loaded of a view, padding behind the rows of its tensor given."""
    if view.strides[3] != 1 and view.shape[3] > 1:
        return False
    if _aligned(view, copies.config):
        return True
    rows, row, channel = copies.source.tensors[view.tensor].shape[-1], *spread(view)[1:]
    if row % rows or channel % rows or (row and channel % row):
        return False
    return all(takes_padding(o, other, rows) for o, other in copies.uses[view.tensor])


@takes_padding.register
def _(operator: ImageConvolution, view: View, row: int) -> bool:
    # Operands of an epilogue: only whole images are loaded segment by segment.
    images = view in (operator.x, operator.output)
    return row_compatible(view, row) and (images or follows_of(view) == "full")


def _contiguous(view: View) -> bool:
    """Whether the weights of every output channel follow each other, and so do output channels."""
    return all(
        own == wanted or size == 1
        for size, own, wanted in zip(view.shape, view.strides, dense(view.shape), strict=True)
    )


@lower.register
def _(operator: ImageConvolution, context: LoweringContext) -> LoweredOperator:
    return convolution_part(operator, context.homes, context.config, context.room)
