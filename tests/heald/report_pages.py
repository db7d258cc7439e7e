"""Runs for tests of the report: products with a fast simulator, spoiled where a test wants it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from cosim.job import Outcome
from cosim.session.network import compile_model
from cosim.settings import MemorySettings
from heald.model_run import ModelRun, run_model
from heald.report.html.data import RunReport
from hw.config import load
from sw.graph import reference
from sw.graph.fuse import with_tensor
from sw.graph.network import Network, Operator, Tensor
from sw.graph.problems import network_of
from sw.problem import Product
from tests.heald.conftest import Quick

SHAPES = ((12, 16, 20), (5, 40, 9))


def same(outcome: Outcome) -> Outcome:
    """Nothing spoiled."""
    return outcome


def late(outcome: Outcome) -> Outcome:
    """The second half of the events, and the end, three cycles late."""
    events = outcome.events
    half = len(events) // 2
    moved = [event._replace(cycle=event.cycle + 3) for event in events[half:]]
    return replace(outcome, events=[*events[:half], *moved], cycles=outcome.cycles + 3)


def results(
    spoil: Callable[[Outcome], Outcome] = same, shapes: tuple[tuple[int, int, int], ...] = SHAPES
) -> ModelRun:
    """A run of products; `spoil` changes the outcome."""
    config = load("test")
    settings = MemorySettings.of(config)
    network = products([Product(*shape) for shape in shapes])
    inputs = reference.random_inputs(network, np.random.default_rng(0))
    model = compile_model(network, config)
    return run_model(model, inputs, settings, lambda: Quick(config, spoil=spoil))


def products(problems: Sequence[Product]) -> Network:
    """A network of products that have nothing to do with each other."""
    tensors: dict[str, Tensor] = {}
    operators: list[Operator] = []
    for i, problem in enumerate(problems):
        own = network_of(problem, f"product_{i}")
        (operator,) = own.operators
        for name, tensor in own.tensors.items():
            operator = with_tensor(operator, name, f"{name}{i}")
            tensors[f"{name}{i}"] = replace(tensor, name=f"{name}{i}")
        operators.append(operator)
    inputs, outputs = (
        tuple(f"{name}{i}" for i in range(len(problems)) for name in names) for names in ("AB", "C")
    )
    return Network("products", tensors, tuple(operators), inputs, outputs)


def report(spoil: Callable[[Outcome], Outcome] = same, title: str = "two products") -> RunReport:
    """The report of such a run."""
    return replace(results(spoil), title=title).page()
