"""Single-operator problems: a GEMM or a convolution, with or without an epilogue."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from hw.errors import InputError, whole_number
from sw.convolution import Convolution
from sw.dfg.text import FunctionText
from sw.frontend.epilogue import EpilogueFunction, read_epilogue, with_epilogue
from sw.graph.network import ELEMENTS, Network
from sw.graph.problems import network_of
from sw.patches import Axis
from sw.problem import Product

#: The files of a problem in a compiled directory.
SHAPE, FUNCTION, CONSTANTS = "problem.json", "epilogue.py", "constants.npz"


@dataclass(frozen=True)
class EpilogueSource:
    """The function of an epilogue, and an equivalent self-contained text."""

    function: EpilogueFunction
    text: str

    @classmethod
    def read(cls, text: FunctionText) -> EpilogueSource:
        """Read an epilogue; raises `InputError` with file, line and column if it is not one."""
        return cls(read_epilogue(text), text.standalone())


def epilogue(function: Callable[..., Any]) -> EpilogueSource:
    """Decorator: turn a function into an epilogue, which computes each stored element from a sum.

    The first parameter is the sum, int32. The others are operands: one value per output column by default, or
    as annotated with `Row`, `Scalar` or `Tile` (one per element). The source text is compiled; the function
    is never called. Raises `InputError` with file, line and column.
    """
    return EpilogueSource.read(FunctionText.from_function(function))


@dataclass(frozen=True)
class Problem:
    """One operator to compile, `shape`, with an optional epilogue; without one, its result is int32.

    `constants` maps operands of the epilogue to values; its other operands are inputs.
    """

    shape: Product | Convolution
    epilogue: EpilogueSource | None = None
    out: str = "int32"
    constants: Mapping[str, np.ndarray] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.network()

    @property
    def title(self) -> str:
        """Its name in results."""
        return str(self)

    def __str__(self) -> str:
        return str(self.shape) if self.epilogue is None else f"{self.shape}, {self.epilogue.function.name}"

    def network(self) -> Network:
        """The graph of the operator; raises `InputError` for operands that do not fit."""
        made = network_of(self.shape)
        if self.epilogue is None:
            return made
        return with_epilogue(made, self.epilogue.function, self.out, self.constants)

    def read(
        self, inputs: Mapping[str, np.ndarray] | None, seed: int
    ) -> tuple[Problem, Network, Mapping[str, np.ndarray]]:
        """The graph; no input has to be known to the compiler."""
        return self, self.network(), {}

    def named(self) -> AbstractContextManager[None]:
        """Does nothing: a problem has no name to add to errors."""
        return contextlib.nullcontext()

    def files(self) -> dict[str, bytes]:
        """The problem as files of a compiled directory."""
        kind = "conv" if isinstance(self.shape, Convolution) else "matmul"
        told: dict[str, Any] = {kind: asdict(self.shape), "out": self.out}
        found: dict[str, bytes] = {}
        if self.epilogue is not None:
            told["epilogue"] = self.epilogue.function.name
            found[FUNCTION] = self.epilogue.text.encode()
        if self.constants:
            data = io.BytesIO()
            np.savez(data, **self.constants)  # type: ignore[arg-type]
            found[CONSTANTS] = data.getvalue()
        return {SHAPE: (json.dumps(told, indent=2) + "\n").encode(), **found}


def from_files(files: Mapping[str, bytes]) -> Problem:
    """Read a problem that `Problem.files` wrote; raises `InputError` if the files are not one."""
    try:
        told = json.loads(files[SHAPE])
        shape = _convolution(told["conv"]) if "conv" in told else Product(**_tuples(told["matmul"]))
        source = None
        if "epilogue" in told:
            text = FunctionText.from_text(files[FUNCTION].decode(), told["epilogue"], FUNCTION)
            source = EpilogueSource.read(text)
        constants = {}
        if CONSTANTS in files:
            with np.load(io.BytesIO(files[CONSTANTS]), allow_pickle=False) as arrays:
                constants = dict(arrays)
        return Problem(shape, source, told["out"], constants)
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"{SHAPE}: is not a problem of this version: {error}") from None


def _convolution(values: Mapping[str, Any]) -> Convolution:
    axes = {name: Axis(**values[name]) for name in ("rows", "cols")}
    return Convolution(**{**values, **axes})


def _tuples(values: Mapping[str, Any]) -> dict[str, Any]:
    return {k: tuple(v) if isinstance(v, list) else v for k, v in values.items()}


def matmul(
    m: int,
    k: int,
    n: int,
    *,
    epilogue: EpilogueSource | Callable[..., Any] | None = None,
    out: npt.DTypeLike = "int8",
    batch: Sequence[int] = (),
    type_a: npt.DTypeLike = "int8",
    type_b: npt.DTypeLike = "int8",
    zero_a: int = 0,
    zero_b: int = 0,
    transposed_a: bool = False,
    transposed_b: bool = False,
    **constants: npt.ArrayLike,
) -> Problem:
    """A GEMM of int8 or uint8 elements: A [m, k] times B [k, n].

    Without an epilogue the result is int32. With one, its type is `out` (int8, uint8 or int32), to which
    values wrap as in a NumPy cast. `constants` are operands of the epilogue by name. Transposed operands are
    stored as [k, m] and [n, k]; `batch` holds leading axes. Raises `InputError` for an invalid argument.
    """
    if not isinstance(batch, Sequence):
        raise InputError(f"batch must be a sequence of whole numbers, not {batch!r}")
    axes = tuple(whole_number("batch", size, 1) for size in batch)
    m, k, n = (whole_number(name, size, 1) for name, size in (("m", m), ("k", k), ("n", n)))
    zeros = whole_number("zero_a", zero_a), whole_number("zero_b", zero_b)
    shape = Product(
        m, k, n, _element(type_a), _element(type_b), *zeros, transposed_a, transposed_b, axes, axes
    )
    return _problem(shape, epilogue, out, constants)


def conv(
    images: int,
    channels: int,
    rows: int,
    cols: int,
    out_channels: int,
    kernel_rows: int,
    kernel_cols: int,
    *,
    epilogue: EpilogueSource | Callable[..., Any] | None = None,
    out: npt.DTypeLike = "int8",
    stride: int | tuple[int, int] = 1,
    pad: int | tuple[int, int] | tuple[int, int, int, int] = 0,
    dilation: int | tuple[int, int] = 1,
    groups: int = 1,
    type_a: npt.DTypeLike = "int8",
    type_b: npt.DTypeLike = "int8",
    zero_a: int = 0,
    zero_b: int = 0,
    **constants: npt.ArrayLike,
) -> Problem:
    """A convolution of images B with weights A.

    A is [out_channels, channels / groups, kernel_rows, kernel_cols], B [images, channels, rows, cols].
    `stride`, `pad` and `dilation` are one number, or one each for rows and columns; `pad` may also be (top,
    left, bottom, right), as in ONNX. By default, operands of the epilogue have one value per output channel.
    Everything else is as for `matmul`.
    """
    strides, dilations = _pair("stride", stride), _pair("dilation", dilation)
    four = isinstance(pad, Sequence) and len(pad) == 4
    pads = _whole("pad", *pad) if four and isinstance(pad, Sequence) else _pair("pad", pad) * 2
    images, channels, out_channels, groups = _whole(
        "a size of a convolution", images, channels, out_channels, groups
    )
    sizes = _whole("a size of a convolution", rows, cols)
    kernels = _whole("a size of the kernel", kernel_rows, kernel_cols)
    down, across = (
        Axis(sizes[i], kernels[i], strides[i], pads[i], pads[i + 2], dilations[i]) for i in range(2)
    )
    zero_a, zero_b = _whole("a zero point", zero_a, zero_b)
    kinds = (_element(type_a), _element(type_b), zero_a, zero_b)
    shape = Convolution(images, channels, down, across, out_channels, *kinds, groups)
    return _problem(shape, epilogue, out, constants)


def _pair(name: str, value: int | Sequence[int]) -> tuple[int, ...]:
    found = tuple(value) if isinstance(value, Sequence) else (value, value)
    if len(found) != 2:
        raise InputError(f"{name} must be one number or two, not {len(found)}")
    return _whole(name, *found)


def _element(value: npt.DTypeLike) -> str:
    """The name of an element type given in any form that NumPy accepts."""
    try:
        return np.dtype(value).name
    except TypeError:
        return str(value)


def _whole(name: str, *values: object) -> tuple[int, ...]:
    return tuple(whole_number(name, value) for value in values)


def _problem(
    shape: Product | Convolution,
    source: EpilogueSource | Callable[..., Any] | None,
    out: npt.DTypeLike,
    constants: Mapping[str, npt.ArrayLike],
) -> Problem:
    element = _element(out)
    if element not in ELEMENTS:
        raise InputError(f"out must be one of {', '.join(ELEMENTS)}, not {out!r}")
    if source is None:
        if constants:
            raise InputError(f"{min(constants)!r} is an operand of an epilogue, which is not given")
        return Problem(shape)
    read = source if isinstance(source, EpilogueSource) else epilogue(source)
    return Problem(shape, read, element, {name: _whole_values(array) for name, array in constants.items()})


def _whole_values(given: npt.ArrayLike) -> np.ndarray:
    """An array; floats with whole values, such as NumPy's rounding gives, become integers."""
    array = np.asarray(given)
    if array.dtype.kind != "f":
        return array
    with np.errstate(invalid="ignore"):
        made = array.astype(np.int64)
    return made if np.array_equal(made, array) else array
