"""Operators on rows computed some rows at a time, so that large tensors need little memory."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from sw.graph.network import RowOperator

Array = npt.NDArray[np.generic]
#: Elements of which a reference keeps arrays at a time.
_CHUNK = 1 << 20


def by_rows(operator: RowOperator, x: Array, result: str, compute: Callable[[Array], Array]) -> Array:
    """What `compute` makes of the rows of an array of the view's shape, in elements of type `result`."""
    columns = operator.columns
    rows = x.reshape(-1, columns)
    step = max(1, _CHUNK // columns)
    found = [compute(rows[i : i + step]) for i in range(0, len(rows), step)]
    return np.concatenate(found).reshape(x.shape) if found else x.astype(result)
