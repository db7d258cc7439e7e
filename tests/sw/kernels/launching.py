"""The effect of a kernel's launch on the bytes of the spaces, by the meaning of its graph."""

from __future__ import annotations

from collections.abc import Mapping, MutableSequence
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from sw.dfg.interpret import run_graph
from sw.kernels.configuration import graph_of
from sw.kernels.kernel import GridKernel


class _Elements(MutableSequence[int]):
    """A space from a byte on, as elements of one type."""

    def __init__(self, space: npt.NDArray[np.uint8], element: str, offset: int):
        size = np.dtype(element).itemsize
        self.held: npt.NDArray[Any] = space[offset : len(space) - (len(space) - offset) % size].view(element)

    def __len__(self) -> int:
        return len(self.held)

    @overload
    def __getitem__(self, index: int) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> MutableSequence[int]: ...
    def __getitem__(self, index: Any) -> Any:
        return self.held[index].tolist()

    def __setitem__(self, index: Any, value: Any) -> None:
        # A store keeps the lowest bytes.
        self.held[index] = np.array(value).astype(self.held.dtype)

    def __delitem__(self, index: Any) -> None:
        raise TypeError("elements of a space cannot be deleted")

    def insert(self, index: int, value: int) -> None:
        """Spaces keep their size."""
        raise TypeError("elements of a space cannot be inserted")


def launch(
    kernel: GridKernel,
    spaces: Mapping[str, npt.NDArray[np.uint8]],
    scalars: Mapping[str, int],
    iterations: int,
) -> None:
    """Run a kernel on the bytes of the spaces `acc`, `scratch` and `out`, which change.

    Raises `InputError` for an access outside of its space.
    """
    arrays = {s.name: _Elements(spaces[s.space], s.element, s.offset) for s in kernel.streams}
    run_graph(graph_of(kernel), arrays, scalars, iterations)
