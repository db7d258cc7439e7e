"""One session: compile a source for a machine, predict its cycles, run it on the RTL, and compare.

A source is a model (a path, bytes or `onnx.ModelProto`), a problem of `jacquard.problems`, or a tile program.
Whatever it is, `compile` gives a `Model`, and that a `Prediction` or a run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy.typing as npt

#: One array, arrays in the order of the inputs, or by name; None: random.
Inputs = npt.ArrayLike | Sequence[npt.ArrayLike] | Mapping[str, npt.ArrayLike] | None
Silent = Callable[[str], None]
