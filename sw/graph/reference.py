"""Evaluates a network with NumPy, and draws random inputs for it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from hw.errors import InputError
from sw.graph.host import HostOperator
from sw.graph.network import Network, Operator, Tensor


def run(
    network: Network, inputs: Mapping[str, np.ndarray], *, everything: bool = False
) -> dict[str, np.ndarray]:
    """Computes the outputs of a network, or with `everything` all its computed tensors, by name.

    Raises `InputError` for an input that is missing or unknown, or has another type or shape.
    """
    check_inputs(network, inputs)
    arrays = {**{n: t.constant for n, t in network.tensors.items() if t.constant is not None}, **inputs}
    for operator in network.operators:
        target = network.tensors[operator.output.tensor]
        if target.name not in arrays:
            arrays[target.name] = np.zeros(target.shape, target.element)
        operator.output.write(arrays[target.name], result_of(operator, network, arrays))
    return arrays if everything else {name: arrays[name] for name in network.outputs}


def result_of(operator: Operator, network: Network, arrays: Mapping[str, np.ndarray]) -> np.ndarray:
    """Computes the result of an operator. Raises `InputError` if the host's result has another type."""
    result = operator.reference([view.of(arrays[view.tensor]) for view in operator.inputs])
    element = network.tensors[operator.output.tensor].element
    if isinstance(operator, HostOperator) and str(result.dtype) != element:
        raise InputError(
            f"{operator.name} ({operator.op}): onnxruntime gives a result of {result.dtype} where the model "
            f"has {element}"
        )
    # The machine's words for float32 keep their bits.
    return result.view(np.float32) if element == "float32" and result.dtype == np.int32 else result


def check_inputs(network: Network, inputs: Mapping[str, np.ndarray]) -> None:
    """Raises `InputError` unless exactly the network's inputs are given, with their types and shapes."""
    for name, array in inputs.items():
        if name not in network.inputs:
            known = ", ".join(network.inputs) or "none"
            raise InputError(f"input {name!r} is not one of the model's inputs ({known})")
        tensor = network.tensors[name]
        if array.dtype != np.dtype(tensor.element) or array.shape != tensor.shape:
            raise InputError(
                f"input {name!r} must be {tensor.element} of shape {list(tensor.shape)}, "
                f"not {array.dtype} of {list(array.shape)}"
            )
        readers = (o.op for o in network.operators if any(v.tensor == name for v in o.inputs[:1]))
        check_numbers(name, array, readers)
    for name in network.inputs:
        if name not in inputs:
            raise InputError(f"input {name!r} is needed and was not given")


def check_numbers(name: str, array: np.ndarray, readers: Iterable[str]) -> None:
    """Raises `InputError` for an input with NaN that one of these operators quantises."""
    if array.dtype.kind != "f" or not any(op.endswith("QuantizeLinear") for op in readers):
        return
    for place in np.argwhere(np.isnan(array))[:1].tolist():
        raise InputError(f"input {name!r} must hold numbers, not NaN, as at {place}: it is quantised")


def random_inputs(network: Network, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Draws random inputs from `rng`: integers over the range of their type.

    32-bit integers are drawn from -2^15 to 2^15 - 1. Float32 is drawn over the range in `network.ranges`,
    which the first quantisation of the input covers, or over -1 to 1 if it is unknown.
    """
    return {name: _drawn(network.tensors[name], network.ranges.get(name), rng) for name in network.inputs}


def _drawn(tensor: Tensor, covered: tuple[float, float] | None, rng: np.random.Generator) -> np.ndarray:
    kind = np.dtype(tensor.element)
    if kind.kind == "b":
        return rng.integers(0, 2, tensor.shape).astype(np.bool_)
    if kind.kind in "iu":
        low, high = max(np.iinfo(kind).min, -(1 << 15)), min(np.iinfo(kind).max, (1 << 15) - 1)
        return rng.integers(low, high, tensor.shape, kind, endpoint=True)
    least, most = covered or (-1.0, 1.0)
    return rng.uniform(least, most, tensor.shape).astype(kind)
