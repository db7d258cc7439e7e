"""Runs kernels with a number of iterations in addition to their scalars."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from sw.dfg import interpret
from sw.dfg.kernel import Kernel


def run(
    kernel: Kernel, arrays: Mapping[str, np.ndarray], scalars: Mapping[str, int], iterations: int
) -> interpret.Results:
    """What a kernel leaves; `iterations` is what the name in its outermost `range()` holds."""
    counted = {} if kernel.iterations is None else {kernel.iterations: iterations}
    return interpret.run(kernel, arrays, {**scalars, **counted})
