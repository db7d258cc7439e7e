"""Builds a network node by node: tensors, operators, and the value of each name in the model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from hw.errors import InputError
from sw.frontend.model import OnnxModel
from sw.frontend.node import OnnxNode, fresh
from sw.frontend.protos import first_line
from sw.frontend.refusal import Refusal
from sw.frontend.values import Constant, Dequantised, Stored, Value
from sw.graph.accuracy import Accuracy
from sw.graph.expression import Argument, Expression
from sw.graph.host import HostOperator
from sw.graph.network import ELEMENTS, WORDS, Elementwise, Operator, Tensor, View, whole
from sw.graph.views import broadcast, reshaped

#: Largest constant, in bytes, that is compared with existing ones.
_COMPARED_BYTES = 1 << 16


class Importer:
    """The network under construction."""

    def __init__(
        self,
        model: OnnxModel,
        allow_host: bool,
        hosted: Mapping[str, str] = MappingProxyType({}),
        limbs: int = 0,
    ):
        self.model, self.allow_host = model, allow_host
        #: Bytes of a fixed-point operand that products use; 0 without fixed point.
        self.limbs = limbs
        #: Why outputs of the model are not in fixed point, by output.
        self.unfit: dict[str, str] = {}
        #: Whether an error was too large, so that more bytes may help.
        self.imprecise = False
        #: The fixed-point forms of real numbers, and what is known of such tensors.
        self.points: dict[Any, Any] = {}
        self.accuracy: dict[str, Accuracy] = {}
        #: Nodes that the user leaves to the host, with the reason.
        self.wanted = hosted
        self.refusals: list[Refusal] = []
        #: Tensors computed by host nodes, and names that nothing can compute.
        self.of_host: set[str] = set()
        self.lost: set[str] = set()
        self.tensors: dict[str, Tensor] = {}
        self.operators: list[Operator] = []
        self.values: dict[str, Value] = {}
        self.producers: dict[str, OnnxNode] = {}
        self.hosted: dict[str, View] = {}
        self.ranges: dict[str, tuple[float, float]] = {}
        #: Float32 tensors that the host computes before the machine starts, or after it.
        self.edges: set[str] = set()
        #: Float32 results that are quantised at run time; None until computed.
        self.quantised_again: frozenset[str] | None = None
        #: By tensor, the value whose mean over some axes it has subtracted, and these axes.
        self.centred: dict[str, tuple[Dequantised, tuple[int, ...]]] = {}
        #: Outputs of the model whose name another tensor has, with their new names.
        self.taken: dict[str, str] = {}
        self._constants: dict[tuple[str, tuple[int, ...], bytes], str] = {}

    def refuse(self, node: OnnxNode, reason: str, place: str = "", *, lost: bool = False) -> None:
        """Records that the machine does not execute a node, or an output of the model (`place`)."""
        read = [self.values.get(name) for name in node.inputs]
        follows = any(isinstance(v, Stored) and v.view.tensor in self.of_host for v in read)
        reason = reason.removeprefix(f"{node.place}: ")
        place = place or node.place
        self.refusals.append(Refusal(place, node.name, node.op, reason, follows, lost, node.inputs))

    def fresh(self, hint: str) -> str:
        """A unique tensor name."""
        return fresh(hint, self.tensors)

    def tensor(self, hint: str, shape: Sequence[int], element: str) -> View:
        """Creates a tensor, named after `hint`, and returns its view."""
        made = Tensor(self.fresh(hint), tuple(int(s) for s in shape), element)
        self.tensors[made.name] = made
        return whole(made)

    def constant(self, array: np.ndarray, hint: str) -> View:
        """A tensor that holds an array; equal small ones are shared."""
        array = np.ascontiguousarray(array).reshape(array.shape)
        key = (str(array.dtype), array.shape, array.tobytes() if array.nbytes <= _COMPARED_BYTES else b"")
        if key[2] and key in self._constants:
            return whole(self.tensors[self._constants[key]])
        name = self.fresh(hint)
        self.tensors[name] = Tensor(name, array.shape, str(array.dtype), array)
        if key[2]:
            self._constants[key] = name
        return whole(self.tensors[name])

    def array(self, view: View) -> np.ndarray | None:
        """The elements of a view of a constant; None for computed values."""
        held = self.tensors[view.tensor].constant
        return None if held is None else view.of(held)

    def movable(self, view: View) -> bool:
        """Whether the machine can move the elements of a tensor.

        These have 8 or 32 bits. The host keeps float32 and bool of its own, and with a host also inputs.
        """
        element, held = (self.tensors[view.tensor].element, self.tensors[view.tensor].constant is not None)
        writers = [o for o in self.operators if o.output.tensor == view.tensor]
        hosted = any(isinstance(o, HostOperator) for o in writers) or (self.allow_host and not writers)
        return element in ELEMENTS or (element in WORDS and (held or not hosted))

    def check_movable(self, node: OnnxNode, view: View) -> None:
        """Raises `InputError` for a tensor whose elements the machine cannot move."""
        if not self.movable(view):
            element = self.tensors[view.tensor].element
            here = " of the host" if element in WORDS else ""
            raise node.error(f"elements of {element}{here} must be moved, which the machine cannot do")

    def value(self, node: OnnxNode, index: int) -> Value:
        """The value of a node's input; raises `InputError` if it is missing."""
        name = node.optional(index)
        if not name:
            raise node.error(f"input {index} is needed")
        found = self.values.get(name)
        if found is None:
            held = self.model.constants.get(name)
            if held is None:
                raise node.error(f"input {name!r} is not known")
            found = self.values[name] = Constant(held)
        return found

    def fixed(self, node: OnnxNode, index: int, what: str) -> np.ndarray | None:
        """The elements of an input that must be a constant; None if it is missing."""
        if not node.optional(index):
            return None
        value = self.value(node, index)
        if not isinstance(value, Constant):
            raise node.error(f"{what} must be a constant, {node.inputs[index]!r} is computed")
        return value.array

    def stored(self, node: OnnxNode, index: int, elements: Sequence[str] = ELEMENTS) -> Stored:
        """An input as an integer tensor of one of these types."""
        value = self.value(node, index)
        if isinstance(value, Constant):
            value = Stored(self.constant(value.array, node.inputs[index]), str(value.array.dtype))
        if not isinstance(value, Stored) or value.element not in elements:
            found = value.element if isinstance(value, Stored) else "real numbers"
            raise node.error(f"{node.inputs[index]!r} must be {' or '.join(elements)}, not {found}")
        return value

    def elementwise(
        self,
        node: OnnxNode,
        value: Expression,
        operands: Sequence[View],
        shape: Sequence[int],
        element: str,
        hint: str = "",
    ) -> Stored:
        """Appends an elementwise operator and returns its result, by default named after the node's.

        Operands broadcast to `shape`.
        """
        output = self.tensor(hint or node.outputs[0], shape, element)
        self.write(node, output, value, [broadcast(view, output.shape) for view in operands])
        return Stored(output, element)

    def write(self, node: OnnxNode, output: View, value: Expression, operands: Sequence[View] = ()) -> None:
        """Appends an elementwise operator that writes to an existing view."""
        operator = Elementwise(node.name, node.op, (node.name,), output, value, tuple(operands))
        self.operators.append(operator)

    def copy(self, node: OnnxNode, view: View, output: View) -> View:
        """Copies elements to another view, and returns it."""
        self.write(node, output, Argument(0), [view])
        return output

    def reshaped(self, node: OnnxNode, view: View, shape: Sequence[int]) -> View:
        """The same elements in another shape, copied if strides cannot express it."""
        found = reshaped(view, shape)
        if found is not None:
            return found
        again = reshaped(self.dense(node, view), shape)
        assert again is not None
        return again

    def dense(self, node: OnnxNode, view: View) -> View:
        """The elements of a view in a tensor of their own."""
        element = self.tensors[view.tensor].element
        held = self.array(view)
        # Only the model's integers have its names; tensors that represent real numbers have others.
        plain = isinstance(self.values.get(node.inputs[0]), Stored) if node.inputs else True
        hint = node.outputs[0] if plain else f"{node.outputs[0]}.whole"
        if held is not None:
            return self.constant(held, hint)
        self.check_movable(node, view)
        return self.copy(node, view, self.tensor(hint, view.shape, element))


Handler = Callable[[Importer, OnnxNode], Value | Sequence[Value]]


def attempt(handler: Handler, importer: Importer, node: OnnxNode) -> list[Value]:
    """Runs a handler on a node, and undoes what it appended if it fails."""
    operators = len(importer.operators)
    try:
        found = handler(importer, node)
    except (ValueError, ArithmeticError) as error:
        del importer.operators[operators:]
        if isinstance(error, InputError):
            raise
        # NumPy and views: shapes that do not broadcast or cannot be reshaped, invalid numbers
        raise node.error(first_line(error)) from None
    return list(found) if isinstance(found, Sequence) else [found]
