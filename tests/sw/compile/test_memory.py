"""Allocations of tensors: none overlaps another's live range, and windows cover everything."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hw.config import load
from hw.errors import InputError
from sw.compile.memory import ALIGNMENT, Allocation, Kind, Lines, MemoryPlan, plan_memory
from sw.graph.expression import Argument
from sw.graph.network import Elementwise, Network, Tensor, whole

TEST = load("test", {"cgra": "torus4x4"})


@st.composite
def networks(draw: st.DrawFn) -> tuple[Network, dict[str, Lines]]:
    """Copies from any tensor before to a new one or one before, some of them outputs, some rows padded."""
    shape = draw(st.sampled_from([(), (3,), (5, 7), (40, 33)]))
    zeros = np.zeros(shape, np.int8)
    tensors = {"in": Tensor("in", shape, "int8"), "held": Tensor("held", shape, "int8", zeros)}
    operators = []
    for number in range(draw(st.integers(1, 12))):
        source = draw(st.sampled_from([*tensors]))
        computed = [name for name in tensors if name.startswith("t")]
        target = f"t{number}"
        again: bool = draw(st.booleans())
        if computed and again:
            target = draw(st.sampled_from(computed))
        tensors.setdefault(target, Tensor(target, shape, "int8"))
        views = whole(tensors[target]), whole(tensors[source])
        operators.append(Elementwise(f"o{number}", "Copy", (), views[0], Argument(0), (views[1],)))
    computed = [name for name in tensors if name.startswith("t")]
    outputs = draw(st.lists(st.sampled_from(computed), unique=True))
    row = shape[-1] if shape else 1
    padded: list[str] = draw(st.lists(st.sampled_from([*tensors]), unique=True))
    lines = {n: Lines(row + draw(st.integers(0, 9)), draw(st.integers(0, 3))) for n in padded}
    return Network("drawn", tensors, tuple(operators), ("in",), tuple(outputs)), lines


def uses(network: Network, start: int, stop: int, name: str) -> list[int]:
    """Operators of a run that touch a tensor."""
    run = network.operators[start:stop]
    return [n for n, o in enumerate(run) if name in (o.output.tensor, *(v.tensor for v in o.inputs))]


def meet(one: Allocation, other: Allocation) -> bool:
    return one.address < other.address + other.size and other.address < one.address + one.size


def planned(made: tuple[Network, dict[str, Lines]], start: int, stop: int) -> MemoryPlan:
    network, lines = made
    return plan_memory(network, network.operators[start:stop], lines, TEST)


@given(networks(), st.data())
def test_a_tensor_keeps_its_place_while_somebody_needs_it(
    made: tuple[Network, dict[str, Lines]], data: st.DataObject
) -> None:
    network, lines = made
    start = data.draw(st.integers(0, len(network.operators) - 1))
    stop = data.draw(st.integers(start + 1, len(network.operators)))
    plan = planned(made, start, stop)
    needed: dict[str, tuple[int, int]] = {}
    for name in plan.homes:
        used = uses(network, start, stop, name)
        before, after = uses(network, 0, start, name), uses(network, stop, len(network.operators), name)
        given_before = bool(before) or not name.startswith("t")
        stays = bool(after) or name in network.outputs or not name.startswith("t")
        needed[name] = (-1 if given_before else used[0], len(network.operators) if stays else used[-1])
        home = plan.homes[name]
        assert (home.address - lines.get(name, Lines(0)).start) % ALIGNMENT == 0
        assert home.first <= needed[name][0]
        assert home.last >= min(needed[name][1], stop - start)
    for one, other in itertools.combinations(plan.homes, 2):
        if needed[one][0] <= needed[other][1] and needed[other][0] <= needed[one][1]:
            assert not meet(plan.homes[one], plan.homes[other])


@given(networks())
def test_who_overwrites_says_so(made: tuple[Network, dict[str, Lines]]) -> None:
    plan = planned(made, 0, len(made[0].operators))
    for name, own in plan.homes.items():
        wanted = {
            other.tensor.name
            for other in plan.homes.values()
            if other is not own and meet(own, other) and other.last < own.first
        }
        assert set(plan.overwritten(name)) == wanted
        later = {n for n, h in plan.homes.items() if h is not own and meet(own, h)} - wanted
        assert all(name in plan.overwritten(n) for n in later)


@given(networks())
def test_windows_hold_all_tensors_and_only_what_is_computed_can_be_written(
    made: tuple[Network, dict[str, Lines]],
) -> None:
    plan = planned(made, 0, len(made[0].operators))
    for home in plan.homes.values():
        around = [w for w in plan.windows if w[0] <= home.address and home.address + home.size - 1 <= w[1]]
        assert [w[3] for w in around] == [home.kind in (Kind.ACTIVATION, Kind.OUTPUT)]
        assert home.address + home.size <= plan.end


def test_memory_and_windows_that_do_not_suffice_are_refused() -> None:
    x, y = Tensor("x", (100, 100), "int8"), Tensor("y", (100, 100), "int8")
    copy = Elementwise("o", "Copy", (), whole(y), Argument(0), (whole(x),))
    network = Network("large", {"x": x, "y": y}, (copy,), ("x",), ("y",))
    with pytest.raises(
        InputError, match=r"the tensors of 'large' must fit 16384 bytes of memory, .* are needed"
    ):
        plan_memory(network, network.operators, {}, TEST, range(16384))


def test_images_of_rows_with_padding_are_read_back() -> None:
    tensor = Tensor("x", (2, 3, 5), "int32")
    home = Allocation.of(tensor, Kind.INPUT, 4096, 24, -1, 1, tensor.shape[-1])
    array = np.arange(30, dtype=np.int32).reshape(tensor.shape)
    assert home.image(array).size == home.size == 6 * 24
    assert np.array_equal(home.extract(home.image(array)), array)
    assert [home.offset(n) for n in (0, 1, 5, 7, -10)] == [0, 4, 24, 32, -48]
