"""A network: integer tensors, and operators in execution order.

Every operator reads tensors through views and writes one tensor through a view, so reshapes, transposes
and slices cost nothing. `Operator.reference` defines an operator's semantics. Operators that take part in
fusion are here, the others in `sw.operators`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from hw.errors import InputError
from sw.convolution import Convolution
from sw.graph.accuracy import Accuracy
from sw.graph.expression import Expression, evaluate
from sw.patches import Axis

#: Element types with which the machine computes.
ELEMENTS = ("int8", "uint8", "int32")
#: Types that the machine moves bit for bit, with the word type used for each.
WORDS = {"float32": "int32", "uint32": "int32", "bool": "uint8"}


def word(element: str) -> str:
    """The type under which the machine handles an element type."""
    return WORDS.get(element, element)


@dataclass(frozen=True)
class Tensor:
    """A tensor: `element` is the NumPy name of its type; `constant` holds its elements if the model does.

    Types in neither `ELEMENTS` nor `WORDS` occur only between host operators.
    """

    name: str
    shape: tuple[int, ...]
    element: str
    constant: np.ndarray | None = field(default=None, compare=False, repr=False)

    @property
    def elements(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)


@dataclass(frozen=True)
class View:
    """A tensor as an array of another shape: element [i, j, ...] is element `offset + i*strides[0] + ...`.

    Elements of the tensor are numbered in row-major order. A stride of 0 repeats an axis.
    """

    tensor: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int = 0

    @property
    def elements(self) -> int:
        """Number of elements, with repeated ones counted each time."""
        return math.prod(self.shape)

    @property
    def reach(self) -> tuple[int, int]:
        """The smallest and largest element number."""
        ends = [(count - 1) * stride for count, stride in zip(self.shape, self.strides, strict=True)]
        return self.offset + sum(e for e in ends if e < 0), self.offset + sum(e for e in ends if e > 0)

    @property
    def numbers(self) -> np.ndarray:
        """Element numbers in the tensor."""
        found = np.asarray(self.offset)
        for size, stride in zip(self.shape, self.strides, strict=True):
            found = found[..., None] + stride * np.arange(size)
        return found

    def of(self, array: np.ndarray) -> np.ndarray:
        """Applies the view to an array that holds the tensor (read only)."""
        flat = np.ascontiguousarray(array).reshape(-1)[self.offset :]
        size = flat.itemsize
        found: np.ndarray = np.lib.stride_tricks.as_strided(
            flat, self.shape, tuple(s * size for s in self.strides), writeable=False
        )
        return found

    def write(self, array: np.ndarray, values: np.ndarray) -> None:
        """Writes values through the view to a contiguous array of the tensor; words keep their bits."""
        flat = array.reshape(-1)[self.offset :]
        if values.dtype == np.int32 and flat.dtype == np.float32:
            values = values.view(np.float32)
        strides = tuple(s * flat.itemsize for s in self.strides)
        np.lib.stride_tricks.as_strided(flat, self.shape, strides)[...] = values


def dense(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Row-major strides."""
    return tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))


def whole(tensor: Tensor) -> View:
    """The view of a whole tensor."""
    return View(tensor.name, tensor.shape, dense(tensor.shape))


@dataclass(frozen=True)
class Operator(ABC):
    """Common part of all operators: name, the model's operator and nodes, and the result.

    `output.strides` must not repeat an element.
    """

    name: str
    op: str
    nodes: tuple[str, ...]
    output: View

    @property
    @abstractmethod
    def inputs(self) -> tuple[View, ...]:
        """All views it reads."""

    @abstractmethod
    def reference(self, arrays: Sequence[np.ndarray]) -> np.ndarray:
        """Computes the exact result for arrays of the `inputs`, in the output's shape."""


@dataclass(frozen=True)
class Epilogue:
    """Function applied to each sum of a product before it is stored.

    In `value`, operand 0 is the sum, int32; operand i + 1 is `operands[i]`, a view of the output's shape.
    """

    value: Expression
    operands: tuple[View, ...] = ()


@dataclass(frozen=True)
class MatrixProduct(Operator):
    """C[..., m, n] = epilogue(sum over k of (A[..., m, k] - zero_a) (B[..., k, n] - zero_b)).

    A and B have the batch axes of the output; broadcast axes have a stride of 0. Elements of A
    and B are int8 or uint8. Without epilogue the output is int32. `moves` says that the product only moves
    elements of A: its multiply-accumulates are no work of the model.
    """

    a: View
    b: View
    zero_a: int = 0
    zero_b: int = 0
    epilogue: Epilogue | None = None
    moves: bool = False

    @property
    def inputs(self) -> tuple[View, ...]:
        """Both operands, then those of the epilogue."""
        return (self.a, self.b, *(self.epilogue.operands if self.epilogue else ()))

    def reference(self, arrays: Sequence[np.ndarray]) -> np.ndarray:
        """Sums that wrap at 32 bits, as on the machine, through the epilogue.

        Computed in float64, which is exact here: no sum reaches 2^53 for depths below 1.3e11.
        """
        a, b, *operands = arrays
        total = np.matmul(a.astype(np.float64) - self.zero_a, b.astype(np.float64) - self.zero_b)
        return _finished(total.astype(np.int64).astype(np.int32), self.epilogue, operands)


@dataclass(frozen=True)
class ImageConvolution(Operator):
    """Y[n, o, r, c] = epilogue(sum of (W[o, i, kr, kc] - zero_w) (X[n, g*I + i, y, x] - zero_x)).

    X is [images, channels, rows, columns], W is [output channels, channels / groups, kernel rows, kernel
    columns]; pixels outside the image count as `zero_x`. The output has four axes.
    """

    x: View
    w: View
    rows: Axis
    cols: Axis
    groups: int = 1
    zero_x: int = 0
    zero_w: int = 0
    epilogue: Epilogue | None = None

    @property
    def inputs(self) -> tuple[View, ...]:
        """Images and weights, then the operands of the epilogue."""
        return (self.x, self.w, *(self.epilogue.operands if self.epilogue else ()))

    def reference(self, arrays: Sequence[np.ndarray]) -> np.ndarray:
        """Sums, int32, through the epilogue."""
        x, w, *operands = arrays
        problem = Convolution(
            *(x.shape[0], x.shape[1], self.rows, self.cols, w.shape[0], str(w.dtype), str(x.dtype)),
            *(self.zero_w, self.zero_x, self.groups),
        )
        return _finished(problem.reference(w, x), self.epilogue, operands)


def _finished(total: np.ndarray, epilogue: Epilogue | None, operands: Sequence[np.ndarray]) -> np.ndarray:
    if epilogue is None:
        return total
    return np.broadcast_to(evaluate(epilogue.value, [total, *operands]), total.shape)


@dataclass(frozen=True)
class Elementwise(Operator):
    """Every element of the output is `value` of the elements of the operands, views of the output's shape."""

    value: Expression
    operands: tuple[View, ...]

    @property
    def inputs(self) -> tuple[View, ...]:
        """The operands."""
        return self.operands

    def reference(self, arrays: Sequence[np.ndarray]) -> np.ndarray:
        """The value for every element."""
        return np.broadcast_to(evaluate(self.value, arrays), self.output.shape)


@dataclass(frozen=True)
class Network:
    """Operators in order, tensors by name, inputs and outputs.

    `inputs` and `outputs` are tensor names, in the model's order. `ranges` holds the range (smallest and
    largest number) covered by the first quantisation of a float input. `accuracy` holds the accuracy of
    fixed-point tensors, and of what is quantised from them.
    """

    name: str
    tensors: Mapping[str, Tensor]
    operators: tuple[Operator, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    accuracy: Mapping[str, Accuracy] = field(default_factory=dict)

    def __post_init__(self) -> None:
        given = {*self.inputs, *(n for n, t in self.tensors.items() if t.constant is not None)}
        known = set(given)
        for operator in self.operators:
            for view in operator.inputs:
                if view.tensor not in known:
                    raise InputError(f"{operator.name}: {view.tensor!r} is read before it is written")
                self._inside(operator, view)
            target = operator.output.tensor
            if target in given:
                raise InputError(f"{operator.name}: {target!r} is given, so no operator may write it")
            self._inside(operator, operator.output)
            known.add(target)
        for name in self.outputs:
            if name not in known:
                raise InputError(f"output {name!r} is written by no operator")

    def _inside(self, operator: Operator, view: View) -> None:
        """Checks that a view stays inside its tensor."""
        if view.elements == 0:
            raise InputError(f"{operator.name}: a view of {view.tensor!r} has no elements")
        low, high = view.reach
        elements = self.tensors[view.tensor].elements
        if low < 0 or high >= elements:
            raise InputError(
                f"{operator.name}: a view of {view.tensor!r} reaches from {low} to {high}, "
                f"the tensor has {elements} elements"
            )
