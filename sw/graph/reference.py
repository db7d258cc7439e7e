"""What a network computes, by NumPy: the definition of every operator, bit for bit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from hw.errors import InputError
from sw.convolution import Convolution
from sw.graph import layernorm, pool, softmax
from sw.graph.expression import evaluate
from sw.graph.host import HostOperator
from sw.graph.layernorm import LayerNormalisation
from sw.graph.network import (
    Elementwise,
    Epilogue,
    ImageConvolution,
    MatrixProduct,
    Network,
    Operator,
    Tensor,
)
from sw.graph.pool import Pool
from sw.graph.softmax import Softmax


def run(
    network: Network, inputs: Mapping[str, np.ndarray], *, everything: bool = False
) -> dict[str, np.ndarray]:
    """The outputs of a network, or with `everything` all its tensors that are computed, by name.

    Raises `InputError` for inputs that are missing, unknown or of another type or shape.
    """
    check_inputs(network, inputs)
    arrays = {**{n: t.constant for n, t in network.tensors.items() if t.constant is not None}, **inputs}
    last = _last_reads(network)
    for number, operator in enumerate(network.operators):
        target = operator.output.tensor
        if target not in arrays:
            tensor = network.tensors[target]
            arrays[target] = np.zeros(tensor.shape, tensor.element)
        result = value(operator, [view.of(arrays[view.tensor]) for view in operator.inputs])
        operator.output.write(arrays[target], result)
        for name in () if everything else last.get(number, ()):
            del arrays[name]
    wanted = [n for n in arrays if everything or n in network.outputs]
    return {name: arrays[name] for name in (wanted if everything else network.outputs)}


def _last_reads(network: Network) -> dict[int, list[str]]:
    """Tensors that no later operator touches, by the number of the operator behind which they can go."""
    last: dict[str, int] = {}
    for number, operator in enumerate(network.operators):
        for view in (*operator.inputs, operator.output):
            last[view.tensor] = number
    found: dict[int, list[str]] = {}
    for name, number in last.items():
        if name not in network.outputs and network.tensors[name].constant is None:
            found.setdefault(number, []).append(name)
    return found


def check_inputs(network: Network, inputs: Mapping[str, np.ndarray]) -> None:
    """Raise `InputError` unless exactly the network's inputs are there, with their types and shapes."""
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
    for name in network.inputs:
        if name not in inputs:
            raise InputError(f"input {name!r} is needed and was not given")


def value(operator: Operator, arrays: Sequence[np.ndarray]) -> np.ndarray:
    """The result of one operator for arrays of its `inputs`, of the shape of its output view."""
    match operator:
        case MatrixProduct():
            total = product(arrays[0], arrays[1], operator.zero_a, operator.zero_b)
            return _finished(total, operator.epilogue, arrays[2:])
        case ImageConvolution():
            total = convolution(operator, arrays[0], arrays[1])
            return _finished(total, operator.epilogue, arrays[2:])
        case Elementwise():
            return np.broadcast_to(evaluate(operator.value, arrays), operator.output.shape)
        case Softmax():
            return softmax.reference(operator, arrays[0])
        case LayerNormalisation():
            return layernorm.reference(operator, arrays[0])
        case Pool():
            return pool.reference(operator, arrays[0])
        case HostOperator():
            return operator.compute(*arrays)
    raise InputError(f"{operator.name}: operator {operator.op} has no definition")


def product(a: np.ndarray, b: np.ndarray, zero_a: int, zero_b: int) -> np.ndarray:
    """Sums of products, int32, that wrap at 32 bits as the machine's do.

    Computed in float64, which is exact here: no sum reaches 2^53 for depths below 1.3e11.
    """
    total = np.matmul(a.astype(np.float64) - zero_a, b.astype(np.float64) - zero_b)
    exact: np.ndarray = total.astype(np.int64).astype(np.int32)
    return exact


def convolution(operator: ImageConvolution, x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """Sums of a convolution, int32, images [n, channels, rows, columns]."""
    problem = Convolution(
        x.shape[0],
        x.shape[1],
        operator.rows,
        operator.cols,
        w.shape[0],
        str(w.dtype),
        str(x.dtype),
        operator.zero_w,
        operator.zero_x,
        operator.groups,
    )
    return problem.reference(w, x)


def _finished(total: np.ndarray, epilogue: Epilogue | None, operands: Sequence[np.ndarray]) -> np.ndarray:
    if epilogue is None:
        return total
    return np.broadcast_to(evaluate(epilogue.value, [total, *operands]), total.shape)


def random_inputs(network: Network, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Inputs, the same for the same state of `rng`: whole numbers over the range of their type.

    Numbers of 32 bits are drawn from -2^15 to 2^15 - 1; float32 over the range that `network.ranges` names,
    which is what the first quantisation of an input covers, -1 to 1 where nothing is known.
    """
    return {name: _drawn(network.tensors[name], network.ranges.get(name), rng) for name in network.inputs}


def _drawn(tensor: Tensor, covered: tuple[float, float] | None, rng: np.random.Generator) -> np.ndarray:
    kind = np.dtype(tensor.element)
    if kind.kind == "b":
        return rng.integers(0, 2, tensor.shape).astype(np.bool_)
    if kind.kind in "iu":
        wide = kind.itemsize > 1
        low, high = (-(1 << 15), (1 << 15) - 1) if wide else (np.iinfo(kind).min, np.iinfo(kind).max)
        return rng.integers(max(low, int(np.iinfo(kind).min)), high, tensor.shape, kind, endpoint=True)
    least, most = covered or (-1.0, 1.0)
    return rng.uniform(least, most, tensor.shape).astype(kind)
