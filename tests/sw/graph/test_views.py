"""Views of views equal NumPy's."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from sw.graph.network import Tensor, View, whole
from sw.graph.views import broadcast, covers, descending, repeats, reshaped, same_places, sliced, transposed


@st.composite
def seen(draw: st.DrawFn) -> tuple[View, np.ndarray, np.ndarray]:
    """A view, the array that it should be, and the tensor."""
    shape = tuple(draw(st.lists(st.integers(1, 4), min_size=1, max_size=4)))
    array = np.arange(math.prod(shape)).reshape(shape)
    view, found = whole(Tensor("t", shape, "int32")), array
    for _ in range(draw(st.integers(0, 4))):
        kind = draw(st.integers(0, 3))
        if kind == 0:
            order = draw(st.permutations(range(found.ndim)))
            view, found = transposed(view, order), found.transpose(order)
        elif kind == 1:
            axis = draw(st.integers(0, found.ndim - 1))
            places = range(found.shape[axis])
            step = draw(st.sampled_from([1, 2, -1]))
            start = draw(st.sampled_from(places))
            chosen = list(places[start::step])
            view = sliced(view, axis, start, len(chosen), step)
            found = np.take(found, chosen, axis)
        elif kind == 2:
            wider = (draw(st.integers(1, 3)), *found.shape)
            view, found = broadcast(view, wider), np.broadcast_to(found, wider)
        else:
            flat = found.size
            first = draw(st.sampled_from([d for d in range(1, flat + 1) if flat % d == 0]))
            again = reshaped(view, (first, flat // first))
            if again is not None:
                view, found = again, found.reshape(first, flat // first)
    return view, found, array


@settings(max_examples=300, deadline=None)
@given(seen())
def test_views_of_views_show_the_same_elements(case: tuple[View, np.ndarray, np.ndarray]) -> None:
    view, expected, array = case
    assert np.array_equal(view.of(array), expected)
    assert repeats(view) == (len(np.unique(expected)) < expected.size)
    assert covers(view, array.shape) == np.array_equal(expected.reshape(-1), array.reshape(-1))
    assert same_places(view, view)


@settings(max_examples=300, deadline=None)
@given(seen(), st.randoms(use_true_random=False))
def test_a_reshape_is_refused_only_where_numpy_has_to_copy(
    case: tuple[View, np.ndarray, np.ndarray], random: object
) -> None:
    view, expected, array = case
    shape = (*(2 for _ in range(int(math.log2(expected.size & -expected.size)))), -1)
    shape = expected.reshape(shape).shape
    found = reshaped(view, shape)
    strided = view.of(array)
    copied = not np.shares_memory(strided.reshape(shape), array)
    if found is None:
        assert copied
    else:
        assert np.array_equal(found.of(array), expected.reshape(shape))


def test_writing_through_a_view() -> None:
    tensor = Tensor("t", (2, 3, 4), "int32")
    view = transposed(whole(tensor), (2, 0, 1))
    array = np.zeros(tensor.shape, np.int32)
    view.write(array, np.arange(24).reshape(4, 2, 3))
    assert np.array_equal(array, np.arange(24).reshape(4, 2, 3).transpose(1, 2, 0))
    assert descending(view) == (1, 2, 0)
