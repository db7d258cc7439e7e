"""Host operators form as few islands as their order allows; transfers are counted."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator

import numpy as np
import pytest

from sw.compiler import groups
from sw.graph.expression import Argument
from sw.graph.host import HostOperator, node_of
from sw.graph.islands import gathered, islands, told
from sw.graph.network import Elementwise, Network, Operator, Tensor, View, whole
from sw.graph.reference import random_inputs, run
from sw.graph.requantise import apply


def drawn(seed: int, count: int = 7) -> Network:
    """Operators of host and machine at random, each of one or two tensors before."""
    rng = random.Random(seed)
    tensors = {name: Tensor(name, (2, 4), "int8") for name in ("x", "y")}
    operators: list[Operator] = []
    node = node_of("Identity", [True]).SerializeToString()
    for number in range(count):
        chosen = rng.sample(sorted(tensors), rng.randint(1, 2))
        views = [whole(tensors[name]) for name in chosen]
        made = tensors[f"t{number}"] = Tensor(f"t{number}", (2, 4), "int8")
        about = (f"n{number}", "Add", (f"n{number}",), whole(made))
        if rng.random() < 0.5:
            operators.append(HostOperator(*about, (views[0],), node, 21))
        else:
            value = apply("sub", Argument(0), Argument(len(views) - 1))
            operators.append(Elementwise(*about, value, tuple(views)))
    unread = [
        n
        for n in tensors
        if n.startswith("t") and not any(n == v.tensor for o in operators for v in o.inputs)
    ]
    return Network("drawn", tensors, tuple(operators), ("x", "y"), tuple(unread))


def orders(network: Network) -> Iterator[tuple[Operator, ...]]:
    """All orders in which every operator comes behind those whose results it reads."""
    makers = {o.output.tensor: o for o in network.operators}
    for order in itertools.permutations(network.operators):
        place = {o.name: i for i, o in enumerate(order)}
        if all(
            place[makers[v.tensor].name] < place[o.name]
            for o in order
            for v in o.inputs
            if v.tensor in makers
        ):
            yield order


def sides(order: tuple[Operator, ...]) -> int:
    """How often host and machine take turns."""
    return sum(1 for _ in itertools.groupby(order, lambda o: isinstance(o, HostOperator)))


@pytest.mark.parametrize("seed", range(12))
def test_no_order_has_fewer_groups(seed: int) -> None:
    network = drawn(seed)
    made = gathered(network)
    assert len(list(groups(made))) == sides(made.operators) == min(map(sides, orders(network)))
    inputs = random_inputs(network, np.random.default_rng(seed))
    before, after = run(network, inputs), run(made, inputs)
    assert all(np.array_equal(before[name], after[name]) for name in network.outputs)


def test_a_place_that_is_read_is_not_written_before() -> None:
    node = node_of("Identity", [True]).SerializeToString()
    tensors = {n: Tensor(n, (4,), "int8") for n in ("x", "y", "t", "a", "b")}
    half = View("t", (2,), (1,), 2)
    operators = (
        Elementwise("copy", "Add", (), whole(tensors["t"]), Argument(0), (whole(tensors["x"]),)),
        HostOperator("first", "Identity", (), whole(tensors["a"]), (whole(tensors["t"]),), node, 21),
        Elementwise("again", "Add", (), half, Argument(0), (View("y", (2,), (1,)),)),
        HostOperator("last", "Identity", (), whole(tensors["b"]), (whole(tensors["t"]),), node, 21),
    )
    network = Network("net", tensors, operators, ("x", "y"), ("a", "b"))
    assert [o.name for o in gathered(network).operators] == ["copy", "first", "again", "last"]


def test_what_crosses_is_counted() -> None:
    network = gathered(drawn(5))
    found = islands(network, network.operators)
    host = [o for o in network.operators if isinstance(o, HostOperator)]
    assert sum(len(island.operators) for island in found) == len(host)
    for island in found:
        names = {o.name for o in island.operators}
        makers = {o.output.tensor: o for o in network.operators}
        read = {v.tensor for o in island.operators for v in o.inputs if v.tensor in makers}
        assert island.taken == {n: 8 for n in read if not isinstance(makers[n], HostOperator)}
        assert set(island.given) <= {o.output.tensor for o in island.operators}
        assert island.as_dict()["bytes"] == 8 * (len(island.taken) + len(island.given))
        assert names == set(island.as_dict()["operators"])
    (line,) = told(found)
    crossing = sum(len(i.taken) + len(i.given) for i in found)
    assert f"{len(host)} operators on the host in {len(found)} island" in line
    assert f"{crossing} tensors cross" in line
    assert told(()) == []
