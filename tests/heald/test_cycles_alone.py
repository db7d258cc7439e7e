"""The model without values: the same cycles for all events of compiled programs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cosim.job import Job, Outcome
from cosim.models.cycle import grid, predict
from cosim.models.cycle import machine as model
from cosim.session.kernel import base_machine, machine
from cosim.session.network import compile_model, job_of
from cosim.settings import MemorySettings
from hw.config import MachineConfig, load
from hw.fabric import load as load_fabric
from sw.frontend.network import import_model
from sw.graph import reference
from tests.fuzz.grid_kernels import prepared
from tests.heald.network_models import perceptron
from tests.sw.dfg.reference import CASES

#: Not one loop, or one that writes what its next step reads.
NOT_UNROLLED = ("softmax", "matrix_vector", "histogram")
GRID = machine(base_machine(), load_fabric("mesh4x4"))(0, 0)


def cycles(outcome: Outcome) -> tuple[object, ...]:
    """All that is known of a run but values."""
    stored = [(o.cycle, o.pe, o.address) for o in outcome.stored]
    return outcome.events, outcome.cycles, outcome.error, outcome.counters, stored


def compared(config: MachineConfig, job: Job, monkeypatch: pytest.MonkeyPatch) -> tuple[int, int] | None:
    """Launches that were executed without values and with them; None: there was no way without.

    Cycles are the same in either case.
    """
    executed = {False: 0, True: 0}
    run, execute = model._predict, grid.execute
    now = False

    def predicting(config: MachineConfig, job: Job, values: bool) -> Outcome:
        nonlocal now
        now = values
        return run(config, job, values)

    def executing(*given: Any) -> grid.Work:
        executed[now] += 1
        return execute(*given)

    with monkeypatch.context() as patched:
        patched.setattr(model, "_predict", predicting)
        patched.setattr(grid, "execute", executing)
        alone = predict(config, job, values=False)
        fell_back = now
        executed[True] = 0
        assert cycles(alone) == cycles(predict(config, job))
    return None if fell_back else (executed[False], executed[True])


@pytest.mark.parametrize(
    ("name", "unroll"), [(n, u) for n in CASES for u in (1, 2) if u == 1 or n not in NOT_UNROLLED]
)
def test_kernels(name: str, unroll: int, monkeypatch: pytest.MonkeyPatch) -> None:
    found = compared(GRID, prepared(name, 17, GRID, unroll).prepared.prediction.job, monkeypatch)
    # The histogram's addresses are loaded, and so is the counter of iterations that unrolling leaves over.
    assert (found is not None) == (name != "histogram" and unroll == 1)


@pytest.mark.parametrize("stalls", [0, 3])
@pytest.mark.parametrize("preset", ["test", "tiny"])
def test_networks(preset: str, stalls: int, monkeypatch: pytest.MonkeyPatch) -> None:
    # Onto the fabric of `tiny` loops take long to map.
    config = load(preset, {"cgra": "compact4x4"})
    network = import_model(perceptron(64, 64, 100))
    tensors = reference.run(
        network, reference.random_inputs(network, np.random.default_rng(1)), everything=True
    )
    settings = MemorySettings.of(config, stall_seed=stalls)
    for program in compile_model(network, config).programs:
        found = compared(config, job_of(program, tensors, settings, "perceptron"), monkeypatch)
        assert found is not None
        # Equal launches are executed once.
        few, all_ = found
        assert 0 < few < all_ / 2
