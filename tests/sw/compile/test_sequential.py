"""Sequential execution of tile programs gives the reference's results, whatever memories held before.

It knows nothing of warps and cycles: a third opinion besides machine and model.
"""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper

from heald.testing.models import draw
from heald.testing.operators import KINDS
from hw.config import MachineConfig, load
from hw.errors import InputError
from sw.frontend.network import import_model
from sw.graph import reference
from sw.graph.expression import Apply, Argument, Expression, Number
from sw.graph.host import HostOperator
from sw.graph.network import Elementwise, Epilogue, MatrixProduct, Network, Tensor, View, whole
from tests.budget import cases
from tests.sw.compile.convolution_networks import drawn, requantised
from tests.sw.compile.footprints import Footprints
from tests.sw.compile.sequential import Sequential, emitted, results

TEST = load("test", {"cgra": "torus4x4"})


def wrong(network: Network, config: MachineConfig = TEST) -> list[str]:
    """Operations that touch more than they state, and outputs that differ."""
    steps = emitted(network, config)
    found = []
    for step in steps:
        if isinstance(step, Sequential):
            found += list(Footprints(step.source, config, step.memory.homes).wrong())
    inputs = reference.random_inputs(network, np.random.default_rng(1))
    wanted, left = reference.run(network, inputs), results(network, steps, inputs, 7)
    return found + [name for name in wanted if not np.array_equal(wanted[name], left[name])]


@pytest.mark.drawn
@pytest.mark.parametrize("seed", range(cases(3, 8)))
def test_convolutions(seed: int) -> None:
    assert wrong(drawn(1000 + seed)) == []


@pytest.mark.drawn
@pytest.mark.parametrize("seed", range(cases(5, 12)))
def test_random_models(seed: int) -> None:
    model, kinds = draw(f"sequential {seed}", KINDS, 2, 5)
    assert wrong(import_model(model, allow_host=True)) == [], kinds


def tensors(*made: Tensor) -> dict[str, Tensor]:
    return {t.name: t for t in made}


def constant(name: str, shape: tuple[int, ...], element: str, most: int = 100) -> Tensor:
    rng = np.random.default_rng(sum(map(ord, name)))
    return Tensor(name, shape, element, rng.integers(-most, most, shape).astype(element))


def least(name: str, y: View, x: View) -> Elementwise:
    return Elementwise(name, "Max", (name,), y, Apply("max", (Argument(0), Number(-5))), (x,))


def hosted(name: str, y: View, x: View) -> HostOperator:
    node: onnx.NodeProto = helper.make_node("Neg", ["i0"], ["o0"])
    return HostOperator(name, "Neg", (name,), y, (x,), node.SerializeToString(), 21)


def biased(name: str, y: Tensor, a: Tensor, w: Tensor, b: Tensor) -> MatrixProduct:
    value: Expression = Apply("add", (Argument(0), Argument(1)))
    after = Epilogue(requantised(value, 1 << 23, 35, 0, "int8"), (View(b.name, y.shape, (0, 1)),))
    return MatrixProduct(name, "MatMul", (name,), whole(y), whole(a), whole(w), 0, 0, after)


def test_what_the_host_wrote_of_a_tensor_stays_when_the_machine_writes_the_rest() -> None:
    x, c, y = Tensor("x", (4, 32), "int8"), Tensor("c", (8, 32), "int8"), Tensor("y", (8, 32), "int8")
    low, high = (View("c", (4, 32), (32, 1), start) for start in (0, 128))
    operators = (hosted("h", low, whole(x)), least("m", high, whole(x)), least("r", whole(y), whole(c)))
    assert wrong(Network("parts", tensors(x, c, y), operators, ("x",), ("y",))) == []


def test_operators_with_one_name_keep_their_own_constants() -> None:
    a, w = Tensor("a", (24, 40), "int8"), constant("w", (40, 48), "int8")
    one, two = constant("one", (48,), "int32"), constant("two", (48,), "int32")
    y, z = Tensor("y", (24, 48), "int8"), Tensor("z", (24, 48), "int8")
    operators = (biased("mm", y, a, w, one), biased("mm", z, a, w, two))
    assert wrong(Network("names", tensors(a, w, one, two, y, z), operators, ("a",), ("y", "z"))) == []


def test_tensors_may_be_called_what_the_compiler_calls_its_own() -> None:
    a, w = Tensor("configuration 0", (24, 40), "int8"), constant("w", (40, 48), "int8")
    b, y = constant("mm, records of columns", (48,), "int32"), Tensor("y", (24, 48), "int8")
    network = Network("names", tensors(a, w, b, y), (biased("mm", y, a, w, b),), (a.name,), ("y",))
    assert wrong(network) == []


@pytest.mark.parametrize("stride", [(-40, 1), (40, -1), (1, 24)])
def test_rows_and_columns_in_any_order(stride: tuple[int, int]) -> None:
    a, y = Tensor("a", (24, 40), "int8"), Tensor("y", (24, 40), "int8")
    start = sum(-s * (n - 1) for s, n in zip(stride, a.shape, strict=True) if s < 0)
    view = View("a", (24, 40), stride, start)
    assert wrong(Network("order", tensors(a, y), (least("e", whole(y), view),), ("a",), ("y",))) == []
    back = View("y", (24, 40), stride, start)
    assert wrong(Network("order", tensors(a, y), (least("e", back, whole(a)),), ("a",), ("y",))) == []


@pytest.mark.parametrize("shape", [(), (1,), (1, 1, 1), (3, 1), (1, 17)])
def test_few_elements(shape: tuple[int, ...]) -> None:
    x, y = Tensor("x", shape, "uint8"), Tensor("y", shape, "uint8")
    assert wrong(Network("few", tensors(x, y), (least("e", whole(y), whole(x)),), ("x",), ("y",))) == []


@pytest.mark.parametrize(("m", "k", "n"), [(1, 1, 1), (1, 300, 5), (70, 3, 1), (9, 1, 130)])
def test_products_of_odd_sizes(m: int, k: int, n: int) -> None:
    a, w, b = Tensor("a", (m, k), "uint8"), constant("w", (k, n), "int8"), constant("b", (n,), "int32")
    y = Tensor("y", (m, n), "int8")
    assert wrong(Network("odd", tensors(a, w, b, y), (biased("mm", y, a, w, b),), ("a",), ("y",))) == []


def test_rows_are_no_longer_than_operations_can_count() -> None:
    config = load("test", {"scratch_bytes": 1 << 20, "out_bytes": 1 << 20})
    x, y = Tensor("x", (1, 250_000), "int32"), Tensor("y", (1, 250_000), "int8")
    value = requantised(Argument(0), 1 << 23, 30, 0, "int8")
    network = Network(
        "long", tensors(x, y), (Elementwise("e", "Q", (), whole(y), value, (whole(x),)),), ("x",), ("y",)
    )
    (step,) = emitted(network, config)
    assert isinstance(step, Sequential)
    assert list(Footprints(step.source, config, step.memory.homes).wrong()) == []


def test_what_is_given_is_not_written() -> None:
    x, k = Tensor("x", (4,), "int8"), constant("k", (4,), "int8")
    for target, source in ((x, k), (k, x)):
        with pytest.raises(InputError, match=f"e: '{target.name}' is given, so no operator may write it"):
            Network("g", tensors(x, k), (least("e", whole(target), whole(source)),), ("x",), ())
