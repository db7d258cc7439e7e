"""Inner loops in native code: functions on arrays, compiled once per computer and cached."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
import numpy as np

_OPTIONS: dict[str, Any] = {"cache": True, "nogil": True}
#: Options that shorten the compilation of functions that Python never calls.
_INNER: dict[str, Any] = {"no_cpython_wrapper": True, "_nrt": False}
#: Typed constants for compiled functions: a plain 1 would be another type to compile for.
NONE: Any = np.int64(-1)
ZERO: Any = np.int64(0)
ONE: Any = np.int64(1)

F = TypeVar("F", bound=Callable)
#: An array in a compiled function; NumPy's element types would not help there.
Array = Any

_MULTIPLIER = np.uint64(2685821657736338717)
_A, _B, _C, _TOP = np.uint64(12), np.uint64(25), np.uint64(27), np.uint64(33)


def compiled(function: F) -> F:
    """Compiles a function at its first call; machine code is cached beside the source or per user."""
    return _made(function, _OPTIONS)


def generator(seed: int | tuple[int, ...]) -> Array:
    """The state of a random number generator for a seed."""
    mixed = np.random.SeedSequence(seed).generate_state(1, np.uint64)
    mixed[0] |= np.uint64(1)
    return mixed


def inner(function: F) -> F:
    """Compiles a function that only compiled functions call; Python cannot call it."""
    return _made(function, _OPTIONS | _INNER)


def _made(function: F, options: dict[str, Any]) -> F:
    try:
        return cast(F, numba.njit(**options)(function))
    except RuntimeError:
        # Neither cache is writable, so compile anew in every process.
        return cast(F, numba.njit(**options | {"cache": False})(function))


@inner
def below(rng: Array, count: int) -> int:
    """A random integer from 0 to `count` - 1; `rng` is the state (xorshift64*, S. Vigna, 2016)."""
    x = rng[0]
    x ^= x >> _A
    x ^= x << _B
    x ^= x >> _C
    rng[0] = x
    return int(np.int64((x * _MULTIPLIER) >> _TOP) % count)


@inner
def unit(rng: Array) -> float:
    """A random number in [0, 1)."""
    return below(rng, 1 << 30) / (1 << 30)
