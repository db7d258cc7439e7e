"""Binds inputs that hold scales, zero points or shapes to known values, as constants."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from hw.errors import InputError
from sw.frontend.model import load
from sw.frontend.protos import typed
from sw.frontend.sizes import check_sizes
from sw.graph.reference import check_numbers

#: Shape and type of an input; a size may be the name of a symbolic dimension.
Typed = tuple[tuple[int | str, ...], np.dtype[Any]]


def bindings(proto: Any, inputs: Mapping[str, np.ndarray]) -> Iterator[tuple[Any, dict[str, np.ndarray]]]:
    """Yields the model with more and more inputs bound to constants, and the remaining inputs.

    The compiler must know scales, zero points, shapes and the like, which models may take as inputs. First no
    input is a constant, then all vectors and numbers, then all. If all are given, the first form stays as it
    is. Raises `InputError` for values that an input does not accept.
    """
    import onnx

    types = _types(proto, "model")
    inputs = {name: as_typed(name, value, types.get(name)) for name, value in inputs.items()}
    # In the model's order, since files of inputs may have another.
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


def check_inputs(proto: Any, inputs: Mapping[str, np.ndarray], place: str, *, whole: bool = False) -> None:
    """Raises `InputError` for an unknown input, a wrong shape, or values that do not fit.

    With `whole`, all inputs must be present and have their types. `place` names a model with open sizes.
    """
    check_sizes(proto, place)
    types = _types(proto, place)
    for name, value in ((name, np.asarray(value)) for name, value in inputs.items()):
        if name not in types:
            raise InputError(
                f"input {name!r} is not one of the model's inputs ({', '.join(types) or 'none'})"
            )
        shape, dtype = types[name]
        if value.shape != shape or (whole and value.dtype != dtype):
            found = f"{value.dtype} of {list(value.shape)}"
            raise InputError(f"input {name!r} must be {dtype} of shape {list(shape)}, not {found}")
        as_typed(name, value, types[name])
        check_numbers(name, value, (str(n.op_type) for n in proto.graph.node if name in n.input[:1]))
    if whole and (missing := [name for name in types if name not in inputs]):
        raise InputError(f"input {missing[0]!r} is needed and was not given")


def _types(proto: Any, place: str) -> dict[str, tuple[tuple[int, ...], np.dtype[Any]]]:
    held = {tensor.name for tensor in proto.graph.initializer}
    return {v.name: typed(v, place)[::-1] for v in proto.graph.input if v.name not in held}


def as_typed(name: str, value: Any, wanted: Typed | None) -> np.ndarray:
    """An array converted to the required type if its values fit; floats are rounded."""
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise InputError(f"input {name!r} must be an array: {error}") from None
    if wanted is not None and array.dtype == wanted[1]:
        return array
    if array.dtype.kind not in "biuf":
        raise InputError(f"input {name!r} must hold numbers, not {array.dtype}")
    if wanted is None:
        return array
    if array.shape != wanted[0] and all(isinstance(size, int) for size in wanted[0]):
        return array  # the consumer's error says what both should be
    with np.errstate(all="ignore"):
        made = array.astype(wanted[1])
    if {array.dtype.kind, made.dtype.kind} != {"f"} and not np.array_equal(made, array):
        raise InputError(f"input {name!r} must be {wanted[1]}; its values do not fit")
    return made


def bound(
    proto: Any, given: Mapping[str, np.ndarray], seed: int, reads: Callable[[Any], object]
) -> tuple[Any, dict[str, np.ndarray]] | None:
    """Binds the inputs that the compiler must know to constants, and returns the model and their values.

    If none is given, all are drawn from the seed. Returns None if that does not help: `reads` raises
    `InputError`. Raises `InputError` for values that an input does not accept, and what `reads` raises for
    given constants.
    """
    try:
        inputs = load(proto).inputs
    except InputError:
        return None
    failed = None
    known = bool(given)
    if not given:
        rng, given = np.random.default_rng(seed), {}
        for name, (dtype, shape) in inputs.items():
            if dtype.kind not in "iu":
                return None
            limits = np.iinfo(dtype)
            given[name] = rng.integers(limits.min, limits.max, shape, dtype, endpoint=True)
    arrays: dict[str, np.ndarray] = {}
    for made, left in bindings(proto, given):
        arrays = arrays or left  # in the first round, all are left
        try:
            reads(made)
            return made, {name: array for name, array in arrays.items() if name not in left}
        except InputError as error:
            if known and failed is None and len(left) < len(arrays):
                failed = error
    if failed is not None:
        raise failed
    return None
