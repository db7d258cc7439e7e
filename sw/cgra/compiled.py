"""Inner loops in native code: functions on arrays, compiled once per computer and cached."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
import numpy as np

_OPTIONS: dict[str, Any] = {"cache": True, "nogil": True}
#: What makes the compilation of a function shorter that Python does not call.
_INNER: dict[str, Any] = {"no_cpython_wrapper": True, "_nrt": False}
#: Numbers as compiled functions take them: a plain 1 would be a type of its own to compile for.
NONE: Any = np.int64(-1)
ZERO: Any = np.int64(0)
ONE: Any = np.int64(1)

F = TypeVar("F", bound=Callable)
#: An array in a compiled function; NumPy's element types would say little there.
Array = Any

_MULTIPLIER = np.uint64(2685821657736338717)
_A, _B, _C, _TOP = np.uint64(12), np.uint64(25), np.uint64(27), np.uint64(33)


def compiled(function: F) -> F:
    """The function compiled at its first call; the machine code is kept beside the source or in a cache."""
    return _made(function, _OPTIONS)


def generator(seed: int | tuple[int, ...]) -> Array:
    """The state of a generator of random numbers for a seed."""
    mixed = np.random.SeedSequence(seed).generate_state(1, np.uint64)
    mixed[0] |= np.uint64(1)
    return mixed


def inner(function: F) -> F:
    """The same for what only compiled functions call: there is no way to call it from Python."""
    return _made(function, _OPTIONS | _INNER)


def _made(function: F, options: dict[str, Any]) -> F:
    try:
        return cast(F, numba.njit(**options)(function))
    except RuntimeError:
        # Neither beside the source nor in the user's cache may anything be written: it is compiled each time.
        return cast(F, numba.njit(**options | {"cache": False})(function))


@inner
def below(rng: Array, count: int) -> int:
    """A whole number from 0 to `count` - 1; `rng` is the state (xorshift64*, S. Vigna, 2016)."""
    x = rng[0]
    x ^= x >> _A
    x ^= x << _B
    x ^= x >> _C
    rng[0] = x
    return int(np.int64((x * _MULTIPLIER) >> _TOP) % count)


@inner
def unit(rng: Array) -> float:
    """A number from 0 to 1, 1 excluded."""
    return below(rng, 1 << 30) / (1 << 30)
