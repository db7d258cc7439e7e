"""Results of the kernels, in NumPy with 64 bits or more, wrapped at the end; and arguments for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

KERNELS = Path(__file__).resolve().parents[3] / "examples/08_grid_kernels/kernels.py"
Arrays = dict[str, np.ndarray]
Expected = tuple[Mapping[str, np.ndarray], tuple[int, ...]]


@dataclass(frozen=True)
class Case:
    """Arguments for a number of iterations, and what they give: changed arrays, scalars."""

    arguments: Callable[[np.random.Generator, int], tuple[Arrays, dict[str, int]]]
    expected: Callable[[int, Arrays, dict[str, int]], Expected]


def wrapped(values: np.ndarray) -> np.ndarray:
    """Modulo 2^32, in two's complement."""
    return values.astype(np.int64).astype(np.int32)


def whole(value: object) -> int:
    """A single number modulo 2^32."""
    return (int(value) + 2**31) % 2**32 - 2**31  # type: ignore[call-overload]


def full(rng: np.random.Generator, size: int) -> np.ndarray:
    """Any int32."""
    return rng.integers(-(2**31), 2**31, size).astype(np.int32)


def small(rng: np.random.Generator, size: int, limit: int) -> np.ndarray:
    """Numbers of either sign below a limit."""
    return rng.integers(-limit, limit, size).astype(np.int32)


def wide(array: np.ndarray) -> np.ndarray:
    """In 64 bits."""
    return array.astype(np.int64)


def _dot(n, a, s):
    return {}, (whole(sum(int(p) * int(q) for p, q in zip(a["a"], a["b"], strict=True))),)


def _saxpy(n, a, s):
    return {"y": wrapped(s["alpha"] * wide(a["x"]) + wide(a["y"]))}, ()


def _fir(n, a, s):
    taps = [s[f"c{i}"] for i in range(4)]
    return {"y": wrapped(wrapped(np.convolve(wide(a["x"]), taps)[:n]) >> 8) if n else a["y"]}, ()


def _iir(n, a, s):
    y = np.zeros(n + 2, dtype=np.int64)
    for i in range(n):
        feedback = whole(s["a1"] * int(y[i - 1]) + s["a2"] * int(y[i - 2]))
        y[i] = whole(whole((s["b0"] * int(a["x"][i]) + 8192) >> 14) - (feedback >> 14))
    return {"y": wrapped(y[:n])}, ()


def _convolution(n, a, s):
    if n == 0:
        return {}, ()
    rows = wide(a["x"]).reshape(3, -1)
    windows = np.lib.stride_tricks.sliding_window_view(rows, (3, 3))[0, :n]
    return {"y": wrapped(np.einsum("irc,rc->i", windows, wide(a["w"]).reshape(3, 3)))}, ()


def _matrix_vector(n, a, s):
    return {"y": wrapped(wide(a["a"]).reshape(n, s["columns"]) @ wide(a["x"]))}, ()


def _prefix(n, a, s):
    sums = wrapped(np.cumsum(wide(a["x"])))
    return {"y": sums}, (int(sums[-1]) if n else 0,)


def _maximum(n, a, s):
    return {}, (max(a["x"].tolist(), default=-(2**31)),)


def _argmax(n, a, s):
    where = int(np.argmax(a["x"])) if n else -1
    return {}, (where, int(a["x"][where]) if n else -(2**31))


def _histogram(n, a, s):
    return {"h": a["h"] + np.bincount(a["x"] & 15, minlength=16).astype(np.int32)}, ()


def _requantize(n, a, s):
    exact = np.longdouble(1) * a["x"].astype(np.longdouble) * s["multiplier"] / 2 ** s["shift"]
    return {"y": np.clip(np.rint(exact).astype(np.int64) + s["zero"], -128, 127).astype(np.int32)}, ()


def _gelu(n, a, s):
    x = wide(a["x"])
    square = (np.minimum(np.abs(x), 28) - 28) ** 2
    return {"y": wrapped(x * (np.sign(x) * (886 - square) + 886))}, ()


def _softmax(n, a, s):
    if n == 0:
        return {}, (0,)
    distance = np.maximum(wide(a["x"]) - a["x"].max(), -20000)
    halvings = np.where(distance > -20000, -distance // 710, 30)
    polynomial = (distance + halvings * 710 + 1385) ** 2 + 1006156
    e = np.where(halvings < 22, polynomial >> np.minimum(halvings + 9, 31), 0)
    total = int(e.sum())
    y = (e * (2**30 // total) + 2**14) >> 15
    return {"e": wrapped(e), "y": wrapped(y)}, (total,)


CASES = {
    "dot_product": Case(lambda r, n: ({"a": full(r, n), "b": full(r, n)}, {}), _dot),
    "saxpy": Case(lambda r, n: ({"x": full(r, n), "y": full(r, n)}, {"alpha": -12345}), _saxpy),
    "fir": Case(
        lambda r, n: ({"x": full(r, n), "y": full(r, n)}, {"c0": 77, "c1": -3, "c2": 1000003, "c3": 5}), _fir
    ),
    "iir": Case(
        lambda r, n: (
            {"x": small(r, n, 1 << 20), "y": full(r, n)},
            {"a1": -29000, "a2": 13000, "b0": 411},
        ),
        _iir,
    ),
    "convolution_3x3": Case(
        lambda r, n: ({"x": full(r, 3 * (n + 2)), "w": small(r, 9, 128), "y": full(r, n)}, {"width": n + 2}),
        _convolution,
    ),
    "matrix_vector": Case(
        lambda r, n: ({"a": full(r, 5 * n), "x": small(r, 5, 1 << 24), "y": full(r, n)}, {"columns": 5}),
        _matrix_vector,
    ),
    "prefix_sum": Case(lambda r, n: ({"x": full(r, n), "y": full(r, n)}, {}), _prefix),
    "maximum": Case(lambda r, n: ({"x": full(r, n)}, {}), _maximum),
    "argmax": Case(lambda r, n: ({"x": small(r, n, 40)}, {}), _argmax),
    "histogram": Case(lambda r, n: ({"x": small(r, n, 40), "h": small(r, 16, 100)}, {}), _histogram),
    "requantize": Case(
        lambda r, n: (
            {"x": small(r, n, 1 << 17), "y": full(r, n)},
            # A power of two, so that halves are met.
            {"multiplier": 1 << 20, "shift": 31, "zero": -3},
        ),
        _requantize,
    ),
    "gelu": Case(lambda r, n: ({"x": small(r, n, 60), "y": full(r, n)}, {}), _gelu),
    "softmax": Case(
        lambda r, n: ({"x": small(r, n, 9000), "e": full(r, n), "y": full(r, n)}, {}),
        _softmax,
    ),
}
