"""Epilogues from Python functions: how each sum of a product is finished before it is stored.

    def requantise(acc, bias, scale: Scalar, residual: Tile):
        return min(max(mul_shift_round_even(acc + bias, scale, 24) + residual, -128), 127)

The first parameter is the sum, int32. Each of the others is an operand; its annotation says how it follows
the elements of the result. The text is read by `ast`, never executed. It is the body of one iteration of a
loop of the CGRA (docs/dfg.md): arithmetic of 32 bits, `if`, `min`, `max`, tables, loops with constant bounds.
"""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from hw.errors import InputError
from sw.dfg.body import Body
from sw.dfg.syntax import KernelText
from sw.dfg.text import FunctionText
from sw.dfg.values import Values
from sw.graph.expression import Apply, Argument, Expression, Lookup, Number
from sw.graph.network import ELEMENTS, Epilogue, ImageConvolution, MatrixProduct, Network, Tensor, View, dense
from sw.ir.syntax import is_docstring, source
from sw.kernels.access import Follows

#: Annotations of parameters: how the operand follows the elements of the result, and its default type.
KINDS: dict[str, tuple[Follows, str]] = {
    "Column": ("column", "int32"),
    "Row": ("row", "int32"),
    "Scalar": ("scalar", "int32"),
    "Tile": ("full", "int8"),
}


@dataclass(frozen=True)
class EpilogueOperand:
    """An operand of an epilogue: its name, how it follows the result, and its element type."""

    name: str
    follows: Follows
    element: str


@dataclass(frozen=True)
class EpilogueFunction:
    """A function of one sum: argument 0 of `value` is the sum, argument i + 1 is operand i."""

    name: str
    value: Expression
    operands: tuple[EpilogueOperand, ...]


def read_epilogue(text: FunctionText) -> EpilogueFunction:
    """Reads a function as an epilogue; raises `InputError` with file, line and column."""
    function, where = text.function, text.where
    if not text.parameters:
        raise where.error(function, "no parameter", "the sum as the first parameter")
    first, *others = text.parameters
    operands = tuple(_operand(where, p) for p in others)
    statements = [s for s in function.body if not is_docstring(s)]
    last = statements[-1] if statements else function
    if not isinstance(last, ast.Return) or last.value is None or isinstance(last.value, ast.Tuple):
        raise where.error(last, source(last), "`return` of one value as the last statement")
    names = [first.arg, *(o.name for o in operands)]
    body = Body(where, (), {n: n for n in names}, {})
    body.statements(statements[:-1])
    result = body.expr(last.value)
    arguments = {name: Argument(number) for number, name in enumerate(names)}
    value = _Reader(body.values, arguments, body.tables).expression(result)
    return EpilogueFunction(function.name, value, operands)


def _operand(where: KernelText, parameter: ast.arg) -> EpilogueOperand:
    """An operand by its annotation: `Scalar`, `Tile["uint8"]`, `hd.Row[np.int8]`; without one, a column."""
    hint, element = parameter.annotation, None
    if isinstance(hint, ast.Subscript):
        inner, hint = hint.slice, hint.value
        element = inner.value if isinstance(inner, ast.Constant) else _last_name(inner)
    name = "Column" if hint is None else _last_name(hint)
    if name not in KINDS or element not in (None, *ELEMENTS):
        expected = f"{', '.join(KINDS)}, or one of them with a type such as Tile[{'|'.join(ELEMENTS)}]"
        assert parameter.annotation is not None
        raise where.unexpected(parameter.annotation, expected)
    follows, default = KINDS[name]
    return EpilogueOperand(parameter.arg, follows, element or default)


def _last_name(node: ast.expr) -> str | None:
    """`name` of `name` or of `module.name`."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return None


@dataclass
class _Reader:
    """Turns the values of a function body into expressions."""

    values: Values
    arguments: Mapping[str, Expression]
    tables: Mapping[str, tuple[int, ...]]

    def __post_init__(self) -> None:
        self._known: dict[int, Expression] = {}

    def expression(self, value: int) -> Expression:
        """The expression of a value, with operands before their users."""
        waiting = [value]
        while waiting:
            item = self.values.items[waiting[-1]]
            needed = [*item.args, *(item.guard[:1] if item.guard else ())]
            missing = [v for v in needed if v not in self._known]
            if not missing:
                self._known[waiting[-1]] = self._made(waiting[-1])
                waiting.pop()
            waiting += missing
        return self._known[value]

    def _made(self, value: int) -> Expression:
        item = self.values.items[value]
        args = tuple(self._known[a] for a in item.args)
        if item.op == "table":
            assert item.memory is not None
            (index,) = args
            if item.guard is not None:
                # The result of an unused look-up does not matter, so any index will do.
                condition, negated = self._known[item.guard[0]], item.guard[1]
                both: tuple[Expression, Expression] = (Number(0), index) if negated else (index, Number(0))
                index = Apply("select", (condition, *both))
            return Lookup(self.tables[item.memory], index)
        if item.op == "const":
            held = item.immediate
            return Number(held) if isinstance(held, int) else self.arguments[str(held)]
        return Apply(item.op, args)


def with_epilogue(
    network: Network,
    function: EpilogueFunction,
    out: str = "int8",
    constants: Mapping[str, np.ndarray] = MappingProxyType({}),
) -> Network:
    """A network of one product whose sums pass through a function and are stored as `out`.

    Operands that are not in `constants` become inputs of the network, after those of the product. Raises
    `InputError` for an unknown type, and for constants of other types and shapes.
    """
    if out not in ELEMENTS:
        raise InputError(f"out must be one of {', '.join(ELEMENTS)}, not {out!r}")
    if odd := constants.keys() - {o.name for o in function.operands}:
        known = ", ".join(o.name for o in function.operands) or "none"
        raise InputError(f"{function.name} has no operand {min(odd)!r}; it has {known}")
    (operator,) = network.operators
    assert isinstance(operator, MatrixProduct | ImageConvolution)
    tensors = dict(network.tensors)
    views, inputs = [], list(network.inputs)
    for operand in function.operands:
        if operand.name in tensors:
            raise InputError(
                f"{function.name}: {operand.name!r} is a tensor of the product, name the operand otherwise"
            )
        shape, view = _view(function, operand, operator)
        constant = constants.get(operand.name)
        if constant is None:
            inputs.append(operand.name)
        else:
            constant = _fitting(operand, np.asarray(constant), shape)
        tensors[operand.name] = Tensor(operand.name, shape, operand.element, constant)
        views.append(view)
    (result,) = network.outputs
    tensors[result] = dataclasses.replace(tensors[result], element=out)
    made = dataclasses.replace(operator, epilogue=Epilogue(function.value, tuple(views)))
    return dataclasses.replace(network, tensors=tensors, operators=(made,), inputs=tuple(inputs))


def _view(
    function: EpilogueFunction, operand: EpilogueOperand, operator: MatrixProduct | ImageConvolution
) -> tuple[tuple[int, ...], View]:
    """The shape of an operand's tensor, and its view with the shape of the result."""
    whole = operator.output.shape
    image = isinstance(operator, ImageConvolution)
    if operand.follows == "row" and image:
        raise InputError(f"{function.name}: {operand.name} is a Row, which a convolution does not have")
    if operand.follows == "full":
        return whole, View(operand.name, whole, dense(whole))
    # Output channels of a convolution correspond to the columns of a product.
    axis = {"scalar": None, "row": len(whole) - 2, "column": 1 if image else len(whole) - 1}[operand.follows]
    strides = tuple(int(a == axis) for a in range(len(whole)))
    return () if axis is None else (whole[axis],), View(operand.name, whole, strides)


def _fitting(operand: EpilogueOperand, array: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """A constant in the operand's type; raises `InputError` if its shape or a number does not fit."""
    limits = np.iinfo(operand.element)
    if (
        array.shape != shape
        or array.dtype.kind not in "iub"
        or (array.size and not limits.min <= array.min() <= array.max() <= limits.max)
    ):
        raise InputError(
            f"{operand.name} must be {operand.element} of shape {list(shape)}, "
            f"not {array.dtype} of {list(array.shape)}"
        )
    return array.astype(operand.element)
