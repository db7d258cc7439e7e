"""What operators ask of the views that they read and write: copies where one cannot be moved as it lies.

Products take operands that are contiguous along one axis; operators on rows and pools take contiguous rows,
and all of them leave such. Elementwise operators take and leave whatever there is: copies are such operators.
Patches can be loaded of images whose rows and channels lie multiples of the port's word apart. A tensor of
such images has padding behind its rows (`lines`), or, where that would be in somebody's way, a copy has.
"""

from __future__ import annotations

import dataclasses

from hw.config import MachineConfig
from sw.compile.images import product_of
from sw.graph.network import ImageConvolution, Network
from sw.operators.convolutions import lines, row_bytes
from sw.operators.copies import Copies
from sw.operators.registry import legalise


def legal(network: Network, config: MachineConfig) -> Network:
    """The network with copies where they are needed, and convolutions that are products as products."""
    copies = Copies(network, config)
    for operator in network.operators:
        legalise(operator, copies)
    copied = dataclasses.replace(network, tensors=copies.tensors, operators=tuple(copies.operators))
    padded = {n for n, own in lines(copied, config).items() if own.pitch != row_bytes(copied.tensors[n])}
    operators = tuple(
        (product_of(o, padded) or o) if isinstance(o, ImageConvolution) else o for o in copied.operators
    )
    return dataclasses.replace(copied, operators=operators)
