"""Models whose scales, zero points and shapes are inputs: these made constants, for values that are known."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from hw.errors import InputError
from sw.frontend.model import load
from sw.frontend.protos import typed


def bindings(proto: Any, inputs: Mapping[str, np.ndarray]) -> Iterator[tuple[Any, dict[str, np.ndarray]]]:
    """The model with more and more inputs made constants, and the inputs that are left.

    The compiler must know scales, zero points, shapes and the like, which models may take as inputs: first
    none is a constant, then all vectors and numbers, then all. If all are given, the first one stays.
    """
    import onnx

    held = {tensor.name for tensor in proto.graph.initializer}
    types = {value.name: typed(value, "model")[0] for value in proto.graph.input if value.name not in held}
    inputs = {name: np.asarray(value, types.get(name)) for name, value in inputs.items()}
    # In the model's order: files of inputs have another.
    names = [name for name in types if name in inputs][1 if inputs.keys() >= types.keys() else 0 :]
    tried: list[list[str]] = []
    for chosen in ([], [n for n in names if inputs[n].ndim <= 1], names):
        if chosen in tried:
            continue
        tried.append(chosen)
        bound = onnx.ModelProto()
        bound.CopyFrom(proto)
        kept = [value for value in bound.graph.input if value.name not in chosen]
        del bound.graph.input[:]
        bound.graph.input.extend(kept)
        bound.graph.initializer.extend(onnx.numpy_helper.from_array(inputs[n], n) for n in chosen)
        yield bound, {n: a for n, a in inputs.items() if n not in chosen}


def bound(
    proto: Any, given: Mapping[str, np.ndarray], seed: int, reads: Callable[[Any], object]
) -> tuple[Any, dict[str, np.ndarray]] | None:
    """A model with those inputs made constants that the compiler must know, and their values.

    If none is given, all are drawn from the seed. None where that does not help: `reads` raises `InputError`.
    """
    if not given:
        rng, given = np.random.default_rng(seed), {}
        for name, (dtype, shape) in load(proto).inputs.items():
            if dtype.kind not in "iu":
                return None
            limits = np.iinfo(dtype)
            given[name] = rng.integers(limits.min, limits.max, shape, dtype, endpoint=True)
    for made, left in bindings(proto, given):
        with contextlib.suppress(InputError):
            reads(made)
            return made, {name: np.asarray(array) for name, array in given.items() if name not in left}
    return None
