"""What bounds a run and what would help: every change is another machine whose cycles are predicted."""

from __future__ import annotations

import numpy as np
import pytest

from cosim.advice import Advice, Change, advise, changes
from cosim.session.network import compile_model, predict_model, predictor
from cosim.settings import MemorySettings
from hw.config import MachineConfig, load
from hw.errors import InputError
from hw.fabric import load as load_fabric
from sw.graph import reference
from sw.graph.problems import network_of
from sw.problem import Product

CONFIG = load("test")


def of_product(
    shape: tuple[int, int, int], settings: MemorySettings, config: MachineConfig = CONFIG
) -> Advice:
    """The advice on a product."""
    network = network_of(Product(*shape), "product")
    inputs = reference.random_inputs(network, np.random.default_rng(0))
    tensors = reference.run(network, inputs, everything=True)
    made = compile_model(network, config, bandwidth=settings.bandwidth)
    (program,) = predict_model(made, inputs, settings).programs
    return advise(program.cycles, program.causes, config, settings, predictor(network, inputs, tensors))


def test_a_large_product_is_bound_by_the_array_and_a_larger_array_helps() -> None:
    advice = of_product((64, 96, 64), MemorySettings.of(CONFIG))
    bound, help_ = advice.sentences
    assert "is the array: in " in bound
    assert advice.best is not None
    assert advice.best.cause == "gemm"
    assert f"{advice.best.cycles:,} cycles" in help_
    # It is what the cycle model says of the model compiled for that machine.
    larger = {"rows": CONFIG.replace(rows=8), "cols": CONFIG.replace(cols=8)}
    network = network_of(Product(64, 96, 64), "product")
    inputs = reference.random_inputs(network, np.random.default_rng(0))
    cycles = {
        name: predict_model(compile_model(network, c), inputs, MemorySettings.of(c)).cycles
        for name, c in larger.items()
    }
    array = sorted(change.cycles or 0 for change in advice.changes if change.cause == "gemm")
    assert array == sorted(cycles.values())
    assert array[0] < 0.7 * advice.cycles


def test_a_slow_port_is_the_bottleneck_and_twice_its_bytes_help_most() -> None:
    settings = MemorySettings.of(CONFIG, bandwidth={"load_b": 1})
    advice = of_product((8, 64, 64), settings)
    assert "is load B: in " in advice.sentences[0]
    assert advice.best is not None
    assert advice.best.what == "2 bytes per cycle for load B instead of 1"
    assert advice.saved(advice.best) > 0.3
    assert advice.as_dict()["changes"][0]["what"] == advice.best.what


def test_a_slow_answer_is_told_by_its_latency() -> None:
    settings = MemorySettings.of(CONFIG, latency={"load_a": 400})
    advice = of_product((4, 8, 4), settings)
    assert advice.best is not None
    assert advice.best.what == "a latency of 200 cycles for load A instead of 400"
    # Once, and warps look in their turns.
    assert abs(advice.cycles - (advice.best.cycles or 0) - 200) <= CONFIG.derived.period


def test_ports_get_wider_only_where_memory_needs_it() -> None:
    for rate, width in ((8, 16), (5, 16), (4, 8), (1, 8)):
        settings = MemorySettings.of(CONFIG, bandwidth={"store": rate})
        (_, made), *_ = changes("store", CONFIG, settings)
        config, memories = made()
        assert config.store_bytes == memories.ports["store"].width == width
        assert memories.bandwidth == settings.bandwidth | {"store": 2 * rate}


def test_a_cgra_gets_twice_its_lanes() -> None:
    for name, lanes in (("mesh4x4", 2), ("vector3x4", 16)):
        config = load("default").replace(cgra=load_fabric(name))
        ((_, made),) = changes("cgra", config, MemorySettings.of(config))
        fabric = made()[0].cgra
        assert fabric is not None
        assert fabric.lanes == lanes
        assert fabric.links == load_fabric(name).links
    assert not list(changes("cgra", CONFIG.replace(cgra=None), MemorySettings.of(CONFIG)))


def test_what_cannot_be_built_says_why_and_does_not_help() -> None:
    config = load("large").replace(rows=64)

    def refused(config: MachineConfig, settings: MemorySettings) -> int:
        raise InputError("the compiler refuses it")

    advice = advise(1000, {"gemm": 900, "warps": 100}, config, MemorySettings.of(config), refused)
    told = {change.what: change.why for change in advice.changes}
    assert (
        "rows (rows of the GEMM array) must be 2 to 64, not 128"
        in told["an array of 128 x 32 instead of 64 x 32"]
    )
    assert "the compiler refuses it" in told.values()
    assert advice.best is None
    assert advice.sentences[1] == "None of 3 changes that were tried saves more than 1 % of the cycles."


@pytest.mark.parametrize(("cycles", "helps"), [(989, True), (990, False), (1200, False)])
def test_a_change_helps_that_saves_more_than_a_hundredth(cycles: int, helps: bool) -> None:
    advice = Advice(1000, {"warps": 1000}, (Change("queues of 4 operations instead of 2", "warps", cycles),))
    assert (advice.best is not None) is helps
    assert (
        "Queues of 4 operations instead of 2 would help: 989 cycles, 1.1 % fewer" in advice.sentences[1]
    ) is helps


def test_what_no_field_doubles_is_said() -> None:
    advice = advise(10, {"edges": 10}, CONFIG, MemorySettings.of(CONFIG), lambda config, settings: 0)
    assert advice.changes == ()
    assert advice.sentences[1].startswith("No change was tried")
