"""Convolutions: right results in any order of events, for every stride, padding, dilation and group."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heald.testing.problems import compile_problem
from hw.config import MachineConfig, load
from hw.errors import InputError
from sw.convolution import Convolution
from sw.patches import Axis
from tests.budget import cases, sweep
from tests.sw.functional import execute, random_blocking

TEST = load("test")


def square(size: int, kernel: int, stride: int = 1, pad: int = 0, dilation: int = 1) -> tuple[Axis, Axis]:
    """The same axis twice."""
    axis = Axis(size, kernel, stride, pad, pad, dilation)
    return axis, axis


def naive(problem: Convolution, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The definition, pixel by pixel."""
    out = np.zeros(problem.shape_c, np.int64)
    r, c = problem.rows, problem.cols
    per = problem.patches.channels
    for n, o, y, x in np.ndindex(*out.shape):
        for i, kr, kc in np.ndindex(per, r.kernel, c.kernel):
            row, col = y * r.stride - r.before + kr * r.dilation, x * c.stride - c.before + kc * c.dilation
            if 0 <= row < r.size and 0 <= col < c.size:
                pixel = int(b[n, o // problem.m * per + i, row, col])
                out[n, o, y, x] += (int(a[o, i, kr, kc]) - problem.zero_a) * (pixel - problem.zero_b)
    return out.astype(np.int32)


def test_the_reference_is_the_definition() -> None:
    problem = Convolution(
        2, 4, Axis(6, 2, 2, 1, 0, 2), Axis(5, 3, 1, 0, 2), 6, "int8", "uint8", -3, 130, groups=2
    )
    a, b = problem.random(np.random.default_rng(1))
    assert np.array_equal(problem.reference(a, b), naive(problem, a, b))


PROBLEMS = [
    Convolution(1, 1, *square(3, 3), 1),
    Convolution(1, 3, *square(12, 7, 2, 3), 5, type_b="uint8", zero_b=128),
    Convolution(2, 5, *square(9, 3, 1, 1), 7, zero_a=3, zero_b=-5),
    Convolution(1, 20, *square(14, 3, 1, 1), 9),
    Convolution(1, 6, *square(13, 3, 2, 1), 6, groups=3),
    Convolution(1, 7, *square(10, 1), 9),
    Convolution(2, 6, *square(5, 1), 4, groups=2),
    Convolution(1, 7, *square(11, 1, 2), 9),
    Convolution(1, 2, *square(17, 3, 1, 2, 2), 4),
    Convolution(1, 2, Axis(1, 1), Axis(200, 9, 4, 3, 2), 3),
    Convolution(1, 3, Axis(4, 2), Axis(301, 3, 1, 1, 1), 5),
    Convolution(1, 2, Axis(6, 1, 1, 3, 3), Axis(6, 2, 3, 4, 0), 3, zero_b=9),
    Convolution(1, 1, Axis(2, 2, 5, 4, 9), Axis(3, 1, 9, 8, 20), 2, zero_b=-7),
]


@pytest.mark.parametrize("hw", sweep(["test", "lean", "tiny"], kept=("test",)))
@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
def test_result_is_numpys_whatever_the_order_of_events(problem: Convolution, hw: str) -> None:
    got, want, _ = execute(problem, load(hw), seed=problem.m + problem.k)
    assert got.dtype == np.int32
    assert np.array_equal(got, want)


@st.composite
def axes(draw: st.DrawFn) -> Axis:
    """Axes whose kernel fits the padded image."""
    kernel, dilation = draw(st.integers(1, 4)), draw(st.integers(1, 3))
    before, after = draw(st.integers(0, 4)), draw(st.integers(0, 4))
    least = max(1, (kernel - 1) * dilation + 1 - before - after)
    return Axis(
        draw(st.integers(least, least + 20)), kernel, draw(st.integers(1, 4)), before, after, dilation
    )


@pytest.mark.drawn
@settings(max_examples=cases(25, 120), deadline=None)
@given(
    axes(),
    axes(),
    st.integers(1, 2),
    st.integers(1, 3),
    st.integers(1, 4),
    st.integers(1, 5),
    st.sampled_from([TEST, load("lean"), TEST.replace(rows=8, cols=2, load_b_bytes=16, store_bytes=4)]),
    st.integers(0, 1000),
)
def test_any_convolution_on_any_machine(
    rows: Axis,
    cols: Axis,
    images: int,
    groups: int,
    channels: int,
    out: int,
    config: MachineConfig,
    seed: int,
) -> None:
    problem = Convolution(
        images, groups * channels, rows, cols, groups * out, "int8", "uint8", 1, 77, groups=groups
    )
    got, want, _ = execute(problem, config, seed)
    assert np.array_equal(got, want)


@pytest.mark.drawn
@settings(max_examples=cases(10, 120), deadline=None)
@given(axes(), axes(), st.integers(1, 2), st.integers(1, 4), st.integers(1, 12), st.integers(0, 1 << 30))
def test_any_blocking_of_any_convolution(
    rows: Axis, cols: Axis, images: int, channels: int, out: int, seed: int
) -> None:
    problem = Convolution(images, channels, rows, cols, out, zero_b=11)
    t = random_blocking(problem, TEST, random.Random(seed))
    got, want, _ = execute(problem, TEST, seed, t)
    assert np.array_equal(got, want), t


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: Convolution(0, 1, *square(3, 3), 1), "images of a convolution must be at least 1, not 0"),
        (
            lambda: Convolution(1, 3, *square(3, 3), 4, groups=2),
            "channels must be a multiple of the 2",
        ),
        (lambda: Convolution(1, 1, *square(3, 4), 1), "the kernel covers 4 rows, the padded image must have"),
        (lambda: Convolution(1, 1, *square(3, 3, 0), 1), "stride along rows must be at least 1, not 0"),
        (lambda: Convolution(1, 1, *square(3, 3, 1, -1), 1), "padding along rows must be at least 0"),
        (
            lambda: compile_problem(Convolution(1, 1, *square(900, 3, 256), 1), TEST),
            "stride along rows must be at",
        ),
        (lambda: compile_problem(Convolution(1, 1, *square(64, 60), 1), TEST), "buffers must hold two tiles"),
    ],
)
def test_what_is_no_convolution_or_does_not_fit_is_refused(make: object, text: str) -> None:
    with pytest.raises(InputError, match=text):
        make()  # type: ignore[operator]
