"""A matrix product in the compiler: sizes, types, zero points, layouts, batches."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from hw.errors import InputError
from sw.dtypes import INT8, UINT8

#: Types of operands.
TYPES = {t.name: t for t in (INT8, UINT8)}


@dataclass(frozen=True)
class Product:
    """C[..., m, n] = sum over k of (A[..., m, k] - zero_a) * (B[..., k, n] - zero_b), in int32.

    `type_a` and `type_b` are `int8` or `uint8`. A transposed operand is stored as [k, m] or [n, k]. The
    batches are the axes before the matrix; they broadcast as in NumPy. Raises `InputError` for sizes
    below 1, invalid types or zero points, and batches that do not broadcast.
    """

    m: int
    k: int
    n: int
    type_a: str = "int8"
    type_b: str = "int8"
    zero_a: int = 0
    zero_b: int = 0
    transposed_a: bool = False
    transposed_b: bool = False
    batch_a: tuple[int, ...] = ()
    batch_b: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        for axis in ("m", "k", "n"):
            if getattr(self, axis) < 1:
                raise InputError(f"{axis} of a matrix product must be at least 1, not {getattr(self, axis)}")
        for operand in ("a", "b"):
            kind = getattr(self, f"type_{operand}")
            if kind not in TYPES:
                raise InputError(f"type of {operand.upper()} must be {' or '.join(TYPES)}, not {kind!r}")
            zero, limits = getattr(self, f"zero_{operand}"), TYPES[kind]
            if not limits.low <= zero <= limits.high:
                raise InputError(
                    f"zero point of {operand.upper()} ({kind}) must be "
                    f"{limits.low} to {limits.high}, not {zero}"
                )
            if any(size < 1 for size in getattr(self, f"batch_{operand}")):
                raise InputError(f"batches must be at least 1, not {list(getattr(self, f'batch_{operand}'))}")
        self.batch  # noqa: B018 (checks that the batches broadcast)

    @property
    def batch(self) -> tuple[int, ...]:
        """The axes of C before the matrix."""
        try:
            return tuple(np.broadcast_shapes(self.batch_a, self.batch_b))
        except ValueError:
            raise InputError(
                f"batches of A and B must broadcast, {list(self.batch_a)} and {list(self.batch_b)} do not"
            ) from None

    @property
    def shape_a(self) -> tuple[int, ...]:
        """Shape of A as stored."""
        return (*self.batch_a, *((self.k, self.m) if self.transposed_a else (self.m, self.k)))

    @property
    def shape_b(self) -> tuple[int, ...]:
        """Shape of B as stored."""
        return (*self.batch_b, *((self.n, self.k) if self.transposed_b else (self.k, self.n)))

    @property
    def shape_c(self) -> tuple[int, ...]:
        """Shape of the result."""
        return (*self.batch, self.m, self.n)

    @property
    def macs(self) -> int:
        """Number of multiply-accumulates."""
        return math.prod(self.batch) * self.m * self.k * self.n

    def __str__(self) -> str:
        batch = "x".join(map(str, self.batch))
        core = f"{self.m}x{self.k}x{self.n}"
        return f"{batch}·({core})" if batch else core

    def check(self, a: np.ndarray, b: np.ndarray) -> None:
        """Raises `InputError` unless the arrays have the shapes and types of the operands as stored."""
        check_operand("A", a, self.type_a, self.shape_a)
        check_operand("B", b, self.type_b, self.shape_b)

    def reference(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """Computes the product with NumPy in int32, from operands as stored; sums wrap as on the machine.

        Computed in float64, which is exact here: no sum reaches 2^53 for k below 1.3e11.
        """
        self.check(a, b)
        left = (a.swapaxes(-1, -2) if self.transposed_a else a).astype(np.float64) - self.zero_a
        right = (b.swapaxes(-1, -2) if self.transposed_b else b).astype(np.float64) - self.zero_b
        exact: np.ndarray = np.matmul(left, right).astype(np.int64).astype(np.int32)
        return exact

    def random(self, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Draws operands over the whole range of their types."""
        return drawn(rng, self.type_a, self.shape_a), drawn(rng, self.type_b, self.shape_b)


def check_operand(name: str, array: np.ndarray, kind: str, shape: tuple[int, ...]) -> None:
    """Raises `InputError` unless the array has this type and shape."""
    if array.dtype != kind or array.shape != shape:
        raise InputError(
            f"{name} must be {kind} of shape {list(shape)}, not {array.dtype} of {list(array.shape)}"
        )


def drawn(rng: np.random.Generator, kind: str, shape: tuple[int, ...]) -> np.ndarray:
    """Draws an array over the whole range of its type."""
    return rng.integers(*TYPES[kind].limits, shape, kind, endpoint=True)
